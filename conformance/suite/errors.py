"""The chapter `errors`: calls that must raise, error messages, and independence of earlier calls."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np

from attnspec import Case, cases
from attnspec.backends import DTYPES, Backend
from attnspec.case import Misuse
from attnspec.conformance.judge.dtypes import in_dtype, in_each
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.malformed import Malformed, malformed
from attnspec.conformance.suite.malformed.fitting import BATCHES, SIZES
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import MASKED, Shape
from attnspec.operations.gradients import primal

chapter = Chapter("errors")

_ARRAYS = ("query", "key", "value")
#: The shape of three arrays.
_ALIKE = Shape((2,), 3, 3, 4, 4)
_MALFORMED = {call.name: call.operation for call in malformed()}


@chapter.group("ERR-3", each=tuple(_MALFORMED))
def refused(draw: Draw, name: str) -> Iterator[Yielded]:
    """A call that cannot be honoured raises an error."""
    other = ("float64", "float16", "bfloat16")[tuple(_MALFORMED).index(name) % 3]
    for call in _fitted(draw, _MALFORMED[name]):
        for dtype in ("float32", other) if call.name == name else ():
            misuse = Misuse(call.argument, call.names)
            yield Call(in_dtype(call.arguments, dtype), (call.rule,), call.operation, misuse=misuse)


def _fitted(draw: Draw, operation: str) -> tuple[Malformed, ...]:
    """Return malformed calls whose sizes fit the constraints, apart from the intended fault."""
    if primal(operation) != "attention":
        return malformed()
    own = Shape((*BATCHES, SIZES["Hq"]), SIZES["L"], SIZES["S"], SIZES["D"], SIZES["Dv"])
    fit = draw.fitted(own)
    sizes = (("L", fit.queries), ("S", fit.keys), ("D", fit.depth), ("Dv", fit.value_depth))
    return malformed(sizes if fit != own else ())


@chapter.group("ERR-12", each=tuple(dict.fromkeys(call.operation for call in malformed())))
def named_in_the_error(draw: Draw, operation: str) -> Iterator[Yielded]:
    """The error of a call that is refused names the argument at fault."""
    for call in _fitted(draw, operation):
        if call.operation == operation:
            misuse = Misuse(call.argument, call.names)
            yield Call(in_dtype(call.arguments, "float32"), operation=operation, misuse=misuse)


@chapter.group("ERR-12")
def named_in_the_error_of_a_golden_vector(_draw: Draw) -> Iterator[Yielded]:
    """The error of a golden vector that is refused names the argument at fault."""
    for case in cases():
        if case.misuse is not None:
            (chosen, *_) = (*in_each(case, ("float32",)), *in_each(case))
            yield Call(chosen.arguments, operation=case.operation, misuse=case.misuse)


@chapter.group("ERR-1", each=_ARRAYS)
def mixed_dtypes(draw: Draw, name: str) -> Iterator[Yielded]:
    """One of the three arrays has another dtype than the others: refused, or taken at its value."""
    for dtype, other in permutations(DTYPES, 2):
        (problem,) = draw.in_each_dtype(MASKED[0], dtypes=("float32",))
        fine = np.round(problem.random.normal(size=problem.arguments[name].shape) * 1024) / 1024
        arrays = {key: (fine if key == name else x) for key, x in problem.arguments.items()}
        cast = {key: x.astype(other if key == name else dtype) for key, x in arrays.items()}
        yield Call(cast, misuse=replace(Misuse(name), allowed=True))


@chapter.group(
    "ERR-2",
    each=tuple(product(("int32", "int64", "bool", "complex64"), ("all", *_ARRAYS))),
)
def not_floating_point(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Integers, booleans and complex numbers are refused, in all arrays and in one."""
    dtype, name = which
    shapes = draw.shapes(_ALIKE)
    for other in DTYPES[2:] if name != "all" else DTYPES[2:3]:
        given = {key: dtype if name in ("all", key) else other for key in _ARRAYS}
        arguments = {key: np.ones(shapes[key], given[key]) for key in _ARRAYS}
        yield Call(arguments, misuse=Misuse("query" if name == "all" else name))


@chapter.group("ERR-17")
def no_heads(draw: Draw) -> Iterator[Yielded]:
    """A call without query heads, and with or without key heads, is refused or gives empty results."""
    for without in (("query", "key", "value"), ("query",)):
        for problem in draw.in_each_dtype(MASKED[0]):
            arguments = {
                name: array[:, :0] if name in without else array for name, array in problem.arguments.items()
            }
            yield Call(arguments, misuse=replace(Misuse("query"), allowed=True))


@chapter.group("ERR-13", each=tuple(OPTIONS))
def earlier_calls(draw: Draw, option: str) -> Iterator[Yielded]:
    """A call with one argument changed, and changed back, gives its own result each time."""
    for problem in draw.in_each_dtype(MASKED[0]):
        needs, first = draw_option(problem, option)
        _, second = draw_option(problem, option)
        before, after = (problem.arguments | needs | own for own in (first, second))
        plain = problem.arguments | needs
        yield Calls((before, after, plain, before), each_its_own, live=True, beside=True)


def each_its_own(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Judge each call by itself, in their order."""
    from attnspec.conformance.judge.judge import judge

    verdicts = [judge(backend, case) for case in calls]
    bad = [verdict for verdict in verdicts if verdict.status not in ("pass", "deviation")]
    shown = [verdict for verdict in verdicts if verdict.status == "deviation"]
    return next(iter(bad or shown), None)


@chapter.group("ERR-14", each=tuple(product(("bias", "sinks"), ("fine", "large"))))
def another_dtype(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """A bias or a sink of another dtype is refused, or taken at its value."""
    name, numbers = which
    for dtype, other in permutations(DTYPES, 2):
        (problem,) = draw.in_each_dtype(MASKED[0], dtypes=(dtype,))
        shape = problem.shape if name == "bias" else problem.shape[-3:-2]
        array = np.round(problem.random.normal(size=shape) * 1024) / 1024
        if numbers == "large" and other != "float16":  # outside the range of float16
            array = np.round(array * 4) + (100000 if name == "bias" else -100000)
        arguments: dict[str, Any] = problem.arguments | {name: array.astype(other)}
        yield Call(arguments, misuse=replace(Misuse(name), allowed=True))
