"""The acceptance rules of libraries of kernels, each with the inputs of its source."""

import math
from functools import cache
from typing import Any

import numpy as np

from tools.rivals.closeness import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    arrays,
    close,
    exceeding_neither,
    normal,
    normalised_error,
    similar,
    uniform,
    wide,
)
from tools.rivals.rival import Accepts, Array, Rival, Trial

#: Queries, keys, depth of the values, key heads, causal, local, softcap, dtype.
_CALLS = (
    (1, 1, 64, 6, False, False, None, BFLOAT16),
    (64, 128, 64, 6, True, False, None, FLOAT16),
    (113, 203, 64, 2, False, True, None, BFLOAT16),
    (128, 217, 64, 1, True, True, None, FLOAT16),
    (113, 211, 64, 6, False, False, 15.0, BFLOAT16),
    (108, 256, 64, 2, True, False, 15.0, FLOAT16),
    (239, 1, 64, 6, True, False, None, BFLOAT16),
    (799, 3, 64, 2, True, True, None, FLOAT16),
    (128, 192, 256, 6, False, False, None, BFLOAT16),
    (256, 256, 64, 2, False, False, None, FLOAT16),
    (384, 256, 64, 1, True, False, None, BFLOAT16),
)


def _draw_flash_attention() -> list[Trial]:
    """Draw calls of fixed and then of variable lengths. The last query stands at the last key."""
    rng = np.random.default_rng(0)
    trials = []
    options: dict[str, Any]
    for queries, keys, depth, heads, causal, local, softcap, dtype in _CALLS:
        batch = 1 if queries * keys > 2**15 else 2
        shapes = ((batch, 6, queries, 64), (batch, heads, keys, 64), (batch, heads, keys, depth))
        given = arrays(rng, dtype, *shapes)
        if softcap is not None:
            given["query"] = (wide(given["query"]) * softcap / 4).astype(dtype)
        window = tuple(map(int, rng.integers(0, keys, 2))) if local else None
        options = {"is_causal": causal, "window": window, "softcap": softcap, "query_offset": keys - queries}
        trials.append(Trial({**given, **options}))
    for causal, local in ((False, False), (True, False), (False, True)):
        given = arrays(rng, BFLOAT16, (3, 6, 113, 64), (3, 2, 203, 64))
        lengths = {"query_lengths": rng.integers(93, 114, 3), "key_lengths": rng.integers(183, 204, 3)}
        window = tuple(map(int, rng.integers(0, 203, 2))) if local else None
        offset = lengths["key_lengths"] - lengths["query_lengths"]
        options = {"is_causal": causal, "window": window, "query_offset": offset}
        trials.append(Trial({**given, **lengths, **options}))
    return trials


def _accepts_flash_attention(got: tuple[Array, ...], trial: Trial) -> bool:
    """Whether the largest error is at most 2 times that of plain arithmetic, or 3 times with a softcap."""
    expected, allowed = _expected_and_bound(trial)
    return got[0].shape == expected.shape and bool(np.abs(wide(got[0]) - expected).max() <= allowed)


@cache
def _expected_and_bound(trial: Trial) -> tuple[Array, float]:
    """Return the expected output in the dtype of the query, and how far the result may be off."""
    dtype = trial.given["query"].dtype
    expected = trial.exact[0].astype(dtype)
    factor = 2.0 if trial.given.get("softcap") is None else 3.0
    # The source moves the expected output by 0.3 and back, to see what rounding alone does.
    moved = (expected + dtype.type(0.3)) - dtype.type(0.3)
    allowed = 2 * np.abs(wide(moved) - wide(expected)).max()
    allowed += factor * np.abs(wide(trial.own) - wide(expected)).max()
    return wide(expected), float(allowed)


FLASH_ATTENTION = (
    Rival(
        "FlashAttention-3",
        "https://github.com/Dao-AILab/flash-attention/blob/0251105a2fb19d2957484b7f023cd8c115286ced"
        "/hopper/test_flash_attn.py",
        "largest error at most 2 times that of PyTorch in the same dtype (3 with a softcap), and a little"
        " more",
        "normal, float16 and bfloat16, depth 64, values once 256; 11 calls of 1 to 799 queries and 1 to 256"
        " keys with causal, window, softcap, 6 heads over 6, 2 or 1, and 3 with lengths; batch 1 to 3, 9 and"
        " up to 4224 keys in the source",
        _draw_flash_attention,
        _accepts_flash_attention,
    ),
)


