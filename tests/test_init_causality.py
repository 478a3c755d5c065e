"""What `attnspec init` writes of a function that raises an error without causality."""

from pathlib import Path

import pytest
from tests_support import command

from attnspec.backends import load
from attnspec.conformance import check

pytestmark = pytest.mark.usefixtures("here_beside_tests")


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
