"""What the test files of the suite share: golden vectors by chapter, and checks by rule."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any

import hypothesis
import pytest
from numpy.typing import NDArray

from attnspec import Case, cases
from attnspec.backends import Backend, Unsupported
from attnspec.conformance.judge import expected as expectation
from attnspec.conformance.judge.call import Missing, Outputs, observe
from attnspec.conformance.judge.deviations import excused
from attnspec.conformance.judge.dtypes import arguments_of, dtype_of, dtypes_of
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.judge import Judgement, judge, judge_case
from attnspec.conformance.judge.refusal import judge_message, judge_misuse
from attnspec.conformance.outcome import asked
from attnspec.conformance.report.reproduction import of_arguments

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
        if not any(asked(rule_id, backend, case, dtype) for rule_id in case.rules):
            raise Missing(f"{backend.name} does not return what {', '.join(case.rules)} is about")
        with _declared(backend, case.rules[0], lambda: arguments_of(case, dtype), dtype):
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
    """Judge a generated call, by default against the second oracle, in the backend's dialect."""
    dtype = dtype_of(operation, arguments)
    with unsupported_skips(), _declared(backend, rule_id, lambda: arguments, dtype):
        judgement = judge(
            backend, rule_id, operation, arguments, None if expected is None else lambda: expected
        )
        _note(judgement, dtype, record)


def check_refused(
    backend: Backend, rule_id: str, arguments: Mapping[str, Any], operation: str = "attention"
) -> None:
    """Judge a call that must raise."""
    reproduction = of_arguments(backend, operation, arguments)
    with unsupported_skips(), _declared(backend, rule_id, lambda: arguments, _dtype(arguments)):
        judge_misuse(backend, operation, arguments, rule_id, f"on {backend.name}", reproduction)


def check_named(
    backend: Backend,
    rule_id: str,
    arguments: Mapping[str, Any],
    names: tuple[str, ...],
    operation: str = "attention",
) -> None:
    """Judge what the error of a call says that must raise; where it does not raise, there is none."""
    reproduction = of_arguments(backend, operation, arguments)
    place = f"on {backend.name}"
    with unsupported_skips():
        try:
            message = judge_misuse(backend, operation, arguments, rule_id, place, reproduction)
        except AssertionError as failure:
            raise Missing(f"{backend.name} refuses no such call [{rule_id}]") from failure
        judge_message(message, names, place, reproduction)


def observed(backend: Backend, arguments: Mapping[str, Any], operation: str = "attention") -> Outputs:
    """Call a backend; what it does not offer skips the test."""
    with unsupported_skips():
        return observe(backend, operation, arguments)
    raise AssertionError  # not reached: the context either returns or raises


def exact(arguments: Mapping[str, Any], operation: str = "attention") -> Outputs:
    """Compute the exact values of a generated call, rounded to float64; from no implementation."""
    return expectation.exact(operation, arguments)


def require(backend: Backend, *arguments: str, operation: str = "attention") -> None:
    """Skip the test unless the backend has an operation, with these arguments."""
    if backend.function(operation) is None:
        pytest.skip(f"{backend.name} has no {operation}")
    for name in arguments:
        if not backend.has(operation, name):
            pytest.skip(f"{backend.name} has no argument {name}")


def without(backend: Backend, *arguments: str) -> Backend:
    """Hide arguments of attention, by hiding them in the signature, which is the list of capabilities."""
    function = backend.attention

    @wraps(function)
    def run(*arrays: Any, **options: Any) -> Any:
        return function(*arrays, **options)

    whole = signature(function)
    kept = [parameter for name, parameter in whole.parameters.items() if name not in arguments]
    run.__signature__ = whole.replace(parameters=kept)  # type: ignore[attr-defined] # what inspect looks for
    return replace(backend, attention=run)


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


@contextmanager
def _declared(
    backend: Backend, rule_id: str, arguments: Callable[[], Mapping[str, Any]], dtype: str
) -> Iterator[None]:
    """Let pass what fails, or raises, just as it is declared: what else the test asks goes on."""
    try:
        yield
    except Failure as failure:
        if not excused(backend, failure.rule, arguments(), dtype=dtype):
            raise
    except Raised:
        if not excused(backend, rule_id, arguments(), dtype=dtype):
            raise


def _dtype(arguments: Mapping[str, Any]) -> str:
    """Tell the dtype of the first array, which may not be one of the standard's."""
    return next((str(x.dtype) for x in arguments.values() if hasattr(x, "dtype")), "")


def _note(judgement: Judgement, dtype: str, record: Record) -> None:
    record("used", (dtype, judgement.share, judgement.accuracy))
    if judgement.deviates:
        record("deviates", judgement.deviates)
