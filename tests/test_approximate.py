"""Approximate values judge large calls as the exact ones do, and never fail one."""

from dataclasses import replace

import numpy as np
import pytest

from attnspec import Case
from attnspec.backends.user.function import describe
from attnspec.conformance.judge import approximate, judge
from attnspec.conformance.judge.budget import budgets_of
from attnspec.reference import attention, attention_vjp

_FUNCTIONS = {"attention": attention, "attention_vjp": attention_vjp}
_NAMES = {"attention": ("output",), "attention_vjp": ("d_query", "d_key", "d_value")}


def case_of(operation, dtype="float32", **more):
    random = np.random.default_rng(0)
    names = ["query", "key", "value", *(("d_output",) if operation == "attention_vjp" else ())]
    call = {own: random.standard_normal((1, 1, 40, 4)).astype(dtype) for own in names} | more
    return Case("own-1", "", "softmax", operation, ("SOFT-2",), call, group="own")


def backend_of(name="own"):
    return replace(describe(attention), name=name)


@pytest.fixture
def exact_calls(monkeypatch):
    calls, exactly = [], judge.values_in_dialect
    monkeypatch.setattr(judge, "values_in_dialect", lambda *given: calls.append(given) or exactly(*given))
    return calls


@pytest.mark.parametrize(
    ("share", "doubt", "status", "exact"),
    [(0, 0, "pass", 0), (0.8, 0, "pass", 0), (0.8, 0.5, "pass", 1), (1.2, 0, "fail", 1)],
)
@pytest.mark.parametrize("operation", _FUNCTIONS)
def test_exact_values_are_made_where_approximate_ones_are_in_doubt(
    operation, share, doubt, status, exact, exact_calls, monkeypatch
):
    case, backend = case_of(operation), backend_of()
    budgets = budgets_of(backend, case)
    if doubt:
        errors = {name: doubt * array for name, array in budgets.items()}
        monkeypatch.setattr(approximate, "budget", lambda *_: errors)
    results = _FUNCTIONS[operation](**{name: x.astype("float64") for name, x in case.arguments.items()})
    results = dict(zip(_NAMES[operation], results if isinstance(results, tuple) else (results,), strict=True))
    outputs = {name: (x + share * budgets[name]).astype("float32") for name, x in results.items()}
    verdict = judge.judge_outputs(backend, case, outputs)
    assert (verdict.status, len(exact_calls)) == (status, exact)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (case_of("attention"), "numpy-portable?dtype=float32"),  # which has the source of the reference
        (case_of("attention"), "torch-sdpa"),  # whose companions have it
        (case_of("attention", "float64"), "own"),  # the reference has errors of the same size
        (case_of("attention", bias=np.full((40, 1), -np.inf, "float32")), "own"),  # nothing is moderate
    ],
)
def test_exact_values_decide(case, name, exact_calls):
    dtype = case.arguments["query"].dtype
    output, lse = attention(**case.arguments, return_lse=True, dtype=dtype)
    outputs = {"output": output, "lse": lse}
    verdict = judge.judge_outputs(backend_of(name), replace(case, outputs=("output", "lse")), outputs)
    assert (verdict.status, len(exact_calls)) == ("pass", 1)
