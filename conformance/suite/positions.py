"""The chapter `positions`: ALiBi, rotary embedding and its frequencies."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import positions
from attnspec.conformance.suite.problem import MASKED, Shape, grid

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


@chapter.group("POS-7", "POS-8", operation="alibi_bias", each=(1, 2, 3, 6, 8, 12, 16, 17))
def alibi(draw: Draw, heads: int) -> Iterator[Yielded]:
    """Slopes are those of heads in powers of two and in other numbers, for keys after the query too."""
    for problem in draw.in_each_dtype(Shape((heads,), 3, 4, 2, 2)):
        yield {"query": problem.query, "key": problem.key}


@chapter.group("POS-8", operation="alibi_bias")
def alibi_of_shapes_alone(draw: Draw) -> Iterator[Yielded]:
    """Queries and keys hold NaN and infinity, of which nothing depends."""
    for problem in draw.in_each_dtype(Shape((2, 2), 3, 4, 2, 2)):
        yield {"query": np.full_like(problem.query, np.nan), "key": np.full_like(problem.key, np.inf)}


@chapter.group("POS-8", "MASK-14", operation="alibi_bias", each=("queries", "keys", "both"))
def alibi_at_positions(draw: Draw, of: str) -> Iterator[Yielded]:
    """ALiBi takes the distance of the positions that are given, a negative one like any other."""
    for problem in draw.problems(MASKED):
        drawn = positions(problem)
        names = {"queries": ("query_positions",), "keys": ("key_positions",)}.get(of, tuple(drawn))
        own = {name: drawn[name] for name in names}
        yield {name: problem.arguments[name] for name in ("query", "key")} | own


@chapter.group("POS-8", operation="alibi_bias", each=tuple(_OFFSETS))
def alibi_with_an_offset(draw: Draw, offset: str) -> Iterator[Yielded]:
    """Distances are counted from the queries' positions, also where there are fewer key heads."""
    for problem in draw.in_each_dtype(Shape((2, 6), 3, 5, 2, 2, groups=3)):
        yield {"query": problem.query, "key": problem.key, "query_offset": _OFFSETS[offset]}


#: Batch axes and heads, rows, depth, rotary depth: one part of the depth in some of them.
_SHAPES = (
    ((2, 3), 5, 8, 8),
    ((2, 1), 4, 6, 4),
    ((), 5, 10, 8),
    ((3,), 1, 6, 6),
    ((2, 2, 2), 3, 4, 4),
    ((2, 2), 17, 8, 6),
)
_LAYOUTS = ("half-split", "interleaved")
#: Rows of a table. No position of these cases is later.
_ROWS = 23
#: Sections of four pairs: the usual three axes, two, one, and axes without pairs.
_SECTIONS = {"three": (2, 1, 1), "two": (1, 3), "one": (4,), "an empty one": (0, 3, 0, 1)}
#: Rows that do not fill a tile, that fill it, and that pass it.
_TILES = (16, 17, 64, 65)

Arguments = dict[str, Any]
Random = np.random.Generator


def _features(random: Random, dtype: str, index: int) -> tuple[Arguments, tuple[int, ...], int]:
    """Draw features, and return their rows as ``(*B, N)`` and their rotary depth."""
    outer, rows, depth, rotated = _SHAPES[index % len(_SHAPES)]
    arguments: Arguments = {"features": grid(random, (*outer, rows, depth), 1.0).astype(dtype)}
    if rotated != depth:
        arguments["rotary_depth"] = rotated
    return arguments, (*outer[:-1], rows), rotated


def _offset(random: Random, rows: tuple[int, ...], low: int, high: int) -> Any:
    return random.integers(low, high, rows[:-1]) if rows[:-1] else int(random.integers(low, high))


