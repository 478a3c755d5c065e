"""The two oracles agree."""

import itertools

import numpy as np
import pytest

from attnspec import cases, reference
from attnspec.conformance.suite.datasets import DATASETS, problem
from attnspec.reference.budget.budget import budget
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


def packed(random, **cotangents):
    """Sequences of 2, 0, 3 queries and of 3, 2, 0 keys, and rows past the last."""
    shapes = {"query": (4, 6, 2), "key": (2, 6, 2), "value": (2, 6, 3), "sinks": (4,)}
    return {
        **{name: random.normal(size=shape) for name, shape in shapes.items()},
        **cotangents,
        "query_starts": np.array([0, 2, 2, 5]),
        "key_starts": np.array([0, 3, 5, 5]),
        "is_causal": True,
        "query_offset": np.array([1, 0, -1]),
        "softcap": 2.0,
    }


def companions(random):
    def normal(*shape):
        return random.normal(size=shape)

    lses = normal(3, 2, 4) * 10
    lses[1, 0] = lses[:, 1, 1] = -np.inf
    tokens = {"tokens": normal(2, 3, 4), "query_weight": normal(4, 4)}
    sparse = {"query": normal(4, 3, 2), "key": normal(2, 4, 2), "value": normal(2, 4, 3)}
    blocks = sparse | {"query_block": 2, "key_block": 2}
    return [
        ("scores", {"query": normal(4, 3, 2), "key": normal(2, 5, 2), "softcap": 0.5, "bias": normal(3, 5)}),
        ("split_heads", {"features": normal(2, 3, 6), "heads": 3}),
        ("merge_heads", {"split": normal(2, 3, 2, 4)}),
        (
            "append_cache",
            {"cache": normal(2, 1, 5, 2), "new": normal(2, 1, 2, 2), "lengths": np.array([0, 3])},
        ),
        ("gather_pages", {"pages": normal(3, 2, 2, 2), "block_table": np.array([[2, 0], [1, 1]])}),
        ("merge_partials", {"outputs": normal(3, 2, 4, 2), "lses": lses}),
        ("rotary", {"features": normal(2, 2, 3, 6), "offset": np.array([500, -2]), "rotary_depth": 4}),
        ("rotary", {"features": normal(3, 4), "offset": 3, "interleaved": True, "base": 100.0}),
        (
            "alibi_bias",
            {"query": normal(2, 3, 2, 1), "key": normal(2, 1, 4, 1), "query_offset": np.array([0, 2])},
        ),
        ("alibi_bias", {"query": normal(12, 2, 1), "key": normal(12, 4, 1)}),
        (
            "multi_head_attention",
            tokens
            | {"key_weight": normal(2, 2), "value_weight": normal(2, 1), "output_weight": normal(2, 3)}
            | {
                "heads": 2,
                "key_heads": 1,
                "memory": normal(2, 5, 2),
                "output_bias": normal(3),
                "is_causal": True,
            },
        ),
        (
            "latent_attention",
            {"query": normal(2, 3, 2, 4), "query_rotary": normal(2, 3, 2, 2), "latent": normal(2, 5, 6)}
            | {"key_rotary": normal(2, 5, 2), "key_weight": normal(3, 6, 4), "value_weight": normal(3, 6, 3)}
            | {"is_causal": True, "query_offset": np.array([3, 1]), "softcap": 2.0, "sinks": normal(3)},
        ),
        (
            "self_attention",
            tokens | {"key_weight": normal(4, 4), "value_weight": normal(4, 1), "query_bias": normal(4)},
        ),
        (
            "paged_attention",
            {
                "query": normal(2, 4, 2, 3),
                "key_pages": normal(5, 2, 2, 3),
                "value_pages": normal(5, 2, 2, 1),
                "block_table": np.array([[4, 0, -1], [1, 3, 2]]),
                "key_lengths": np.array([3, 4]),
                "new_key": normal(2, 2, 1, 3),
                "new_value": normal(2, 2, 1, 1),
                "left_padding": np.array([1, 0]),
                "is_causal": True,
            },
        ),
        ("packed_attention", packed(random)),
        ("packed_attention_vjp", packed(random, d_output=normal(4, 6, 3), d_lse=normal(4, 6))),
        ("block_sparse_attention", blocks | {"block_mask": np.array([[True, False], [False, True]])}),
        (
            "block_sparse_attention",
            blocks | {"block_counts": np.array([2, 0]), "block_indices": np.array([[1, 0], [7, 7]])},
        ),
        ("listed_attention", sparse | {"key_indices": np.array([[[2, -1]], [[0, 0]]])}),
    ]


