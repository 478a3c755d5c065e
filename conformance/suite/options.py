"""The options of attention: all values that the suite, the sizes, the gallery and the tools draw for them.

Each table has one purpose, and names what is drawn:

- `OPTIONS`: each option with a value that matters in a small problem.
- `FORMS`, `PER_ENTRY`, `EMPTY_ROWS`: each form of an option, in problems of every size.
- `OVER_TILES`, `OF_SCORES`: options that matter in each of four tiles of 128 keys.
- `formula_option`: options of a problem by formula, which the sizes need.
- `normal_option`: options beside normally distributed numbers, which the evidence of the budgets needs.

`attnspec.conformance.suite.edges` draws options that matter at the edges of tiles.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.problem import Problem

Array = NDArray[Any]
Options = dict[str, Any]
Maker = Callable[[Problem], Options]


@dataclass(frozen=True)
class Option:
    """One option of a call: its rule, and its arguments by canonical name.

    `needs` draws other arguments without which it has no effect.
    """

    rule: str
    draw: Maker
    needs: Maker = lambda _: {}


# Options of small problems.


def draw_bias(problem: Problem, *shape: int, amplitude: float = 0.5) -> Array:
    """Draw a bias of some shape, by default of the scores' shape."""
    return problem.array(*shape or problem.shape, amplitude=amplitude)


def hidden(problem: Problem, allowed: Array, bias: Array) -> Array:
    """Put minus infinity into a bias where keys are not allowed."""
    return np.where(allowed, bias, -np.inf).astype(problem.query.dtype)


def biased(problem: Problem, *, amplitude: float = 2.0) -> Array:
    """Draw a bias of the scores' shape with some minus infinity, but not for the first key."""
    bias = draw_bias(problem, amplitude=amplitude)
    return hidden(problem, problem.mask(), bias)


def window(problem: Problem) -> Options:
    """Draw a window with bounds near 0 and near the number of keys."""
    keys = problem.shape[-1]
    bounds = (None, 0, 1, 2, keys, keys + 1)
    return {"window": (problem.choice(*bounds), problem.choice(*bounds))}


def narrow_window(problem: Problem) -> Options:
    """Draw a window that is narrower than the keys."""
    return {"window": problem.choice((1, 0), (0, 1), (1, 1), (2, 0), (1, None), (None, 0))}


def offset(problem: Problem) -> Options:
    """Draw a query offset, which may be negative."""
    queries, keys = problem.shape[-2:]
    return {"query_offset": problem.integers(min(-1, keys - queries), max(2, keys - queries))}


def segments(problem: Problem) -> Options:
    """Draw segment ids that are neither sorted nor contiguous and include 0 and negative numbers."""
    ids = np.array([-1, 0, 7, 2**31 - 1], dtype=problem.choice(np.int32, np.int64))
    queries, keys = problem.shape[-2:]
    return {
        "query_segment_ids": problem.random.choice(ids[:3], (*problem.batch, queries)),
        "key_segment_ids": problem.random.choice(ids, (*problem.batch, keys)),
    }


def positions(problem: Problem) -> Options:
    """Draw positions in any order: some keys share one, and the last place of an entry may hold no key."""
    queries, keys = problem.shape[-2:]
    dtype = problem.choice(np.int32, np.int64)
    places = problem.random.permuted(np.tile(np.arange(keys), (*problem.batch, 1)), axis=-1)
    places[..., 0] = 0  # so that few rows are empty
    if keys > 2:
        places[..., -1] = np.where(problem.random.random(problem.batch) < 0.5, -1, places[..., 1])
    standing = problem.random.integers(0, keys, (*problem.batch, queries))
    return {"query_positions": standing.astype(dtype), "key_positions": places.astype(dtype)}


def sinks(problem: Problem) -> Options:
    """Draw a sink for each query head, large enough to matter."""
    heads = problem.shape[-3] if len(problem.shape) > 2 else 1
    return {"sinks": problem.array(heads, amplitude=2.0)}


def dropout(problem: Problem) -> Options:
    """Draw the kept weights, and a rate that is independent of their number."""
    kept = problem.random.random(problem.shape) < 0.7
    return {"dropout_mask": problem.broadcastable(kept), "dropout_rate": problem.choice(0.25, 0.3, 0.5)}


def _lengths(name: str, axis: int) -> Maker:
    return lambda problem: {name: problem.integers(1, problem.shape[axis] - 1)}


