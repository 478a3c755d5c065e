"""Statements of the text about rare calls: what zeros, infinities, integers and shapes of two axes mean."""

from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16
from tests_support import own_case, whole_suite

import attnspec
from attnspec import rules
from attnspec.backends import load
from attnspec.conformance import registry
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import LSES, is_real
from attnspec.conformance.judge.judge import judge_outputs
from attnspec.conformance.relations.rounding_bias import signed_mean
from attnspec.dtypes import FORMATS
from attnspec.reference import attention, function
from attnspec.reference.budget.arithmetic import PLAIN, Arithmetic
from attnspec.reference.budget.attention import merge_error
from attnspec.reference.budget.budget import budget
from attnspec.reference.errors import ArgumentError
from attnspec.reference.exact.evaluate import evaluate as exactly
from attnspec.reference.rational.evaluate import evaluate

PAGES = Path(attnspec.__file__).parent
#: The rules about copies, whose results are compared with a budget of 0. Others about bits compare bits.
COPIES = {"CACHE-1", "CACHE-4", "HEAD-3", "HEAD-4"}


def test_to_the_last_bit_leaves_the_sign_of_a_zero_open():
    assert {rule.id for rule in rules() if "to the last bit" in rule.sentence} == COPIES
    words = " ".join((PAGES / "README.md").read_text("utf-8").split())
    assert (
        "*to the last bit* requires the same number, NaN and infinity included; a zero may have either"
        in words
    )
    one, other = np.array([0.0, 5e-324]), np.array([-0.0, 5e-324])
    assert compare("split", one, other, np.zeros(2), "float64") == 0


@pytest.mark.parametrize(("value", "expected"), [(np.nan, np.nan), (1.0, 0.0)])
def test_where_only_a_sink_is_finite_nan_in_a_value_stays(value, expected):
    call = {"query": np.array([[np.inf]]), "key": np.array([[-1.0]]), "value": np.array([[value, 2.0]])}
    call |= {"sinks": np.zeros(1), "return_lse": True}
    exact = evaluate("attention", call)
    for output, lse in (attention(**call), (exact["output"], exact["lse"])):
        np.testing.assert_array_equal(output, [[expected, 0.0]])
        assert lse == 0


@pytest.mark.parametrize("maximum", [np.nan, 7.0])
def test_a_maximum_of_scores_of_nan_is_not_compared(maximum):
    """SOFT-8 does not define it, and the row stays NaN."""
    ones = np.ones((2, 1))
    call = {"query": np.array([[np.nan], [0.0]]), "key": ones, "value": ones, "return_max": True}
    case = own_case("SOFT-8", call)
    given = {"output": np.array([[np.nan], [1.0]]), "max": np.array([maximum, 0.0])}
    portable = load("numpy-portable")
    assert judge_outputs(portable, case, given).status == "pass"
    assert judge_outputs(portable, case, given | {"max": np.array([maximum, 7.0])}).status == "fail"


def test_the_gradient_of_the_scale_over_ranks_is_exactly_zero_for_cotangents_of_zero():
    """GRAD-13: the absolute error of a sum of parts is that of parts that are not 0."""
    ones, shards = np.ones((2, 4, 1), np.float32), np.array([0, 2, 4])
    arrays = dict.fromkeys(("query", "key", "value"), ones) | {"query_shards": shards, "key_shards": shards}
    calls = [arrays | {"return_d_scale": True, "d_output": x} for x in (0 * ones, ones)]
    zero, some = (budget("sharded_attention_vjp", call, "float32") for call in calls)
    assert zero["d_scale"] == 0 < some["d_scale"]


def test_a_part_of_a_gradient_of_another_dtype_is_rounded_to_its_own():
    """The section Shards: `cast` is also 1 where the dtype of the gradient is shorter than the first."""
    wide = Arithmetic(FORMATS["float32"], FORMATS["float32"], FORMATS["float32"], "full", PLAIN)
    (own, _), (short, _) = merge_error(2, wide), merge_error(2, wide, "float16")
    assert short - own == 2.0**-11


