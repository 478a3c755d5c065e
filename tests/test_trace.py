"""Traceability: there are no gaps, and a gap would be listed."""

from dataclasses import replace

from tests_support import command

from attnspec import find_case, rules
from attnspec.conformance.gallery import entry
from attnspec.conformance.gallery.kills import Kill, read_kills
from attnspec.conformance.trace import gaps, rules_by_group, trace_lines, trace_rules, unneeded_vectors


def test_there_is_no_gap_and_one_would_be_listed(monkeypatch):
    assert gaps(trace_rules({})) == []
    bare = replace(trace_rules({})[0], cases=(), groups=(), entries=())
    killed = {name: kill for name, kill in read_kills().items() if name != "no_shift"}
    killed["values_one_late"] = Kill("", quick=True)
    assert gaps([bare], killed) == [
        "SHAPE-1: no case",
        "SHAPE-1: no wrong implementation in the gallery",
        "no_shift: no case kills it",
        "values_one_late: no case kills it",
    ]
    suites = {"masking: a": (), "masking: b": ("MASK-99",)}
    monkeypatch.setattr("attnspec.conformance.trace.rules_by_group", lambda: suites)
    missing = gaps([], {})
    assert "masking: a: cites no rule" in missing
    assert "masking: b: cites MASK-99, which is not a rule" in missing
    assert "DROP-1" in rules_by_group()["errors: option past every tile: dropout"]


def test_every_rule_is_traced_to_what_stands_for_it():
    found = {one.rule: one for one in trace_rules({"mine": ["MASK-6"], "other": []})}
    assert list(found) == [rule.id for rule in rules()]
    one = found["MASK-6"]
    assert one.chapter == "masking"
    assert "masking-no-keys" in one.cases
    assert any(name.startswith("masking: empty row") for name in one.groups)
    assert "empty_rows_are_nan" in one.entries
    assert one.backends == ("mine",)


def test_a_rule_is_written_in_a_line_or_whole_and_the_command_lists_all():
    one = next(one for one in trace_rules({}) if one.rule == "HEAD-2")
    assert len(trace_lines(one, whole=False)) == 1
    names = "heads_left_over, any_number_of_key_heads_taken, fewer_value_heads_repeated, "
    assert f"  gallery: {names}spare_key_heads_dropped" in trace_lines(one, whole=True)
    ended = command("trace", "--no-backends", status=0)
    assert len(ended.output.splitlines()) == len(rules())
    one = command("trace", "--no-backends", "mask-3")
    assert "causal_bottom_right" in one.output


def test_a_vector_that_no_entry_fails_is_not_needed(monkeypatch):
    case = find_case("masking-empty-window-last")
    monkeypatch.setattr("attnspec.conformance.trace.cases", lambda: (case,))
    for name, left in (("empty_rows_are_nan", []), ("softcap_without_effect", [case.id])):
        monkeypatch.setattr("attnspec.conformance.trace.wrong_entries", lambda name=name: (entry(name),))
        assert unneeded_vectors() == left
