"""A function over codes of one encoding, without an argument for it, is judged by calls of this encoding."""

import numpy as np
import pytest

from attnspec import Case, find_rule, reference
from attnspec.backends import describe
from attnspec.backends.attention_of_form import attention_of_form
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.stored_codes import nearest_codes
from attnspec.conformance import check
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find, groups_of
from attnspec.conformance.suite.fitted_codes import with_encoding

FLOATS = {
    "e4m3fn": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
}
OPTIONS = {"operation": "quantized_attention", "encoding": "e4m3fn", "scales": "token", "dtypes": ["float32"]}


def of_e4m3fn(query, key_codes, value_codes, *, key_scales=1, value_scales=1, scale=None, is_causal=False):
    codes = (key_codes, key_scales), (value_codes, value_scales)
    arrays = (x.view("float8_e4m3fn").astype(query.dtype) * scales for x, scales in codes)
    return reference.attention(query, *arrays, scale=scale, is_causal=is_causal, dtype=query.dtype)


def of_e4m3fnuz(query, key_codes, value_codes, *, key_scales=1, value_scales=1):
    """Half as large."""
    return of_e4m3fn(
        query, key_codes, value_codes, key_scales=key_scales / 2, value_scales=np.divide(value_scales, 2)
    )


@pytest.mark.parametrize("encoding", FLOATS)
def test_the_nearest_codes_are_those_of_another_library(encoding):
    random = np.random.default_rng(0)
    numbers = random.normal(size=500) * 2.0 ** random.integers(-6, 6, 500)
    held = numbers.astype(FLOATS[encoding]).astype(np.float64)
    got = nearest_codes(numbers, encoding).view(FLOATS[encoding]).astype(np.float64)
    np.testing.assert_array_equal(np.abs(got - numbers), np.abs(held - numbers))
    special = nearest_codes(np.array([np.nan, np.inf, 1e9, -1e9]), encoding).view(FLOATS[encoding])
    largest = {"e4m3fn": 448, "e5m2": 57344, "e4m3fnuz": 240, "e5m2fnuz": 57344}[encoding]
    np.testing.assert_array_equal(special.astype(float), [np.nan, largest, largest, -largest])


def calls(encoding, *chapters):
    constraints = Constraints(encoding=encoding)
    every = (
        item for name in chapters for group in groups_of(name) for item in group.items(None, constraints)
    )
    return [item for item in every if isinstance(item, Case) and "encoding" in item.arguments]


@pytest.mark.parametrize("encoding", ["int8", *FLOATS, "e2m1fn"])
def test_most_calls_over_codes_fit_an_encoding(encoding):
    own = [case for case in calls(encoding, "quantization", "stacks") if not case.misuse]
    asked = [
        case
        for case in own
        if not any(name.endswith("zero_points") for name in case.arguments)
        and not {"QUANT-3", "QUANT-4", "QUANT-12", "QUANT-13", "QUANT-14"} & {*case.rules}
    ]
    constraints = Constraints(encoding=encoding)
    fit = [case for case in asked if not fits(constraints, case.arguments, case.operation)]
    assert len(fit) > (0.8 if encoding in ("int8", "e2m1fn") else 0.95) * len(asked), "they have no NaN"


def outputs(case, arguments):
    returned = reference.function(case.operation)(**arguments)
    return returned[0] if isinstance(returned, tuple) else returned


def test_a_call_with_other_codes_has_about_the_results_that_it_had():
    groups = [group for group in groups_of("quantization") if "granularities: int8" in group.name]
    own = [case for group in groups for case in group.items() if case.operation == "quantized_attention"]
    assert len(own) > 5
    for case in own:
        fit = with_encoding(case, "e4m3fn")
        assert fit["encoding"] == "e4m3fn"
        expected = outputs(case, case.arguments).astype(float)
        errors = outputs(case, fit).astype(float) - expected
        assert np.abs(errors).mean() < 0.25 * np.abs(expected).mean()


