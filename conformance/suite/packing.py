"""The chapter `packing`: several sequences in one row."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import grid
from attnspec.conformance.suite.words import Sizes, draw_in_turn

chapter = Chapter("packing")

_FORWARD, _BACKWARD = "packed_attention", "packed_attention_vjp"
Arguments = dict[str, Any]


@dataclass(frozen=True)
class _Row(Sizes):
    """The sizes of a packed row: numbers of queries and of keys of each sequence, and rows past the last."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    rest: tuple[int, int] = (0, 0)


#: More and fewer queries than keys, one query, one key, and the numbers in another order.
_UNEVEN = (
    _Row((3, 1, 5), (2, 6, 4)),
    _Row((2, 4), (4, 2), heads=(3, 3), depths=(2, 5)),
    _Row((1, 1, 1, 1), (3, 1, 7, 2), heads=(4, 1)),
    _Row((6,), (6,), heads=(2, 1), depths=(3, 3)),
)
#: Sequences without queries, without keys and without both, at the beginning, inside and at the end.
_EMPTY: Mapping[str, tuple[_Row, ...]] = {
    "queries": (_Row((0, 3, 0, 2), (2, 4, 3, 1)), _Row((2, 0), (3, 4), rest=(1, 2))),
    "keys": (_Row((2, 3, 1), (0, 4, 0)), _Row((3, 2, 2), (3, 0, 2))),
    "both": (
        _Row((0, 2, 0, 0, 3), (0, 3, 0, 0, 2)),
        _Row((0, 0), (0, 0), rest=(2, 3)),
        _Row((), (), rest=(3, 2)),
    ),
}
_PAST = (
    _Row((2, 3), (3, 2), rest=(3, 2)),
    _Row((1, 4), (5, 2), rest=(2, 0), heads=(2, 2)),
    _Row((4,), (3,), rest=(1, 4)),
)
#: Lengths at and around the sides of tiles: a tile of one sequence reaches into the next.
_TILES: Mapping[str, _Row] = {
    "16": _Row((16, 1, 17, 15), (17, 16, 1, 15), heads=(2, 1)),
    "64": _Row((3, 64, 2), (65, 64, 63), heads=(2, 1)),
    "the longest fills its own": _Row((3, 128, 2), (7, 128, 5), heads=(2, 1), depths=(2, 2)),
    "one after another": _Row((1,) * 18, (2, 1, 3) * 6, heads=(1, 1)),
}
_OPTIONS: Mapping[str, Arguments] = {
    "scale": {"scale": -0.75},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": True},
    "window": {"window": (1, 0)},
    "window to the right": {"window": (None, 1)},
    "one offset below 0": {"query_offset": -1, "is_causal": True},
    "all together": {"scale": 0.5, "softcap": 3.0, "sinks": True, "window": (2, 1), "is_causal": True},
}


def _draw_call(
    random: np.random.Generator, dtype: str, row: _Row, *, width: str = "int64", **options: Any
) -> Arguments:
    """Draw a call. A rest is filled with numbers, too."""
    (heads, shared), (depth, value_depth) = row.heads, row.depths
    queries, keys = sum(row.queries) + row.rest[0], sum(row.keys) + row.rest[1]
    if options.get("sinks") is True:
        options["sinks"] = grid(random, (heads,), 1.0).astype(dtype)
    return {
        "query": grid(random, (heads, queries, depth), 1.0).astype(dtype),
        "key": grid(random, (shared, keys, depth), 1.0).astype(dtype),
        "value": grid(random, (shared, keys, value_depth), 1.0).astype(dtype),
        "query_starts": np.cumsum((0, *row.queries)).astype(width),
        "key_starts": np.cumsum((0, *row.keys)).astype(width),
        **options,
    }


def _cotangents(random: np.random.Generator, arguments: Arguments, *, lse: bool) -> Arguments:
    """Add cotangents to a call."""
    dtype, shape = arguments["query"].dtype, arguments["query"].shape[:2]
    cotangents = {"d_output": grid(random, (*shape, arguments["value"].shape[-1]), 1.0).astype(dtype)}
    return (
        arguments
        | cotangents
        | ({"d_lse": grid(random, shape, 1.0).astype(lse_dtype(dtype.name))} if lse else {})
    )


