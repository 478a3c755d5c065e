"""Prints the declared deviations with their outcomes, and how many wrong results each of them lets through.

Each backend is made wrong inside of what it declares: its results are doubled, are 0, are 1 too much, are
wrong in a row of ordinary numbers, or it raises another exception. The cases are those that showed the
deviation in a stored run.

    python -m tools.declarations torch-sdpa jax-nn
"""

import inspect
import json
import lzma
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends import Backend, Deviation, load
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import Raises
from attnspec.conformance.judge.judge import Judgeable, judge
from attnspec.conformance.run.cases import Cases

RESULTS = Path(__file__).parents[1] / "site" / "results"
Outputs = dict[str, NDArray[Any]]
#: Makes other outputs of the arguments and the outputs of a call, as NumPy arrays.
Change = Callable[[Mapping[str, Any], Outputs], Outputs]


def double(_: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """Double all results."""
    return {name: (array + array).astype(array.dtype) for name, array in outputs.items()}


def zeros(_: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """Make all results 0."""
    return {name: np.zeros_like(array) for name, array in outputs.items()}


def one_row(_: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """Add 1 to a row of ordinary numbers of each output. There may be none."""
    changed = {}
    for name, array in outputs.items():
        found = array.copy()
        rows = found.reshape(-1, found.shape[-1]) if found.ndim else found.reshape(1, 1)
        wide = np.real(rows).astype(np.float64)
        ordinary = np.flatnonzero((np.isfinite(wide) & (wide != 0) & (np.abs(wide) < 1e4)).all(axis=-1))
        if len(ordinary) and rows.size:
            rows[ordinary[-1]] = rows[ordinary[-1]] + np.ones((), rows.dtype)
        changed[name] = rows.reshape(found.shape)
    return changed


def one_more(_: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """Add 1 to all results, also where they are 0."""
    return {name: (array + np.ones((), array.dtype)).astype(array.dtype) for name, array in outputs.items()}


#: The wrong libraries.
MUTANTS: Mapping[str, Change] = {"doubled": double, "zeros": zeros, "one row": one_row, "one more": one_more}


def with_results(backend: Backend, change: Change) -> tuple[Backend, list[bool]]:
    """Change the results of a backend. Return it with a list: whether each of its calls has other results."""
    differ: list[bool] = []

    def wrap(operation: str, function: Callable[..., Any]) -> Callable[..., Any]:
        names = [*OPERATIONS[operation].arrays]

        @wraps(function)
        def run(*arrays: Any, **options: Any) -> Any:
            try:
                returned = function(*arrays, **options)
            except Exception as error:
                if change is not leave_results or isinstance(error, Unsupported):
                    raise
                differ.append(True)
                raise OtherError from error
            given = {**dict(zip(names, arrays, strict=False)), **options}
            arguments = {name: _numpy(backend, thing) for name, thing in given.items()}
            wanted = OPERATIONS[operation].wanted(arguments)
            parts = returned if isinstance(returned, tuple) else (returned,)
            if any(part is None for part in parts):
                return returned
            outputs = dict(zip(wanted, (np.array(backend.to_numpy(part)) for part in parts), strict=True))
            changed = change(arguments, outputs)
            differ.append(not all(_same(changed[x], outputs[x]) for x in outputs))
            back = tuple(backend.to_library(changed[name]) for name in outputs)
            return back if isinstance(returned, tuple) else back[0]

        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined] # read by inspect
        return run

    companions = {}
    for operation in OPERATIONS:
        function = backend.function(operation)
        if operation != "attention" and function is not None:
            companions[operation] = wrap(operation, function)
    attention = wrap("attention", backend.attention)
    return replace(backend, attention=attention, companions=companions), differ


def _same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    wide = (np.real(array).astype(np.float64) for array in (left, right))
    return np.allclose(*wide, rtol=1e-6, atol=1e-30, equal_nan=True)


class OtherError(Exception):
    """An exception that no library raises."""


def leave_results(_: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """Leave results as they are: another exception is raised in place of one."""
    return outputs


def _numpy(backend: Backend, thing: Any) -> Any:
    return backend.to_numpy(thing) if hasattr(thing, "shape") and hasattr(thing, "dtype") else thing


def cases_of(name: str, most: int) -> dict[str, list[tuple[str, str]]]:
    """Return for each deviation the names and groups of some cases that show it in the latest stored run."""
    runs = sorted(RESULTS.glob(f"{name}-[0-9]*.xz"), key=lambda path: path.name.split("-")[-3:])
    found: dict[str, list[tuple[str, str]]] = {}
    with lzma.open(runs[-1], "rt") as file:
        for line in file:
            entry = json.loads(line).get("verdict", {})
            for declared in entry.get("declared", ()) if entry.get("status") == "deviation" else ():
                cases = found.setdefault(declared, [])
                if len(cases) < most and entry["case"] not in [case for case, _ in cases]:
                    cases.append((entry["case"], entry.get("group", "")))
    return found


@dataclass(frozen=True)
class Row:
    """One deviation: the mutants that changed a result, and those that were taken for the deviation."""

    backend: str
    deviation: Deviation
    tried: int
    survived: tuple[str, ...]


def try_mutants(backend: Backend, deviation: Deviation, cases: list[Judgeable]) -> Row:
    """Judge wrong results inside of a deviation."""
    changes = dict(MUTANTS)
    if any(isinstance(outcome, Raises) for outcome in deviation.outcomes):
        changes["raising"] = leave_results
    tried, survived = 0, []
    for case in cases:
        if deviation.id not in judge(backend, case).declared:
            survived.append(f"{case.name} unchanged")
        for name, change in changes.items():
            mutant, differ = with_results(backend, change)
            verdict = judge(mutant, case)
            # A call that raises as before has no result that is judged.
            if any(differ) and (change is leave_results or verdict.raised is None):
                tried += 1
                if verdict.status == "deviation" and deviation.id in verdict.declared:
                    survived.append(f"{case.name} {name}")
    return Row(backend.name, deviation, tried, tuple(survived))


def rows_of(backend: Backend, most: int = 2) -> Iterator[Row]:
    """Try the mutants of each deviation of a backend."""
    known, finder = cases_of(backend.name, most), Cases()
    for deviation in backend.deviations:
        found = [finder.find(*case, backend.constraints) for case in known.get(deviation.id, ())]
        yield try_mutants(backend, deviation, found)  # type: ignore[arg-type] # a case is judged too


def main(names: list[str]) -> None:
    """Print a table of the deviations of some backends."""
    click.echo(
        "| backend | deviation | outcome | wrong results | let through |\n| --- | --- | --- | --- | --- |"
    )
    for name in names:
        for row in rows_of(load(name)):
            kinds = ", ".join(type(outcome).__name__ for outcome in row.deviation.outcomes)
            click.echo(f"| {name} | {row.deviation.id} | {kinds} | {row.tried} | {'; '.join(row.survived)} |")


if __name__ == "__main__":
    arguments, sys.argv = sys.argv[1:], sys.argv[:1]
    main(arguments)
