"""Causes: failures with one cause are shown together, under the rule that describes it best."""

from dataclasses import replace

import numpy as np
import pytest
from reported import ERROR, FAIL, PASS

from attnspec import Case, find_case
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.finding import Common, Finding
from attnspec.conformance.judge.failure import own_place
from attnspec.conformance.judge.traits import numbers, traits
from attnspec.conformance.render.finding import cause_lines, finding_text, trait_text
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import Difference, Raise, Verdict


def verdicts(status, number, *rules, **fields):
    """Verdicts of a kind that differ in their case alone."""
    fields = {"dtype": "float32", "difference": Difference("value", "output", share=1e6)} | fields
    if status == "pass":
        fields["difference"] = None
    return [
        Verdict("b", f"{rules[0]}-{n}", "g", rules, status, rule=rules[0], **fields) for n in range(number)
    ]


def found(*lists):
    """The causes of what fails among verdicts: their kinds, rules, and how many failures each has."""
    every = [one for each in lists for one in each]
    made = findings([one for one in every if one.bad], every)
    return [(cause.kind, cause.rule, len(cause.failures)) for cause in made]


def test_what_is_in_common_gives_the_rule_and_takes_the_consequences_with_it():
    failing = [
        verdicts("fail", 3, "SHAPE-1", traits=("no scale",)),
        verdicts("fail", 4, "SOFT-1", traits=("mask", "no scale")),
        verdicts("fail", 1, "NUM-9", traits=("no scale", "related")),
    ]
    passing = (
        verdicts("pass", 9, "SCORE-3", traits=("scale",)),
        verdicts("pass", 2, "SOFT-1", traits=("no scale",)),
    )
    assert found(*failing, *passing) == [("", "SCORE-2", 8)]
    (cause,) = findings([one for each in failing for one in each], [one for each in passing for one in each])
    assert cause.common.traits == ("no scale",)


