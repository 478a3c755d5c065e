"""The chapters are the source of the rules. The rules can be read, and each has its cases."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import attnspec
from attnspec import CHAPTERS, SpecError, find_case, find_rule, rules
from attnspec.conformance.gallery import entry
from attnspec.conformance.gallery.entry import base, wrong
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import find, groups, items
from attnspec.rule import parse

SPEC = Path(attnspec.__file__).parent
RULES = {rule.id for rule in rules()}


@wrong("lse", "SOFT-7", "I")
def lse_of_empty_rows_is_the_fill(call, top, total):
    """Return the number that disallowed scores were filled with as the lse of a row of nothing else."""
    return np.where(total[..., 0] == 0, -0.7 * np.finfo(total.dtype).max, base.lse(call, top, total))


#: Variants that have no values which a case could hold: a result of lower precision depends on the order of
#: its sums, and a fill is any number below -10000. Each has a golden vector and an
#: implementation to show it.
OF_NO_VALUES = {
    ("NUM-2", "float32"): ("numerics-float64-float64", entry("softmax_in_float32")),
    ("NUM-5", "storage"): ("numerics-half-float16", entry("softmax_in_half")),
    ("SOFT-7", "finite"): ("softmax-lse-empty-float32", lse_of_empty_rows_is_the_fill),
}


@pytest.fixture(scope="module")
def every():
    """Every golden vector, generated case and relation, and the calls that it is made of."""
    return [(item, item.calls if isinstance(item, Relation) else (item,)) for item in items()]


def test_every_rule_has_a_case(every):
    assert {rule for item, _ in every for rule in item.rules} == RULES


def test_every_rule_has_a_case_in_the_quick_part():
    assert {rule for item in items(quick=True) for rule in item.rules} == RULES


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.id.rstrip("-"))
def test_a_group_says_what_it_is_and_cites_rules_that_there_are(group):
    assert group.rules
    assert set(group.rules) <= RULES
    assert group.title.endswith(".")
    assert group.chapter in CHAPTERS


def test_every_case_cites_a_rule_and_has_a_name_of_its_own(every):
    assert [item.name for item, _ in every if not item.rules] == []
    names = [item.name for item, _ in every]
    assert len(set(names)) == len(names)


def test_every_variant_has_a_case(every):
    covered = {
        (other.rule, other.variant) for _, calls in every for case in calls for other in case.alternatives
    }
    declared = {(rule.id, variant.name) for rule in rules() for variant in rule.variants}
    assert declared - covered == set(OF_NO_VALUES)
    assert covered <= declared


@pytest.mark.parametrize(("rule", "variant"), OF_NO_VALUES)
def test_a_variant_without_values_is_shown_by_a_case_where_it_is_declared_and_there_alone(rule, variant):
    case, shows = OF_NO_VALUES[rule, variant]
    undeclared = judge(shows.backend(), find(case))
    assert (undeclared.status, undeclared.rule) == ("fail", rule)
    verdict = judge(replace(shows.backend(), dialect={rule: variant}), find(case))
    assert (verdict.status, verdict.rule, verdict.variant) == ("deviation", rule, variant)
    sound = judge(replace(entry("plain").backend(), dialect={rule: variant}), find(case))
    assert sound.status != "deviation"


def test_a_rule_in_a_sentence_of_any_of_our_texts_exists():
    """Citations in the prose and in docstrings, of the form MASK-4."""
    prefixes = {rule.id.partition("-")[0] for rule in rules()}
    known = {rule.id for rule in rules()}
    texts = [path for path in SPEC.rglob("*") if path.suffix in (".md", ".py") and path.is_file()]
    assert len(texts) > 20
    for path in texts:
        for prefix, number in re.findall(r"\b([A-Z]+)-([0-9]+)\b", path.read_text(encoding="utf-8")):
            assert prefix not in prefixes or f"{prefix}-{number}" in known, f"{path.name}: {prefix}-{number}"


def test_the_chapters_are_those_of_the_readme():
    readme = (SPEC / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.md\) \|.*\| `([A-Z]+)` \|$", readme, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(CHAPTERS)
    assert all(name == target for name, target, _ in rows)
    assert {chapter: prefix for chapter, _, prefix in rows} == {
        rule.chapter: rule.id.partition("-")[0] for rule in rules()
    }


def test_find_rule():
    rule = find_rule("MASK-6")
    assert (rule.level, rule.chapter) == ("MUST", "masking")
    assert [variant.name for variant in rule.variants] == ["nan", "uniform"]
    assert rule.sentence.startswith("For a query with no allowed key")
    with pytest.raises(SpecError, match=r"rule: expected an id such as MASK-9.*, got 'MASK-99'.* lists them"):
        find_rule("MASK-99")
    with pytest.raises(SpecError, match=r"case: expected an id such as softmax-00.*, got 'softmax-004'"):
        find_case("softmax-004")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "### A-1 Title\n\nNo requirement word.\n",
            r"rule A-1: expected exactly one requirement word, got \[\]",
        ),
        ("### A-1 Title\n\nIt MUST, or SHOULD.\n", r"rule A-1: expected exactly one requirement word"),
        ("### A-1 Title\n\n- a list MUST not do\n", r"rule A-1: expected a sentence"),
        (
            "### A-1 Title\n\nIt MUST.\n\nVariants:\n\n- nan, without quotes\n",
            r"rule A-1: expected a variant",
        ),
    ],
)
def test_a_malformed_rule_is_named(text, message):
    with pytest.raises(SpecError, match=message):
        parse("chapter", text)


def test_a_sentence_and_a_variant_are_read_without_their_links():
    sentence = "It MUST ([A-2], [words](README.md#words)) give `x[i]`."
    (rule,) = parse(
        "chapter", f"### A-1 Title\n\n{sentence}\n\nVariants:\n\n- `a`: [JAX 0.10.2][releases].\n"
    )
    assert rule.sentence == "It MUST (A-2, words) give `x[i]`."
    assert [variant.text for variant in rule.variants] == ["JAX 0.10.2."]


def test_a_list_that_is_not_of_variants_is_left_alone():
    (rule,) = parse("chapter", "### A-1 Title\n\nIt MUST.\n\nFor example:\n\n- this\n- that\n")
    assert rule.variants == ()