def _table(random: Random, dtype: str, rotated: int) -> Arguments:
    return {name: grid(random, (_ROWS, rotated // 2), 0.7).astype(dtype) for name in ("cosines", "sines")}


@chapter.group("POS-10", operation="rotary", each=_LAYOUTS)
def positions_in_any_order(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Positions fall, repeat and leave gaps, below 0 and far along, with and without an offset."""
    for index, (random, dtype) in enumerate(draw.generators(6)):
        arguments, rows, _ = _features(random, dtype, index // 2)
        low, high = ((-3, 9), (500, 4000))[index // 2 % 2]
        arguments["positions"] = random.integers(low, high, rows).astype(
            ("int16", "int64", "int32")[index // 2 % 3]
        )
        if index // 2 % 3 == 1:
            arguments["offset"] = _offset(random, rows, -5, 6)
        yield Call(arguments | _layout_options(layout), ("POS-10", "POS-5", _RULES[layout], "POS-4"))


_RULES = {"half-split": "POS-2", "interleaved": "POS-3"}


def _layout_options(layout: str) -> Arguments:
    return {"interleaved": True} if layout == "interleaved" else {}


@chapter.group("POS-10", operation="rotary", each=_TILES)
def positions_of_many_rows(draw: Draw, rows: int) -> Iterator[Yielded]:
    """Rows of several sequences in one, each counted from 0, past the edges of tiles."""
    for random, dtype in draw.generators(1):
        features = grid(random, (1, 2, rows, 4), 1.0).astype(dtype)
        yield {"features": features, "positions": (np.arange(rows) % 7)[None]}


@chapter.group("POS-10", operation="rotary", each=("rows", "batch entries"))
def no_positions(draw: Draw, without: str) -> Iterator[Yielded]:
    """Without rows or batch entries there is nothing to rotate, and no position."""
    rows = (2, 0) if without == "rows" else (0, 3)
    for _, dtype in draw.generators(1):
        features = np.zeros((rows[0], 2, rows[1], 4), dtype)
        yield {"features": features, "positions": np.zeros(rows, np.int64)}


@chapter.group("POS-10", "NUM-8", operation="rotary", each=("transposed", "reversed"))
def positions_in_another_layout(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Features, positions and tables are views with other strides."""
    for index, (random, dtype) in enumerate(draw.generators(2)):
        arguments, rows, rotated = _features(random, dtype, 0)
        arguments |= {"positions": random.integers(0, _ROWS, rows)}
        arguments |= _table(random, dtype, rotated) if index > 1 else {}
        names = [name for name, thing in arguments.items() if isinstance(thing, np.ndarray)]
        yield Call(arguments, layout=dict.fromkeys(names, layout))


@chapter.group("POS-11", "NUM-5", "POS-10", "POS-5", "POS-4", operation="rotary")
def given_frequencies(draw: Draw) -> Iterator[Yielded]:
    """Frequencies in no order, one of them 0, in float32 or better beside half precision."""
    for index, (random, dtype) in enumerate(draw.generators(4)):
        arguments, rows, rotated = _features(random, dtype, index // 2)
        given = np.round(random.random(rotated // 2) * 4096) / 4096
        given[-1] = 0
        arguments["inverse_frequencies"] = given.astype(lse_dtype(dtype))
        arguments["positions" if index % 4 < 2 else "offset"] = (
            random.integers(0, 2000, rows) if index % 4 < 2 else _offset(random, rows, 0, 9)
        )
        yield arguments


@chapter.group("POS-12", operation="rotary", each=_LAYOUTS)
def given_cosines_and_sines(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Rows of a table by positions or by an offset. The numbers are not those of any angle."""
    for index, (random, dtype) in enumerate(draw.generators(4)):
        arguments, rows, rotated = _features(random, dtype, index // 2)
        arguments |= _table(random, dtype, rotated)
        if index // 2 % 2:
            arguments["offset"] = _offset(random, rows, 0, _ROWS - rows[-1] + 1)
        else:
            arguments["positions"] = random.integers(0, _ROWS, rows).astype("uint8")
        yield Call(arguments | _layout_options(layout), ("POS-12", "POS-10", _RULES[layout], "POS-4"))


@chapter.group("POS-12", "POS-10", operation="rotary")
def unused_rows_of_a_table(draw: Draw) -> Iterator[Yielded]:
    """Rows of the table that no position names are NaN or infinity."""
    for number, (random, dtype) in product((np.nan, np.inf), draw.generators(2)):
        arguments, rows, rotated = _features(random, dtype, 0)
        arguments |= _table(random, dtype, rotated) | {"positions": 3 * random.integers(0, 5, rows)}
        unused = ~np.isin(np.arange(_ROWS), arguments["positions"])
        for name in ("cosines", "sines"):
            arguments[name][unused] = number
        yield arguments


@chapter.group("POS-14", operation="rotary", each=("angles", "table"))
def attention_factor(draw: Draw, of: str) -> Iterator[Yielded]:
    """Rotated features grow or shrink or change their sign, also at position 0, and the others do not."""
    for index, (random, dtype) in enumerate(draw.generators(3)):
        arguments, _, rotated = _features(random, dtype, (1, 2, 5)[index // 2])
        arguments |= _table(random, dtype, rotated) if of == "table" else {}
        arguments["attention_factor"] = (1.1386294361119891, 0.75, -2.0)[index // 2]
        yield Call(arguments, ("POS-14", "POS-4", *(["POS-12"] if of == "table" else [])))


@chapter.group("POS-11", "POS-14", "POS-15", operation="rotary", each=("attention factor", "sections"))
def given_frequencies_beside(draw: Draw, what: str) -> Iterator[Yielded]:
    """Given frequencies have an attention factor, as those of YaRN, or sections of several axes."""
    for random, dtype in draw.generators(2):
        arguments, rows, rotated = _features(random, dtype, 0)
        own = {"attention_factor": 1.25} if what != "sections" else _by_sections(random, dtype, rows, rotated)
        given = {"inverse_frequencies": grid(random, (rotated // 2,), 0.5).astype(lse_dtype(dtype))}
        yield Call(arguments | given | own, ("POS-15" if what == "sections" else "POS-14", "POS-11"))


@chapter.group("POS-11", each=("rotary", "rotary_vjp"))
def base_beside_frequencies(draw: Draw, operation: str) -> Iterator[Yielded]:
    """A base that is given beside frequencies has no effect."""
    for random, dtype in draw.generators(1):
        arguments, _, rotated = _features(random, dtype, 0)
        given = {"inverse_frequencies": grid(random, (rotated // 2,), 0.5).astype(lse_dtype(dtype))}
        cotangent = grid(random, arguments["features"].shape, 1.0).astype(dtype)
        own = {"d_rotated": cotangent} if operation == "rotary_vjp" else {}
        yield Call(arguments | own | given | {"base": 20.0}, operation=operation)


@chapter.group("POS-15", operation="rotary", each=tuple(_SECTIONS))
def sections_of_pairs(draw: Draw, sections: str) -> Iterator[Yielded]:
    """Each section takes the position of its own axis, with and without an offset."""
    for index, (random, dtype) in enumerate(draw.generators(2)):
        arguments, rows, _ = _features(random, dtype, (0, 2)[index // 2])
        counts = np.array(_SECTIONS[sections])
        arguments |= {"axis_positions": random.integers(0, 30, (len(counts), *rows)), "sections": counts}
        if index // 2:
            arguments |= {"offset": _offset(random, rows, -3, 4), "interleaved": True}
        yield Call(arguments, ("POS-15", "POS-5"))


@chapter.group("POS-15", operation="rotary")
def sections_of_a_model(draw: Draw) -> Iterator[Yielded]:
    """The sections of Qwen2-VL: 16, 24 and 24 of 64 pairs, for an image between text."""
    for random, dtype in draw.generators(1):
        image = np.array([(2, h, w) for h in (2, 3) for w in (2, 3)]).T
        text = np.tile([0, 1], (3, 1))
        positions = np.concatenate([text, image, text + 4], axis=1)  # (3, 8)
        features = grid(random, (2, positions.shape[1], 128), 1.0).astype(dtype)
        yield {"features": features, "axis_positions": positions, "sections": np.array([16, 24, 24])}


def _by_positions(random: Random, _dtype: str, rows: tuple[int, ...], _rotated: int) -> Arguments:
    return {"positions": random.integers(-5, 50, rows)}


def _by_frequencies(random: Random, dtype: str, _rows: tuple[int, ...], rotated: int) -> Arguments:
    return {"inverse_frequencies": grid(random, (rotated // 2,), 0.5).astype(lse_dtype(dtype)), "offset": 1}


def _by_table(random: Random, dtype: str, _rows: tuple[int, ...], rotated: int) -> Arguments:
    return _table(random, dtype, rotated) | {"attention_factor": 1.5}


def _by_sections(random: Random, _dtype: str, rows: tuple[int, ...], rotated: int) -> Arguments:
    counts = np.array([1, rotated // 2 - 1])
    return {"axis_positions": random.integers(0, 30, (2, *rows)), "sections": counts}


_MADE: dict[str, Callable[[Random, str, tuple[int, ...], int], Arguments]] = {
    "positions": _by_positions,
    "frequencies": _by_frequencies,
    "a table": _by_table,
    "sections": _by_sections,
}
_CITED = {"positions": "POS-10", "frequencies": "POS-11", "a table": "POS-12", "sections": "POS-15"}


@chapter.group("GRAD-22", operation="rotary_vjp", each=tuple(_MADE))
def turned_back_by(draw: Draw, what: str) -> Iterator[Yielded]:
    """Cotangents are turned back by what the features were turned by, and multiplied by the same factor."""
    for index, (random, dtype) in enumerate(draw.generators(2)):
        arguments, rows, rotated = _features(random, dtype, (0, 1)[index // 2])
        arguments["d_rotated"] = grid(random, arguments["features"].shape, 1.0).astype(dtype)
        yield Call(
            arguments | _MADE[what](random, dtype, rows, rotated),
            ("GRAD-22", _CITED[what], *(["POS-5"] if what == "frequencies" else [])),
        )


@chapter.group("POS-26", "POS-8", operation="alibi_bias", each=("part", "any"))
def given_slopes(draw: Draw, of: str) -> Iterator[Yielded]:
    """Slopes of a part of the heads of a model, or any numbers, below 0 too."""
    for problem in draw.in_each_dtype(Shape((2, 6), 3, 5, 2, 2, groups=3)):
        slopes: NDArray[Any] = 2.0 ** -np.arange(3.0, 9.0)
        if of == "any":  # more digits than half precision has
            slopes = np.round(problem.random.normal(size=6) * 2**16) / 2**16
            slopes[::2] = -np.abs(slopes[::2])
        yield {
            "query": problem.query,
            "key": problem.key,
            "query_offset": 2,
            "slopes": slopes.astype(lse_dtype(str(problem.query.dtype))),
        }
