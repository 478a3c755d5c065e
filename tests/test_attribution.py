"""Attribution: what a verdict says about a wrong result, and what the judge does not compare."""

from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
from tests_support import backend_of, own_case

from attnspec import Misuse, find_case
from attnspec.backends import load
from attnspec.backends.user.adapter import adapt
from attnspec.backends.user.convention import Convention
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import observe, without
from attnspec.conformance.judge.dtypes import accepted_dtypes, arguments_of, dtypes_of, in_dtype
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.judge.judge import CLAIMED, applicable_rules, judge
from attnspec.conformance.judge.refusal import FITTING_CALLS
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.suite import find
from attnspec.conformance.suite.problem import MASKED, problem_of
from attnspec.conformance.verdict import from_json, rules_with_outputs, to_json

PORTABLE = load("numpy-portable")
PROBLEM = problem_of(MASKED[0], "float32", 1)


def giving(change, **options):
    """The portable backend with its outputs changed: change(output, lse, weights) -> the three."""

    def attention(query, key, value, *, is_causal=False, mask=None, return_lse=False, return_weights=False):
        whole = PORTABLE.attention(
            query, key, value, is_causal=is_causal, mask=mask, return_lse=True, return_weights=True
        )
        output, lse, weights = change(*whole)
        parts = [output, *([lse] if return_lse else []), *([weights] if return_weights else [])]
        return tuple(parts) if len(parts) > 1 else output

    return replace(PORTABLE, name="own", attention=attention, **options)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda o, e, w: (o, e + np.float32(1e-3), w), "SOFT-6"),
        (lambda o, e, w: (o, e / np.float32(np.log(2)), w), "SOFT-6"),
        (lambda o, e, w: (o + np.float32(1e-3), e, w), "SOFT-6"),
    ],
)
def test_a_difference_breaks_the_plainest_rule(change, rule):
    verdict = judge(giving(change), own_case("SOFT-6", PROBLEM.arguments))
    assert (verdict.status, verdict.rule) == ("fail", rule)


def test_an_lse_of_another_dtype_is_a_matter_of_its_own():
    """Two of float64 may stand beside float32; one of float16 breaks NUM-7, and nothing else."""
    wide = giving(lambda o, e, w: (o, e.astype(np.float64), w))
    assert judge(wide, own_case("NUM-7", PROBLEM.arguments)).status == "pass"
    short = giving(lambda o, e, w: (o, e.astype(np.float16), w))
    assert judge(short, own_case("MASK-1", PROBLEM.arguments)).status == "pass"
    for rule in ("NUM-7", "SOFT-6"):
        verdict = judge(short, own_case(rule, PROBLEM.arguments))
        assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "NUM-7", "lse")
        assert verdict.difference.got == "float16"
        assert verdict.difference.expected == "float32 or float64"
    assert accepted_dtypes("lse", "float64") == ("float64",)


def test_the_weights_of_a_row_that_is_nan_are_not_looked_at():
    query = PROBLEM.query.copy()
    query[0, 0, 1, 0] = np.nan
    case = own_case("NUM-11", PROBLEM.arguments | {"query": query})

    def ones_there(output, lse, weights):
        return output, lse, np.where(np.isnan(lse)[..., None], np.float32(1), weights)

    assert judge(giving(ones_there), case).status == "pass"
    verdict = judge(giving(lambda o, e, w: (o, e, w + np.float32(1e-3))), case)
    assert (verdict.status, verdict.difference.output) == ("fail", "weights")


def test_identity_values_are_not_asked_where_numbers_are_not_finite():
    calls = []

    def mute(query, key, value, *, bias=None):
        calls.append(value)
        return PORTABLE.attention(query, key, value, bias=bias)

    backend = replace(PORTABLE, attention=mute)
    bias = np.zeros(PROBLEM.shape, np.float32)
    bias[..., 0] = -np.inf
    assert "weights" in observe(backend, own_case("MASK-2", PROBLEM.arguments | {"bias": bias}))
    calls.clear()
    value = PROBLEM.value.copy()
    value[0, 0, 0, 0] = np.nan
    assert "weights" not in observe(backend, own_case("NUM-12", PROBLEM.arguments | {"value": value}))
    assert len(calls) == 1


def test_an_argument_that_changes_nothing_is_named():
    def attention(query, key, value, *, is_causal=False, window=None):
        return PORTABLE.attention(query, key, value, is_causal=is_causal)

    case = own_case("MASK-8", PROBLEM.arguments | {"is_causal": True, "window": (1, None)})
    verdict = judge(replace(PORTABLE, attention=attention), case)
    assert (verdict.status, verdict.rule, verdict.ignored) == ("fail", "MASK-8", "window")
    paired = replace(case, rules=("MASK-8", "ERR-3"))
    assert judge(replace(PORTABLE, attention=attention), paired).rule == "ERR-3"