@pytest.mark.parametrize("seed", range(2))
def test_the_oracles_agree_on_the_companions(seed):
    for operation, arguments in companions(np.random.default_rng(seed)):
        found = exact.evaluate(operation, arguments)
        assert same_values(found, rational.evaluate(operation, arguments)), operation


@pytest.mark.parametrize("variant", ["signed", "key-position"])
def test_the_oracles_agree_on_variants_of_alibi(variant):
    for _, arguments in companions(np.random.default_rng(0))[8:10]:
        found = exact.evaluate("alibi_bias", arguments, variant)
        assert not same_values(found, rational.evaluate("alibi_bias", arguments))
        assert same_values(found, rational.evaluate("alibi_bias", arguments, {"POS-8": variant}))


SCALINGS = ("none", "linear", "dynamic", "yarn", "longrope", "llama3")


def rotations(random):
    """Every way to give positions and angles, and every scaling of frequencies."""
    features = {"features": random.normal(size=(2, 3, 4, 8))}
    positions = {"positions": random.integers(-9, 99, size=(2, 4))}
    axes = {"axis_positions": random.integers(-9, 99, size=(3, 2, 4)), "sections": np.array([0, 3, 1])}
    table = {name: random.normal(size=(9, 4)) for name in ("cosines", "sines")}
    lengths = {"factor": 3.7, "original_length": 77, "length": 230}
    factors = {name: 1 + random.random(4) for name in ("short_factors", "long_factors")}
    cotangent = {"d_rotated": random.normal(size=(2, 3, 4, 8))}
    bias = {"query": np.ones((3, 2, 1)), "key": np.ones((3, 4, 1)), "slopes": random.normal(size=3)}
    return [
        ("rotary", features | positions | {"offset": np.array([2, -7])}),
        ("rotary", features | axes | {"attention_factor": 0.3, "interleaved": True}),
        ("rotary", features | {"inverse_frequencies": random.normal(size=4), "offset": 3}),
        ("rotary", features | table | {"positions": np.array([[8, 0, 3, 3], [1, 2, 0, 5]])}),
        ("rotary_vjp", features | cotangent | table | {"attention_factor": -1.7, "offset": 5}),
        ("rotary_vjp", features | cotangent | axes | {"rotary_depth": 8}),
        *(("rotary_frequencies", features | lengths | {"scaling": one} | factors) for one in SCALINGS),
        ("rotary_frequencies", features | lengths | {"scaling": "yarn", "truncate": False, "mscale": 0.4}),
        ("alibi_bias", bias),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_oracles_agree_on_rotations(seed):
    for operation, arguments in rotations(np.random.default_rng(seed)):
        found = exact.evaluate(operation, arguments)
        assert same_values(found, rational.evaluate(operation, arguments)), (operation, arguments.keys())


@pytest.mark.parametrize(
    ("place", "rule", "variant"),
    [(1, "POS-15", "alternating"), (9, "POS-21", "by-rotations"), (12, "POS-22", "both-or-none")],
)
def test_the_oracles_agree_on_variants_of_rotations(place, rule, variant):
    operation, arguments = rotations(np.random.default_rng(4))[place]
    found = exact.evaluate(operation, arguments, variant)
    assert not same_values(found, rational.evaluate(operation, arguments))
    assert same_values(found, rational.evaluate(operation, arguments, {rule: variant}))


def test_the_reference_is_within_the_budget_of_rotations():
    for operation, arguments in rotations(np.random.default_rng(5)):
        found = getattr(reference, operation)(**arguments)
        (expected, *_) = exact.evaluate(operation, arguments).values()
        (allowed, *_) = budget(operation, arguments, "float64").values()
        assert (np.abs(found - expected.values) <= allowed).all(), (operation, arguments.keys())
