"""Diagnosis: which wrong implementation of the gallery gives what a failing backend gives.

A name is given only where one entry of the gallery, or two or three that cannot be
told apart, give the backend's results on every call: on those that it fails, and
on those that it passes. Otherwise nothing is said.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnspec import Case, cases
from attnspec.backends import Backend, Unsupported, load
from attnspec.conformance.gallery import Entry, wrong_entries
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import Outputs, call
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import accepted, arguments_of, dtype_of, dtypes_of
from attnspec.conformance.judge.expected import differences, exact
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.suite.options import OPTIONS, drawn
from attnspec.conformance.suite.problem import GROUPED, MASKED, Shape, problem_of
from attnspec.conformance.verdict import Results
from attnspec.reference.budget.budget import Budget

#: Two results that are each within a budget of the same number are within two of each other.
_APART = 2.0
#: On fewer failing calls than these too much looks like everything.
_FEWEST = 2
#: More entries than these are no name.
_MOST = 3
#: What two results may be apart besides, as a part of the largest number in them.
_UNITS = {"float64": 2.0**-40, "float32": 2.0**-17, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_SHAPES = (MASKED[0], GROUPED[1], Shape((1, 1), 19, 35, 2, 2))
_PLAIN = (
    Shape((), 2, 257, 2, 3),
    Shape((), 33, 9, 20, 2),
    Shape((2, 2), 4, 4, 3, 3),
    Shape((2,), 3, 4, 2, 5),
)


@dataclass
class Asked:
    """One call that backend and gallery are asked.

    Attributes
    ----------
    operation : str
    arguments : mapping
    expected : callable
        Gives the exact values by output name; None where the call is to be refused.
    given : dict of str to dict or None
        What entries of the gallery gave, by name; None for what raised.
    """

    operation: str
    arguments: Mapping[str, Any]
    expected: Callable[[], Mapping[str, Any]] | None
    given: dict[str, Outputs | None] = field(default_factory=dict)
    _budgets: dict[str, Budget] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Of its arrays."""
        return dtype_of(self.operation, self.arguments)

    def budgets(self, backend: Backend) -> Mapping[str, Budget]:
        """Compute the budgets of the call, once."""
        if not self._budgets:
            self._budgets.update(budgets_of(backend, self.operation, self.arguments, self.dtype))
        return self._budgets


@dataclass(frozen=True)
class Diagnosis:
    """What fits.

    Attributes
    ----------
    entries : tuple of Entry
        Those that give what the backend gives.
    failing, passing : int
        On how many calls that it fails, and that it passes.
    share : float
        How far off they are at most, in budgets.
    """

    entries: tuple[Entry, ...]
    failing: int
    passing: int
    share: float

    def __str__(self) -> str:
        names = ", or ".join(f"{one.name} ({one.sentence.rstrip('.')}; {one.rule})" for one in self.entries)
        calls = f"{self.failing} of {self.failing} failing cases, {self.passing} passing ones"
        return f"consistent with: {names} ({calls}, within {self.share:.1f} budgets)"


def diagnose(
    backend: Backend, asked: Sequence[Asked], candidates: Sequence[Entry] | None = None
) -> Diagnosis | None:
    """Find what in the gallery gives what a backend gives.

    Parameters
    ----------
    backend : Backend
    asked : sequence of Asked
        Calls of which it fails some.
    candidates : sequence of Entry, optional
        By default all wrong ones.

    Returns
    -------
    Diagnosis or None
        None where nothing fits, or too much.

    Examples
    --------
    >>> from attnspec.conformance.report.diagnosis import diagnose, probes
    >>> from attnspec.conformance.gallery import entry
    >>> found = diagnose(entry("lse_negative").backend(), probes()[:12])
    >>> [one.name for one in found.entries], found.failing
    (['lse_negative'], 12)
    >>> diagnose(entry("plain").backend(), probes()[:12])
    """
    failing: list[tuple[Asked, Outputs | None]] = []
    passing: list[tuple[Asked, Outputs | None]] = []
    for one in asked:
        try:
            outputs = _outputs(backend, one)
        except Unsupported:
            continue
        (failing if _fails(backend, one, outputs) else passing).append((one, outputs))
    if len(failing) < _FEWEST:
        return None
    fitting = list(wrong_entries() if candidates is None else candidates)
    worst = 0.0
    for one, outputs in (*failing, *passing):
        shares = [_share(backend, one, outputs, _given(one, entry)) for entry in fitting]
        fitting = [entry for entry, share in zip(fitting, shares, strict=True) if share <= _APART]
        worst = max([worst, *(share for share in shares if share <= _APART)])
        if not fitting:
            return None
    return Diagnosis(tuple(fitting), len(failing), len(passing), worst) if len(fitting) <= _MOST else None


