"""What a run comes to: its last lines say how it ended and why, and the gravest of several decides."""

from dataclasses import replace

import pytest
from reported import FAIL, PASS, PERFECT, RESULTS, SUBJECT, UNSUPPORTED

from attnspec.conformance.report.markdown import to_markdown
from attnspec.conformance.report.report import Report
from attnspec.conformance.report.screen import screen
from attnspec.conformance.results import Footer, Header, Run, gathered

UNKNOWN = "backend m:f: not understood: causal (is_causal?); nothing of it is judged. Give the names"
GIVEN_UP = "backend m:f: given up after 3 cases that did not end"
DECLINED = replace(UNSUPPORTED, declined=True, reason="needs a GPU")


def with_problem(problem, *verdicts):
    return replace(RESULTS, subjects=(replace(SUBJECT, problem=problem),), verdicts=verdicts)


def declining(*verdicts):
    run = Run(Header("1", "quick", cases=tuple(one.case for one in verdicts)))
    for thing in (SUBJECT, *verdicts, Footer(len(verdicts))):
        run.add(thing)
    return gathered([run])


@pytest.mark.parametrize(
    ("results", "last"),
    [
        (with_problem(UNKNOWN, PASS), "m:f: was not judged whole: not understood: causal (is_causal?)"),
        (with_problem(GIVEN_UP, PASS), "m:f: was not judged whole: given up after 3 cases that did not end"),
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
    starts = ["error: backend m:f: given up", "m:f: ", "error: backend other:f: not", "other:f: "]
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
