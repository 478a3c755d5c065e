"""What `attnspec init` says and prints for kernels of some numbers of heads, or with biases of their own."""

from pathlib import Path

import pytest
from tests_support import command

from attnspec.backends.user.inference import infer_configuration

pytestmark = pytest.mark.usefixtures("here_beside_tests")

#: It adds the biases of ALiBi, counted from the last key, and takes numbers of heads that are powers of two.
KERNEL = """
import numpy as np
from attnspec.reference import attention


def kernel(q, k, v, softmax_scale=None):
    q, k, v = (x.swapaxes(-3, -2) for x in (q, k, v))
    heads, L, S = q.shape[-3], q.shape[-2], k.shape[-2]
    if heads & (heads - 1) or L > S:
        raise ValueError(f"expected a power of two, got {heads}, or too few keys")
    slopes = FACTOR * 2.0 ** (-8 / heads * np.arange(1, heads + 1))[:, None, None]
    bias = -slopes * (np.arange(L)[:, None] + S - L - np.arange(S))
    options = {"is_causal": True, "query_offset": S - L, "scale": softmax_scale, "dtype": q.dtype}
    return attention(q, k, v, bias=bias.astype(q.dtype), **options).swapaxes(-3, -2)
"""


@pytest.mark.parametrize(("factor", "status"), [(1, 0), (4, 1)])
def test_the_wrapper_that_takes_back_slopes_runs_as_it_is_printed(factor, status):
    kernel, wrapper = f"sloping_{factor}", f"unsloping_{factor}"  # no other test has loaded such modules
    Path(f"{kernel}.py").write_text(KERNEL.replace("FACTOR", str(factor)))
    run = command("init", f"./{kernel}.py:kernel", status=2)
    slopes = "0.25, 0.0625, 0.0156, 0.00391"
    shown = slopes if factor == 1 else "1, 0.25, 0.0625, 0.0156"
    assert f"its heads fall by slopes of {shown} from key to key" in run.stderr
    assert f"with slopes of {slopes} by POS-7" in run.stderr
    Path(f"{wrapper}.py").write_text(run.stdout)
    text = command("init", f"./{wrapper}.py:attention", status=0).stdout
    assert ('lengths = "enough"  # it raised' in text) == (factor == 1)
    command("check", "--smoke", status=status)


@pytest.mark.parametrize(("even", "said"), [("even", "with 3 heads each call raised an error"), ("odd", "")])
def test_other_numbers_of_heads_are_tried_where_no_call_returns(even, said):
    text = infer_configuration(f"conventions:of_{even}_heads")
    assert 'layout = "BSHD"' in text
    assert said in text
    assert ("3 heads" in text) == bool(said)
