"""The chapter `sharding`: gradients of queries, keys and heads that are spread over ranks."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import FORMS, sinks
from attnspec.conformance.suite.orders import ORDERS, Mesh, split, split_in_order
from attnspec.conformance.suite.problem import Problem, Shape

chapter = Chapter("sharding")

Options = dict[str, Any]
_OPERATION = "sharded_attention_vjp"
_WHOLE = Shape((2, 4), 8, 8, 4, 4, groups=2)
_LATE = Shape((3,), 4, 7, 3, 2, groups=3)
_RANKS = (2, 3, 4, 8)


def _cotangents(problem: Problem, *, lse: bool = False) -> Options:
    """Draw the cotangents of a call."""
    rows = problem.shape[:-1]
    own = {"d_output": problem.array(*rows, problem.value.shape[-1])}
    wide = lse_dtype(problem.query.dtype.name)
    return own | ({"d_lse": problem.array(*rows).astype(wide)} if lse else {})


def _draw(draw: Draw, meshes: list[Mesh]) -> Iterator[tuple[Problem, Mesh]]:
    """Draw two problems in two dtypes each, and one in float64."""
    for number, problem in enumerate(draw.problems((_WHOLE, _LATE))):
        yield problem, meshes[number // 2 % len(meshes)]
    yield draw.problem(_WHOLE, "float64", 2), meshes[-1]


@chapter.group("SHARD-10", operation=_OPERATION, each=(1, *_RANKS))
def gradients_over_ranks(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """Each rank has contributions to the keys of every other one."""
    for number, (problem, mesh) in enumerate(_draw(draw, [Mesh(ranks)])):
        yield split(problem, mesh) | _cotangents(problem, lse=number % 2 == 1)


@chapter.group("SHARD-10", operation=_OPERATION, each=tuple(ORDERS))
def gradients_in_order(draw: Draw, order: str) -> Iterator[Yielded]:
    """Causality and windows leave steps out, others for each rank."""
    for number, (problem, mesh) in enumerate(_draw(draw, [Mesh(ranks, order) for ranks in (4, 2, 3)])):
        own: Options = {"is_causal": True} if number % 2 else {"window": (3, 1)}
        call = split_in_order(problem, mesh) | own | _cotangents(problem, lse=number % 2 == 0)
        yield Call(call, ("SHARD-10", "MASK-14"))


_UNEVEN: Mapping[str, tuple[Mesh, ...]] = {
    "uneven": (Mesh(2, queries=(0, 7, 8), keys=(0, 1, 8)), Mesh(2, queries=(0, 1, 4), keys=(0, 6, 7))),
    "empty": (
        Mesh(3, queries=(0, 3, 3, 8), keys=(0, 0, 5, 8)),
        Mesh(3, queries=(0, 4, 4, 4), keys=(0, 0, 0, 7)),
    ),
}


@chapter.group("SHARD-10", "SHARD-3", operation=_OPERATION, each=tuple(_UNEVEN))
def gradients_of_shards(draw: Draw, sizes: str) -> Iterator[Yielded]:
    """Shards have few or no queries and keys."""
    meshes = _UNEVEN[sizes]
    for number, problem in enumerate(draw.problems((_WHOLE, _LATE))):
        yield split(problem, meshes[number // 2]) | _cotangents(problem, lse=number % 2 == 0)


_OPTIONS = tuple(name for name in FORMS if name not in ("nothing", "mask of batch entries"))


@chapter.group("SHARD-10", operation=_OPERATION, each=_OPTIONS)
def gradients_with(draw: Draw, name: str) -> Iterator[Yielded]:
    """Each option of attention; the gradients of a bias and of sinks collect from all ranks."""
    option = FORMS[name]
    meshes = [Mesh(_RANKS[len(name) % 4]), Mesh(_RANKS[(len(name) + 1) % 4]), Mesh(3)]
    for number, (problem, mesh) in enumerate(_draw(draw, meshes)):
        own = option.needs(problem) | option.draw(problem) | _cotangents(problem, lse=number % 2 == 1)
        yield Call(split(problem, mesh) | own, ("SHARD-10", "STACK-2", option.rule))


@chapter.group("SHARD-10", operation=_OPERATION, each=("keys", "heads and keys", "heads"))
def gradients_of_a_bias_of(draw: Draw, axes: str) -> Iterator[Yielded]:
    """Rows of several ranks share elements of the bias, whose gradient is the sum."""
    for problem, mesh in _draw(draw, [Mesh(4), Mesh(2, "zigzag"), Mesh(2, heads=(0, 2, 4))]):
        heads, _, keys = problem.shape[-3:]
        shape = {"keys": (keys,), "heads and keys": (heads, 1, keys), "heads": (heads, 1, 1)}[axes]
        own = {"bias": problem.array(*shape, amplitude=0.5), "is_causal": True} | _cotangents(problem)
        yield Call(split(problem, mesh) | own, ("SHARD-10", "GRAD-4", "SCORE-4", "MASK-3"))


#: Heads, heads to a key head, boundaries.
_HEADS: Mapping[str, tuple[int, int, tuple[int, ...]]] = {
    "whole groups": (4, 2, (0, 2, 4)),
    "parts of a group": (6, 3, (0, 1, 3, 6)),
    "one key head": (4, 4, (0, 1, 2, 3, 4)),
}


@chapter.group("SHARD-10", "SHARD-8", operation=_OPERATION, each=tuple(_HEADS))
def gradients_of_heads(draw: Draw, parts: str) -> Iterator[Yielded]:
    """A key head on several ranks collects from all of them."""
    heads, group, cuts = _HEADS[parts]
    shape = Shape((2, heads), 4, 6, 3, 2, groups=group)
    for number, problem in enumerate(draw.problems((shape, shape))):
        mesh = Mesh(1 + number // 2, heads=cuts)
        own = sinks(problem) | _cotangents(problem, lse=True)
        yield Call(split(problem, mesh) | own, ("SHARD-10", "SHARD-8", "GRAD-7", "SOFT-5"))
    yield split(draw.problem(shape, "float64", 2), Mesh(2, heads=cuts)) | _cotangents(
        draw.problem(shape, "float64", 2)
    )


@chapter.group("SHARD-10", "GRAD-3", operation=_OPERATION, each=_RANKS)
def gradients_of_heads_not_split(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """Each rank has all heads, which an exchange may divide unequally: groups may lie on two ranks."""
    for heads, group in ((6, 2), (3, 1)):
        for problem in draw.problems((Shape((heads,), 4, 9, 3, 2, groups=group),)):
            yield Call(split(problem, Mesh(ranks)) | _cotangents(problem), ("SHARD-10", "GRAD-3"))


@chapter.group("SHARD-10", "GRAD-24", operation=_OPERATION, each=("contiguous", "zigzag"))
def gradients_of_the_scale(draw: Draw, order: str) -> Iterator[Yielded]:
    """What the ranks return for the scale adds up."""
    for problem, mesh in _draw(draw, [Mesh(2, order), Mesh(4, order)]):
        own = {"scale": 0.5, "return_d_scale": True, "is_causal": True} | _cotangents(problem)
        yield Call(split_in_order(problem, mesh) | own, ("SHARD-10", "GRAD-24", "SCORE-3", "MASK-14"))


@chapter.group("SHARD-10", "SHARD-4", operation=_OPERATION)
def gradients_without_an_allowed_key(draw: Draw) -> Iterator[Yielded]:
    """Some rows have keys in one shard only, and some in none; unread keys have a gradient of 0."""
    for number, (problem, mesh) in enumerate(_draw(draw, [Mesh(4), Mesh(3)])):
        queries, keys = problem.shape[-2:]
        mask = (np.arange(keys) // 2) == (np.arange(queries) % 4)[:, None]
        mask[-1] = False
        own = {"mask": mask} | (sinks(problem) if number % 2 else {}) | _cotangents(problem, lse=True)
        rules = ("SHARD-10", "SHARD-4", "MASK-1", *(("GRAD-7", "SOFT-5") if number % 2 else ()))
        yield Call(split(problem, mesh) | own, rules)
