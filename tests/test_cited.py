"""A case that cites a rule is about it, and no rule is without a test."""

import re
from dataclasses import replace

import pytest
from tests_support import command, quick_suite

from attnspec import OPERATIONS, cases, find_case, find_rule, rules
from attnspec.conformance.gallery import entry
from attnspec.conformance.gallery.kills import Kill, read_kills
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.trace import gaps, rules_by_group, trace_lines, trace_rules, unneeded_vectors
from attnspec.operations import REQUIRED
from attnspec.operations.operation import primal

#: Chapters on every operation, by the prefix of their rules.
GENERAL = {"SHAPE", "NUM", "ERR"}
#: What operations are made of besides what their tables name.
PARTS = {
    "attention": {"SCORE", "MASK", "SOFT", "HEAD", "DROP", "CACHE"},
    "self_attention": {"SCORE", "MASK", "SOFT", "PROJ"},
    "multi_head_attention": {"SCORE", "MASK", "SOFT", "PROJ", "HEAD"},
    "scores": {"SCORE", "HEAD"},
    "quantized_attention": {"HEAD"},
    "low_precision_attention": {"HEAD"},
}
#: Rules on any argument whatsoever.
ON_EVERY_ARGUMENT = {"ERR-3"}
#: What a sentence calls an argument, where that is neither its name nor its noun.
CALLED = {
    "is_causal": "causal",
    "query_offset": "offset",
    "bias": "disallow",
    **dict.fromkeys(("query_bias", "key_bias", "value_bias"), "each with its"),
}
#: Generated groups that give further options on purpose, and these options; None for any.
MIXED = {
    "strides of every argument": None,
    "strides below zero": None,
    "strides of zero": None,
    "every digit of an argument": None,
    "two batch axes of operations": None,
    **dict.fromkeys(("forms of sizes", "companions of sizes", "axes that broadcast", "shared memory")),
    **dict.fromkeys(("arrays of no axes", "array without axes", "places apart by 32 bits")),
    "scale of zero in companions": None,
    "options together": None,
    "lse": None,
    "one sink for each head": None,
    "large negative bias": {"scale"},
    "common shift": {"scale"},
    "scores past float16": {"scale"},
    "large scores": {"scale"},
    "lse of equal scores": {"scale"},
    "offset alone": {"mask"},
    "cross attention": {"mask"},
    "data set": {"mask"},
    "every gradient in its budget": {"bias"},
    "gradients past every tile": None,
    "decoding over a long cache": None,
    "gradients in forms of options together": None,
    "through linear layers": {"key_heads"},
    "strides in the backward pass": None,
    "arrays column by column": None,
    "nothing in an axis": None,
    "nothing beside options": None,
    "no keys beside": None,
    "not a number in unread places beside many options": None,
    "number that is none in a form beside options": None,
    "integers for numbers": None,
    "integers of every operation": None,
    "new positions with": None,
    "long sums of one sign": {"bias", "sinks"},
    "options of another scaling": None,
    "maximum of nothing": {"return_max"},
    "much left padding": {"return_max"},
    "with an option": {"scale", "softcap", "sinks", "window", "is_causal"},
    "gradients with an option": {"scale", "softcap", "sinks", "window", "is_causal"},
    "sequences across tiles": {"is_causal"},
    "sequences without": {"sinks"},
    "new positions": {"is_causal"},
    "every code": {"encoding"},
    "every power of two": {"encoding"},
    "scales of scales": {"encoding"},
    "granularities": {"encoding"},
    "rows of a large key and many small ones": {"scale"},
}
#: What a sentence says that is about every argument which masks.
ON_MASKING = re.compile(r"allowed|may not attend|disallow")
VECTORS = list(cases())
GENERATED = [item for item in quick_suite() if item.group and not isinstance(item, Relation)]


def names(rule, argument):
    """Whether the sentence of a rule speaks of an argument."""
    sentence = find_rule(rule).sentence
    words = {argument.name, argument.noun, CALLED.get(argument.name, argument.name)}
    return any(re.search(rf"\b{re.escape(word)}", sentence) for word in words)


