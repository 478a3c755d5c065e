"""The chapter `gradients`: sizes of 0, other dtypes and strides, and earlier calls."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.case import Misuse
from attnspec.conformance.suite.errors import each_its_own
from attnspec.conformance.suite.gradients import cotangents
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import MASKED, SHAPES, Shape

chapter = Chapter("gradients")

_VJP = "attention_vjp"
#: What there is none of, and the rule that says which gradient that gives.
_NONE = {
    "batch": (Shape((0, 2), 3, 5, 4, 4), "GRAD-2"),
    "queries": (Shape((2, 2), 0, 5, 4, 4), "GRAD-9"),
    "keys": (Shape((2, 2), 3, 0, 4, 4), "GRAD-10"),
}


@chapter.group("GRAD-2", "SHAPE-7", operation=_VJP, each=tuple(_NONE))
def nothing_to_differentiate(draw: Draw, none: str) -> Iterator[Yielded]:
    """Without queries keys and values have gradients of 0, and without keys the queries have."""
    shape, rule = _NONE[none]
    for problem in draw.in_each_dtype(shape, dtypes=("float32",)):
        yield Call(problem.arguments | cotangents(problem), tuple(dict.fromkeys((rule, "GRAD-2", "SHAPE-7"))))


@chapter.group("GRAD-2", "ERR-14", operation=_VJP, each=("bias", "sinks"))
def gradient_of_another_dtype(draw: Draw, name: str) -> Iterator[Yielded]:
    """A bias or a sink of another dtype is refused, or has a gradient of that dtype."""
    for dtype, other in (("float32", "float64"), ("float32", "float16"), ("bfloat16", "float32")):
        for problem in draw.in_each_dtype(MASKED[0], dtypes=(dtype,)):
            array = problem.array(*(problem.shape if name == "bias" else problem.shape[-3:-2]))
            own: dict[str, Any] = {name: array.astype(other)}
            yield Call(
                problem.arguments | own | cotangents(problem), misuse=replace(Misuse(name), allowed=True)
            )


@chapter.group("NUM-8", operation=_VJP, each=("transposed", "sliced"))
def strides_in_the_backward_pass(draw: Draw, layout: str) -> Iterator[Yielded]:
    """The backward pass reads all arrays with their strides."""
    for problem in draw.in_each_dtype(SHAPES[4], dtypes=("float32",)):
        own = {"bias": problem.array(*problem.shape), "mask": problem.mask()}
        given = problem.arguments | own
        yield Call(given | cotangents(problem), layout=dict.fromkeys(given, layout))


@chapter.group("ERR-13", operation=_VJP, each=("numbers", "mask", "is_causal", "scale"))
def earlier_gradients(draw: Draw, changed: str) -> Iterator[Yielded]:
    """A call after one of the same shapes with other numbers or another option has its own gradients."""
    for problem in draw.in_each_dtype(MASKED[0], dtypes=("float32",)):
        before = problem.arguments | cotangents(problem)
        if changed in OPTIONS:
            needs, own = draw_option(problem, changed)
            after = before | needs | own
        else:
            after = {name: np.flip(array) for name, array in before.items()}
        yield Calls((before, after, before), each_its_own, live=True, beside=True)
