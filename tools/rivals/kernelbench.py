"""KernelBench, problem 97 of level 1: one tolerance for both kinds of error."""

import numpy as np

from tools.rivals.closeness import close
from tools.rivals.drawing import FLOAT32, arrays, uniform
from tools.rivals.rival import Rival
from tools.rivals.trial import Trial

_SOURCE = (
    "https://github.com/ScalingIntelligence/KernelBench/blob/423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
    "/src/kernelbench/eval.py"
)
_INPUTS = (
    "`torch.rand`, float32, no option, 512 queries and keys, depth 1024, 1 trial of 5;"
    " batch 1 with 1 head, 32 with 32 in the source"
)


def draw() -> list[Trial]:
    """Draw one of the five trials, which differ in their random numbers only."""
    rng = np.random.default_rng(42)
    return [Trial(arrays(rng, FLOAT32, (1, 1, 512, 1024), distribution=uniform))]


RIVALS = (
    Rival(
        "KernelBench, v0 and half precision",
        _SOURCE,
        "`allclose`, 1e-2 and 1e-2",
        _INPUTS,
        draw,
        close(1e-2, 1e-2, swapped=True),
    ),
    Rival(
        "KernelBench, float32",
        _SOURCE,
        "`allclose`, 1e-4 and 1e-4",
        _INPUTS,
        draw,
        close(1e-4, 1e-4, swapped=True),
    ),
)
