"""The two oracles agree."""

import itertools

import numpy as np
import pytest

from attnspec import cases
from attnspec.conformance.suite.datasets import DATASETS, problem
from attnspec.reference.exact import evaluate as exact
from attnspec.reference.rational import evaluate as rational

PROVEN = [case for case in cases() if case.expected]


def agree(one, other):
    """To the last bit, but for what the second oracle's 60 digits leave of an exact 0."""
    return np.array_equal(np.where(np.abs(one) < 1e-50, 0, one), np.where(np.abs(other) < 1e-50, 0, other))


@pytest.mark.parametrize("case", PROVEN, ids=str)
@pytest.mark.sample(150)
def test_the_second_oracle_agrees_on_every_vector(case):
    values = rational.evaluate(case.operation, case.arguments)
    for name, expected in case.expected.items():
        shown = ~np.isnan(expected)
        if name == "weights":  # of a row that is NaN they are not specified (NUM-11)
            shown &= ~np.isnan(case.expected["lse"])[..., None]
        else:
            assert np.array_equal(np.isnan(values[name]), ~shown)
        assert agree(values[name][shown], expected[shown])


@pytest.mark.parametrize("case", [case for case in PROVEN if case.alternatives], ids=str)
def test_the_second_oracle_agrees_on_every_variant(case):
    for other in case.alternatives:
        if other.rule == "SOFT-1":  # variants that no backend declares
            continue
        values = rational.evaluate(case.operation, case.arguments, {other.rule: other.variant})
        for name, expected in other.expected.items():
            shown = ~np.isnan(expected)
            assert np.array_equal(np.isnan(values[name]), ~shown)
            assert agree(values[name][shown], expected[shown])


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_the_oracles_agree_on_generated_problems(dataset, dtype):
    arguments = problem(dataset, (3, 7, 4), dtype, 5).arguments
    one, other = exact.evaluate("attention", arguments), rational.evaluate("attention", arguments)
    for name in ("output", "weights"):
        assert agree(one[name].values, other[name])


def every_option(random, batch=(2,), heads=4):
    """Each argument of attention that has an effect, by a name for the test."""
    full = (*batch, heads, 3, 5)
    segments = {"query_segment_ids": (*batch, 3), "key_segment_ids": (*batch, 5)}
    bias = random.normal(size=full)
    bias[..., 1, :4] = -np.inf
    return {
        "scale": {"scale": -0.3},
        "softcap": {"softcap": 0.75},
        "bias": {"bias": bias},
        "mask": {"mask": random.random(full[-2:]) < 0.7},
        "causal": {"is_causal": True, "query_offset": random.integers(-1, 3, size=batch)},
        "window": {"window": (1, 0), "query_offset": 1},
        "lengths": {"query_lengths": 2, "key_lengths": random.integers(0, 6, size=batch)},
        "segments": {name: random.integers(-1, 1, size=shape) for name, shape in segments.items()},
        "sinks": {"sinks": random.normal(size=heads)},
        "dropout": {"dropout_mask": random.random(full) < 0.5, "dropout_rate": 0.25},
    }


def problem_of(random, batch=(2,), heads=4):
    sizes = {"query": (heads, 3, 3), "key": (2, 5, 3), "value": (2, 5, 2)}
    return {name: random.normal(size=(*batch, *size)) for name, size in sizes.items()}


