"""The chapter `numerics`: memory layouts of the inputs (NUM-8)."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attnspec.conformance.judge.layout import LAYOUTS
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import biased
from attnspec.conformance.suite.problem import SHAPES

chapter = Chapter("numerics")

_NAMES = ("query", "key", "value", "mask", "bias", "all")


@chapter.group("NUM-8", each=tuple(product(LAYOUTS, _NAMES)))
def strides(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """The result does not depend on the strides of one input, or of all."""
    layout, name = which
    for problem in draw.in_each_dtype(SHAPES[4]):
        arguments: dict[str, Any] = problem.arguments
        arguments |= {"mask": {"mask": problem.mask()}, "bias": {"bias": biased(problem)}}.get(name, {})
        if layout == "repeated":
            arguments = {
                key: np.array(np.broadcast_to(x[..., :1, :, :], x.shape)) for key, x in arguments.items()
            }
        names = tuple(arguments) if name == "all" else (name,)
        yield Call(arguments, layout=dict.fromkeys(names, layout))
