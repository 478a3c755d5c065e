"""Implementations that take only some calls: the suite generates cases that fit them."""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from attnspec import reference
from attnspec.backends import Backend, BackendError, Unsupported, load, load_library
from attnspec.backends.check import check_backend
from attnspec.backends.constraints import ANY, Constraints, fits
from attnspec.backends.user.function import with_settings
from attnspec.backends.user.settings import Settings
from attnspec.conformance.cli.main import main
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import constraints_in, find, groups, items
from attnspec.conformance.suite.group import FITTED
from attnspec.conformance.suite.problem import Shape, fitted

DEEP = Constraints(axes=4, depths=(64,))
DEPTH = Constraints(depths=(64,))
TILED = Constraints(multiple=(1, 16), heads="equal")
EQUAL = Constraints(heads="equal")
CAUSAL = Constraints(always={"is_causal": True})


def kernel(query, key, value, *, scale=None, mask=None):
    """Four axes and a depth of 64 alone, as many key heads as query heads."""
    assert query.ndim == 4
    assert {array.shape[-1] for array in (query, key, value)} == {64}
    assert query.shape[1] == key.shape[1]
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


def always_causal(query, key, value, *, scale=None):
    return reference.attention(query, key, value, scale=scale, is_causal=True, dtype=query.dtype)


def constrained(function, constraints):
    backend = Backend("mine", load_library("numpy"), function, ("float32",), constraints=constraints)
    return with_settings("mine", backend, Settings())


def judged(backend, chapters):
    chosen = [item for item in items(constraints=backend.constraints) if item.chapter in chapters]
    return [judge(backend, item) for item in chosen if item.dtype == "float32"]


@pytest.mark.parametrize(
    ("function", "constraints", "least"),
    [(kernel, replace(DEEP, heads="equal"), 50), (always_causal, CAUSAL, 30)],
)
@pytest.mark.sample(1)
def test_a_kernel_with_constraints_is_judged_by_what_it_takes(function, constraints, least):
    verdicts = judged(constrained(function, constraints), ("scores", "heads"))
    assert {verdict.status for verdict in verdicts} == {"pass", "unsupported"}
    assert sum(verdict.status == "pass" for verdict in verdicts) > least
    assert any("takes only" in one.reason or "always applies" in one.reason for one in verdicts)


def test_a_fault_of_it_is_found():
    def wrong(query, key, value, *, scale=None, mask=None):
        return kernel(query, key, value, scale=0.1 if scale is None else scale, mask=mask)

    verdicts = judged(constrained(wrong, DEEP), ("scores",))
    assert "SCORE-2" in {verdict.rule for verdict in verdicts if verdict.bad}


@pytest.mark.parametrize("constraints", [DEEP, TILED, CAUSAL], ids=lambda one: one.suffix)
@pytest.mark.sample(1)
def test_most_generated_cases_fit_and_say_so_in_their_names(constraints):
    plain = {item.name: item for group in groups() for item in group.items()}
    fit = total = 0
    for group in groups():
        for item in group.items(None, constraints):
            cases = item.calls if isinstance(item, Relation) else (item,)
            if item.operation == "attention" and not getattr(item, "misuse", None):
                total += 1
                fit += not any(fits(constraints, case.arguments) for case in cases)
            if FITTED in item.id:
                assert item.id.endswith(FITTED + constraints.suffix)
                assert item.name.replace(FITTED + constraints.suffix, "") in plain
            else:  # the very case that everybody is asked
                own = plain[item.name]
                others = own.calls if isinstance(own, Relation) else (own,)
                assert [one.fingerprint for one in cases] == [one.fingerprint for one in others]
    assert fit / total > 0.8


def strict(query, key, value, *, scale=None, mask=None):
    """A depth of 64 alone: of any other it does not look at what else is wrong."""
    if query.shape[-1] != 64:
        raise ValueError("no such depth")
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


@pytest.mark.exhaustive
def test_calls_that_must_be_refused_are_drawn_to_fit_but_for_what_is_wrong():
    backend = constrained(strict, DEPTH)
    asked = ("refused: ", "named in the error: ", "mixed dtypes", "not floating point")
    chosen = [one for one in items(constraints=DEPTH) if one.group.startswith(asked)]
    found = [judge(backend, one) for one in chosen if one.dtype == "float32"]
    assert {verdict.status for verdict in found} == {"pass", "unsupported"}
    passing = {verdict.group for verdict in found if verdict.status == "pass"}
    assert {"refused: scale of NaN", "refused: mask of integers", "named in the error: attention"} <= passing
    assert "not floating point: int32 and key" in passing


@pytest.mark.exhaustive
def test_relations_that_hold_beside_any_option_are_asked_with_what_is_always_on():
    backend = constrained(always_causal, CAUSAL)
    chosen = [one for one in items(constraints=CAUSAL) if isinstance(one, Relation)]
    found = [judge(backend, one) for one in chosen if one.dtype == "float32"]
    assert {verdict.status for verdict in found} == {"pass", "unsupported"}
    passing = {verdict.group for verdict in found if verdict.status == "pass"}
    asked = {"call repeated: plain", "batch entry alone", "inputs beside: scale", "earlier calls: scale"}
    assert asked <= passing