@pytest.mark.parametrize(
    ("shared", "rule"),
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
def test_a_rule_for_what_is_in_common(shared, rule):
    passing = [verdicts("pass", 20, "SOFT-1", traits=one) for one in ((), *((one,) for one in shared[1:]))]
    failing = verdicts("fail", 9, "NUM-12", traits=shared)
    alone = [verdicts("pass", 20, "SOFT-1", traits=(one,)) for one in shared if len(shared) > 1]
    assert found(failing, *passing, *alone) == [("", rule, 9)]


def test_without_anything_in_common_the_rule_whose_own_cases_fail():
    failing = verdicts("fail", 5, "SOFT-2"), verdicts("fail", 1, "MASK-3")
    passing = verdicts("pass", 5, "SOFT-1"), verdicts("pass", 9, "MASK-3")
    assert found(*failing, *passing) == [("", "SOFT-2", 6)]


def test_most_values_of_one_variant_name_their_rule():
    named = verdicts("fail", 6, "HEAD-1", variant="tiled", traits=("mask",))
    assert found(named, verdicts("fail", 2, "SOFT-1", traits=("mask",))) == [("", "HEAD-1", 8)]


def test_results_off_as_in_half_precision():
    off = Difference("value", "output", share=900.0)
    failing = verdicts("fail", 9, "SOFT-1", difference=off)
    (cause,) = findings(failing)
    assert (cause.rule, cause.precision) == ("NUM-3", "float16")
    assert found(failing, verdicts("fail", 9, "SOFT-1")) == [("", "SOFT-1", 18)]


def test_what_is_far_off_tells_the_cause_though_more_is_off_by_a_rounding():
    def off(by, share):
        return Difference("value", "output", got=1.0 + by, expected=1.0, share=share)

    gross = verdicts("fail", 9, "SOFT-2", traits=("bias", "large scores"), difference=off(0.5, 1e6))
    fine = [
        verdicts("fail", 20, "MASK-3", traits=(one,), difference=off(1e-7, 2.0)) for one in ("mask", "window")
    ]
    passing = [
        verdicts("pass", 90, "SOFT-1", traits=one) for one in (("bias",), ("mask",), ("window",), ("sinks",))
    ]
    few = verdicts("pass", 3, "SOFT-1", traits=("large scores",))
    assert found(gross, *fine, *passing, few) == [("", "SOFT-2", 9), ("", "NUM-3", 40)]


def test_what_is_off_by_a_rounding_stands_behind_what_is_wrong():
    rounded = Difference("value", "output", got=1.0, expected=1.0 + 1e-7, share=2.0)
    fine = verdicts("fail", 9, "NUM-9", traits=("mask",), difference=rounded)
    wrong = verdicts("fail", 3, "SOFT-5", traits=("sinks",), difference=Difference("pattern", "output"))
    passing = [verdicts("pass", 30, "SOFT-1", traits=(one,)) for one in ("mask", "sinks")]
    assert found(fine, wrong, *passing) == [("", "SOFT-5", 3), ("", "NUM-3", 9)]


def test_an_lse_that_is_not_minus_infinity_is_that_of_a_row_with_nothing():
    low = Difference("pattern", "lse", got=1.0, expected=float("-inf"))
    failing = verdicts("fail", 9, "MASK-10", traits=("query_lengths",), difference=low)
    passing = verdicts("pass", 20, "SOFT-1")
    assert found(failing, passing) == [("", "SOFT-7", 9)]
    other = verdicts("fail", 9, "MASK-10", traits=("query_lengths",), difference=replace(low, expected=2.0))
    assert found(other, passing) == [("", "SOFT-6", 9)]


def test_a_single_call_has_the_rule_of_its_case():
    failing = verdicts("fail", 1, "MASK-3", traits=("is_causal", "shared heads", "tiles of 64"))
    passing = verdicts("pass", 20, "SOFT-1", traits=("is_causal",)), verdicts("pass", 3, "SOFT-1")
    assert found(failing, *passing) == [("", "MASK-3", 1)]


def test_two_kinds_of_calls_that_fail_under_one_rule_are_one_block():
    failing = (
        verdicts("fail", 9, "MASK-4", traits=("is_causal", "key_lengths")),
        verdicts("fail", 3, "MASK-4", traits=("key_lengths", "window")),
    )
    options = ("is_causal", "key_lengths", "window")
    passing = [verdicts("pass", 90, "SOFT-1", traits=(one,)) for one in options]
    assert found(*failing, *passing) == [("", "MASK-4", 12)]
    every = [one for each in (*failing, *passing) for one in each]
    (cause,) = findings([one for one in every if one.bad], every)
    assert list(cause_lines(cause)) == [
        "fails: 9 of 9 calls with `is_causal` with `key_lengths`, 3 of 273 others",
        "fails: 3 of 3 calls with `key_lengths` with `window`, 0 of 270 others",
    ]


def test_two_things_are_two_causes():
    failing = (
        verdicts("fail", 9, "MASK-1", traits=("mask",)),
        verdicts("fail", 3, "SOFT-5", traits=("sinks",)),
    )
    passing = verdicts("pass", 20, "SOFT-1"), verdicts("pass", 9, "SOFT-1", traits=("window",))
    assert found(*failing, *passing) == [("", "MASK-1", 9), ("", "SOFT-5", 3)]


def test_kinds_of_failures_are_apart_and_in_order():
    raised = verdicts(
        "error", 2, "SHAPE-5", difference=None, raised=Raise("ValueError", "no", "/m.py", 3, "f")
    )
    ended = verdicts(
        "error", 2, "NUM-3", difference=None, reason="was killed", raised=Raise("", "", "/m.py", 9)
    )
    wrong = verdicts("fail", 3, "MASK-1", traits=("mask",))
    changed = verdicts("fail", 2, "NUM-4", difference=None, reason="query: expected to be unchanged")
    dtype = verdicts("fail", 2, "NUM-1", difference=Difference("dtype", "output", got="float64"))
    refused = verdicts("fail", 5, "ERR-1", difference=None, reason="expected an error", traits=("refused",))
    assert found(refused, wrong, raised, dtype, changed, ended) == [
        ("ended", "NUM-3", 2),
        ("changed", "NUM-4", 2),
        ("", "MASK-1", 3),
        ("", "NUM-1", 2),
        ("raised", "SHAPE-5", 2),
        ("refused", "ERR-1", 5),
    ]


def test_what_is_not_repeatable_is_said_once():
    steady = verdicts("fail", 5, "SOFT-1", traits=("mask",))
    flaky = verdicts("fail", 1, "MASK-3", repeatable=False)
    refused = verdicts("fail", 5, "ERR-1", difference=None, reason="expected an error", traits=("refused",))
    assert found(steady, flaky, refused) == [("repeated", "NUM-9", 6), ("refused", "ERR-1", 5)]
    (first, _) = findings([*steady, *flaky, *refused])
    text = finding_text(first)
    assert text.startswith("NUM-9 A repeated call gives the same bits")
    assert "not repeatable" in text
    assert "also: 5 cases under another rule, with the same cause: SOFT-1" in text


def test_what_passes_as_the_first_call_of_a_process_knows_of_earlier_ones():
    failing = verdicts("fail", 5, "MASK-1", traits=("mask",)), verdicts("fail", 1, "SOFT-1", alone=False)
    assert found(*failing) == [("earlier", "ERR-13", 6)]


def test_many_ways_to_end_are_a_few_blocks():
    ended = [verdicts("error", 1, "NUM-3", difference=None, reason=f"answered {n}") for n in range(90)]
    assert [number for _, _, number in found(*ended)] == [87, 1, 1, 1]


def test_the_shortest_failure_is_shown():
    long, short = (verdicts("fail", 1, "MASK-1", traits=("mask",), numbers=n)[0] for n in (10280, 12))
    (example,) = findings([long, short])
    assert example.verdict is short


def test_an_argument_without_effect_is_said_where_all_calls_with_it_show_it():
    ignored = verdicts("fail", 3, "MASK-1", traits=("mask",), ignored="mask")
    assert "equals the result without `mask`" in finding_text(findings(ignored)[0])
    others = verdicts("fail", 3, "MASK-4", traits=("mask",))
    assert "equals the result without" not in finding_text(findings([*ignored, *others])[0])


def test_weights_that_are_not_returned_are_explained():
    seen = verdicts(
        "fail", 1, "MASK-1", difference=Difference("value", "weights", (0, 1), 1.0, 0.5), probed=True
    )
    assert "they were determined by calls with the identity as value" in finding_text(findings(seen)[0])


def test_what_calls_have_in_common_in_words():
    said = list(cause_lines(Finding("SCORE-2", (FAIL,), Common(("no scale",), 230, 310, 0, 54))))
    assert said == ["fails: 230 of 310 calls without a scale, 0 of 54 others"]
    assert list(cause_lines(Finding("SOFT-1", (FAIL,), Common((), 5, 9)))) == []
    assert trait_text("negative scale") == "with a negative `scale`"
    assert trait_text("query_offset by entry") == "with `query_offset` that differ between batch entries"
    assert trait_text("tiles of 64") == "with more than 64 keys or queries"


def test_traits_of_numbers_and_sizes():
    x = np.ones((2, 1, 1, 2), np.float32)
    keys = np.ones((2, 1, 65, 2), np.float32)

    def of(**options):
        arguments = {"query": x, "key": keys, "value": keys, **options}
        return {*traits(Case("c", "", "errors", "attention", ("ERR-3",), arguments))} - {*options}

    plain = {"no scale", "one query", "tiles", "tiles of 32", "tiles of 64"}
    assert of() == plain
    assert of(scale=-1.0) == plain - {"no scale"} | {"negative scale"}
    assert of(key_lengths=np.array([0, 3])) >= {"key_lengths of 0", "key_lengths by entry", "empty row"}
    assert of(key_lengths=np.array([3, 3])) == plain
    assert of(window=(None, 2)) == plain | {"open on the left"}
    assert of(window=(2, None)) == plain | {"open on the right"}
    assert "negative query_offset" in of(query_offset=-1, is_causal=True)
    largest = np.full_like(x, 1e200, dtype=np.float64)
    many = np.full_like(keys, 1e200, dtype=np.float64)
    assert "large scores" in of(query=largest, key=many, value=many), "they overflow"


def test_traits_of_calls():
    assert traits(find_case("masking-empty-last")) == ("empty row", "mask", "no scale")
    assert "refused" in traits(find_case("errors-depth"))
    assert "special numbers" in traits(find("numerics-number-that-is-none-query-7-float32")), "minus infinity"
    assert "shared heads" in traits(find_case("notation-lse"))
    assert "related" in traits(find("errors-earlier-calls-mask-1-float32"))
    assert numbers(find_case("masking-empty-last")) == sum(
        x.size for x in find_case("masking-empty-last").arguments.values()
    )


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        ([("/me/a.py", 1, "f"), ("/me/b.py", 2, "g"), ("/lib/numpy/x.py", 3, "dot")], ("/me/b.py", 2, "g")),
        ([("/me/a.py", 1, "f"), ("/me/.venv/lib/site-packages/torch/x.py", 3, "dot")], ("/me/a.py", 1, "f")),
        ([("/me/a.py", 1, "f"), ("/mean/x.py", 3, "dot")], ("/me/a.py", 1, "f")),
        ([("<frozen os>", 1, "f")], ("<frozen os>", 1, "f")),
        ([], ("", 0, "")),
    ],
)
def test_the_line_of_the_user_is_shown(frames, place):
    assert own_place(frames) == place


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (
            [("/lib/torch/x.py", 3, "grad"), ("/me/b.py", 2, "g"), ("/lib/torch/x.py", 4, "dot")],
            ("/me/b.py", 2, "g"),
        ),
        ([("/lib/torch/x.py", 3, "grad")], ("/me/a.py", 9, "f")),
        ([], ("/me/a.py", 9, "f")),
    ],
)
def test_the_function_of_the_user_tells_its_folder(frames, place):
    assert own_place(frames, ("/me/a.py", 9, "f")) == place