def test_integers_of_the_range_of_the_text_are_used_at_their_values():
    call = {"query": np.zeros((1, 1)), "key": np.zeros((2, 1)), "value": np.array([[1.0], [3.0]])}
    ends = {"query_positions": np.array([2**61]), "key_positions": np.array([2**62, 2**61 - 2])}
    for window, expected in (((None, 1), 3), ((1, None), 1), ((None, 2**61), 2), ((None, 2**61 - 1), 3)):
        options = {**ends, "window": window}
        assert attention(**call, **options) == expected == evaluate("attention", call | options)["output"]


@pytest.mark.parametrize("operation", ["sharded_attention", "quantized_listed_attention"])
def test_forms_without_an_axis_of_heads_are_refused(operation):
    one, ends = np.ones((2, 1)), np.array([0, 2])
    call = {"query": one, "key": one, "value": one, "query_shards": ends, "key_shards": ends}
    if operation != "sharded_attention":
        codes = np.ones((2, 1), np.int8)
        call = {"query": one, "key_codes": codes, "value_codes": codes, "key_indices": np.zeros((2, 1), int)}
    with pytest.raises(ArgumentError, match="query: expected shape"):
        function(operation)(**call)


@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        ("positions", "| `dynamic` |", "| `dynamics` |"),
        ("README", "either sign", "one sign"),
        ("README", f"attnspec {attnspec.__version__}", "attnspec 1"),
    ],
)
def test_every_change_of_a_normative_page_changes_its_digest(monkeypatch, page, before, after):
    """A table that a rule announces is a part of the text, and the version is not."""
    known, read = registry.digests(), Path.read_text

    def changed(path, *arguments, **options):
        text = read(path, *arguments, **options)
        return text.replace(before, after) if path.stem == page else text

    monkeypatch.setattr(Path, "read_text", changed)
    assert (registry.digests()["text"] == known["text"]) == (after == "attnspec 1")


@pytest.mark.parametrize(
    ("operation", "shapes", "options", "shape"),
    [
        ("multi_head_attention", [(0, 2), *[(2, 2)] * 4], {"heads": 1}, (0, 2)),
        ("multi_head_attention", [(3, 0, 2), *[(2, 2)] * 4], {"heads": 1}, (3, 0, 2)),
        ("multi_head_attention", [(0, 3, 2), *[(2, 2)] * 4], {"heads": 1}, (0, 3, 2)),
        ("self_attention", [(0, 3, 2), (2, 2), (2, 2), (2, 5)], {}, (0, 3, 5)),
        ("projection", [(0, 2, 3), (5, 2)], {"convention": "column"}, (0, 5, 3)),
        ("gather_pages", [(0, 1, 3, 4)], {"block_table": np.full((2, 2), -1)}, (2, 1, 6, 4)),
        ("gather_pages", [(5, 1, 3, 4)], {"block_table": np.full((1, 0), -1)}, (1, 1, 0, 4)),
        ("dequantize_blocks", [(0, 2), (0, 2, 32)], {"packed": np.ones((0, 2, 32), np.uint8)}, (0, 64)),
        ("dequantize", [(0, 1)], {"codes": np.ones((2, 0, 4), np.int8)}, (2, 0, 4)),
    ],
)
def test_empty_axes_give_empty_results(operation, shapes, options, shape):
    arrays = dict(zip(attnspec.OPERATIONS[operation].arrays, map(np.ones, shapes), strict=False)) | options
    values = evaluate(operation, arrays), budget(operation, arrays, "float64")
    results = [x for each in values for x in each.values()]
    results += [x.values for x in exactly(operation, arrays).values()]
    assert {x.shape for x in (*results, function(operation)(**arrays))} == {shape}


