"""Approximate values judge large calls as the exact ones do, and never fail one."""

from dataclasses import replace

import numpy as np
import pytest
from tests_support import own_case

from attnspec.backends.user.function import describe
from attnspec.conformance.judge import approximate, judge
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.reference import attention, attention_vjp
from attnspec.reference.functions import function

_FUNCTIONS = {"attention": attention, "attention_vjp": attention_vjp}
_NAMES = {"attention": ("output",), "attention_vjp": ("d_query", "d_key", "d_value")}


def case_of(operation, dtype="float32", **more):
    random = np.random.default_rng(0)
    names = ["query", "key", "value", *(("d_output",) if operation == "attention_vjp" else ())]
    call = {own: random.standard_normal((1, 1, 40, 4)).astype(dtype) for own in names} | more
    return own_case("SOFT-2", call, operation)


def backend_of(name="own"):
    return replace(describe(attention), name=name)


@pytest.fixture
def exact_calls(monkeypatch):
    calls, exactly = [], judge.values_in_dialect
    monkeypatch.setattr(judge, "values_in_dialect", lambda *given: calls.append(given) or exactly(*given))
    return calls


@pytest.mark.parametrize(
    ("share", "doubt", "status", "exact"),
    [(0, 0, "pass", 0), (0.8, 0, "pass", 0), (0.8, 0.5, "pass", 1), (0, 2, "pass", 1), (1.2, 0, "fail", 1)],
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


RANDOM = np.random.default_rng(1)
STARTS = {"query_starts": np.array([0, 30, 40]), "key_starts": np.array([0, 35, 60])}


def aligned_call(operation, queries=40, keys=60, **options):
    """A call and its results where the last query is at the last key."""
    heads = () if operation.startswith("packed") else (1,)
    shapes = {"query": queries, "key": keys, "value": keys}
    shapes |= {"d_output": queries} if operation.endswith("_vjp") else {}
    call = {name: RANDOM.standard_normal((*heads, 1, n, 4)).astype("float32") for name, n in shapes.items()}
    offset = keys - queries
    if operation.startswith("packed"):
        call, offset = call | STARTS, np.diff(STARTS["key_starts"]) - np.diff(STARTS["query_starts"])
    offset = options.get("query_offset") or offset
    results = function(operation)(**in_dtype(call | options, "float64") | {"query_offset": offset})
    names = _NAMES[operation.removeprefix("packed_")]
    results = dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))
    case = own_case("MASK-3", call | options, operation)
    return case, {name: x.astype("float32") for name, x in results.items()}


@pytest.mark.parametrize(
    ("operation", "options", "status", "exact"),
    [
        ("attention", {"is_causal": True}, "deviation", 0),
        ("attention", {"window": (5, 0)}, "deviation", 0),
        ("attention", {}, "pass", 0),  # nothing depends on the alignment
        ("attention", {"is_causal": True, "queries": 60}, "pass", 0),
        ("attention", {"is_causal": True, "query_offset": 3}, "pass", 0),
        ("attention_vjp", {"is_causal": True}, "deviation", 0),
        ("packed_attention", {"is_causal": True}, "deviation", 0),
        ("packed_attention", {}, "pass", 0),
    ],
)
def test_an_alignment_with_the_last_key_is_judged_by_approximate_values(
    operation, options, status, exact, exact_calls, monkeypatch
):
    case, outputs = aligned_call(operation, **options)
    backend = replace(
        describe(function(operation), operation=operation),
        name="own",
        dialect={"MASK-3": "bottom-right", "PACK-5": "bottom-right"},
    )
    verdict = judge.judge_outputs(backend, case, outputs)
    assert (verdict.status, len(exact_calls)) == (status, exact)
    monkeypatch.setattr(judge, "approximate_values", lambda *_: None)
    exactly = judge.judge_outputs(backend, case, outputs)
    assert (exactly.status, exactly.main_rule, exactly.variant) == (
        verdict.status,
        verdict.main_rule,
        verdict.variant,
    )


@pytest.mark.parametrize("dialect", [{"MASK-6": "nan"}, {"MASK-3": "bottom-right", "MASK-6": "nan"}, {}])
def test_another_variant_and_another_alignment_are_judged_by_exact_values(dialect, exact_calls):
    case, outputs = aligned_call("attention", is_causal=True)
    backend = replace(backend_of(), dialect=dialect)
    verdict = judge.judge_outputs(backend, case, outputs)
    assert (verdict.status, len(exact_calls)) == ("deviation" if len(dialect) == 2 else "fail", 1)


def test_exact_values_say_whether_a_variant_shows_where_approximate_ones_are_in_doubt(
    exact_calls, monkeypatch
):
    """The values are nearly alike, so that the alignment moves a result by two budgets."""
    case, _ = aligned_call("attention", is_causal=True)
    backend = replace(backend_of(), dialect={"MASK-3": "bottom-right"})
    value = case.arguments["value"].astype("float64")

    def judged(size, doubt):
        call = case.arguments | {"value": (1 + size * value).astype("float32")}
        own = replace(case, arguments=call)
        budgets = budgets_of(backend, own)
        monkeypatch.setattr(
            approximate, "budget", lambda *_: {name: doubt * x for name, x in budgets.items()}
        )
        wide = in_dtype(call, "float64")
        output, other = (attention(**wide, query_offset=offset) for offset in (20, 0))
        moved = (abs(output - other) / budgets["output"]).max()
        return moved, judge.judge_outputs(backend, own, {"output": output.astype("float32")})

    size = 2 * 1e-3 / judged(1e-3, 0)[0]
    exact_calls.clear()
    moved, verdict = judged(size, 0)
    assert 1.5 < moved < 2.5
    assert len(exact_calls) == 0
    assert judged(size, 0.5)[1].status == verdict.status
    assert len(exact_calls) == 1
