"""What the test files of the suite share: golden vectors by chapter, and checks by rule."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import hypothesis
import pytest
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case, cases
from attnspec.backends import Backend, Unsupported
from attnspec.conformance.call import Missing, Outputs
from attnspec.conformance.judge import (
    Judgement,
    dtype_of,
    dtypes_of,
    judge,
    judge_case,
    judge_misuse,
    observe,
)
from attnspec.conformance.reproduction import of_arguments
from attnspec.reference.rational import evaluate

Record = Callable[[str, object], None]

#: The marker that says on which rules a test bears.
rule = pytest.mark.rule


def golden(chapter: str) -> pytest.MarkDecorator:
    """Parametrize a test over a chapter's vectors, in every dtype that holds them exactly."""
    found = [(case, dtype) for case in cases() if case.chapter == chapter for dtype in dtypes_of(case)]
    return pytest.mark.parametrize(
        ("case", "dtype"), found, ids=[f"{case.id}-{dtype}" for case, dtype in found]
    )


def check_golden(backend: Backend, case: Case, dtype: str, record: Record) -> None:
    """Judge one golden vector."""
    with unsupported_skips():
        if dtype not in backend.dtypes:
            raise Missing(f"{backend.name} has no {dtype}")
        _note(judge_case(backend, case, dtype), dtype, record)


def check(
    backend: Backend,
    rule_id: str,
    arguments: Mapping[str, Any],
    record: Record,
    *,
    operation: str = "attention",
    expected: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Judge a generated call, by default against the second oracle."""
    with unsupported_skips():
        judgement = judge(
            backend,
            rule_id,
            operation,
            arguments,
            lambda: exact(arguments, operation) if expected is None else expected,
        )
        _note(judgement, dtype_of(arguments), record)


def check_refused(backend: Backend, rule_id: str, arguments: Mapping[str, Any]) -> None:
    """Judge a call that must raise."""
    reproduction = of_arguments(backend, "attention", arguments, "output", None)
    with unsupported_skips():
        judge_misuse(backend, "attention", arguments, rule_id, f"on {backend.name}", reproduction)


def observed(backend: Backend, arguments: Mapping[str, Any], operation: str = "attention") -> Outputs:
    """Call a backend; what it does not offer skips the test."""
    with unsupported_skips():
        return observe(backend, operation, arguments)
    raise AssertionError  # not reached: the context either returns or raises


def exact(arguments: Mapping[str, Any], operation: str = "attention") -> Outputs:
    """Compute the exact values of a generated call, rounded to float64; from no implementation."""
    values = evaluate(operation, arguments)
    return {name: values[name] for name in OPERATIONS[operation].outputs}


@contextmanager
def unsupported_skips() -> Iterator[None]:
    """Skip the test when the backend lacks an argument; pass over an example that it does not offer."""
    try:
        yield
    except Missing as missing:
        pytest.skip(str(missing))
    except Unsupported as unsupported:
        if hypothesis.currently_in_test_context():
            hypothesis.reject()
        pytest.skip(str(unsupported))


def _note(judgement: Judgement, dtype: str, record: Record) -> None:
    record("used", (dtype, judgement.share, judgement.accuracy))
    if judgement.deviates:
        record("deviates", judgement.deviates)