def test_the_positions_of_an_entry_of_no_page_are_not_compared():
    """CACHE-4: they may hold any numbers."""
    call = {"pages": np.arange(6.0).reshape(3, 1, 1, 2), "block_table": np.array([1, -1])}
    allowed = budget("gather_pages", call, "float64")["gathered"]
    exact = evaluate("gather_pages", call)["gathered"]
    for number, verdict in ((np.nan, 0.0), (7.0, 0.0)):
        got = np.array([[[2.0, 3.0], [number, number]]])
        assert compare("gathered", got, exact, allowed, "float64") == verdict
        assert compare("gathered", got[:, ::-1], exact, allowed, "float64") != 0


@pytest.mark.parametrize("scales", [(2, 1), (3, 1)])
def test_more_scales_than_codes_are_refused_on_an_empty_axis(scales):
    with pytest.raises(ArgumentError, match="QUANT-9"):
        function("dequantize")(np.ones(scales), np.ones((2, 0, 4), np.int8))


@pytest.mark.parametrize("name", ["query_offset", "is_causal", "dropout_rate"])
def test_none_is_no_value_of_an_option_with_another_default(name):
    one, starts = np.ones((1, 1, 1)), np.array([0, 1])
    call = {"query": one, "key": one, "value": one, "query_starts": starts, "key_starts": starts}
    with pytest.raises(ArgumentError, match=name):
        function("packed_attention")(**call, **{name: None})


@pytest.mark.parametrize(
    ("dtype", "profile", "score", "defined"),
    [
        ("float32", "", -80, True),
        ("float32", "", -110, False),
        ("float16", "", -9, True),
        ("float16", "", -16, False),
        ("float32", "fp8", -5, True),
        ("float32", "fp8", -16, False),
    ],
)
@pytest.mark.parametrize("operation", ["attention", "sharded_attention"])
def test_an_infinite_value_of_a_weight_that_may_underflow_is_not_compared(
    operation, dtype, profile, score, defined
):
    """NUM-13: 0 times infinity is NaN. QUANT-11 permits weights that are rounded to 0 earlier."""
    call = {"query": [[[1.0]]], "key": [[[0], [score]]], "value": [[[1.0, 1.0, 1.0], [np.inf, np.nan, 2.0]]]}
    call = {name: np.array(x, dtype) for name, x in call.items()} | {"scale": 1.0}
    ends = {"query_shards": np.array([0, 1]), "key_shards": np.array([0, 2])}
    call |= ends if operation != "attention" else {}
    allowed = budget(operation, call, dtype, profile=profile)["output"]
    np.testing.assert_array_equal(np.isinf(allowed), [[[not defined, False, False]]])
    call["query"] = np.full((1, 1, 1), np.nan, dtype)  # the row is NaN (NUM-11)
    assert not np.isinf(budget(operation, call, dtype, profile=profile)["output"]).any()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_decoded_power_of_two_is_not_its_predecessor(dtype):
    scales, codes = np.ones(1, dtype), np.array([[1, -4, 3]])
    allowed = budget("dequantize", {"scales": scales, "codes": codes}, dtype)["dequantized"]
    exact = np.array([[1.0, -4.0, 3.0]])
    for towards in (0, 100 * exact):
        got = np.nextafter(exact.astype(dtype), np.asarray(towards, dtype))
        assert (np.abs(got.astype(float) - exact) > allowed).all()


def test_weights_of_a_shard_may_be_rounded_before_they_are_scaled():
    rng = np.random.default_rng(0)
    call = {name: rng.normal(size=(1, 16, 4)).astype(bfloat16) for name in ("query", "key", "value")}
    ends = dict.fromkeys(("query_shards", "key_shards"), np.array([0, 8, 16]))
    exact = evaluate("attention", call)["weights"]
    own = exact.reshape(1, 16, 2, 8)
    share = own.sum(axis=-1, keepdims=True).astype(np.float32)
    got = ((own / share).astype(bfloat16).astype(np.float32) * share).astype(bfloat16).reshape(exact.shape)
    plain, sharded = (
        budget(operation, call | more | {"return_weights": True}, "bfloat16", accuracy="cast")["weights"]
        for operation, more in (("attention", {}), ("sharded_attention", ends))
    )
    off = np.abs(got.astype(float) - exact)
    assert (off > plain).any()
    assert (off <= sharded).all()
    assert (sharded < 2 * plain).all()


