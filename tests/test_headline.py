"""The last lines of a run say how it ended and why. The gravest of several events decides."""

import re
from dataclasses import replace

import pytest
from reported import ERROR, FAIL, KNOWN, PASS, PERFECT, RESULTS, SUBJECT, UNSUPPORTED

from attnspec import levels
from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.render.badge import to_json, to_svg
from attnspec.conformance.render.junit import to_junit
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.summary import backend_headline, headline, run_line
from attnspec.conformance.results import Footer, Header, Run, gathered

UNKNOWN = "backend m:f: not understood: causal (is_causal?); no case tests this. Map each"
GIVEN_UP = "backend m:f: abandoned after 3 cases that did not end"
DECLINED = replace(UNSUPPORTED, declined=True, reason="needs a GPU")


def with_problem(problem, *verdicts):
    return replace(RESULTS, subjects=(replace(SUBJECT, problem=problem),), verdicts=verdicts)


def declining(*verdicts):
    found = Run(Header("1", "quick", cases=tuple(one.case for one in verdicts)))
    for thing in (SUBJECT, *verdicts, Footer(len(verdicts))):
        found.add(thing)
    return gathered([found])


@pytest.mark.parametrize(
    ("results", "last"),
    [
        (with_problem(UNKNOWN, PASS), "m:f: was not judged whole: not understood: causal (is_causal?)"),
        (with_problem(GIVEN_UP, PASS), "m:f: was not judged whole: abandoned after 3 cases that did not end"),
        (
            with_problem(GIVEN_UP, FAIL),
            f"m:f: does not conform: 1 case fails under 1 rule; was not judged whole: {GIVEN_UP[13:]}",
        ),
        (
            declining(DECLINED, replace(DECLINED, case="other")),
            "m:f: was not judged: declined 2 of 2 cases that its arguments offer: needs a GPU",
        ),
        (
            replace(RESULTS, verdicts=(UNSUPPORTED,)),
            "m:f: was not judged: nothing that was asked for is offered: it has no argument sinks",
        ),
        (
            replace(PERFECT, missing={"m:f": ("x",)}),
            "m:f: was not judged whole: 1 case has no verdict",
        ),
    ],
)
def test_the_last_line_says_why_not_all_was_judged(results, last):
    text = screen(Report(results), width=200)
    assert text.splitlines()[-1] == last
    assert last.rpartition(": ")[2] in to_markdown(Report(results))


def test_of_several_backends_each_has_its_reason_above_its_own_last_line():
    other = replace(SUBJECT, name="other:f", problem=UNKNOWN.replace("m:f", "other:f"))
    subjects = (replace(SUBJECT, problem=GIVEN_UP), other)
    verdicts = (PASS, replace(PASS, backend="other:f"))
    lines = screen(Report(replace(RESULTS, subjects=subjects, verdicts=verdicts)), width=200).splitlines()
    starts = ["error: backend m:f: abandoned", "m:f: ", "error: backend other:f: not", "other:f: "]
    assert [line.startswith(start) for line, start in zip(lines[-4:], starts, strict=True)] == [True] * 4


LOST = replace(SUBJECT, name="lost:f", problem="no such module")
BAD = (replace(SUBJECT, name="bad:f"), replace(FAIL, backend="bad:f"))
CUT = (replace(SUBJECT, name="cut:f", problem="given up"), replace(PASS, backend="cut:f"))
GOOD = (SUBJECT, PASS)


@pytest.mark.parametrize(
    ("several", "status"),
    [
        ([GOOD], 0),
        ([GOOD, CUT], 4),
        ([GOOD, CUT, BAD], 1),
        ([(replace(CUT[0], name="bad:f"), BAD[1])], 1),  # one backend that fails and is given up
        ([GOOD, BAD, (LOST, None)], 3),
        ([CUT, (LOST, None)], 3),
    ],
)
def test_which_status_wins(several, status):
    subjects, verdicts = zip(*several, strict=True)
    found = replace(RESULTS, subjects=subjects, verdicts=tuple(one for one in verdicts if one))
    assert Report(found).outcome.status == status


STALE = replace(KNOWN, rule="MASK-5", cases=())


OTHER_SUBJECT = replace(SUBJECT, name="other:f")


