"""Known failures: told from new ones, kept with their reasons, and seen when they hold no more."""

from dataclasses import replace

import pytest
from reported import ERROR, FAIL, KNOWN, PASS, PERFECT, RESULTS

from attnspec import SpecError
from attnspec.conformance.report.known_failures import read_known, sort_failures, write_known
from attnspec.conformance.report.report import Report
from attnspec.conformance.results import Header


def test_failures_are_new_or_known_and_entries_hold_or_are_stale():
    found = sort_failures(RESULTS, [KNOWN])
    assert found.new == (ERROR,)
    assert found.known == ((FAIL, KNOWN),)
    assert found.stale == ()
    mended = sort_failures(RESULTS, [replace(KNOWN, cases=(PASS.case,))])
    assert mended.new == (FAIL, ERROR)
    assert mended.stale == ("MASK-6 softmax-000-float32: does not fail any more; remove it",)


def test_under_another_rule_it_is_another_failure_and_not_mended():
    found = sort_failures(RESULTS, [replace(KNOWN, rule="MASK-5")])
    assert found.new == (FAIL, ERROR)
    assert found.stale == (f"MASK-5 {FAIL.case}: fails under MASK-6 now; look at it again",)


def test_an_entry_of_a_case_that_was_not_run_is_stale_in_a_whole_run_alone():
    entry = replace(KNOWN, cases=("gone-float32",))
    assert sort_failures(RESULTS, [entry]).stale == ()
    assert sort_failures(PERFECT, [entry]).stale == (
        "MASK-6 gone-float32: does not fail as there is no such case; remove it",
    )
    assert not Report(PERFECT, [entry]).good
    assert Report(PERFECT).good


def test_known_failures_are_written_and_keep_their_reasons(tmp_path):
    path = tmp_path / "known.toml"
    assert write_known(path, RESULTS, [KNOWN]) == 2
    kept, new = read_known(path)
    assert kept == KNOWN
    assert (new.rule, new.cases) == ("NUM-3", (ERROR.case,))
    assert new.reason == "not looked into yet: raised ValueError: no | <b>\ufffd"
    assert Report(RESULTS, read_known(path)).failures.new == ()


def test_a_run_of_a_part_keeps_the_entries_of_the_rest(tmp_path):
    path = tmp_path / "known.toml"
    rest = replace(KNOWN, cases=("not-run-float32",))
    assert write_known(path, RESULTS, [rest]) == 3
    assert rest in read_known(path)
    whole = replace(RESULTS, headers=(Header("1"),))
    assert write_known(path, whole, [rest]) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[known", "to be TOML, got "),
        ("[unknown]\n", r"expected entries \[\[known\]\] alone, got unknown"),
        ('[[known]]\nrule = "MASK-6"\n', "entry 1: expected rule, reason, link and cases"),
        (
            '[[known]]\nrule = "X-1"\nreason = "r"\nlink = ""\ncases = ["c"]\n',
            "entry 1: rule: expected one of",
        ),
        (
            '[[known]]\nrule = "MASK-6"\nreason = " "\nlink = ""\ncases = ["c"]\n',
            "reason: expected a sentence",
        ),
        (
            '[[known]]\nrule = "MASK-6"\nreason = "r"\nlink = ""\ncases = []\n',
            "cases: expected names of cases",
        ),
    ],
)
def test_what_is_no_file_of_known_failures(text, message, tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        read_known(path)


def test_the_word_of_former_files_is_refused(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text('[[known]]\nrule = "MASK-6"\nreason = "r"\nlink = ""\ntests = ["t"]\n')
    with pytest.raises(SpecError, match="expected rule, reason, link and cases"):
        read_known(path)
