"""Keys and values of earlier positions, and partial results, as in the chapter `caching`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.errors import ArgumentError, check_flag, check_integers
from attnspec.reference.notation import Real, as_real, check_dtypes


def append_cache(
    cache: ArrayLike, new: ArrayLike, *, lengths: ArrayLike, dtype: DTypeLike = np.float64
) -> Real:
    """Write new positions after those that a cache holds.

    Parameters
    ----------
    cache : (*B, H, C, D) or (C, D)
    new : (*B, H, N, D) or (N, D)
    lengths : int or (*B)
        How many positions the cache holds.
    dtype : data type, optional
        Dtype of the result.

    Returns
    -------
    (*B, H, C, D)
        A new cache; the one given is left as it was.

    Raises
    ------
    ArgumentError
        When shapes differ, or the new positions do not fit into the capacity.

    Notes
    -----
    Rules CACHE-1 and CACHE-2.

    Examples
    --------
    >>> from attnspec.reference import append_cache
    >>> append_cache([[1.0], [0.0], [0.0]], [[5.0]], lengths=1).tolist()
    [[1.0], [5.0], [0.0]]
    """
    check_dtypes(cache=cache, new=new)
    held, added = as_real("cache", cache, dtype), as_real("new", new, dtype)
    if held.ndim < 2:
        raise ArgumentError(f"cache: expected two axes or more, got shape {held.shape} [CACHE-1]")
    if added.ndim != held.ndim or (added.shape[:-2], added.shape[-1]) != (held.shape[:-2], held.shape[-1]):
        raise ArgumentError(f"new: expected {held.shape} but for the positions, got {added.shape} [SHAPE-6]")
    batch = held.shape[:-3]
    starts = check_integers("lengths", lengths, batch, "CACHE-1")
    capacity, count = held.shape[-2], added.shape[-2]
    if (starts < 0).any() or (starts + count > capacity).any():
        raise ArgumentError(
            f"lengths: expected 0 to {capacity - count} to fit {count} more into {capacity}, "
            f"got {lengths!r} [CACHE-2]"
        )
    for index in np.ndindex(*batch):
        start = starts[index]
        held[(*index, ..., slice(start, start + count), slice(None))] = added[index]
    return held


def gather_pages(pages: ArrayLike, block_table: ArrayLike, *, dtype: DTypeLike = np.float64) -> Real:
    """Lay out the pages of each sequence in order.

    Parameters
    ----------
    pages : (P, H, K, D)
    block_table : int (*B, T)
        The pages of each sequence.
    dtype : data type, optional
        Dtype of the result.

    Returns
    -------
    (*B, H, T * K, D)

    Raises
    ------
    ArgumentError
        When shapes do not fit, or a page does not exist.

    Notes
    -----
    Rules CACHE-4 and CACHE-5.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import gather_pages
    >>> pages = np.array([[[[1.0], [2.0]]], [[[3.0], [4.0]]]])  # two pages of one head and two positions
    >>> gather_pages(pages, [1, 0]).ravel().tolist()
    [3.0, 4.0, 1.0, 2.0]
    """
    pages = as_real("pages", pages, dtype)
    if pages.ndim != 4:
        raise ArgumentError(f"pages: expected four axes, got shape {pages.shape} [CACHE-4]")
    table = check_integers("block_table", block_table, np.shape(block_table), "CACHE-4", alone=False)
    if table.ndim < 1:
        raise ArgumentError("block_table: expected one axis or more, got a single number [CACHE-4]")
    if (table < 0).any() or (table >= pages.shape[0]).any():
        raise ArgumentError(f"block_table: expected pages 0 to {pages.shape[0] - 1}, got others [CACHE-5]")
    gathered = np.moveaxis(pages[table], -4, -3)  # (*B, T, H, K, D) to (*B, H, T, K, D)
    count = gathered.shape[-3] * gathered.shape[-2]
    return gathered.reshape(*gathered.shape[:-3], count, gathered.shape[-1])


def merge_partials(
    outputs: ArrayLike, lses: ArrayLike, *, return_lse: bool = False, dtype: DTypeLike = np.float64
) -> Any:
    """Merge results over parts of the keys into that over all of them.

    Parameters
    ----------
    outputs : (N, *B, H, L, Dv)
    lses : (N, *B, H, L)
    return_lse : bool, optional
        Return the merged lse too.
    dtype : data type, optional
        Working precision and dtype of the results.

    Returns
    -------
    output : (*B, H, L, Dv)
    lse : (*B, H, L)
        Only with ``return_lse``.

    Raises
    ------
    ArgumentError
        When shapes do not fit.

    Notes
    -----
    Rules CACHE-6 and CACHE-7.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import merge_partials
    >>> merge_partials([[[1.0]], [[5.0]]], np.log([[3.0], [1.0]])).round(9).tolist()
    [[2.0]]
    """
    _check_precise(outputs, lses)
    outputs, lses = as_real("outputs", outputs, dtype), as_real("lses", lses, dtype)
    if outputs.ndim < 3:
        raise ArgumentError(f"outputs: expected three axes or more, got shape {outputs.shape} [CACHE-6]")
    if lses.shape != outputs.shape[:-1]:
        raise ArgumentError(f"lses: expected shape {outputs.shape[:-1]}, got {lses.shape} [CACHE-6]")
    top = lses.max(axis=0, initial=-np.inf)
    shift = np.where(top == -np.inf, 0, top)
    rates = np.exp(lses - shift)  # (N, *B, H, L)
    total = rates.sum(axis=0)
    # An empty part may hold anything, and 0 * NaN is NaN.
    held = np.where(lses[..., None] == -np.inf, 0, outputs)
    sums = (rates[..., None] * held).sum(axis=0)
    output = sums / np.where(total == 0, 1, total)[..., None]
    with np.errstate(divide="ignore"):  # every part empty
        lse = shift + np.log(total)
    return (output, lse) if check_flag("return_lse", return_lse) else output


def _check_precise(outputs: ArrayLike, lses: ArrayLike) -> None:
    """Refuse lses of a shorter dtype than they may have been returned in (NUM-7)."""
    if isinstance(outputs, np.ndarray) and isinstance(lses, np.ndarray):
        precise = ("float64",) if outputs.dtype == np.float64 else ("float32", "float64")
        if lses.dtype.name not in precise:
            raise ArgumentError(f"lses: expected {' or '.join(precise)}, got {lses.dtype} [NUM-7]")