@chapter.group("PACK-1", operation=_FORWARD)
def sequences_of_unequal_lengths(draw: Draw) -> Iterator[Yielded]:
    """Sequences of few queries with many keys, and of many queries with few keys."""
    for uneven in _UNEVEN:
        for random, dtype, row in draw_in_turn(draw, uneven):
            yield _draw_call(random, dtype, row)


@chapter.group("PACK-1", operation=_FORWARD, each=tuple(_OPTIONS))
def with_an_option(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option applies to each sequence as if it were alone."""
    rules = ("PACK-5", "PACK-1") if {"window", "query_offset"} & {*_OPTIONS[option]} else ("PACK-1",)
    for random, dtype, row in draw_in_turn(draw, *_UNEVEN[:2]):
        yield Call(_draw_call(random, dtype, row, **_OPTIONS[option]), rules)


@chapter.group("PACK-1", operation=_FORWARD, each=tuple(_TILES))
def sequences_across_tiles(draw: Draw, size: str) -> Iterator[Yielded]:
    """Sequences begin and end inside tiles, at their edges and one after them."""
    for random, dtype, row in draw_in_turn(draw, _TILES[size]):
        causal: Arguments = {"is_causal": True} if size == "16" else {}
        yield _draw_call(random, dtype, row, **causal)


@chapter.group("PACK-1", "ERR-1", operation=_FORWARD, each=("int32", "int8", "transposed"))
def boundaries_and_arrays_in_another_form(draw: Draw, form: str) -> Iterator[Yielded]:
    """The boundaries are narrow beside larger positions, or positions come before heads in memory."""
    width = "int64" if form == "transposed" else form
    own: Arguments = {"window": (127, None), "query_offset": 126} if form == "int8" else {}
    layout = dict.fromkeys(("query", "key", "value"), form) if form == "transposed" else {}
    for random, dtype, row in draw_in_turn(draw, _UNEVEN[0]):
        yield Call(_draw_call(random, dtype, row, width=width, **own), layout=layout)


@chapter.group("NUM-14", "PACK-1", operation=_FORWARD)
def scores_of_minus_infinity(draw: Draw) -> Iterator[Yielded]:
    """One key of each sequence has scores of minus infinity, and the others share the rest."""
    for random, dtype, row in draw_in_turn(draw, _UNEVEN[0]):
        given = _draw_call(random, dtype, row)
        given["query"][..., 0] = np.abs(given["query"][..., 0]) + 1
        given["key"][:, given["key_starts"][:-1], 0] = -np.inf
        given["key"][:, given["key_starts"][:-1], 1] = 64  # which alone would give the key most of the weight
        yield given


@chapter.group("PACK-2", operation=_FORWARD, each=tuple(_EMPTY))
def sequences_without(draw: Draw, nothing: str) -> Iterator[Yielded]:
    """Some sequences have no queries, no keys or neither, also with sinks."""
    for random, dtype, row in draw_in_turn(draw, *_EMPTY[nothing]):
        sinks: Arguments = {"sinks": True} if random.random() < 0.5 else {}
        yield _draw_call(random, dtype, row, **sinks)


@chapter.group("PACK-3", operation=_FORWARD, each=("plain", "causal", "sinks"))
def rows_past_the_last_boundary(draw: Draw, option: str) -> Iterator[Yielded]:
    """The row is longer than its sequences, for queries and keys."""
    own: Arguments = {"plain": {}, "causal": {"is_causal": True}, "sinks": {"sinks": True}}[option]
    for random, dtype, row in draw_in_turn(draw, *_PAST):
        yield _draw_call(random, dtype, row, **own)


@chapter.group("PACK-4", operation=_FORWARD, each=("another sequence", "no sequence"))
def not_a_number_in(draw: Draw, where: str) -> Iterator[Yielded]:
    """NaN and infinity stand in a whole sequence, or past the last boundary."""
    for index, (random, dtype, row) in enumerate(draw_in_turn(draw, *_PAST)):
        given = _draw_call(random, dtype, row)
        last = 1 if where == "no sequence" or len(row.queries) == 1 else 2
        for name, of in (("query", "query"), ("key", "key"), ("value", "key")):
            given[name][:, int(given[f"{of}_starts"][-last]) :] = (np.nan, np.inf)[
                index % 2 and name == "value"
            ]
        if last == 2:  # the numbers past the last boundary are finite, as are those of the first sequence
            for name, of in (("query", "query"), ("key", "key"), ("value", "key")):
                given[name][:, int(given[f"{of}_starts"][-1]) :] = 0
        yield given


@chapter.group("PACK-5", operation=_FORWARD, each=("none", "one", "each its own", "aligned at the end"))
def causal_with_an_offset(draw: Draw, offset: str) -> Iterator[Yielded]:
    """Causality counts from the beginning of each sequence, moved by one offset or by one for each."""
    for random, dtype, row in draw_in_turn(draw, *_UNEVEN[:3]):
        count = len(row.queries)
        own: Mapping[str, Arguments] = {
            "none": {},
            "one": {"query_offset": int(random.integers(-1, 3))},
            "each its own": {"query_offset": random.integers(-2, 4, count)},
            "aligned at the end": {"query_offset": np.array(row.keys) - np.array(row.queries)},
        }
        yield _draw_call(random, dtype, row, is_causal=True, **own[offset])


@chapter.group("PACK-5", operation=_FORWARD, each=("window", "window and causality"))
def window_with_an_offset(draw: Draw, option: str) -> Iterator[Yielded]:
    """A window moves with the offset of its sequence."""
    for random, dtype, row in draw_in_turn(draw, *_UNEVEN[:2]):
        offsets = random.integers(-1, 4, len(row.queries))
        yield _draw_call(
            random, dtype, row, window=(1, 1), query_offset=offsets, is_causal=option != "window"
        )


@chapter.group("PACK-7", operation=_BACKWARD, each=("output", "output and lse"))
def gradients_of_sequences(draw: Draw, loss: str) -> Iterator[Yielded]:
    """Each sequence has its own gradients, and shared key heads collect within a sequence."""
    for random, dtype, row in draw_in_turn(draw, *_UNEVEN[:3]):
        yield _cotangents(random, _draw_call(random, dtype, row), lse=loss != "output")


@chapter.group("PACK-7", operation=_BACKWARD, each=tuple(_OPTIONS))
def gradients_with_an_option(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option has its gradients in each sequence; those of the sinks are summed over all."""
    for random, dtype, row in draw_in_turn(draw, _UNEVEN[0]):
        yield _cotangents(random, _draw_call(random, dtype, row, **_OPTIONS[option]), lse=True)


@chapter.group("PACK-7", "PACK-2", operation=_BACKWARD, each=tuple(_EMPTY))
def gradients_of_sequences_without(draw: Draw, nothing: str) -> Iterator[Yielded]:
    """Sequences without queries, keys or both pass nothing on."""
    for random, dtype, row in draw_in_turn(draw, *_EMPTY[nothing][:2]):
        yield _cotangents(random, _draw_call(random, dtype, row, is_causal=True), lse=True)


@chapter.group("PACK-7", "PACK-3", operation=_BACKWARD, each=("numbers", "NaN"))
def gradients_past_the_last_boundary(draw: Draw, rest: str) -> Iterator[Yielded]:
    """Rows of no sequence have gradients of 0, and their cotangents move no other gradient."""
    for random, dtype, row in draw_in_turn(draw, *_PAST):
        given = _cotangents(random, _draw_call(random, dtype, row, sinks=True), lse=True)
        if rest == "NaN":
            for name, of in (("query", "query"), ("key", "key"), ("value", "key"), ("d_output", "query")):
                given[name][:, int(given[f"{of}_starts"][-1]) :] = np.nan
            given["d_lse"][:, int(given["query_starts"][-1]) :] = np.nan
        yield given
