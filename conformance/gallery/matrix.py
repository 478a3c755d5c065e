"""The kill matrix: whether the suite fails every wrong implementation of the gallery, and no correct one.

Every wrong one is put to the tests that bear on the rule it is filed under, the
cheapest first, until one of them says that this rule is broken; every correct one
to the whole suite.
"""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import click

from attnspec import rules
from attnspec.conformance.gallery import Entry, correct_entries, entry, wrong_entries
from attnspec.conformance.gallery.runs import Test, collect, run


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


def judge(one: Entry, suite: Sequence[Test]) -> Finding:
    """Put one entry to the suite, each test with a backend that knows of no earlier one.

    Parameters
    ----------
    one : Entry
    suite : sequence of Test

    Examples
    --------
    >>> from attnspec.conformance.gallery import entry
    >>> from attnspec.conformance.gallery.matrix import judge
    >>> judge(entry("inverted_polarity"), ()).as_it_should
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
        if one.rule and broken and tried >= len(bearing):
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


_SUITE: list[Test] = []


def _begin(quick: bool) -> None:  # noqa: FBT001 - a pool passes by position
    _SUITE[:] = collect(quick=quick)


def _judged(name: str) -> Finding:
    return judge(entry(name), _SUITE)


def matrix(names: Iterable[str], *, quick: bool = False, workers: int = 2) -> list[Finding]:
    """Judge entries in processes of their own, in the order in which they are given."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (quick,)) as pool:
        return list(pool.map(_judged, names))


def problems(findings: Iterable[Finding]) -> list[str]:
    """List survivors, what is filed wrongly, false alarms, rules that nothing breaks, unsound tests.

    Examples
    --------
    >>> from attnspec.conformance.gallery.matrix import Finding, problems
    >>> print(*problems([Finding("a", "MASK-1", "", 9, 0.0, {}, (), 1.0)])[:1])
    a survives: nothing breaks MASK-1 in 9 tests
    """
    found = []
    findings = list(findings)
    for one in findings:
        others = ", ".join(f"{rule} by {test}" for rule, test in one.broken.items())
        if one.rule and not one.killed_by:
            where = f"is filed wrongly: {one.rule} holds, not so {others}" if one.broken else "survives"
            tail = "" if one.broken else f": nothing breaks {one.rule} in {one.tried} tests"
            found.append(f"{one.entry} {where}{tail}")
        if not one.rule and one.broken:
            found.append(f"{one.entry} is correct, and a false alarm: {others}")
        found += [f"{one.entry}: a test goes wrong itself: {text}" for text in one.unsound]
    killed = {one.rule for one in findings if one.killed_by}
    found += [f"{rule.id} is broken by no entry" for rule in rules() if rule.id not in killed]
    return found


def summary(findings: Sequence[Finding]) -> str:
    """Say how many are killed, rule by rule, and how soon."""
    wrong = [one for one in findings if one.rule]
    right = [one for one in findings if not one.rule]
    lines = []
    for rule in rules():
        own = [one for one in wrong if one.rule == rule.id]
        killed = [one for one in own if one.killed_by]
        cheapest = min((one.tried for one in killed), default=0)
        lines.append(f"{rule.id:9} {len(killed):2} of {len(own):2} killed, the first by test {cheapest}")
    if wrong:
        killed = [one for one in wrong if one.killed_by]
        times = sorted(one.first_failure for one in killed) or [0.0]
        lines.append(f"wrong: {len(wrong)}, killed under their rule: {len(killed)}")
        lines.append(
            f"time to first failure: median {times[len(times) // 2]:.2f} s, largest {times[-1]:.2f} s"
        )
    passed = sum(one.as_it_should for one in right)
    lines.append(f"correct: {len(right)}, without a false alarm: {passed}")
    return "\n".join(lines)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="With the part of the suite that --quick leaves.")
@click.option("--wrong", is_flag=True, help="Only the wrong ones.")
@click.option("--workers", default=2, show_default=True)
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write findings here.")
def main(names: tuple[str, ...], quick: bool, wrong: bool, workers: int, file: Path | None) -> None:  # noqa: FBT001 - click passes options by name
    """Judge the gallery, or some of it; fails where anything is not as it should be."""
    started = time.perf_counter()
    # The correct ones take longest.
    every = [*(() if wrong else correct_entries()), *wrong_entries()]
    findings = matrix(names or [one.name for one in every], quick=quick, workers=workers)
    if file is not None:
        file.write_text(json.dumps([asdict(one) for one in findings]), encoding="utf-8")
    click.echo(summary(findings))
    found = problems(findings)
    if names:
        found = [text for text in found if "is broken by no entry" not in text]
    for text in found:
        click.echo(text)
    click.echo(f"{len(findings)} entries, {len(found)} problems, {time.perf_counter() - started:.0f} s")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
