"""FlashAttention: the error is at most twice that of plain arithmetic in the same dtype."""

from functools import cache
from typing import Any

import numpy as np

from tools.rivals.closeness import wide
from tools.rivals.drawing import BFLOAT16, FLOAT16, arrays
from tools.rivals.rival import Rival
from tools.rivals.trial import Array, Trial

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


def draw() -> list[Trial]:
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


def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
    """Whether the largest error is at most 2 times that of plain arithmetic, or 3 times with a softcap."""
    expected, allowed = _allowed(trial)
    return got[0].shape == expected.shape and bool(np.abs(wide(got[0]) - expected).max() <= allowed)


@cache
def _allowed(trial: Trial) -> tuple[Array, float]:
    """Return the expected output in the dtype of the query, and how far the result may be off."""
    dtype = trial.given["query"].dtype
    expected = trial.exact[0].astype(dtype)
    factor = 2.0 if trial.given.get("softcap") is None else 3.0
    # The source moves the expected output by 0.3 and back, to see what rounding alone does.
    moved = (expected + dtype.type(0.3)) - dtype.type(0.3)
    allowed = 2 * np.abs(wide(moved) - wide(expected)).max()
    allowed += factor * np.abs(wide(trial.own) - wide(expected)).max()
    return wide(expected), float(allowed)


RIVALS = (
    Rival(
        "FlashAttention-3",
        "https://github.com/Dao-AILab/flash-attention/blob/0251105a2fb19d2957484b7f023cd8c115286ced"
        "/hopper/test_flash_attn.py",
        "largest error at most 2 times that of PyTorch in the same dtype (3 with a softcap), and a little"
        " more",
        "normal, float16 and bfloat16, depth 64, values once 256; 11 calls of 1 to 799 queries and 1 to 256"
        " keys with causal, window, softcap, 6 heads over 6, 2 or 1, and 3 with lengths; batch 1 to 3, 9 and"
        " up to 4224 keys in the source",
        draw,
        accepts,
    ),
)
