"""Orders in which shards store the positions of a sequence, for the chapter `sharding`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.group import Draw
from attnspec.conformance.suite.problem import Problem, Shape

Options = dict[str, Any]
Integers = NDArray[np.int64]


def contiguous(count: int, ranks: int) -> list[Integers]:
    """Give each rank the positions after those of the rank before it.

    Examples
    --------
    >>> [part.tolist() for part in contiguous(5, 2)]
    [[0, 1, 2], [3, 4]]
    """
    return [np.asarray(part) for part in np.array_split(np.arange(count), ranks)]


def striped(count: int, ranks: int) -> list[Integers]:
    """Give each rank every position whose remainder is its number.

    Examples
    --------
    >>> [part.tolist() for part in striped(5, 2)]
    [[0, 2, 4], [1, 3]]
    """
    return [np.arange(rank, count, ranks) for rank in range(ranks)]


def zigzag(count: int, ranks: int) -> list[Integers]:
    """Give each rank a chunk counted from the beginning and one counted from the end.

    Examples
    --------
    >>> [part.tolist() for part in zigzag(8, 2)]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    """
    chunks = contiguous(count, 2 * ranks)
    return [np.concatenate([chunks[rank], chunks[-1 - rank]]) for rank in range(ranks)]


def dual_chunk(count: int, ranks: int) -> list[Integers]:
    """Give each rank the chunks of a zigzag, the later one first."""
    chunks = contiguous(count, 2 * ranks)
    return [np.concatenate([chunks[-1 - rank], chunks[rank]]) for rank in range(ranks)]


def backwards(count: int, ranks: int) -> list[Integers]:
    """Give the first rank the last positions, and each rank its positions in descending order."""
    return [part[::-1] for part in contiguous(count, ranks)[::-1]]


ORDERS = MappingProxyType(
    {
        "contiguous": contiguous,
        "zigzag": zigzag,
        "dual chunk": dual_chunk,
        "striped": striped,
        "backwards": backwards,
    }
)


@dataclass(frozen=True)
class Mesh:
    """How a call is split: the number of shards, their order, their sizes if uneven, and parts of heads."""

    shards: int
    order: str = "contiguous"
    queries: tuple[int, ...] = ()  # boundaries of the queries; by default as equal as possible
    keys: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()  # boundaries of the heads; empty for one part


def starts(parts: Sequence[Integers]) -> Integers:
    """Return the boundaries of shards of some sizes."""
    return np.cumsum([0, *map(len, parts)])


def boundaries(mesh: Mesh, queries: int, keys: int) -> Options:
    """Return the boundaries of the shards of a call."""
    make = ORDERS[mesh.order]
    own: Options = {
        "query_shards": np.array(mesh.queries or starts(make(queries, mesh.shards))),
        "key_shards": np.array(mesh.keys or starts(make(keys, mesh.shards))),
    }
    return own | ({"head_shards": np.array(mesh.heads)} if mesh.heads else {})


def positions(mesh: Mesh, problem: Problem, first: int = 0) -> Options:
    """Return the positions of a call in storage order, where the last query stands at the last key."""
    queries, keys = problem.shape[-2:]
    make = ORDERS[mesh.order]
    standing = np.concatenate(make(queries, mesh.shards)) + keys - queries + first
    places = np.concatenate(make(keys, mesh.shards)) + first
    names: Mapping[str, Integers] = {"query_positions": standing, "key_positions": places}
    return {name: np.broadcast_to(x, (*problem.batch, len(x))).copy() for name, x in names.items()}


def split(problem: Problem, mesh: Mesh) -> Options:
    """Return the arrays of a problem, and the boundaries of its shards."""
    return problem.arguments | boundaries(mesh, *problem.shape[-2:])


def split_in_order(problem: Problem, mesh: Mesh, first: int = 0) -> Options:
    """Return the arrays of a problem, the boundaries of its shards, and their positions."""
    return split(problem, mesh) | positions(mesh, problem, first)


def in_turn(draw: Draw, shapes: Sequence[Shape], meshes: Sequence[Mesh]) -> Iterator[tuple[Problem, Mesh]]:
    """Draw a problem of each shape in two dtypes, with the meshes in turn. The last is drawn in float64."""
    for number, problem in enumerate(draw.problems(tuple(shapes))):
        yield problem, meshes[number // 2 % len(meshes)]
    last = len(shapes)
    yield draw.problem(shapes[0], "float64", last), meshes[last % len(meshes)]
