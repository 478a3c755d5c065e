"""Computes the expected values of the fixed suite with both oracles, for `attnspec vectors expected`.

The exact oracle proves them. The second oracle must agree to one unit in the last place. It computes 60
digits, so it may round an lse the other way if only a weight of 1e-464 separates it from the middle between
two numbers.
"""

import contextlib
import gc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from attnspec import OPERATIONS, Case, SpecError
from attnspec.conformance.judge import store
from attnspec.conformance.judge.store import Values, find
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import items
from attnspec.reference.rational.evaluate import evaluate

#: A group that compares with sums over the words of a formula.
_BY_FORMULA = "longer than tiles"
#: Multiplications for each number that is stored, above which a wheel has the numbers.
_COSTLY = 150


def chapters(only: str | None = None) -> Iterator[tuple[str, list[Case]]]:
    """Yield each chapter with the cases whose values an oracle must compute, each fingerprint once.

    A call of several chapters is one of the first. A case has no `outputs` unless all cases of its
    fingerprint are judged without their weights.
    """
    earlier: set[str] = set()
    for chapter, cases in groupby(_generated_cases(), key=lambda case: case.chapter):
        first: dict[str, Case] = {}
        for case in cases:
            if case.fingerprint in earlier:
                continue
            whole = "weights" in case.outputs or not case.outputs
            if whole or case.fingerprint not in first:
                first[case.fingerprint] = replace(case, outputs=()) if whole else case
        earlier |= first.keys()
        if only in (None, chapter):
            yield chapter, [*first.values()]


def _generated_cases() -> Iterator[Case]:
    """Yield the calls of the suite that have values and are no golden vectors, which carry their own."""
    for item in items():
        if isinstance(item, Relation) and (item.bits or item.group == _BY_FORMULA):
            continue
        for case in item.calls:
            refused = case.misuse is not None and not case.misuse.allowed
            if not refused and not case.expected:
                yield case


def values_of(case: Case) -> Values:
    """Compute the values of a case with the exact oracle, and require that the second one agrees.

    Weights that are not judged are left out, because they are large.
    """
    from attnspec.reference.exact.evaluate import evaluate as exact

    first, second = exact(case.operation, case.arguments), evaluate(case.operation, case.arguments)
    values = {name: first[name].values for name in OPERATIONS[case.operation].outputs if name in first}
    for name, array in values.items():
        with np.errstate(invalid="ignore", over="ignore"):  # the spacing of the largest number
            near = (array == second[name]) | (np.abs(array - second[name]) <= np.spacing(np.abs(array)))
        if not (near | (np.isnan(array) & np.isnan(second[name]))).all():
            raise SpecError(f"case {case.name}: {name}: expected both oracles to agree, got two results")
    return {name: array for name, array in values.items() if name != "weights" or not case.outputs}


def values_by_fingerprint(cases: Iterable[Case], *, only_missing: bool = False) -> dict[str, Values]:
    """Compute the values of the cases that the exact oracle defines, or only those that no file has.

    It does not define all that the second oracle computes, such as a NaN under a softcap.
    """
    from attnspec.reference.exact.balls import OracleError

    values: dict[str, Values] = {}
    gc.freeze()  # so that collecting is quick
    for case in cases:
        if only_missing and (known := find(case.fingerprint)) is not None:
            values[case.fingerprint] = known
            continue
        with contextlib.suppress(OracleError):
            values[case.fingerprint] = values_of(case)
        # By itself the collector waits too long: it does not see how large the balls are that a cycle keeps.
        gc.collect()
    gc.unfreeze()
    return values


def write_packaged(path: Path, *, only_check: bool) -> bool:
    """Write the values that a wheel has if they have changed, and return whether they have.

    It leaves out what the second oracle computes quickly and to the last bit.
    """
    store.forget()
    own: dict[str, Values] = {}
    left_out: dict[str, Values] = {}
    for _, cases in chapters():
        for case in cases:
            if values := find(case.fingerprint):
                (own if is_packaged(case, values) else left_out)[case.fingerprint] = values
    data = store.encode(own, left_out)
    changed = not path.exists() or store.members(path.read_bytes()) != store.members(data)
    if changed and not only_check:
        path.write_bytes(data)
    return changed


def is_packaged(case: Case, values: Values) -> bool:
    """Whether a wheel has the values of a case."""
    if work(case, values) >= _COSTLY:
        return True
    digests = {name: store.digest(array) for name, array in values.items()}
    if store.digests().get(case.fingerprint) == digests:
        return False
    computed = evaluate(case.operation, case.arguments)
    return {name: store.digest(computed[name]) for name in values} != digests


def work(case: Case, values: Values) -> float:
    """Estimate the multiplications for each number of the values, by the pairs of a query and a key."""
    query = case.arguments.get("query")
    numbers = sum(array.size for array in values.values())
    if query is None or not numbers:
        return 0.0
    wide = [x for x in case.arguments.values() if isinstance(x, np.ndarray) and x.ndim > 1 and x.size]
    keys = max((x.size // x.shape[-1] for x in wide if x.dtype.kind != "b"), default=0)
    steps = 4 if case.operation.endswith("_vjp") else 1
    return float(steps * query.shape[-2] * keys * (query.shape[-1] + 4) / numbers)
