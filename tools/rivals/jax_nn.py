"""JAX's tests of `jax.nn.dot_product_attention`."""

from typing import Any

import numpy as np

from tools.rivals.closeness import close
from tools.rivals.drawing import BFLOAT16, FLOAT16, arrays, normal
from tools.rivals.rival import Rival
from tools.rivals.trial import Trial

_SHAPE = (2, 4, 128, 32)
_MODES = (
    ("bias",),
    ("causal",),
    ("padding",),
    ("custom",),
    ("causal", "padding"),
    ("custom", "padding"),
    ("bias", "causal"),
    ("causal", "sliding_window"),
)


def draw() -> list[Trial]:
    """Draw the calls of both tests."""
    rng = np.random.default_rng(0)
    trials = []
    for dtype, groups in ((BFLOAT16, 1), (FLOAT16, 2), (BFLOAT16, 4)):
        given = arrays(rng, dtype, _SHAPE, (2, 4 // groups, 128, 32))
        trials.append(Trial({**given, "return_lse": True}))
    trials += [Trial({**arrays(rng, BFLOAT16, _SHAPE), **_options(mode, rng)}) for mode in _MODES]
    return trials


def _options(mode: tuple[str, ...], rng: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {"is_causal": "causal" in mode}
    if "padding" in mode:
        options |= {"query_lengths": np.array([64, 32]), "key_lengths": np.array([32, 64])}
    if "custom" in mode:
        options["mask"] = np.tri(128, dtype=bool)[None, None]
    if "bias" in mode:
        options["bias"] = normal(rng, (1, 4, 128, 128), BFLOAT16)
    if "sliding_window" in mode:
        options["window"] = (3, 2)
    return options


RIVALS = (
    Rival(
        "JAX",
        "https://github.com/jax-ml/jax/blob/cec06d116c05f0d52adfceee3d3b730fdbcb0ce5/tests/nn_test.py",
        "`assertAllClose`, 1e-2 and 1e-2; output, and lse where it is returned",
        "normal, float16 and bfloat16, 128 queries and keys, depth 32, batch 2 with 4 heads over 4, 2 and"
        " 1, bias, causal, mask, lengths, window: all 11 calls at their size",
        draw,
        close(1e-2, 1e-2, nan_equal=True, lse=True, exact=True),
    ),
)
