"""The prose is the source: its rules can be read, and each has what it needs."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import attnspec
from attnspec import CHAPTERS, SpecError, cases, conformance, find_case, find_rule, rules
from attnspec.rule import parse

SPEC = Path(attnspec.__file__).parent
FILES = sorted((Path(conformance.__file__).parent).glob("test_*.py"))
SUITE = [import_module(f"attnspec.conformance.{path.stem}") for path in FILES]


def rule_marks(test):
    """The rule markers of one test: its own, and those of its parameters."""
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "rule":
            yield mark
        elif mark.name == "parametrize":
            given = (one for value in mark.args[1] for one in getattr(value, "marks", ()))
            yield from (getattr(one, "mark", one) for one in given)


def markers():
    """Every rule marker of the suite."""
    for module in SUITE:
        for name, thing in vars(module).items():
            if name.startswith("test_"):
                yield from rule_marks(thing)


def test_every_rule_has_a_test():
    cited = {rule for mark in markers() for rule in mark.args} | {
        rule for case in cases() for rule in case.rules
    }
    assert {rule.id for rule in rules()} - cited == set()


def test_every_citation_is_of_a_rule():
    cited = {rule for mark in markers() for rule in mark.args} | {
        rule for case in cases() for rule in case.rules
    }
    assert cited - {rule.id for rule in rules()} == set()


def test_every_test_of_the_suite_cites_a_rule():
    silent = [
        f"{module.__name__}.{name}"
        for module in SUITE
        for name, thing in vars(module).items()
        if name.startswith("test_")
        and name != "test_golden"  # its cases cite theirs
        and not any(rule_marks(thing))
    ]
    assert silent == []


def test_every_variant_has_a_case_or_a_test():
    covered = {(other.rule, other.variant) for case in cases() for other in case.alternatives}
    covered |= {(mark.args[0], name) for mark in markers() for name in mark.kwargs.get("variants", ())}
    declared = {(rule.id, variant.name) for rule in rules() for variant in rule.variants}
    assert declared == covered


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
    with pytest.raises(SpecError, match=r"rule: got 'MASK-99', expected an id such as MASK-9, .* lists them"):
        find_rule("MASK-99")
    with pytest.raises(SpecError, match="case: got 'softmax-004', expected an id such as softmax-00"):
        find_case("softmax-004")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("### A-1 Title\n\nNo requirement word.\n", r"rule A-1: got requirement words \[\]"),
        ("### A-1 Title\n\nIt MUST, or SHOULD.\n", r"rule A-1: got requirement words"),
        ("### A-1 Title\n\n- a list MUST not do\n", r"rule A-1: got no paragraph"),
        ("### A-1 Title\n\nIt MUST.\n\nVariants:\n\n- nan, without quotes\n", r"rule A-1: got variant"),
    ],
)
def test_a_malformed_rule_is_named(text, message):
    with pytest.raises(SpecError, match=message):
        parse("chapter", text)


def test_a_list_that_is_not_of_variants_is_left_alone():
    (rule,) = parse("chapter", "### A-1 Title\n\nIt MUST.\n\nFor example:\n\n- this\n- that\n")
    assert rule.variants == ()
