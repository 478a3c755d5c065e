"""Traceability: nothing is missing, and what is missing is said."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from attnspec import find_case, rules
from attnspec.conformance.cli.main import main
from attnspec.conformance.gallery import correct_entries, entry, wrong_entries
from attnspec.conformance.meta.trace import gaps, lines, suite, traced
from attnspec.conformance.report.diagnosis import asked_of, fails

#: As it stands in the sources: it is not installed.
PAGE = Path(__file__).parent.parent / "conformance" / "gallery" / "README.md"


def test_there_is_no_gap():
    assert gaps(traced({}), PAGE.read_text(encoding="utf-8")) == []


def test_every_rule_is_traced_to_what_stands_for_it():
    found = {one.rule: one for one in traced({"mine": ["MASK-6"], "other": []})}
    assert list(found) == [rule.id for rule in rules()]
    one = found["MASK-6"]
    assert one.chapter == "masking"
    assert "masking-no-keys" in one.cases
    assert any(name.startswith("test_empty_rows::") for name in one.tests)
    assert "empty_rows_are_nan" in one.entries
    assert one.backends == ("mine",)


def test_what_is_missing_is_listed():
    bare = replace(traced({})[0], cases=(), tests=(), entries=())
    text = PAGE.read_text(encoding="utf-8").replace("`no_shift`", "`other`")
    assert gaps([bare], text) == [
        "SHAPE-1: no test and no golden vector",
        "SHAPE-1: no wrong implementation in the gallery",
        "no_shift: no test kills it",
    ]


def test_a_test_without_a_rule_and_one_of_no_rule_are_gaps(monkeypatch):
    suites = {"test_a::test_b": (), "test_a::test_c": ("MASK-99",)}
    monkeypatch.setattr("attnspec.conformance.meta.trace.suite", lambda: suites)
    missing = gaps([], "")
    assert "test_a::test_b: cites no rule" in missing
    assert "test_a::test_c: cites MASK-99, which is none" in missing


def test_rules_of_parameters_are_cited():
    assert "DROP-1" in suite()["test_options::test_an_option_past_every_tile"]


def test_a_rule_is_written_in_a_line_or_whole():
    one = next(one for one in traced({}) if one.rule == "HEAD-2")
    assert len(lines(one, whole=False)) == 1
    assert "  gallery: heads_left_over, fewer_value_heads_repeated, spare_key_heads_dropped" in lines(
        one, whole=True
    )


def test_the_command_lists_every_rule_and_ends_well():
    ended = CliRunner().invoke(main, ["trace", "--no-backends"])
    assert ended.exit_code == 0, ended.output
    assert len(ended.output.splitlines()) == len(rules())
    one = CliRunner().invoke(main, ["trace", "--no-backends", "mask-3"])
    assert "causal_bottom_right" in one.output


@pytest.mark.parametrize("dtype", [0, 1])
def test_a_vector_is_failed_by_what_it_is_against_and_not_by_what_is_correct(dtype):
    asked = asked_of(find_case("masking-empty-window-last"))[dtype]
    assert fails(entry("empty_rows_are_nan").backend(), asked)
    assert not any(fails(one.backend(), asked) for one in correct_entries())
    assert 0 < sum(fails(one.backend(), asked) for one in wrong_entries()) < len(wrong_entries()) / 2
