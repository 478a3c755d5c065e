"""The page of each rule: who keeps it, its findings, its vectors and tests, and what breaks it."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pages.chapters import Address, section
from pages.findings import row
from pages.known import Known
from pages.page import Name, Page, Part, make_page
from pages.symptoms import read_symptoms
from pages.vectors import script, vector

from attnspec import Rule, __version__
from attnspec.conformance.attribution.levels import NOT_SHOWN
from attnspec.conformance.render.html.column import Column, without_run
from attnspec.conformance.suite.group import Group

_VARIANT = re.compile(r"^- `(?P<name>[a-z0-9-]+)`:", re.MULTILINE)
#: The number of wrong implementations that the page of a rule lists.
_FEW = 12
_NOT_KEPT = {
    "fail": "fails, and declares nothing",
    "error": "raises where it must not",
    "should not met": "does not keep what the rule says it SHOULD",
    NOT_SHOWN: "does not have this property, which is a MAY",
}


@dataclass
class Way:
    """What some backends do about a rule, each with the share of its cases that show it.

    `variants` are those of the rule, each with what it does and, where it is one of several, when.
    A `rule` is another one, whose variant has the same symptom.
    """

    text: str
    variants: tuple[tuple[str, str], ...] = ()
    rule: str = ""
    folded: bool = False
    backends: list[tuple[Column, str]] = field(default_factory=list)


@dataclass
class Tests:
    """The generated cases of some groups that state the same."""

    group: Group
    number: int = 0
    groups: int = 0


def rules(known: Known, address: Address) -> Part:
    """Return the pages of all rules, their list, and the code of their vectors."""
    pages = [_index(known)]
    names = []
    every = [None, *known.rules.values(), None]
    for before, (rule, after) in zip(every, pairwise(every[1:]), strict=False):
        if rule is None:
            continue
        pages.append(_page(rule, before, after, known, address))
        names.append(Name("rule", rule.id, f"rules/{rule.id}.html", rule.title, text=rule.sentence))
        names += [
            Name(
                "variant",
                f"{rule.id}:{variant.name}",
                f"rules/{rule.id}.html#{variant.name}",
                f"variant of {rule.title}",
            )
            for variant in rule.variants
        ]
    scripts = {f"_static/vectors/{case.id}.js": script(case) for case in known.cases}
    return Part(tuple(pages), tuple(names), dict(scripts))


def _page(rule: Rule, before: Rule | None, after: Rule | None, known: Known, address: Address) -> Page:
    sentence, reasons = section(known, rule.id, rule.chapter, address)
    backends = [*known.keepers().values()]
    symptoms = [symptom for symptom in read_symptoms() if symptom.rules[0] == rule.id]
    ways = ways_of(rule, backends)
    for other, _, name in (way.partition(":") for symptom in symptoms for way in symptom.variants):
        ways += [
            replace(way, rule=other, backends=[(column, "") for column, _ in way.backends])
            for way in ways_of(known.rules[other], backends)
            if other != rule.id and name in dict(way.variants)
        ]
    findings = [row(finding, known) for finding in known.findings if rule.id in finding.rules]
    own = [case for case in known.cases if case.rules[0] == rule.id]
    others = [case for case in known.cases if rule.id in case.rules[1:]]
    tests = [*_tests(rule, known)]
    wrong = [entry for entry in known.entries if entry.rule == rule.id]
    sections = {
        "Who does what": ways,
        "Findings": findings,
        "Golden vectors": own or others,
        "Tests": tests,
        "Wrong implementations": wrong,
    }
    return make_page(
        f"rules/{rule.id}",
        "rule.md",
        rule=rule,
        version=__version__,
        before=before,
        after=after,
        results=bool(known.columns),
        symptoms=symptoms,
        levels=known.levels_of(rule.id),
        sentence=sentence,
        reasons=_VARIANT.sub(r"- [`\g<name>`]{#\g<name>}:", reasons),
        sections=[head for head, content in sections.items() if content],
        ways=ways,
        number_of_backends=len(backends),
        absent=without_run({column.backend for column in backends}),
        findings=findings,
        vectors=[vector(case) for case in own],
        others=others,
        tests=tests,
        number_of_tests=sum(test.number for test in tests),
        wrong=wrong,
        few=_FEW,
    )


def ways_of(rule: Rule, backends: Sequence[Column]) -> list[Way]:
    """Return what the backends of libraries do about a rule. Empty if none was judged on it."""
    keeps = Way("keeps the rule")
    without = Way("does not offer what the rule is about", folded=True)
    unjudged = Way("was not judged on it in the stored results", folded=True)
    ways: dict[tuple[str, str], Way] = {}
    for column in backends:
        counts = column.results_of(rule.id)
        judged = sum(number for status, number in counts.items() if status != "unsupported")
        outcomes = [*Counter(column.ways.get(rule.id, {}).values()).items()] if judged else []
        outcomes += [(("", text), counts[status]) for status, text in _NOT_KEPT.items() if counts.get(status)]
        for (variant, reason), number in outcomes if judged else ():
            way = Way(reason, variants_of(rule, variant))
            share = "all" if number == judged else f"{number} of {judged}"
            ways.setdefault((variant, reason), way).backends.append((column, f" ({share})"))
        if not judged or not outcomes:
            way = {"u": without, "n": unjudged}.get(column.letters[rule.id], keeps)
            # A rule may be kept in the few cases whose arguments the backend takes.
            few = judged and judged < counts.total()
            way.backends.append((column, f" ({judged} of {counts.total()} cases)" if few else ""))
    every = [keeps, *ways.values(), without, unjudged]
    return [way for way in every if way.backends] if keeps.backends or ways else []


def variants_of(rule: Rule, declared: str) -> tuple[tuple[str, str], ...]:
    """Return the names of the declared variants of a rule, each with what it does.

    A declaration may name one for the rows that a mask leaves empty, and another for those of a bias:
    ``mask: uniform, bias: nan``.
    """
    texts = {variant.name: variant.text.partition(". ")[0].rstrip(".") for variant in rule.variants}
    if declared in texts:
        return ((declared, texts[declared]),)
    return tuple(
        (name, f"with a {route}, {texts[name]}")
        for route, name in re.findall(r"(\w+): ([\w-]+)", declared)
        if name in texts
    )


def _tests(rule: Rule, known: Known) -> Iterator[Tests]:
    by_title: dict[str, Tests] = {}
    for count in known.counts:
        if number := count.rules.get(rule.id, 0):
            tests = by_title.setdefault(f"{count.group.chapter} {count.group.title}", Tests(count.group))
            tests.number += number
            tests.groups += 1
    yield from by_title.values()


def _index(known: Known) -> Page:
    words = [rule.level for rule in known.rules.values()]
    return make_page(
        "rules/index",
        "rules.md",
        number=len(words),
        musts=", ".join(f"{words.count(level)} {level}" for level in ("MUST", "SHOULD", "MAY")),
        chapters=known.chapters().items(),
    )
