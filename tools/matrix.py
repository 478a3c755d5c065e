"""The kill matrix: whether the suite fails every wrong implementation of the gallery, and no correct one.

A wrong entry is judged by the cases of its rule, the cheapest first, until a case reports that this rule is
broken. A correct entry is judged by the whole suite. ``python -m tools.gallery`` runs it.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np

from attnspec.backends import DTYPES, Backend
from attnspec.conformance.gallery import Entry, entry
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import items
from attnspec.conformance.suite.group import Item
from attnspec.conformance.verdict import Verdict

#: The number of parts of the suite for the correct entries. One process judges all of them by the cases of a
#: part, so that the oracle computes each case once.
_PARTS = 24


@dataclass(frozen=True)
class Finding:
    """The result of the suite for one entry.

    Attributes
    ----------
    entry : str
    rule : str
        The rule that the entry breaks. Empty for a correct entry.
    killed_by : str
        The cheapest case that reports that this rule is broken. Empty if none does.
    tried : int
        The number of cases that were judged.
    first_failure : float
        Seconds until the first case that fails, under any rule.
    broken : dict of str to str
        Other rules that were reported as broken before, each with the first of these cases.
    seconds : float
    needs : str
        What the entry needs if these cases do not kill it, as in `Entry`. Empty if they must kill it.
    """

    entry: str
    rule: str
    killed_by: str
    tried: int
    first_failure: float
    broken: dict[str, str]
    seconds: float
    needs: str = ""

    @property
    def as_it_should(self) -> bool:
        """Whether a wrong entry is killed under its rule, or a correct entry breaks no rule."""
        return bool(self.killed_by or self.needs) if self.rule else not self.broken


def broken(verdict: Verdict) -> str:
    """Return the rule of any level that a verdict says is broken. Empty if all rules hold.

    Examples
    --------
    >>> from tools.matrix import broken
    >>> from attnspec.conformance.verdict import Verdict
    >>> broken(Verdict("b", "c", "", ("NUM-10",), "unsupported", rule="NUM-10"))  # a MAY that is not shown
    'NUM-10'
    """
    return "" if verdict.status in ("pass", "deviation") else verdict.rule


def convict(one: Entry, suite: Sequence[Item]) -> Finding:
    """Judge a wrong entry by the suite, with a new backend for each case.

    Examples
    --------
    >>> from attnspec.conformance.gallery import entry
    >>> from tools.matrix import convict
    >>> from attnspec.conformance.suite import items
    >>> convict(entry("inverted_polarity"), list(items(names=["masking-boolean-mask-keys-3"]))).killed_by
    'masking-boolean-mask-keys-3-float32'
    """
    own = [item for item in suite if item.rules[0] == one.rule]
    bearing = [*own, *(item for item in suite if one.rule in item.rules[1:])]
    # If no case of its rule kills the entry, another case may. Then its rule is wrong. An entry that needs
    # more than the suite has may be killed by no case.
    others = [] if one.needs else [item for item in suite if one.rule not in item.rules]
    started, first_failure, killed_by = time.perf_counter(), 0.0, ""
    found: dict[str, str] = {}
    tried = 0
    for item in (*bearing, *others):
        if found and tried >= len(bearing):
            break
        rule = broken(_judged(one.backend(), item))
        tried += 1
        if rule and not first_failure:
            first_failure = time.perf_counter() - started
        if rule == one.rule:
            killed_by = item.name
            break
        if rule:
            found.setdefault(rule, item.name)
    seconds = time.perf_counter() - started
    return Finding(one.name, one.rule, killed_by, tried, first_failure, found, seconds, one.needs)


def acquit(entries: Iterable[Entry], suite: Iterable[Item]) -> dict[str, Finding]:
    """Judge correct entries by a part of the suite.

    If the steps of an entry return the same bits as those of the plain entry in all calls of a case, the
    verdict of the plain entry is used.
    """
    findings = {one.name: Finding(one.name, "", "", 0, 0.0, {}, 0.0) for one in entries}
    backends = {name: entry(name).backend() for name in findings}
    alike: dict[tuple[str, ...], list[Entry]] = {}
    for name in findings:
        alike.setdefault(entry(name).lacks, []).append(entry(name))
    plain = [(replace(entry("plain"), lacks=lacks).beside(others), others) for lacks, others in alike.items()]
    for item in suite:
        for (backend, noted), others in plain:
            noted.clear()
            rule = _alarm(_judged(backend, item))
            for one in others:
                started, before = time.perf_counter(), findings[one.name]
                own = one.name in noted or one.claims  # the plain one claims nothing
                its = _alarm(_judged(backends[one.name], item)) if own else rule
                findings[one.name] = replace(
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
        parts = [pool.submit(_acquitted, part, tuple(correct)) for part in range(_PARTS if correct else 0)]
        convicted = list(pool.map(_convicted, wrong))
        acquitted = [part.result() for part in parts]
    return convicted + [_joined([part[name] for part in acquitted]) for name in correct]


def confirm(killed_by: Mapping[str, str]) -> Iterator[str]:
    """Yield the wrong entries for which the named case does not report the expected rule."""
    found = {item.name: item for item in items(names=set(killed_by.values()))}
    for name, case in killed_by.items():
        one = entry(name)
        if case not in found or broken(_judged(one.backend(), found[case])) != one.rule:
            yield name


def _alarm(verdict: Verdict) -> str:
    """Return the rule that a correct entry seems to break. It need not show a MAY that it does not claim."""
    return "" if verdict.status == "unsupported" else broken(verdict)


_SUITE: list[Item] = []
_CHEAPEST: list[Item] = []


def _begin(quick: bool) -> None:  # noqa: FBT001 - a pool passes by position
    _SUITE[:] = items(quick=quick)
    _CHEAPEST[:] = sorted(_SUITE, key=_cost)


def _cost(item: Item) -> tuple[int, int, int, str]:
    """Order cases: golden vectors by size and dtype, then generated ones, then relations."""
    calls = item.calls if isinstance(item, Relation) else (item,)
    size = sum(int(np.size(thing)) for case in calls for thing in case.arguments.values())
    kind = 2 if isinstance(item, Relation) else int(bool(item.group))
    return kind, size, DTYPES.index(item.dtype) if item.dtype in DTYPES else 0, item.name


def _judged(backend: Backend, item: Item) -> Verdict:
    try:
        return judge(backend, item)
    except Exception as error:
        error.add_note(f"while judging {backend.name} by {item.name}")
        raise


def _convicted(name: str) -> Finding:
    return convict(entry(name), _CHEAPEST)


def _acquitted(part: int, names: tuple[str, ...]) -> dict[str, Finding]:
    size = -(-len(_SUITE) // _PARTS)
    return acquit(map(entry, names), _SUITE[part * size : (part + 1) * size])


def _joined(findings: Sequence[Finding]) -> Finding:
    return replace(
        findings[0],
        tried=sum(one.tried for one in findings),
        broken={rule: case for one in reversed(findings) for rule, case in one.broken.items()},
        seconds=sum(one.seconds for one in findings),
    )
