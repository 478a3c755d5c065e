"""Causes: failures with one cause are one finding, under the rule that describes it best."""

import re
from dataclasses import replace

import numpy as np
import pytest
from made_verdicts import OFF, PORTABLE, SLIGHT, WRONG, ended, fail, found, ok, table
from reported import ERROR, FAIL, PASS
from tests_support import own_case

from attnspec import find_case
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.common import common_of_sizes, plainer, traits_of
from attnspec.conformance.attribution.exceptions import message_words
from attnspec.conformance.attribution.finding import Common, Diagnosis, Twin
from attnspec.conformance.attribution.sizes import traits_of_sizes
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.dtypes import is_real
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.judge.traits import describe, numbers, traits
from attnspec.conformance.render.finding import finding_text
from attnspec.conformance.run.plan import index
from attnspec.conformance.suite import find
from attnspec.conformance.traits import (
    ANY_ORDER,
    CLOSED_LEFT,
    FAR,
    FEWER_QUERIES,
    GRADIENT,
    HUGE,
    LAST_BLOCK,
    ODD_HEADS,
    OTHER_STRIDES,
    RELATED,
    ROWS_PAST,
    SPECIAL,
    TILED,
    UNEQUAL_BLOCKS,
    UNPAIRED,
    repeated_inside,
)
from attnspec.conformance.verdict import Verdict, from_json, to_json


# A row has verdicts, and the kind, the rule and the number of failures of each finding.
@pytest.mark.parametrize(("judged", "signs"), table("causes"))
def test_failures_are_grouped_by_cause(judged, signs):
    words = [f"{cause.kind} {cause.rule} {len(cause.failures)}".strip() for cause in found(judged)]
    assert ["; ".join(words)] == signs["="]


def test_many_ways_to_end_are_few_findings_and_the_best_of_two_traits_is_named():
    causes = found(ok(1), *(ended(1, f"answered {n}") for n in range(90)))
    assert [(cause.kind, len(cause.failures)) for cause in causes] == [("ended", n) for n in (87, 1, 1, 1)]
    (cause,) = found(fail(6, "SCORE-5", "bias", "softcap"), ok(20))
    assert (cause.rule, cause.common.traits) == ("SCORE-5", ("softcap",))


@pytest.mark.parametrize(
    ("name", "trait"),
    [
        ("masking-finite-garbage-bias-and-largest-1-float32", HUGE),
        ("masking-window-wider-than-any-sequence-left-1-float32", FAR),
        ("errors-option-past-every-tile-window-1-float32", CLOSED_LEFT),
        ("sparsity-blocks-and-masks-is-causal-1-float32", UNEQUAL_BLOCKS),
    ],
)
def test_the_ends_of_ranges_and_unequal_blocks_are_traits(name, trait):
    case = next(case for case in find(name).calls if trait in traits(case))
    ordinary = {"window": (3, 0), "query_block": 4, "key_block": 4}
    given = {x: ordinary.get(x, np.clip(y, -9, 9) if is_real(y) else y) for x, y in case.arguments.items()}
    assert trait not in traits(replace(case, arguments=given))


def test_strides_of_key_and_value_and_lists_of_blocks_are_traits():
    (case,) = find("numerics-strides-column-major-and-key-1-float32").calls
    layouts = ({"key": "sliced"}, {"query": "sliced"}, {"key": "sliced", "value": "sliced"}, {})
    assert [OTHER_STRIDES in traits(replace(case, layout=layout)) for layout in layouts] == [
        True,
        *[False] * 3,
    ]
    (case,) = find("sparsity-lists-of-blocks-alone-3-float32").calls
    assert {LAST_BLOCK, ANY_ORDER} <= {*traits(case)}
    indices = np.sort(case.arguments["block_indices"], axis=-1)
    assert ANY_ORDER not in traits(replace(case, arguments=case.arguments | {"block_indices": indices}))
    whole = {name: case.arguments[name][..., :-1, :] for name in ("key", "value")}
    assert LAST_BLOCK not in traits(replace(case, arguments=case.arguments | whole))


