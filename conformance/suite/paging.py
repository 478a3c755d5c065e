"""The chapter `paging`: attention over a cache in pages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec.case import Misuse
from attnspec.conformance.suite import drawn_stacks
from attnspec.conformance.suite.alone import draw_alone, optional_of
from attnspec.conformance.suite.drawn_stacks import TOGETHER, draw_call, draw_together
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import grid
from attnspec.conformance.suite.words import Sizes, draw_in_turn
from attnspec.operations.stacks import FORMS, STACKS

chapter = Chapter("paging")

_PAGED = "paged_attention"
Arguments = dict[str, Any]
#: The number in positions that no query reads.
_GARBAGE = 1000


#: The dtypes of the queries and of the cache, whose numbers the first dtype does or does not hold.
_WIDTHS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "wider": (("float16", "float32"), ("bfloat16", "float32")),
    "narrower": (("float32", "float16"), ("float32", "bfloat16")),
}


@dataclass(frozen=True)
class _Cache(Sizes):
    """The sizes of a call: lengths of sequences, queries, the size of a page, and pages of a sequence."""

    lengths: tuple[int, ...]
    queries: int = 1
    size: int = 4
    table: int = 3
    added: int = 0


#: Lengths inside a page, at its end and of a whole table; one query and several; pages of one position.
_CACHES = (
    _Cache((5, 9, 12)),
    _Cache((4, 7), queries=3, size=2, table=4, heads=(3, 3), depths=(2, 5)),
    _Cache((6, 3), queries=2, size=1, table=6, heads=(2, 1)),
)
_TILES: Mapping[str, _Cache] = {
    "16": _Cache((17, 31, 48), queries=2, size=16, heads=(2, 1)),
    "64": _Cache((65, 129), size=64, heads=(2, 1)),
    "pages of 1": _Cache((33, 17), size=1, table=40, heads=(1, 1)),
}
_OPTIONS: Mapping[str, Arguments] = {
    "scale": {"scale": -0.75},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": True},
    "all together": {"scale": 0.5, "softcap": 3.0, "sinks": True, "window": (3, 1), "is_causal": True},
}
#: The number in entries that no query reads.
_STALE = {"-1": -1, "no page": 10**6, "a page of another": 0}


def _draw_call(random: np.random.Generator, dtype: str, cache: _Cache, **options: Any) -> Arguments:
    """Draw a call: pages in any order among others, whose unused positions hold large numbers."""
    batch, (heads, shared), (depth, value_depth) = len(cache.lengths), cache.heads, cache.depths
    count = batch * cache.table + 2
    table = random.permutation(count)[: batch * cache.table].reshape(batch, cache.table)
    if options.get("sinks") is True:
        options["sinks"] = grid(random, (heads,), 1.0).astype(dtype)
    arguments: Arguments = {"query": grid(random, (batch, heads, cache.queries, depth), 1.0).astype(dtype)}
    for name, its in (("key", depth), ("value", value_depth)):
        pages = np.full((count, shared, cache.size, its), _GARBAGE, dtype)
        for entry, length in enumerate(cache.lengths):
            for j in range(length):
                pages[table[entry, j // cache.size], :, j % cache.size] = grid(random, (shared, its), 1.0)
        arguments[f"{name}_pages"] = pages
        if cache.added:
            arguments[f"new_{name}"] = grid(random, (batch, shared, cache.added, its), 1.0).astype(dtype)
    return arguments | {"block_table": table, "key_lengths": np.array(cache.lengths), **options}


@chapter.group("PAGE-1", operation=_PAGED)
def pages_in_any_order(draw: Draw) -> Iterator[Yielded]:
    """Sequences of different lengths read pages in any order, with one query or several."""
    for stored in _CACHES:
        for random, dtype, cache in draw_in_turn(draw, stored):
            yield _draw_call(random, dtype, cache)


@chapter.group("PAGE-1", operation=_PAGED, each=tuple(_OPTIONS))
def with_an_option(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option applies to each sequence."""
    for random, dtype, cache in draw_in_turn(draw, *_CACHES[:2]):
        yield _draw_call(random, dtype, cache, **_OPTIONS[option])


@chapter.group("PAGE-1", operation=_PAGED, each=tuple(_TILES))
def pages_across_tiles(draw: Draw, size: str) -> Iterator[Yielded]:
    """Lengths end inside pages of several sizes, at their ends and one after them."""
    for random, dtype, cache in draw_in_turn(draw, _TILES[size]):
        yield _draw_call(random, dtype, cache)


@chapter.group(
    "PAGE-1",
    operation=_PAGED,
    each=("shared", "repeated", "one length", "int32", "transposed", "alone"),
)
def pages_and_tables_in_another_form(draw: Draw, form: str) -> Iterator[Yielded]:
    """Sequences share pages, one lists a page twice, or arrays have another form."""
    for random, dtype, cache in draw_in_turn(draw, replace(_CACHES[0], lengths=(9, 9, 9))):
        given = _draw_call(random, dtype, cache)
        table, layout = given["block_table"], {}
        if form == "shared":
            given["block_table"] = np.array(np.broadcast_to(table[:1], table.shape))
        if form == "repeated":
            given["block_table"] = np.stack([table[:, 0], table[:, 1], table[:, 0]], axis=-1)
        if form == "one length":
            given["key_lengths"] = 9
        if form == "int32":
            given |= {name: given[name].astype("int32") for name in ("block_table", "key_lengths")}
        if form == "transposed":
            layout = dict.fromkeys(("query", "key_pages", "value_pages"), form)
        if form == "alone":
            given |= {"query": given["query"][0], "block_table": table[0], "key_lengths": 9}
        yield Call(given, layout=layout)