def golden() -> list[Asked]:
    """Ask all golden vectors, each in one of the dtypes that hold it."""
    each = [asked_of(case) for case in cases()]
    return [asked[number % len(asked)] for number, asked in enumerate(each) if asked]


def asked_of(case: Case) -> list[Asked]:
    """Ask one golden vector, in every dtype that holds it."""
    return [_of_case(case, dtype) for dtype in dtypes_of(case)]


def fails(backend: Backend, asked: Asked) -> bool:
    """Whether a backend fails a call; not where it does not offer it."""
    try:
        return _fails(backend, asked, _outputs(backend, asked))
    except Unsupported:
        return False


def probes(seed: int = 5) -> list[Asked]:
    """Ask generated calls: each option beside nothing else, and plain ones, past tiles too."""
    asked = []
    for number, shape in enumerate((*_SHAPES, *_PLAIN)):
        for dtype in ("float32", "float16"):
            for name in OPTIONS if number < len(_SHAPES) else (None,):
                problem = problem_of(shape, dtype, seed + number)
                needs, own = ({}, {}) if name is None else drawn(problem, name)
                asked.append(_generated(problem.arguments | needs | own))
    return asked


def said(found: Diagnosis | None) -> str:
    """Put a diagnosis in a line."""
    return str(found) if found else "consistent with nothing in the gallery, or with too much of it"


def of_results(results: Results, *, seconds: float = 120) -> dict[str, str]:
    """Diagnose each backend that fails, in a process of its own, which may crash or hang.

    Parameters
    ----------
    results : Results
    seconds : float, optional
        What it may take; of a backend that takes longer nothing is said.
    """
    failing = {verdict.backend for verdict in results.verdicts if verdict.status in ("fail", "error")}
    found = {}
    for name in sorted(failing):
        command = [sys.executable, "-m", "attnspec.conformance.report.diagnosis", name]
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)  # noqa: S603 - ourselves
            found[name] = ended.stdout.strip().splitlines()[-1] if ended.stdout.strip() else ""
    return {name: text for name, text in found.items() if text}


def _generated(arguments: Mapping[str, Any]) -> Asked:
    return Asked("attention", arguments, lambda: exact("attention", arguments))


def _of_case(case: Case, dtype: str) -> Asked:
    refused = case.misuse is not None
    return Asked(case.operation, arguments_of(case, dtype), None if refused else lambda: case.expected)


def _outputs(backend: Backend, asked: Asked) -> Outputs | None:
    """Call it; None where it raises."""
    try:
        return call(backend, asked.operation, asked.arguments)
    except (Raised, Failure):
        return None


def _given(asked: Asked, entry: Entry) -> Outputs | None:
    if entry.name not in asked.given:
        asked.given[entry.name] = _outputs(entry.backend(), asked)
    return asked.given[entry.name]


def _fails(backend: Backend, asked: Asked, outputs: Outputs | None) -> bool:
    if asked.expected is None or outputs is None:
        return (asked.expected is None) != (outputs is None)
    compared = differences(outputs, asked.expected(), asked.budgets(backend), asked.dtype)
    return any(comparison.problem for _, comparison in compared)


def _share(backend: Backend, asked: Asked, got: Outputs | None, given: Outputs | None) -> float:
    """How far apart two results are, in budgets; infinitely where they are of different kinds."""
    if got is None or given is None:
        return 0.0 if got is given else np.inf
    budgets = asked.budgets(backend) if asked.expected is not None else {}
    worst = 0.0
    for name, one in got.items():
        if name not in given or given[name].shape != one.shape:
            return np.inf
        may = accepted(name, asked.dtype)  # an lse has a choice
        if given[name].dtype != one.dtype and not {str(given[name].dtype), str(one.dtype)} <= set(may):
            return np.inf
        other = given[name].astype(np.float64)
        # A wrong number may be larger than the right one, and come of others that are larger still.
        size = np.abs(other[np.isfinite(other)]).max(initial=1.0)
        rounding = size * _UNITS[max(str(one.dtype), str(given[name].dtype), key=_UNITS.__getitem__)]
        budget = budgets.get(name, np.zeros(()))
        budget = budget if budget.shape == other.shape else np.full(other.shape, budget.max(initial=0.0))
        lse = given.get("lse")
        of_rows = name == "weights" and lse is not None and lse.shape == other.shape[:-1]
        where = ~np.isnan(given["lse"])[..., None] if of_rows else None  # NUM-11
        worst = max(worst, compare(name, one, other, budget + rounding, str(one.dtype), where=where).share)
    return worst


if __name__ == "__main__":
    # A backend may print what it likes: the last line is ours.
    print("\n" + said(diagnose(load(sys.argv[1]), [*golden(), *probes()])))  # noqa: T201 - read by `of_results`
