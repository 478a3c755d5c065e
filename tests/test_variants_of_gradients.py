"""Declared variants of gradients, alone and in pairs, by steps of the reference that are replaced."""

from itertools import combinations

import numpy as np
import pytest
from plain import plain

from attnspec.backends import Backend, load_library
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups
from attnspec.reference.budget.budget import budget
from attnspec.reference.rational.evaluate import evaluate

#: One variant of each step: scores, causality, heads, empty rows.
STEPS = [("SCORE-5", "after-bias"), ("MASK-3", "bottom-right"), ("HEAD-1", "tiled"), ("GRAD-10", "uniform")]
PAIRS = [(("SCORE-5", "after-bias"), ("MASK-2", "added")), *combinations(STEPS, 2)]
CAPPED = {"SCORE-5": "after-bias", "MASK-2": "added"}
BOTH = "gradients with options in pairs: softcap and bias"


def cases():
    """Return the first case of each group about gradients in float64."""
    found = (
        next((item for item in group.items() if item.dtype == "float64"), None)
        for group in groups()
        if group.operation == "attention_vjp"
    )
    return [one for one in found if hasattr(one, "arguments") and one.misuse is None]


CASES = cases()


def verdicts(variants, dialect, items):
    """Judge gradients with the steps of some variants under a dialect."""
    options = {
        "companions": {"attention_vjp": plain(*variants, operation="attention_vjp")},
        "dialect": dialect,
    }
    backend = Backend("mine", load_library("numpy"), plain(), ("float32", "float64"), **options)
    return [judge(backend, item) for item in items]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(map(" ".join, pair)))
def test_two_declared_variants_are_judged_together(pair):
    found = verdicts([variant for _, variant in pair], dict(pair), CASES)
    assert [verdict for verdict in found if verdict.bad] == []
    assert sum(verdict.status != "unsupported" for verdict in found) > 20


@pytest.mark.parametrize("variants", [[], ["added"], ["after-bias"]], ids=str)
def test_a_gradient_that_lacks_one_of_two_declared_variants_fails(variants):
    items = [item for group in groups() if group.name == BOTH for item in group.items()]
    items = [item for item in items if (item.arguments["bias"] == -np.inf).any()]
    assert {verdict.status for verdict in verdicts(["added", "after-bias"], CAPPED, items)} == {"deviation"}
    assert all(verdict.bad for verdict in verdicts(variants, CAPPED, items))


def problem():
    random = np.random.default_rng(5)
    shapes = {"query": (3, 4), "key": (5, 4), "value": (5, 2), "d_output": (3, 2), "bias": (3, 5)}
    call = {name: random.normal(size=shape) for name, shape in shapes.items()}
    call["bias"][0, 1] = call["bias"][2] = -np.inf
    return call | {"softcap": 1.5, "d_lse": random.normal(size=3)}


def test_minus_infinity_in_a_cap_has_the_gradients_of_central_differences():
    call, step = problem(), 1e-5

    def loss(arrays):
        inner = arrays["query"] @ arrays["key"].T / 2 + arrays["bias"]
        e = np.exp(1.5 * np.tanh(inner / 1.5))
        total = e.sum(axis=-1)
        output = (e / total[:, None]) @ arrays["value"]
        return (output * call["d_output"]).sum() + (np.log(total) * call["d_lse"]).sum()

    found = evaluate("attention_vjp", call, CAPPED)
    for name in ("query", "key", "value", "bias"):
        for place in np.ndindex(call[name].shape):
            sides = []
            for sign in (1, -1):
                moved = call[name].copy()
                moved[place] += sign * step
                sides.append(loss(call | {name: moved}))
            slope = (sides[0] - sides[1]) / (2 * step)
            assert abs(found[f"d_{name}"][place] - slope) < 1e-8, (name, place)
    # Deleted keys have other gradients.
    deleted = evaluate("attention_vjp", call, {"SCORE-5": "after-bias"})
    assert np.abs(deleted["d_value"] - found["d_value"]).max() > 0.01


def test_budgets_have_the_slope_of_the_cap_at_the_sum_with_the_bias():
    call = problem()
    call["bias"] = np.where(np.isneginf(call["bias"]), 0.0, call["bias"])
    call["bias"][1] = 60.0  # the cap is flat there
    options = {"capped_bias": True, "capped_infinity": True}
    flat, steep = (budget("attention_vjp", call, "bfloat16", **words) for words in (options, {}))
    assert np.abs(evaluate("attention_vjp", call, CAPPED)["d_bias"][1]).max() < 1e-15
    for name in ("d_query", "d_bias"):
        assert flat[name][1].max() < 0.01 * steep[name][1].max()
        assert flat[name][0].max() > 0.01 * steep[name][0].max()


def test_budgets_of_minus_infinity_in_a_cap_are_those_of_any_number_far_below():
    call, options = problem(), {"capped_bias": True, "capped_infinity": True}
    far = call | {"bias": np.maximum(call["bias"], -1e4)}
    one, other = (budget("attention_vjp", x, "float32", **options) for x in (call, far))
    assert all(np.isfinite(x).all() for x in one.values())
    assert all(np.allclose(one[name], other[name], rtol=0.1, atol=1e-12) for name in one)