_BENCH = (
    "https://github.com/flashinfer-ai/flashinfer-bench/blob/40e6ca7844b514eb4b1c7edba6d6a7377df57870"
    "/flashinfer_bench/bench/utils.py"
)
_TESTS = "https://github.com/flashinfer-ai/flashinfer/blob/fb28d7242b3506a2348265962041acc1fb56cca4/tests/attention"


def _draw_prefill() -> list[Trial]:
    """Draw three trials of prefill, causal, the last query at the last key."""
    rng = np.random.default_rng(0)
    trials = []
    for queries, keys in ((64, 64), (16, 128)):
        for trial in range(3):
            given = arrays(rng, BFLOAT16, (32, queries, 128), (8, keys, 128))
            options = {"is_causal": True, "query_offset": keys - queries, "return_lse": True}
            drawn = Trial({**given, **options})
            trials.append(drawn.repeat() if trial else drawn)
    return trials


def _draw_long() -> list[Trial]:
    """Draw a trial without options."""
    return [Trial(arrays(np.random.default_rng(0), BFLOAT16, (1, 2, 512, 128)))]


def _draw_decode() -> list[Trial]:
    """Draw decoding with 16 query heads and one key head, whose values are a part of the keys."""
    rng = np.random.default_rng(42)
    trials = []
    for factor in (1.0, 0.5):
        query, cache = (normal(rng, shape, BFLOAT16) for shape in ((2, 16, 1, 576), (2, 1, 128, 576)))
        lengths = np.array([int(rng.integers(1, 128)), 128])
        trials.append(
            Trial(
                {
                    "query": query,
                    "key": cache,
                    "value": np.ascontiguousarray(cache[..., :512]),
                    "scale": factor / math.sqrt(192),
                    "key_lengths": lengths,
                }
            )
        )
    return trials


FLASHINFER = (
    Rival(
        "flashinfer-bench",
        _BENCH,
        "an element is wrong if absolute *and* relative error exceed 1e-2; no NaN or infinity; output and"
        " lse",
        "normal, bfloat16, causal prefill, 32 heads over 8, depth 128, 3 trials; 64 queries over 64 keys and"
        " 16 over 128 (the repository does not have the lengths)",
        _draw_prefill,
        exceeding_neither(1e-2, 1e-2, 1.0, logarithm=1 / math.log(2)),
    ),
    Rival("FlashInfer, cosine", f"{_TESTS}/test_parallel_attention.py", "cosine similarity at least 0.99",
        "normal, bfloat16, no option, depth 128; 2 heads of 512 queries and keys, 24 of 49152 in the source",
        _draw_long, similar(0.99)),
    Rival(
        "FlashInfer, 99 %",
        f"{_TESTS}/test_xqa_mla_bf16.py",
        "99 % of the elements are within 1e-2, absolute or relative",
        "normal, bfloat16, decoding: 1 query, depth 576, values 512, lengths, scale; 16 heads over 1 and 128"
        " keys, 128 heads and 1024 keys in the source; the cache without pages",
        _draw_decode,
        exceeding_neither(1e-2, 1e-2, 0.99),
    ),
)  # fmt: skip


