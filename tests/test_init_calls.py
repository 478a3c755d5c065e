"""How `attnspec init` calls a function: on which device, how often, and what it shows meanwhile."""

import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests_support import attnspec, command, written

from attnspec.backends import load
from attnspec.backends.user import progress
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check

pytestmark = pytest.mark.usefixtures("here_beside_tests")


def test_a_kernel_of_an_accelerator_is_called_there(tmp_path):
    source = """\
        import array_api_strict as xp

        def kernel(q, k, v):  # (B, S, H, D)
            if q.device != xp.Device("device1"):
                raise ValueError("expected arrays on device1")
            q, k, v = (xp.permute_dims(x, (0, 2, 1, 3)) for x in (q, k, v))
            scores = q @ xp.matrix_transpose(k) * q.shape[-1] ** -0.5
            weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
            return xp.permute_dims(weights @ v / xp.sum(weights, axis=-1, keepdims=True), (0, 2, 1, 3))
    """
    (tmp_path / "there.py").write_text(dedent(source))
    for options in ((), ("--device", "device1", "--force"), ()):  # the last keeps the key of the file
        command("init", f"{tmp_path}/there.py:kernel", *options, status=0)
        assert (written()["device"], written()["layout"]) == ("device1", "BSHD")
    assert check(load("."), cases=["softmax-000"]).good
    refusal = command("init", f"{tmp_path}/there.py:kernel", "--device", "device9", "--force", status=2)
    assert "on device device9" in refusal.output


#: A kernel that notes the device of each call in a file, and raises.
NOTED = """\
    import array_api_strict as xp

    def kernel({parameters}):
        with open("calls", "a") as file:
            print(q.device, file=file)
        raise RuntimeError("no driver on " + str(q.device))
"""
#: Arguments of attention, and of a kernel over packed rows.
PLAIN, PACKED = "q, k, v, *, scale=None", "q, k, v, cu_seqlens_q, cu_seqlens_k, *, scale=None"


@pytest.mark.parametrize(("parameters", "first"), [(PLAIN, 24), (PACKED, 8)])
def test_a_kernel_of_an_accelerator_is_called_there_after_few_calls(parameters, first):
    Path("noted.py").write_text(dedent(NOTED).format(parameters=parameters))
    refusal = command("init", "./noted.py:kernel", status=2)
    devices = Path("calls").read_text().splitlines()
    there = [number for number, device in enumerate(devices) if "device1" in device]
    assert 0 < there[0] <= first
    assert "; with arrays on device1: expected some call to compute " in refusal.output


@pytest.mark.parametrize(
    ("parameters", "most"),
    [(PLAIN, 250), ("q, k, v, cu_seqlens=None", 320)],
)
def test_a_function_that_always_raises_is_called_seldom(parameters, most):
    """With another convention of the results, or another scale, a call that raises would raise again."""
    Path("noted.py").write_text(dedent(NOTED).format(parameters=parameters))
    refusal = command("init", "./noted.py:kernel", "--device", "device1", status=2)
    assert len(Path("calls").read_text().splitlines()) <= most
    assert "raised RuntimeError: no driver on" in refusal.output


def test_a_form_that_always_raises_is_called_seldom():
    source = """\
        def kernel(q, k_cache, v_cache, block_table, seq_lens, *, scale=None):
            with open("calls", "a") as file:
                print(q.shape, file=file)
            raise RuntimeError("no driver")
    """
    Path("noted.py").write_text(dedent(source))
    refusal = command("init", "./noted.py:kernel", status=2)
    assert len(Path("calls").read_text().splitlines()) <= 400
    assert "raised RuntimeError: no driver" in refusal.output


#: Kernels that no key describes, each with the operation of the wrapper that `init` prints, and a rule of it.
WRAPPED = {
    "attention SOFT-1": """\
        from attnspec.reference import attention as whole

        def kernel(q, k, v, o, *, softmax_scale=None):
            o[...] = whole(q, k, v, scale=softmax_scale)
    """,
    "attention MASK-3": """\
        import numpy as np
        from attnspec.reference import attention as whole

        def kernel(q, k, v, prefix_lens, softmax_scale=None):  # (B, S, H, D)
            i, j = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])
            mask = ((j <= i) | (j < np.reshape(prefix_lens, (-1, 1, 1))))[:, None]
            arrays = (x.swapaxes(1, 2) for x in (q, k, v))
            return whole(*arrays, mask=mask, scale=softmax_scale).swapaxes(1, 2).astype(q.dtype)
    """,
    "kernel PAGE-1": """\
        from typing import NamedTuple
        import numpy as np
        from attnspec.reference import function

        class Cache(NamedTuple):
            key_cache: np.ndarray
            value_cache: np.ndarray

        def kernel(q, cache, block_table, seq_lens, softmax_scale=None):
            own = {"block_table": block_table, "key_lengths": seq_lens, "scale": softmax_scale}
            return function("paged_attention")(q, *cache, **own, dtype=q.dtype)
    """,
    "merge_partials CACHE-6": """\
        import numpy as np
        from attnspec.reference import function

        def kernel(prefix_output, prefix_lse, suffix_output, suffix_lse, output=None):  # (rows, H, Dv)
            outputs, lses = np.stack([prefix_output, suffix_output]), np.stack([prefix_lse, suffix_lse])
            merge = function("merge_partials")
            output, lse = merge(outputs.swapaxes(-3, -2), lses.swapaxes(-2, -1), return_lse=True)
            return output.swapaxes(-3, -2).astype(prefix_output.dtype), lse.swapaxes(-2, -1)
    """,
}


