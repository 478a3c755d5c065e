"""Every rule has a case, a group and a level, and verdicts determine the levels."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tests_support import whole_suite

import attnspec
from attnspec import CHAPTERS, SpecError, find_case, find_rule, in_no_level, levels, rules
from attnspec import rule as level
from attnspec.backends.library import TABLE
from attnspec.conformance.attribution.levels import rules_of, standings
from attnspec.conformance.verdict import Verdict
from attnspec.rule import DEFINITIONS, parse

SPEC = Path(attnspec.__file__).parent


#: Variants that have no values which a case could hold: a result of lower precision depends on the order of
#: its sums, and a fill is any number below -10000. `test_plain_variants` and `test_variants` show them.
OF_NO_VALUES = {("NUM-2", "float32"), ("NUM-5", "storage"), ("SOFT-7", "finite")}


def test_every_variant_has_a_case():
    calls = [case for item in whole_suite() for case in item.calls]
    covered = {(other.rule, other.variant) for case in calls for other in case.alternatives}
    declared = {(rule.id, variant.name) for rule in rules() for variant in rule.variants}
    assert declared - covered == OF_NO_VALUES
    assert covered <= declared


def test_a_rule_in_a_sentence_of_any_of_our_texts_exists():
    """Citations in the prose and in docstrings, of the form MASK-4."""
    prefixes = {rule.id.partition("-")[0] for rule in rules()}
    known = {rule.id for rule in rules()}
    texts = [path for path in SPEC.rglob("*") if path.suffix in (".md", ".py") and path.is_file()]
    assert len(texts) > 20
    for path in texts:
        for prefix, number in re.findall(r"\b([A-Z]+)-([0-9]+)\b", path.read_text(encoding="utf-8")):
            assert prefix not in prefixes or f"{prefix}-{number}" in known, f"{path.name}: {prefix}-{number}"


def test_the_pages_name_one_release_of_each_library_which_the_table_has():
    """Sentences on what a library did before a release may name that one."""
    table = (SPEC / "references.md").read_text(encoding="utf-8").partition("## Versions examined")[2]
    named = {}
    for path in SPEC.glob("*.md"):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for library, release in re.findall(r"(?<!before )\[([A-Z][\w ]+?) (\d[\w.]*)\]\[releases\]", text):
            named.setdefault(library, set()).add(release)
    assert len(named) >= 6
    for library, (release, *others) in named.items():
        assert not others, (library, release, *others)
        row = rf"^\| {library}[^|]*\| {re.escape(release)}\b"
        assert re.search(row, table, re.MULTILINE), (library, release)
        pinned = TABLE.get(library.lower(), {}).get("requires", [""])[0].partition("==")[2]
        assert pinned in {"", release}, library


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
        ("### A-1 Title\n\nNo requirement word.\n", r"A-1: expected exactly one requirement word, got \[\]"),
        ("### A-1 Title\n\nIt MUST, or SHOULD.\n", r"rule A-1: expected exactly one requirement word"),
        ("### A-1 Title\n\n- a list MUST not do\n", r"rule A-1: expected a sentence"),
        ("### A-1 Title\n\nIt MUST.\n\nVariants:\n\n- nan, without quotes\n", r"A-1: expected a variant"),
    ],
)
def test_a_malformed_rule_is_named(text, message):
    with pytest.raises(SpecError, match=message):
        parse("chapter", text)


def test_a_markdown_parser_finds_the_same_headings_and_sentences():
    for chapter in CHAPTERS:
        text = (SPEC / f"{chapter}.md").read_text(encoding="utf-8")
        tokens = MarkdownIt().parse(text)
        parts = [level._without_links(" ".join(token.content.split())) for token in tokens]
        headings = [place for place, token in enumerate(tokens, 1) if token.type == "heading_open"]
        of_parser = {parts[at]: parts[at + 3] for at in headings if re.match("[A-Z]+-", parts[at])}
        assert {f"{rule.id} {rule.title}": rule.sentence for rule in parse(chapter, text)} == of_parser


def test_malformed_lists_links_and_variants_are_read():
    sentence = "It MUST ([A-2], [words](README.md#words)) give `x[i]`."
    (rule,) = parse("chapter", f"### A-1 Title\n\n{sentence}\n\nVariants:\n- `a`: [JAX 0.10.2][releases].\n")
    assert rule.sentence == "It MUST (A-2, words) give `x[i]`."
    assert [variant.text for variant in rule.variants] == ["JAX 0.10.2."]
    (rule,) = parse("chapter", "### A-1 Title\n\nIt MUST.\n\nFor example:\n\n- this\n- that\n")
    assert rule.variants == ()


PAGE = (Path(attnspec.__file__).parent / "levels.md").read_text(encoding="utf-8").partition(DEFINITIONS)[0]
NAMES = tuple(one.name for one in levels())
#: The levels that build on no other, except the first.
ALONE = tuple(name for name in NAMES if name in {"seeded-dropout", "block-sparse", "listed", *NAMES[-16:]})
ON_MASKED = {"cached", "padded", "segmented", "positioned", "windowed"}


def named():
    return [rule for one in levels() for rule in (*one.rules, *one.where_offered)]


def test_every_must_rule_is_in_a_level_or_said_to_be_in_none():
    must = {rule.id for rule in rules() if rule.level == "MUST"}
    others = {"NUM-9", *(rule.id for rule in rules() if rule.level == "MAY")}
    assert must | others == {*named(), *in_no_level()}
    assert {*levels()[NAMES.index("invariant")].rules} == others
    assert not {*named()} & {*in_no_level()}
    (strict,) = (one for one in levels() if one.name == "strict")
    rejecting = {rule.id for rule in rules() if "MUST raise an error" in rule.sentence}
    assert {*strict.rules, *strict.where_offered} == rejecting
    found = re.findall(r"\b[A-Z]+-[0-9]+\b", PAGE)
    mentioned = re.findall(r"narrowest of the classes of .NUM-3", PAGE)
    assert len(found) - len(mentioned) == len(named()) + len(in_no_level())


def test_the_levels_and_the_rules_that_they_build_on():
    assert NAMES[:3] == ("core", "strict", "masked")
    assert {one.name for one in levels() if one.builds_on == "masked"} == ON_MASKED
    assert {one.name for one in levels() if not one.builds_on} == {"core", *ALONE}
    assert {one.builds_on for one in levels()} == {"", "core", "masked"}
    assert [one.name for one in levels() if one.accuracy] == ["exact"]
    for one in levels():
        assert {*one.rules, *one.where_offered} <= {*rules_of(one.name)}
        assert not one.builds_on or {*rules_of(one.builds_on)} < {*rules_of(one.name)}
    with pytest.raises(SpecError, match=r"level: expected one of core, .*, got 'gold'"):
        rules_of("gold")
    page = Path(attnspec.__file__).parent / "scope.md"
    assert set(re.findall(r"levels\.md#([a-z-]+)\)", page.read_text(encoding="utf-8"))) == set(NAMES)


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
    return [verdict((x.id,), changes.get(x.id.replace("-", "_"), "pass"), accuracy="full") for x in rules()]


def reached(verdicts):
    return tuple(standing.level for standing in standings(verdicts) if standing.reached)


def standing(name, verdicts):
    """How what gave these verdicts stands to one level."""
    return standings(verdicts)[NAMES.index(name)]


def test_levels_are_reached_by_what_passes_and_lost_by_what_is_not_judged():
    assert reached(perfect()) == NAMES
    assert reached([]) == ()
    assert reached(perfect(NUM_2="unsupported", NUM_5="unsupported")) == NAMES
    assert reached(perfect(NUM_2="deviation")) == ALONE
    first = standings([one for one in perfect() if one.rules != ("ERR-3",)])[0]
    assert first.missing == {"ERR-3": "not judged"}
    assert reached(perfect(ERR_1="unsupported")) == NAMES, "a product of one dtype meets no two dtypes"
    missing = standing("masked", [*perfect(), verdict(("SOFT-1", "MASK-1"), "error")]).missing
    assert missing == {"SOFT-1": "error", "MASK-1": "error"}


def test_a_backward_pass_shows_no_result_of_its_forward_operation():
    for operation, rule, level_of_it in (("rotary", "POS-1", "rotary"), ("alibi_bias", "POS-8", "alibi")):
        others = [one for one in perfect() if one.rules != (rule,)]
        backward = verdict(("GRAD-22", rule), "pass", operation=f"{operation}_vjp")
        assert standing(level_of_it, [*others, backward]).missing == {rule: "not judged"}
        assert standing(level_of_it, [*others, replace(backward, operation=operation)]).reached
        failing = replace(backward, rule=rule, status="fail")
        assert standing(level_of_it, [*perfect(), failing]).missing == {rule: "fail"}


@pytest.mark.parametrize("status", ["fail", "error", "deviation", "should not met", "unsupported"])
@pytest.mark.parametrize(
    ("rule", "lost"),
    [
        ("SOFT_1", tuple(name for name in NAMES if name not in ALONE)),
        ("MASK_6", ("masked", *ON_MASKED)),
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


def test_what_stands_beside_a_pass_counts():
    more = verdict(("MASK-1",), "unsupported")
    assert reached([*perfect(), more]) == NAMES
    assert "masked" not in reached([*perfect(), replace(more, status="fail")])
    more = verdict(("MASK-1", "MASK-13"), "deviation", rule="MASK-13")
    assert reached([*perfect(), more]) == NAMES
    assert "masked" not in reached([*perfect(), replace(more, rule="MASK-1")])
    more = verdict(("INV-3",), "unsupported", rule="INV-3")
    assert reached([*perfect(), more]) == tuple(name for name in NAMES if name != "invariant")
    assert standing("invariant", [*perfect(), more]).missing == {"INV-3": "not shown"}
    assert reached([*perfect(), replace(more, rule="")]) == NAMES, "a test that could not be made"


@pytest.mark.parametrize("status", ["fail", "should not met"])
def test_what_breaks_one_rule_says_nothing_of_the_others(status):
    more = verdict(("MASK-1", "MASK-13"), status, rule="MASK-13")
    assert reached([*perfect(), more]) == NAMES
    alone = [one for one in perfect() if one.rules != ("MASK-1",)]
    assert standing("masked", [*alone, more]).missing == {"MASK-1": "not judged"}


def test_exact_asks_for_the_tightest_class():
    loose = verdict(("NUM-3",), "pass", accuracy="cast")
    assert reached([*perfect(), loose]) == tuple(name for name in NAMES if name != "exact")
    assert standing("exact", [*perfect(), loose]).missing == {"NUM-3": "class cast in float16"}
    assert reached([*perfect(), replace(loose, accuracy="")]) == NAMES
    assert "exact" not in reached([*perfect(), replace(loose, dtype="float32", accuracy="tf32")])
