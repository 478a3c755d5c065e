"""Reports as files (JUnit XML, Markdown, badges), and several runs in one table or compared."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from reported import (
    DEVIATION,
    ERROR,
    FAIL,
    KNOWN,
    OTHER,
    PASS,
    PERFECT,
    RESULTS,
    SUBJECT,
    UNMET,
    UNSUPPORTED,
    row,
    rows,
)
from tests_support import command

from attnspec import SpecError
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.files import check_writable, write_whole
from attnspec.conformance.render import text as links
from attnspec.conformance.render.badge import to_json, to_svg
from attnspec.conformance.render.compare import Change
from attnspec.conformance.render.formats import FORMATS, find_format
from attnspec.conformance.render.junit import to_junit
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.overview import overview
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Footer, Header, line


def test_junit():
    (plain,) = ET.fromstring(to_junit(Report(RESULTS, [OTHER])))
    assert (plain.get("tests"), plain.get("skipped")) == ("5", "1"), "only the known failure"
    assert "unsupported" in plain.find("properties/property[@name='totals']").get("value")
    root = ET.fromstring(to_junit(Report(RESULTS, [OTHER], unsupported=True)))
    (suite,) = root
    counts = {"tests": "7", "failures": "1", "errors": "0", "skipped": "3"}
    assert suite.attrib == {"name": "m:f", "time": "0.0000"} | counts
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    failing = cases[FAIL.case]
    assert failing.get("classname") == "attnspec.MASK-6"
    message = failing.find("failure").get("message")
    assert message.startswith("MASK-6 A row with nothing to attend to gives zero: ")
    assert "reproduce:" in failing.find("failure").text
    assert cases[ERROR.case].find("skipped").get("message") == "known failure: raises | today"
    assert cases["sinks-float32"].find("skipped").get("message") == "m:f has no argument sinks"
    assert cases["masking-004-float32"].find("system-out").text.startswith("deviation: shows the declared")
    assert cases[UNMET.case].find("system-out").text.startswith("should not met: output[0]")
    assert list(cases[PASS.case]) == []
    lost = replace(RESULTS, subjects=(replace(SUBJECT, problem="cut off\x00", note="old"),))
    suite = ET.fromstring(to_junit(Report(lost)))[0]
    assert suite.get("errors") == "2"
    names = ["library", "headline", "levels", "totals", "note"]
    assert [one.get("name") for one in suite.iter("property")] == names


def test_what_was_not_judged_or_not_loaded_is_an_error_in_every_report():
    names = tuple(f"softmax-{number}" for number in range(30))
    report = Report(replace(PERFECT, missing={"m:f": names}))
    assert report.outcome is Outcome.NOT_WHOLE
    suite = ET.fromstring(to_junit(report))[0]
    assert suite.get("errors") == "30"
    lost = [case for case in suite.iter("testcase") if case.find("error") is not None]
    assert [case.get("name") for case in lost] == list(names)
    assert suite.get("tests") == str(len(list(suite.iter("testcase"))))
    text = to_markdown(report)
    assert "- **error**: 30 cases of `m:f` were not judged: `softmax-0`, " in text
    assert "`softmax-19` and 10 more" in text
    assert "m:f: was not judged whole: 30 cases have no verdict" in screen(report)
    stale = Report(PERFECT, [replace(KNOWN, cases=())])
    *_, suite = ET.fromstring(to_junit(stale))
    assert suite.get("errors") == "1"
    lost = replace(SUBJECT, problem="no such module")
    names = tuple(f"softmax-{number}" for number in range(30))
    report = Report(replace(RESULTS, subjects=(lost,), verdicts=(), missing={"m:f": names}))
    suite = ET.fromstring(to_junit(report))[0]
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert to_markdown(report).count("**error**") == 1


def test_a_rule_is_linked_where_the_package_says_that_its_source_is(monkeypatch):
    failing = Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)))
    here = "https://x.example/attnspec/blob/main/spec/masking.md#mask-6-a-row"
    for home, in_markdown, in_junit in (
        ("https://x.example/attnspec", f'<a href="{here}', f"the rule: {here}"),
        ("", "`attnspec explain MASK-6`", "the rule: attnspec explain MASK-6"),
    ):
        monkeypatch.setattr(links, "_home", lambda home=home: home)
        assert in_markdown in to_markdown(failing)
        assert in_junit in to_junit(failing)


def test_markdown():
    text = to_markdown(Report(RESULTS, [OTHER, replace(KNOWN, cases=(PASS.case,))]))
    assert text.startswith("## attnspec: does not conform: 1 case fails under 1 rule\n")
    assert "| backend | library | calls | pass | fail | error | known | accepted | unsupported | " in text
    assert "| `m:f` | `numpy 2.4` | values | 1 | 1 | 0 | 1 | 0 | 2 | 1 | 1 |" in text
    assert "| `m:f` | `numpy 2.4` | refusals | 0 | " in text
    assert "<details><summary>MASK-6 A row with nothing to attend to gives zero" in text
    assert "```text\ncase masking-empty-last, float32, on m:f\n" in text
    assert "NUM-3 Every element stays within its error budget: known, 1 case, `raises | today`" in text
    assert f"- `MASK-6 {PASS.case} on m:f: does not fail any more; remove it`" in text
    text = to_markdown(Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN]))
    assert text.startswith("## attnspec: conforms but for 1 known failure; reaches levels core, strict, ")
    assert "known, 1 case, `filled with -1e9` ([link](https://x.example/1))" in text
    odd = replace(KNOWN, link="javascript:alert(1)")
    text = to_markdown(Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [odd]))
    assert "(`javascript:alert(1)`)" in text


@pytest.mark.parametrize(
    ("report", "message", "color"),
    [
        (Report(PERFECT), "every level", "brightgreen"),
        (Report(RESULTS), "does not conform", "red"),
        (Report(replace(PERFECT, headers=(Header("1", "quick"),))), "part of the suite passes", "yellow"),
        (Report(replace(PERFECT, missing={"m:f": ("x",)})), "not judged whole", "red"),
        (
            Report(replace(PERFECT, verdicts=(), subjects=(replace(SUBJECT, problem="x"),))),
            "not judged",
            "red",
        ),
        (
            Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN]),
            "core, strict, grouped, biased, 27 more, 1 known failure",
            "yellow",
        ),
    ],
)
def test_badge(report, message, color):
    badge = json.loads(to_json(report))
    assert (badge["message"], badge["color"]) == (message, color)
    svg = to_svg(report)
    ET.fromstring(svg)
    assert message in svg


def test_every_format_writes_and_is_found_by_its_option_and_suffix():
    for one in FORMATS:
        assert find_format(one.option, Path(f"x{one.suffix}")) is one
        assert one.write(Report(RESULTS))
    assert find_format("markdown", Path("summary")).option == "markdown"
    with pytest.raises(
        SpecError, match=re.escape("--badge: expected a file that ends in .svg or .json, got x.png")
    ):
        find_format("badge", Path("x.png"))


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path, link = tmp_path / "new" / "report", tmp_path / "link"
    check_writable(path)
    assert not path.exists()
    write_whole(path, "before")
    link.symlink_to(path)
    check_writable(path)
    assert path.read_text() == "before"
    write_whole(link, "after")
    assert (path.read_text(), link.is_symlink()) == ("after", True)
    monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_whole(path, "half")
    assert path.read_text() == "after"
    assert [one.name for one in path.parent.iterdir()] == ["report"]
    with pytest.raises(IsADirectoryError, match="expected a file, got a folder"):
        check_writable(tmp_path)


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
    assert lines[2].startswith(f"{PASS.case}: pass -> fail: MASK-6 A row with nothing to attend to gives")
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
    verdicts = [replace(one, backend=name) for name in NAMES for one in (*PERFECT.verdicts, *own[name])]
    return replace(PERFECT, subjects=tuple(replace(SUBJECT, name=x) for x in NAMES), verdicts=tuple(verdicts))


def test_levels_by_backend_then_the_rules_of_core_side_by_side():
    text = overview(Report(results()), width=300)
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