#: The options by their names in the suite. Two options together have the rule MASK-4 if both mask.
OPTIONS: Mapping[str, Option] = {
    "scale": Option("SCORE-3", lambda problem: {"scale": problem.choice(0.0, 1.5, -1.0)}),
    "softcap": Option("SCORE-5", lambda problem: {"softcap": problem.choice(0.25, 0.5)}),
    "bias": Option("SCORE-4", lambda problem: {"bias": biased(problem)}),
    "mask": Option("MASK-1", lambda problem: {"mask": problem.mask()}),
    "is_causal": Option("MASK-3", lambda _: {"is_causal": True}),
    "query_offset": Option("MASK-7", offset, lambda _: {"is_causal": True}),
    "window": Option("MASK-8", narrow_window),
    "query_lengths": Option("MASK-10", _lengths("query_lengths", -2)),
    "key_lengths": Option("MASK-9", _lengths("key_lengths", -1)),
    "segments": Option("MASK-11", segments),
    "sinks": Option("SOFT-5", sinks),
    "dropout": Option("DROP-1", dropout),
    "dropout_rate": Option("DROP-2", lambda _: {"dropout_rate": 0.5}, dropout),
    "positions": Option("MASK-14", positions, lambda _: {"is_causal": True}),
}


def draw_option(problem: Problem, name: str) -> tuple[Options, Options]:
    """Draw an option of a problem: the other arguments that it needs, and its own arguments."""
    option = OPTIONS[name]
    return option.needs(problem), option.draw(problem)


# Forms of options in problems of every size.


def _scale(problem: Problem) -> float:
    """Return about one and a half times the default, a number that every dtype holds."""
    return float(np.ceil(96 / np.sqrt(problem.query.shape[-1])) / 64)


