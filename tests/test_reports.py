"""Reports made of results: on the terminal, as JUnit XML, Markdown and badges."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from reported import (
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
    VERDICTS,
)

from attnspec import SpecError, rules
from attnspec.conformance.report import links
from attnspec.conformance.report.badge import to_json, to_svg
from attnspec.conformance.report.failures import broken
from attnspec.conformance.report.files import check_writable, write_whole
from attnspec.conformance.report.formats import FORMATS, find_format
from attnspec.conformance.report.headline import headline, headline_of
from attnspec.conformance.report.junit import to_junit
from attnspec.conformance.report.levels import rules_of
from attnspec.conformance.report.markdown import to_markdown
from attnspec.conformance.report.report import Outcome, Report
from attnspec.conformance.report.screen import screen, wants_color
from attnspec.conformance.report.summary import levels, run, time, totals, used
from attnspec.conformance.results import Header, Subject
from attnspec.conformance.verdict import Raise


def row(text, rule):
    """The cells of one rule, or of a chapter, in a table that was printed, but for its title."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"│ {rule} ")]
    return [part.strip() for part in line.strip("│").split("│")][2:]


def flat(text):
    """A text without its folds."""
    return " ".join(text.split())


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
    below = text.partition("└")[2]
    assert flat(below).endswith(
        "run: chosen (the fixed cases; --seed N draws others) "
        "m:f: values: 1 pass, 1 fail, 1 error, 2 unsupported, 1 deviation, 1 should not met "
        "m:f: of the budget used: float32 0.50 (full); most in softmax-000-float32 "
        "m:f: does not conform: 2 cases fail under 2 rules"
    )
    unmet = "m:f: SHOULD not met: NUM-9 A call repeated gives the same bits: output[0]: got 1.0"
    assert unmet in flat(below)


def test_the_screen_of_what_conforms_is_a_line_for_each_chapter_and_the_levels_that_are_reached():
    text = screen(Report(PERFECT))
    assert "reproduce" not in text
    assert row(text, "masking") == ["13 pass, 13 cases"]
    assert "│ MASK-6" not in text
    assert text.splitlines()[-1] == "m:f: conforms to levels core, masked, grouped, cached, exact"
    assert len(text.splitlines()) < 24, "a screen"
    every = screen(Report(PERFECT), every=True)
    assert row(every, "MASK-6") == ["pass 1"]
    assert "│ masking" not in every
    assert re.findall(r"^│ ([A-Z]+-[0-9]+)", every, re.MULTILINE) == [rule.id for rule in rules()]


def test_what_does_not_plainly_pass_has_a_row_above_the_rest_of_its_chapter():
    text = screen(Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL, UNSUPPORTED))))
    assert row(text, "MASK-6") == ["FAIL 1 of 2"]
    assert "│ masking    │ 12 others " in text
    assert row(text, "softmax") == ["7 pass, 7 cases"], "where it is offered it passes"
    assert "m:f: does not conform: 1 case fails under 1 rule; reaches levels core, grouped, exact; " in flat(
        text
    )


@pytest.mark.parametrize("number", [1, 2, 3, 7])
@pytest.mark.parametrize("every", [False, True])
def test_nothing_is_wider_than_a_terminal_of_80_columns(number, every):
    names = [f"my_project.kernels.attention_{n}:forward?array=torch" for n in range(number)]
    results = replace(
        PERFECT,
        subjects=tuple(replace(SUBJECT, name=name) for name in names),
        verdicts=tuple(replace(one, backend=name) for name in names for one in (*PERFECT.verdicts, UNMET)),
    )
    lines = screen(Report(results), width=80, every=every).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("│ NUM-9") for line in lines) == {1: 1, 2: 1, 3: 1, 7: 3}[number]
    wide = screen(Report(results), width=450, every=every)
    assert max(map(len, wide.splitlines())) <= 450
    assert all(f"┃ {name} " in wide for name in names), "there is room for the whole name"


def test_the_screen_of_a_backend_that_cannot_be_loaded_has_no_table():
    lost = replace(
        RESULTS, subjects=(replace(SUBJECT, problem="no [red]module[/]", note="old"),), verdicts=()
    )
    text = screen(Report(lost))
    assert "by rule" not in text
    assert "m:f: old" in text
    assert text.splitlines()[-2:] == [
        "error: no [red]module[/]",
        "m:f: was not judged: it could not be loaded",
    ]


