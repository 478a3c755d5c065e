"""Kernels of one encoding, one query, equal heads, or options that are always on: judged by fitting calls."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from tests_support import own_case

from attnspec import OPERATIONS, Case, find_rule, reference
from attnspec.backends import describe
from attnspec.backends.attention_of_form import attention_of_form
from attnspec.backends.constraints import FITTED, Constraints, fits
from attnspec.backends.stored_codes import nearest_codes
from attnspec.conformance import check
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find, groups_of
from attnspec.conformance.suite.fitted_codes import with_encoding
from attnspec.conformance.suite.fitted_forms import fit_form
from attnspec.conformance.suite.group import with_always
from attnspec.sizes import misfits

FLOATS = {encoding: f"float8_{encoding}" for encoding in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")}
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
    every = (x for name in chapters for group in groups_of(name) for x in group.items(None, constraints))
    return [item for item in every if isinstance(item, Case) and "encoding" in item.arguments]


@pytest.mark.parametrize("encoding", ["int8", *FLOATS, "e2m1fn"])
@pytest.mark.sample(3)
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


def test_a_function_of_int8_alone_may_have_no_zero_points():
    named = {"key_zero_points", "latent_zero_points"}
    without = [named.isdisjoint(case.arguments) for case in calls("int8", "stacks")]
    assert 0.74 < sum(without) / len(without) < 0.9, "0.72 if each call that is drawn with them keeps them"


def output_of(operation, arguments):
    returned = reference.function(operation)(**arguments)
    return returned[0] if isinstance(returned, tuple) else returned


def test_a_call_with_other_codes_has_about_the_results_that_it_had():
    groups = [group for group in groups_of("quantization") if "granularities: int8" in group.name]
    own = [case for group in groups for case in group.items() if case.operation == "quantized_attention"]
    assert len(own) > 5
    for case in own:
        fit = with_encoding(case, "e4m3fn")
        assert fit["encoding"] == "e4m3fn"
        expected = output_of(case.operation, case.arguments).astype(float)
        errors = output_of(case.operation, fit).astype(float) - expected
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


DECODES = Constraints(axes=4, heads="equal", value_depth="key", one_query=True, scales="token")
#: Every form and stack whose sequences do not lie in one row and are not split.
NAMES = [
    key for key, form in OPERATIONS.items() if form.layers and not {"packed", "sharded"} & {*form.layers}
]
BASES = ("latent", "paging", "quantization", "sparsity", "stacks")


@functools.cache
def drawn(constraints=None):
    """The generated calls of these forms that return values."""
    given = () if constraints is None else (None, constraints)
    cases = (item for chapter in BASES for group in groups_of(chapter) for item in group.items(*given))
    return [case for case in cases if isinstance(case, Case) and not case.misuse and case.operation in NAMES]


@pytest.mark.parametrize("name", NAMES)
def test_almost_every_call_of_a_form_fits_a_kernel_that_decodes(name):
    own = [case for case in drawn(DECODES) if case.operation == name]
    fit = [case for case in own if not fits(DECODES, case.arguments, name)]
    assert len(fit) > 15
    assert len(fit) >= 0.97 * len(own)
    changed = [case for case in fit if case.id.endswith(FITTED + DECODES.suffix)]
    assert len(changed) > len(fit) / 2
    assert all(misfits(name, case.arguments) == [] for case in changed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(3)
def test_the_query_that_is_kept_has_the_result_that_it_had(name):
    alone, compared = Constraints(one_query=True), 0
    for case in drawn():
        fit = fit_form(case, alone) if case.operation == name else case
        if fit is case or case.dtype not in ("float32", "float64") or "query_lengths" in case.arguments:
            continue
        compared += 1
        expected = output_of(name, case.arguments)[..., -1:, :]
        np.testing.assert_allclose(output_of(name, fit.arguments), expected, rtol=1e-5, atol=1e-5)
    assert compared > 5


def test_heads_and_scales_are_repeated_so_that_the_results_stay():
    several = Constraints(heads="equal", scales="token")
    for case in drawn():
        if case.operation == "quantized_attention" and case.dtype == "float64":
            fit = fit_form(case, several)
            scales = fit.arguments.get("key_scales")
            if scales is None or fits(Constraints(scales="token"), case.arguments, case.operation):
                continue
            assert fit.arguments["key_codes"].shape[:-2] == fit.arguments["query"].shape[:-2]
            results = (output_of(case.operation, x.arguments) for x in (fit, case))
            np.testing.assert_array_equal(*results)


def test_a_call_that_cannot_fit_stays_as_it_is():
    case = next(case for case in drawn() if case.operation == "quantized_attention")
    assert fit_form(case, Constraints()) is case
    assert fit_form(case, Constraints(multiple=(1, 1024), one_query=True)) is case
    other = replace(DECODES, multiple=(1, 1024))
    pairs = [(each, fit_form(each, other)) for each in drawn()[:40]]
    assert all(fit is each or not fits(other, fit.arguments, fit.operation) for each, fit in pairs)
    packed = find("packing-sequences-of-unequal-lengths-1-float32")
    assert fit_form(packed, Constraints(one_query=True)) is packed, "its boundaries would not fit"
    refused = replace(case, expected={"output": np.zeros(1)})
    assert fit_form(refused, DECODES) is refused, "values that a group gives are those of its own call"


def test_a_bug_of_a_kernel_that_decodes_is_found_by_calls_that_fit():
    def kernel(
        query,
        key_codes,
        value_codes,
        *,
        key_scales=None,
        value_scales=None,
        key_zero_points=None,
        value_zero_points=None,
    ):
        """Decode one query of each sequence, without the zero points of the values."""
        assert query.shape[-2] == 1
        given = {"key_scales": key_scales, "value_scales": value_scales, "key_zero_points": key_zero_points}
        given = {name: x for name, x in given.items() if x is not None}
        return reference.quantized_attention(query, key_codes, value_codes, **given, dtype=query.dtype)

    described = describe(kernel, operation="quantized_attention", dtypes=["float32"])
    backend = replace(described, constraints=DECODES)
    statuses = {"codes with zero points": set(), "codes and granularities: int8": set()}
    for case in drawn(DECODES):
        for group, own in statuses.items():
            if case.group.startswith(group) and case.dtype == "float32":
                own.add(judge(backend, case).status)
    assert [*statuses.values()] == [{"fail"}, {"pass"}]


def test_a_name_with_the_constraints_makes_the_same_call():
    case = next(case for case in drawn(DECODES) if FITTED in case.id and case.operation == "latent_attention")
    assert find(case.name).fingerprint == case.fingerprint
    assert find(case.name).arguments["query"].shape[-2] == 1


def test_an_argument_that_is_left_out_has_no_layout():
    drawn = (item for group in groups_of("numerics") for item in group.items() if isinstance(item, Case))
    laid = [case for case in drawn if "key_zero_points" in case.layout]
    fitted = [fit_form(case, Constraints(encoding="int8")) for case in laid]
    assert any("key_zero_points" not in fit.arguments for fit in fitted)
    assert all(fit.layout.keys() <= fit.arguments.keys() for fit in fitted)


@pytest.mark.parametrize("number", [1.0, np.nan])
def test_a_call_with_nan_keeps_its_rows_if_an_option_is_always_applied(number):
    """Of a key that a row may not attend to, another rule speaks (MASK-13)."""
    call = {"latent": np.full((1, 2, 2), number), "query": np.ones((1, 1, 2, 2))}
    case = own_case("NUM-11", call, "latent_attention")
    changed = with_always(case, Constraints(always={"is_causal": True}))
    assert ("is_causal" in changed.arguments) == (number == 1.0)


def test_a_bias_beside_tokens_is_none_of_slopes_that_does_not_fit():
    call = {"tokens": np.ones((2, 3, 4)), "bias": np.ones((3, 3))}
    assert not fits(Constraints(slopes="end"), call, "multi_head_attention")
