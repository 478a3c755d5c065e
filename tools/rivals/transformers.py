"""PyTorch's `test_transformers.py`: tolerances from the error of the math path, times a fudge factor."""

import numpy as np

from tools.rivals.closeness import wide
from tools.rivals.drawing import BFLOAT16, FLOAT16, arrays, uniform
from tools.rivals.rival import Rival
from tools.rivals.trial import Array, Trial

#: Batch, queries, keys, depth, causal, whether the scale is 1 / depth, dtype.
_CALLS = (
    (8, 4, 8, 8, False, False, FLOAT16),
    (8, 8, 8, 16, True, True, BFLOAT16),
    (1, 64, 64, 32, True, False, FLOAT16),
    (1, 143, 128, 64, False, False, BFLOAT16),
    (1, 64, 128, 21, False, True, FLOAT16),
    (1, 256, 256, 72, True, False, BFLOAT16),
)


def draw() -> list[Trial]:
    """Draw calls of the flash path, and one with a bias of the memory-efficient path."""
    rng = np.random.default_rng(0)
    trials = []
    for batch, queries, keys, depth, causal, is_inverse, dtype in _CALLS:
        shapes = ((batch, 4, queries, depth), (batch, 4, keys, depth))
        options = {"is_causal": causal, "scale": 1 / depth if is_inverse else None}
        trials.append(Trial({**arrays(rng, dtype, *shapes, distribution=uniform), **options}))
    given = arrays(rng, FLOAT16, (1, 4, 64, 16), (1, 4, 128, 16), distribution=uniform)
    return [*trials, Trial({**given, "bias": uniform(rng, (64, 128), FLOAT16)})]


def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
    """Whether the output is close within the errors of plain arithmetic, absolute and relative."""
    dtype = trial.given["query"].dtype
    exact, own = wide(trial.exact[0]), wide(trial.own)
    fudge = 3.0 if trial.given["query"].shape[-1] % 8 else 1.0
    relative = fudge * max(float(np.abs((exact - own) / exact).max()), 1e-3 if dtype == FLOAT16 else 1.6e-2)
    absolute = fudge * max(float(np.abs(exact - own).max()), 1e-3)
    expected = wide(trial.exact[0].astype(dtype))
    return (got[0].shape, got[0].dtype) == (expected.shape, dtype) and np.allclose(
        wide(got[0]), expected, rtol=relative, atol=absolute, equal_nan=True
    )


RIVALS = (
    Rival(
        "PyTorch, test_transformers",
        "https://github.com/pytorch/pytorch/blob/00030eb8e81f911c48c4d7634fa6b8bb2fae1a1b/test/test_transformers.py",
        "`assertEqual` within the largest absolute and relative error of the math path in the same dtype,"
        " or 1e-3 and 1e-3 (float16) or 1.6e-2 (bfloat16); 3 times that where the depth is no multiple of 8",
        "`torch.rand`, float16 and bfloat16, 4 heads, 7 calls of 4 to 256 queries and keys, depth 8 to 72,"
        " causal, scale, once a bias; up to 2048 in the source",
        draw,
        accepts,
    ),
)