def _late_offset(problem: Problem, size: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """Draw offsets that leave the last keys to no query."""
    queries, keys = problem.shape[-2:]
    low = max(1, (keys - queries) // 2)
    return problem.random.integers(low, max(low + 1, keys - queries), size)


def _key_lengths(problem: Problem, size: tuple[int, ...] = ()) -> NDArray[np.int64]:
    keys = problem.shape[-1]
    return problem.random.integers(keys // 2, keys, size)


def _query_lengths(problem: Problem, size: tuple[int, ...] = ()) -> NDArray[np.int64]:
    """Draw lengths. The length of a single query is 0 for every second entry."""
    queries = problem.shape[-2]
    if queries > 1:
        return problem.random.integers(queries // 2, queries, size)
    return (np.arange(int(np.prod(size))) % 2).reshape(size)


def _masked(problem: Problem, *shape: int) -> Options:
    """Draw a mask of some shape with at least one allowed place."""
    mask = problem.random.random(shape) < 0.6
    mask.flat[-1] = True
    return {"mask": mask}


def _minus_infinity(problem: Problem) -> Options:
    mask = problem.mask()
    return {"bias": hidden(problem, mask, draw_bias(problem))}


def _wide_window(problem: Problem) -> Options:
    keys = problem.shape[-1]
    left, right = (int(problem.random.integers(keys // 4, keys // 2)) for _ in range(2))
    return {"window": (left, right)}


def _late_window(problem: Problem) -> Options:
    """Draw a window of the last queries that leaves out the first keys and the last one."""
    queries, keys = problem.shape[-2:]
    left = int(problem.random.integers(keys // 3, keys // 2))
    return {"window": (left, 0), "query_offset": max(0, keys - queries - 1)}


def full_dropout(problem: Problem, **rate: float) -> Options:
    """Draw the kept weights, in an array of the scores' shape."""
    return {"dropout_mask": problem.random.random(problem.shape) < 0.7} | rate


#: The forms of each option.
FORMS: Mapping[str, Option] = {
    "nothing": Option("SOFT-3", lambda _: {}),
    "scale": Option("SCORE-3", lambda p: {"scale": _scale(p)}),
    "negative scale": Option("SCORE-3", lambda p: {"scale": -_scale(p)}),
    "softcap": Option("SCORE-5", lambda _: {"softcap": 0.25}),
    "bias": Option("SCORE-4", lambda p: {"bias": draw_bias(p)}),
    "bias of heads": Option("SCORE-4", lambda p: {"bias": draw_bias(p, p.shape[-3], 1, p.shape[-1])}),
    "bias of minus infinity": Option("MASK-2", _minus_infinity),
    "mask": Option("MASK-1", lambda p: _masked(p, *p.shape)),
    "mask of heads": Option("MASK-1", lambda p: _masked(p, p.shape[-3], 1, p.shape[-1])),
    "mask of batch entries": Option("MASK-1", lambda p: _masked(p, *p.batch, 1, *p.shape[-2:])),
    "mask of queries": Option("MASK-1", lambda p: _masked(p, *p.shape[:-1], 1)),
    "mask of keys": Option("MASK-1", lambda p: _masked(p, p.shape[-1])),
    "is_causal": OPTIONS["is_causal"],
    "query_offset": Option("MASK-7", lambda p: {"is_causal": True, "query_offset": int(_late_offset(p))}),
    "window": Option("MASK-8", _wide_window),
    "window and offset": Option("MASK-8", _late_window),
    "query_lengths": Option("MASK-10", lambda p: {"query_lengths": int(_query_lengths(p))}),
    "key_lengths": Option("MASK-9", lambda p: {"key_lengths": int(_key_lengths(p))}),
    "segments": OPTIONS["segments"],
    "sinks": OPTIONS["sinks"],
    "dropout": Option("DROP-1", full_dropout),
    "dropout_rate": Option("DROP-2", lambda p: full_dropout(p, dropout_rate=0.25)),
    "positions": Option("MASK-14", lambda p: positions(p) | {"is_causal": True}),
}
#: The options that mask.
MASKS = (
    *("mask", "bias", "is_causal", "query_offset", "window"),
    *("query_lengths", "key_lengths", "segments", "positions"),
)
#: Options that exclude each other.
EXCLUSIVE = frozenset({("query_offset", "positions")})
#: Pairs of options that are not drawn as a pair: the second comes with the first, or excludes it.
NO_PAIRS = EXCLUSIVE | {("is_causal", "query_offset"), ("is_causal", "positions")}
#: Integers of each batch entry.
PER_ENTRY: Mapping[str, Option] = {
    "query_offset": Option("MASK-7", lambda p: {"is_causal": True, "query_offset": _late_offset(p, p.batch)}),
    "query_lengths": Option("MASK-10", lambda p: {"query_lengths": _query_lengths(p, p.batch)}),
    "key_lengths": Option("MASK-9", lambda p: {"key_lengths": _key_lengths(p, p.batch)}),
}


def _empty_last_rows(problem: Problem) -> NDArray[np.bool_]:
    """Draw a mask that leaves nothing to the last query of every second head."""
    mask = problem.mask()
    mask[..., ::2, -1, :] = False
    return mask


def _no_keys(problem: Problem) -> NDArray[np.int64]:
    """Draw key lengths that are 0 for the first batch entry and every second one after it."""
    entry = np.arange(prod(problem.batch))
    return np.where(entry % 2, problem.shape[-1] // 2, 0).reshape(problem.batch)


#: Arguments that leave queries without a key.
EMPTY_ROWS: Mapping[str, Maker] = {
    "mask": lambda p: {"mask": _empty_last_rows(p)},
    "bias": lambda p: {"bias": hidden(p, _empty_last_rows(p), draw_bias(p))},
    "key_lengths": lambda p: {"key_lengths": _no_keys(p)},
    "query_offset": lambda p: {"is_causal": True, "query_offset": -((p.shape[-2] + 1) // 2)},
}

# Options that matter in each of four tiles of 128 keys.


def _outer_tiles(problem: Problem) -> NDArray[np.bool_]:
    """Allow the keys outside the second and the third tile."""
    place = np.arange(problem.shape[-1])
    return (place < 128) | (place >= 384)


def segment_of_keys(problem: Problem, allowed: NDArray[np.bool_]) -> Options:
    """Put all queries and some keys into one segment, and the other keys into another one."""
    queries, keys = problem.shape[-2:]
    return {
        "query_segment_ids": np.zeros((*problem.batch, queries), np.int64),
        "key_segment_ids": np.broadcast_to((~allowed).astype(np.int64), (*problem.batch, keys)).copy(),
    }


#: Options by what they do to the tiles.
OVER_TILES: Mapping[str, Option] = {
    "nothing": FORMS["nothing"],
    "mask without the middle": Option("MASK-1", lambda p: {"mask": _outer_tiles(p)}),
    "bias without the middle": Option("MASK-2", lambda p: {"bias": hidden(p, _outer_tiles(p), draw_bias(p))}),
    "segments that come back": Option("MASK-11", lambda p: segment_of_keys(p, _outer_tiles(p))),
    "mask of heads": Option(
        "MASK-1", lambda p: {"mask": p.random.random((p.shape[-3], 1, p.shape[-1])) < 0.6}
    ),
    "bias of heads": FORMS["bias of heads"],
    "sinks": OPTIONS["sinks"],
    "causal": Option("MASK-7", lambda _: {"is_causal": True, "query_offset": 390}),
    "window": Option("MASK-8", lambda _: {"window": (370, 0), "query_offset": 395}),
    "key_lengths": Option("MASK-9", lambda _: {"key_lengths": 390}),
}
#: The options of scores, which an implementation applies in one order.
OF_SCORES: Mapping[str, Option] = {
    "scale": Option("SCORE-3", lambda _: {"scale": -0.75}),
    "softcap": FORMS["softcap"],
    "bias": FORMS["bias"],
    "sinks": OPTIONS["sinks"],
    "dropout": Option("DROP-1", lambda p: full_dropout(p, dropout_rate=0.25)),
}

# Options of problems by formula.

#: The sizes of tiles in use.
TILES = (16, 32, 64, 128, 256)
#: Axes of masks and biases.
_AXES = (("L", "S"), ("B", "H", "L", "S"), ("S",), ("B", "S"), ("H", "L", "S"), ("B", "L", "S"))
#: The names of options by formula. Those in one line exclude each other.
NAMES = (
    ("plain", "is_causal", "query_offset", "window", "left"),
    ("key_lengths", "segments"),
    ("query_lengths",),
    ("mask", "dropout", "bias"),
    ("sinks", "scale", "softcap"),
)


def edge(number: int, most: int) -> int:
    """Return an integer on, before or after a multiple of a tile, another for each number, below `most`.

    Below 18, where no tile has a place, it is half of `most`, and at least 1.
    """
    tiles = [tile for tile in TILES if tile + 1 < most]
    if not tiles:
        return max(most // 2, 1)
    tile = tiles[number % len(tiles)]
    place = tile * (1 + number // len(tiles) % 3) + number % 3 - 1
    while place >= most:
        place -= tile
    return place


def formula_option(name: str, number: int, batch: tuple[int, ...], queries: int, keys: int) -> Options:
    """Return the value of an option in a problem by formula, and what it needs."""
    axes = _AXES[number % len(_AXES)]
    last = keys - queries  # the offset of the last query at the last key
    offset = {"query_offset": last} if last else {}  # many kernels with a window have no offset
    lengths = {"key_lengths": keys, "query_lengths": queries}
    if name in lengths:
        return {name: tuple(edge(number + 7 * entry, lengths[name]) for entry in range(prod(batch)))}
    values: dict[str, Options] = {
        "plain": {},
        "is_causal": {"is_causal": True},
        "query_offset": {"is_causal": True, "query_offset": (last, edge(number, keys))[number % 2]},
        "window": {"window": (edge(number, keys), edge(number + 3, keys))} | offset,
        "left": {"window": (edge(number, keys), None), "is_causal": True} | offset,
        "segments": {"segments": edge(number, keys)},
        "mask": {"mask": axes},
        "bias": {"bias": axes},
        "dropout": {"dropout_mask": axes, "dropout_rate": (0.5, 0.25)[number % 2]},
        "sinks": {"sinks": True},
        "scale": {"scale": (-0.25, 0.5, 0.0, -1.0 / 16)[number % 4]},
        "softcap": {"softcap": (1.0, 3.0)[number % 2]},
    }
    return values[name]


# Options beside normally distributed numbers.


def normal_option(
    name: str, random: np.random.Generator, batch: int, heads: int, queries: int, keys: int
) -> Options:
    """Draw an option of attention or of its gradients."""
    scores = (batch, heads, queries, keys)
    makers: Mapping[str, Callable[[], Options]] = {
        "causal": lambda: {"is_causal": True},
        "window": lambda: {"window": (3, 0)},
        "empty rows": lambda: {"mask": random.random((queries, keys)) < 2 / keys},
        "softcap": lambda: {"softcap": 2.0},
        "bias": lambda: {"bias": random.normal(size=(1, heads, 1, keys))},
        "full bias": lambda: {"bias": 4 * random.normal(size=scores)},
        "sinks": lambda: {"sinks": 2 * random.normal(size=heads)},
        "lse": lambda: {"d_lse": 4 * random.normal(size=scores[:-1])},
        "lse alone": lambda: {"d_lse": random.normal(size=scores[:-1])},
        "dropout": lambda: {"dropout_mask": random.random((queries, keys)) < 0.7, "dropout_rate": 0.3},
    }
    return makers[name]()
