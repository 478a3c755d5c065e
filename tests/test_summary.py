"""The summary of a run: budget, verdicts, time, levels, and the part that was run."""

from dataclasses import replace

from reported import FAIL, PASS, PERFECT, RESULTS, SUBJECT

from attnspec import levels as all_levels
from attnspec.backends import describe
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.summary import (
    budget_line,
    levels_line,
    missing_rules,
    run_line,
    time_line,
    totals,
    unsupported_lines,
)
from attnspec.conformance.results import Header
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import from_json, to_json


def test_the_budget_used_by_dtype():
    cast = replace(PASS, case="a-float16", dtype="float16", share=0.9, accuracy="cast")
    tight = replace(cast, share=0.1, accuracy="full")
    none = replace(PASS, share=0.99, accuracy="")
    assert budget_line([PASS, cast, tight, none]) == (
        "of the budget used: float16 0.90 (cast), float32 0.50; most in a-float16"
    )
    assert budget_line([PASS, replace(PASS, accuracy="tf32")]).startswith(
        "of the budget used: float32 0.50 (tf32)"
    )
    assert budget_line([PASS]) == "of the budget used: float32 0.50"
    assert budget_line([]) == ""


def test_values_and_refusals_are_counted_apart_and_what_is_known_as_such():
    refused = replace(FAIL, case="r-float32", refusal=True)
    assert totals([PASS, FAIL, refused, refused], {FAIL}) == ["values: 1 pass, 1 known", "refusals: 2 fail"]
    assert totals([]) == ["no verdict"]


def lacking(number, *missing, **said):
    case = replace(PASS, status="unsupported", lacks=missing, share=0.0, accuracy="", **said)
    return [replace(case, case=f"c-{'-'.join(missing)}-{count}-float32") for count in range(number)]


def test_what_is_not_offered_is_told_by_frequency():
    found = [
        *lacking(2, "argument window"),
        *lacking(3, "argument window", "argument sinks"),
        *lacking(9, "operation rotary"),
        *lacking(4, reason="takes one mask", declined=True),
        *lacking(1, reason="m:f takes only arrays of 4 axes, got 5"),
        *lacking(1, "output lse"),
        *lacking(1, reason="m:f has no answers"),
        *lacking(7, reason="left out: 0 s are left (--within)", code="left out"),
        replace(PASS, case="may-float32", status="unsupported", rule="NUM-10", reason="other bits"),
    ]
    assert unsupported_lines([PASS, *found]) == [
        "not offered: 9 cases of the operation rotary",
        "not offered: 5 cases of the arguments window, sinks",
        "declined: 4 cases: takes one mask",
        "not asked: 1 case: takes only arrays of 4 axes, got 5",
        "not offered: 1 case of the output lse",
        "unsupported for other reasons: 1 case, in --results FILE",
    ]
    many = unsupported_lines([one for name in "abcdefgh" for one in lacking(1, f"operation {name}")])
    assert many == ["not offered: 8 cases of the operations a, b, c, d, e, f and 2 more"]
    assert unsupported_lines([PASS, FAIL]) == []
    told = screen(Report(replace(RESULTS, verdicts=tuple(found))))
    assert "\nnot offered: 9 cases of the operation rotary\n" in told


def test_what_a_backend_lacks_is_data():
    def attention(query, key, value, *, return_lse=False):
        """Lacks nearly everything."""

    backend = describe(attention, dtypes=["float32"])
    for name, what in (
        ("masking-causal-square-float32", ("argument is_causal",)),
        ("masking-causal-square-float64", ("dtype float64",)),
        ("positions-rotary-float32", ("operation rotary",)),
        ("notation-weights-of-a-square-problem-1-float32", ("output weights",)),
    ):
        verdict = judge(backend, find(name))
        assert (verdict.status, verdict.lacks) == ("unsupported", what)
        assert from_json(to_json(verdict)) == verdict


def test_the_time_and_the_slowest_case():
    slow = replace(PASS, case="slow-float32", seconds=1.5)
    assert time_line([replace(PASS, seconds=0.5), slow]) == (
        "time: 2.0 s for 2 cases; the slowest, 1.50 s: slow-float32"
    )
    assert time_line([slow] * 9) == "time: 13.5 s for 9 cases", "each took as long"
    assert time_line([PASS]) == ""
    text = screen(Report(replace(RESULTS, verdicts=(slow,))))
    assert "the slowest, 1.50 s: slow-float32" in " ".join(text.split())


def test_levels_are_told_of_whole_runs_alone():
    assert levels_line(Report(PERFECT), SUBJECT) == ", ".join(one.name for one in all_levels())
    assert levels_line(Report(RESULTS), SUBJECT) == "not determined, because the suite was not run as a whole"
    lost = replace(SUBJECT, problem="cut off")
    assert levels_line(Report(replace(PERFECT, subjects=(lost,))), lost).startswith(
        "not determined, because the backend"
    )
    lame = tuple(v for v in PERFECT.verdicts if v.rules not in (("MASK-7",), ("MASK-9",)))
    text = levels_line(Report(replace(PERFECT, verdicts=lame)), SUBJECT)
    assert text.startswith("core, strict, masked, grouped, segmented, windowed, biased, capped, ")
    assert text.endswith("; padded lacks MASK-9 (not judged)")


def test_what_was_run_is_told_with_the_seed_and_reproduced_with_it():
    seeded = replace(RESULTS, headers=(Header("1", "quick", 7), Header("1", "quick", 7)))
    assert run_line(seeded) == "run: quick (seed 7)"
    assert 'find("masking-empty-last-float32", seed=7)' in screen(Report(seeded))
    assert Report(replace(seeded, headers=(*seeded.headers, Header("1")))).seed is None


def test_what_is_lacking_is_told_of_core_first_and_not_of_what_is_not_offered():
    verdicts = {one.rules[0]: one for one in PERFECT.verdicts}
    others = [
        replace(verdicts["POS-7"], status="unsupported"),
        replace(verdicts["POS-8"], status="unsupported"),
    ]
    kept = [one for rule, one in verdicts.items() if rule not in ("POS-7", "POS-8")]
    assert missing_rules(Report(replace(PERFECT, verdicts=(*kept, *others))), SUBJECT) == ""
    failing = {"SOFT-1", "SOFT-3", "POS-1"}
    bad = tuple(
        replace(one, status="deviation", rule=rule) if rule in failing else one
        for rule, one in verdicts.items()
    )
    found = missing_rules(Report(replace(PERFECT, verdicts=bad)), SUBJECT)
    assert found == "; core lacks SOFT-1 (deviation), SOFT-3 (deviation)"
