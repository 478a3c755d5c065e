"""The stored outlines of the suite, and the verdicts that are made from them alone."""

from dataclasses import replace

import numpy as np
import pytest

from attnspec import OPERATIONS, reference
from attnspec.backends import load
from attnspec.backends.constraints import Constraints
from attnspec.backends.user.function import describe
from attnspec.conformance import items
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.run.cases import Cases
from attnspec.conformance.run.child import with_traits
from attnspec.conformance.run.events import offer_of
from attnspec.conformance.run.index import outline_of, write
from attnspec.conformance.run.plan import PATH, Selection, index, plan_of

WIDE = {"float32", "float64"}
#: Some cases of every chapter, and of every operation.
SOME = index()[::35]


@pytest.fixture(scope="module")
def cases():
    return Cases()


def test_outlines_are_those_of_the_cases(cases):
    for outline in SOME:
        assert replace(outline, quick=0) == outline_of(cases.find(outline.name, outline.group))


@pytest.mark.parametrize("quick", [True, False])
def test_the_plan_is_the_suite_in_its_order(quick):
    assert [case.name for case in plan_of(Selection(quick))] == [case.name for case in items(quick=quick)]


def test_the_smallest_calls_are_few_small_and_quick_and_touch_what_single_calls_can():
    plan = plan_of(Selection(quick=True, smoke=True))
    quick = plan_of(Selection(quick=True))
    assert len(plan) < len(quick) / 3
    assert {*plan} <= {*quick}
    assert max(outline.numbers for outline in plan) <= 1000
    assert {outline.dtype for outline in plan} == WIDE
    touched = {rule for outline in plan for rule in outline.rules}
    of_single = {rule for outline in quick if not outline.related for rule in outline.rules}
    assert len(of_single - touched) < 6
    small = [outline for outline in quick if outline.numbers <= 1000 and outline.dtype in WIDE]
    assert {call.operation for outline in plan for call in outline.calls} >= {
        call.operation for outline in small for call in outline.calls if not call.operation.endswith("_vjp")
    }
    assert {name for name, form in OPERATIONS.items() if not form.stacked} <= {
        call.operation for outline in small for call in outline.calls
    }


def test_the_smallest_calls_fit_constraints_too():
    constraints = Constraints(depths=(64,))
    selection = Selection(quick=True, smoke=True, rules=("MASK-6",), fits=constraints.suffix)
    names = [case.name for case in Cases().plan(selection, constraints)]
    assert any("+d64" in name for name in names)
    every = [case.name for case in Cases().plan(replace(selection, smoke=False), constraints)]
    assert 0 < len(names) < len(every)


@pytest.mark.exhaustive
def test_the_index_would_not_change():
    """It is rewritten by ``attnspec vectors expected``."""
    assert not write(PATH, only_check=True)


def plain(query, key, value, *, scale=None, mask=None):
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


def scaled(query, key, value, *, is_causal=False, return_lse=False):
    options = {"is_causal": is_causal, "return_lse": return_lse}
    return reference.attention(query, key, value, dtype=query.dtype, **options)


BACKENDS = {
    "few arguments": lambda: describe(plain),
    "an lse, in one dtype": lambda: describe(scaled, dtypes=["float32"]),
    "without a default": lambda: replace(describe(plain), given=("scale",)),
    "constrained": lambda: describe(plain, depths=[64]),
    "no companions": lambda: replace(load("numpy-portable"), companions={}),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_what_is_not_offered_has_the_verdict_of_the_judge(name, cases):
    backend = BACKENDS[name]()
    offer = offer_of(backend)
    number = 0
    for outline in SOME:
        verdict = offer.verdict(outline)
        if verdict is not None:
            number += 1
            with np.errstate(all="ignore"):
                case = cases.find(outline.name, outline.group)
                judged = with_traits(judge(backend, case), case)
            assert verdict == replace(judged, refusal=outline.refusal)
    assert number > len(SOME) / 4
