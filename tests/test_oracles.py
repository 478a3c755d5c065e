"""The two oracles agree; the exact one terminates, rounds once, and has clear errors."""

from decimal import Decimal
from fractions import Fraction

import flint
import numpy as np
import pytest

from attnspec import cases
from attnspec.conformance.suite.datasets import problem
from attnspec.dtypes import FORMATS
from attnspec.reference.exact import balls
from attnspec.reference.exact import evaluate as exact
from attnspec.reference.exact.balls import OracleError, nearest
from attnspec.reference.rational import evaluate as rational

PROVEN = [case for case in cases() if case.expected]


def agree(one, other):
    """To the last bit, but for what the second oracle's 60 digits leave of an exact 0."""
    return np.array_equal(np.where(np.abs(one) < 1e-50, 0, one), np.where(np.abs(other) < 1e-50, 0, other))


@pytest.mark.parametrize("case", PROVEN, ids=str)
@pytest.mark.sample(110)
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


@pytest.mark.parametrize("variant", ["nan", "uniform"])
def test_without_keys_the_variants_of_an_empty_row_are_zero(variant):
    arguments = {"query": np.ones((2, 1)), "key": np.ones((0, 1)), "value": np.ones((0, 1))}
    for found in (
        exact.evaluate("attention", arguments, variant),
        rational.evaluate("attention", arguments, {"MASK-6": variant}),
    ):
        assert np.array_equal(np.asarray(getattr(found["output"], "values", found["output"])), [[0.0], [0.0]])


def test_minus_infinity_added_where_others_fill():
    """The fill is above minus infinity: the row is the mean over what the mask disallows, 5 and 7."""
    arguments = {"query": np.zeros((1, 1)), "key": np.zeros((3, 1)), "value": np.array([[1.0], [5.0], [7.0]])}
    arguments |= {"mask": np.array([True, False, False]), "bias": np.array([-np.inf, 0.0, 0.0])}
    found = rational.evaluate("attention", arguments, {"MASK-2": "added", "MASK-6": "uniform"})
    assert found["output"].tolist() == [[6.0]]
    assert found["weights"].tolist() == [[0.0, 0.5, 0.5]]
    assert found["lse"].tolist() == [-np.inf]
    assert np.isnan(rational.evaluate("attention", arguments, {"MASK-2": "added"})["output"]).all()


def test_mpmath_agrees():
    """A third opinion on one problem, by code of others."""
    mpmath = pytest.importorskip("mpmath")
    arguments = problem("peaked", (3, 7, 4), "float64", 1).arguments
    found = exact.evaluate("attention", arguments)["output"].values
    with mpmath.workdps(50):
        for i, query in enumerate(arguments["query"]):
            e = [mpmath.exp(mpmath.fdot(zip(query, key, strict=True)) / 2) for key in arguments["key"]]
            for c in range(found.shape[1]):
                mean = mpmath.fdot(zip(e, arguments["value"][:, c], strict=True)) / mpmath.fsum(e)
                assert float(mean) == found[i, c]


def call(query, key, value, **options):
    arrays = {"query": query, "key": key, "value": value}
    return exact.evaluate("attention", {name: np.array(x, float) for name, x in arrays.items()} | options)