def test_what_a_should_leaves_open_is_no_breach_of_a_must():
    """NaN in a masked key, and minus infinity added: looks like MASK-2 `added`, and is MASK-13."""

    def attention(query, key, value, *, bias=None):
        scores = query @ np.swapaxes(key, -1, -2) * np.float32(0.5) + bias
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ value

    bias = np.where(np.arange(7) < 6, 0, -np.inf).astype(np.float32)
    key = PROBLEM.key.copy()
    key[..., 6, :] = np.nan
    clean = exact("attention", PROBLEM.arguments | {"bias": bias})
    case = own_case("MASK-13", PROBLEM.arguments | {"key": key, "bias": bias}, expected=clean)
    verdict = judge(replace(PORTABLE, attention=attention), case)
    assert (verdict.status, verdict.rule, verdict.variant) == ("should not met", "MASK-13", "")
    claiming = judge(replace(PORTABLE, attention=attention, claims=("MASK-13",)), case)
    assert (claiming.status, claiming.reason) == ("fail", CLAIMED)


def test_an_overflow_of_a_disallowed_key_is_said_in_words():
    def adding(query, key, value, *, bias=None):
        scores = query @ np.swapaxes(key, -1, -2) * np.float32(0.5) + (0 if bias is None else bias)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ value

    own = replace(PORTABLE, attention=adding, companions={})
    verdict = judge(own, find("masking-finite-garbage-bias-and-largest-1-float32"))
    assert (verdict.status, verdict.rule, verdict.difference.kind) == ("fail", "MASK-12", "bits")
    held = "the keys that `bias` disallows hold 3.4e+38, and 0 in the call with the expected weights"
    why = "their product with a query overflows, and infinity with minus infinity added is NaN"
    assert verdict.reason == f"{held}: {why}"
    assert "Difference(" not in verdict_text(verdict)

    def full(query, key, value, *, bias=None):
        return np.where(np.abs(key).max() > 1e4, np.float32(np.nan), adding(query, key, value, bias=bias))

    def zero(query, key, value, *, bias=None):
        return np.nan_to_num(adding(query, key, value, bias=bias))

    for attention, most, shown in ((full, "large", "3e+04"), (zero, "largest", "3.4e+38")):
        verdict = judge(
            replace(own, attention=attention), find(f"masking-finite-garbage-bias-and-{most}-1-float32")
        )
        assert verdict.reason == held.replace("3.4e+38", shown)


@pytest.mark.parametrize(
    ("rule", "status"), [("MASK-1", "error"), ("NUM-9", "should not met"), ("NUM-10", "unsupported")]
)
def test_what_is_raised_counts_by_the_level_of_the_rule(rule, status):
    verdict = judge(backend_of("raising"), own_case(rule, PROBLEM.arguments))
    assert (verdict.status, verdict.rule) == (status, rule)
    assert verdict.raised.type == "RuntimeError"


def test_the_dtypes_of_a_case_and_of_its_arguments():
    given = {"pages": np.ones(1), "block_table": np.array([1]), "lses": np.ones(1), "flags": np.array([True])}
    cast = {name: str(array.dtype) for name, array in in_dtype(given, "bfloat16").items()}
    assert cast == {"pages": "bfloat16", "block_table": "int64", "lses": "float32", "flags": "bool"}
    every = ("float16", "bfloat16", "float32", "float64")
    pages = {"pages": np.array([np.nan, 1]), "block_table": np.array([1])}
    assert dtypes_of(own_case("CACHE-4", pages, "gather_pages")) == every
    features = {"features": np.array([np.inf, 0.1])}
    assert dtypes_of(own_case("HEAD-3", features, "split_heads")) == ("float64",)
    features = {"features": np.array([70000.0])}
    assert dtypes_of(own_case("HEAD-3", features, "split_heads")) == ("float32", "float64")
    arrays = {"query": np.ones((1, 1), np.float32), "key": np.ones((1, 1)), "value": np.ones((1, 1))}
    case = own_case("ERR-1", arrays, misuse=Misuse("key"))
    assert dtypes_of(case) == ("float32",)
    assert {str(x.dtype) for x in arguments_of(case, "float32").values()} == {"float32", "float64"}
    assert judge(PORTABLE, case).status == "pass"


@pytest.mark.parametrize("operation", FITTING_CALLS)
def test_the_calls_that_fit_do(operation):
    assert observe(PORTABLE, own_case("ERR-1", in_dtype(FITTING_CALLS[operation], "float32"), operation))