def test_a_range_of_yarn_that_rounding_moves_is_not_judged():
    call = {"features": np.zeros((1, 16)), "scaling": "yarn", "factor": 4.0, "original_length": 2048}
    call |= {"length": 4096, "base": 10000.0}
    for beta, judged in ((32.594932345220165, False), (32.5, True)):
        allowed = budget("rotary_frequencies", call | {"beta_fast": beta}, "float64")["inverse_frequencies"]
        assert np.isfinite(allowed).all() == judged


def test_a_bias_of_the_lowest_number_is_in_range():
    """In a row of such keys alone it disallows none (MASK-5), also in a kernel that computes in base 2."""
    one, bias = np.ones((2, 1), np.float32), np.full(2, np.finfo(np.float32).min)
    allowed = budget("attention", {"query": 0 * one, "key": one, "value": one, "bias": bias}, "float32")
    assert all(np.isfinite(array).all() for array in allowed.values())


@pytest.mark.parametrize("main", ["SELECT-1", "SELECT-3", "SELECT-5", "SELECT-6"])
def test_a_list_that_breaks_a_should_alone_is_no_failure(main):
    call = {"scores": np.array([[2, -np.inf, 1, np.nan]], np.float32), "top_k": 2}
    case = own_case(main, call, "select_keys")
    lists = ([0, 3], "should not met", "SELECT-6"), ([1, 2], "fail", "SELECT-1"), ([2, 0], "pass", "")
    for listed, status, rule in lists:
        verdict = judge_outputs(load("numpy-portable"), case, {"key_indices": np.array([listed], np.int32)})
        expected = main if status == "fail" and main in ("SELECT-1", "SELECT-3") else rule
        assert (verdict.status, verdict.rule) == (status, expected)


def test_results_that_depend_on_nan_and_have_no_rule_are_not_compared():
    tokens, eye = np.array([[np.nan, 1.0], [1.0, 1.0]]), np.eye(2)
    weights = dict.fromkeys(("query_weight", "key_weight", "value_weight"), eye)
    for operation, call, defined in (
        ("projection", {"tokens": tokens, "weight": eye}, [[0, 0], [1, 1]]),
        ("rotary", {"features": tokens}, [[0, 0], [1, 1]]),
        ("self_attention", {"tokens": tokens[::-1], "is_causal": True} | weights, [[1, 1], [0, 0]]),
        ("merge_partials", {"outputs": tokens[None], "lses": np.zeros((1, 2))}, [[0, 1], [1, 1]]),
        ("merge_partials", {"outputs": tokens[None], "lses": np.array([[np.nan, np.inf]])}, [[1, 1], [1, 1]]),
    ):
        (allowed, *_) = budget(operation, call, "float64").values()
        np.testing.assert_array_equal(np.isfinite(allowed), defined, operation)


def test_a_disallowed_value_whose_product_overflows_leaves_a_gradient_its_budget():
    """GRAD-9: any finite number at a disallowed place."""
    call = {"query": np.ones((1, 1)), "key": np.array([[1.0], [2.0], [3.0]]), "d_output": np.array([[10.0]])}
    call |= {"value": np.array([[1.0], [2.0], [1e308]]), "mask": np.array([True, True, False])}
    less = {name: call[name][:2] for name in ("key", "value", "mask")}
    whole, part = (budget("attention_vjp", x, "float64") for x in (call, call | less))
    assert whole["d_query"] == part["d_query"] > 0


