"""What a screen says of cases that were not judged, and of what is lacking."""

from dataclasses import replace

from reported import FAIL, PASS, PERFECT, RESULTS, SUBJECT, lacking, perfect

from attnspec import levels
from attnspec.backends import describe
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render import summary
from attnspec.conformance.render.screen import screen
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import from_json
from attnspec.conformance.verdict import to_json as verdict_to_json


def test_what_is_unsupported_is_told_by_frequency():
    verdicts = [
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
    assert summary.unsupported_lines([PASS, *verdicts]) == [
        "not offered: 9 cases of the operation rotary",
        "not offered: 5 cases of the arguments window, sinks",
        "declined: 4 cases: takes one mask",
        "not asked: 1 case: takes only arrays of 4 axes, got 5",
        "not offered: 1 case of the output lse",
        "not asked: 1 case: has no answers",
    ]
    many = [verdict for name in "abcdefgh" for verdict in lacking(1, f"operation {name}")]
    assert summary.unsupported_lines(many) == [
        "not offered: 8 cases of the operations a, b, c, d, e, f and 2 more"
    ]
    assert summary.unsupported_lines([PASS, FAIL]) == []
    text = screen(Report(replace(RESULTS, verdicts=tuple(verdicts))), width=200)
    line = (
        "not judged: 29 of 29 cases; lacking operations (9), arguments (5), outputs (1); --table says why\n"
    )
    assert f"\n{line}" in text
    assert "--results FILE" not in text
    failing = replace(RESULTS, verdicts=(FAIL, *verdicts))
    assert line not in screen(Report(failing), width=200), "the failures are what matters"
    assert "\nnot offered: 9 cases of the operation rotary\n" in screen(Report(failing), every=True)
    few = replace(RESULTS, verdicts=(PASS, *lacking(99, "argument window")))
    assert "; only 1 of 100 values were judged\n" in screen(Report(few), width=200)
    assert "\nleft out: 7 cases, the first: 0 s are left (--within)\n" in text


def test_gradients_that_are_not_computed_are_told_once():
    reason = "m:f computes no gradient: RuntimeError: no backward pass"
    fields = {"traits": ("gradient",), "reason": reason, "code": "no gradient"}
    verdicts = lacking(3, **fields)
    line = "gradients: not judged; it computes no gradient: RuntimeError: no backward pass"
    assert summary.gradients_line(verdicts) == line
    assert summary.unsupported_lines(verdicts) == []
    assert summary.gradients_line([*verdicts, replace(PASS, traits=("gradient",))]) == ""


def test_a_verdict_says_what_is_lacking():
    def attention(query, key, value, *, mask=None):
        return value

    backend = describe(attention, dtypes=["float32"])
    for name, lacks in (
        ("masking-causal-square-float32", "argument is_causal"),
        ("masking-causal-square-float64", "dtype float64"),
        ("positions-rotary-float32", "operation rotary"),
        ("notation-weights-of-a-square-problem-1-float32", "output weights"),
    ):
        verdict = judge(backend, find(name))
        assert (verdict.status, verdict.lacks) == ("unsupported", (lacks,))
        assert from_json(verdict_to_json(verdict)) == verdict


def test_levels_and_what_is_lacking_are_told_of_whole_runs_alone():
    def line(results):
        return summary.levels_line(Report(results), results.subjects[0])

    assert line(PERFECT) == ", ".join(level.name for level in levels())
    assert line(RESULTS) == "not determined, because the suite was not run as a whole"
    lost = perfect(subjects=(replace(SUBJECT, problem="cut off"),))
    assert line(lost) == "not determined, because the backend was not judged completely"
    lame = [one for one in PERFECT.verdicts if one.rules not in (("MASK-7",), ("MASK-9",))]
    text = line(replace(PERFECT, verdicts=tuple(lame)))
    assert text.startswith("core, strict, masked, grouped, segmented, positioned, windowed, biased, capped, ")
    assert text.endswith("; padded lacks MASK-9 (not judged)")

    def missing(**changes):
        changed = {rule.replace("_", "-"): fields for rule, fields in changes.items()}
        verdicts = tuple(replace(one, **changed.get(one.rules[0], {})) for one in PERFECT.verdicts)
        return summary.missing_rules(Report(replace(PERFECT, verdicts=verdicts)), SUBJECT)

    unsupported, deviation = {"status": "unsupported"}, {"status": "deviation"}
    assert missing(POS_7=unsupported, POS_8=unsupported) == ""
    expected = "; core lacks SOFT-1 (deviation), SOFT-3 (deviation)"
    assert missing(SOFT_1=deviation, SOFT_3=deviation, POS_1=deviation) == expected
    parts = {"SOFT_1": deviation, "SOFT_3": unsupported, "POS_1": deviation}
    assert missing(**parts) == "; rotary lacks POS-1 (deviation)"
