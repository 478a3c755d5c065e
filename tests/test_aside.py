"""Causes beside the logic: a lower precision, traces of weights, exceptions. None hides another cause."""

from dataclasses import replace

import numpy as np
import pytest

from attnspec import find_case
from attnspec.backends import load
from attnspec.conformance.attribution.causes import findings, message_words
from attnspec.conformance.attribution.diagnosis import diagnose
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.finding import cause_lines, finding_text
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.verdict import Difference, Raise, Verdict
from tools.diagnosis import golden_vectors

PORTABLE = load("numpy-portable")
WRONG = Difference("value", "output", (0,), 1.5, 1.0, share=4e5)
SLIGHT = Difference("value", "output", (0,), 1.01, 1.0, share=1.2)
TRACE = Difference("value", "weights", (0,), 1.6e-28, 0.0)


def verdicts(number, rule, dtype="float32", difference=WRONG, *, stem="", **fields):
    """Failures that differ in their case alone. A status of "pass" has no difference."""
    fields = {"status": "fail", "rule": rule} | fields
    if fields["status"] == "pass":
        fields |= {"rule": "", "difference": None}
    else:
        fields["difference"] = difference
    return [
        Verdict("b", f"{stem or rule}-{n}-{dtype}", "g", (rule,), dtype=dtype, **fields)
        for n in range(number)
    ]


def half(number, rule="MASK-3", dtype="float16", **fields):
    return verdicts(number, "NUM-5", dtype, SLIGHT, precision=dtype, stem=rule, **fields)


def passing(number, *traits):
    return verdicts(number, "SOFT-1", status="pass", traits=traits, stem=f"passing {traits}")


def raising(number, message, rule="SHAPE-5", **fields):
    raised = Raise("ValueError", message, "/m.py", 3, "f")
    return verdicts(number, rule, difference=None, status="error", raised=raised, stem=message, **fields)


def found(*lists):
    every = [one for each in lists for one in each]
    made = findings([one for one in every if one.bad], every)
    return [(cause.kind, cause.rule, len(cause.failures)) for cause in made]


def first(*lists):
    every = [one for each in lists for one in each]
    return findings([one for one in every if one.bad], every)[0]


def test_a_causal_mask_dropped_in_float32_stands_before_a_slight_lack_of_precision_in_float16():
    dropped = verdicts(9, "MASK-3", traits=("is_causal",))
    slight = half(30, traits=("is_causal",)), half(30, "SOFT-1")
    causal = passing(20, "mask")
    assert found(dropped, *slight, causal) == [("", "MASK-3", 9), ("precise", "NUM-5", 60)]
    assert list(cause_lines(first(dropped, *slight, causal))) == [
        "fails: 9 of 39 calls with `is_causal`, 0 of 50 others"
    ]


def test_the_shown_call_of_a_cause_is_in_a_longer_dtype_if_it_is_as_small():
    both = [*verdicts(2, "MASK-3", "bfloat16", stem="a"), *verdicts(2, "MASK-3", stem="b")]
    assert findings(both)[0].verdict.dtype == "float32"


def test_a_call_that_is_as_wrong_in_float32_is_no_lack_of_precision():
    alike = replace(SLIGHT, share=1e5)
    assert found(half(9), verdicts(9, "MASK-3", difference=alike)) == [("", "MASK-3", 18)]
    smaller = replace(alike, got=1.0001)
    assert found(half(9), verdicts(9, "NUM-3", difference=smaller, stem="MASK-3"))[-1] == (
        "precise",
        "NUM-5",
        9,
    )


def test_a_bug_in_half_precision_alone_is_no_lack_of_precision():
    """Some of its errors are small by chance."""
    wrong = verdicts(20, "MASK-3", "float16", stem="other", traits=("is_causal",))
    assert found(wrong, half(5, traits=("is_causal",)), passing(20)) == [("", "MASK-3", 25)]


def test_slight_errors_and_an_overflow_belong_to_the_lack_of_precision():
    golden_vector = verdicts(3, "SOFT-1", "float16", SLIGHT)
    nan = Difference("pattern", "output", (0,), float("nan"), 1.0)
    large = verdicts(3, "SOFT-2", "float16", nan, traits=("large scores",))
    assert found(half(9), golden_vector, large) == [("precise", "NUM-5", 15)]
    everywhere = verdicts(3, "SOFT-2", "float32", nan, traits=("large scores",))
    assert found(half(9), large, everywhere) == [("", "SOFT-2", 6), ("precise", "NUM-5", 9)]


