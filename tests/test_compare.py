"""Several runs: the levels and deviations by backend in one table, and two runs compared from their files."""

from dataclasses import replace

import pytest
from reported import DEVIATION, ERROR, FAIL, PASS, PERFECT, SUBJECT, UNMET, UNSUPPORTED, row, rows
from tests_support import command

from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.compare import Change
from attnspec.conformance.render.overview import overview
from attnspec.conformance.results import Footer, Header, line

ENDED = replace(ERROR, raised=replace(ERROR.raised, type=""))


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (PASS, PASS, ""),
        (PASS, FAIL, "regressions"),
        (PASS, ERROR, "regressions"),
        (PASS, UNSUPPORTED, "regressions"),
        (PASS, DEVIATION, "regressions"),
        (PASS, UNMET, "regressions"),
        (PASS, None, "regressions"),
        (FAIL, None, "regressions"),
        (UNSUPPORTED, FAIL, "regressions"),
        (FAIL, PASS, "repairs"),
        (ERROR, UNMET, "repairs"),
        (UNMET, PASS, "repairs"),
        (FAIL, UNSUPPORTED, "changed"),
        (UNSUPPORTED, PASS, "changed"),
        (FAIL, replace(FAIL, rule="SOFT-1"), "changed"),
        (ERROR, ENDED, "changed"),
        (None, PASS, "changed"),
        (FAIL, replace(FAIL, difference=None), ""),
        (None, None, ""),
    ],
)
def test_what_is_worse_what_is_better_and_what_is_neither(before, after, kind):
    assert Change("c", before, after).kind == kind


def run(path, verdicts, *, cases=(), seed=None, subjects=(SUBJECT,), ends=True):
    path.write_text(
        line("header", Header("1", "whole", seed, cases))
        + "".join(line("subject", subject) for subject in subjects)
        + "".join(line("verdict", verdict) for verdict in verdicts)
        + (line("footer", Footer(len(verdicts))) if ends else "")
    )
    return path


@pytest.fixture
def compared(tmp_path):
    def compare(before, after, **more):
        paths = run(tmp_path / "before", before), run(tmp_path / "after", after, **more)
        return command("compare", *paths)

    return compare


def test_regressions_end_with_status_1_and_are_named_or_counted(compared):
    worse = replace(FAIL, case=PASS.case)
    mended = replace(PASS, case=FAIL.case)
    new = replace(FAIL, case="new-float32")
    done = compared([PASS, FAIL, UNSUPPORTED], [worse, mended, new])
    assert done.exit_code == 1
    lines = [text.strip() for text in done.output.splitlines()]
    assert lines[:2] == ["m:f", "regressions: 1"]
    assert lines[2].startswith(
        f"{PASS.case}: pass -> fail: MASK-6 A row with nothing to attend to gives zero:"
    )
    assert lines[3] == "repairs: 1"
    assert lines[-3:] == ["changed: 0", "new: 1 cases, 1 of which fail", "gone: 1 cases"]
    assert compared([FAIL], [mended]).exit_code == 0
    assert compared([PASS, FAIL], [PASS, FAIL]).exit_code == 0
    done = compared([PASS], [], cases=(PASS.case,), ends=False)
    assert done.exit_code == 1
    assert f"{PASS.case}: pass -> not judged" in done.output
    many = [replace(PASS, case=f"c-{number}") for number in range(50)]
    done = compared(many, [replace(FAIL, case=one.case) for one in many])
    assert "and 10 more" in done.output
    assert len(done.output.splitlines()) < 50


def test_what_cannot_be_compared(compared):
    for more, message in (
        ({"seed": 3}, "Error: compare: expected two runs of one seed, got none and 3"),
        (
            {"subjects": (SUBJECT, replace(SUBJECT, name="other"))},
            "expected the same backends in both, got other",
        ),
    ):
        done = compared([PASS], [PASS], **more)
        assert done.exit_code == 2
        assert message in done.output
    renamed = replace(SUBJECT, name="new:f")
    done = compared([PASS], [replace(FAIL, backend="new:f", case=PASS.case)], subjects=(renamed,))
    assert done.output.startswith("new:f\n  regressions: 1")


NAMES = ("torch-sdpa", "torch-portable", "m:f")
#: Each departs from a rule of `core` or of another level.
DEVIATIONS = (
    replace(DEVIATION, rule="SCORE-3", rules=("SCORE-3",), variant="", reason="a scale of 0 gives NaN"),
    replace(DEVIATION, rule="MASK-3", rules=("MASK-3",)),
)


def results():
    """Three backends: one deviates, one is portable code, one fails."""
    own = {"torch-sdpa": DEVIATIONS, "torch-portable": DEVIATIONS[1:], "m:f": (replace(FAIL, rule="NUM-2"),)}
    verdicts = [
        replace(verdict, backend=name) for name in NAMES for verdict in (*PERFECT.verdicts, *own[name])
    ]
    return replace(
        PERFECT, subjects=tuple(replace(SUBJECT, name=name) for name in NAMES), verdicts=tuple(verdicts)
    )


def test_levels_by_backend_then_the_rules_of_core_side_by_side():
    text = overview(Report(results()), width=240)
    assert text.startswith("levels reached")
    assert "core lacks SCORE-3 (deviation)" in text
    assert row(text, "torch-portable")[0].startswith("all but masked, cached")
    assert row(text, "m:f")[0].startswith("does not conform: 1 case fails under 1 rule")
    assert "Portable code on a library is the reference implementation of this project" in text
    assert rows(text) == ["SCORE-3", "NUM-2"], "rules of other levels are in the file"
    assert row(text, "SCORE-3") == ["deviation 1 of 2", "pass 1"]
    assert row(text, "NUM-2") == ["pass 1", "FAIL 1 of 2"]
    assert "SCORE-3: a scale of 0 gives NaN (torch-sdpa)" in text
    assert text.count("torch-portable") == 1, "it does not depart from core, so that it has no column"
    text = overview(Report(PERFECT), width=100)
    assert row(text, "m:f")[0] == "all"
    assert "no judged backend departs from a rule of core" in text
    assert "Portable code" not in text


def test_the_rest_is_in_a_file_whose_path_is_last(tmp_path):
    given, rest = tmp_path / "a.jsonl", tmp_path / "table.txt"
    lines = [line("header", replace(PERFECT.headers[0], cases=(PASS.case,))), line("subject", SUBJECT)]
    given.write_text("".join([*lines, line("verdict", PASS), line("footer", Footer(1))]))
    run = command("table", "--rest", rest, given, status=0)
    assert run.stdout.startswith("levels reached")
    assert "results by rule" not in run.stdout
    assert run.stdout.endswith(f": {rest}\n")
    assert "results by rule, in cases" in rest.read_text()
