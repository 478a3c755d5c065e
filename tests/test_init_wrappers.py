"""What `attnspec init` says of kernels with a rotation, slopes or causality of their own; its wrappers."""

import re
import sys
from pathlib import Path

import pytest
from tests_support import command

from attnspec.backends import load
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check

pytestmark = pytest.mark.usefixtures("here_beside_tests")


def init_wrapper(name, source, status):
    """What is said of a kernel, and of the wrapper printed for it, with which a smoke run ends so."""
    own, wrapper = f"{name}_{status}", f"of_{name}_{status}"  # no other test has loaded such modules
    Path(f"{own}.py").write_text(source)
    run = command("init", f"./{own}.py:kernel", status=2)
    Path(f"{wrapper}.py").write_text(run.stdout)
    text = command("init", f"./{wrapper}.py:attention", status=0).stdout
    command("check", "--smoke", status=status)
    return run.stderr, text


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
    said, _ = init_wrapper("rotating", ROTATES.replace("S - L :", positions), status)
    assert "cos and sin: no key describes a rotation of queries and keys" in said


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
    command("init", "./based.py:kernel", status=0)
    text = Path("attnspec.toml").read_text()
    assert said in text
    operation = re.search(r"the rotation of `features` alone, with (operation = \S+)", text)[1]
    Path("rope.py").write_text(ROPE)
    Path("attnspec.toml").write_text(f'[backend]\nfunction = "./rope.py:turn"\n{operation}\n')
    command("check", "--smoke", status=0)


#: It adds the biases of ALiBi, counted from the last key, and takes numbers of heads that are powers of two.
SLOPING = """
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
    said, text = init_wrapper("sloping", SLOPING.replace("FACTOR", str(factor)), status)
    slopes = "0.25, 0.0625, 0.0156, 0.00391"
    shown = slopes if factor == 1 else "1, 0.25, 0.0625, 0.0156"
    assert f"its heads fall by slopes of {shown} from key to key" in said
    assert f"with slopes of {slopes} by POS-7" in said
    assert ('lengths = "enough"  # it raised' in text) == (factor == 1)


@pytest.mark.parametrize(("even", "said"), [("even", "with 3 heads each call raised an error"), ("odd", "")])
def test_other_numbers_of_heads_are_tried_where_no_call_returns(even, said):
    text = infer_configuration(f"conventions:of_{even}_heads")
    assert 'layout = "BSHD"' in text
    assert said in text
    assert ("3 heads" in text) == bool(said)


OF_CAUSALITY = """
from attnspec import reference


def checked(flag):
    if not flag:
        raise NotImplementedError("causal only")
    return flag


def attention(query, key, value, *, scale=None, is_causal=False):
    options = {"scale": scale, "is_causal": checked(is_causal)}
    return reference.attention(query, key, value, **options, dtype=query.dtype)


def of_equal(q, k, v, quick=False, tri=False):
    if q.shape[-2] != k.shape[-2]:
        raise ValueError("expected as many keys as queries")
    return reference.attention(q, k, v, is_causal=checked(tri), dtype=q.dtype)


def packed_attention(query, key, value, *, query_starts, key_starts, causal=False):
    options = {"query_starts": query_starts, "key_starts": key_starts, "is_causal": checked(causal)}
    return reference.packed_attention(query, key, value, **options, dtype=query.dtype)


def paged_attention(query, key_pages, value_pages, *, block_table, key_lengths, tri=False):
    options = {"block_table": block_table, "key_lengths": key_lengths, "is_causal": checked(tri)}
    return reference.paged_attention(query, key_pages, value_pages, **options, dtype=query.dtype)


def wrong(query, key, value, tri=False):
    return reference.attention(query, key, value, scale=checked(tri) * 3.0, dtype=query.dtype)
"""


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("attention", "is_causal"),
        ("of_equal", "tri"),
        ("packed_attention", "causal"),
        ("paged_attention", "tri"),
    ],
)
def test_a_function_that_is_attention_with_causality_alone_is_described(name, own):
    Path("causal.py").write_text(OF_CAUSALITY)
    text = command("init", f"./causal.py:{name}", status=0).output
    line = f"always = {{ is_causal = true }}  # by calls: each one without {own} raised an error\n"
    assert line in text, text
    assert "guesses" not in text
    rule = {"packed_attention": "PACK-5", "paged_attention": "PAGE-7"}.get(name, "MASK-3")
    found = check(load("."), rules=[rule], quick=True)
    assert found.good, found.text
    assert "pass" in [verdict.status for verdict in found.report.results.verdicts]


def test_a_flag_that_a_wrong_function_needs_is_no_causality():
    Path("causal.py").write_text(OF_CAUSALITY)
    assert "raised NotImplementedError: causal only" in command("init", "./causal.py:wrong", status=2).output


OF_EQUAL_LENGTHS = """
import numpy as np
from attnspec.reference import attention


def rotate(x, positions, base):
    half = x.shape[-1] // 2
    angles = positions[:, None, :, None] * base ** (-np.arange(half) / half)
    cos, sin, a, b = np.cos(angles), np.sin(angles), x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def kernel(q, k, v, positions=None, *, rope_theta=500.0):
    if positions is None:  # as many as queries, and as keys
        positions = np.broadcast_to(np.arange(q.shape[-2]), (len(q), q.shape[-2]))
    q, k = (rotate(x, positions, rope_theta) for x in (q, k))
    return attention(q, k, v, dtype=q.dtype)
"""


def test_a_kernel_that_rotates_is_not_judged_by_one_query_at_position_zero():
    Path("rotating_all.py").write_text(OF_EQUAL_LENGTHS)
    run = command("init", "./rotating_all.py:kernel", status=2)
    assert "rope_theta promises a rotation of queries and keys, which no case expects" in run.stderr
    assert "or a wrapper that passes zeros as positions, by which nothing rotates" in run.stderr