def test_neither_nan_nor_rows_that_nothing_writes_explain_other_failures():
    compared = fail(2, "SCORE-4", "bias", RELATED)
    causes = found(fail(6, "NUM-11", SPECIAL), compared, ok(60), ok(2, SPECIAL))
    assert [(cause.rule, len(cause.failures)) for cause in causes] == [("SCORE-4", 2), ("NUM-11", 6)]
    past, others, right = fail(4, "PACK-3", ROWS_PAST), fail(6, "PACK-5"), ok(9)
    assert [len(cause.failures) for cause in found(past, others, right, ok(2, ROWS_PAST, GRADIENT))] == [6, 4]
    assert [len(cause.failures) for cause in found(past, others, right, ok(2, ROWS_PAST))] == [10]


@pytest.mark.parametrize(("others", "rule"), [(9, "GRAD-1"), (3, "GRAD-17")])
def test_a_gradient_of_zeros_that_most_other_calls_have_is_offered(others, rule):
    zeros = replace(OFF, output="d_key", outputs=("d_key",))
    (cause,) = found(fail(4, "GRAD-17", GRADIENT, difference=zeros), ok(others, GRADIENT), ok(40))
    assert cause.rule == rule


def test_a_trait_that_divides_the_calls_with_another_by_chance_is_left_out():
    pair, bad, good = Common(("bias", "window")), fail(3, "MASK-8", *("window", "bias")), ok(63)
    good += ok(2, "window", "bias")
    assert plainer(pair, bad, good + ok(2, "window")) == Common(("window",), 3, 7, 0, 63)
    others = ok(40, "window") + ok(40, "bias")
    assert plainer(pair, bad, good + others).traits == ("bias", "window")


def test_the_case_that_is_shown_has_the_traits_that_are_said():
    variant = {"variant": "exclusive-left"}
    several, plain = fail(9, "MASK-8", "gradient", **variant), fail(3, "MASK-8", name="plain", **variant)
    (cause,) = found(several, plain, ok(90))
    assert cause.common.traits == ("gradient",)
    assert "gradient" in traits_of(cause.failures[0])
    wide = fail(1, "GRAD-1", "gradient", "large scores", name="wide")
    short = fail(2, "GRAD-1", "gradient", dtype="bfloat16")
    right = [ok(5, "gradient", dtype="bfloat16"), ok(84, dtype="bfloat16"), ok(60, "gradient"), ok(300)]
    (cause,) = found(wide, short, *right)
    assert {*cause.common.traits} <= traits_of(cause.failures[0])
    assert not cause.further


def test_causes_of_one_call_are_merged_and_what_most_of_their_calls_have_is_counted():
    single, large = fail(1, "GRAD-1", "softcap"), fail(2, "GRAD-1", "large scores", name="large")
    short = fail(2, "GRAD-1", "is_causal", "window", dtype="bfloat16", name="short")
    first, second = (cause.common for cause in found(single, short, large, ok(90)))
    assert (first.traits, first.failing, first.others) == (("bfloat16",), 2, 1)
    assert second.traits == ("large scores",)


def test_what_only_special_numbers_show_comes_after_what_other_calls_show():
    causes = found(fail(29, "NUM-11", "special numbers"), fail(9, "SOFT-2", "large scores"), ok(99))
    assert [cause.rule for cause in causes] == ["SOFT-2", "NUM-11"]


@pytest.mark.parametrize(
    ("having", "rule"),
    [
        (("mask",), "MASK-1"),
        (("is_causal", "mask"), "MASK-4"),
        (("bias", "softcap"), "SCORE-5"),
        (("shared heads",), "HEAD-1"),
        (("empty row", "mask"), "MASK-6"),
        (("large scores",), "SOFT-2"),
        (("special numbers",), "NUM-12"),
        (("negative scale",), "SCORE-3"),
        (("key_lengths of 0",), "MASK-9"),
        (("query_offset by entry",), "MASK-7"),
        (("open on the left",), "MASK-8"),
        (("negative key_segment_ids",), "MASK-11"),
    ],
)
def test_common_traits_have_a_rule(having, rule):
    right = [ok(20), *(ok(20, trait) for trait in (having if len(having) > 1 else having[1:]))]
    (cause,) = found(fail(9, "NUM-12", *having), *right)
    assert cause.rule == rule