@chapter.group("PAGE-1", operation=_PAGED, each=("of unsigned bytes", "of two batch axes"))
def tables(draw: Draw, kind: str) -> Iterator[Yielded]:
    """Pages have numbers that are negative as int8, or tables have two batch axes."""
    for random, dtype, cache in draw_in_turn(draw, replace(_CACHES[0], lengths=(9, 9, 9))):
        given = _draw_call(random, dtype, cache)
        if kind == "of unsigned bytes":
            for name in ("key_pages", "value_pages"):
                given[name] = np.concatenate([np.repeat(given[name][:1], 130, axis=0), given[name]])
            yield given | {"block_table": (given["block_table"] + 130).astype("uint8")}
        else:
            table = np.roll(np.stack([given["block_table"], given["block_table"][::-1]]), 1, axis=-1)
            query = np.stack([given["query"], given["query"]])
            yield given | {"query": query, "block_table": table, "key_lengths": np.full((2, 3), 9)}


@chapter.group("PAGE-1", operation=_PAGED, each=("positions", "positions but a sink", "pages"))
def sequences_without(draw: Draw, nothing: str) -> Iterator[Yielded]:
    """Some sequences have no position, or there is no page at all."""
    for random, dtype, cache in draw_in_turn(draw, replace(_CACHES[0], lengths=(0, 5, 0))):
        given = _draw_call(random, dtype, cache, **({"sinks": True} if "sink" in nothing else {}))
        if nothing == "pages":
            given |= {name: given[name][:0] for name in ("key_pages", "value_pages")}
            given["key_lengths"] = np.zeros(3, np.int64)
        yield given


@chapter.group("PAGE-2", operation=_PAGED, each=("one", "several", "past a page", "after none", "none"))
def new_positions(draw: Draw, which: str) -> Iterator[Yielded]:
    """New positions follow those of the pages, inside a page, across pages, and in an empty cache."""
    own = {
        "one": _Cache((5, 8, 11), added=1),
        "several": _Cache((5, 1, 7), added=3, queries=3),
        "past a page": _Cache((4, 3, 7), added=5, queries=2),
        "after none": _Cache((0, 0), added=2, queries=2),
        "none": _Cache((5, 3), added=0),
    }[which]
    for random, dtype, cache in draw_in_turn(draw, own):
        given = _draw_call(random, dtype, cache, is_causal=True)
        if which == "none":
            for name in ("key", "value"):
                pages = given[f"{name}_pages"]
                given[f"new_{name}"] = np.zeros((2, pages.shape[1], 0, pages.shape[3]), pages.dtype)
        yield given


@chapter.group("PAGE-2", operation=_PAGED, step=5)
def new_positions_with(draw: Draw) -> Iterator[Yielded]:
    """New positions stand beside each option of attention, and beside many at once."""
    for name in optional_of(_PAGED):
        for drawn in draw_alone(replace(draw, group=f"{draw.group} {name}"), name, [_PAGED], _added):
            yield replace(drawn, rules=("PAGE-2", *drawn.rules))
    calls = [drawn_stacks.Sizes(queries=(4, 1), keys=(9, 6))] * len(TOGETHER)
    for together, (random, dtype, sizes) in zip(TOGETHER, draw_in_turn(draw, *calls), strict=True):
        call = draw_together(random, dtype, ("paged",), sizes, together)
        yield call | _added(random, call)


def _added(random: np.random.Generator, call: Arguments) -> Arguments:
    """Draw two new positions of each sequence, after those that the pages of a call hold."""
    pages = {name: call[f"{name}_pages"] for name in ("key", "value")}
    outer = len(call["block_table"])
    drawn = {name: grid(random, (outer, x.shape[1], 2, x.shape[3]), 1.0) for name, x in pages.items()}
    return {f"new_{name}": x.astype(call["query"].dtype) for name, x in drawn.items()}


@chapter.group("PAGE-3", operation=_PAGED, each=tuple(_STALE))
def entries_that_are_not_read(draw: Draw, stale: str) -> Iterator[Yielded]:
    """Entries past the length hold -1, a number that no page has, or a page of another sequence."""
    for random, dtype, cache in draw_in_turn(draw, *_CACHES):
        given = _draw_call(random, dtype, cache)
        unread = np.arange(cache.table) * cache.size >= given["key_lengths"][:, None]
        yield given | {"block_table": np.where(unread, _STALE[stale], given["block_table"])}


