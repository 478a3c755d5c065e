"""A call that raises `NotImplementedError` is not offered."""

from dataclasses import replace

import numpy as np
import pytest

from attnspec import Case, Misuse, find_case, reference
from attnspec.backends import Unsupported, describe, load
from attnspec.conformance import check
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import Header, Run, Subject
from attnspec.conformance.verdict import Verdict, from_json, to_json

PORTABLE = load("numpy-portable")


def backend_that(raises):
    def attention(query, key, value, *, mask=None, is_causal=False):
        if mask is not None:
            raise raises
        return reference.attention(query, key, value, is_causal=is_causal, dtype=query.dtype)

    return replace(PORTABLE, attention=attention, companions={})


@pytest.mark.parametrize("error", [NotImplementedError("no masks yet"), Unsupported("no masks yet")])
def test_a_call_that_is_declined_is_unsupported_by_its_message(error):
    verdict = judge(backend_that(error), find_case("masking-empty-last"))
    assert (verdict.status, verdict.reason, verdict.declined) == ("unsupported", "no masks yet", True)
    assert from_json(to_json(verdict)) == verdict


def test_it_is_told_from_an_argument_that_is_not_there():
    verdict = judge(backend_that(None), find_case("scores-zero-scale"))
    assert (verdict.status, verdict.declined) == ("unsupported", False)
    assert "has no argument scale" in verdict.reason


def test_without_a_message_it_says_what_was_raised():
    verdict = judge(backend_that(NotImplementedError()), find_case("masking-empty-last"))
    assert verdict.reason == "raised NotImplementedError"


def test_any_other_error_is_an_error():
    assert judge(backend_that(ValueError("no")), find_case("masking-empty-last")).status == "error"


def test_where_an_error_must_be_raised_it_is_one():
    def attention(query, key, value):
        if key.shape[:-1] != value.shape[:-1]:
            raise NotImplementedError("value: no such shape")
        return reference.attention(query, key, value, dtype=query.dtype)

    backend = replace(PORTABLE, attention=attention, companions={})
    assert judge(backend, find_case("notation-misfit-positions")).status == "pass"


@pytest.mark.parametrize("error", [NotImplementedError, ValueError])
def test_what_is_not_offered_need_not_name_an_argument(error):
    def attention(query, key, value):
        if query.shape[-1] != key.shape[-1]:
            raise error("not yet")
        return reference.attention(query, key, value, dtype=query.dtype)

    backend = replace(PORTABLE, attention=attention, companions={})
    arrays = {name: np.ones((2, 3, depth)) for name, depth in (("query", 4), ("key", 5), ("value", 4))}
    case = Case("errors-x", "", "errors", "attention", ("ERR-12",), arrays, misuse=Misuse("key"), group="x")
    verdict = judge(backend, case)
    assert verdict.status == ("should not met" if error is ValueError else "unsupported")
    assert not verdict.declined, "it is no call that the standard offers"


#: A value of each key that a message advises.
VALUES = {
    "axes": 4,
    "always": {"is_causal": True},
    "depths": [64],
    "multiple": 2,
    "heads": "equal",
    "value_depth": "key",
}


@pytest.mark.parametrize("operation", ["attention", "packed_attention"])
def test_each_key_that_the_message_advises_is_accepted(operation):
    declined = Verdict("k", "a-float32", "", ("SOFT-1",), "unsupported", "float32", operation, declined=True)
    run = Run(Header("1", cases=(declined.case,)), [Subject("k", "numpy", "2")], [declined], ended=True)
    (subject,) = run.judged()
    keys = subject.problem.partition("use ")[2].split(", ")
    assert len(keys) > 3
    function = getattr(reference, operation)
    for key in keys:
        backend = describe(function, operation=operation, **{key: VALUES[key]})
        assert backend.constraints.suffix or key == "axes"


def test_a_companion_that_says_what_it_takes_declines_nothing():
    def packed_attention(query, key, value, *, query_starts, key_starts):
        if query.shape[-3] != key.shape[-3]:
            raise NotImplementedError("heads")
        options = {"query_starts": query_starts, "key_starts": key_starts}
        return reference.packed_attention(query, key, value, **options, dtype=query.dtype)

    said = {"operation": "packed_attention", "quick": True, "rules": ["PACK-1", "HEAD-1"]}
    (before, after) = (check(packed_attention, **said, **more).report for more in ({}, {"heads": "equal"}))
    assert any(verdict.declined for verdict in before.results.verdicts)
    assert not any(verdict.declined for verdict in after.results.verdicts)
    assert after.outcome.status == 0