def test_empty_rows_are_not_blamed_for_another_row_of_the_same_calls():
    having, right = ("empty row", "mask"), [ok(20), ok(20, "empty row"), ok(20, "mask")]
    (cause,) = found(fail(9, "MASK-1", *having, difference=WRONG), *right)
    assert cause.rule == "MASK-1"
    (cause,) = found(fail(9, "MASK-1", *having, difference=replace(WRONG, expected=0.0)), *right)
    assert cause.rule == "MASK-6"


@pytest.mark.parametrize(("passing", "said"), [(4, ()), (6, ("mask",))])
def test_few_calls_are_no_evidence_of_what_they_have_in_common(passing, said):
    (cause,) = found(fail(2, "SOFT-1", "mask"), ok(passing))
    assert (cause.common.traits, cause.common.failing) == (said, 2)


def sized(verdicts, queries, keys):
    return [replace(verdict, sizes=(1, 1, 1, queries, keys, 4, 4)) for verdict in verdicts]


def test_a_plain_condition_on_sizes_needs_less_evidence_than_any_of_many():
    options = (("is_causal",), ("scale",), ("mask",), ("bias",), ("softcap",), ("sinks",), ("weights",))
    usual = [f"trait {number} of every call" for number in range(9)]
    bad = [sized(fail(2, "SOFT-1", *usual, *each, name=str(each)), 3, 5) for each in options]
    (cause,) = found(*bad, sized(ok(1, *usual), 3, 5), sized(ok(5, *usual), 5, 3))
    assert (cause.rule, cause.common.traits, cause.common.judged) == ("SHAPE-5", (FEWER_QUERIES,), 15)


def test_of_keys_or_queries_the_side_that_predicts_better_is_named():
    tiled = sized(ok(1, TILED), 40, 5), sized(ok(30), 12, 15)
    (cause,) = found(sized(fail(3, "SOFT-3", TILED), 5, 40), *tiled)
    assert (cause.common.traits, cause.common.others) == (("more than 16 keys",), 0)
    (cause,) = found(sized(fail(3, "SOFT-3", TILED), 40, 40), sized(ok(30), 5, 5))
    assert cause.common.traits == (TILED,), "the calls do not tell"


def test_single_calls_under_one_rule_are_described_together():
    bad = [sized(fail(1, "SCORE-4", *own, "bias", name=str(own)), 1, 6) for own in (("sinks",), ("mask",))]
    nan = sized(fail(1, "NUM-11", "scale", "special numbers"), 5, 5)
    right = [
        sized(ok(90, *own), 5, 5)
        for own in ((), ("bias",), ("sinks",), ("mask",), ("scale",), ("special numbers",))
    ]
    cause, _ = found(*bad, nan, *right, sized(ok(90), 1, 6))
    assert (cause.rule, cause.common.failing, cause.common.others, cause.further) == ("SCORE-4", 2, 0, ())
    assert {*cause.common.traits} == {"bias", FEWER_QUERIES}


def test_the_failure_that_is_shown():
    long, short = fail(1, "MASK-1", "mask", numbers=10280) + fail(1, "MASK-1", "mask", numbers=12)
    assert found([long, short])[0].verdict is short
    slight = replace(short, difference=SLIGHT)
    assert found([long, slight])[0].verdict is long, "an error of few budgets shows least"
    both = [fail(2, "MASK-3", name=a, dtype=b) for a, b in (("a", "bfloat16"), ("b", "float32"))]
    assert found(*both)[0].verdict.dtype == "float32"
    back = fail(1, "SCORE-5", "softcap", "gradient", numbers=9)
    front = fail(1, "SCORE-5", "softcap", numbers=99)
    assert found(back, front)[0].verdict is front[0], "a call of gradients shows it least"
    other = [Verdict("c", "x", "", ("MASK-1",), "fail", rule="MASK-1")]
    assert [finding.backend for finding in found([FAIL, ERROR, PASS], other)] == ["m:f", "m:f", "c"]


def test_failures_that_are_left_over_may_have_several_causes():
    left = [
        fail(1, "GRAD-5", "bias", "gradient", "softcap"),
        fail(1, "MASK-3", "is_causal", "more queries", group=""),
        fail(1, "MASK-5", "bias", "large scores", "mask"),
        fail(1, "MASK-12", "bias", "related"),
    ]
    having = ("bias", "softcap"), ("is_causal", "more queries"), ("bias", "mask"), ("large scores",)
    texts = [finding_text(finding) for finding in found(*left, *(ok(30, *each) for each in having))]
    several = [text for text in texts if "\nalso: " in text]
    assert several
    for text in several:
        assert "with the same cause" not in text
        rules = re.findall(r"[A-Z]+-[0-9]+", text.partition(", which may have other causes: ")[2])
        assert rules
        assert all(f"\n    {rule}: case {rule}-0" in text for rule in rules)