@pytest.mark.parametrize(
    ("message", "names", "named"),
    [
        ("mask: expected bool", ("mask",), True),
        ("Mask must be bool", ("mask",), True),
        ("attn_mask must be bool", ("mask",), False),
        ("", ("mask",), False),
        ("value: expected 5 positions", ("key", "value"), True),
    ],
)
def test_an_error_names_the_argument(message, names, named):
    def attention(query, key, value):
        if query.shape[-1] != key.shape[-1]:
            raise ValueError(message)
        return PORTABLE.attention(query, key, value)

    arrays = {"query": np.ones((2, 4)), "key": np.ones((3, 5)), "value": np.ones((3, 4))}
    case = own_case("ERR-12", arrays, misuse=Misuse(names[0], names[1:]))
    verdict = judge(replace(PORTABLE, attention=attention), case)
    assert verdict.status == ("pass" if named else "should not met")
    assert verdict.rule == ("" if named else "ERR-12")
    assert named or verdict.reason.startswith(f"expected an error that names {names[0]}, got: ")


def test_a_valid_call_that_raises_beside_a_refused_one_is_said_to_be_valid():
    def attention(query, key, value):
        raise TypeError("four axes")

    arrays = {"query": np.ones((2, 4)), "key": np.ones((3, 5)), "value": np.ones((3, 4))}
    own = replace(PORTABLE, attention=attention, companions={})
    verdict = judge(own, own_case("SHAPE-6", arrays, misuse=Misuse("key")))
    assert (verdict.status, verdict.raised.valid) == ("error", True)
    text = verdict_text(verdict)
    assert "\nthe same call with valid arguments raised TypeError: four axes\n" in text
    assert "verdict_line(judge(" in text, "the reproduction makes both calls"
    assert from_json(to_json(verdict)) == verdict


def test_wrong_gradients_are_named_if_others_are_right():
    case = find("gradients-multi-query-float32")

    right = PORTABLE.companions["attention_vjp"]
    for factors, said in (((1, 2, 1), ("d_key",)), ((1, 2, 2), ("d_key", "d_value"))):

        @wraps(right)
        def gradients(*arrays, factors=factors, **options):
            every = right(*arrays, **options)
            return tuple(array * factor for array, factor in zip(every, factors, strict=True))

        verdict = judge(replace(PORTABLE, companions={"attention_vjp": gradients}), case)
        assert (verdict.difference.output, verdict.difference.outputs) == ("d_key", said)
        assert {*said, *verdict.difference.right} == {"d_query", "d_key", "d_value"}
        assert from_json(to_json(verdict)) == verdict


def test_wrong_and_right_outputs_are_named_but_no_weights_that_are_not_returned():
    case = own_case("SOFT-1", PROBLEM.arguments)
    off = judge(giving(lambda o, e, w: (o, e + 1, w)), case).difference
    assert (off.outputs, off.right) == (("lse",), ("output", "weights"))

    def attention(query, key, value, *, mask=None, return_lse=False):
        output, lse = PORTABLE.attention(query, key, value, mask=mask, return_lse=True)
        return (output * 2, lse) if return_lse else output * 2

    off = judge(replace(PORTABLE, attention=attention), case).difference
    assert (off.outputs, off.right) == (("output",), ("lse",))


@pytest.mark.parametrize(("message", "named"), [("k: expected depth 4", True), ("keys do not fit", False)])
def test_an_error_may_name_the_argument_as_the_function_does(message, named):
    def kernel(q, k, v):
        if q.shape[-1] != k.shape[-1]:
            raise ValueError(message)
        return PORTABLE.attention(q, k, v)

    convention = Convention({"query": "q", "key": "k", "value": "v"})
    backend = replace(PORTABLE, attention=adapt("m:kernel", kernel, convention, np))
    arrays = {"query": np.ones((2, 4)), "key": np.ones((3, 5)), "value": np.ones((3, 4))}
    verdict = judge(backend, own_case("ERR-12", arrays, misuse=Misuse("key")))
    assert verdict.status == ("pass" if named else "should not met")


def test_what_may_be_refused_is_judged_where_it_is_not():
    """A bias of another dtype is refused, or taken at its value."""
    bias = np.round(np.random.default_rng(0).normal(size=PROBLEM.shape) * 1024) / 1024 + 100000
    case = own_case("ERR-14", PROBLEM.arguments | {"bias": bias}, misuse=Misuse("bias", allowed=True))

    def cutting(query, key, value, *, bias=None):
        short = None if bias is None else np.float32(np.float16(np.clip(bias, -60000, 60000)))
        return PORTABLE.attention(query, key, value, bias=short)

    def refusing(query, key, value, *, bias=None):
        if bias is not None and bias.dtype != query.dtype:
            raise ValueError("bias")
        return PORTABLE.attention(query, key, value, bias=bias)

    assert judge(replace(PORTABLE, attention=refusing), case).status == "pass"
    verdict = judge(replace(PORTABLE, attention=cutting), case)
    assert (verdict.status, verdict.rule) == ("fail", "ERR-14")