def test_new_positions_of_another_dtype_are_rounded_once():
    """CACHE-1: the cache of float16 holds the number that is nearest."""
    call = {"cache": np.ones((2, 2), np.float16), "new": np.array([[0.1, 0.5]], np.float32), "lengths": 1}
    exact = evaluate("append_cache", call)["appended"]
    allowed = budget("append_cache", call, "float16")["appended"]
    got = exact.astype(np.float16)
    assert compare("appended", got, exact, allowed, "float16") <= 1
    for element in np.ndindex(2, 2):
        for towards in (0, 2):
            other = got.copy()
            other[element] = np.nextafter(got[element], np.float16(towards))
            assert not isinstance(compare("appended", other, exact, allowed, "float16"), float)


@pytest.mark.parametrize("operation", ["scores", "alibi_bias"])
def test_no_heads_are_refused_or_give_an_empty_result(operation):
    none = {"query": np.ones((0, 2, 3)), "key": np.ones((0, 4, 3))}
    assert [x.shape for x in evaluate(operation, none).values()] == [(0, 2, 4)]
    with pytest.raises(ArgumentError, match="ERR-17"):
        function(operation)(**none)


@pytest.mark.parametrize(
    ("dtype", "largest"), [("float16", 65504), ("float32", float(np.finfo(np.float32).max))]
)
def test_an_error_within_the_budget_may_reach_infinity_in_half_precision(dtype, largest):
    """NUM-3. An lse of the lowest bias stays finite, so that its key is seen to be allowed (MASK-5)."""
    half = dtype == "float16"
    exact, near = np.full(1, float(largest)), 4 * largest * 2.0 ** -FORMATS[dtype].digits
    for got, budgets, passes in ((np.inf, near, half), (-np.inf, near, False), (np.inf, near / 4, False)):
        compared = compare("output", np.full(1, got, dtype), exact, np.full(1, budgets), dtype)
        assert isinstance(compared, float) == passes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_truncated_output_exceeds_the_signed_mean_with_budgets_of_the_class_full(dtype):
    """NUM-6: with those of the class `cast`, nearly every truncated result would be within the bound."""
    pages = ("numerics", "signed mean"), ("gradients", "signed mean of a gradient")
    for page, section in pages:
        text = (PAGES / f"{page}.md").read_text("utf-8").partition(f"### The {section}\n")[2]
        assert "_budget` is that of the class `full` here" in text.partition("```")[0].replace("\n", " ")
    rng, kind = np.random.default_rng(0), FORMATS[dtype]
    size = (48, 32)
    call = {"query": rng.normal(size=size), "key": rng.normal(size=size), "value": 1 + rng.random(size)}
    call = {name: x.astype(bfloat16 if dtype == "bfloat16" else dtype) for name, x in call.items()}
    exact = evaluate("attention", call)
    unit = 2.0 ** (1 - kind.digits)  # of numbers from 1 to 2
    truncated = np.floor(exact["output"] / unit) * unit
    cast = (exact["weights"], call["value"].astype(float))
    budgets = [budget("attention", call, dtype, accuracy=name)["output"] for name in ("full", "cast")]
    shares = [signed_mean(truncated, exact["output"], x, dtype=dtype, cast=cast) for x in budgets]
    assert shares[0] > 1 > shares[1]


def test_every_call_with_an_array_of_another_dtype_may_be_refused():
    """ERR-1 and ERR-14: calls that are refused for another fault, and copies of an lse, are no such calls."""
    cases = [case for item in whole_suite() for case in item.calls]
    mixed = [
        case
        for case in cases
        if len({x.dtype for name, x in case.arguments.items() if is_real(x) and name not in LSES}) > 1
    ]
    assert {case.operation for case in mixed} >= {"attention", "quantized_attention", "paged_attention"}
    assert [case.id for case in mixed if case.misuse is None] == []


