"""The NumPy reference agrees with the values of the exact oracle, and refuses invalid calls."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attnspec import OPERATIONS, cases, find_case, reference
from attnspec.backends import load
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_dtype, in_each
from attnspec.conformance.judge.judge import judge
from attnspec.reference import ArgumentError, attention, functions, projection, self_attention, softmax
from attnspec.reference.call import STEPS, step
from attnspec.reference.scores import factor as own_factor

PROVEN = [case for case in cases() if case.expected]


@pytest.mark.parametrize("case", PROVEN, ids=str)
def test_golden_vectors_within_a_float64_budget(case):
    wide = replace(case, arguments=in_dtype(case.arguments, "float64"))
    verdict = judge(load("numpy-portable"), wide)
    assert (verdict.status, verdict.accuracy) == ("pass", "full"), verdict


def test_the_stub_of_000_does_not_fit_its_own_matrices():
    arguments = find_case("projection-000-stub").arguments
    with pytest.raises(ArgumentError, match=r"^weight: expected shape \(F, 3\).*got \(3, 2\) \[PROJ-4\]$"):
        projection(**arguments)
    rows = {"tokens": arguments["tokens"].T, "weight": arguments["weight"]}
    assert np.allclose(projection(**rows), find_case("projection-000-query").expected["projected"])


def weights_with(case, **steps):
    """The weights of a case, in float64, by the reference with some of its steps replaced."""
    (wide,) = in_each(case, ("float64",))
    return functions(steps)["attention"](**wide.arguments, return_weights=True)[1]


def no_top(call, s, allowed):
    """No shift: over the whole matrix it would have to be one and the same."""
    return np.zeros((*s.shape[:-1], 1))


def sum_of_all(call, e, top):
    return np.full((*e.shape[:-1], 1), e.sum())


def test_variants_are_other_steps():
    case = find_case("masking-004-bias")
    weights = weights_with(case, total=sum_of_all, top=no_top)
    (other,) = case.alternatives
    assert np.allclose(weights, other.expected["weights"], rtol=0, atol=1e-15)
    assert abs(weights.sum() - 1) < 1e-15
    case = find_case("softmax-003")
    weights = weights_with(case, exponentials=scores_themselves)
    other = next(other for other in case.alternatives if other.variant == "sum")
    assert np.allclose(weights, other.expected["weights"], rtol=0, atol=1e-15)


def scores_themselves(call, s, allowed, top):
    return s


def test_nan_dtypes_masks_and_inputs_are_kept():
    weights = softmax(np.array([[np.nan, 0.0], [0.0, 0.0]]), np.ones((2, 2), dtype=bool))
    assert np.isnan(weights[0]).all()
    assert weights[1].tolist() == [0.5, 0.5]
    one = np.ones((2, 2), np.float32)
    assert attention(one, one, one).dtype == np.float64
    assert attention(one, one, one, dtype=np.float32).dtype == np.float32
    assert self_attention(one, one, one, one, dtype=np.float32).dtype == np.float32
    assert reference.allowed_keys((1, 2), bias=np.array([0.0, -np.inf])).tolist() == [[True, False]]
    with pytest.raises(TypeError, match="expected only arguments that mask, got scale"):
        reference.allowed_keys((1, 2), scale=1.0)
    arrays = [np.ones((3, 4)) for _ in range(3)]
    for array in arrays:
        array.flags.writeable = False
    attention(*arrays, bias=np.zeros(3), mask=np.array([True, False, True]), is_causal=True)


Q, K, V = np.ones((2, 3, 4)), np.ones((2, 5, 4)), np.ones((2, 5, 6))
#: The words of each kind of refusal. That each malformed call is refused by its rule, `test_malformed` shows.
MISUSES = [
    ({"query": Q.astype(int)}, "query: expected floating-point numbers, got int64"),
    ({"query": [[1.0], [1.0, 2.0]]}, "query: expected an array, got list"),
    ({"query": "words"}, "query: expected floating-point numbers, got <U5"),
    ({"query": np.ones((2, 3, 0))}, "query: expected a depth of 1 or more, got 0 [ERR-5]"),
    ({"key": K[..., :3]}, "key: expected depth 4 as in query, got 3 [SHAPE-6]"),
    ({"key": K[[0, 0, 1]]}, "key: expected a number of heads that divides the query's 2, got 3 [HEAD-2]"),
    ({"scale": "auto"}, "scale: expected a finite number, got 'auto' [ERR-6]"),
    ({"mask": np.zeros((3, 5))}, "mask: expected bool, got float64; an additive mask is a bias [ERR-4]"),
    ({"bias": np.ones((5, 3))}, "bias: expected a shape that broadcasts to (2, 3, 5), got (5, 3) [ERR-15]"),
]


@pytest.mark.parametrize(("change", "message"), MISUSES, ids=[message[:40] for _, message in MISUSES])
def test_attention_refuses(change, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        attention(**({"query": Q, "key": K, "value": V} | change))


def test_steps_have_one_name_and_may_be_loaded_again(monkeypatch):
    # The second would replace the first without notice, and the gallery would change the wrong one.
    known = STEPS["factor"]

    def factor(call):
        return 1.0

    with pytest.raises(ValueError, match=r"^step: .*'factor' for .*test_reference.*scores.py:factor has it$"):
        step(factor)
    assert STEPS["factor"] is known
    monkeypatch.setitem(STEPS, "factor", own_factor)  # restores it
    again = step(own_factor.__wrapped__)
    assert STEPS["factor"] is again is not own_factor


QUERY, KEY = np.array([[1.0], [-1.0], [2.0]]), np.array([[3.0], [-4.0], [0.5]])
VALUE = np.eye(3)


def test_the_maximum_is_the_last_result_of_a_call_that_asks_for_it():
    found = attention(QUERY, KEY, VALUE, return_lse=True, return_weights=True, return_max=True)
    assert [x.shape for x in found] == [(3, 3), (3,), (3, 3), (3,)]
    assert len(attention(QUERY, KEY, VALUE, return_lse=True)) == 2
    with pytest.raises(ArgumentError, match=r"^return_max: expected True or False, got 1 \[ERR-3\]"):
        attention(QUERY, KEY, VALUE, return_max=1)
    arguments = {"query": QUERY, "key": KEY, "value": VALUE}
    backend = load("numpy-portable")
    assert set(call(backend, "attention", arguments)) == {"output", "lse", "weights"}
    assert "max" in call(backend, "attention", arguments | {"return_max": True})
    assert "d_max" not in OPERATIONS["attention_vjp"].arguments
