"""The kill matrix: whether the suite fails every wrong implementation of the gallery, and no correct one.

A wrong entry is judged by the cases of its rule, the cheapest first, until a case reports that this rule is
broken. A correct entry is judged by the whole suite. ``python -m tools.gallery`` runs it. Entries that no
case of their own rule kills may be killed elsewhere: by the cases of other rules, or by ``--sizes``.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np

from attnspec import rules
from attnspec.backends import DTYPES, Backend
from attnspec.conformance.gallery import Entry, entry
from attnspec.conformance.gallery.entry import NEEDS
from attnspec.conformance.gallery.kills import Kill, broken_rule
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.memory import in_freed_memory
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.suite import items
from attnspec.conformance.suite.group import Item
from attnspec.conformance.verdict import Verdict

#: The number of parts of the suite for the correct entries. One process judges all of them by the cases of a
#: part, so that the oracle computes each case once.
_PARTS = 24


@dataclass(frozen=True)
class Finding:
    """The result of the suite for one entry."""

    entry: str
    #: The rule that the entry breaks. Empty for a correct entry.
    rule: str
    #: The cheapest case that reports that this rule is broken. Empty if none does.
    killed_by: str
    tried: int  # the number of cases that were judged
    first_failure: float  # seconds until the first case that fails, under any rule
    #: Other rules that were reported as broken before, each with the first of these cases.
    broken: dict[str, str]
    seconds: float
    #: What the entry needs if these cases do not kill it, as in `Entry`. Empty if they must kill it.
    needs: str = ""

    @property
    def as_it_should(self) -> bool:
        """Whether a wrong entry is killed under its rule, or a correct entry breaks no rule."""
        return bool(self.killed_by or self.needs) if self.rule else not self.broken


def convict(wrong: Entry, suite: Sequence[Item]) -> Finding:
    """Judge a wrong entry by the suite, with a new backend for each case."""
    own = [item for item in suite if item.rules[0] == wrong.rule]
    bearing = [*own, *(item for item in suite if wrong.rule in item.rules[1:])]
    # If no case of its rule kills the entry, another case may. Then its rule is wrong. An entry that needs
    # more than the suite has may be killed by no case.
    others = [] if wrong.needs else [item for item in suite if wrong.rule not in item.rules]
    started, first_failure, killed_by = time.perf_counter(), 0.0, ""
    found: dict[str, str] = {}
    tried = 0
    for item in (*bearing, *others):
        if found and tried >= len(bearing):
            break
        rule = broken_rule(_judge(wrong.backend(), item))
        tried += 1
        if rule and not first_failure:
            first_failure = time.perf_counter() - started
        if rule == wrong.rule:
            killed_by = item.name
            break
        if rule:
            found.setdefault(rule, item.name)
    seconds = time.perf_counter() - started
    return Finding(wrong.name, wrong.rule, killed_by, tried, first_failure, found, seconds, wrong.needs)


def acquit(entries: Iterable[Entry], suite: Iterable[Item]) -> dict[str, Finding]:
    """Judge correct entries by a part of the suite.

    If the steps of an entry return the same bits as those of the plain entry in all calls of a case, the
    verdict of the plain entry is used.
    """
    findings = {correct.name: Finding(correct.name, "", "", 0, 0.0, {}, 0.0) for correct in entries}
    backends = {name: entry(name).backend() for name in findings}
    alike: dict[tuple[str, ...], list[Entry]] = {}
    for name in findings:
        alike.setdefault(entry(name).lacks, []).append(entry(name))
    plain = [(replace(entry("plain"), lacks=lacks).beside(others), others) for lacks, others in alike.items()]
    for item in suite:
        for (backend, noted), others in plain:
            noted.clear()
            rule = _alarm(_judge(backend, item))
            for correct in others:
                started, before = time.perf_counter(), findings[correct.name]
                own = correct.name in noted or correct.claims  # the plain one claims nothing
                its = _alarm(_judge(backends[correct.name], item)) if own else rule
                findings[correct.name] = replace(
                    before,
                    tried=before.tried + 1,
                    broken={its: item.name, **before.broken} if its else before.broken,
                    seconds=before.seconds + time.perf_counter() - started,
                )
    return findings


def matrix(
    wrong: Sequence[str], correct: Sequence[str], *, quick: bool = False, workers: int = 2
) -> list[Finding]:
    """Judge entries in separate processes."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (quick,)) as pool:
        parts = [
            pool.submit(_acquit_by_part, part, tuple(correct)) for part in range(_PARTS if correct else 0)
        ]
        convicted = list(pool.map(_convict_by_name, wrong))
        acquitted = [part.result() for part in parts]
    return convicted + [_join([part[name] for part in acquitted]) for name in correct]


def unconfirmed_entries(killed_by: Mapping[str, str]) -> Iterator[str]:
    """Yield the wrong entries for which the named case does not report the expected rule."""
    found = {item.name: item for item in items(names=set(killed_by.values()))}
    for name, case in killed_by.items():
        wrong = entry(name)
        if case not in found or broken_rule(_judge(wrong.backend(), found[case])) != wrong.rule:
            yield name


def _alarm(verdict: Verdict) -> str:
    """Return the rule that a correct entry seems to break. It need not show a MAY that it does not claim."""
    return "" if verdict.status == "unsupported" else broken_rule(verdict)


_SUITE: list[Item] = []
_CHEAPEST: list[Item] = []


def _begin(quick: bool) -> None:  # noqa: FBT001 - a pool passes by position
    _SUITE[:] = items(quick=quick)
    _CHEAPEST[:] = sorted(_SUITE, key=_cost)