def test_of_several_backends_each_has_its_own():
    other = [Verdict("c", "x", "", ("MASK-1",), "fail", rule="MASK-1")]
    assert [one.verdict.backend for one in findings([FAIL, ERROR, PASS, *other])] == ["m:f", "m:f", "c"]


def test_a_wrong_shape_is_no_wrong_value_and_has_a_block_of_its_own():
    off = Difference("shape", "output", got="(2, 4)", expected="(2, 5)")
    shapes = verdicts("fail", 5, "SHAPE-3", difference=off, traits=("other value depth", "shared heads"))
    values = verdicts("fail", 9, "HEAD-1", traits=("shared heads",))
    passing = verdicts("pass", 20, "SOFT-1"), verdicts("pass", 9, "SHAPE-3", traits=("other value depth",))
    assert found(shapes, values, *passing) == [("", "HEAD-1", 9), ("", "SHAPE-3", 5)]
    fewer = verdicts("fail", 2, "HEAD-1", traits=("other value depth", "shared heads"))
    others = verdicts("fail", 2, "HEAD-1", traits=("mask",))
    assert found(shapes, fewer, others, *passing) == [("", "SHAPE-3", 7), ("", "MASK-1", 2)]


def test_what_writes_to_an_input_that_cannot_be_written_to_changes_it():
    changed = verdicts("fail", 9, "NUM-4", difference=None, reason="key: expected to be unchanged")
    raised = Raise("ValueError", "output array is read-only", "/m.py", 3, "f")
    failing = verdicts("error", 2, "NUM-8", difference=None, raised=raised, traits=("layout",))
    assert found(changed, failing, verdicts("pass", 9, "NUM-8")) == [("changed", "NUM-4", 11)]


