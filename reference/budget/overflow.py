"""The rows of attention in which a computation exceeds the largest number of a dtype (NUM-3, NUM-5)."""

from collections.abc import Mapping
from math import e, log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.budget.attention import MASKING, SCALING, repeat_heads
from attnspec.reference.masking import allowed_keys


def may_overflow(arguments: Mapping[str, Any], dtype: str) -> bool:
    """Whether a number, or a product of the largest ones, comes near the largest of a dtype."""
    numbers = [x for x in arguments.values() if isinstance(x, float | np.ndarray)]
    found = [float(np.abs(_finite(np.asarray(x))).max(initial=1.0)) for x in numbers if np.size(x)]
    terms = arguments["query"].shape[-1] + arguments["key"].shape[-2] + SCALING
    return bool(terms * log2(e) * prod(found) > FORMATS[dtype].largest)


def overflowing_rows(
    arguments: Mapping[str, Any], dtype: str, *, capped_bias: bool = False
) -> NDArray[np.bool_]:
    """Find the rows of attention in which a computation in a dtype may exceed its largest number.

    Products and their partial sums may, scores before and after scale, bias and conversion to
    base 2, and sums of exponentials and of their products with the values.
    """
    storage, (size, before, score, allowed) = FORMATS[dtype], _sizes(arguments, capped_bias=capped_bias)
    depth, value = arguments["query"].shape[-1], _finite(arguments["value"])
    most = np.maximum(np.maximum(size, before), log2(e) * score) * (1 + (depth + SCALING) * storage.unit)
    keys = allowed.sum(axis=-1)
    sums = (allowed @ repeat_heads(np.abs(value), size.shape)).max(axis=-1, initial=0.0)
    largest = np.where(allowed, most, 0).max(axis=-1, initial=0.0)
    result: NDArray[np.bool_] = np.maximum(largest, np.maximum(keys, sums)) > storage.largest
    return result


def rows_out_of_range(
    arguments: Mapping[str, Any], dtype: str, *, capped_bias: bool = False
) -> NDArray[np.bool_]:
    """Find the rows of attention for which a number, a sum of products or a score exceeds a dtype (NUM-3)."""
    size, before, score, allowed = _sizes(arguments, capped_bias=capped_bias)
    most = np.where(allowed, np.maximum(np.maximum(size, before), score), 0).max(axis=-1, initial=0.0)
    given = [abs(float(arguments[name])) for name in ("scale", "softcap") if arguments.get(name) is not None]
    sinks = np.abs(_finite(arguments["sinks"])) if arguments.get("sinks") is not None else np.zeros(1)
    numbers = np.maximum(sinks, max(given, default=0.0))  # (Hq,)
    result: NDArray[np.bool_] = np.maximum(most, numbers[:, None] if most.ndim > 1 else numbers)
    return result > FORMATS[dtype].largest


def _sizes(arguments: Mapping[str, Any], *, capped_bias: bool) -> tuple[Any, Any, Any, NDArray[np.bool_]]:
    """Return the sizes of sums of products, of what is capped, and of scores, and the allowed keys."""
    query, key = (_finite(arguments[name]) for name in ("query", "key"))
    scale, softcap, bias = (arguments.get(name) for name in ("scale", "softcap", "bias"))
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(query) @ np.swapaxes(repeat_heads(np.abs(key), query.shape), -1, -2)  # (*B, Hq, L, S)
        scaled = size * (query.shape[-1] ** -0.5 if scale is None else abs(float(scale)))
        added = np.zeros(()) if bias is None else np.abs(_finite(bias))
        before = scaled + added if capped_bias else scaled
        capped = before if softcap is None else np.minimum(before, float(softcap))
        score = capped if capped_bias else capped + added
    given = {name: arguments[name] for name in MASKING if arguments.get(name) is not None}
    return size, before, score, allowed_keys(size.shape, **given)


def _finite(array: NDArray[Any]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0)