def test_float64_computed_in_float32_is_a_cause_of_its_own():
    off = Difference("value", "output", (0,), 1.0 + 1e-7, 1.0, share=1e8)
    wide = verdicts(9, "NUM-2", "float64", off, precision="float32", stem="MASK-3")
    assert found(half(9), wide, verdicts(5, "MASK-1", traits=("mask",)), passing(9)) == [
        ("", "MASK-1", 5),
        ("precise", "NUM-2", 9),
        ("precise", "NUM-5", 9),
    ]


def test_the_largest_error_of_each_dtype_is_said():
    cause = first(half(9), half(9, dtype="bfloat16", traits=("mask",)))
    largest = "up to 1.2 budgets in bfloat16, up to 1.2 budgets in float16"
    assert next(cause_lines(cause)) == f"all failures are due to the precision: {largest}"


def test_traces_of_weights_are_one_cause_and_hide_no_other():
    traces = [one for n in range(8) for one in verdicts(5, f"MASK-{n + 1}", difference=TRACE)]
    nan = Difference("pattern", "output", (0,), float("nan"), 0.0)
    empty = verdicts(9, "MASK-6", difference=nan, traits=("empty row",))
    assert found(traces, empty, passing(20)) == [("", "MASK-6", 9), ("traces", "MASK-5", 40)]
    (cause,) = findings(traces)
    assert next(cause_lines(cause)).startswith("all errors are at most 1.6e-28")


def test_traces_of_allowed_keys_are_those_of_the_softmax():
    near = replace(TRACE, expected=1e-40)
    assert found(verdicts(9, "MASK-1", difference=TRACE), verdicts(9, "NUM-3", difference=near)) == [
        ("traces", "SOFT-1", 18)
    ]


def test_few_small_errors_beside_many_large_ones_are_no_traces():
    wrong = verdicts(90, "MASK-1", traits=("mask",))
    assert found(wrong, verdicts(6, "MASK-5", difference=TRACE, traits=("mask",)), passing(20)) == [
        ("", "MASK-1", 96)
    ]


def test_small_weights_in_half_precision_are_no_traces():
    tiny = Difference("value", "weights", (0,), 6e-29, 1e-30, share=9.0)
    assert found(verdicts(9, "NUM-5", "bfloat16", tiny, precision="bfloat16")) == [("precise", "NUM-5", 9)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("shapes (6,1) (2,3) do not fit", "shapes (5,) () do not fit", True),
        ("no kernel for MLFloat16 [with T = Half]", "no kernel for double [with T = double]", True),
        ("scale must be greater than 0", "Q sequence length must be greater than 0", False),
    ],
)
def test_messages_are_compared_by_their_words(one, other, same):
    assert (message_words(one) == message_words(other)) == same


def test_exceptions_of_one_line_with_other_messages_are_other_causes():
    no_scale, no_keys = raising(9, "scale 0 is not positive"), raising(4, "no keys")
    right = passing(9)
    assert found(no_scale, no_keys, right) == [("raised", "SHAPE-5", 9), ("raised", "SHAPE-5", 4)]
    assert found(no_scale, raising(4, "scale -1.5 is not positive"), right) == [("raised", "SHAPE-5", 13)]


def test_messages_that_have_no_block_are_said():
    many = [raising(9 - n, f"no {name}") for n, name in enumerate(("mask", "bias", "keys", "rows", "heads"))]
    every = [one for each in (*many, passing(9)) for one in each]
    texts = [finding_text(one) for one in findings([one for one in every if one.bad], every)]
    assert len(texts) == 4
    (rest,) = [text for text in texts if "also: " in text]
    assert "raised ValueError: no rows" in rest
    assert "also: 5 cases: raised ValueError: no heads" in rest


