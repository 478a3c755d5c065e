"""`NotImplementedError` is a plain way to say that a call is not offered."""

from dataclasses import replace

import pytest

from attnspec import find_case, reference
from attnspec.backends import Unsupported, load
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.verdict import from_json, to_json

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
