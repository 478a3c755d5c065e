"""tritonbench, operator flash_attention."""

import numpy as np

from tools.rivals.closeness import close
from tools.rivals.drawing import BFLOAT16, arrays
from tools.rivals.rival import Rival
from tools.rivals.trial import Trial


def draw() -> list[Trial]:
    """Draw the first sizes of the operator, without a mask and causal."""
    rng = np.random.default_rng(0)
    shapes = ((2, 4, 128, 64), (1, 1, 512, 64))
    return [
        Trial({**arrays(rng, BFLOAT16, shape), "is_causal": causal})
        for shape in shapes
        for causal in (False, True)
    ]


RIVALS = (
    Rival(
        "tritonbench",
        "https://github.com/meta-pytorch/tritonbench/blob/db2155c807755c19f5d98c64917ec897f24061f3"
        "/tritonbench/operators/flash_attention/operator.py",
        "`assert_close`, absolute 2e-2, relative 1e-2; no NaN",
        "normal, bfloat16, causal or not, 128 and 512 queries and keys, depth 64; batch 2 with 4 heads and"
        " 1 with 1, 4 with 48 and up to 16384 in the source",
        draw,
        close(2e-2, 1e-2),
    ),
)