def test_without_constraints_the_names_are_as_they_were():
    assert not any(FITTED in item.name for item in items(constraints=ANY))


def test_a_case_is_found_by_its_name_alone():
    name = next(item.name for item in items(constraints=DEEP) if item.name.startswith("masking-causal-3"))
    assert name == "masking-causal-3+a4-d64-float32"
    assert find(name).arguments["query"].shape[-1] == 64
    with pytest.raises(Exception, match=r"expected a suffix such as \+d64.128-s16"):
        find("masking-causal-3+x-float32")


@pytest.mark.parametrize("constraints", [DEEP, Constraints(depths=(8, 16), multiple=(4, 1)), CAUSAL])
def test_what_a_suffix_says_is_read_back(constraints):
    assert Constraints.of_suffix(constraints.suffix) == constraints
    for dtype in ("float32", "int32", "bool"):  # integers are in calls that must be refused
        assert constraints_in([f"errors-x-1{FITTED}{constraints.suffix}-{dtype}"]) == constraints


@pytest.mark.parametrize(
    ("constraints", "arguments", "reason"),
    [
        (ANY, {}, ""),
        (DEEP, {}, "takes only depths of 64, got 4"),
        (Constraints(axes=3), {"query": np.ones((1, 2, 3, 4))}, "takes only arrays of 3 axes, got 4"),
        (Constraints(depths=(4,)), {"value": np.ones((2, 5, 3))}, "takes only depths of 4, got 3"),
        (Constraints(multiple=(4, 1)), {}, "takes only multiples of 4 queries, got 3"),
        (Constraints(multiple=(1, 4)), {}, "takes only multiples of 4 keys, got 5"),
        (Constraints(multiple=(3, 5), depths=(4, 8)), {}, ""),
        (EQUAL, {"query": np.ones((4, 3, 4))}, "takes only as many key heads as query heads, got 2 for 4"),
        (CAUSAL, {}, "always applies is_causal = True, got False"),
        (CAUSAL, {"is_causal": True}, ""),
    ],
)
def test_what_does_not_fit(constraints, arguments, reason):
    call = {"query": np.ones((2, 3, 4)), "key": np.ones((2, 5, 4)), "value": np.ones((2, 5, 4))}
    assert fits(constraints, call | arguments) == reason


@pytest.mark.parametrize(
    ("shape", "constraints", "expected"),
    [
        (Shape((), 3, 5, 4, 4), DEEP, (3, 5, 64, 64)),
        (Shape((), 3, 5, 71, 4), Constraints(depths=(64, 128)), (3, 5, 128, 128)),
        (Shape((), 3, 5, 300, 4), Constraints(depths=(64, 128)), (3, 5, 128, 128)),
        (Shape((), 3, 5, 4, 4), Constraints(multiple=(16, 16)), (16, 32, 4, 4)),
        (Shape((), 5, 3, 4, 4), Constraints(multiple=(16, 16)), (32, 16, 4, 4)),
        (Shape((), 4, 4, 4, 4), Constraints(multiple=(16, 16)), (16, 16, 4, 4)),
        (Shape((), 0, 4, 4, 4), Constraints(multiple=(16, 16)), (0, 16, 4, 4)),
    ],
)
def test_a_shape_that_is_brought_to_fit(shape, constraints, expected):
    assert fitted(shape, constraints) == ((), *expected, 1)


def test_what_is_always_on_is_not_passed_and_a_call_without_it_is_declined():
    backend = constrained(always_causal, CAUSAL)
    assert backend.has("attention", "is_causal")
    x = np.ones((2, 3))
    assert np.array_equal(backend.attention(x, x, x, is_causal=True), x)
    with pytest.raises(Unsupported, match="always applies is_causal = True"):
        backend.attention(x, x, x)


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (Constraints(axes=2), "axes: expected 3 or 4, got 2"),
        (Constraints(depths=(0,)), "depths and multiple: expected positive integers"),
        (Constraints(heads="same"), "heads: expected grouped or equal, got 'same'"),
        (Constraints(always={"scale": 1.0}), "always: expected flags that are true"),
    ],
)
def test_constraints_that_say_nothing(constraints, message):
    with pytest.raises(BackendError, match=message):
        check_backend("mine", replace(load("numpy-portable"), constraints=constraints))


@pytest.mark.parametrize("backend", ["numpy", "torch-portable"])
def test_the_command_finds_a_case_by_the_constraints_in_its_name(backend):
    case = "errors-options-together-9+a4-float32"
    found = CliRunner().invoke(main, ["check", backend, "--case", case])
    assert found.exit_code == 0, found.output
    assert "1 pass" in " ".join(found.output.split())
