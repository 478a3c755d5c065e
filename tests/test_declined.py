"""A call that raises `NotImplementedError` is not offered."""

import functools
import inspect
from dataclasses import replace

import numpy as np
import pytest

from attnspec import OPERATIONS, Case, Misuse, find_case, reference
from attnspec.backends import Unsupported, describe, load
from attnspec.backends.constraints import fields_about, fits
from attnspec.conformance import check
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import Header, Run, Subject
from attnspec.conformance.verdict import Verdict, from_json, to_json
from attnspec.operations import LETTERS

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


def declining(operation):
    """What a run says about a backend that declines every call of an operation."""
    declined = Verdict("k", "a-float32", "", ("SOFT-1",), "unsupported", "float32", operation, declined=True)
    run = Run(Header("1", cases=(declined.case,)), [Subject("k", "numpy", "2")], [declined], ended=True)
    return run.judged()[0].problem


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if not name.endswith("_vjp")])
def test_each_key_that_a_message_advises_is_accepted_and_excludes_calls(operation):
    advice = declining(operation).partition("use ")[2]
    if not advice:
        assert not fields_about(operation)
        assert "No key declares what it takes" in declining(operation)
        return
    sizes = {"Hq": 3, "Hkv": 1, "L": 3, "S": 5, "D": 5, "Dv": 4}
    arrays = {
        name: np.ones([sizes.get(letter, 2) for letter in argument.shape if letter in LETTERS])
        for name, argument in OPERATIONS[operation].arguments.items()
        if name in OPERATIONS[operation].arrays
    }
    if operation == "attention":
        arrays = {name: array[None] for name, array in arrays.items()}  # five axes
    for key in advice.split(", "):
        said = {key: VALUES[key]}
        backend = describe(getattr(reference, operation), operation=operation, **said)
        assert fits(backend.constraints, arrays, operation), f"{key} has no effect on {operation}"


def with_equal_heads(function, arrays):
    """Decline calls whose key heads are shared, and depths other than 64, as kernels for one depth do."""

    @functools.wraps(function)
    def kernel(*values, **options):
        query, key = values[:2]
        if query.shape[-1] != 64 or query.shape[-3] != key.shape[-3]:
            raise NotImplementedError("no such heads or depth")
        return function(*values, **options, **({} if "d_output" in arrays else {"dtype": query.dtype}))

    own = inspect.signature(function)
    parameters = [parameter for parameter in own.parameters.values() if parameter.name != "dtype"]
    kernel.__signature__ = own.replace(parameters=parameters)
    return kernel


@pytest.mark.parametrize(
    ("operation", "rule"), [("packed_attention", "PACK-1"), ("paged_attention", "PAGE-1")]
)
@pytest.mark.sample(1)
def test_a_correct_companion_for_one_depth_ends_green_by_what_the_message_advises(operation, rule):
    function = getattr(reference, operation)
    kernel = with_equal_heads(function, OPERATIONS[operation].arrays)
    said = {"operation": operation, "quick": True, "rules": [rule]}
    before = check(kernel, **said).report
    assert before.outcome.status == 4
    (subject,) = before.results.subjects
    keys = [key for key in subject.problem.partition("use ")[2].split(", ") if key in ("depths", "heads")]
    assert keys == ["depths", "heads"]
    after = check(kernel, **said, **{key: VALUES[key] for key in keys}).report
    assert after.outcome.status == 0
    judged = [verdict for verdict in after.results.verdicts if verdict.status == "pass"]
    assert len(judged) > len(after.results.verdicts) / 4
    assert not any(verdict.declined for verdict in after.results.verdicts)