def test_of_two_things_that_tell_as_well_the_one_whose_cases_fail_is_told():
    failing = verdicts("fail", 6, "SCORE-5", traits=("bias", "softcap"))
    (cause,) = findings(failing, [*failing, *verdicts("pass", 20, "SOFT-1")])
    assert (cause.rule, cause.common.traits) == ("SCORE-5", ("softcap",))


def test_what_tells_more_than_chance_is_told_with_the_numbers():
    failing = verdicts("fail", 8, "SCORE-3", traits=("scale",))
    passing = verdicts("pass", 46, "SOFT-1", traits=("scale",)), verdicts("pass", 300, "SOFT-1")
    (cause,) = findings(failing, [*failing, *(one for each in passing for one in each)])
    assert list(cause_lines(cause)) == ["fails: 8 of 54 calls with `scale`, 0 of 300 others"]
    common = verdicts("pass", 46, "SOFT-1", traits=("scale",))
    (cause,) = findings(failing, [*failing, *common])
    assert list(cause_lines(cause)) == [], "all calls have it"


def test_a_call_that_fails_in_another_dtype_too_fails_of_the_same():
    wide = [replace(one, case=f"{one.case}-float64") for one in verdicts("fail", 9, "NUM-3", dtype="float64")]
    both = [replace(one, case=one.case.replace("64", "32"), dtype="float32") for one in wide[:2]]
    assert found(wide, both, verdicts("pass", 40, "NUM-3")) == [("", "NUM-3", 11)]


def test_a_larger_cause_takes_in_one_whose_calls_all_are_of_its_kind():
    off = Difference("shape", "output", got="(2, 4)", expected="(2, 5)")
    shapes = verdicts("fail", 9, "SHAPE-3", difference=off, traits=("mask",))
    raised = Raise("ValueError", "no", "/m.py", 3, "f")
    failing = verdicts("error", 2, "SHAPE-7", difference=None, raised=raised, traits=("empty axes", "mask"))
    other = verdicts("error", 2, "SHAPE-7", difference=None, raised=raised, traits=("empty axes",))
    passing = verdicts("pass", 9, "SOFT-1"), verdicts("pass", 9, "SOFT-1", traits=("empty axes",))
    assert found(shapes, failing, *passing) == [("", "SHAPE-3", 11)]
    assert found(shapes, failing, other, *passing) == [("", "SHAPE-3", 9), ("raised", "SHAPE-7", 4)]


def test_what_is_off_by_little_is_not_called_half_precision():
    off = Difference("value", "output", share=15.0)
    (cause,) = findings(verdicts("fail", 9, "SOFT-1", difference=off))
    assert cause.precision == ""
