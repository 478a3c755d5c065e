"""The expected values of the fixed suite, asked of both oracles: what `attnspec vectors write` stores."""

from collections.abc import Iterator, Mapping

import numpy as np

from attnspec import OPERATIONS, Case, SpecError
from attnspec.conformance.judge.relation import Relation
from attnspec.conformance.judge.store import PATH, Values, written
from attnspec.conformance.suite import items
from attnspec.reference.rational.evaluate import evaluate


def asked() -> Iterator[Case]:
    """Yield the cases of the fixed suite whose values an oracle has to give, each fingerprint once."""
    seen: set[str] = set()
    for item in items():
        for case in item.calls if isinstance(item, Relation) else (item,):
            refused = case.misuse is not None and not case.misuse.allowed
            if not refused and not case.expected and case.fingerprint not in seen:
                seen.add(case.fingerprint)
                yield case


def values_of(case: Case) -> Values:
    """Compute the values of a case by the second oracle, and require that the first one agrees.

    Raises
    ------
    SpecError
        When the two oracles differ in any bit.
    """
    from attnspec.reference.exact.evaluate import evaluate as exact

    names = OPERATIONS[case.operation].outputs
    second, first = evaluate(case.operation, case.arguments), exact(case.operation, case.arguments)
    for name in names:
        if not np.array_equal(first[name].values, second[name], equal_nan=True):
            raise SpecError(f"case {case.name}: {name}: expected both oracles to agree, got two results")
    return {name: second[name] for name in names}


def stored() -> bytes:
    """Make the file anew."""
    entries: Mapping[str, Values] = {case.fingerprint: values_of(case) for case in asked()}
    return written(entries.items())


def is_stale(data: bytes) -> bool:
    """Whether the file in the suite holds other bytes."""
    return not PATH.exists() or PATH.read_bytes() != data
