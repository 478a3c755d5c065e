"""Rules with several conforming results: each of them passes, and any other fails."""

from dataclasses import replace

import numpy as np
import pytest
from test_judge import MASKED, PORTABLE, asked

from attnspec import Misuse
from attnspec.conformance import find
from attnspec.conformance.judge.judge import judge

FIRST = {name: MASKED[name] for name in ("query", "key", "value")}


@pytest.mark.parametrize(
    ("number", "lse", "status"),
    [
        (np.inf, np.inf, "pass"),
        (np.inf, np.nan, "pass"),
        (np.inf, -np.inf, "fail"),
        (np.inf, 7.0, "fail"),
        (np.nan, np.nan, "pass"),
        (np.nan, np.inf, "fail"),
        (np.nan, 7.0, "fail"),
        (0.0, np.nan, "fail"),
    ],
)
def test_the_lse_of_an_infinite_score_is_infinite_or_nan(number, lse, status):
    """And that of a score of NaN is NaN (NUM-11); the bias has the number in the first row."""

    def attention(query, key, value, *, bias=None, return_lse=False):
        output, found = PORTABLE.attention(query, key, value, bias=bias, return_lse=True)
        found = np.array([lse, found[1]])
        return (output, found) if return_lse else output

    bias = np.zeros((2, 3))
    bias[0, 1] = number
    verdict = judge(
        replace(PORTABLE, attention=attention, companions={}), asked("NUM-11", FIRST | {"bias": bias})
    )
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "NUM-11")


@pytest.mark.parametrize(
    ("part", "lse", "status"),
    [(np.inf, np.inf, "pass"), (np.inf, np.nan, "pass"), (np.inf, 7.0, "fail"), (np.nan, np.inf, "fail")],
)
def test_the_lse_of_an_infinite_part_is_infinite_or_nan(part, lse, status):
    def merge_partials(outputs, lses, *, return_lse=False):
        output, found = PORTABLE.function("merge_partials")(outputs, lses, return_lse=True)
        found = np.array([lse, found[1]])
        return (output, found) if return_lse else output

    arguments = {"outputs": np.ones((2, 2, 3)), "lses": np.array([[part, 0.0], [1.0, 1.0]])}
    backend = replace(PORTABLE, companions={"merge_partials": merge_partials})
    verdict = judge(backend, asked("CACHE-9", arguments, "merge_partials"))
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "CACHE-9")


@pytest.mark.parametrize(
    ("dtype", "given", "status"),
    [
        ("float16", "float16", "pass"),
        ("float16", "float32", "pass"),
        ("float16", "float64", "pass"),
        ("float32", "float16", "fail"),
        ("float64", "float32", "fail"),
    ],
)
def test_the_bias_of_alibi_may_be_wider_than_the_query(dtype, given, status):
    def alibi_bias(query, key, *, query_offset=0):
        return PORTABLE.function("alibi_bias")(query, key, query_offset=query_offset).astype(given)

    arrays = {"query": np.ones((4, 3, 2), dtype), "key": np.ones((4, 5, 2), dtype)}
    backend = replace(PORTABLE, companions={"alibi_bias": alibi_bias})
    verdict = judge(backend, asked("POS-8", arrays, "alibi_bias"))
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "NUM-1")


@pytest.mark.parametrize(("heads", "status"), [(0, "pass"), (1, "fail"), (None, "pass")])
def test_no_heads_are_refused_or_give_nothing(heads, status):
    """Whatever has another shape than nothing fails (ERR-17)."""

    def attention(query, key, value):
        if len(query):
            return PORTABLE.attention(query, key, value)
        if heads is None:
            raise ValueError("query: expected heads")
        return np.zeros((heads, *query.shape[1:-1], value.shape[-1]))

    for keys in (0, 2):
        arrays = {"query": np.ones((0, 3, 2)), "key": np.ones((keys, 3, 2)), "value": np.ones((keys, 3, 2))}
        case = asked("ERR-17", arrays, misuse=Misuse("query", allowed=True), outputs=("output",))
        verdict = judge(replace(PORTABLE, attention=attention, companions={}), case)
        assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "ERR-17")


@pytest.mark.parametrize(
    ("change", "status"),
    [("promoted", "pass"), ("refused", "pass"), ("rounded", "fail"), ("misread", "fail")],
)
def test_a_key_of_another_dtype_is_refused_or_taken_at_its_value(change, status):
    """A key of float32 beside a query of bfloat16 or float16 (ERR-1)."""

    def attention(query, key, value):
        if key.dtype != query.dtype:
            if change == "refused":
                raise TypeError("key: expected another dtype")
            if change == "rounded":
                key = key.astype(query.dtype).astype(np.float32)
            if change == "misread":
                key = key.view(np.float16)[..., ::2].astype(np.float32)
        found = PORTABLE.attention(*(array.astype(np.float32) for array in (query, key, value)))
        return found.astype(query.dtype)

    random = np.random.default_rng(0)
    key = (np.round(random.normal(size=(5, 2)) * 1024) / 1024 + 300).astype(np.float32)
    query = np.full((3, 2), 0.5, np.float16)
    arrays = {"query": query, "key": key, "value": np.arange(10.0).reshape(5, 2).astype(np.float16)}
    case = asked("ERR-1", arrays, misuse=Misuse("key", allowed=True), outputs=("output",))
    backend = replace(PORTABLE, attention=attention, companions={})
    verdict = judge(backend, case)
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "ERR-1")


@pytest.mark.parametrize(
    ("name", "repeats", "status"),
    [
        ("masking-finite-garbage-mask-and-large-1-float32", False, "unsupported"),
        ("masking-finite-garbage-after-the-query-1-float32", False, "unsupported"),
        ("masking-finite-garbage-mask-and-large-1-float32", True, "fail"),
    ],
)
def test_bits_are_compared_only_where_a_repeated_call_has_the_same(name, repeats, status):
    """MASK-12 is about implementations whose calls are repeatable (NUM-9)."""
    random = np.random.default_rng(0)

    def attention(query, key, value, *, mask=None, is_causal=False):
        output = PORTABLE.attention(query, key, value, mask=mask, is_causal=is_causal)
        other = np.abs(key).max() > 1000 if repeats else random.integers(0, 2, output.shape)
        return (output + other * np.spacing(output)).astype(output.dtype)

    verdict = judge(replace(PORTABLE, attention=attention, companions={}), find(name))
    assert verdict.status == status
    assert verdict.status != "unsupported" or verdict.reason.endswith("(NUM-9)")