LOW, HIGH, THIRD = 1.0, 1.0 + 2**-52, 1 / 3
#: Arrays, and the output, whatever the precision at which a ball around it settles.
SETTLED = {
    "balls around 0 never shrink to it": ([[0.0]], [1.0, 2.0, 3.0], [1.0, -2.0, 1.0], 0.0),
    "groups of equal scores, with the mean 0": ([[1.0]], [1.0, 1.0, 2.0, 2.0], [1.0, -1.0, 3.0, -3.0], 0.0),
    "half way between two numbers, ties go to even": ([[0.0]], [0.0, 0.0], [LOW, HIGH], 1.0),
    "half way, upwards": ([[0.0]], [0.0, 0.0], [HIGH, 1.0 + 2**-51], 1.0 + 2**-51),
    "equal values come back whatever the weights": ([[1.0]], [0.1, 0.7, -2.0], [THIRD] * 3, THIRD),
    # At depth 2 the scale is irrational: 3 / sqrt(2) equals itself and nothing else.
    "equal scores with an irrational scale": (
        [[1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0], [3.0, 0.0]], [1.0, -2.0, 1.0], 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTLED)
def test_what_no_precision_tells_is_proven_otherwise(name):
    query, key, value, output = SETTLED[name]
    key = np.array(key).reshape(len(value), -1)
    found = call(query, key, np.array(value)[:, None])["output"].values
    assert found.tolist() == [[output]]
    assert not np.signbit(found).any()


def test_exponents_and_weights_at_the_ends_of_float64():
    found = call([[1.0]], [[-1e300], [0.0], [-1e4], [-800.0]], [[1.0], [2.0], [3.0], [4.0]], scale=1.0)
    assert found["output"].values.tolist() == [[2.0]]
    assert found["weights"].values.tolist() == [[0.0, 1.0, 0.0, 0.0]]
    up = call([[1.0]], [[1e300], [1e300 * (1 - 2**-52)]], [[1.0], [2.0]], scale=1.0)
    assert up["output"].values.tolist() == [[1.0]]
    found = call([[1.0]], [[0.0], [-740.0]], [[1.0], [1.0]], scale=1.0)["weights"].values
    assert 0 < found[0, 1] < 2.0**-1022
    assert found[0, 1] == float(Decimal(-740).exp() / (1 + Decimal(-740).exp()))
    # A difference of 200 bits below the terms needs more than the first precision.
    found = call([[1.0]], [[0.0], [2.0**-160]], [[1.0], [-1.0]], scale=1.0)["output"]
    assert found.bits > 128
    assert found.values[0, 0] == -(2.0**-161)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rounding_once_to_each_format(dtype):
    random = np.random.default_rng(7)
    numbers = random.normal(size=300) * 2.0 ** random.integers(-30, 14, size=300)
    for x in numbers.tolist():
        assert nearest(Fraction(x), dtype) == float(np.float64(x).astype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_ends_of_balls_are_rounded_as_rationals_are(dtype):
    random = np.random.default_rng(9)
    lowest, highest = FORMATS[dtype].exponents
    for _ in range(3000):
        mantissa = int(random.integers(-(2**62), 2**62)) >> int(random.integers(0, 62))
        if random.random() < 0.4:  # on a middle, or one beside it
            mantissa = (mantissa << int(random.integers(0, 60))) + int(random.integers(-1, 2))
        exponent = int(random.integers(lowest - 80, highest + 10))
        with flint.ctx.workprec(128):
            end = flint.arb(mantissa) * flint.arb(2) ** exponent
        assert balls._nearest_dyadic(end, dtype) == nearest(mantissa * Fraction(2) ** exponent, dtype)


@pytest.mark.parametrize(
    ("number", "dtype", "expected"),
    [
        (Fraction(65519), "float16", 65504.0),
        (Fraction(65520), "float16", np.inf),
        (Fraction(-65520), "float16", -np.inf),
        (Fraction(1, 2**25), "float16", 0.0),
        (Fraction(3, 2**26), "float16", 2.0**-24),
        (Fraction(2049), "float16", 2048.0),
        (Fraction(2051), "float16", 2052.0),
        (Fraction(2) ** 2000, "float64", np.inf),
        (Fraction(1, 2**2000), "float64", 0.0),
        (Fraction(0), "float32", 0.0),
    ],
)
def test_edges_of_formats(number, dtype, expected):
    assert nearest(number, dtype) == expected


def test_the_oracle_rounds_where_it_is_asked_to():
    """Once: through float64 a result could be rounded twice."""
    arguments = problem("plain", (3, 7, 4), "float16", 3).arguments
    for dtype in ("float16", "bfloat16", "float32"):
        once = exact.evaluate("attention", arguments, dtype=dtype)["output"].values
        assert np.array_equal(once, once.astype(dtype).astype(float))
        assert np.allclose(once, exact.evaluate("attention", arguments)["output"].values, rtol=2.0**-7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": np.array([[np.nan]]), "softcap": 1.0}, "input: expected finite numbers beside a softcap"),
        ({"key": np.array([[-np.inf]])}, "scores: expected a finite one beside minus infinity, got none"),
        ({"sinks": np.array([np.inf])}, "input: expected finite numbers, got inf"),
        ({"query": np.ones(1)}, "input: expected two axes"),
    ],
)
def test_inputs_without_an_exact_value(change, message):
    one = {name: np.ones((1, 1)) for name in ("query", "key", "value")}
    with pytest.raises(OracleError, match=message):
        exact.evaluate("attention", one | change)


def test_what_the_oracle_does_not_compute_it_says(monkeypatch):
    with pytest.raises(OracleError, match=r"operation: expected one of attnspec.OPERATIONS, got 'dropout'"):
        exact.evaluate("dropout", {})
    monkeypatch.setattr(balls, "PRECISIONS", (54,))
    arguments = problem("cancelling", (3, 7, 4), "float64", 0).arguments
    with pytest.raises(OracleError, match=r"element \(\d+, \d+\): expected to settle, got no end at 54 bits"):
        exact.evaluate("attention", arguments)


def kept_infinity(dropped):
    """A call whose first key has an infinite value, and whose keys are dropped or kept."""
    mask = np.ones((1, 3), bool)
    mask[0, dropped] = False
    value = np.array([[np.inf, 1.0], [2.0, 3.0], [4.0, -np.inf]])
    arrays = {"query": np.ones((1, 2)), "key": np.ones((3, 2)), "value": value}
    return arrays | {"dropout_mask": mask, "dropout_rate": 0.5}


@pytest.mark.parametrize("evaluate", [lambda call: exact.evaluate("attention", call)["output"].values,
    lambda call: rational.evaluate("attention", call)["output"]])  # fmt: skip
def test_infinity_beside_a_dropout_mask(evaluate):
    """NUM-13: an infinite value that is kept is defined, and one that is dropped is not."""
    assert evaluate(kept_infinity(1)).tolist() == [[np.inf, -np.inf]]
    with pytest.raises((OracleError, ValueError), match=r"no infinity at a weight of 0|at weight 0"):
        evaluate(kept_infinity(0))
    beside_nan = kept_infinity(0)
    beside_nan["value"][1:, 0] = np.nan  # NUM-12
    np.testing.assert_array_equal(evaluate(beside_nan), [[np.nan, -np.inf]])
    of_nan = kept_infinity(0)
    of_nan["query"][0, 0] = np.nan  # NUM-11
    assert np.isnan(evaluate(of_nan)).all()
