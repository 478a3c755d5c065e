"""Computes the expected values of the fixed suite with both oracles, for `attnspec vectors write`.

The exact oracle proves them. The second oracle must agree to one unit in the last place. It computes 60
digits, so it may round an lse the other way if only a weight of 1e-464 separates it from the middle between
two numbers.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attnspec import OPERATIONS, Case, SpecError
from attnspec.conformance.judge.store import Values, written
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import items
from attnspec.reference.rational.evaluate import evaluate


def asked() -> Iterator[Case]:
    """Yield the cases of the fixed suite whose values an oracle must compute, each fingerprint once.

    A case has no `outputs` unless all cases of its fingerprint are judged without their weights.
    """
    found: dict[str, Case] = {}
    for item in items():
        if isinstance(item, Relation) and item.bits:
            continue
        for case in item.calls if isinstance(item, Relation) else (item,):
            refused = case.misuse is not None and not case.misuse.allowed
            if refused or case.expected:
                continue
            whole = "weights" in case.outputs or not case.outputs
            if whole or case.fingerprint not in found:
                found[case.fingerprint] = replace(case, outputs=()) if whole else case
    yield from found.values()


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


def stored() -> bytes:
    """Write the file again."""
    from attnspec.reference.exact.balls import OracleError

    entries: dict[str, Values] = {}
    for case in asked():
        # The second oracle computes what the exact oracle does not define, such as a NaN under a softcap.
        with contextlib.suppress(OracleError):
            entries[case.fingerprint] = values_of(case)
    return written(entries.items())
