"""The kill matrix: whether the suite fails every wrong implementation of the gallery, and no correct one.

Every wrong one is put to the tests that bear on the rule it is filed under, the
cheapest first, until one of them says that this rule is broken; every correct one
to the whole suite. ``python -m attnspec.conformance.meta.matrix`` does it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from attnspec.conformance.gallery import Entry, entry
from attnspec.conformance.meta.runs import Test, collect, run

#: Into how many parts the suite is cut for the correct ones: each part is run on all of them in one
#: process, which asks the oracle once.
_PARTS = 12


@dataclass(frozen=True)
class Finding:
    """What the suite finds of one entry.

    Attributes
    ----------
    entry : str
    rule : str
        That it is filed under; empty for a correct one.
    killed_by : str
        The cheapest test that says this rule is broken; empty where none does.
    tried : int
        How many tests it took.
    first_failure : float
        Seconds until the first test that fails, of whatever rule.
    broken : dict of str to str
        Other rules that tests on the way said were broken, and the first of these tests.
    unsound : tuple of str
        What went wrong in the tests themselves.
    seconds : float
    """

    entry: str
    rule: str
    killed_by: str
    tried: int
    first_failure: float
    broken: dict[str, str]
    unsound: tuple[str, ...]
    seconds: float

    @property
    def as_it_should(self) -> bool:
        """Whether a wrong one is killed under its rule, and a correct one under none."""
        good = bool(self.killed_by) if self.rule else not self.broken
        return good and not self.unsound


def convict(one: Entry, suite: Sequence[Test]) -> Finding:
    """Put a wrong entry to the suite, each test with a backend that knows of no earlier one.

    Parameters
    ----------
    one : Entry
    suite : sequence of Test

    Examples
    --------
    >>> from attnspec.conformance.gallery import entry
    >>> from attnspec.conformance.meta.matrix import convict
    >>> convict(entry("inverted_polarity"), ()).as_it_should
    False
    """
    bearing = sorted((test for test in suite if one.rule in test.rules), key=lambda test: test.cost)
    # Where no test that bears on its rule kills it, another may, and then it is filed wrongly.
    others = [test for test in suite if one.rule not in test.rules]
    started, first_failure, killed_by = time.perf_counter(), 0.0, ""
    broken: dict[str, str] = {}
    unsound: list[str] = []
    tried = 0
    for test in (*bearing, *others):
        if broken and tried >= len(bearing):
            break
        found = run(test, one.backend())
        tried += 1
        unsound += [found.unsound] if found.unsound else []
        if found.broken and not first_failure:
            first_failure = time.perf_counter() - started
        for rule in found.broken:
            broken.setdefault(rule, found.test)
        if one.rule in found.broken:
            killed_by = found.test
            break
    seconds = time.perf_counter() - started
    broken.pop(one.rule, None)
    return Finding(one.name, one.rule, killed_by, tried, first_failure, broken, tuple(unsound), seconds)


def acquit(entries: Iterable[Entry], tests: Iterable[Test]) -> dict[str, Finding]:
    """Put correct entries to a part of the suite.

    A test that takes none of the steps that an entry replaces says of it what it says
    of the plain one, and is not run again.
    """
    findings = {one.name: Finding(one.name, "", "", 0, 0.0, {}, (), 0.0) for one in entries}
    for test in tests:
        backend, taken = entry("plain").watched()
        plain = run(test, backend)
        for name, before in findings.items():
            steps = entry(name).steps
            found = run(test, entry(name).backend()) if taken & set(steps) else plain
            findings[name] = replace(
                before,
                tried=before.tried + (found is not plain or not steps),
                broken={**dict.fromkeys(found.broken, found.test), **before.broken},
                unsound=(*before.unsound, *([found.unsound] if found.unsound else [])),
                seconds=before.seconds + found.seconds,
            )
    return findings


def matrix(
    wrong: Sequence[str], correct: Sequence[str], *, quick: bool = False, workers: int = 2
) -> list[Finding]:
    """Judge entries, by their names, in processes of their own.

    Parameters
    ----------
    wrong, correct : sequence of str
    quick : bool, optional
        With the part of the suite that ``--quick`` leaves.
    workers : int, optional

    Returns
    -------
    list of Finding
        In the order of the names.
    """
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (quick,)) as pool:
        parts = [pool.submit(_acquitted, part, tuple(correct)) for part in range(_PARTS if correct else 0)]
        convicted = list(pool.map(_convicted, wrong))
        acquitted = [part.result() for part in parts]
    return convicted + [_joined([part[name] for part in acquitted]) for name in correct]


def confirm(killed_by: Mapping[str, str], *, workers: int = 2) -> list[str]:
    """List the wrong entries whose rule a test, by its name, does not say is broken."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (False,)) as pool:
        killed = pool.map(_confirmed, killed_by.items(), chunksize=8)
        return [name for name, found in zip(killed_by, killed, strict=True) if not found]


_SUITE: list[Test] = []


def _begin(quick: bool) -> None:  # noqa: FBT001 - a pool passes by position
    _SUITE[:] = collect(quick=quick)


def _convicted(name: str) -> Finding:
    return convict(entry(name), _SUITE)


def _confirmed(pair: tuple[str, str]) -> bool:
    name, killed_by = pair
    one = entry(name)
    named = [test for test in _SUITE if test.name == killed_by]
    return any(one.rule in run(test, one.backend()).broken for test in named)


def _acquitted(part: int, names: tuple[str, ...]) -> dict[str, Finding]:
    size = -(-len(_SUITE) // _PARTS)
    return acquit(map(entry, names), _SUITE[part * size : (part + 1) * size])


def _joined(findings: Sequence[Finding]) -> Finding:
    def total(of: Callable[[Finding], Any]) -> Any:
        return sum(map(of, findings))

    return replace(
        findings[0],
        tried=total(lambda one: one.tried),
        broken={rule: test for one in reversed(findings) for rule, test in one.broken.items()},
        unsound=tuple(text for one in findings for text in one.unsound),
        seconds=total(lambda one: one.seconds),
    )