@pytest.mark.parametrize(
    ("message", "other", "same"),
    [
        ("shapes (6,1) (2,3) do not fit", "shapes (5,) () do not fit", True),
        ("no kernel for MLFloat16 [with T = Half]", "no kernel for double [with T = double]", True),
        ("scale must be greater than 0", "Q sequence length must be greater than 0", False),
    ],
)
def test_messages_are_compared_by_their_words(message, other, same):
    assert (message_words(message) == message_words(other)) == same


def test_traits_of_numbers_and_sizes():
    x, keys = np.ones((2, 1, 1, 2), np.float32), np.ones((2, 1, 65, 2), np.float32)

    def of(**options):
        arguments = {"query": x, "key": keys, "value": keys, **options}
        return {*traits(own_case("ERR-3", arguments))} - {*options}

    plain = {"no scale", "one query", "features not a multiple of 8", "tiles", "tiles of 32", "tiles of 64"}
    assert of() == plain
    assert of(key_lengths=np.array([3, 3])) == plain | {"masked keys"}
    assert of(scale=-1.0) == plain - {"no scale"} | {"negative scale"}
    assert of(key_lengths=np.array([0, 3])) >= {"key_lengths of 0", "key_lengths by entry", "empty row"}
    for shape, broadcast in (
        ((2, 1, 1, 1), {"mask of one column", repeated_inside("mask")}),
        ((1, 1, 1, 65), {"mask of one batch entry"}),
        ((1, 65), set()),
    ):
        assert of(mask=np.ones(shape, bool)) == plain | broadcast
    assert of(window=(None, 2)) == plain | {"open on the left", "masked keys"}
    assert of(window=(2, 0)) == plain | {"masked keys"}, "a window of keys has no other right bound"
    assert of(window=(2, None)) == plain | {"open on the right"}
    assert "negative query_offset" in of(query_offset=-1, is_causal=True)
    large = {name: np.full(a.shape, 1e200) for name, a in (("query", x), ("key", keys), ("value", keys))}
    assert "large scores" in of(**large), "they overflow"
    case = find_case("masking-empty-last")
    assert traits(case) == ("empty row", "features not a multiple of 8", "mask", "masked keys", "no scale")
    assert numbers(case.calls) == sum(array.size for array in case.arguments.values())
    for name, trait in (
        ("errors-depth-float32", "refused"),
        ("numerics-number-that-is-none-query-7-float32", "special numbers"),
        ("notation-lse-float32", "shared heads"),
        ("errors-earlier-calls-mask-1-float32", "related"),
        ("packing-causal-float32", "unequal sequences"),
        ("paging-batch-float32", "whole pages"),
        ("quantization-attention-grouped-float32", "shared heads"),
    ):
        assert trait in describe(find(name))[0]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("notation-oblong-1-float32", (1, 1, 1, 3, 5, 4, 4)),
        ("heads-five-over-one-float32", (1, 5, 1, 3, 4, 2, 6)),
        ("gradients-batch-float32", (2, 2, 2, 2, 3, 2, 2)),
        ("heads-split-batch-float32", ()),
        ("errors-refused-depth-of-0-in-alibi-bias-1-float32", ()),
    ],
)
def test_sizes_of_calls_are_in_the_index_and_in_results(name, sizes):
    item = find(name)
    assert describe(item)[2] == sizes
    (outline,) = (case for case in index() if case.name == name)
    assert outline.sizes == sizes
    verdict = replace(judge(PORTABLE, item), sizes=sizes)
    assert from_json(to_json(verdict)) == verdict