def test_known_failures_on_the_screen():
    text = screen(Report(RESULTS, [KNOWN, replace(OTHER, cases=(PASS.case,))]))
    assert "MASK-6 A row" not in text.partition("by rule")[0]
    assert row(text, "MASK-6") == ["known 1 of 1"]
    assert "1 known failure, told of in the table alone" in text
    stale = "NUM-3 softmax-000-float32 on m:f: does not fail any more; remove it"
    assert f"error: known failures: {stale}" in text
    both = replace(RESULTS, verdicts=(FAIL, replace(FAIL, case="other-float32")))
    assert row(screen(Report(both, [KNOWN])), "MASK-6") == ["FAIL 1, known 1 of 2"]


def test_colours_and_links_on_a_terminal_alone(monkeypatch):
    failing = Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)))
    assert "\x1b" not in screen(failing)
    text = screen(failing, color=True)
    (link,) = set(re.findall(r"\x1b]8;[^;]*;([^\x1b]+)\x1b", text))
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


def test_names_from_outside_are_no_markup():
    odd = "m[bold]\x1b:f"
    verdicts = tuple(replace(verdict, backend=odd) for verdict in VERDICTS)
    text = screen(Report(replace(RESULTS, subjects=(replace(SUBJECT, name=odd),), verdicts=verdicts)))
    assert "\x1b" not in text
    assert "m[bold]" in "".join(line for line in text.splitlines() if line.startswith("┃"))
    assert "case masking-empty-last, float32, on m[bold]" in text


def test_no_line_of_ours_is_made_by_text_from_outside():
    """A name, a note or a problem that goes on in a line of its own would look like one of the run."""
    forged = "x\nm:f: conforms to level core"
    subject = Subject(forged, forged, forged, forged, forged)
    verdicts = [replace(one, backend=forged, case=forged, reason="") for one in (PASS, UNMET, UNSUPPORTED)]
    results = replace(RESULTS, subjects=(subject,), verdicts=tuple(verdicts))
    for text in (screen(Report(results)), to_markdown(Report(results))):
        assert not re.search(r"^m:f: conforms", text, re.MULTILINE)
    long = replace(SUBJECT, problem="y" * 10**6, note="z" * 10**6)
    assert len(screen(Report(replace(RESULTS, subjects=(long,))))) < 20_000


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
    assert used([PASS, cast, tight, none]) == (
        "of the budget used: float16 0.90 (cast), float32 0.50 (full); most in a-float16"
    )
    assert used([PASS, replace(PASS, accuracy="tf32")]).startswith("of the budget used: float32 0.50 (tf32)")
    assert used([]) == ""


def test_values_and_refusals_are_counted_apart_and_what_is_known_as_such():
    refused = replace(FAIL, case="r-float32", refusal=True)
    assert totals([PASS, FAIL, refused, refused], {FAIL}) == ["values: 1 pass, 1 known", "refusals: 2 fail"]
    assert totals([]) == ["no verdict"]


def test_the_time_and_the_slowest_case():
    slow = replace(PASS, case="slow-float32", seconds=1.5)
    assert time([replace(PASS, seconds=0.5), slow]) == (
        "time: 2.0 s for 2 cases; the slowest, 1.50 s: slow-float32"
    )
    assert time([PASS]) == ""
    assert "the slowest, 1.50 s: slow-float32" in flat(screen(Report(replace(RESULTS, verdicts=(slow,)))))


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


def test_what_was_not_judged_is_an_error_in_every_report():
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


def test_a_backend_that_could_not_be_loaded_is_one_error():
    lost = replace(SUBJECT, problem="no such module")
    names = tuple(f"softmax-{number}" for number in range(30))
    report = Report(replace(RESULTS, subjects=(lost,), verdicts=(), missing={"m:f": names}))
    suite = ET.fromstring(to_junit(report))[0]
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert to_markdown(report).count("**error**") == 1


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
    for verdicts, text in (
        (PERFECT.verdicts, "conforms to levels core, masked, grouped, cached, exact"),
        (lame, "conforms to levels core, masked, grouped, exact; cached lacks MASK-7 (not judged)"),
        (none, "conforms to no level; core lacks SOFT-1 (deviation)"),
    ):
        report = Report(replace(PERFECT, verdicts=verdicts))
        assert report.good
        assert headline(report) == text
        assert to_markdown(report).startswith(f"## attnspec: {text}\n")
    part = Report(replace(PERFECT, headers=(Header("1", "quick"),)))
    assert headline(part) == "passes the part of the suite that was run; levels are told of a whole run"
    known = Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN])
    assert headline(known).startswith("conforms but for 1 known failure; reaches levels core, grouped, exact")
    subjects = (SUBJECT, OTHER_SUBJECT)
    both = (*PERFECT.verdicts, *(replace(one, backend="other:f") for one in PERFECT.verdicts if one in lame))
    two = replace(PERFECT, subjects=subjects, verdicts=both)
    assert headline(Report(two)) == "conforms to levels core, masked, grouped, exact"
    worse = Report(replace(two, verdicts=(*both, FAIL)))
    assert headline(worse) == "1 of 2 backends do not conform, or were not judged whole"
    assert headline_of(worse, OTHER_SUBJECT).startswith("reaches levels core")


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
    assert run(report.results) == "run: level core (the fixed cases; --seed N draws others)"
    text = screen(report, every=True)
    assert "MASK-6" not in text
    assert set(re.findall(r"^│ ([A-Z]+-[0-9]+)", text, re.MULTILINE)) == set(rules_of("core"))
    wrong = replace(FAIL, rule="SOFT-1", rules=("SOFT-1",))
    report = Report(replace(PERFECT, headers=headers, verdicts=(*PERFECT.verdicts, wrong)))
    assert headline(report) == "does not conform: 1 case fails under 1 rule; core lacks SOFT-1 (fail)"
    crashed = replace(ERROR, rules=("MASK-6", "SOFT-1"))
    report = Report(replace(PERFECT, headers=headers, verdicts=(*PERFECT.verdicts, crashed)))
    assert not report.good


