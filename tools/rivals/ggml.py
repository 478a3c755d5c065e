"""ggml's test of `flash_attn_ext`: the normalised mean squared error."""

from typing import Any

import numpy as np

from tools.rivals.closeness import normalised_error
from tools.rivals.drawing import FLOAT32, uniform
from tools.rivals.rival import Rival
from tools.rivals.trial import Array, Trial

#: Depth, depth of the values, query heads for each of 4 key heads, batch, keys, queries, mask, sinks, ALiBi,
#: softcap.
_CALLS = (
    (40, 40, 1, 1, 113, 1, False, False, False, None),
    (64, 64, 1, 3, 113, 3, True, False, False, None),
    (64, 64, 1, 1, 113, 32, True, True, False, None),
    (64, 64, 4, 1, 512, 1, True, True, True, None),
    (72, 72, 1, 1, 113, 75, True, False, True, None),
    (128, 128, 1, 1, 113, 32, True, False, False, 10.0),
    (128, 128, 1, 1, 113, 3, False, True, False, 10.0),
    (192, 128, 8, 1, 512, 3, True, False, False, None),
    (256, 256, 1, 1, 512, 32, True, False, False, None),
    (64, 64, 1, 1, 1024, 75, True, True, False, None),
)


def draw() -> list[Trial]:
    """Draw the calls. Keys and values are views of a cache that is twice as long, in float16 precision."""
    rng = np.random.default_rng(0)
    trials = []
    for depth, depth_v, groups, batch, keys, queries, masked, sunk, alibi, softcap in _CALLS:
        heads = 4 * groups
        given: dict[str, Any] = {
            "query": uniform(rng, (batch, heads, queries, depth), FLOAT32, -1.0, 1.0),
            "key": _cache(rng, (batch, 4, keys, depth)),
            "value": _cache(rng, (batch, 4, keys, depth_v)),
            "softcap": softcap,
        }
        if masked:
            bias = _mask(rng, (batch, 1, queries, keys))
            given["bias"] = bias * _slopes(heads)[:, None, None] if alibi else bias
        if sunk:
            given["sinks"] = uniform(rng, (heads,), FLOAT32, -10.0, 10.0)
        trials.append(Trial(given))
    return trials


def _cache(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    longer = (*shape[:-2], 2 * shape[-2], shape[-1])
    whole = uniform(rng, longer, np.float16, -1.0, 1.0).astype(np.float32)
    return whole[..., : shape[-2], :]


def _mask(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw an additive mask, a fifth of it in blocks of minus infinity or zero, each at most 64 by 128."""
    mask = uniform(rng, shape, np.float16, -1.0, 1.0).astype(np.float32)
    for _ in range(int(0.2 * mask.size / (64 * 128))):
        batch, row, column = (int(rng.integers(size)) for size in (shape[0], *shape[2:]))
        mask[batch, 0, row : row + 64, column : column + 128] = -np.inf if rng.random() < 0.5 else 0.0
    return mask


def _slopes(heads: int) -> Array:
    """Return the slopes of ALiBi for a largest bias of 8 and a power of two of heads."""
    return np.asarray(2.0 ** (-8.0 * np.arange(1, heads + 1) / heads), np.float32)


RIVALS = (
    Rival(
        "ggml",
        "https://github.com/ggml-org/ggml/blob/d99724f2b141fed9e1a9f402213506c081433465/tests/test-backend-ops.cpp",
        "normalised mean squared error at most 5e-4; no NaN or infinity",
        "uniform from -1 to 1, float32 with keys and values of float16; 10 of its calls at their sizes: 1"
        " to 75 queries, 113 to 1024 keys, depth 40 to 256, grouped heads, bias with blocks of minus"
        " infinity, ALiBi, sinks, softcap, strided keys and values",
        draw,
        normalised_error(5e-4),
    ),
)
