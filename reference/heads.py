"""Which heads meet, and what multi-head attention is made of, as in the chapter `heads`."""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.errors import ArgumentError
from attnspec.reference.notation import Real, as_real


def repeat_heads(array: Real, shape: tuple[int, ...]) -> Real:
    """Repeat key heads in place until there is one for each query head (HEAD-1).

    Parameters
    ----------
    array : (*B, Hkv, S, D) or (S, D)
    shape : tuple of int
        The query's, ``(*B, Hq, L, D)``.

    Returns
    -------
    (*B, Hq, S, D) or (S, D)

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.heads import repeat_heads
    >>> repeat_heads(np.array([[[1.0]], [[2.0]]]), (4, 1, 1)).ravel().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    if array.ndim == 2:
        return array
    # Not np.tile, which gives 1 2 1 2: query head h would read head h % Hkv.
    return np.repeat(array, shape[-3] // array.shape[-3], axis=-3)


def split_heads(features: ArrayLike, *, heads: int, dtype: DTypeLike = np.float64) -> Real:
    """Cut features into consecutive blocks, one for each head.

    Parameters
    ----------
    features : (*B, N, heads * D)
    heads : int
    dtype : data type, optional
        Dtype of the result.

    Returns
    -------
    (*B, heads, N, D)

    Raises
    ------
    ArgumentError
        When the number of features is not a multiple of `heads`.

    Notes
    -----
    Rules HEAD-3 and HEAD-5.

    Examples
    --------
    >>> from attnspec.reference import split_heads
    >>> split_heads([[1.0, 2.0], [3.0, 4.0]], heads=2).tolist()
    [[[1.0], [3.0]], [[2.0], [4.0]]]
    """
    features = as_real("features", features, dtype)
    if features.ndim < 2:
        raise ArgumentError(f"features: expected two axes or more, got shape {features.shape} [HEAD-3]")
    width = features.shape[-1]
    heads = check_count("heads", heads, "HEAD-5")
    if width % heads or width == 0:
        raise ArgumentError(f"heads: expected a divisor of the {width} features, got {heads} [HEAD-5]")
    blocks = features.reshape(*features.shape[:-1], heads, width // heads)  # (*B, N, heads, D)
    return np.swapaxes(blocks, -2, -3)


def merge_heads(split: ArrayLike, *, dtype: DTypeLike = np.float64) -> Real:
    """Put the heads of each position side by side: the inverse of `split_heads`.

    Parameters
    ----------
    split : (*B, heads, N, D)
    dtype : data type, optional
        Dtype of the result.

    Returns
    -------
    (*B, N, heads * D)

    Raises
    ------
    ArgumentError
        When there is no axis of heads.

    Notes
    -----
    Rule HEAD-4.

    Examples
    --------
    >>> from attnspec.reference import merge_heads
    >>> merge_heads([[[1.0], [3.0]], [[2.0], [4.0]]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    split = as_real("split", split, dtype)
    if split.ndim < 3:
        raise ArgumentError(f"split: expected three axes or more, got shape {split.shape} [HEAD-4]")
    blocks = np.swapaxes(split, -2, -3)  # (*B, N, heads, D)
    return blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] * blocks.shape[-1])


def check_count(name: str, given: int, rule: str) -> int:
    """Take a number of heads.

    Raises
    ------
    ArgumentError
        For anything but a whole number of 1 or more.

    Examples
    --------
    >>> from attnspec.reference.heads import check_count
    >>> check_count("heads", 2, "HEAD-5")
    2
    """
    if not isinstance(given, int | np.integer) or isinstance(given, bool) or given < 1:
        raise ArgumentError(f"{name}: expected a whole number of 1 or more, got {given!r} [{rule}]")
    return int(given)
