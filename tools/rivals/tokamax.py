"""The tests that tokamax runs on each of its implementations of attention."""

from typing import Any

import numpy as np

from tools.rivals.closeness import close
from tools.rivals.drawing import FLOAT16, FLOAT32, arrays, normal, uniform
from tools.rivals.rival import Accepts, Rival
from tools.rivals.trial import Array, Trial

_SOURCE = (
    "https://github.com/openxla/tokamax/blob/783ea95704a581ea5b09c80d9d058c819cd8bf03"
    "/tokamax/_src/ops/attention/test_base.py"
)
_LONG, _SHAPE = (1, 1, 1024, 64), (2, 4, 128, 64)


def draw() -> list[Trial]:
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


def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
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


RIVALS = (
    Rival(
        "tokamax",
        _SOURCE,
        "`assert_trees_all_close`, absolute 1e-6 to 1e-5 by test (float16: 5e-4), relative a tenth of it"
        " and at least 1e-6",
        "normal, float32, once float16; 29 calls with causal, window, lengths, mask, bias, softcap,"
        " dropout, grouped heads; 7 to 256 queries and keys, and 1024 with batch 1 and 1 head; most have"
        " 1024 and batch 2 with 4 heads in the source",
        draw,
        accepts,
    ),
)
