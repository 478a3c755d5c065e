"""The gallery: its entries, the page of the kill matrix, and that the matrix says what the suite says."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from attnspec import rules
from attnspec.conformance.gallery import KINDS, correct_entries, entry, wrong_entries
from attnspec.conformance.gallery.entry import wrong
from attnspec.conformance.meta.kills import problems, summary, unbroken
from attnspec.conformance.meta.matrix import Finding, acquit, confirm, convict, matrix
from attnspec.conformance.meta.page import kills_of, page, said_of
from attnspec.reference.call import STEPS

#: As it stands in the sources: it is not installed.
PAGE = Path(__file__).parent.parent / "conformance" / "gallery" / "README.md"


def test_entries_are_told_apart_by_their_names_and_say_what_they_do():
    every = [*wrong_entries(), *correct_entries()]
    assert max(Counter(one.name for one in every).values()) == 1
    assert max(Counter(one.sentence for one in every).values()) == 1
    assert all(one.sentence.endswith(".") for one in every)
    assert len(wrong_entries()) >= 80
    assert len(correct_entries()) >= 15


def test_every_wrong_entry_has_a_rule_a_class_and_one_step_and_every_class_has_entries():
    assert {one.rule for one in wrong_entries()} == {rule.id for rule in rules()}
    assert {one.kind for one in wrong_entries()} == set(KINDS)
    assert all(len(one.steps) == 1 for one in wrong_entries())
    assert all(re.fullmatch(r"|[\w.-]+/[\w.-]+#\d+", one.seen) for one in wrong_entries())
    assert not any(one.rule or one.kind for one in correct_entries())


def test_an_unknown_step_is_no_entry():
    with pytest.raises(ValueError, match="step: expected one of"):
        wrong("no_such_step", "MASK-1", "R")(lambda call: call)


def test_what_entries_take_from_the_reference_are_steps():
    folder = Path(PAGE).parent
    used = {step for path in folder.glob("*.py") for step in re.findall(r"\bbase\.(\w+)", path.read_text())}
    assert len(used) > 40
    assert used <= STEPS.keys()


def test_an_entry_is_a_backend_by_its_name():
    from attnspec.conformance import gallery

    assert gallery.inverted_polarity.name == "attnspec.conformance.gallery:inverted_polarity"
    with pytest.raises(AttributeError):
        gallery.no_such_entry  # noqa: B018 - the access is what is tested


def test_what_an_entry_lacks_is_not_in_its_signature():
    assert not entry("one_key_at_a_time").backend().has("attention", "return_weights")
    assert entry("one_key_at_a_time").backend().has("attention", "return_lse")


def test_the_page_is_as_the_gallery_is():
    text = PAGE.read_text(encoding="utf-8")
    assert set(kills_of(text)) == {one.name for one in wrong_entries()}
    assert page(kills_of(text), said_of(text)) == text, "run `python -m attnspec.conformance.gallery --write`"


def test_the_page_tells_of_no_wrong_diagnosis():
    said = said_of(PAGE.read_text(encoding="utf-8"))
    assert said.startswith(f"diagnosis: {len(wrong_entries())} entries, ")
    assert ", 0 wrongly, " in said


def test_every_wrong_entry_breaks_its_rule_in_the_test_that_the_page_names():
    killed_by = {name: kill.test for name, kill in kills_of(PAGE.read_text(encoding="utf-8")).items()}
    assert confirm(killed_by) == []


def test_a_test_that_does_not_kill_is_not_confirmed():
    kill = "test_masking::test_golden[masking-no-keys-float32]"
    assert confirm({"values_one_late": kill, "empty_rows_are_nan": "no such test"}, workers=1) == [
        "values_one_late",
        "empty_rows_are_nan",
    ]


def test_correct_entries_pass_the_quick_part():
    findings = matrix((), [one.name for one in correct_entries()], quick=True)
    assert problems(findings) == []
    assert all(one.tried for one in findings)


def test_the_matrix_says_what_the_suite_says(tmp_path):
    """The same tests fail in a run of the suite as in the process of the matrix."""
    name, words = "window_implies_causal", "test_windows or test_causal"
    results = tmp_path / "results.jsonl"
    command = [
        sys.executable,
        "-m",
        "attnspec.conformance.cli.main",
        "check",
        f"--results={results}",
        "-k",
        words,
    ]
    subprocess.run([*command, f"attnspec.conformance.gallery:{name}"], check=False, capture_output=True)
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    failed = {
        (re.sub(r"attnspec\.conformance\.gallery:\w+-?", "", line["verdict"]["test"]).replace("[]", ""), rule)
        for line in lines
        if "verdict" in line and line["verdict"]["status"] == "fail"
        for rule in line["verdict"]["rules"]
    }
    program = f"""
from attnspec.conformance.gallery import entry
from attnspec.conformance.meta.runs import collect, run
for test in collect():
    if test.item.originalname in ("test_windows", "test_causal", "test_causal_with_an_offset"):
        for rule in run(test, entry({name!r}).backend()).broken:
            print(test.name.partition("::")[2], rule, sep="|")
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert failed
    assert {tuple(line.split("|")) for line in said.splitlines()} == failed


def test_without_tests_everything_survives():
    found = convict(entry("inverted_polarity"), ())
    assert problems([found]) == [
        "inverted_polarity survives: no test of 0 says that MASK-1 is broken",
    ]
    assert "MASK-1 is broken by no entry" in unbroken([found])
    assert acquit([entry("plain")], ())["plain"].as_it_should


def test_what_is_not_as_it_should_be_is_listed():
    filed = Finding("a", "MASK-1", "", 3, 0.1, {"MASK-3": "t"}, (), 1.0)
    alarm = Finding("b", "", "", 3, 0.1, {"NUM-3": "t"}, (), 1.0)
    unsound = Finding("c", "MASK-1", "t", 3, 0.1, {}, ("KeyError",), 1.0)
    said = problems([filed, alarm, unsound])
    assert said[0] == "a is filed wrongly: it breaks MASK-3 by t, no test of 3 says that MASK-1 is broken"
    assert said[1] == "b is correct, and a false alarm: NUM-3 by t"
    assert said[2] == "c: a test goes wrong itself: KeyError"
    assert not any(one.as_it_should for one in (filed, alarm, unsound))
    assert "wrong: 2, killed under the rule they are filed under: 1" in summary([filed, alarm, unsound])
