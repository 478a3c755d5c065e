"""The chapter `numerics`: memory layouts of the inputs (NUM-8)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.judge.layout import LAYOUTS
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, Options, biased, draw_option
from attnspec.conformance.suite.problem import SHAPES, Problem, Shape
from attnspec.conformance.suite.words import in_two_dtypes

chapter = Chapter("numerics")

_NAMES = ("query", "key", "value", "mask", "bias", "all")


@chapter.group("NUM-8", each=tuple(product(LAYOUTS, _NAMES)))
def strides(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """The result does not depend on the strides of one input, or of all."""
    layout, name = which
    for problem in draw.in_each_dtype(SHAPES[4]):
        arguments: dict[str, Any] = problem.arguments
        arguments |= {"mask": {"mask": problem.mask()}, "bias": {"bias": biased(problem)}}.get(name, {})
        arguments = {key: _fitting(x, layout) for key, x in arguments.items()}
        names = tuple(arguments) if name == "all" else (name,)
        yield Call(arguments, layout=dict.fromkeys(names, layout))


#: One query, several, grouped heads and many queries, past tiles of 64.
_LONG = (
    Shape((5, 2), 1, 139, 4, 4),
    Shape((2, 2), 3, 139, 72, 72),
    Shape((2, 6), 1, 129, 8, 8, groups=3),
    Shape((1, 4), 70, 139, 8, 8, groups=2),
)
#: Without other axes, the positions are the first one, and one position repeats by a stride of 0.
_OF_EQUAL_ROWS = Shape((), 3, 139, 4, 4)


@chapter.group("NUM-8", each=tuple(product(LAYOUTS, ("query", "key", "value", "all"))))
def strides_of_every_size(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """The result does not depend on the strides of the three arrays for one query, many, or grouped heads."""
    layout, name = which
    shapes = (*_LONG, _OF_EQUAL_ROWS) if layout == "expanded" else _LONG
    # The same problems in every layout.
    for problem in in_two_dtypes(replace(draw, group="strides of every size"), shapes):
        arguments = {key: _fitting(x, layout) for key, x in problem.arguments.items()}
        names = tuple(arguments) if name == "all" else (name,)
        yield Call(arguments, outputs=("output", "lse"), layout=dict.fromkeys(names, layout))


#: The arrays of options, by the option that has them.
_OF_OPTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "query_offset": ("query_offset",),
        "query_lengths": ("query_lengths",),
        "key_lengths": ("key_lengths",),
        "segments": ("query_segment_ids", "key_segment_ids"),
        "sinks": ("sinks",),
        "dropout": ("dropout_mask",),
        "mask": ("mask",),
        "bias": ("bias",),
    }
)
#: Layouts of arrays with a single axis.
_OF_ONE_AXIS = ("sliced", "within", "reversed", "expanded")
#: Several batch entries, of one query and of several, and more keys than a tile of 64.
_BATCHES = (Shape((5, 2), 1, 70, 4, 4), Shape((3, 2), 4, 70, 4, 4))


@chapter.group(
    "NUM-8",
    each=tuple(
        (layout, option)
        for layout, option in product(LAYOUTS, _OF_OPTIONS)
        if layout in _OF_ONE_AXIS
        or option in ("mask", "bias", "dropout")
        or (option == "segments" and layout != "repeated")
    ),
)
def strides_of_options(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """The result does not depend on the strides of offsets, lengths, ids, sinks, masks and biases."""
    layout, option = which
    for problem in in_two_dtypes(replace(draw, group=f"strides of options: {option}"), _BATCHES):
        options = _given(problem, option)
        names = _OF_OPTIONS[option]
        options |= {name: _fitting(options[name], layout) for name in names}
        yield Call(
            problem.arguments | options,
            ("NUM-8", OPTIONS[option].rule),
            outputs=("output", "lse"),
            layout=dict.fromkeys(names, layout),
        )


def _given(problem: Problem, option: str) -> Options:
    """Draw an option, with arrays of full shape and an integer for each batch entry."""
    if option == "dropout":
        return {"dropout_mask": problem.random.random(problem.shape) < 0.7}
    if option == "bias":
        return {"bias": biased(problem, amplitude=0.5)}
    if option not in ("query_offset", "query_lengths", "key_lengths"):
        return draw_option(problem, option)[1]
    low, high = (0, max(1, problem.shape[-2] - 1)) if option == "query_lengths" else (20, 60)
    causal = {"is_causal": True} if option == "query_offset" else {}
    return {option: problem.random.integers(low, high + 1, problem.batch)} | causal


def _fitting(array: NDArray[Any], layout: str) -> NDArray[Any]:
    """Make all heads equal, or all parts along the first axis, if a layout repeats them."""
    if layout == "repeated":
        return np.array(np.broadcast_to(array[..., :1, :, :], array.shape))
    return np.array(np.broadcast_to(array[:1], array.shape)) if layout == "expanded" else array
