"""A run on the terminal: failures, one table, and a line for each other result."""

import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from reported import ERROR, FAIL, KNOWN, OTHER, PASS, PERFECT, RESULTS, SUBJECT, UNMET, UNSUPPORTED, VERDICTS

from attnspec import rules
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.finding import Diagnosis, Twin
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.screen import screen, wants_color

FILLS = Diagnosis((Twin(("fills",), "Fill.", "MASK-6"),), 2, 1, 0.5, 2, 1)


def flat(text):
    """A text without its folds."""
    return " ".join(text.split())


def row(text, rule):
    """The cells of one rule, or of a chapter, in a table that was printed, but for its title."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"│ {rule} ")]
    return [part.strip() for part in line.strip("│").split("│")][2:]


def test_the_screen_has_the_failures_one_table_and_a_line_each_for_the_rest():
    text = screen(Report(RESULTS, diagnoses={"m:f": FILLS}))
    assert (
        text.index("MASK-6 A row")
        < text.index("m:f: consistent with: fills (Fill; MASK-6) (2 of 2 failing cases, 1 of 1")
        < text.index("by rule")
    )
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
        "values: 1 pass, 1 fail, 1 error, 2 unsupported, 1 deviation, 1 should not met "
        "not offered: 1 case of the argument sinks "
        "of the budget used: float32 0.50 "
        "m:f: does not conform: 2 cases fail under 2 rules"
    )
    unmet = "SHOULD not met: NUM-9: output[0]: got 1.0"
    assert unmet in flat(below)
    assert "; fails no run; see attnspec explain NUM-9 run: chosen" in flat(below)


def test_the_screen_of_what_conforms_is_a_line_for_each_chapter_and_the_levels_that_are_reached():
    text = screen(Report(PERFECT))
    assert "reproduce" not in text
    assert row(text, "masking") == ["13 pass, 13 cases"]
    assert "│ MASK-6" not in text
    assert text.splitlines()[-1] == "m:f: conforms to every level"
    chapters = {rule.chapter for rule in rules()}
    assert len(text.splitlines()) <= len(chapters) + 11
    every = screen(Report(PERFECT), every=True)
    assert row(every, "MASK-6") == ["pass 1"]
    assert "│ masking" not in every
    assert re.findall(r"^│ ([A-Z]+-[0-9]+)", every, re.MULTILINE) == [rule.id for rule in rules()]


def test_what_does_not_plainly_pass_has_a_row_above_the_rest_of_its_chapter():
    text = screen(Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, FAIL, UNSUPPORTED))))
    assert row(text, "MASK-6") == ["FAIL 1 of 2"]
    assert re.search(r"^│ masking +│ 12 others ", text, re.MULTILINE)
    assert row(text, "softmax") == ["9 pass, 9 cases"], "where it is offered it passes"
    assert "m:f: does not conform: 1 case fails under 1 rule; reaches levels core, strict, grouped, " in flat(
        text
    )


def test_chapters_of_which_nothing_is_offered_share_the_last_row():
    lacking = ("positions", "dropout")
    chapter_of = {rule.id: rule.chapter for rule in rules()}
    verdicts = tuple(
        replace(one, status="unsupported") if chapter_of[one.rules[0]] in lacking else one
        for one in PERFECT.verdicts
    )
    text = screen(Report(replace(PERFECT, verdicts=verdicts)))
    number = sum(chapter in lacking for chapter in chapter_of.values())
    assert re.search(rf"^│ 2 others +│ {number} rules: positions, dropout ", text, re.MULTILINE)
    assert row(text, "2 others") == ["unsupported"]
    assert not any(f"│ {chapter} " in text for chapter in lacking)
    assert "│ masking " in text


def test_where_many_rules_fail_those_of_most_cases_have_a_row_and_the_others_are_counted():
    masking = [rule.id for rule in rules() if rule.chapter == "masking"]
    failing = tuple(
        replace(FAIL, case=f"{rule}-{number}", rules=(rule,), rule=rule)
        for most, rule in enumerate(masking)
        for number in range(most)
    )
    shown = Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, *failing)))
    text = screen(shown)
    told = re.findall(r"^│ (MASK-[0-9]+)", text.partition("by rule")[2], re.MULTILINE)
    assert told == masking[-2:]
    assert row(text, "masking") == [f"{len(masking) - 3} FAIL, 1 pass"]
    assert f"│ {masking[1]} " in screen(shown, every=True)


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
    assert "1 known failure, shown only in the table" in text
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
    found = findings(verdicts)
    assert [(one.verdict, one.others[one.rule], len(one.failures)) for one in found] == [
        (FAIL, 3, 5),
        (ERROR, 0, 1),
    ]
    text = screen(Report(replace(RESULTS, verdicts=verdicts)))
    assert "(and 3 more of m:f under MASK-6)" in text
    assert "also: 1 case under another rule, with the same cause: MASK-5" in text


def test_a_single_case_is_one_case():
    (one,) = [one for one in PERFECT.verdicts if one.rules == ("MASK-7",)]
    assert row(screen(Report(replace(PERFECT, verdicts=(one, FAIL)))), "masking") == ["1 pass, 1 case"]