def test_where_every_call_raises_one_block_says_so():
    refused = raising(3, "no enable_gqa", "ERR-2", traits=("refused",))
    changed = raising(3, "no enable_gqa", "NUM-4")
    every = [*raising(9, "no enable_gqa"), *refused, *changed]
    (example,) = findings(every, every)
    assert finding_text(example).startswith("every call raises\ncase ")
    assert "so do 14 more cases of b, under all rules" in finding_text(example)
    assert "raised ValueError: no enable_gqa" in finding_text(example)
    declined = replace(passing(1)[0], status="unsupported")
    assert len(findings(every, [*every, declined])) == 1
    assert len(findings(every, [*every, *passing(1)])) == 3, "one call has a result"
    other = raising(5, "no mask")
    assert [one.kind for one in findings([*every, *other], [*every, *other])] == ["always"] * 2


def test_where_every_call_raises_neither_table_nor_counts_are_shown():
    raised = raising(9, "no enable_gqa")
    report = Report(Results((Subject("b", "numpy", "2.4"),), tuple(raised), (Header("1", "whole", None),)))
    text = screen(report, width=80)
    assert text.endswith("\nb: does not conform: every call raises\n")
    assert "┏" not in text
    assert "┏" in screen(report, width=80, every=True)
    some = replace(report, results=replace(report.results, verdicts=(*raised, *passing(1))))
    assert "┏" in screen(some, width=80)
    assert "does not conform: 9 cases fail under 1 rule" in screen(some, width=80)


def test_where_every_call_raises_no_entry_is_named():
    def attention(query, key, value, *, mask=None):
        raise TypeError("no enable_gqa")

    assert diagnose(replace(PORTABLE, attention=attention, companions={}), golden_vectors()) is None


def test_several_causes_without_clear_traits_are_told_apart_where_all_calls_of_a_kind_fail():
    zero = verdicts(12, "SCORE-3", traits=("scale", "scale of 0"), ignored="scale")
    causal = verdicts(29, "MASK-4", traits=("is_causal",))
    right = passing(85, "is_causal"), passing(300, "scale"), passing(600, "mask"), passing(1, "scale of 0")
    assert found(zero, causal, *right) == [("", "SCORE-3", 12), ("", "MASK-3", 29)]
    empty = verdicts(60, "MASK-6", traits=("empty row",))
    assert found(empty, zero, causal, *right) == [("", "MASK-6", 60), ("", "SCORE-3", 12), ("", "MASK-3", 29)]
    text = list(cause_lines(first(zero, causal, *right)))
    assert text == ["fails: 12 of 13 calls with `scale` of 0, 29 of 1014 others"]


def test_an_option_that_lowers_scores_by_a_finite_number_is_one_cause():
    empty = verdicts(26, "MASK-6", traits=("empty row", "is_causal"))
    large = verdicts(6, "SOFT-2", traits=("is_causal", "large scores"))
    options = ("is_causal",), ("empty row",), ("large scores",)
    right = [passing(90, *one) for one in options]
    assert found(empty, large, *right) == [("", "MASK-6", 32)]
    other = verdicts(6, "SOFT-2", traits=("large scores", "mask"))
    assert found(empty, other, *right, passing(90, "mask")) == [("", "MASK-6", 26), ("", "SOFT-2", 6)]


def slightly_off(dtype, case, share):
    """Judge a golden vector of which each element is wrong by a share of a dtype's rounding."""

    def attention(query, key, value, *, scale=None, mask=None):
        output = PORTABLE.attention(query, key, value, scale=scale, mask=mask).astype(np.float64)
        return (output * (1 + share * float(np.finfo(np.float32).eps))).astype(query.dtype)

    return judge(replace(PORTABLE, attention=attention, companions={}), case)


def test_a_golden_vector_is_a_matter_of_precision_too():
    case = replace(find_case("softmax-000"), outputs=("output",))
    assert str(case.dtype) == "float64"
    verdict = slightly_off("float64", case, 0.5)
    assert (verdict.status, verdict.rule, verdict.precision) == ("fail", "NUM-2", "float32")
    budget = budgets_of(PORTABLE, case)["output"]
    few = 4 * float(np.max(budget)) / float(np.finfo(np.float32).eps)
    assert slightly_off("float64", case, few).rule == case.rules[0], "a few budgets are no float32"
    assert slightly_off("float64", case, 1e5).rule == case.rules[0]
