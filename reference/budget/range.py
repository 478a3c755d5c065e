"""Rows in which an intermediate number of a computation may overflow."""

from collections.abc import Mapping
from math import e, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.budget.attention import MASKING, SCALING, repeat_heads
from attnspec.reference.masking import allowed_keys


def overflowing_rows(
    arguments: Mapping[str, Any], dtype: str, *, capped_bias: bool = False
) -> NDArray[np.bool_]:
    """Find the rows of attention in which a computation in a dtype may exceed its largest number.

    Products and their partial sums may, scores before and after scale, bias and conversion to
    base 2, and sums of exponentials and of their products with the values.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.budget.range import overflowing_rows
    >>> query, key = np.array([[100.0], [1.0]]), np.array([[700.0], [2.0]])
    >>> arrays = {"query": query, "key": key, "value": key}
    >>> overflowing_rows(arrays, "float16").tolist(), overflowing_rows(arrays, "float32").tolist()
    ([True, False], [False, False])
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
    found: NDArray[np.bool_] = np.maximum(largest, np.maximum(keys, sums)) > storage.largest
    return found


def _finite(array: NDArray[Any]) -> NDArray[np.float64]:
    wide: NDArray[np.float64] = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0)
