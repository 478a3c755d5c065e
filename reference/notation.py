"""Axes and what fits them, as in the chapter `notation`."""

from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from attnspec.reference.errors import ArgumentError

#: An array of real floating-point numbers.
Real = NDArray[np.floating[Any]]


def as_real(name: str, array: ArrayLike, dtype: DTypeLike) -> Real:
    """Take an argument as a floating-point array in the working precision.

    Raises
    ------
    ArgumentError
        When it is no array of floating-point numbers: integers are refused, as
        a division hidden in the scale would otherwise turn them into floats.

    Examples
    --------
    >>> from attnspec.reference.notation import as_real
    >>> as_real("query", [[1, 2]], "float64")
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: query: expected floating-point numbers, got int64 [ERR-2]
    """
    try:
        given = np.asarray(array)
    except ValueError as error:  # ragged nested lists
        raise ArgumentError(f"{name}: expected an array, got {type(array).__name__} ({error})") from error
    _check_floating(name, given)
    return given.astype(dtype)  # a copy always: nothing of the caller's is ever written to (NUM-4)


def _check_floating(name: str, array: Any) -> None:
    dtype = np.dtype(array.dtype)
    if dtype.kind != "f" and dtype.name != "bfloat16":
        raise ArgumentError(f"{name}: expected floating-point numbers, got {dtype} [ERR-2]")


def check_dtypes(**arrays: ArrayLike) -> None:
    """Refuse arrays of different dtypes, or of no floating-point one (ERR-1, ERR-2), before any is converted.

    Raises
    ------
    ArgumentError
        Naming the first that is not of floating-point numbers, or that differs.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.notation import check_dtypes
    >>> check_dtypes(query=np.ones(2), key=np.ones(2, np.float32))
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: key: expected dtype float64 as in query, got float32 [ERR-1]
    """
    for name, array in arrays.items():
        if _dtype(array) is not None:
            _check_floating(name, array)
    (first, leading), *rest = arrays.items()
    expected = _dtype(leading)
    for name, array in rest:
        own = _dtype(array)
        # Not `in (expected, None)`: NumPy takes None for float64 when it compares dtypes.
        if own is not None and expected is not None and own != expected:
            raise ArgumentError(f"{name}: expected dtype {expected} as in {first}, got {own} [ERR-1]")


def _dtype(array: ArrayLike) -> Any:
    """Dtype of an array; None for nested lists, which have none of their own."""
    return getattr(array, "dtype", None)


def check_axes(query: Real, key: Real, value: Real | None = None) -> None:
    """Refuse what does not fit (SHAPE-6, HEAD-2).

    Parameters
    ----------
    query : (*B, Hq, L, D) or (L, D)
    key : (*B, Hkv, S, D) or (S, D)
    value : (*B, Hkv, S, Dv) or (S, Dv), optional

    Raises
    ------
    ArgumentError
        When depths, positions, heads or batch axes do not agree.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.notation import check_axes
    >>> check_axes(np.ones((4, 8)), np.ones((5, 7)))
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: key: expected depth 8 as in query, got 7 [SHAPE-6]
    """
    given = {"query": query, "key": key, "value": value}
    for name, array in given.items():
        if array is None:
            continue
        if array.ndim < 2:
            raise ArgumentError(f"{name}: expected two axes or more, got shape {array.shape} [SHAPE-1]")
        if array.shape[-1] == 0:
            raise ArgumentError(f"{name}: expected a depth of 1 or more, got 0 [ERR-5]")
        if array.ndim != query.ndim or array.shape[:-3] != query.shape[:-3]:
            batch = query.shape[:-3]
            raise ArgumentError(
                f"{name}: expected batch axes {batch} as in query, got shape {array.shape} [SHAPE-6]"
            )
    if key.shape[-1] != query.shape[-1]:
        raise ArgumentError(
            f"key: expected depth {query.shape[-1]} as in query, got {key.shape[-1]} [SHAPE-6]"
        )
    _check_heads(query, key, value)
    if value is not None and value.shape[-2] != key.shape[-2]:
        raise ArgumentError(
            f"value: expected {key.shape[-2]} positions as in key, got {value.shape[-2]} [SHAPE-6]"
        )


def _check_heads(query: Real, key: Real, value: Real | None) -> None:
    if query.ndim == 2:
        return
    heads, key_heads = query.shape[-3], key.shape[-3]
    if not heads:
        raise ArgumentError("query: expected one head or more, got 0 [HEAD-2]")
    if not key_heads or heads % key_heads:
        raise ArgumentError(
            f"key: expected a number of heads that divides the query's {heads}, got {key_heads} [HEAD-2]"
        )
    if value is not None and value.shape[-3] != key_heads:
        raise ArgumentError(f"value: expected {key_heads} heads as in key, got {value.shape[-3]} [HEAD-2]")


def check_broadcast(name: str, shape: tuple[int, ...], full: tuple[int, ...], rule: str) -> None:
    """Refuse an array that does not broadcast to the scores' shape.

    Raises
    ------
    ArgumentError
        Naming the argument, both shapes and the rule.
    """
    try:
        fits = np.broadcast_shapes(shape, full) == full
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(f"{name}: expected a shape that broadcasts to {full}, got {shape} [{rule}]")