def test_nan_stays_and_a_call_whose_codes_an_encoding_cannot_hold_stays_as_it_is():
    case = find("quantization-nan-in-disallowed-places-codes-1-float32")
    for encoding in ("e5m2", "e4m3fnuz"):
        held = with_encoding(case, encoding)["key_codes"].view(FLOATS[encoding]).astype(float)
        assert np.isnan(held[..., 4:, :]).all()
        assert not np.isnan(held[..., :4, :]).any()
    for encoding in ("int8", "e2m1fn", "e8m0fnu", "e4m3fn", ""):
        assert with_encoding(case, encoding) is case.arguments
    shifted = find("quantization-codes-with-zero-points-token-1-float32")
    assert with_encoding(shifted, "e4m3fn") is shifted.arguments
    decoded = find("quantization-every-code-e5m2-1-float32")
    assert with_encoding(decoded, "e4m3fn") is decoded.arguments, "its rule is about e5m2"


def test_calls_of_another_encoding_are_lacking_and_not_declined():
    backend = describe(of_e4m3fn, **OPTIONS)
    verdict = judge(backend, find("quantization-codes-and-granularities-e5m2-and-token-1-float32"))
    assert (verdict.status, verdict.lacks, verdict.declined) == ("unsupported", ("encoding e5m2",), False)
    verdict = judge(backend, find("quantization-codes-and-granularities-int8-and-token-1-float32"))
    assert verdict.lacks == ("encoding int8",)
    verdict = judge(backend, find("quantization-codes-and-granularities-e4m3fn-and-token-1-float32"))
    assert verdict.status == "pass", verdict.reason


def test_a_right_function_of_one_encoding_succeeds():
    report = check(of_e4m3fn, **OPTIONS, quick=True, rules=["QUANT-8"])
    assert report.good, report.text
    values = [one for one in report.report.results.verdicts if not one.refusal and one.status == "pass"]
    assert len(values) > 30


def test_a_wrong_function_of_one_encoding_fails():
    report = check(of_e4m3fnuz, **OPTIONS, quick=True, rules=["QUANT-8"])
    assert not report.good
    failing = {verdict.rule for verdict in report.report.results.verdicts if verdict.bad}
    assert "QUANT-8" in failing
    assert all(find_rule(rule) for rule in failing)


def test_malformed_calls_have_codes_of_the_encoding():
    refused = [case for case in calls("e4m3fn", "errors", "quantization") if case.misuse]
    own = [case for case in refused if case.operation == "quantized_attention"]
    assert len([case for case in own if case.arguments["encoding"] == "e4m3fn"]) > 10


@pytest.mark.parametrize("array", ["numpy", "torch", "jax.numpy"])
@pytest.mark.parametrize("encoding", FLOATS)
def test_codes_as_numbers_of_8_bits(array, encoding):
    if array != "numpy":
        pytest.importorskip(array.partition(".")[0])
    seen = []

    def kernel(query, key_codes, value_codes):
        seen.append((str(key_codes.dtype), str(value_codes.dtype)))
        return query[..., :1] * 0

    keys = OPTIONS | {"encoding": encoding, "codes": "float8", "array": array.partition(".")[0]}
    backend = describe(kernel, **keys)
    codes = backend.to_library(np.array([[0x38, 0xB8]], np.uint8))
    query = backend.to_library(np.ones((1, 2), np.float32))
    backend.function("quantized_attention")(query, codes, codes, encoding=encoding)
    assert {name.removeprefix("torch.") for name in seen[0]} == {FLOATS[encoding]}


def test_plain_attention_is_stored_as_codes_of_the_encoding():
    seen = []

    def kernel(query, key_codes, value_codes, *, key_scales=1, value_scales=1, scale=None):
        seen.append(key_codes.dtype)
        return of_e4m3fn(query, key_codes, value_codes, key_scales=key_scales, value_scales=value_scales)

    backend = describe(kernel, **OPTIONS)
    random = np.random.default_rng(0)
    query, key, value = (random.integers(-2, 3, (1, 2, 3, 4)).astype("f4") for _ in range(3))
    output = attention_of_form(backend).attention(query, key, value)
    np.testing.assert_allclose(output, reference.attention(query, key, value), atol=1e-5)
    assert seen == [np.uint8]
    assert backend.constraints == Constraints(scales="token", encoding="e4m3fn")
