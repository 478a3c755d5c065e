"""What the package and the repository know, by rule and by library."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnspec import Case, ConformanceLevel, Rule, cases, levels, rules
from attnspec.conformance.gallery import wrong_entries
from attnspec.conformance.gallery.entry import Entry
from attnspec.conformance.gallery.kills import Kill, read_kills
from attnspec.conformance.render.html.column import Column
from attnspec.conformance.suite import groups, items
from attnspec.conformance.suite.group import Group
from tools.findings import Family, Finding, Seen, last_seen, read_families, read_finding, scripts


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
    families = read_families(folder)
    return Known(
        root,
        {rule.id: rule for rule in rules()},
        cases(),
        _counts(),
        wrong_entries(),
        read_kills(),
        (
            *(read_finding(path) for path in scripts(folder)),
            *(finding for family in families for finding in family.findings),
        ),
        families,
        last_seen(folder),
        levels(),
        columns,
    )


def _counts() -> tuple[Count, ...]:
    """Count the cases of each group, by rule."""
    ids: dict[str, dict[str, None]] = {}
    number: Counter[str] = Counter()
    tested: dict[str, Counter[str]] = {}
    for item in items():
        if not item.group:
            continue
        key = f"{item.chapter}: {item.group}"
        ids.setdefault(key, {})[item.id] = None
        number[key] += 1
        tested.setdefault(key, Counter()).update(item.rules)
    keys = {f"{group.chapter}: {group.name}": group for group in groups()}
    return tuple(
        Count(group, tuple(ids.get(key, ())), number[key], tested.get(key, Counter()))
        for key, group in keys.items()
    )
