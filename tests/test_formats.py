"""Reports as files: JUnit XML, Markdown and badges are written completely or not at all."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from reported import ERROR, FAIL, KNOWN, OTHER, PASS, PERFECT, RESULTS, SUBJECT, UNMET

from attnspec import SpecError
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.files import check_writable, write_whole
from attnspec.conformance.render import text as links
from attnspec.conformance.render.badge import to_json, to_svg
from attnspec.conformance.render.formats import FORMATS, find_format
from attnspec.conformance.render.junit import to_junit
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Header


def test_junit():
    (plain,) = ET.fromstring(to_junit(Report(RESULTS, [OTHER])))
    assert (plain.get("tests"), plain.get("skipped")) == ("5", "1"), "only the known failure"
    assert "unsupported" in plain.find("properties/property[@name='totals']").get("value")
    root = ET.fromstring(to_junit(Report(RESULTS, [OTHER], unsupported=True)))
    (suite,) = root
    assert suite.attrib == {
        "name": "m:f",
        "tests": "7",
        "failures": "1",
        "errors": "0",
        "skipped": "3",
        "time": "0.0000",
    }
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    failing = cases[FAIL.case]
    assert failing.get("classname") == "attnspec.MASK-6"
    assert (
        failing.find("failure")
        .get("message")
        .startswith("MASK-6 A row with nothing to attend to gives zero: ")
    )
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
    assert text.startswith(
        "## attnspec: conforms but for 1 known failure; reaches levels core, strict, grouped"
    )
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
            "core, strict, grouped, biased, 25 more, 1 known failure",
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
