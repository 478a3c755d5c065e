"""FlashInfer: flashinfer-bench, and two rules of the tests of FlashInfer itself."""

import math

import numpy as np

from tools.rivals.closeness import exceeding_neither, similar
from tools.rivals.drawing import BFLOAT16, arrays, normal
from tools.rivals.rival import Rival
from tools.rivals.trial import Trial

_BENCH = (
    "https://github.com/flashinfer-ai/flashinfer-bench/blob/40e6ca7844b514eb4b1c7edba6d6a7377df57870"
    "/flashinfer_bench/bench/utils.py"
)
_TESTS = "https://github.com/flashinfer-ai/flashinfer/blob/fb28d7242b3506a2348265962041acc1fb56cca4/tests/attention"


def draw_prefill() -> list[Trial]:
    """Draw three trials of prefill, causal, the last query at the last key."""
    rng = np.random.default_rng(0)
    trials = []
    for queries, keys in ((64, 64), (16, 128)):
        for trial in range(3):
            given = arrays(rng, BFLOAT16, (32, queries, 128), (8, keys, 128))
            options = {"is_causal": True, "query_offset": keys - queries, "return_lse": True}
            drawn = Trial({**given, **options})
            trials.append(drawn.repeated() if trial else drawn)
    return trials


def draw_long() -> list[Trial]:
    """Draw a trial without options."""
    return [Trial(arrays(np.random.default_rng(0), BFLOAT16, (1, 2, 512, 128)))]


def draw_decode() -> list[Trial]:
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


RIVALS = (
    Rival(
        "flashinfer-bench",
        _BENCH,
        "an element is wrong if absolute *and* relative error exceed 1e-2; no NaN or infinity; output and"
        " lse",
        "normal, bfloat16, causal prefill, 32 heads over 8, depth 128, 3 trials; 64 queries over 64 keys and"
        " 16 over 128 (the repository does not have the lengths)",
        draw_prefill,
        exceeding_neither(1e-2, 1e-2, 1.0, logarithm=1 / math.log(2)),
    ),
    Rival(
        "FlashInfer, cosine",
        f"{_TESTS}/test_parallel_attention.py",
        "cosine similarity at least 0.99",
        "normal, bfloat16, no option, depth 128; 2 heads of 512 queries and keys, 24 of 49152 in the source",
        draw_long,
        similar(0.99),
    ),
    Rival(
        "FlashInfer, 99 %",
        f"{_TESTS}/test_xqa_mla_bf16.py",
        "99 % of the elements are within 1e-2, absolute or relative",
        "normal, bfloat16, decoding: 1 query, depth 576, values 512, lengths, scale; 16 heads over 1 and 128"
        " keys, 128 heads and 1024 keys in the source; the cache without pages",
        draw_decode,
        exceeding_neither(1e-2, 1e-2, 0.99),
    ),
)
