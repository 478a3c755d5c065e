"""What `attnspec init` says and prints for kernels that rotate queries and keys themselves."""

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from attnspec.conformance.cli.main import main

pytestmark = pytest.mark.usefixtures("here_beside_tests")

ROTATES = """
import numpy as xp
from attnspec.reference import attention


def rotate(x, cos, sin):
    a, b = x[..., ::2], x[..., 1::2]
    return xp.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)


def kernel(q, k, v, cos, sin, is_causal=True, softmax_scale=None):
    L, S = q.shape[-2], k.shape[-2]
    assert cos.shape == sin.shape == (S, q.shape[-1] // 2)
    q, k = rotate(q, cos[S - L :], sin[S - L :]), rotate(k, cos, sin)
    options = {"is_causal": is_causal, "query_offset": S - L, "scale": softmax_scale}
    return attention(q, k, v, **options, dtype=q.dtype)
"""


@pytest.mark.parametrize(("positions", "status"), [(": L", 1), ("S - L :", 0)])
@pytest.mark.sample(1)
def test_the_wrapper_of_a_rotation_runs_as_it_is_printed(positions, status):
    kernel, wrapper = f"rotating_{status}", f"unrotating_{status}"  # no other test has loaded such modules
    Path(f"{kernel}.py").write_text(ROTATES.replace("S - L :", positions))
    run = CliRunner().invoke(main, ["init", f"./{kernel}.py:kernel"])
    assert run.exit_code == 2
    assert "cos and sin: no key describes a rotation of queries and keys" in run.stderr
    Path(f"{wrapper}.py").write_text(run.stdout)
    run = CliRunner().invoke(main, ["init", f"./{wrapper}.py:attention"])
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(main, ["check", "--smoke"])
    assert run.exit_code == status, run.output


ROPE = """
from attnspec import reference


def turn(features, *, offset=0, base=10000.0, interleaved=False):
    options = {"offset": offset, "base": base, "interleaved": interleaved}
    return reference.rotary(features, **options, dtype=features.dtype)
"""
BY_BASE = """
from attnspec.reference import attention, rotary


def kernel(q, k, v, rope_theta=500.0):
    last = k.shape[-2] - q.shape[-2]
    q = rotary(q, offset=FIRST, base=rope_theta, interleaved=INTERLEAVED)
    k = rotary(k, base=rope_theta, interleaved=INTERLEAVED)
    return attention(q, k, v, dtype=q.dtype)
"""


@pytest.mark.parametrize(
    ("first", "interleaved", "said"),
    [
        ("last", "False", "(pairs of halves, the last query at the last key)"),
        ("0", "True", "(pairs of neighbours, the first query at the first key)"),
        ("-3", "True", "promises a rotation of queries and keys, which no case expects"),
    ],
)
@pytest.mark.sample(1)
def test_a_rotation_by_a_base_inside_is_said(first, interleaved, said):
    Path("based.py").write_text(BY_BASE.replace("FIRST", first).replace("INTERLEAVED", interleaved))
    sys.modules.pop("based", None)
    run = CliRunner().invoke(main, ["init", "./based.py:kernel"])
    assert run.exit_code == 0, run.output
    text = Path("attnspec.toml").read_text()
    assert said in text
    operation = re.search(r"the rotation of `features` alone, with (operation = \S+)", text)[1]
    Path("rope.py").write_text(ROPE)
    Path("attnspec.toml").write_text(f'[backend]\nfunction = "./rope.py:turn"\n{operation}\n')
    run = CliRunner().invoke(main, ["check", "--smoke"])
    assert run.exit_code == 0, run.output