def test_a_row_rises_after_a_tile_if_its_largest_score_is_allowed_there():
    keys = np.zeros((1, 90, 8), np.float32)
    keys[:, 40] = 1
    call = {"query": np.ones((1, 1, 8), np.float32), "key": keys, "value": keys}

    def rising(**options):
        own = traits(own_case("ERR-3", call | options))
        return [trait for trait in own if "rising" in trait]

    assert rising() == ["rising past 16 keys", "rising past 32 keys"]
    assert rising(key_lengths=40) == rising(scale=-1.0) == []
    assert rising(window=(None, -20), query_offset=50) == [], "the key is not allowed"


def test_what_nan_shows_comes_last_and_a_named_bug_gives_the_rule():
    bad = [fail(2, "NUM-11", "special numbers"), fail(1, "MASK-9"), fail(1, "MASK-4")]
    right = [ok(30), ok(30, "special numbers")]
    (first, *_) = found(*bad, *right)
    assert first.rule == "MASK-4"
    for rule, expected in (("MASK-9", "MASK-9"), ("SOFT-1", "MASK-4")):
        diagnosis = Diagnosis((Twin(("bug",), "Do so.", rule),), 5, 9, 0.0, 9)
        failures = [verdict for group in bad for verdict in group]
        passing = [verdict for group in right for verdict in group]
        (named, *_) = findings(
            failures, [*failures, *passing], diagnoses={failures[0].backend: {first.rule: diagnosis}}
        )
        assert (named.rule, named.verdict.main_rule) == (expected, expected)


def test_a_cause_in_calls_of_a_form_has_a_rule_that_fails():
    for operation, rule in (("packed_attention", "PACK-5"), ("attention", "MASK-3")):
        bad = fail(4, "PACK-5", "is_causal", operation=operation)
        assert found(*[bad], ok(30))[0].rule == rule


def test_traits_that_nearly_all_calls_have_are_no_cause_by_chance():
    (few,) = found(fail(6, "PAGE-1", "shared heads"), ok(1, "shared heads"), ok(1))
    assert few.common.traits == ()
    (many,) = found(fail(6, "PAGE-1", "shared heads"), ok(1, "shared heads"), ok(30))
    assert many.common.traits == ("shared heads",)
    (rare, *_) = found(fail(38, "GRAD-5", "no scale"), ok(600, "no scale"), ok(98, "scale"))
    assert rare.common.traits == ()


def slightly_off(case, share):
    """Judge a golden vector of which each element is wrong by a share of the rounding of float32."""

    def attention(query, key, value, *, scale=None, mask=None):
        output = PORTABLE.attention(query, key, value, scale=scale, mask=mask).astype(np.float64)
        return (output * (1 + share * float(np.finfo(np.float32).eps))).astype(query.dtype)

    return judge(replace(PORTABLE, attention=attention, companions={}), case)


def test_a_golden_vector_is_a_matter_of_precision_too():
    case = replace(find_case("softmax-000"), outputs=("output",))
    assert str(case.dtype) == "float64"
    verdict = slightly_off(case, 0.5)
    assert (verdict.status, verdict.rule, verdict.precision) == ("fail", "NUM-2", "float32")
    few = 4 * float(np.max(budgets_of(PORTABLE, case)["output"])) / float(np.finfo(np.float32).eps)
    assert slightly_off(case, few).rule == case.rules[0], "a few budgets are no float32"
    assert slightly_off(case, 1e5).rule == case.rules[0]


def test_sizes_have_traits_of_heads_and_features():
    of = {
        n: traits_of_sizes((1, heads, 1, 9, 9, depth, 4))
        for n, heads, depth in ((1, 6, 5), (2, 8, 4), (3, 1, 2))
    }
    assert [{ODD_HEADS, UNPAIRED} & own for own in of.values()] == [{ODD_HEADS, UNPAIRED}, set(), set()]


def test_more_ways_than_a_float_holds_are_compared():
    """A kernel that is wrong in hundreds of calls of hundreds has its condition on sizes."""
    failing = [replace(FAIL, case=f"f{n}", sizes=(1, 1, 1, 9, 9, 4, 4)) for n in range(800)]
    passing = [replace(PASS, case=f"p{n}", sizes=(1, 1, 1, 9, 4, 4, 4)) for n in range(800)]
    few = [replace(verdict, sizes=(1, 1, 1, 9, 4, 4, 4)) for verdict in failing[:20]]
    found = common_of_sizes(failing[20:] + few, passing)
    assert (found.failing, found.judged) == (780, 780)