@pytest.mark.parametrize(
    "report",
    [
        Report(RESULTS),
        Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL))),
        Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN, STALE]),
        Report(PERFECT, [STALE]),
        Report(replace(PERFECT, missing={"m:f": ("x",)}), required="core"),
        Report(replace(PERFECT, missing={"m:f": ("x",)})),
        Report(replace(PERFECT, subjects=(replace(SUBJECT, problem="cut off"),))),
        Report(replace(PERFECT, verdicts=())),
        Report(replace(PERFECT, verdicts=(UNSUPPORTED,))),
        Report(replace(PERFECT, subjects=())),
        Report(replace(PERFECT, subjects=(SUBJECT, OTHER_SUBJECT))),
        Report(replace(PERFECT, verdicts=(FAIL,)), required="core"),
    ],
)
def test_conforms_is_said_of_no_run_that_is_not_good(report):
    assert not report.good
    for write in (screen, to_markdown, to_junit, to_json, to_svg):
        assert "conforms" not in write(report)


def test_the_headline_is_the_level_that_is_reached():
    none = tuple(replace(one, status="deviation", rule="SOFT-1") for one in PERFECT.verdicts)
    lame = tuple(one for one in PERFECT.verdicts if one.rules != ("MASK-7",))
    others = ", ".join(one.name for one in levels() if one.name != "cached")
    companions = (
        "projected, multi-head, paged, paged-attention, packed, merged, latent, decoded, quantized, "
        "low-precision, rotary, rotary-scaled, alibi"
    )
    for verdicts, text in (
        (PERFECT.verdicts, "conforms to every level"),
        (lame, f"conforms to levels {others}; cached lacks MASK-7 (not judged)"),
        (none, f"conforms to levels {companions}; core lacks SOFT-1 (deviation)"),
    ):
        report = Report(replace(PERFECT, verdicts=verdicts))
        assert report.good
        assert headline(report) == text
        assert to_markdown(report).startswith(f"## attnspec: {text}\n")
    part = Report(replace(PERFECT, headers=(Header("1", "quick"),)))
    assert headline(part) == "passes the part of the suite that was run; only a whole run reaches levels"
    known = Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN])
    assert headline(known).startswith(
        "conforms but for 1 known failure; reaches levels core, strict, grouped,"
    )
    subjects = (SUBJECT, OTHER_SUBJECT)
    both = (*PERFECT.verdicts, *(replace(one, backend="other:f") for one in PERFECT.verdicts if one in lame))
    two = replace(PERFECT, subjects=subjects, verdicts=both)
    assert headline(Report(two)) == f"conforms to levels {others}"
    worse = Report(replace(two, verdicts=(*both, FAIL)))
    assert headline(worse) == "1 of 2 backends do not conform, or were not judged whole"
    assert backend_headline(worse, OTHER_SUBJECT).startswith("reaches levels core")


def test_a_required_level_decides():
    outside = replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL))
    assert Report(outside).outcome is Outcome.FAILS
    assert Report(outside, required="core").outcome is Outcome.GOOD
    assert Report(outside, required="masked").outcome is Outcome.FAILS
    assert headline(Report(outside, required="core")) == (
        "reaches level core, as required; 1 case fails outside of it"
    )
    assert headline(Report(outside, required="masked")).startswith("does not conform to level masked; ")
    quick = replace(PERFECT, headers=(Header("1", "quick"),))
    assert Report(quick, required="core").outcome is Outcome.FAILS


def test_a_run_of_one_level_tells_of_its_rules_alone():
    headers = (Header("1", "level", level="core"),)
    report = Report(replace(PERFECT, headers=headers, verdicts=(*PERFECT.verdicts, FAIL)))
    assert report.good, "of MASK-6 nothing was asked"
    assert headline(report) == "conforms to level core"
    assert run_line(report.results) == "run: level core (the fixed cases; --seed N draws others)"
    text = screen(report, every=True)
    assert "MASK-6" not in text
    assert set(re.findall(r"^│ ([A-Z]+-[0-9]+)", text, re.MULTILINE)) == set(rules_of("core"))
    wrong = replace(FAIL, rule="SOFT-1", rules=("SOFT-1",))
    report = Report(replace(PERFECT, headers=headers, verdicts=(*PERFECT.verdicts, wrong)))
    assert headline(report) == "does not conform: 1 case fails under 1 rule; core lacks SOFT-1 (fail)"
    crashed = replace(ERROR, rules=("MASK-6", "SOFT-1"))
    report = Report(replace(PERFECT, headers=headers, verdicts=(*PERFECT.verdicts, crashed)))
    assert not report.good
