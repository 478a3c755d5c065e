"""The two oracles agree on gradients with every option and every variant."""

import numpy as np
import pytest
from gradient_problems import both, drawn, numbers, plain

from attnspec import OPERATIONS, Case
from attnspec.conformance.run.expected_values import values_of
from attnspec.conformance.suite.datasets import DATASETS, problem
from attnspec.reference.exact.balls import OracleError
from attnspec.reference.exact.evaluate import evaluate as exact
from attnspec.reference.rational.evaluate import evaluate as rational

VJP = OPERATIONS["attention_vjp"]

#: Variants that change gradients, and what shows them beside arrays.
VARIANTS = {
    ("SCORE-2", "one"): {},
    ("SCORE-5", "after-bias"): {"softcap": 0.5, "bias": np.array([[0.5], [-1.0], [2.0]])},
    ("MASK-3", "bottom-right"): {"is_causal": True},
    ("MASK-8", "exclusive-left"): {"window": (1, None)},
    ("SOFT-6", "base-2"): {},
    ("HEAD-1", "tiled"): {},
    ("GRAD-6", "ignored"): {},
    ("GRAD-10", "nan"): {"mask": np.array([[False], [True], [True]]), "bias": np.zeros(5)},
    ("GRAD-10", "uniform"): {"query_offset": -1, "is_causal": True, "query_lengths": 2},
}


@pytest.mark.parametrize("seed", range(60))
def test_the_oracles_agree(seed):
    call = drawn(seed)
    both(call)
    for rule, variant in VARIANTS:
        both(call, rule, variant)


def test_the_drawn_calls_have_every_option_and_every_pair_of_them():
    calls = [set(drawn(seed)) for seed in range(60)]
    assert set.union(*calls) == {*VJP.arrays, *VJP.options}
    options = sorted(set(VJP.options))
    apart = {"query_offset", "query_positions"}  # the one excludes the other
    pairs = [{one, other} for one in options for other in options if {one, other} != apart]
    assert all(any(pair <= call for call in calls) for pair in pairs)
    assert any((drawn(seed).get("bias") == -np.inf).any() for seed in range(60) if "bias" in drawn(seed))
    assert {np.ndim(drawn(seed)["query"]) for seed in range(60)} == {2, 3, 4, 5}


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_oracles_agree_on_the_data_sets(dataset, dtype):
    call = problem(dataset, (7, 16, 16), dtype, 5).arguments
    random = np.random.default_rng(6)
    cotangents = {
        "d_output": random.normal(size=(7, call["value"].shape[-1])),
        "d_lse": random.normal(size=7),
    }
    both(call | cotangents)


@pytest.mark.parametrize(("rule", "variant"), VARIANTS)
def test_variants_change_gradients(rule, variant):
    call = plain(**VARIANTS[rule, variant])
    if variant == "uniform":  # a row with a sink is not empty for it
        del call["sinks"]
    before, after = both(call), both(call, rule, variant)
    assert any(not np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("rule", "variant"), [("MASK-2", "added"), ("MASK-6", "nan"), ("MASK-6", "uniform"), ("SOFT-7", "finite")]
)
def test_variants_of_what_stands_in_an_empty_row_change_nothing(rule, variant):
    call = plain(bias=np.array([[-np.inf], [0.0], [1.0]]))
    del call["sinks"]
    found = rational("attention_vjp", call, {rule: variant})
    assert all(np.array_equal(found[name], x) for name, x in rational("attention_vjp", call).items())


def test_what_is_nan_in_the_variant_of_an_empty_row():
    mask = np.ones((2, 4, 3, 5), bool)
    mask[0, 1, 2] = False
    found = both(plain(mask=mask, bias=np.zeros((2, 4, 3, 1))), "GRAD-10", "nan")
    where = {name: {tuple(place) for place in np.argwhere(np.isnan(x)).tolist()} for name, x in found.items()}
    assert {place[:3] for place in where["d_query"]} == {(0, 1, 2)}
    assert {place[:2] for place in where["d_key"]} == {place[:2] for place in where["d_value"]} == {(0, 0)}
    assert [len(where[name]) for name in ("d_query", "d_key", "d_value")] == [3, 15, 10]
    assert where["d_bias"] == {(0, 1, 2, 0)}
    assert where["d_sinks"] == {(1,)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_rounded_once(dtype):
    once = numbers(exact("attention_vjp", plain(), dtype=dtype))
    assert all(np.array_equal(x, x.astype(dtype).astype(float)) for x in once.values())


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_no_query_attends_to_does_not_matter(number):
    call = plain(bias=np.zeros((2, 4, 3, 5)), key_lengths=4, query_lengths=2)
    dirty = {name: call[name].copy() for name in ("query", "key", "value", "bias")}
    dirty["query"][:, :, 2] = dirty["key"][:, :, 4] = dirty["value"][:, :, 4] = number
    dirty["bias"][..., 4] = dirty["bias"][..., 2, :] = number
    clean = both(call)
    assert all(np.array_equal(x, clean[name]) for name, x in both(call | dirty).items())


@pytest.mark.parametrize("name", ["query", "key", "value", "bias", "d_output", "d_lse", "sinks"])
def test_what_is_not_finite_has_no_value(name):
    call = plain(bias=np.zeros((2, 4, 3, 5)))
    call[name].flat[0] = np.nan
    with pytest.raises(OracleError, match="expected finite numbers"):
        exact("attention_vjp", call)
    with pytest.raises(ValueError, match="expected finite numbers"):
        rational("attention_vjp", call)


def test_the_stored_values_of_a_case():
    case = Case("one", "One.", "gradients", "attention_vjp", ("GRAD-1",), plain(bias=np.zeros((3, 1))))
    values = values_of(case)
    assert list(values) == ["d_query", "d_key", "d_value", "d_bias", "d_sinks"]
    assert all(np.array_equal(x, values[name]) for name, x in both(case.arguments).items())
