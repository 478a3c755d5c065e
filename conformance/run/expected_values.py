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

import numpy as np

from attnspec import OPERATIONS, Case, SpecError
from attnspec.conformance.judge.store import Values, find
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import items
from attnspec.reference.rational.evaluate import evaluate


def chapters(only: str | None = None) -> Iterator[tuple[str, list[Case]]]:
    """Yield each chapter with the cases whose values an oracle must compute, each fingerprint once.

    A case has no `outputs` unless all cases of its fingerprint are judged without their weights.
    """
    for chapter, cases in groupby(_generated(), key=lambda case: case.chapter):
        if only not in (None, chapter):
            continue
        first: dict[str, Case] = {}
        for case in cases:
            whole = "weights" in case.outputs or not case.outputs
            if whole or case.fingerprint not in first:
                first[case.fingerprint] = replace(case, outputs=()) if whole else case
        yield chapter, [*first.values()]


def _generated() -> Iterator[Case]:
    """Yield the calls of the suite that have values and are no golden vectors, which carry their own."""
    for item in items():
        if isinstance(item, Relation) and item.bits:
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
