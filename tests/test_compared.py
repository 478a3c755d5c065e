"""The table of libraries, from files of results."""

import pytest

from attnspec import find_rule
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.verdict import Verdict
from attnspec.errors import SpecError
from tools.compared import BEGIN, END, cell, headlines, replaced, table

RULE = find_rule("MASK-6")


def verdict(status, rule="", **more):
    return Verdict("b", f"case-{status}-{rule}", "g", ("MASK-6", "SOFT-1"), status, rule=rule, **more)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([], ""),
        ([verdict("unsupported")], ""),
        ([verdict("pass"), verdict("unsupported")], "holds"),
        ([verdict("pass"), verdict("deviation", "MASK-6", variant="nan")], "`nan`"),
        ([verdict("deviation", "MASK-6", declared=("a/b",)), verdict("pass")], "deviates"),
        ([verdict("deviation", "SOFT-1", declared=("a/b",)), verdict("pass")], "holds"),  # of another rule
        ([verdict("fail", "MASK-6"), verdict("pass")], "fails"),
        ([verdict("should not met", "MASK-6"), verdict("pass")], "not met"),
    ],
)
def test_a_cell(verdicts, said):
    assert cell(RULE, verdicts) == said


def results(part="whole"):
    shown = (verdict("pass"), verdict("deviation", "MASK-6", variant="nan"), verdict("error", "SOFT-1"))
    return Results(
        (Subject("b?dtype=float32", "lib", "1"), Subject("b", "lib", "1")), shown, (Header("1", part),)
    )


def test_the_table_has_the_rules_that_differ():
    lines = table(results()).splitlines()
    assert lines[0] == "| rule | | b | b |"
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["[MASK-6]", "[SOFT-1]"]
    assert lines[2].endswith("|  | `nan` |")
    assert lines[3].endswith("|  | fails |")
    assert "| b, 1 not declared | lib 1 | 1 | 1 | 0 | 0 |" in headlines(results())


def test_a_run_that_is_not_whole_makes_no_table():
    with pytest.raises(SpecError, match="expected whole runs, got quick"):
        table(results("quick"))


def test_the_marks_of_the_page():
    assert replaced(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\n\nnew\n\n{END} b"
    with pytest.raises(SpecError, match="once each"):
        replaced("a", "new")
