"""What the package and the repository know, by rule and by library."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from attnspec import Case, ConformanceLevel, Rule, cases, levels, rules
from attnspec.backends.names import PORTABLE
from attnspec.conformance.attribution.levels import NOT_SHOWN
from attnspec.conformance.gallery import wrong_entries
from attnspec.conformance.gallery.entry import Entry
from attnspec.conformance.gallery.kills import Kill, read_kills
from attnspec.conformance.render.html.column import Column
from attnspec.conformance.suite import groups, items
from attnspec.conformance.suite.group import FITTED, Group
from tools.findings import Family, Finding, Seen, last_seen, read_families, read_finding, scripts

#: The statuses of the letters of cases.
STATUS = {
    "p": "pass",
    "u": "unsupported",
    "d": "deviation",
    "f": "fail",
    "e": "error",
    "s": "should not met",
    "m": NOT_SHOWN,
}


@dataclass(frozen=True)
class Count:
    """The items of one group of cases: their ids, their number, and how many of them test each rule."""

    group: Group
    ids: tuple[str, ...]
    number: int
    rules: Mapping[str, int]


@dataclass(frozen=True)
class Known:
    """Everything that pages are made of: the golden vectors are `cases`, the generated ones `counts`."""

    root: Path
    rules: Mapping[str, Rule]
    cases: tuple[Case, ...]
    counts: tuple[Count, ...]
    entries: tuple[Entry, ...]
    kills: Mapping[str, Kill]
    findings: tuple[Finding, ...]
    families: tuple[Family, ...]
    seen: Mapping[str, Seen]
    levels: tuple[ConformanceLevel, ...]
    columns: tuple[Column, ...] = ()

    def keepers(self) -> dict[str, Column]:
        """Return the newest run of each backend of a library."""
        return {column.backend: column for column in self.columns if column.backend not in PORTABLE}

    def levels_of(self, rule_id: str) -> tuple[str, ...]:
        """Name the levels that list a rule."""
        return tuple(level.name for level in self.levels if rule_id in (*level.rules, *level.where_offered))

    def chapters(self) -> dict[str, list[Rule]]:
        """Return the rules of each chapter."""
        chapters: dict[str, list[Rule]] = {}
        for rule in self.rules.values():
            chapters.setdefault(rule.chapter, []).append(rule)
        return chapters


def known_of(root: Path, columns: tuple[Column, ...] = ()) -> Known:
    """Gather everything from the package, from a clone of the repository, and from stored results."""
    folder = root / "backends" / "findings"
    counts, rules_of = _counts()
    families = read_families(folder)
    return Known(
        root,
        {rule.id: rule for rule in rules()},
        cases(),
        counts,
        wrong_entries(),
        read_kills(),
        (
            *(read_finding(path) for path in scripts(folder)),
            *(finding for family in families for finding in family.findings),
        ),
        families,
        last_seen(folder),
        levels(),
        tuple(in_own_cases(column, rules_of) for column in columns),
    )


def _counts() -> tuple[tuple[Count, ...], dict[str, tuple[str, ...]]]:
    """Count the cases of each group, by rule. Return also the rules of each case, by name and by id."""
    ids: dict[str, dict[str, None]] = {}
    number: Counter[str] = Counter()
    tested: dict[str, Counter[str]] = {}
    rules_of: dict[str, tuple[str, ...]] = {}
    for item in items():
        rules_of[item.id] = rules_of[item.name] = item.rules
        if not item.group:
            continue
        key = f"{item.chapter}: {item.group}"
        ids.setdefault(key, {})[item.id] = None
        number[key] += 1
        tested.setdefault(key, Counter()).update(item.rules)
    keys = {f"{group.chapter}: {group.name}": group for group in groups()}
    counts = tuple(
        Count(group, tuple(ids.get(key, ())), number[key], tested.get(key, Counter()))
        for key, group in keys.items()
    )
    return counts, rules_of


def in_own_cases(column: Column, rules_of: Mapping[str, tuple[str, ...]]) -> Column:
    """Return a column whose numbers are those of the cases of each rule, which `attnspec check -k RULE` runs.

    A deviation may also show in the case of another rule. This counts only if no case of its own shows one.
    """
    tested: dict[str, Counter[str]] = {}
    ways = {rule: dict(cases) for rule, cases in column.ways.items()}
    for case, entry in column.cases.items():
        letter, _, about = entry.partition(" ")
        # A case that was drawn for a backend is named after one of the fixed cases.
        own = rules_of.get(case) or rules_of.get(case.partition(FITTED)[0]) or (about,) * bool(about)
        if letter in "fsm":
            own = (about,) if about in own else ()
        for rule in own:
            status = "pass" if letter == "d" and rule != about else STATUS.get(letter)
            if status:
                tested.setdefault(rule, Counter())[status] += 1
        if letter == "d" and about not in own:
            ways[about].pop(case, None)
    for rule, letter in column.letters.items():
        # A case of its own may pass by what else it tests: the mark of the rule decides.
        if letter in "un" or (
            letter in "fdsm" and not any(tested.get(rule, {}).get(STATUS[each]) for each in "fdsme")
        ):
            tested.pop(rule, None)
    return replace(
        column, tested=tested, ways={rule: cases or column.ways[rule] for rule, cases in ways.items()}
    )
