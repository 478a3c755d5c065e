"""What the package and the repository know, by rule and by library."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnspec import Case, ConformanceLevel, Rule, cases, levels, rules
from attnspec.conformance.gallery import wrong_entries
from attnspec.conformance.gallery.entry import Entry
from attnspec.conformance.gallery.kills import Kill, read_kills
from attnspec.conformance.suite import groups, items
from attnspec.conformance.suite.group import Group
from tools.findings import Finding, Seen, last_seen, read_finding


@dataclass(frozen=True)
class Count:
    """The items of one group of cases: their ids, their number, and how many of them test each rule."""

    group: Group
    ids: tuple[str, ...]
    number: int
    rules: Mapping[str, int]


@dataclass(frozen=True)
class Known:
    """Everything that pages are made of.

    Attributes
    ----------
    root : Path
        The folder of the repository.
    rules : mapping of str to Rule
    cases : tuple of Case
        The golden vectors.
    counts : tuple of Count
        The groups of generated cases.
    entries : tuple of Entry
        The wrong implementations.
    kills : mapping of str to Kill
    findings : tuple of Finding
    seen : mapping of str to Seen
    levels : tuple of ConformanceLevel
    """

    root: Path
    rules: Mapping[str, Rule]
    cases: tuple[Case, ...]
    counts: tuple[Count, ...]
    entries: tuple[Entry, ...]
    kills: Mapping[str, Kill]
    findings: tuple[Finding, ...]
    seen: Mapping[str, Seen]
    levels: tuple[ConformanceLevel, ...]

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all rules."""
        return frozenset(self.rules)

    def levels_of(self, rule_id: str) -> tuple[str, ...]:
        """Name the levels that list a rule."""
        return tuple(one.name for one in self.levels if rule_id in (*one.rules, *one.where_offered))


def gathered(root: Path) -> Known:
    """Gather everything from the package and from a clone of the repository."""
    folder = root / "backends" / "findings"
    return Known(
        root,
        {rule.id: rule for rule in rules()},
        cases(),
        _counts(),
        wrong_entries(),
        read_kills(),
        tuple(read_finding(path) for path in sorted(folder.glob("*/*.py"))),
        last_seen(folder),
        levels(),
    )


def acceptance(root: Path) -> Mapping[str, Mapping[str, str]]:
    """Read what each acceptance rule says of each entry of the gallery."""
    found: Mapping[str, Mapping[str, str]] = json.loads(
        (root / "conformance" / "acceptance.json").read_text(encoding="utf-8")
    )
    return found


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
    found = []
    for group in groups():
        key = f"{group.chapter}: {group.name}"
        found.append(Count(group, tuple(ids.get(key, ())), number[key], tested.get(key, Counter())))
    return tuple(found)
