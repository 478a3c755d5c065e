"""Traceability: lists the cases, groups, entries and backends of each rule, and the gaps.

The trace is read from the chapters, the golden vectors, the groups of the suite, the gallery with its stored
measurements, and the declarations of the backends.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from attnspec import cases, rules
from attnspec.conformance.gallery import wrong_entries
from attnspec.conformance.gallery.kills import Kill, broken_rule, read_kills
from attnspec.conformance.suite import groups


@dataclass(frozen=True)
class Trace:
    """The cases, groups, entries and backends of one rule."""

    rule: str
    level: str
    chapter: str
    cases: tuple[str, ...]  # golden vectors that test it
    groups: tuple[str, ...]  # groups of generated cases that test it, by chapter and name
    entries: tuple[str, ...]  # wrong implementations of the gallery that break it
    backends: tuple[str, ...]  # backends that declare a deviation from it


@cache
def rules_by_group() -> Mapping[str, tuple[str, ...]]:
    """List the groups of generated cases, by chapter and name, and the rules that each group tests."""
    return {
        f"{group.chapter}: {group.name}": tuple(
            dict.fromkeys(rule for item in group.items() for rule in item.rules)
        )
        for group in groups()
    }


def declared_deviations() -> dict[str, tuple[str, ...]]:
    """List the rules from which each installed backend declares a deviation."""
    from attnspec.backends import NAMES, BackendError, load

    found = {}
    for name in NAMES:
        try:
            backend = load(name)
        except BackendError:
            continue
        declared = [rule for deviation in backend.deviations for rule in deviation.rules]
        found[name] = tuple(dict.fromkeys((*backend.dialect, *declared)))
    return found


def trace_rules(deviations: Mapping[str, Sequence[str]]) -> list[Trace]:
    """Trace every rule."""
    return [
        Trace(
            rule.id,
            rule.level,
            rule.chapter,
            tuple(case.id for case in cases() if rule.id in case.rules),
            tuple(name for name, cited in rules_by_group().items() if rule.id in cited),
            tuple(entry.name for entry in wrong_entries() if entry.rule == rule.id),
            tuple(name for name, declared in deviations.items() if rule.id in declared),
        )
        for rule in rules()
    ]


def gaps(found: Sequence[Trace], killed: Mapping[str, Kill] | None = None) -> list[str]:
    """List rules without a case or an entry, groups without a rule, and entries that no case kills."""
    known = {rule.id for rule in rules()}
    missing = [f"{trace.rule}: no case" for trace in found if not trace.groups + trace.cases]
    missing += [
        f"{trace.rule}: no wrong implementation in the gallery" for trace in found if not trace.entries
    ]
    missing += [f"{name}: cites no rule" for name, cited in rules_by_group().items() if not cited]
    missing += [
        f"{name}: cites {rule}, which is not a rule"
        for name, cited in rules_by_group().items()
        for rule in cited
        if rule not in known
    ]
    return missing + _survivors(read_kills() if killed is None else killed)


def trace_lines(trace: Trace, *, whole: bool) -> list[str]:
    """Write a trace: a line of counts, or all names."""
    counts = f"{len(trace.cases)} vectors, {len(trace.groups)} groups, {len(trace.entries)} wrong entries"
    shown = f"; deviating: {', '.join(trace.backends)}" if trace.backends else ""
    head = f"{trace.rule:9} {trace.level:6} {trace.chapter:10} {counts}{shown}"
    if not whole:
        return [head]
    parts = (("vectors", trace.cases), ("groups", trace.groups), ("gallery", trace.entries))
    return [head, *(f"  {title}: {', '.join(names) or 'none'}" for title, names in parts)]


def unneeded_vectors() -> list[str]:
    """List the golden vectors that no wrong implementation of the gallery fails, in any dtype.

    They may still detect a bug that is not in the gallery.
    """
    from attnspec.conformance.judge.dtypes import in_each
    from attnspec.conformance.judge.judge import judge

    left = []
    for case in cases():
        # Entries under the rules of the vector come first.
        entries = sorted(wrong_entries(), key=lambda entry: entry.rule not in case.rules)
        each = in_each(case)
        if not any(broken_rule(judge(entry.backend(), one_dtype)) for entry in entries for one_dtype in each):
            left.append(case.id)
    return left


def _survivors(killed: Mapping[str, Kill]) -> list[str]:
    names = [entry.name for entry in wrong_entries() if not entry.needs]
    return [f"{name}: no case kills it" for name in names if not killed.get(name, Kill("", quick=False)).case]