@chapter.group("PAGE-4", operation=_PAGED, each=("past the length", "past the end", "before the padding"))
def large_numbers(draw: Draw, where: str) -> Iterator[Yielded]:
    """Numbers of other sequences stand where no query reads."""
    for random, dtype, cache in draw_in_turn(
        draw, replace(_CACHES[1], added=2 if where == "past the end" else 0, lengths=(3, 5))
    ):
        given = _draw_call(random, dtype, cache)
        if where == "before the padding":
            for name in ("key_pages", "value_pages"):
                given[name][given["block_table"][:, 0]] = -_GARBAGE
            given["left_padding"] = cache.size
        yield given


@chapter.group("PAGE-5", operation=_PAGED, each=("NaN", "infinity"))
def not_a_number(draw: Draw, poison: str) -> Iterator[Yielded]:
    """NaN or infinity stands in unused positions and pages, also beside new positions."""
    for random, dtype, cache in draw_in_turn(draw, _CACHES[0], replace(_CACHES[1], added=1, lengths=(3, 6))):
        given = _draw_call(random, dtype, cache)
        for name in ("key_pages", "value_pages"):
            given[name][given[name] == _GARBAGE] = np.nan if poison == "NaN" else np.inf
        yield given


@chapter.group("PAGE-6", operation=_PAGED, each=("more than a tile", "before new positions"))
def much_left_padding(draw: Draw, which: str) -> Iterator[Yielded]:
    """The left padding is wider than a tile, or reaches into the new positions."""
    cache = _Cache((48, 40), queries=2, size=16, heads=(2, 1))
    if which != "more than a tile":
        cache = _Cache((3, 5), queries=2, added=4)
    for random, dtype, own in draw_in_turn(draw, cache):
        padding = np.array([35, 20]) if own.size == 16 else np.array([5, 6])
        yield _draw_call(random, dtype, own, left_padding=padding, return_max=True)


@chapter.group("SOFT-8", "SOFT-2", operation=_PAGED)
def large_scores_of_many_pages(draw: Draw) -> Iterator[Yielded]:
    """Scores of hundreds lie in pages that splits of the keys take apart, some of them past the length."""
    cache = _Cache((33, 64, 90), queries=2, size=16, table=6, heads=(2, 1))
    for random, dtype, own in draw_in_turn(draw, cache):
        yield _draw_call(random, dtype, own, scale=64.0, return_max=True)


@chapter.group("PAGE-6", operation=_PAGED, each=("one", "each its own", "all", "causal", "window"))
def left_padding(draw: Draw, which: str) -> Iterator[Yielded]:
    """The first positions are no keys, and the positions of the others stay as they are."""
    for random, dtype, cache in draw_in_turn(draw, *_CACHES[:2]):
        lengths = np.array(cache.lengths)
        padding: Any = np.minimum(random.integers(1, 4, len(lengths)), lengths - 1)
        padding = {"one": 2, "all": lengths}.get(which, padding)
        own: Arguments = {"is_causal": True, "query_offset": 2} if which == "causal" else {}
        own |= {"window": (3, 0)} if which == "window" else {}
        yield _draw_call(random, dtype, cache, left_padding=padding, **own)


@chapter.group(
    "PAGE-7", operation=_PAGED, each=("end", "end with new", "one", "each its own", "more queries", "window")
)
def causal_with_an_offset(draw: Draw, offset: str) -> Iterator[Yielded]:
    """The last query is at the last key, new ones included, unless an offset is given."""
    caches = (_Cache((5, 9, 6), queries=3), replace(_CACHES[1], lengths=(3, 5)))
    added, queries = (2 if offset == "end with new" else 0), (7 if offset == "more queries" else 0)
    called = (replace(cache, added=added, queries=queries or cache.queries) for cache in caches)
    for random, dtype, cache in draw_in_turn(draw, *called):
        count = len(cache.lengths)
        offsets: Mapping[str, Arguments] = {
            "one": {"query_offset": int(random.integers(0, 4))},
            "each its own": {"query_offset": random.integers(-1, 5, count)},
            "window": {"window": (2, 0), "is_causal": False},
        }
        own = offsets.get(offset, {})
        yield _draw_call(random, dtype, cache, **{"is_causal": True, **own})


@chapter.group("ERR-1", each=tuple(_WIDTHS))
def cache_of_another_dtype(draw: Draw, width: str) -> Iterator[Yielded]:
    """A cache of a wider or a narrower dtype than the queries is refused, or used at its values."""
    forms = {name: form for name, form in {**FORMS, **STACKS}.items() if "paged" in form.layers}
    for index, (name, form) in enumerate(forms.items()):
        if "quantized" in form.layers:
            continue
        random, (dtype, other) = np.random.default_rng(draw.number(index)), _WIDTHS[width][index % 2]
        call = draw_call(random, dtype, form.layers, drawn_stacks.Sizes(name=name))
        pages = [own for own in call if own.endswith("_pages")]
        for own in pages:
            call[own] = call[own].astype(other)
        if width == "wider":  # what the shorter dtype rounds away is common to the keys
            call["key_rotary_pages" if "latent" in form.layers else "key_pages"][..., 0] += 1000
        misuse = Misuse(pages[0], tuple(pages[1:]), allowed=True)
        yield Call(call, operation=name, outputs=("output",), misuse=misuse)
