"""The gallery: its entries, the page of the kill matrix, and that the matrix agrees with the judge."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from attnspec import rules
from attnspec.conformance.gallery import KINDS, NEEDS, correct_entries, entry, wrong_entries
from attnspec.conformance.gallery.entry import wrong
from attnspec.conformance.gallery.kills import FILE, Kill, broken_rule
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find, items
from attnspec.conformance.verdict import Verdict
from tools import kill_matrix
from tools.diagnosis import SAMPLE, Counts, Naming, count, report
from tools.gallery import Measurement, kills, page, read, store
from tools.kill_matrix import Finding, convict, problems


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


def test_an_entry_is_a_backend_by_its_name():
    from attnspec.conformance import gallery

    assert gallery.inverted_polarity.name == "attnspec.conformance.gallery:inverted_polarity"
    with pytest.raises(AttributeError):
        gallery.no_such_entry  # noqa: B018 - the access is what is tested


def test_what_an_entry_lacks_is_not_in_its_signature():
    assert not entry("one_key_at_a_time").backend().has("attention", "return_weights")
    assert entry("one_key_at_a_time").backend().has("attention", "return_lse")


def test_every_wrong_entry_was_measured_and_has_a_row_in_the_page():
    assert set(read().kills) == {one.name for one in wrong_entries()}, "run `python -m tools.gallery --write`"
    rows = re.findall(r"^\| `(\w+)` ", page(read()), re.MULTILINE)
    assert sorted(rows) == sorted(one.name for one in (*wrong_entries(), *correct_entries()))


def test_every_stored_case_is_one_of_the_suite():
    names = {item.name for item in items()}
    stored = {kill.case or kill.other for kill in read().kills.values()}
    assert {name for name in stored - names if name and not name.startswith("sizes-")} == set()


def test_what_was_measured_is_read_as_it_was_written(tmp_path):
    store(read(), tmp_path / "kills.json")
    assert (tmp_path / "kills.json").read_text(encoding="utf-8") == FILE.read_text(encoding="utf-8")


def test_an_entry_that_survives_is_kept_and_shown_as_one_and_a_correct_one_is_not_kept():
    survivor = Finding("no_shift", "SOFT-2", "", 9, 0.0, {}, 1.0)
    killed = Finding("inverted_polarity", "MASK-1", "a-case", 9, 0.0, {}, 1.0)
    correct = Finding("plain", "", "", 9, 0.0, {}, 1.0)
    found = kills([survivor, killed, correct], [survivor, killed])
    assert found == {"no_shift": Kill("", quick=False), "inverted_polarity": Kill("a-case", quick=True)}
    text = page(Measurement({**read().kills, **found}, read().diagnosis))
    assert re.search(r"^\| `no_shift` .* \|  \| no \|$", text, re.MULTILINE)
    assert re.search(r"^\| `inverted_polarity` .* \| a-case \| yes \|$", text, re.MULTILINE)


def test_nothing_is_diagnosed_wrongly():
    # New entries need not be diagnosed anew at once.
    assert 300 < read().diagnosis.entries <= len(wrong_entries()[::SAMPLE])
    assert not read().diagnosis.wrongly


#: Entries are confirmed in parts.
PARTS = 24


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.sample(1)
def test_every_wrong_entry_breaks_its_rule_in_the_case_that_is_stored(part):
    stored = dict(list(read().kills.items())[part::PARTS])
    assert {entry(name).needs for name, kill in stored.items() if not kill.case} <= set(NEEDS)
    left = {name: kill.case for name, kill in stored.items() if kill.case}
    # A busy machine may run threads one after the other, so a race may need several tries.
    for _ in range(10):
        left = {name: left[name] for name in kill_matrix.unconfirmed(left)} if left else {}
    assert left == {}


@pytest.mark.exhaustive
def test_every_other_entry_fails_under_another_rule_or_at_a_larger_size():
    late = {name: kill for name, kill in read().kills.items() if not kill.case}
    assert all(kill.other for kill in late.values())
    assert list(kill_matrix.unconfirmed_kills(late)) == []


def test_a_stored_case_that_reports_another_rule_or_is_gone_is_not_confirmed():
    found = Kill("", quick=False, other="masking-boolean-mask-keys-3-float32", reported="MASK-1")
    named = {
        "inverted_polarity": found,
        "masks_counted": replace(found, reported="MASK-2"),
        "values_one_late": replace(found, other="no-such-case"),
    }
    assert list(kill_matrix.unconfirmed_kills(named)) == ["masks_counted", "values_one_late"]


def test_what_needs_more_than_the_suite_may_survive_and_nothing_else_may():
    survivor = Finding("a", "MASK-1", "", 9, 0.0, {}, 1.0)
    needy = replace(survivor, needs="sizes")
    assert problems([needy]) == []
    assert needy.as_it_should
    assert problems([survivor]) == ["a survives: no case of 9 says that MASK-1 is broken"]
    assert NEEDS["sizes"] in kill_matrix.summary([needy])
    assert NEEDS["sizes"] not in kill_matrix.summary([survivor])


def test_the_page_says_what_a_survivor_needs():
    (one,) = [one for one in wrong_entries() if one.needs == "sizes"][:1]
    everything = {each.name: Kill("", quick=False) for each in wrong_entries()}
    text = page(Measurement(everything, read().diagnosis))
    assert re.search(rf"^\| `{one.name}` .* \| needs sizes \| no \|$", text, re.MULTILINE)


def test_a_case_that_does_not_kill_is_not_confirmed():
    named = {"values_one_late": "masking-no-keys-float32", "empty_rows_are_nan": "no-such-case"}
    assert list(kill_matrix.unconfirmed(named)) == ["values_one_late", "empty_rows_are_nan"]


@pytest.mark.exhaustive
def test_correct_entries_pass_a_part_of_every_chapter():
    """The whole of it takes minutes, and is the matrix."""
    part = list(items(quick=True))[::16]
    assert len({item.name.partition("-")[0] for item in part}) > 5
    findings = kill_matrix.acquit(correct_entries(), part)
    assert problems(findings.values()) == []
    assert all(one.tried for one in findings.values())


def test_a_correct_entry_that_is_none_is_noticed():
    part = [find("softmax-002-float32"), find("masking-empty-last-float32")]
    (found,) = kill_matrix.acquit([entry("values_one_late")], part).values()
    assert found.broken
    assert problems([found])[0].startswith("values_one_late is correct, but fails: ")


def test_the_matrix_says_what_the_judge_says():
    name = "window_implies_causal"
    found = convict(entry(name), sorted(items(rules=["MASK-8"], quick=True), key=lambda item: item.name))
    assert found.as_it_should
    verdict = judge(entry(name).backend(), find(found.killed_by))
    assert (verdict.status, verdict.rule) == ("fail", "MASK-8")


def test_the_matrix_runs_in_processes_of_its_own():
    (found,) = kill_matrix.matrix(["inverted_polarity"], (), quick=True, workers=1)
    assert found.as_it_should
    assert found.first_failure > 0


@pytest.mark.parametrize(
    ("status", "rule", "breaks"),
    [
        ("fail", "MASK-1", True),
        ("error", "MASK-1", True),
        ("should not met", "NUM-9", True),
        ("unsupported", "NUM-10", True),  # a MAY that is not shown
        ("unsupported", "", False),
        ("deviation", "MASK-6", False),
        ("pass", "", False),
    ],
)
def test_a_rule_of_any_level_counts_as_broken(status, rule, breaks):
    assert bool(broken_rule(Verdict("b", "c", "", ("X-1",), status, rule=rule))) == breaks


def test_without_cases_everything_survives():
    found = convict(entry("inverted_polarity"), ())
    assert problems([found]) == ["inverted_polarity survives: no case of 0 says that MASK-1 is broken"]
    assert "MASK-1 is broken by no entry" in kill_matrix.unbroken_rules([found])
    assert kill_matrix.acquit([entry("plain")], ())["plain"].as_it_should


def test_what_is_not_as_it_should_be_is_listed():
    filed = Finding("a", "MASK-1", "", 3, 0.1, {"MASK-3": "c"}, 1.0)
    alarm = Finding("b", "", "", 3, 0.1, {"NUM-3": "c"}, 1.0)
    assert problems([filed, alarm]) == [
        "a has the wrong rule: it breaks MASK-3 by c, and no case of 3 says that MASK-1 is broken",
        "b is correct, but fails: NUM-3 by c",
    ]
    assert not any(one.as_it_should for one in (filed, alarm))
    killed = Finding("c", "MASK-1", "c", 3, 0.1, {}, 1.0)
    assert "wrong: 2, killed under their own rule: 1" in kill_matrix.summary([filed, alarm, killed])


def test_an_error_of_the_judge_says_where_it_happened(monkeypatch):
    def broken_judge(*_):
        raise KeyError("no")

    monkeypatch.setattr("tools.kill_matrix.judge", broken_judge)
    with pytest.raises(KeyError) as caught:
        convict(entry("inverted_polarity"), [find("softmax-002-float32")])
    assert "inverted_polarity by softmax-002-float32" in caught.value.__notes__[0]


def test_an_entry_is_killed_by_any_case_that_its_step_changes():
    case = find("masking-boolean-mask-keys-3-float32")
    assert list(kill_matrix.kills_by(["inverted_polarity", "no_shift"], [case])) == [
        ("inverted_polarity", case.name, "MASK-1")
    ]


def test_right_and_wrong_names_of_the_diagnosis_are_counted():
    counts = count([Naming("a", ("a", "b"), ("b",)), Naming("b", ("a",), ()), Naming("c", (), ())])
    assert counts == Counts(3, rightly=0, several=1, nothing=1, wrongly={"b": ("a",)}, twins={"a": ("b",)})
    assert report(counts).splitlines() == [
        "diagnosis: 3 entries, 0 named rightly, 1 as one of several, 1 wrongly, 1 not named",
        "without the entry itself: 1 named as another",
        "b is named a",
        "a is named b",
    ]
