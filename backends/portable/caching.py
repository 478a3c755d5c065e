"""Caches, pages and partial results, in Array API calls alone: the chapter `caching`."""

import math
from typing import Any

from attnspec.backends.portable.errors import (
    check,
    check_bounds,
    check_dtypes,
    check_flags,
    check_floating,
    count,
    describe,
    dtype_name,
    integers,
    namespace,
    working,
)
from attnspec.backends.portable.notation import per_entry, reshape
from attnspec.backends.portable.parts import part
from attnspec.backends.portable.softmax import largest


def append_cache(cache: Any, new: Any, *, lengths: Any) -> Any:
    """Write new positions after those that are there, into a cache of its own (CACHE-1, CACHE-2).

    Parameters
    ----------
    cache : (*B, H, C, D) or (C, D)
    new : (*B, H, N, D) or (N, D)
    lengths : int, or integers (*B)
        How many positions the cache holds already.

    Returns
    -------
    array of the shape of `cache`

    Raises
    ------
    ValueError
        When the arrays do not fit, or the new positions do not fit in.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["append_cache"](np.zeros((4, 1)), np.array([[5.0], [6.0]]), lengths=1).ravel().tolist()
    [0.0, 5.0, 6.0, 0.0]
    """
    xp = namespace("ERR-2", cache=cache, new=new)
    check_dtypes(cache=cache, new=new)
    shape, got = tuple(cache.shape), tuple(new.shape)
    check("cache", len(shape) >= 2, "two axes or more", f"shape {shape}", "SHAPE-1")
    *outer, capacity, depth = shape
    fits = len(got) == len(shape) and [*got[:-2], got[-1]] == [*outer, depth]
    expected = f"shape ({', '.join(map(str, [*outer, 'N', depth]))}) as of cache"
    check("new", fits, expected, got, "SHAPE-6")
    added = got[-2]
    room = f"room for {added} new positions"
    check("lengths", added <= capacity, room, f"a capacity of {capacity}", "CACHE-2")
    bounds = (0, capacity - added)
    held = integers(xp, "lengths", lengths, shape[:-3], "CACHE-1", bounds, "CACHE-2")
    return _append(xp, cache, new, held)


@part
def _append(xp: Any, cache: Any, new: Any, held: Any) -> Any:
    *outer, capacity, depth = shape = tuple(cache.shape)
    added = new.shape[-2]
    # Old and new laid end to end, and each position of the result taken from the one or the other.
    positions = count(xp, capacity, cache)
    index = positions - per_entry(held, len(shape) - 1)  # (*B, 1, C)
    index = xp.where((index >= 0) & (index < added), index + capacity, positions)
    entries = math.prod(outer)
    index = reshape(xp, xp.broadcast_to(index, shape[:-1]), (entries, capacity))
    starts = count(xp, entries, cache)[:, None] * (capacity + added)
    both = reshape(xp, xp.concat([cache, new], axis=-2), (entries * (capacity + added), depth))
    return reshape(xp, xp.take(both, reshape(xp, index + starts, (entries * capacity,)), axis=0), shape)


def gather_pages(pages: Any, block_table: Any) -> Any:
    """Lay the pages of each sequence end to end (CACHE-4, CACHE-5).

    Parameters
    ----------
    pages : (P, H, K, D)
    block_table : integers (*B, T)

    Returns
    -------
    array (*B, H, T * K, D)

    Raises
    ------
    ValueError
        When a page does not exist.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> pages = np.array([1.0, 2.0, 3.0, 4.0]).reshape(2, 1, 2, 1)
    >>> COMPANIONS["gather_pages"](pages, np.array([1, 0])).ravel().tolist()
    [3.0, 4.0, 1.0, 2.0]
    """
    xp = namespace("CACHE-4", pages=pages, block_table=block_table)
    check_floating("ERR-2", pages=pages)
    check("pages", pages.ndim == 4, "(P, H, K, D)", f"shape {tuple(pages.shape)}", "CACHE-4")
    kind = dtype_name(block_table).startswith(("int", "uint"))
    check("block_table", kind and block_table.ndim >= 1, "integers (*B, T)", describe(block_table), "CACHE-4")
    table = xp.astype(block_table, xp.int64)
    check_bounds(xp, "block_table", table, (0, pages.shape[0] - 1), "CACHE-5")
    return _gather(xp, pages, table)


@part
def _gather(xp: Any, pages: Any, table: Any) -> Any:
    _, heads, positions, depth = pages.shape
    *outer, length = table.shape
    taken = xp.take(pages, reshape(xp, table, (math.prod(table.shape),)), axis=0)
    gathered = xp.moveaxis(reshape(xp, taken, (*outer, length, heads, positions, depth)), -4, -3)
    return reshape(xp, gathered, (*outer, heads, length * positions, depth))


def merge_partials(outputs: Any, lses: Any, *, return_lse: bool = False) -> Any:
    """Merge attention over parts of the keys (CACHE-6, CACHE-7).

    Parameters
    ----------
    outputs : (N, *B, H, L, Dv) or (N, L, Dv)
    lses : (N, *B, H, L) or (N, L)
        In float32, or float64 where the outputs are.

    Returns
    -------
    array (*B, H, L, Dv) or (L, Dv)
        And, if asked for, the lse ``(*B, H, L)`` or ``(L,)``, in a tuple.

    Raises
    ------
    ValueError
        When outputs and lses do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.portable.operations import COMPANIONS
    >>> COMPANIONS["merge_partials"](np.array([[[2.0]], [[4.0]]]), np.zeros((2, 1)))
    array([[3.]])
    """
    xp = namespace("ERR-2", outputs=outputs, lses=lses)
    check_floating("ERR-2", outputs=outputs)
    check_flags(return_lse=return_lse)
    shape = tuple(outputs.shape)
    check("outputs", len(shape) >= 3 and shape[-1] > 0, "(N, *B, H, L, Dv)", f"shape {shape}", "CACHE-6")
    precise = ("float64",) if dtype_name(outputs) == "float64" else ("float32", "float64")
    check("lses", dtype_name(lses) in precise, " or ".join(precise), dtype_name(lses), "NUM-7")
    check("lses", tuple(lses.shape) == shape[:-1], f"shape {shape[:-1]}", tuple(lses.shape), "CACHE-6")
    output, lse = _merge(xp, outputs, lses)
    return (output, lse) if return_lse else output


@part
def _merge(xp: Any, outputs: Any, lses: Any) -> tuple[Any, Any]:
    spoilt = xp.any(~(lses < math.inf), axis=0)
    known = xp.where(lses < math.inf, lses, -math.inf)
    top = largest(xp, known, 0)[0, ...]
    top = xp.where(top > -math.inf, top, 0.0)
    exponentials = xp.exp(known - top)
    total = xp.sum(exponentials, axis=0)
    shares = exponentials / xp.where(total > 0, total, 1.0)
    # Selected away: a share of 0 does not keep NaN out.
    clean = xp.where((known > -math.inf)[..., None], working(outputs), 0.0)
    output = xp.sum(shares[..., None] * clean, axis=0)
    output = xp.astype(xp.where(spoilt[..., None], math.nan, output), outputs.dtype)
    lse = xp.where(total > 0, top + xp.log(xp.where(total > 0, total, 1.0)), -math.inf)
    return output, xp.astype(xp.where(spoilt, math.nan, lse), lses.dtype)
