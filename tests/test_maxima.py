"""The maximum of each row: its values by hand, its budget, and what asks for it."""

import numpy as np
import pytest

from attnspec import OPERATIONS
from attnspec.backends import load
from attnspec.conformance.judge.call import call
from attnspec.reference import ArgumentError, attention
from attnspec.reference.budget.budget import budget

QUERY, KEY = np.array([[1.0], [-1.0], [2.0]]), np.array([[3.0], [-4.0], [0.5]])
VALUE = np.eye(3)


def maximum(**options):
    return attention(QUERY, KEY, VALUE, return_max=True, **options)[-1].tolist()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scale": 1.0}, [3.0, 4.0, 6.0]),
        ({"scale": -2.0}, [8.0, 6.0, 16.0]),
        ({"scale": 1.0, "bias": np.array([-1.0, 0.0, 10.0])}, [10.5, 9.5, 11.0]),
        ({"scale": 1.0, "mask": np.array([False, False, True])}, [0.5, -0.5, 1.0]),
        ({"scale": 1.0, "is_causal": True}, [3.0, 4.0, 6.0]),
        ({"scale": 1.0, "query_lengths": 1}, [3.0, -np.inf, -np.inf]),
        ({"scale": 1.0, "sinks": np.array([100.0])}, [3.0, 4.0, 6.0]),
        ({"scale": 1.0, "sinks": np.array([100.0]), "key_lengths": 0}, [-np.inf] * 3),
    ],
)
def test_the_maximum_by_hand(options, expected):
    assert maximum(**options) == expected


def test_the_maximum_is_the_last_result():
    found = attention(QUERY, KEY, VALUE, return_lse=True, return_weights=True, return_max=True)
    assert [x.shape for x in found] == [(3, 3), (3,), (3, 3), (3,)]
    assert len(attention(QUERY, KEY, VALUE, return_lse=True)) == 2


def test_a_flag_is_true_or_false():
    with pytest.raises(ArgumentError, match=r"^return_max: expected True or False, got 1 \[ERR-3\]"):
        attention(QUERY, KEY, VALUE, return_max=1)


def test_only_a_call_that_is_about_it_asks_for_it():
    arguments = {"query": QUERY, "key": KEY, "value": VALUE}
    backend = load("numpy-portable")
    assert set(call(backend, "attention", arguments)) == {"output", "lse", "weights"}
    assert "max" in call(backend, "attention", arguments | {"return_max": True})
    assert "d_max" not in OPERATIONS["attention_vjp"].arguments


def test_the_budget_is_that_of_a_score_that_may_be_the_largest():
    arguments = {"query": QUERY, "key": KEY, "value": VALUE, "return_max": True, "scale": 1.0}
    allowed = budget("attention", arguments, "float32")["max"]
    one = budget("scores", {"query": QUERY, "key": KEY, "scale": 1.0}, "float32")["scores"]
    assert (allowed >= one[[0, 1, 2], [0, 1, 0]]).all()
    assert (allowed < 3 * one.max(axis=-1)).all()
    nothing = budget("attention", arguments | {"key_lengths": 0}, "float32")["max"]
    assert nothing.tolist() == [0.0] * 3