def _cost(item: Item) -> tuple[int, int, int, str]:
    """Order cases: golden vectors by size and dtype, then generated ones, then relations.

    Memory that is freed is used again by chance, so that calls in it come last.
    """
    size = sum(int(np.size(thing)) for case in item.calls for thing in case.arguments.values())
    kind = 2 if isinstance(item, Relation) else int(bool(item.group))
    kind = 3 if isinstance(item, Relation) and item.run is in_freed_memory else kind
    return kind, size, DTYPES.index(item.dtype) if item.dtype in DTYPES else 0, item.name


def _judge(backend: Backend, item: Item | SizedCase) -> Verdict:
    try:
        return judge(backend, item)
    except Exception as error:
        error.add_note(f"while judging {backend.name} by {item.name}")
        raise


def _convict_by_name(name: str) -> Finding:
    return convict(entry(name), _CHEAPEST)


def _acquit_by_part(part: int, names: tuple[str, ...]) -> dict[str, Finding]:
    size = -(-len(_SUITE) // _PARTS)
    return acquit(map(entry, names), _SUITE[part * size : (part + 1) * size])


def _join(findings: Sequence[Finding]) -> Finding:
    return replace(
        findings[0],
        tried=sum(finding.tried for finding in findings),
        broken={rule: case for finding in reversed(findings) for rule, case in finding.broken.items()},
        seconds=sum(finding.seconds for finding in findings),
    )


#: The most multiplications of a sized case that is judged here.
WORK = 2**32


def kills_elsewhere(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each entry that any case kills, the case, and the rule that it reports.

    The cases of the ordinary run come first, in a fixed random order, because neighbours kill the same
    entries. Then come those of ``--sizes`` with little work, the least first.
    """
    left = list(names)
    ordinary = list(items())
    mixed = (ordinary[index] for index in np.random.default_rng(1).permutation(len(ordinary)))
    # Where all rows are different, the judged ones are chosen anew in each run: a kill is not certain.
    certain = (case for case in sized_cases() if case.work <= WORK and case.formula.words)
    for suite in (mixed, certain):
        for kill in kills_by(left, suite):
            left.remove(kill[0])
            yield kill


def unconfirmed_kills(kills: Mapping[str, Kill]) -> Iterator[str]:
    """Yield the entries for which the case that is stored does not report the rule that is stored."""
    found: dict[str, Item | SizedCase] = {item.name: item for item in (*items(), *sized_cases())}
    for name, kill in kills.items():
        case = found.get(kill.other)
        if case is None or _judge(entry(name).backend(), case).rule != kill.reported:
            yield name


def kills_by(names: Sequence[str], suite: Iterable[Item | SizedCase]) -> Iterator[tuple[str, str, str]]:
    """Judge only the entries whose steps return other bits in a case than the plain entry's."""
    alive: dict[tuple[str, ...], list[Entry]] = {}
    for name in names:
        alive.setdefault(entry(name).lacks, []).append(entry(name))
    for item in suite:
        for lacks, entries in alive.items():
            if not entries:
                continue
            backend, noted = replace(entry("plain"), lacks=lacks).beside(entries)
            _judge(backend, item)
            for survivor in [survivor for survivor in entries if survivor.name in noted]:
                verdict = _judge(survivor.backend(), item)
                if verdict.status in ("fail", "error"):
                    entries.remove(survivor)
                    yield survivor.name, item.name, verdict.rule


def problems(findings: Iterable[Finding]) -> list[str]:
    """List survivors, entries under the wrong rule, and false alarms.

    Entries that need more than the suite has are left out.

    """
    found = []
    for finding in findings:
        others = ", ".join(f"{rule} by {case}" for rule, case in finding.broken.items())
        if finding.rule and not finding.killed_by and not finding.needs:
            said = f"has the wrong rule: it breaks {others}, and no case" if others else "survives: no case"
            found.append(f"{finding.entry} {said} of {finding.tried} says that {finding.rule} is broken")
        if not finding.rule and others:
            found.append(f"{finding.entry} is correct, but fails: {others}")
    return found


def unbroken_rules(findings: Iterable[Finding]) -> list[str]:
    """List the rules that no entry breaks."""
    killed = {finding.rule for finding in findings if finding.killed_by}
    return [f"{rule.id} is broken by no entry" for rule in rules() if rule.id not in killed]


def summary(findings: Sequence[Finding]) -> str:
    """Summarise how many entries are killed for each rule, by which cases, and after how many seconds."""
    wrong = [finding for finding in findings if finding.rule]
    right = [finding for finding in findings if not finding.rule]
    lines = []
    for rule in rules():
        own = [finding for finding in wrong if finding.rule == rule.id]
        killed = sorted((finding for finding in own if finding.killed_by), key=lambda finding: finding.tried)
        first = f"; soonest in {killed[0].killed_by}" if killed else ""
        if own:
            lines.append(f"{rule.id:9} {len(killed)} of {len(own)} killed{first}")
    times = sorted(finding.first_failure for finding in wrong if finding.killed_by)
    if times:
        lines.append(f"wrong: {len(wrong)}, killed under their own rule: {len(times)}")
        middle, last = times[len(times) // 2], times[-1]
        lines.append(f"time to first failure: median {middle:.2f} s, longest {last:.2f} s")
    for need in NEEDS:
        left = sum(finding.needs == need and not finding.killed_by for finding in wrong)
        if left:
            lines.append(f"not killed, and known to need {NEEDS[need]}: {left}")
    if right:
        passed = sum(finding.as_it_should for finding in right)
        lines.append(f"correct: {len(right)}, without a false alarm: {passed}")
    return "\n".join(lines)