#: Depth, depth of the values, query heads for each of 4 key heads, batch, keys, queries, mask, sinks, ALiBi,
#: softcap.
_CALLS_OF_GGML = (
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


def _draw_ggml() -> list[Trial]:
    """Draw the calls. Keys and values are views of a cache that is twice as long, in float16 precision."""
    rng = np.random.default_rng(0)
    trials = []
    for depth, depth_v, groups, batch, keys, queries, masked, sunk, alibi, softcap in _CALLS_OF_GGML:
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


GGML = (
    Rival(
        "ggml",
        "https://github.com/ggml-org/ggml/blob/d99724f2b141fed9e1a9f402213506c081433465/tests/test-backend-ops.cpp",
        "normalised mean squared error at most 5e-4; no NaN or infinity",
        "uniform from -1 to 1, float32 with keys and values of float16; 10 of its calls at their sizes: 1"
        " to 75 queries, 113 to 1024 keys, depth 40 to 256, grouped heads, bias with blocks of minus"
        " infinity, ALiBi, sinks, softcap, strided keys and values",
        _draw_ggml,
        normalised_error(5e-4),
    ),
)


_SOURCE = (
    "https://github.com/openxla/tokamax/blob/783ea95704a581ea5b09c80d9d058c819cd8bf03"
    "/tokamax/_src/ops/attention/test_base.py"
)
_LONG, _SHAPE = (1, 1, 1024, 64), (2, 4, 128, 64)


def _draw_tokamax() -> list[Trial]:
    """Draw the calls. Options that only tokamax has, and a softcap after the bias, are left out."""
    rng = np.random.default_rng(0)
    trials = [Trial(_between_1_and_2(rng, queries, keys)) for queries, keys in ((7, 8), (256, 8), (8, 256))]

    def add(query: Any, key: Any = None, value: Any = None, dtype: Any = FLOAT32, **options: Any) -> None:
        trials.append(Trial({**arrays(rng, dtype, query, key, value), **options}))

    causal, window = {"is_causal": True}, {"is_causal": True, "window": (31, 0)}
    add(_SHAPE, dtype=FLOAT16)
    add(_SHAPE, (2, 1, 128, 64))
    add((2, 16, 128, 64), (2, 4, 128, 64))
    add((4, 128, 64))
    add((2, 3, 2, 4, 32, 64))
    add((2, 4, 112, 64), (2, 4, 256, 64))
    add((2, 4, 128, 24), (2, 4, 128, 24), (2, 4, 128, 112))
    add((2, 4, 128, 48))
    for shape in ((2, 4, 128, 128), (2, 4, 128, 1), (2, 4, 1, 128), (2, 1, 128, 128), (1, 4, 128, 128)):
        add(_SHAPE, bias=normal(rng, shape, FLOAT32))
        add(_SHAPE, mask=rng.random(shape) < 0.5)
    add(_SHAPE, **causal)
    add(_SHAPE, (2, 4, 67, 64), **causal)
    add(_SHAPE, query_lengths=np.array([57, 123]), key_lengths=np.array([15, 124]))
    add(_SHAPE, **window)
    add(_SHAPE, softcap=10.0)
    add(_SHAPE, dropout_mask=rng.random((2, 4, 128, 128)) < 0.5, dropout_rate=0.5)
    add(_LONG)
    add(_LONG, **causal)
    return trials


def _between_1_and_2(rng: np.random.Generator, queries: int, keys: int) -> dict[str, Array]:
    shapes = {"query": (2, 4, queries, 64), "key": (2, 4, keys, 64), "value": (2, 4, keys, 64)}
    return {name: uniform(rng, shape, FLOAT32, 1.0, 2.0) for name, shape in shapes.items()}


def _accepts_tokamax(got: tuple[Array, ...], trial: Trial) -> bool:
    """Whether the output is close, within a tolerance that depends on the call."""
    return _rule(trial)(got, trial)


def _rule(trial: Trial) -> Accepts:
    given = trial.given
    absolute = 1e-6
    if given["query"].dtype == FLOAT16:
        absolute = 5e-4
    elif given.get("bias") is not None:
        absolute = 5e-6
    elif given["query"].shape[-2] != given["key"].shape[-2] and given.get("is_causal"):
        absolute = 1e-5
    elif given.get("softcap") is not None or given["value"].shape[-1] == 112:
        absolute = 2e-6
    return close(absolute, max(absolute / 10, 1e-6), dtype=False, exact=True)


TOKAMAX = (
    Rival(
        "tokamax",
        _SOURCE,
        "`assert_trees_all_close`, absolute 1e-6 to 1e-5 by test (float16: 5e-4), relative a tenth of it"
        " and at least 1e-6",
        "normal, float32, once float16; 29 calls with causal, window, lengths, mask, bias, softcap,"
        " dropout, grouped heads; 7 to 256 queries and keys, and 1024 with batch 1 and 1 head; most have"
        " 1024 and batch 2 with 4 heads in the source",
        _draw_tokamax,
        _accepts_tokamax,
    ),
)
