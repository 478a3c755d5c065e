"""Reports made of results: on the terminal, as JUnit XML, Markdown and badges."""

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from reported import ERROR, FAIL, KNOWN, OTHER, PASS, PERFECT, RESULTS, SUBJECT, UNMET, VERDICTS

from attnspec import SpecError
from attnspec.conformance.report.badge import to_json, to_svg
from attnspec.conformance.report.failures import broken
from attnspec.conformance.report.files import check_writable, write_whole
from attnspec.conformance.report.formats import FORMATS, find_format
from attnspec.conformance.report.junit import to_junit
from attnspec.conformance.report.markdown import to_markdown
from attnspec.conformance.report.report import Report
from attnspec.conformance.report.screen import screen
from attnspec.conformance.report.summary import levels, run, totals
from attnspec.conformance.results import Header


def row(text, rule):
    """The cells of one rule in a table that was printed, but for its title."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"│ {rule} ")]
    return [part.strip() for part in line.strip("│").split("│")][2:]


def test_the_screen_has_the_failures_one_table_and_a_line_each_for_the_rest():
    text = screen(Report(RESULTS), diagnoses={"m:f": "consistent with: fills"})
    assert text.index("MASK-6 A row") < text.index("consistent with: fills") < text.index("by rule")
    assert text.count("attnspec conformance, by rule") == 1
    assert {
        rule: row(text, rule) for rule in ("SOFT-1", "MASK-6", "NUM-3", "SOFT-5", "NUM-10", "MASK-1")
    } == {
        "SOFT-1": ["pass 1"],
        "MASK-6": ["FAIL 1 of 1"],
        "NUM-3": ["ERROR 1 of 1"],
        "SOFT-5": ["unsupported"],
        "NUM-10": ["not shown 1 of 1"],
        "MASK-1": ["pass 1"],
    }
    assert row(text, "MASK-3") == ["deviation 1 of 1"]
    assert row(text, "NUM-9") == ["not met 1 of 1"]
    assert "│ HEAD-1" not in text, "what was not asked has no row"
    lines = [line for line in text.splitlines() if line.startswith(("m:f: ", "run: ", "error: "))]
    diagnosis, unmet, what, counted, standing = lines
    assert diagnosis == "m:f: consistent with: fills"
    assert unmet.startswith(
        "m:f: SHOULD not met: NUM-9 A call repeated gives the same bits: output[0]: got 1.0"
    )
    assert what == "run: chosen (the fixed cases; --seed N draws others)"
    assert counted.startswith("m:f: 1 pass, 1 fail, 1 error, 2 unsupported, 1 deviation, 1 should not met; ")
    assert counted.endswith("of the budget used: float32 0.50 (full); most in softmax-000-float32")
    assert standing == "m:f: levels: not told, as the suite was not run as a whole"


def test_the_screen_of_what_conforms_is_the_table_and_what_was_run():
    text = screen(Report(PERFECT))
    assert "reproduce" not in text
    assert text.splitlines()[-1] == "m:f: levels: core, masked, grouped, cached, exact"


def test_the_screen_of_a_backend_that_cannot_be_loaded_has_no_table():
    lost = replace(
        RESULTS, subjects=(replace(SUBJECT, problem="no [red]module[/]", note="old"),), verdicts=()
    )
    text = screen(Report(lost))
    assert "by rule" not in text
    assert "m:f: old" in text
    assert text.splitlines()[-1] == "error: no [red]module[/]"


def test_known_failures_on_the_screen():
    text = screen(Report(RESULTS, [KNOWN, replace(OTHER, cases=(PASS.case,))]))
    assert "MASK-6 A row" not in text.partition("by rule")[0]
    assert row(text, "MASK-6") == ["known 1 of 1"]
    assert "1 known failures, told of in the table alone" in text
    assert "error: known failures: NUM-3 softmax-000-float32: does not fail any more; remove it" in text


def test_names_from_outside_are_no_markup():
    odd = "m[bold]\x1b:f"
    verdicts = tuple(replace(verdict, backend=odd) for verdict in VERDICTS)
    text = screen(Report(replace(RESULTS, subjects=(replace(SUBJECT, name=odd),), verdicts=verdicts)))
    assert "\x1b" not in text
    assert "m[bold]" in "".join(line for line in text.splitlines() if line.startswith("┃"))
    assert "case masking-empty-last, float32, on m[bold]" in text


def test_of_each_cause_one_failure_is_shown_and_the_others_are_counted():
    large = replace(FAIL, case="a", numbers=600)
    nameless = replace(FAIL, case="b", variant="", numbers=1)
    drawn = replace(FAIL, case="c", group="plain")
    other = replace(FAIL, case="d", rule="MASK-5", variant="", numbers=9)
    verdicts = (ERROR, large, nameless, drawn, FAIL, other, UNMET, PASS)
    found = broken(verdicts)
    assert [(one.verdict, one.more, len(one.cause.failures)) for one in found] == [
        (FAIL, 3, 5),
        (ERROR, 0, 1),
    ]
    text = screen(Report(replace(RESULTS, verdicts=verdicts)))
    assert "(and 3 more of m:f under MASK-6)" in text
    assert "also: 1 case under another rule, with the same cause: MASK-5" in text


def test_the_budget_used_by_dtype():
    cast = replace(PASS, case="a-float16", dtype="float16", share=0.9, accuracy="cast")
    tight = replace(cast, share=0.1, accuracy="full")
    none = replace(PASS, share=0.99, accuracy="")
    assert totals([PASS, cast, tight, none]) == (
        "4 pass; of the budget used: float16 0.90 (cast), float32 0.50 (full); most in a-float16"
    )
    assert totals([]) == "no verdict"


def test_levels_are_told_of_whole_runs_alone():
    assert levels(Report(PERFECT), SUBJECT) == "core, masked, grouped, cached, exact"
    assert levels(Report(RESULTS), SUBJECT) == "not told, as the suite was not run as a whole"
    lost = replace(SUBJECT, problem="cut off")
    assert levels(Report(replace(PERFECT, subjects=(lost,))), lost).startswith("not told, as the backend")
    lame = tuple(v for v in PERFECT.verdicts if v.rules not in (("MASK-7",), ("MASK-9",)))
    assert levels(Report(replace(PERFECT, verdicts=lame)), SUBJECT) == (
        "core, masked, grouped, exact; cached lacks MASK-7 (not judged), MASK-9 (not judged)"
    )


def test_what_was_run_is_told_with_the_seed_and_reproduced_with_it():
    seeded = replace(RESULTS, headers=(Header("1", "quick", 7), Header("1", "quick", 7)))
    assert run(seeded) == "run: quick (seed 7)"
    assert 'find("masking-empty-last-float32", seed=7)' in screen(Report(seeded))
    assert Report(replace(seeded, headers=(*seeded.headers, Header("1")))).seed is None


def test_junit():
    root = ET.fromstring(to_junit(Report(RESULTS, [OTHER])))
    (suite,) = root
    assert suite.attrib == {"name": "m:f", "tests": "7", "failures": "1", "errors": "0", "skipped": "3"}
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
    assert [one.get("name") for one in suite.iter("property")] == ["library", "levels", "note"]


def test_markdown():
    text = to_markdown(Report(RESULTS, [OTHER, replace(KNOWN, cases=(PASS.case,))]))
    assert text.startswith("## attnspec: does not conform\n")
    assert "| m:f | numpy 2.4 | 1 | 1 | 1 | 2 | 1 | 1 | not told" in text
    assert "<details><summary>MASK-6 A row with nothing to attend to gives zero</summary>" in text
    assert "```text\ncase masking-empty-last, float32, on m:f\n" in text
    assert "- NUM-3 Every element stays within its error budget: 1 of it, raises \\| today" in text
    assert f"- MASK-6 {PASS.case}: does not fail any more; remove it" in text


def test_markdown_of_what_conforms_and_of_what_does_but_for_known_failures():
    assert to_markdown(Report(PERFECT)).startswith("## attnspec: conforms\n")
    assert "core, masked, grouped, cached, exact" in to_markdown(Report(PERFECT))
    text = to_markdown(Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN]))
    assert text.startswith("## attnspec: 1 known failures, and no other\n")
    assert "1 of it, filled with -1e9 ([link](https://x.example/1))" in text


def test_markdown_keeps_text_from_outside_in_its_place():
    lost = replace(SUBJECT, name="<b>|x", problem="a\nb")
    text = to_markdown(Report(replace(RESULTS, subjects=(lost,), verdicts=(replace(FAIL, reason="```"),))))
    assert "| &lt;b&gt;\\|x |" in text
    assert "**error**: a b\n" in text
    assert "\n````text\n" in text


@pytest.mark.parametrize(
    ("report", "message", "color"),
    [
        (Report(PERFECT), "core, masked, grouped, cached, exact", "brightgreen"),
        (Report(RESULTS), "does not conform", "red"),
        (Report(replace(PERFECT, headers=(Header("1", "quick"),))), "part of the suite passes", "yellow"),
        (
            Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN]),
            "core, grouped, exact, 1 known failures",
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
        SpecError, match=re.escape("--badge: got x.png, expected a file that ends in .svg or .json")
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
