"""The chapter `positions`: rotary embedding, ALiBi."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Shape, grid

chapter = Chapter("positions")

_FEATURES = (2, 3, 5, 8)
_BASES = (10000.0, 2.0, 100.0)
_OFFSETS: dict[str, Any] = {"two": 2, "minus one": -1, "each its own": np.array([3, 0])}


@chapter.group("POS-2", "POS-1", "POS-3", "POS-4", operation="rotary", each=("half-split", "interleaved"))
def both_layouts(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Pairs are half the rotary depth apart or neighbours, and features past it stay as they are."""
    rule = "POS-3" if layout == "interleaved" else "POS-2"
    for index, (random, dtype) in enumerate(draw.generators()):
        for rotary_depth in (None, 2, 6, 8):
            features = grid(random, _FEATURES, 1.0).astype(dtype)
            arguments: dict[str, Any] = {"features": features, "base": _BASES[index // 2 % len(_BASES)]}
            if layout == "interleaved":
                arguments["interleaved"] = True
            if rotary_depth is not None:
                arguments["rotary_depth"] = rotary_depth
            yield Call(arguments, ("POS-4", rule, "POS-1") if rotary_depth in (2, 6) else (rule, "POS-1"))


@chapter.group("POS-5", "NUM-5", operation="rotary")
def offset_of_the_first_row(draw: Draw) -> Iterator[Yielded]:
    """The offset is one for all or one for each batch entry, far along or before the beginning."""
    for index, (random, dtype) in enumerate(draw.generators(12)):
        features = grid(random, _FEATURES, 1.0).astype(dtype)
        low, high = ((-3, 4), (100, 1000))[index // 2 % 2]
        offset = random.integers(low, high, 2) if random.random() < 0.5 else int(random.integers(low, high))
        yield {"features": features, "offset": offset}


@chapter.group("POS-5", operation="rotary")
def part_turned_as_in_the_whole(draw: Draw) -> Iterator[Yielded]:
    """The rows from n on, with the offset n, are those of all rows."""
    for index, (random, dtype) in enumerate(draw.generators()):
        features = grid(random, _FEATURES, 1.0).astype(dtype)
        n = 1 + index // 2 % 4
        yield {"features": features[..., n:, :], "offset": n}


@chapter.group("POS-7", "POS-8", operation="alibi_bias", each=(1, 2, 3, 6, 8, 12, 16))
def alibi(draw: Draw, heads: int) -> Iterator[Yielded]:
    """Slopes are those of heads in powers of two and in other numbers, for keys after the query too."""
    for problem in draw.in_each_dtype(Shape((heads,), 3, 4, 2, 2)):
        yield {"query": problem.query, "key": problem.key}


@chapter.group("POS-8", operation="alibi_bias", each=tuple(_OFFSETS))
def alibi_with_an_offset(draw: Draw, offset: str) -> Iterator[Yielded]:
    """Distances are counted from the queries' positions, also where there are fewer key heads."""
    for problem in draw.in_each_dtype(Shape((2, 6), 3, 5, 2, 2, groups=3)):
        yield {"query": problem.query, "key": problem.key, "query_offset": _OFFSETS[offset]}