def same_values(one, other):
    assert set(one) <= set(other)  # the second oracle gives scores too
    return all(
        np.array_equal(np.isnan(one[name].values), np.isnan(other[name]))
        and agree(np.nan_to_num(one[name].values), np.nan_to_num(other[name]))
        for name in one
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_oracles_agree_on_every_pair_of_arguments(seed):
    random = np.random.default_rng(seed)
    arrays, options = problem_of(random), every_option(random)
    for one, other in itertools.combinations(options, 2):
        # The offsets of causal and window are one argument: the later one stands for both.
        arguments = arrays | options[one] | options[other]
        assert same_values(
            exact.evaluate("attention", arguments), rational.evaluate("attention", arguments)
        ), f"{one} and {other}"


@pytest.mark.parametrize("batch", [(), (1, 2)])
def test_the_oracles_agree_with_every_argument_at_once(batch):
    random = np.random.default_rng(8)
    arguments = problem_of(random, batch)
    for options in every_option(random, batch).values():
        arguments |= options
    other = np.broadcast_to(np.arange(5) == 3, (*batch, 5)).astype(int)
    arguments |= {"window": (4, 3), "key_lengths": 5, "query_offset": 1}
    arguments |= {"query_segment_ids": np.zeros((*batch, 3), int), "key_segment_ids": other}
    arguments["mask"] = random.random((3, 5)) < 0.8
    found = exact.evaluate("attention", arguments)
    assert (found["weights"].values > 0).any()
    assert same_values(found, rational.evaluate("attention", arguments))


@pytest.mark.parametrize(
    ("rule", "variant", "options"),
    [
        ("SCORE-2", "one", {}),
        ("SCORE-2", "one", {"softcap": 0.5}),
        ("SCORE-5", "after-bias", {"softcap": 0.5, "bias": np.array([1.0, -2.0, 0.5, 0.0, -np.inf])}),
        ("MASK-2", "added", {"bias": np.full((3, 5), -np.inf)}),
        ("MASK-3", "bottom-right", {"is_causal": True}),
        ("MASK-6", "nan", {"key_lengths": 0}),
        ("MASK-6", "uniform", {"key_lengths": 0}),
        ("MASK-6", "uniform", {"window": (0, 0), "query_lengths": 1, "query_offset": 5}),
        ("MASK-6", "uniform", {"key_lengths": 0, "dropout_mask": np.eye(3, 5) == 1, "dropout_rate": 0.25}),
        ("MASK-8", "exclusive-left", {"window": (1, None)}),
        ("SOFT-6", "base-2", {}),
        ("SOFT-7", "plus-infinity", {"key_lengths": 0}),
        ("HEAD-1", "tiled", {}),
    ],
)
def test_the_oracles_agree_on_variants(rule, variant, options):
    arguments = problem_of(np.random.default_rng(3)) | options
    found = exact.evaluate("attention", arguments, variant)
    assert not same_values(found, rational.evaluate("attention", arguments))
    assert same_values(found, rational.evaluate("attention", arguments, {rule: variant}))


@pytest.mark.parametrize("variant", ["nan", "uniform"])
def test_without_keys_the_variants_of_an_empty_row_are_zero(variant):
    arguments = {"query": np.ones((2, 1)), "key": np.ones((0, 1)), "value": np.ones((0, 1))}
    for found in (
        exact.evaluate("attention", arguments, variant),
        rational.evaluate("attention", arguments, {"MASK-6": variant}),
    ):
        assert np.array_equal(np.asarray(getattr(found["output"], "values", found["output"])), [[0.0], [0.0]])


@pytest.mark.parametrize("rule", [{}, {"MASK-6": "uniform"}])
def test_dropout_applies_to_the_weights_of_an_empty_row(rule):
    """The variant `uniform` is about the softmax, and a dropped weight is 0 after it (MASK-6, DROP-1)."""
    arguments = {
        "query": np.ones((1, 1)),
        "key": np.ones((4, 1)),
        "value": np.array([[1.0], [2.0], [4.0], [8.0]]),
    }
    arguments |= {"mask": np.zeros((1, 4), bool), "dropout_rate": 0.5}
    arguments["dropout_mask"] = np.array([[True, False, True, False]])
    weights, output = ([[0.5, 0.0, 0.5, 0.0]], [[2.5]]) if rule else (np.zeros((1, 4)), [[0.0]])
    one = exact.evaluate("attention", arguments, *rule.values())
    other = rational.evaluate("attention", arguments, rule)
    for found in ({name: each.values for name, each in one.items()}, other):
        assert np.array_equal(found["weights"], weights)
        assert np.array_equal(found["output"], output)


def test_minus_infinity_added_where_others_fill():
    """The fill is above minus infinity: the row is the mean over what the mask disallows, 5 and 7."""
    arguments = {"query": np.zeros((1, 1)), "key": np.zeros((3, 1)), "value": np.array([[1.0], [5.0], [7.0]])}
    arguments |= {"mask": np.array([True, False, False]), "bias": np.array([-np.inf, 0.0, 0.0])}
    found = rational.evaluate("attention", arguments, {"MASK-2": "added", "MASK-6": "uniform"})
    assert found["output"].tolist() == [[6.0]]
    assert found["weights"].tolist() == [[0.0, 0.5, 0.5]]
    assert found["lse"].tolist() == [-np.inf]
    assert np.isnan(rational.evaluate("attention", arguments, {"MASK-2": "added"})["output"]).all()


@pytest.mark.parametrize("place", ["query", "key", "value", "bias"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_the_oracles_agree_on_what_is_not_finite(place, number):
    random = np.random.default_rng(4)
    arguments = problem_of(random) | {"bias": random.normal(size=(2, 4, 3, 5)), "is_causal": True}
    arguments[place][1, 1, 2, 1] = number
    one, other = exact.evaluate("attention", arguments), rational.evaluate("attention", arguments)
    for name in ("output", "lse"):
        assert np.array_equal(np.isnan(one[name].values), np.isnan(other[name]))
        assert agree(np.nan_to_num(one[name].values), np.nan_to_num(other[name]))
    assert not np.isnan(other["output"][0]).any()
