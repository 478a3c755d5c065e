"""The chapter `sharding`: heads that are spread over ranks, and heads that are not."""

from collections.abc import Iterator, Mapping
from typing import Any

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import FORMS, sinks
from attnspec.conformance.suite.orders import Mesh, in_turn, split
from attnspec.conformance.suite.problem import Shape
from attnspec.conformance.suite.sharding import RANKS

chapter = Chapter("sharding")

Options = dict[str, Any]
_OPERATION = "sharded_attention"
_WHOLE = Shape((2, 4), 8, 8, 4, 4, groups=2)
#: Numbers of query heads, of heads to a key head, and boundaries of the parts.
_HEADS: Mapping[str, tuple[int, int, tuple[tuple[int, ...], ...]]] = {
    "as many key heads": (4, 1, ((0, 1, 2, 3, 4), (0, 2, 4), (0, 3, 4))),
    "whole groups": (6, 2, ((0, 2, 6), (0, 4, 6), (0, 2, 4, 6))),
    "parts of a group": (6, 3, ((0, 1, 3, 6), (0, 3, 4, 6), (0, 1, 2, 3, 4, 5, 6))),
    "one key head": (5, 5, ((0, 2, 5), (0, 1, 2, 3, 4, 5), (0, 4, 5))),
    "parts without heads": (4, 2, ((0, 0, 2, 4), (0, 2, 2, 4), (0, 4, 4))),
}


@chapter.group("SHARD-8", "HEAD-1", operation=_OPERATION, each=tuple(_HEADS))
def heads_over_ranks(draw: Draw, parts: str) -> Iterator[Yielded]:
    """Heads alone are split, as all-to-all does, and heads beside queries and keys."""
    heads, group, cuts = _HEADS[parts]
    shape = Shape((2, heads), 5, 6, 3, 2, groups=group)
    meshes = [Mesh(1, heads=cuts[0]), Mesh(2, heads=cuts[1]), Mesh(2, "zigzag", heads=cuts[2])]
    for number, (problem, mesh) in enumerate(in_turn(draw, (shape,) * 3, meshes)):
        own: Options = ({"is_causal": True}, {}, sinks(problem))[number % 3]
        rules = ("MASK-3", "", "SOFT-5")[number % 3]
        yield Call(split(problem, mesh) | own, ("SHARD-8", "HEAD-1", *filter(None, [rules])))


@chapter.group("SHARD-1", "HEAD-1", operation=_OPERATION, each=RANKS[1:])
def heads_that_are_not_split(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """Each rank has all heads, which an exchange may divide unequally: groups may lie on two ranks."""
    for number, (heads, group) in enumerate(((6, 2), (3, 1), (12, 4), (8, 2))):
        shape = Shape((heads,), 5, 9, 3, 2, groups=group)
        for problem, mesh in in_turn(draw, (shape,), [Mesh(ranks)]):
            own: Options = {"is_causal": True} if number % 2 else {}
            yield Call(split(problem, mesh) | own, ("SHARD-1", "HEAD-1", *(["MASK-3"] if own else [])))


@chapter.group(
    "SHARD-8", operation=_OPERATION, each=("mask of heads", "bias of heads", "segments", "dropout")
)
def what_heads_have(draw: Draw, name: str) -> Iterator[Yielded]:
    """Arrays with an axis of heads are split with them."""
    cuts = (0, 2, 3, 4)
    for problem, mesh in in_turn(draw, (_WHOLE,), [Mesh(1, heads=cuts), Mesh(2, heads=cuts)]):
        yield Call(split(problem, mesh) | FORMS[name].draw(problem), ("SHARD-8", FORMS[name].rule))
