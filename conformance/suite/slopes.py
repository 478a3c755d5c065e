"""The chapter `scores`: biases that fall with the distance of query and key, as ALiBi has them.

These are the only biases of a function that takes slopes in place of one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from attnspec import Case
from attnspec.backends import Backend
from attnspec.backends.user.slopes import linear_bias
from attnspec.case import Misuse
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.drawn_stacks import Sizes, draw_call
from attnspec.conformance.suite.errors import judge_each
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import positions
from attnspec.conformance.suite.problem import Shape
from attnspec.conformance.suite.words import draw_in_turn, in_two_dtypes
from attnspec.operations.stacks import FORMS, STACKS

chapter = Chapter("scores")

Arguments = dict[str, Any]
#: What a call has beside the bias, and whether the last query is at the last key.
_BESIDE: Mapping[str, tuple[Arguments, bool]] = {
    "nothing": ({}, False),
    "causality": ({"is_causal": True}, False),
    "a window": ({"window": (2, 1)}, False),
    "a softcap and a scale": ({"softcap": 1.5, "scale": -2.0}, False),
    "the last query at the last key": ({}, True),
    "a causal offset": ({"is_causal": True}, True),
    "causality at the end": ({"is_causal": True}, True),
}
_FORMS = ("packed_attention", "paged_attention", "packed_paged_attention")
_SIZES = (Sizes(heads=(4, 2)), Sizes(queries=(1, 3, 2), keys=(1, 17, 9), page=4, heads=(6, 2)))


def _biased(call: Arguments, *, from_end: bool = False) -> Arguments:
    return call | {"bias": linear_bias(call, from_end=from_end)}


@chapter.group("SCORE-4", each=tuple(_BESIDE))
def linear_bias_beside(draw: Draw, beside: str) -> Iterator[Yielded]:
    """The bias falls with the distance, with a slope for each query head, for keys after the query too."""
    options, ends = _BESIDE[beside]
    shapes = (Shape((2, 6), 5, 5, 4, 3, groups=3), Shape((4,), 3, 7, 4, 4), Shape((2, 2), 1, 6, 2, 2))
    for problem in draw.problems(shapes, 2):
        own = options if beside != "a causal offset" else options | {"query_offset": _late(problem.shape)}
        yield _biased(problem.arguments | own, from_end=ends)


def _late(shape: tuple[int, ...]) -> int:
    return shape[-1] - shape[-2]


@chapter.group("SCORE-4", "MASK-14")
def linear_bias_at_positions(draw: Draw) -> Iterator[Yielded]:
    """The distance is that of positions in any order."""
    for problem in draw.problems((Shape((2, 4), 4, 6, 4, 4, groups=2),), 2):
        yield _biased(problem.arguments | positions(problem))


@chapter.group("SCORE-4", each=("causality", "a window", "a causal offset"))
def linear_bias_across_tiles(draw: Draw, beside: str) -> Iterator[Yielded]:
    """Distances count on from tile to tile."""
    options, ends = _BESIDE[beside]
    for problem in in_two_dtypes(draw, (Shape((2,), 65, 65, 8, 3), Shape((4,), 17, 130, 8, 3, groups=2))):
        own = {"query_offset": _late(problem.shape)} if ends else {}
        call = _biased(problem.arguments | options | own)
        yield Call(call, ("SCORE-4",), outputs=("output", "lse"))


@chapter.group("SCORE-4", each=("attention", *_FORMS), step=1)
def distances_that_half_precision_rounds(draw: Draw, operation: str) -> Iterator[Yielded]:
    """The distances that slopes multiply have all their digits in half precision."""
    for (dtype, keys), end in product((("bfloat16", 301), ("float16", 2070)), (True, False)):
        sizes = Sizes(queries=(1 if end else 2, 1), keys=(keys, 7), page=64, heads=(2, 2))
        call = _problem(draw, operation, dtype, sizes)
        wide = call | {"query": call["query"].astype("float32")}
        own: Arguments = {"bias": linear_bias(wide, from_end=end)}
        own |= {"is_causal": True} if end and operation == "attention" else {}
        bias = Misuse("bias", allowed=True)  # of another dtype than the query, for those that take a bias
        given = Call(call | own, operation=operation, misuse=bias, outputs=("output",))
        yield Calls((given,), _judge_with_slopes)


def _judge_with_slopes(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Judge a call whose bias is of float32 beside half precision, by slopes of float32 alone."""
    if not backend.constraints.slopes:
        raise Missing(f"{backend.name} takes no slopes in place of a bias")
    return judge_each(backend, calls)


def _problem(draw: Draw, operation: str, dtype: str, sizes: Sizes) -> Arguments:
    """Draw a call of attention, or of a form of it."""
    if operation == "attention":
        return draw.problem(Shape((2,), sizes.queries[0], sizes.keys[0], 4, 3), dtype).arguments
    random = np.random.default_rng(draw.number())
    return draw_call(random, dtype, {**FORMS, **STACKS}[operation].layers, sizes)


@chapter.group("SCORE-4", "STACK-2", each=tuple(_BESIDE)[:-2])
def linear_bias_in_a_form(draw: Draw, beside: str) -> Iterator[Yielded]:
    """The distance is that of places in a sequence, in packed rows, in pages and in both."""
    options, ends = _BESIDE[beside]
    for name in _FORMS:
        for random, dtype, sizes in draw_in_turn(draw, *_SIZES):
            call = draw_call(random, dtype, {**FORMS, **STACKS}[name].layers, sizes)
            yield Call(_biased(call | options, from_end=ends), ("SCORE-4", "STACK-2"), operation=name)


@chapter.group("SCORE-4", "STACK-2", each=_FORMS)
def linear_bias_of_many_keys_in_a_form(draw: Draw, operation: str) -> Iterator[Yielded]:
    """Distances count on from page to page and from split to split of a sequence."""
    many = Sizes(queries=(1, 1), keys=(260, 7), page=20, heads=(2, 1), depths=(2, 2))
    for random, dtype, sizes in draw_in_turn(draw, many, replace(many, queries=(3, 1))):
        call = draw_call(random, dtype, {**FORMS, **STACKS}[operation].layers, sizes)
        yield Call(_biased(call, from_end=True), ("SCORE-4", "STACK-2"), operation=operation)
