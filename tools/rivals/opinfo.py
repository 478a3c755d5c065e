"""The samples of `scaled_dot_product_attention` in PyTorch's OpInfo, and two rules over them."""

from functools import partial
from typing import Any

import numpy as np

from tools.rivals.closeness import close
from tools.rivals.drawing import BFLOAT16, FLOAT32, arrays, uniform
from tools.rivals.rival import Rival
from tools.rivals.trial import Trial

_SAMPLES = (
    "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/testing/_internal/common_methods_invocations.py"
)
_BACKENDBENCH = (
    "https://github.com/meta-pytorch/BackendBench/blob/66e0dbc05a683e537830c246ea83255ff227676f"
    "/BackendBench/eval.py"
)
_INPUTS = (
    "the 7 kinds of samples without dropout: uniform from -9 to 9, 3 queries, 6 keys, depth 8, batch 4 with"
    " 4 heads; causal from the top left or not, once a bias"
)


def draw(dtype: Any) -> list[Trial]:
    """Draw the samples that have no dropout, whose random numbers an implementation cannot know."""
    rng = np.random.default_rng(0)
    distribution = partial(uniform, low=-9.0, high=9.0)
    trials = []
    for batch in ((4,), (4, 4), (4, 4)):
        for causal in (True, False):
            given = arrays(rng, dtype, (*batch, 3, 8), (*batch, 6, 8), distribution=distribution)
            trials.append(Trial({**given, "is_causal": causal}))
    given = arrays(rng, dtype, (4, 4, 3, 8), (4, 4, 6, 8), distribution=distribution)
    return [*trials, Trial({**given, "bias": distribution(rng, (3, 6), dtype)})]


RIVALS = (
    Rival(
        "PyTorch, OpInfo",
        _SAMPLES,
        "`assert_close`, absolute 5e-5, relative 5e-6",
        _INPUTS + "; float32",
        partial(draw, FLOAT32),
        close(5e-5, 5e-6, nan_equal=True, exact=True),
    ),
    Rival(
        "BackendBench",
        _BACKENDBENCH,
        "`assert_close`, 1e-2 and 1e-2, NaN equals NaN",
        "samples of OpInfo: " + _INPUTS + "; bfloat16",
        partial(draw, BFLOAT16),
        close(1e-2, 1e-2, nan_equal=True, swapped=True, exact=True),
    ),
)
