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
    base 2, sums of exponentials and of their products with the values, and the scale, the softcap and sinks.
    """
    storage = FORMATS[dtype]
    query, key, value = (_finite(arguments[name]) for name in ("query", "key", "value"))
    depth = query.shape[-1]
    size = np.abs(query) @ np.swapaxes(repeat_heads(np.abs(key), query.shape), -1, -2)  # (*B, Hq, L, S)
    scale, softcap, bias = (arguments.get(name) for name in ("scale", "softcap", "bias"))
    scaled = size * (1 / np.sqrt(depth) if scale is None else abs(float(scale)))
    added = np.zeros(()) if bias is None else np.abs(_finite(bias))
    before = scaled + added if capped_bias else scaled
    capped = before if softcap is None else np.minimum(before, float(softcap))
    score = capped if capped_bias else capped + added
    most = np.maximum(np.maximum(size, before), log2(e) * score) * (1 + (depth + SCALING) * storage.unit)
    given = {name: arguments[name] for name in MASKING if arguments.get(name) is not None}
    allowed = allowed_keys(size.shape, **given)
    keys = allowed.sum(axis=-1)
    sums = (allowed @ repeat_heads(np.abs(value), size.shape)).max(axis=-1, initial=0.0)
    largest = np.where(allowed, most, 0).max(axis=-1, initial=0.0)
    numbers = [1.0 if x is None else float(x) for x in (scale, softcap)]
    sinks = np.zeros(1) if arguments.get("sinks") is None else np.abs(_finite(arguments["sinks"]))[:, None]
    largest = np.maximum(np.maximum(largest, np.abs(numbers).max()), sinks if size.ndim > 2 else sinks[0])
    result: NDArray[np.bool_] = np.maximum(largest, np.maximum(keys, sums)) > storage.largest
    return result


def _finite(array: NDArray[Any]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0)