def unnamed(case):
    """List the options that a case gives, that no rule of it speaks of, and that none of these needs."""
    form = OPERATIONS[case.operation].arguments
    given = [form[name] for name, x in case.arguments.items() if x is not None]
    given = [one for one in given if one.default is not REQUIRED]
    if of := OPERATIONS[case.operation].reduces:
        # What such an operation has of its own is what its chapter is about.
        given = [one for one in given if one.name in OPERATIONS[of].arguments]
    if ON_EVERY_ARGUMENT & set(case.rules):
        return []
    cited = set(case.rules)
    named = [
        one
        for one in given
        if cited & {one.rule, *one.refusals.values()} or any(names(rule, one) for rule in case.rules)
    ]
    needed = {name for one in named for name in (*one.needs, *one.matters_with)}
    return [one.name for one in given if one not in named and one.name not in needed]


def unexplained(case):
    """List the options of a generated call that neither its rules nor the name of its group mention."""
    form = OPERATIONS[case.operation].arguments
    on_masking = any(ON_MASKING.search(find_rule(rule).sentence) for rule in case.rules)
    left = unnamed(case)
    for one in [form[name] for name in left]:
        words = {one.name.replace("_", " "), one.name, one.noun, CALLED.get(one.name, one.name)}
        words |= {one.name.partition("_")[0]} - {"query", "key"}
        if (on_masking and "masks" in one.role) or any(word in case.group for word in words):
            left.remove(one.name)
    given = {name for name, x in case.arguments.items() if x is not None and name not in left}
    left = [name for name in left if not {*form[name].needs, *form[name].matters_with} & given]
    kind = case.group.partition(":")[0]
    return [name for name in left if MIXED.get(kind, set()) is not None and name not in MIXED.get(kind, ())]


def chapters(operation):
    """The prefixes of rules that can bear on an operation."""
    form = OPERATIONS[operation]
    rules = {rule for one in form.arguments.values() for rule in (one.rule, *one.refusals.values())}
    rules |= {x.rule for x in form.results} | ({"STACK-2"} if OPERATIONS[primal(operation)].layers else set())
    return {rule.partition("-")[0] for rule in rules} | GENERAL | PARTS.get(operation, set())


def of_other_operations(case):
    """List the rules of a case that cannot bear on its operation."""
    return [rule for rule in case.rules if rule.partition("-")[0] not in chapters(case.operation)]


def refuses(rule):
    """Whether the sentence of a rule asks for a refusal, or says what one has to say (ERR-12)."""
    asking = r"\braise an error\b|\b(?:refused?|rejected)\b|^An error\b"
    return bool(re.search(asking, find_rule(rule).sentence))


@pytest.mark.parametrize("case", [case for case in VECTORS if case.misuse is None], ids=str)
def test_each_option_of_a_vector_is_named_by_a_rule_of_it(case):
    assert unnamed(case) == []


@pytest.mark.parametrize("case", [case for case in VECTORS if case.misuse is not None], ids=str)
def test_a_malformed_vector_cites_a_rule_that_refuses(case):
    assert any(refuses(rule) for rule in case.rules)


def test_calls_that_must_be_rejected_and_all_others_cite_rules_that_bear_on_them():
    malformed = [case for case in GENERATED if case.misuse is not None]
    assert malformed
    assert [case.name for case in malformed if not any(refuses(rule) for rule in case.rules)] == []
    assert [(case.name, x) for case in (*VECTORS, *GENERATED) if (x := of_other_operations(case))] == []
    calls = [case for case in GENERATED if case.misuse is None]
    assert calls
    assert [(case.name, found) for case in calls if (found := unexplained(case))] == []


def test_what_is_not_about_its_rules_is_found():
    case = next(case for case in VECTORS if case.id == "scores-softcap")
    assert unnamed(replace(case, rules=("SHAPE-1",))) == ["scale", "softcap"]
    assert of_other_operations(replace(case, rules=("SCORE-5", "POS-8"))) == ["POS-8"]
    assert unexplained(replace(case, rules=("SHAPE-1",), group="sinks")) == ["scale", "softcap"]
    assert unexplained(replace(case, rules=("SHAPE-1",), group="capped by a softcap")) == ["scale"]
    assert not refuses("SCORE-5")
    assert refuses("SCORE-6")


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
