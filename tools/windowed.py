"""Causal attention with a window in NumPy, whose time and memory grow with the number of queries alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The number of queries of a block.
_BLOCK = 256


def windowed(
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    *,
    is_causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    return_lse: bool = False,
) -> Any:
    """Attend block by block, each to the keys that the window of its rows has.

    Examples
    --------
    >>> import numpy as np
    >>> from tools.windowed import windowed
    >>> value = np.arange(4.0)[:, None]
    >>> windowed(0 * value, value, value, is_causal=True, window=(1, None)).ravel().tolist()
    [0.0, 0.5, 1.5, 2.5]
    """
    left = window[0] if window else None
    if not is_causal or left is None or query.shape[:-1] != key.shape[:-1]:
        raise NotImplementedError("expected a causal mask, a window and as many keys as queries")
    working = np.promote_types(query.dtype, np.float32)
    count, scale = query.shape[-2], 1 / np.sqrt(query.shape[-1])
    output = np.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
    lse = np.empty(query.shape[:-1], working)
    for start in range(0, count, _BLOCK):
        stop, first = min(start + _BLOCK, count), max(0, start - left)
        rows, keys, values = (
            array[..., part, :].astype(working)
            for array, part in (
                (query, slice(start, stop)),
                (key, slice(first, stop)),
                (value, slice(first, stop)),
            )
        )
        scores = (rows * working.type(scale)) @ np.swapaxes(keys, -1, -2)  # (*B, H, m, T)
        i, j = np.arange(start, stop)[:, None], np.arange(first, stop)
        scores[..., (j > i) | (j < i - left)] = -np.inf
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        output[..., start:stop, :] = (weights @ values) / total
        lse[..., start:stop] = (top + np.log(total))[..., 0]
    return (output, lse) if return_lse else output
