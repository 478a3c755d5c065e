"""A call of JAX without a 64-bit number is made without them, as users make it."""

import sys
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
from tests_support import command

from attnspec.backends import load
from attnspec.backends.library.library import has_64_bits
from attnspec.conformance import find
from attnspec.conformance.judge.judge import judge

pytest.importorskip("jax")

#: A kernel that is correct where arrays without a dtype and its lengths have the width of its query.
_KERNEL = """\
import jax.numpy as jnp

def kernel(q, k, v, lengths=None):  # (B, S, H, D)
    wide = q.dtype == jnp.float64
    assert jnp.zeros(()).dtype == (jnp.float64 if wide else jnp.float32)
    lengths = jnp.full(q.shape[0], k.shape[1]) if lengths is None else lengths
    assert lengths.dtype == (jnp.int64 if wide else jnp.int32)
    scores = jnp.einsum("blhd,bshd->bhls", q, k) / q.shape[-1] ** 0.5
    seen = jnp.arange(k.shape[1]) < lengths[:, None, None, None]
    weights = jnp.where(seen, jnp.exp(scores - jnp.max(jnp.where(seen, scores, -1e30), -1, keepdims=True)), 0)
    return jnp.einsum("bhls,bshd->blhd", weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30), v)
"""
_SERVED = ("--program", f'"{sys.executable}" -m attnspec.backends.program.serve .')


@pytest.mark.parametrize(
    "options", [(".",), (".", "--untrusted"), _SERVED], ids=["plain", "untrusted", "served"]
)
def test_a_call_that_needs_no_64_bit_numbers_is_made_without_them(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "narrow.py").write_text(_KERNEL)
    command("init", "narrow.py:kernel", status=0)
    for dtype in ("float32", "float64"):
        for case in ("notation-one-head", "masking-key-lengths"):
            run = command("check", *options, "--case", f"{case}-{dtype}", status=0)
            assert f"budget used: {dtype}" in run.output


def test_what_needs_64_bits_is_seen():
    wide = [(2, None, 2**31), np.zeros(1), np.array([-5, 2**30]), np.array([-(2**30) - 1])]
    assert all(has_64_bits([x]) for x in wide)
    assert not has_64_bits([np.zeros(1, np.float32), True, 2**31 - 1, "both", None, (-(2**31), 0.5)])
    assert not has_64_bits([np.array([-(2**30), 2**30 - 1]), np.zeros(0, np.int64), np.ones(1, np.uint64)])


@pytest.mark.parametrize("side", ["left", "both"])
def test_a_bound_of_32_bits_overflows_in_the_declared_way_alone(side):
    backend = load("jax-nn")
    case = find(f"masking-window-wider-than-any-sequence-{side}-1-float32")
    assert judge(backend, case).declared == ("MASK-8 jax/window_overflow",)

    @wraps(backend.attention)
    def twice(query, key, value, **options):
        return 2 * backend.attention(query, key, value, **options)

    assert judge(replace(backend, attention=twice), case).status == "fail"