@pytest.mark.parametrize("kernel", WRAPPED)
def test_the_wrapper_that_is_printed_conforms(kernel, tmp_path):
    (tmp_path / "needs.py").write_text(dedent(WRAPPED[kernel]))
    operation, rule = kernel.split()
    refusal = attnspec("init", "./needs.py:kernel", cwd=tmp_path, status=2)
    assert "seem" in refusal.stderr
    (tmp_path / "wrap.py").write_text(refusal.stdout)
    attnspec("init", f"./wrap.py:{operation}", cwd=tmp_path, status=0)
    run = attnspec("check", "-k", rule, "--quick", cwd=tmp_path)
    assert re.search(r"values: [1-9][0-9]* pass", run.stdout), run.stdout
    assert "needs.py" not in run.stdout


def test_what_takes_long_is_said_and_ends(monkeypatch):
    monkeypatch.setattr(progress, "_BETWEEN", 0)
    lines = []
    infer_configuration("conventions:of_two_alignments", say=lines.append)
    assert [line.partition(" so far, ")[0] for line in lines[:2]] == ["init: 0 calls", "init: 1 calls"]
    monkeypatch.setattr(progress, "_MOST", 0)
    refusal = command("init", "conventions:of_two_alignments", "--force", status=2)
    assert re.search(r"expected some call to return, got none of 0 in \d+ s", refusal.output)


@pytest.mark.skipif(sys.platform == "win32", reason="the library of C has another name there")
def test_what_a_function_prints_is_hidden(tmp_path):
    """Also what compiled code prints, which may hold it back."""
    source = """
        import ctypes, os, sys
        from attnspec.reference import attention as whole
        print("noise")

        def attention(query, key, value):
            print("noise", file=sys.stderr)
            os.write(1, b"noise")
            os.write(2, b"noise")
            ctypes.CDLL(None).puts(b"noise")
            return whole(query, key, value)
    """
    (tmp_path / "loud.py").write_text(dedent(source))
    run = attnspec("init", "./loud.py:attention", cwd=tmp_path, status=0, PYTHONUNBUFFERED="")
    assert "noise" not in run.stdout + run.stderr
    assert run.stdout.endswith("run: attnspec check\n")


APPLIED = """
import torch


class Applied(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sm_scale, causal=False):
        scores = q @ k.mT * sm_scale
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = (scores.masked_fill(later, -torch.inf) if causal else scores).softmax(-1)
        ctx.save_for_backward(q, k, v, weights)
        ctx.scale = sm_scale
        return weights @ v

    @staticmethod
    def backward(ctx, d_output):
        q, k, v, weights = ctx.saved_tensors
        d_weights = d_output @ v.mT
        d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True)) * ctx.scale
        return d_scores @ k, d_scores.mT @ q * RIGHT, weights.mT @ d_output, None, None


attention = Applied.apply
"""


@pytest.mark.parametrize("right", ["1", "2"])
def test_a_function_of_autograd_is_judged_with_its_backward_pass(right):
    Path(f"applied_{right}.py").write_text(APPLIED.replace("RIGHT", right))
    command("init", f"./applied_{right}.py:attention", status=0)
    assert written()["names"]["scale"] == "sm_scale"
    assert written()["heads"] == "equal"
    found = check(load("."), rules=["SOFT-1", "MASK-3", "GRAD-2"], quick=True, dtypes=["float32"])
    assert found.good is (right == "1"), found.text
    assert sum(verdict.status == "pass" for verdict in found.report.results.verdicts) > 20


LOCAL = """
from attnspec.reference import attention


def local(q, k, v, window_size=4, causal=True):
    return attention(q, k, v, window=(window_size - 1 + WRONG, None), is_causal=causal, dtype=q.dtype)
"""


@pytest.mark.parametrize("wrong", ["0", "1"])
def test_a_window_that_is_a_number_of_keys_by_default_is_passed_in_every_call(wrong):
    Path(f"local_{wrong}.py").write_text(LOCAL.replace("WRONG", wrong))
    command("init", f"./local_{wrong}.py:local", status=0)
    table = written()
    assert table["given"] == ["is_causal", "window"]
    assert table["window"] == ("left" if wrong == "1" else "keys")
