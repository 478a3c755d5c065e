"""Comparison of two runs from their files."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from reported import DEVIATION, ERROR, FAIL, PASS, SUBJECT, UNMET, UNSUPPORTED

from attnspec.conformance.cli.main import main
from attnspec.conformance.render.compare import Change
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
        return CliRunner().invoke(main, ["compare", *map(str, paths)])

    return compare


def test_regressions_end_with_status_1_and_are_named(compared):
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


def test_what_was_not_judged_any_more_is_a_regression(compared):
    done = compared([PASS], [], cases=(PASS.case,), ends=False)
    assert done.exit_code == 1
    assert f"{PASS.case}: pass -> not judged" in done.output


def test_many_changes_are_counted(compared):
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
