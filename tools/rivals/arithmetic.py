"""Attention without a fused kernel: each operation rounds to the dtype of the inputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference import allowed_keys

Array = NDArray[Any]
_MASKING = (
    "mask",
    "is_causal",
    "query_offset",
    "window",
    "query_lengths",
    "key_lengths",
    "query_segment_ids",
    "key_segment_ids",
    "bias",
)


def in_own_dtype(given: Mapping[str, Any]) -> Array:
    """Return the output. Products accumulate in float32 or better, as the products of PyTorch and JAX do.

    Examples
    --------
    >>> import numpy as np
    >>> from tools.rivals.arithmetic import in_own_dtype
    >>> third = np.full((1, 1), 1 / 3, np.float16)
    >>> in_own_dtype({"query": third, "key": third, "value": third}) == third
    array([[ True]])
    """
    query, key, value = (given[name] for name in ("query", "key", "value"))
    dtype = query.dtype
    wide = np.float64 if dtype.itemsize == 8 else np.float32

    def rounded(array: Array) -> Array:
        return array.astype(dtype).astype(wide)

    if query.ndim > 2:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(array, groups, axis=-3) for array in (key, value))
    scale = given.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    s = query.astype(wide) @ np.swapaxes(rounded(key.astype(wide) * wide(scale)), -1, -2)  # (*B, H, L, S)
    s = rounded(s)
    softcap = given.get("softcap")
    if softcap is not None:
        s = rounded(rounded(np.tanh(rounded(s / wide(softcap)))) * wide(softcap))
    if given.get("bias") is not None:
        s = rounded(s + given["bias"].astype(wide))
    masking = {name: given[name] for name in _MASKING if given.get(name) is not None}
    s = np.where(allowed_keys(s.shape, **masking), s, wide(-np.inf))
    top = s.max(axis=-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(axis=-1, keepdims=True)
    p = rounded(p / np.where(total == 0, 1, total))
    if given.get("dropout_mask") is not None:
        p = rounded(p * given["dropout_mask"] / wide(1 - given["dropout_rate"]))
    output: Array = (p @ value.astype(wide)).astype(dtype)
    return output
