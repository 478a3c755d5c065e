"""Levels: every MUST rule is in a level or listed as being in none, and verdicts determine the levels."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import attnspec
from attnspec import SpecError, claimable, in_no_level, levels, rules
from attnspec import rule as level
from attnspec.conformance.attribution.levels import rules_of, standings
from attnspec.conformance.verdict import Verdict
from attnspec.rule import DEFINITIONS

PAGE = (Path(attnspec.__file__).parent / "levels.md").read_text(encoding="utf-8").partition(DEFINITIONS)[0]
NAMES = (
    *("core", "strict", "masked", "grouped", "cached", "padded", "segmented", "windowed", "biased", "capped"),
    *("mergeable", "sinks", "weights", "dropout", "seeded-dropout", "block-sparse", "listed"),
    *("trainable", "exact", "invariant"),
    *("projected", "multi-head", "paged", "paged-attention", "packed", "merged", "latent"),
    *("decoded", "quantized", "low-precision", "rotary", "rotary-scaled", "alibi"),
)
COMPANIONS = NAMES[-13:]


def named():
    return [rule for one in levels() for rule in (*one.rules, *one.where_offered)]


def test_every_must_rule_is_in_a_level_or_said_to_be_in_none():
    must = {rule.id for rule in rules() if rule.level == "MUST"}
    others = {"NUM-9", *claimable()}
    assert must | others == {*named(), *in_no_level()}
    assert {*levels()[NAMES.index("invariant")].rules} == others
    assert not {*named()} & {*in_no_level()}


def test_nothing_on_the_page_is_lost_by_the_loader():
    found = re.findall(r"\b[A-Z]+-[0-9]+\b", PAGE)
    mentioned = re.findall(r"narrowest of the classes of .NUM-3", PAGE)
    assert len(found) - len(mentioned) == len(named()) + len(in_no_level())


def test_the_levels_and_what_they_build_on():
    assert tuple(one.name for one in levels()) == NAMES
    on_masked = {"cached", "padded", "segmented", "windowed", "block-sparse", "listed"}
    assert {one.name for one in levels() if one.builds_on == "masked"} == on_masked
    assert {one.name for one in levels() if not one.builds_on} == {"core", *COMPANIONS}
    assert {one.builds_on for one in levels()} == {"", "core", "masked"}
    assert [one.name for one in levels() if one.accuracy] == ["exact"]


def test_the_rules_of_a_level_are_its_own_and_those_that_it_builds_on():
    for one in levels():
        assert {*one.rules, *one.where_offered} <= {*rules_of(one.name)}
        assert not one.builds_on or {*rules_of(one.builds_on)} < {*rules_of(one.name)}
    with pytest.raises(SpecError, match=r"level: expected one of core, .*, got 'gold'"):
        rules_of("gold")


@pytest.mark.parametrize(
    "text", ["## core\n\nRules: none.\n", "## core\n\nRules: NUM-1.\n\nBuilds on: masked.\n"]
)
def test_a_page_that_says_nothing(text, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    with pytest.raises(SpecError, match="level core: expected rules, and a level before it to build on"):
        level.levels.__wrapped__()


def verdict(bears_on, status, **fields):
    return Verdict("b", "case-float16", "", bears_on, status, "float16", **fields)


def perfect(**changes):
    """A pass for every rule, in the tightest class, but for those that are changed."""
    return [
        verdict((rule.id,), changes.get(rule.id.replace("-", "_"), "pass"), accuracy="full")
        for rule in rules()
    ]


def reached(verdicts):
    return tuple(standing.level for standing in standings(verdicts) if standing.reached)


def standing(name, verdicts):
    """How what gave these verdicts stands to one level."""
    return standings(verdicts)[NAMES.index(name)]


def test_all_levels_are_reached_by_what_passes_everything():
    assert reached(perfect()) == NAMES
    assert reached([]) == ()


@pytest.mark.parametrize("status", ["fail", "error", "deviation", "should not met", "unsupported"])
@pytest.mark.parametrize(
    ("rule", "lost"),
    [
        ("SOFT_1", NAMES[: -len(COMPANIONS)]),
        ("MASK_6", ("masked", "cached", "padded", "segmented", "windowed", "block-sparse", "listed")),
        ("MASK_7", ("cached",)),
        ("HEAD_1", ("grouped",)),
        ("NUM_11", ("exact",)),
        ("INV_3", ("invariant",)),
        ("MASK_13", ()),
        ("POS_7", ("alibi",)),
    ],
)
def test_one_rule_that_does_not_pass_takes_the_levels_that_need_it(rule, lost, status):
    verdicts = perfect(**{rule: status})
    assert reached(verdicts) == tuple(name for name in NAMES if name not in lost)
    for standing in standings(verdicts):
        assert standing.missing == ({rule.replace("_", "-"): status} if standing.level in lost else {})


def test_what_is_not_offered_and_what_was_not_asked():
    assert reached(perfect(NUM_2="unsupported", NUM_5="unsupported")) == NAMES
    assert reached(perfect(NUM_2="deviation")) == COMPANIONS
    first = standings([one for one in perfect() if one.rules != ("ERR-1",)])[0]
    assert first.missing == {"ERR-1": "not judged"}


def test_a_pass_beside_an_unsupported_test_is_a_pass_and_beside_a_failure_none():
    more = verdict(("MASK-1",), "unsupported")
    assert reached([*perfect(), more]) == NAMES
    assert "masked" not in reached([*perfect(), replace(more, status="fail")])


def test_a_deviation_is_from_its_own_rule_alone():
    more = verdict(("MASK-1", "MASK-13"), "deviation", rule="MASK-13")
    assert reached([*perfect(), more]) == NAMES
    assert "masked" not in reached([*perfect(), replace(more, rule="MASK-1")])


@pytest.mark.parametrize("status", ["fail", "should not met"])
def test_what_breaks_one_rule_says_nothing_of_the_others(status):
    more = verdict(("MASK-1", "MASK-13"), status, rule="MASK-13")
    assert reached([*perfect(), more]) == NAMES
    alone = [one for one in perfect() if one.rules != ("MASK-1",)]
    assert standing("masked", [*alone, more]).missing == {"MASK-1": "not judged"}


def test_a_may_that_is_not_shown_counts_against_the_level_that_lists_it_beside_any_pass():
    more = verdict(("INV-3",), "unsupported", rule="INV-3")
    assert reached([*perfect(), more]) == tuple(name for name in NAMES if name != "invariant")
    assert standing("invariant", [*perfect(), more]).missing == {"INV-3": "not shown"}
    assert reached([*perfect(), replace(more, rule="")]) == NAMES, (
        "a test that could not be made beside a pass"
    )


def test_an_error_is_one_under_every_rule():
    missing = standing("masked", [*perfect(), verdict(("SOFT-1", "MASK-1"), "error")]).missing
    assert missing == {"SOFT-1": "error", "MASK-1": "error"}


def test_exact_asks_for_the_tightest_class():
    loose = verdict(("NUM-3",), "pass", accuracy="cast")
    assert reached([*perfect(), loose]) == tuple(name for name in NAMES if name != "exact")
    assert standing("exact", [*perfect(), loose]).missing == {"NUM-3": "class cast in float16"}
    assert reached([*perfect(), replace(loose, accuracy="")]) == NAMES
    assert reached([*perfect(), replace(loose, dtype="float32", accuracy="tf32")]) == tuple(
        name for name in NAMES if name != "exact"
    )


def test_the_page_on_the_scope_lists_every_level():
    page = Path(attnspec.__file__).parent / "scope.md"
    assert set(re.findall(r"levels\.md#([a-z-]+)\)", page.read_text(encoding="utf-8"))) == set(NAMES)
