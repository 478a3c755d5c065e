"""Weights of 8 bits: what the profile `fp8` allows, and what it does not."""

import numpy as np
import pytest

from attnspec import cases
from attnspec.conformance.suite.datasets import problem
from attnspec.conformance.suite.quantization import draw_codes, draw_scales
from attnspec.reference import attention, dequantize, low_precision_attention
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact import evaluate as exact
from attnspec.reference.rational import evaluate as rational
from tools.algorithms import run
from tools.units import SHORT_WEIGHTS, to_nearest

CORRECT = [name for name, unit in SHORT_WEIGHTS.items() if unit.accuracy]
FAULTS = [name for name, unit in SHORT_WEIGHTS.items() if not unit.accuracy]
DATA = ("plain", "peaked-identity", "identity-value", "positive-value", "late-peak", "causal")


def share(name, dataset, dtype="float16"):
    given = problem(dataset, (48, 64, 16), dtype, 5)
    got = run(
        SHORT_WEIGHTS[name].function, given.query, given.key, given.value, given.allowed, scale=given.scale
    )
    wide = {n: x if x.dtype == bool else x.astype(np.float64) for n, x in given.arguments.items()}
    expected = attention(**wide)
    allowed = budget("attention", wide, dtype, accuracy="cast", profile="fp8")["output"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nanmax(np.where(got == expected, 0, np.abs(got.astype(np.float64) - expected) / allowed))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", CORRECT)
def test_weights_of_eight_bits_stay_within_their_budget(name, dtype):
    shares = [share(name, dataset, dtype) for dataset in DATA]
    assert max(shares) <= 1
    assert max(shares) > 0.3, "the budget is not far wider than what is used"


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_weights_of_eight_bits_exceed_it(name):
    assert max(share(name, dataset) for dataset in DATA) > 1


def test_weights_of_eight_bits_are_rounded_as_the_codes_are_decoded():
    numbers = dequantize(np.ones(1), np.arange(127, dtype=np.uint8)[None], encoding="e4m3fn")[0]
    assert np.array_equal(to_nearest(numbers.astype(np.float32)), numbers)
    middle = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    assert np.isin(to_nearest(middle), numbers).all()
    assert to_nearest(np.float32([464, 1e6])).tolist() == [448, 448]


def test_the_profile_adds_nothing_for_one_key_and_nothing_to_an_lse():
    one = np.ones((1, 1))
    arguments = {"query": one, "key": one, "value": one}
    found = [
        budget("attention", arguments, "float16", accuracy="cast", profile=profile)
        for profile in ("fp8", "matrix")
    ]
    assert found[0]["output"] == found[1]["output"]
    assert found[0]["lse"] == found[1]["lse"]


@pytest.mark.parametrize("encoding", ["int8", "e4m3fn", "e5m2"])
def test_the_oracles_and_the_reference_agree_on_codes_throughout(encoding):
    random = np.random.default_rng(4)
    arguments = {"encoding": encoding, "is_causal": True, "sinks": np.array([0.5, -1.0])}
    for name, shape in (("query", (2, 3, 4)), ("key", (1, 5, 4)), ("value", (1, 5, 3))):
        arguments[f"{name}_codes"] = draw_codes(random, encoding, shape)
        arguments[f"{name}_scales"] = draw_scales(random, encoding, (*shape[:-1], 1), "float64")
    one = exact.evaluate("low_precision_attention", arguments)
    other = rational.evaluate("low_precision_attention", arguments)
    given = {n: x for n, x in arguments.items() if not n.startswith("query")}
    found = low_precision_attention(
        arguments["query_scales"], arguments["query_codes"], **given, return_lse=True
    )
    for name, got in zip(("output", "lse"), found, strict=True):
        assert np.array_equal(one[name].values, other[name])
        assert np.allclose(got, one[name].values, rtol=1e-13, atol=1e-14)


def test_half_precision_allows_weights_of_eight_bits_only_where_the_query_is_codes_too():
    random = np.random.default_rng(6)
    codes = {f"{name}_codes": draw_codes(random, "e4m3fn", (40, 4)) for name in ("query", "key", "value")}
    scales = np.ones((1, 1), np.float16)
    query = dequantize(scales, codes["query_codes"], encoding="e4m3fn")
    rest = {n: x for n, x in codes.items() if n != "query_codes"} | {"encoding": "e4m3fn"}
    coded = codes | {"query_scales": scales, "encoding": "e4m3fn"}
    for dtype, wider in (("float16", True), ("float32", False)):
        one = budget("low_precision_attention", coded, dtype, accuracy="cast")["output"]
        other = budget("quantized_attention", rest | {"query": query}, dtype, accuracy="cast")["output"]
        assert bool((one > 4 * other).any()) == wider
    full = budget("low_precision_attention", coded, "float16", accuracy="full")["output"]
    assert (full < budget("low_precision_attention", coded, "float16", accuracy="cast")["output"]).all()


def test_the_golden_vectors_have_codes_throughout():
    own = [case for case in cases() if case.operation == "low_precision_attention"]
    assert {case.rules[0] for case in own} == {"QUANT-10", "QUANT-11"}
