"""Which arrays fit together, in Array API calls alone: the chapter `notation`."""

from typing import Any

from array_api_compat import device

from attnspec.backends.portable.errors import check, check_dtypes, count, namespace

Shape = tuple[int, ...]


def check_axes(**arrays: Any) -> Any:
    """Refuse queries, keys and values that do not fit, and return their array namespace.

    Parameters
    ----------
    **arrays : array
        ``query``, ``key`` and, where there is one, ``value``, in this order.

    Raises
    ------
    ValueError
        By ERR-1, ERR-2, ERR-5, SHAPE-1, SHAPE-6 and HEAD-2.
    """
    xp = namespace("ERR-2", **arrays)
    check_dtypes(**arrays)
    query, key, value = arrays["query"], arrays["key"], arrays.get("value")
    outer = tuple(query.shape[:-3])
    for name, array in arrays.items():
        shape = tuple(array.shape)
        check(name, array.ndim >= 2, "two axes or more", f"shape {shape}", "SHAPE-1")
        check(name, array.ndim == query.ndim, f"{query.ndim} axes as in query", array.ndim, "SHAPE-6")
        check(name, shape[-1] > 0, "a depth of 1 or more", 0, "ERR-5")
        check(name, shape[:-3] == outer, f"batch axes {outer} as in query", shape[:-3], "SHAPE-6")
    depth = query.shape[-1]
    check("key", key.shape[-1] == depth, f"depth {depth} as in query", key.shape[-1], "SHAPE-6")
    if query.ndim > 2:
        heads, shared = query.shape[-3], key.shape[-3]
        even = heads % shared == 0 if shared else heads == 0
        check("key", even, f"a number of heads that divides the {heads} of query", shared, "HEAD-2")
    if value is not None:
        positions = key.shape[-2]
        good = value.shape[-2] == positions
        check("value", good, f"{positions} positions as in key", value.shape[-2], "SHAPE-6")
        heads = tuple(key.shape[-3:-2])
        check("value", value.shape[-3:-2] == heads, f"heads {heads} as in key", value.shape[-3:-2], "HEAD-2")
    return xp


def score_shape(query: Any, key: Any) -> Shape:
    """Return ``(*B, Hq, L, S)``, or ``(L, S)`` for inputs of two axes."""
    return (*query.shape[:-1], key.shape[-2])


def share(xp: Any, rows: Any, shared: Any) -> Any:
    """Multiply the rows of each query head by the matrix of its key head (HEAD-1).

    Parameters
    ----------
    rows : (*B, Hq, L, X) or (L, X)
    shared : (*B, Hkv, X, Y) or (X, Y)

    Returns
    -------
    array (*B, Hq, L, Y) or (L, Y)
    """
    rows, shared = one_dtype(xp, rows, shared)
    if rows.shape[:-2] == shared.shape[:-2]:
        return rows @ shared
    group = rows.shape[-3] // shared.shape[-3]
    index = count(xp, rows.shape[-3], rows) // group
    return rows @ xp.take(shared, index, axis=-3)


def one_dtype(xp: Any, *arrays: Any) -> list[Any]:
    """Bring arrays to one dtype: a bias or a sink in float64 takes what it meets with it (ERR-14)."""
    dtype = xp.result_type(*arrays)
    return [xp.astype(array, dtype, copy=False) for array in arrays]


def per_entry(given: Any, axes: int) -> Any:
    """Append axes of 1 to what is one integer for each batch entry; a single one fits as it is."""
    return given if isinstance(given, int) else given[(..., *(None,) * (axes - given.ndim))]


def reshape(xp: Any, array: Any, shape: Shape) -> Any:
    """Reshape; an array without elements is made anew, as Dask cannot reshape one."""
    if 0 in shape:
        return xp.zeros(shape, dtype=array.dtype, device=device(array))
    return xp.reshape(array, shape)
