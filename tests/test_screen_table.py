"""A run on the terminal: findings, one table, and what was not judged or is lacking."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from reported import (
    ACCEPTED,
    ERROR,
    FAIL,
    FILLS,
    KNOWN,
    OTHER,
    PASS,
    PERFECT,
    RESULTS,
    SUBJECT,
    UNMET,
    UNSUPPORTED,
    lacking,
    perfect,
    row,
    rows,
)

from attnspec import levels, rules
from attnspec.backends import describe
from attnspec.conformance.attribution.finding import Diagnosis, Twin
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render import summary
from attnspec.conformance.render.screen import screen, wants_color
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import from_json
from attnspec.conformance.verdict import to_json as verdict_to_json

WHOLE = (Path(__file__).parent / "tables" / "screen.txt").read_text(encoding="utf-8")


def test_a_run_that_fails():
    stale = replace(OTHER, cases=(PASS.case,))
    text = screen(Report(RESULTS, [KNOWN, stale], diagnoses={"m:f": {"NUM-3": FILLS}}), width=110)
    assert [line.rstrip() for line in text.splitlines()] == WHOLE.splitlines()


def test_a_run_that_conforms_has_a_line_for_each_chapter():
    text = screen(Report(PERFECT))
    assert "reproduce" not in text
    assert row(text, "masking") == ["15 pass, 15 cases"]
    assert rows(text) == []
    assert text.splitlines()[1] == "m:f: conforms to every level"
    assert len(text.splitlines()) <= len({rule.chapter for rule in rules()}) + 12
    every = screen(Report(PERFECT), every=True)
    assert row(every, "MASK-6") == ["pass 1"]
    assert "│ masking" not in every
    assert rows(every) == [rule.id for rule in rules()]
    assert "│ numpy 2.4" in screen(Report(PERFECT), every=True).replace("┃", "│")


def test_rules_that_do_not_pass_have_a_row_above_the_rest_of_their_chapter(monkeypatch):
    monkeypatch.setattr("attnspec.conformance.render.screen._MOST_LINES", 100)
    text = screen(Report(perfect(FAIL, UNSUPPORTED)), width=200)
    assert row(text, "MASK-6") == ["FAIL 1 of 2"]
    assert re.search(r"^│ masking +│ 14 others ", text, re.MULTILINE)
    assert row(text, "softmax") == ["9 pass, 9 cases"], "where it is offered it passes"
    both = replace(RESULTS, verdicts=(FAIL, replace(FAIL, case="other-float32")))
    assert row(screen(Report(both, [KNOWN]), width=200), "MASK-6") == ["FAIL 1, known 1 of 2"]
    (single,) = [verdict for verdict in PERFECT.verdicts if verdict.rules == ("MASK-7",)]
    assert row(screen(Report(replace(PERFECT, verdicts=(single, FAIL))), width=200), "masking") == [
        "1 pass, 1 case"
    ]


def test_chapters_of_which_nothing_is_offered_share_the_last_row():
    lacking = ("positions", "dropout")
    chapter_of = {rule.id: rule.chapter for rule in rules()}
    verdicts = tuple(
        replace(verdict, status="unsupported") if chapter_of[verdict.rules[0]] in lacking else verdict
        for verdict in PERFECT.verdicts
    )
    text = screen(Report(replace(PERFECT, verdicts=verdicts)))
    number = sum(chapter in lacking for chapter in chapter_of.values())
    assert re.search(rf"^│ 2 others +│ {number} rules: positions, dropout ", text, re.MULTILINE)
    assert row(text, "2 others") == ["unsupported"]
    assert not any(f"│ {chapter} " in text for chapter in lacking)


def test_a_report_of_many_failures_has_40_lines_and_names_every_failing_rule():
    ids = [rule.id for rule in rules()][:40]
    failing = [
        replace(
            error,
            case=f"{rule}-{number}",
            rules=(rule,),
            rule=rule,
            raised=replace(ERROR.raised, line=most % 3),
        )
        for most, (rule, error) in enumerate(zip(ids, [ERROR, FAIL] * 20, strict=True))
        for number in range(1 + most % 5)
    ]
    report = Report(perfect(*failing, ACCEPTED, UNMET), pages=Path("report/index.html"))
    text = screen(report, width=100)
    assert sum(-(-len(line) // 100) or 1 for line in text.splitlines()) <= 40
    assert text.splitlines()[1].startswith("m:f: values: does not conform: ")
    assert text.splitlines()[-1] == "pages: report/index.html"
    folded = " ".join(text.split())
    for finding in report.findings[:6]:
        assert f"case {finding.verdict.stem}" in text or finding.verdict.case in text
    for rule in ids:
        assert f" {rule} {1 + ids.index(rule) % 5}" in folded
    assert {*ids} <= {*rows(screen(report, every=True))}


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_nothing_is_wider_than_a_terminal_of_80_columns(number):
    names = [f"my_project.kernels.attention_{n}:forward?array=torch" for n in range(number)]
    verdicts = [replace(verdict, backend=name) for name in names for verdict in (*PERFECT.verdicts, UNMET)]
    subjects = tuple(replace(SUBJECT, name=name) for name in names)
    report = Report(replace(PERFECT, subjects=subjects, verdicts=tuple(verdicts)))
    lines = screen(report, width=80, every=True).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("│ NUM-9") for line in lines) == {1: 1, 2: 1, 3: 1, 7: 3}[number]
    wide = screen(report, width=450, every=True)
    assert max(map(len, wide.splitlines())) <= 450
    assert all(f"┃ {name} " in wide for name in names), "there is room for the whole name"


def test_where_every_call_raises_neither_table_nor_counts_are_shown():
    raised = tuple(replace(ERROR, case=f"c-{n}", rule="SHAPE-5") for n in range(9))
    report = Report(replace(PERFECT, verdicts=raised))
    text = screen(report, width=80)
    assert text.startswith("\nm:f: does not conform: every call raises\n")
    assert "┏" not in text
    assert "┏" in screen(report, width=80, every=True)
    some = screen(Report(replace(PERFECT, verdicts=(*raised, PASS))), width=200)
    assert "┏" in some
    assert "does not conform: 9 cases fail under 1 rule" in some


def test_colours_and_links_on_a_terminal_alone(monkeypatch):
    monkeypatch.setattr("attnspec.conformance.render.screen._MOST_LINES", 100)
    failing = Report(perfect(FAIL))
    assert "\x1b" not in screen(failing)
    found = re.findall(r"\x1b]8;[^;]*;([^\x1b]+)\x1b", screen(failing, color=True, width=200))
    (link,) = set(found)
    assert re.fullmatch(r"\S+/masking\.md#mask-6-a-row-with-nothing-to-attend-to-gives-zero", link)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_color()
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            assert not wants_color()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: False))
    assert not wants_color()


def test_of_each_cause_one_failure_is_shown_and_the_others_are_counted():
    large = replace(FAIL, case="a", numbers=600)
    nameless = replace(FAIL, case="b", variant="", numbers=1)
    drawn = replace(FAIL, case="c", group="plain")
    other = replace(FAIL, case="d", rule="MASK-5", variant="", numbers=9)
    report = Report(replace(RESULTS, verdicts=(ERROR, large, nameless, drawn, FAIL, other, UNMET, PASS)))
    found = [(one.verdict, one.others[one.rule], len(one.failures)) for one in report.findings]
    assert found == [(FAIL, 3, 5), (ERROR, 0, 1)]
    text = screen(report)
    assert "(and 3 more of m:f under MASK-6)" in text
    assert "also: 1 case under another rule, which may have other causes: MASK-5" in text
    named = Diagnosis((Twin(("fills",), "Fill.", "MASK-6"),), 5, 1, 0.5, 1)
    text = screen(replace(report, diagnoses={FAIL.backend: {"MASK-6": named}}))
    assert "also: 1 case under another rule, consistent with it too: MASK-5" in text


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
    line = "not judged: 29 of 29 cases; lacking operations (9), arguments (5), outputs (1); --table says why"
    assert f"\n{line}\n" in text
    assert "--results FILE" not in text
    failing = replace(RESULTS, verdicts=(FAIL, *verdicts))
    assert line not in screen(Report(failing), width=200), "the failures are what matters"
    assert "\nnot offered: 9 cases of the operation rotary\n" in screen(Report(failing), every=True)
    few = replace(RESULTS, verdicts=(PASS, *lacking(99, "argument window")))
    assert "; only 1 of 100 values were judged\n" in screen(Report(few), width=200)
    paged = [replace(verdict, operation="paged_attention") for verdict in few.verdicts[:12]]
    mixed = replace(RESULTS, verdicts=(*paged, *few.verdicts[12:]))
    assert "; only 1 of 12 values of paged_attention were judged\n" in screen(Report(mixed), width=200)
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