def test_cases_ask_for_what_their_rules_are_about():
    # One about the lse alone is not asked of who returns none.

    def plain(query, key, value):
        return PORTABLE.attention(query, key, value)

    mute = replace(PORTABLE, attention=plain)
    case = replace(find_case("softmax-000"), rules=("SOFT-1", "SOFT-6", "NUM-5"))
    assert applicable_rules(PORTABLE, case) == ("SOFT-1", "SOFT-6")
    assert applicable_rules(mute, case) == ("SOFT-1",)
    with pytest.raises(Missing, match="does not return what SOFT-6 is about"):
        applicable_rules(mute, replace(case, rules=("SOFT-6",)))
    half = replace(case, arguments=in_dtype(case.arguments, "float16"))
    assert applicable_rules(mute, half) == ("SOFT-1", "NUM-5")
    assert rules_with_outputs(("SHAPE-7", "SOFT-7"), ()) == ("SHAPE-7",)
    relation = find("numerics-call-repeated-plain-1-float32")
    wide = replace(relation, rules=("NUM-9", "SOFT-6"))
    assert wide.applicable_rules(without(PORTABLE, "return_lse")) == ("NUM-9",)
    assert wide.applicable_rules(PORTABLE) == ("NUM-9", "SOFT-6")


def test_weights_that_are_not_returned_are_told_to_be_seen_otherwise():
    def flat(query, key, value, *, mask=None):
        weights = np.zeros((*query.shape[:-1], key.shape[-2]), query.dtype)
        weights[..., 0] = 1
        return weights @ value

    same = {"value": np.ones_like(PROBLEM.value)}  # any weights give the right output
    own = replace(PORTABLE, name="own", attention=flat, companions={})
    verdict = judge(own, own_case("SOFT-1", PROBLEM.arguments | same))
    assert (verdict.status, verdict.difference.output, verdict.probed) == ("fail", "weights", True)
    verdict = judge(giving(lambda o, e, w: (o, e, w + 1)), own_case("SOFT-1", PROBLEM.arguments))
    assert (verdict.difference.output, verdict.probed) == ("weights", False)


def test_a_variant_that_has_the_values_of_the_standard_is_not_named():
    """In this case heads that are tiled give the same lse: one that is off by little is not theirs."""
    case = replace(find_case("scores-zero-scale"), rules=("SOFT-6",))
    off = 4 * budgets_of(PORTABLE, case)["lse"]

    def attention(query, key, value, *, scale=None, return_lse=False):
        output, lse = PORTABLE.attention(query, key, value, scale=scale, return_lse=True)
        return (output, lse + off) if return_lse else output

    verdict = judge(replace(PORTABLE, attention=attention), case)
    assert (verdict.status, verdict.difference.output) == ("fail", "lse")
    assert (verdict.rule, verdict.variant) == ("SOFT-6", "")


def test_nan_in_an_unused_place_is_no_empty_row_gone_wrong():
    """A kernel that multiplies by a weight of 0 meets a SHOULD less, and breaks no MUST."""

    def multiplying(query, key, value, *, mask=None, key_lengths=None):
        output = PORTABLE.attention(query, key, value, mask=mask, key_lengths=key_lengths)
        return np.where(np.isnan(value).any(axis=-2, keepdims=True), np.nan, output)

    own = replace(PORTABLE, name="own", attention=multiplying, companions={})
    case = find_case("masking-nan-empty")
    verdict = judge(own, replace(case, arguments=in_dtype(case.arguments, "float32")))
    assert (verdict.status, verdict.rule) == ("should not met", "MASK-13")


def test_a_row_that_a_dialect_of_causality_leaves_empty_is_a_mean_on_its_route():
    """Aligned at the last key, the first of more queries than keys are empty."""
    random = np.random.default_rng(1)
    query, key, value = (random.normal(size=(count, 4)).astype(np.float32) for count in (5, 3, 3))
    case = own_case("MASK-3", {"query": query, "key": key, "value": value, "is_causal": True})
    of_all, by_route = (
        replace(PORTABLE, dialect={"MASK-3": "bottom-right", "MASK-6": said})
        for said in ("uniform", "mask: uniform, bias: nan")
    )
    allowed = budgets_of(by_route, case)["output"]
    assert (allowed[:2] > 0).all()
    assert np.array_equal(allowed, budgets_of(of_all, case)["output"])
