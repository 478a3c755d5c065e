"""The chapter `errors`: what must raise, what the error says, and what may not be left behind by a call."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from attnspec import Case, cases
from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import arguments_of, dtypes_of
from attnspec.conformance.judge.failure import Raised
from attnspec.conformance.misuses import MISUSES
from attnspec.conformance.suite.options import OPTIONS, drawn
from attnspec.conformance.suite.problem import MASKED, problem_of
from attnspec.conformance.suite import (
    Record,
    check,
    check_golden,
    check_named,
    check_refused,
    golden,
    require,
    rule,
    unsupported_skips,
)

_ARRAYS = ("query", "key", "value")


@golden("errors")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@pytest.mark.parametrize(
    "misuse", [pytest.param(name, marks=rule(wrong.rule)) for name, wrong in MISUSES.items()]
)
def test_misuse_is_refused(misuse: str, backend: Backend) -> None:
    """Each way to call it wrongly raises an error."""
    wrong = MISUSES[misuse]
    for dtype in tried(backend.dtypes):
        check_refused(backend, wrong.rule, wrong.arguments(dtype), wrong.operation)


@rule("ERR-12")
@pytest.mark.parametrize("misuse", MISUSES)
def test_the_error_names_the_argument(misuse: str, backend: Backend) -> None:
    """Where a misuse is refused, the message tells which argument is at fault."""
    wrong = MISUSES[misuse]
    arguments = wrong.arguments(backend.dtypes[0])
    check_named(backend, wrong.rule, arguments, wrong.at_fault, wrong.operation)


@rule("ERR-12")
@pytest.mark.parametrize("case", [case for case in cases() if case.misuse is not None], ids=str)
def test_the_error_of_a_golden_vector_names_the_argument(case: Case, backend: Backend) -> None:
    """The same of the vectors that are to be refused."""
    taken = [dtype for dtype in dtypes_of(case) if dtype in backend.dtypes]
    if not taken:
        pytest.skip(f"{backend.name} has none of the dtypes of {case.id}")
    assert case.misuse is not None  # noqa: S101 - for the type checker: chosen by it
    arguments = arguments_of(case, taken[0])
    check_named(backend, case.rules[0], arguments, (case.misuse.argument,), case.operation)


@rule("ERR-1")
@pytest.mark.parametrize("name", _ARRAYS)
def test_mixed_dtypes(name: str, backend: Backend) -> None:
    """Every pair of the dtypes that are taken, one of the three arrays being the odd one."""
    if len(backend.dtypes) == 1:
        pytest.skip(f"{backend.name} has one dtype alone")
    for dtype, other in permutations(backend.dtypes, 2):
        arguments = {key: np.ones((2, 3, 4), other if key == name else dtype) for key in _ARRAYS}
        check_refused(backend, "ERR-1", arguments)


@rule("ERR-2")
@pytest.mark.parametrize("which", [_ARRAYS, ("query",), ("key",), ("value",)], ids=" and ".join)
@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "complex64"])
def test_arrays_that_are_not_floating_point(dtype: str, which: tuple[str, ...], backend: Backend) -> None:
    """Integers, booleans and complex numbers, in all arrays and in one."""
    arguments = {name: np.ones((2, 3, 4), dtype if name in which else backend.dtypes[0]) for name in _ARRAYS}
    check_refused(backend, "ERR-2", arguments)


@rule("ERR-13")
@pytest.mark.parametrize("option", OPTIONS)
def test_a_call_knows_nothing_of_earlier_ones(option: str, backend: Backend, record_property: Record) -> None:
    """With one argument changed, and changed back, shapes being the same: each call gives its own result."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(MASKED[0], dtype, 13)
        needs, first = drawn(problem, option)
        _, second = drawn(problem, option)
        before, after = (problem.arguments | needs | own for own in (first, second))
        plain = problem.arguments | needs
        for arguments in (before, after, plain, before):
            check(backend, "ERR-13", arguments, record_property)


@rule("ERR-14")
@pytest.mark.parametrize("numbers", ["fine", "large"])
@pytest.mark.parametrize("name", ["bias", "sinks"])
def test_a_bias_of_another_dtype(name: str, numbers: str, backend: Backend, record_property: Record) -> None:
    """Refused, or taken at its value: in steps too fine for bfloat16, or larger than float16 goes."""
    require(backend, name)
    for dtype, other in permutations(backend.dtypes, 2):
        problem = problem_of(MASKED[0], dtype, 14)
        shape = problem.shape if name == "bias" else problem.shape[-3:-2]
        array = np.round(problem.random.normal(size=shape) * 1024) / 1024
        if numbers == "large" and other != "float16":
            array = np.round(array * 4) + (100000 if name == "bias" else -100000)
        arguments: dict[str, Any] = problem.arguments | {name: array.astype(other)}
        with unsupported_skips():
            try:
                call(backend, "attention", arguments)
            except Raised:
                # What raises whatever it is given refuses nothing.
                call(backend, "attention", problem.arguments | {name: problem.array(*shape)})
                continue
        check(backend, "ERR-14", arguments, record_property)