def test_gradients_of_heads_of_a_latent_may_be_added_in_the_storage_dtype():
    """NUM-5 and the section Gradients of projections: a sum of 512 equal parts may be half of it."""
    rng, of_all = np.random.default_rng(0), ("latent", "key_rotary")
    shapes = [(1, 3, 2), (1, 3, 2), (5, 4), (5, 2), (1, 4, 2), (1, 4, 3), (1, 3, 3)]
    names = attnspec.OPERATIONS["latent_attention_vjp"].arrays
    head = {name: rng.normal(size=shape).astype(bfloat16) for name, shape in zip(names, shapes, strict=True)}
    call = {name: x if name in of_all else np.repeat(x, 512, axis=0) for name, x in head.items()}
    exact = evaluate("latent_attention_vjp", head)
    allowed = budget("latent_attention_vjp", call, "bfloat16", accuracy="cast")
    for name in ("d_latent", "d_key_rotary"):
        total = sum([exact[name].astype(bfloat16)] * 512).astype(float)
        assert (np.abs(total - 512 * exact[name]) > 0.4 * np.abs(total)).any()
        assert (np.abs(total - 512 * exact[name]) <= allowed[name]).all()


@pytest.mark.parametrize(
    ("profile", "share", "rate", "defined"),
    [("fp8", 2e-5, 0, True), ("fp8", 2e-6, 0, False), ("", 0.8, 0.5, False), ("", 1.2, 0.5, True)],
)
def test_the_least_weight_of_an_infinite_value_is_that_of_its_row(profile, share, rate, defined):
    """NUM-13: before dropout divides the weight, in parts of the smallest normal number without a profile."""
    share = share if profile else share * 2.0**-126
    value, bias = np.ones((200, 1), np.float32), np.zeros((2, 200), np.float64)
    value[7], bias[0], bias[1, 7] = np.inf, [0, *[-30] * 199], np.log(200 * share)
    call = {"query": np.zeros((2, 1)), "key": np.zeros((200, 1)), "value": value, "bias": bias}
    call |= {"dropout_mask": np.ones((2, 200), bool), "dropout_rate": rate} if rate else {}
    allowed = budget("attention", call, "float32", profile=profile)["output"]
    assert np.isfinite(allowed[1, 0]) == defined


def test_half_the_least_number_is_decoded_as_either_neighbour():
    """QUANT-1: both 0 and the least number are nearest."""
    call = {"scales": np.array([2.0**-24], np.float16), "codes": np.array([[1]]), "encoding": "e2m1fn"}
    allowed = budget("dequantize", call, "float16")["dequantized"]
    assert allowed.tolist() == [[2.0**-25]]


@pytest.mark.parametrize(
    ("scale", "dtype", "code"), [(636.0, "float16", 103), (135 * 2.0**114, bfloat16, 121)]
)
def test_a_decoded_number_that_rounds_to_the_largest_is_not_infinite(scale, dtype, code):
    call = {"scales": np.array([scale], dtype), "codes": np.array([[code, code + 1]])}
    case = own_case("QUANT-1", call, "dequantize")
    right = function("dequantize")(**call, dtype=dtype)
    assert np.isfinite(right.astype(float)).tolist() == [[True, False]]
    for given, status in ((right, "pass"), (np.full_like(right, np.inf), "fail"), (-right, "fail")):
        assert judge_outputs(load("numpy-portable"), case, {"dequantized": given}).status == status


@pytest.mark.parametrize("name", ["query_offset", "query_lengths", "key_lengths"])
def test_an_array_without_axes_is_the_integer_that_it_holds(name):
    """Kinds of the chapter notation: a call takes it as such, or rejects it."""
    x = np.arange(24.0).reshape(2, 1, 3, 4)
    call = {"query": x, "key": x, "value": x, "is_causal": True}
    taken = [attention(**(call | {name: given})) for given in (np.array(2), 2)]
    np.testing.assert_array_equal(*taken)