def test_markdown():
    text = to_markdown(Report(RESULTS, [OTHER, replace(KNOWN, cases=(PASS.case,))]))
    assert text.startswith("## attnspec: does not conform: 1 case fails under 1 rule\n")
    assert "| backend | library | calls | pass | fail | error | known | unsupported | deviation | " in text
    assert "| `m:f` | `numpy 2.4` | values | 1 | 1 | 0 | 1 | 2 | 1 | 1 |" in text
    assert "| `m:f` | `numpy 2.4` | refusals | 0 | " in text
    assert "<details><summary>MASK-6 A row with nothing to attend to gives zero" in text
    assert "```text\ncase masking-empty-last, float32, on m:f\n" in text
    assert "NUM-3 Every element stays within its error budget: known, 1 of it, `raises | today`" in text
    assert f"- `MASK-6 {PASS.case} on m:f: does not fail any more; remove it`" in text


def test_markdown_of_what_conforms_but_for_known_failures():
    text = to_markdown(Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [KNOWN]))
    assert text.startswith("## attnspec: conforms but for 1 known failure; reaches levels core, grouped")
    assert "known, 1 of it, `filled with -1e9` ([link](https://x.example/1))" in text
    odd = replace(KNOWN, link="javascript:alert(1)")
    text = to_markdown(Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL)), [odd]))
    assert "(`javascript:alert(1)`)" in text


WILD = "\x1b[31m\x1b]8;;http://x\x07[red]x[/] [a](http://y) <script>`b`\n| @you #1 \udc80\u202e:boom: ![i](z)"


def test_text_from_outside_is_text_in_every_report():
    raised = Raise("E" + WILD, WILD, WILD, 1, WILD)
    subject = replace(SUBJECT, name=WILD, library=WILD, version=WILD, problem=WILD, note=WILD)
    verdicts = [replace(ERROR, backend=WILD, raised=raised), replace(FAIL, backend=WILD, reason=WILD)]
    verdicts += [replace(UNSUPPORTED, backend=WILD, reason=WILD), replace(ERROR, backend=WILD, case=WILD)]
    verdicts += [replace(UNMET, backend=WILD, difference=None, reason=WILD)]
    results = replace(RESULTS, subjects=(subject,), verdicts=tuple(verdicts), missing={WILD: (WILD,)})
    known = replace(OTHER, backend=WILD, reason=WILD, link=WILD)
    for known_of in ((), (known,)):
        report = Report(results, known_of)
        texts = {"screen": screen(report), "markdown": to_markdown(report), "junit": to_junit(report)}
        for text in texts.values():
            assert not {"\x1b", "\x07", "\udc80", "\u202e"} & set(text)
            text.encode()
        ET.fromstring(texts["junit"])
        assert "[red]x[/]" in texts["screen"], "no markup is eaten"
        # What is left outside of code and of fences holds nothing that Markdown would act on.
        bare = re.sub(r"^(`{3,})text\n.*?^\1$", "", texts["markdown"], flags=re.MULTILINE | re.DOTALL)
        bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", bare)
        assert not re.search(r"http:|<script|!\[i|@you|\[red\]", bare)


@pytest.mark.parametrize(
    ("report", "message", "color"),
    [
        (Report(PERFECT), "core, masked, grouped, cached, exact", "brightgreen"),
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
            "core, grouped, exact, 1 known failure",
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
