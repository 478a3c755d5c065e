"""The rows of attention in which a computation exceeds the largest number of a dtype (NUM-3, NUM-5)."""

from collections.abc import Mapping
from functools import reduce
from math import e, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.budget.arithmetic import Budget, absolute, finite_part
from attnspec.reference.budget.attention import MASKING, SCALING, repeat_heads
from attnspec.reference.masking import allowed_keys

_ARRAYS = ("query", "key", "value")


def overflowing_rows(
    arguments: Mapping[str, Any], dtype: str, *, capped_bias: bool = False
) -> NDArray[np.bool_]:
    """Find the rows of attention in which a computation in a dtype may exceed its largest number.

    Products and their partial sums may, scores before and after scale, bias and conversion to
    base 2, and sums of exponentials and of their products with the values.
    """
    storage, (query, key, value) = FORMATS[dtype], (_finite(arguments[name]) for name in _ARRAYS)
    given = {name: arguments[name] for name in MASKING if arguments.get(name) is not None}
    allowed = allowed_keys((*query.shape[:-1], key.shape[-2]), **given)
    _, most, score = sizes_of_scores(query, key, {**arguments, "capped_bias": capped_bias})
    most = np.maximum(most, log2(e) * score) * (1 + (query.shape[-1] + SCALING) * storage.unit)
    sums = (allowed @ repeat_heads(np.abs(value), allowed.shape)).max(axis=-1, initial=0.0)
    largest = np.where(allowed, most, 0).max(axis=-1, initial=0.0)
    result: NDArray[np.bool_] = np.maximum(largest, np.maximum(allowed.sum(axis=-1), sums)) > storage.largest
    return result


def out_of_range(
    arrays: tuple[Budget, Budget, Budget],
    arguments: Mapping[str, Any],
    allowed: NDArray[np.bool_],
    kept: Budget,
    largest: float,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Find the rows of attention, and the elements of their outputs, to which NUM-3 does not apply."""
    sizes = reduce(np.maximum, sizes_of_scores(*arrays[:2], arguments))
    rows = np.where(allowed, sizes, 0).max(axis=-1, initial=0.0)
    if arguments.get("sinks") is not None:
        sinks = np.abs(finite_part(arguments["sinks"]))
        rows = np.maximum(rows, sinks[:, None] if rows.ndim > 1 else sinks)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (kept * allowed) @ absolute(arrays[2])
    beyond = ~(rows <= largest)  # also where it is NaN
    return beyond, beyond[..., None] | ~(sums <= largest)


def sizes_of_scores(
    query: Budget, key: Budget, arguments: Mapping[str, Any]
) -> tuple[Budget, Budget, Budget]:
    """Return the largest number of each pair, its sum of products and its score, from absolute values."""
    query, keys = np.abs(query), np.swapaxes(repeat_heads(np.abs(key), query.shape), -1, -2)
    scale, softcap = (  # one that is not finite is refused
        x if (x := arguments.get(name)) is None or np.isfinite(x) else None for name in ("scale", "softcap")
    )
    bias = arguments.get("bias")
    of_query, of_keys = (
        query.max(axis=-1, keepdims=True, initial=0),
        keys.max(axis=-2, keepdims=True, initial=0),
    )
    most = max(abs(float(x)) for x in (scale, softcap, 0) if x is not None)
    most = max(most, 1 / softcap if softcap else 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        size = query @ keys  # (*B, Hq, L, S)
        before = size * (query.shape[-1] ** -0.5 if scale is None else abs(float(scale)))
        added = np.zeros(()) if bias is None else np.abs(_finite(bias))
        capped_bias = bool(arguments.get("capped_bias"))
        before = before + added * capped_bias
        capped = before if softcap is None else np.minimum(before, float(softcap))
        score = capped + added * (not capped_bias)
    return np.maximum(most, np.maximum(of_query, of_keys)), np.maximum(size, before), score


def _finite(array: NDArray[Any]) -> Budget:
    return finite_part(array.astype(np.float64))


def undefined_elements(
    arrays: tuple[Budget, Budget, Budget],
    arguments: Mapping[str, Any],
    allowed: NDArray[np.bool_],
    light: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Find the elements of an output in which an infinite value has no weight or a small one (NUM-13)."""
    query, key, value = (repeat_heads(array, allowed.shape) for array in arrays)
    of_keys = np.swapaxes(np.isfinite(key).all(axis=-1, keepdims=True), -1, -2)
    scored = np.isfinite(query).all(axis=-1, keepdims=True) & of_keys
    scored = scored & np.isfinite(arguments.get("bias", 0.0))
    defined = (allowed & ~scored).any(axis=-1, keepdims=True) | (allowed @ np.isnan(value))
    result: NDArray[np.bool_] = ((allowed & light) @ np.isinf(value)) & ~defined
    return result
