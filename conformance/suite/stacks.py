"""The chapter `stacks`: operations that combine several forms, and every option in each form."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite import words
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import grid
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.stacks import FORMS, STACKS

chapter = Chapter("stacks")

Arguments = dict[str, Any]
Random = np.random.Generator
#: Every operation that has a form, or several.
STORED = {**FORMS, **STACKS}
#: The number in places of pages that no query reads, and the code there, which is NaN or large.
_UNREAD, _UNREAD_CODE = 1000, 127
_ENCODINGS = ("int8", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1fn")


@dataclass(frozen=True, kw_only=True)
class Sizes(words.Sizes):
    """The sizes of a call of a stack: of each sequence, of a page and of the arrays."""

    name: str = ""  # the operation
    queries: tuple[int, ...] = (3, 1, 4)
    keys: tuple[int, ...] = (5, 7, 2)
    page: int = 3
    latent: tuple[int, int] = (6, 2)
    rest: tuple[int, int] = (0, 0)  # rows past the last sequence, of queries and of keys
    blocks: tuple[int, int] = (2, 3)


@dataclass(frozen=True)
class _Draft:
    """A call that is being drawn: its forms and its sizes."""

    random: Random
    dtype: str
    layers: tuple[str, ...]
    sizes: Sizes
    encoding: str = ""

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch axes: one entry for each sequence, unless these lie in one row."""
        return () if "packed" in self.layers else (len(self.sizes.queries),)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the scores, ``(*B, Hq, L, S)``."""
        sizes, packed = self.sizes, "packed" in self.layers
        queries = sum(sizes.queries) + sizes.rest[0] if packed else sizes.queries[0]
        if "paged" in self.layers:
            keys = self.table * sizes.page
        else:
            keys = sum(sizes.keys) + sizes.rest[1] if packed else max(sizes.keys)
        return (*self.batch, sizes.heads[0], queries, keys)

    @property
    def table(self) -> int:
        """The number of pages of a sequence: those of the longest one, and one more."""
        return -(-max(self.sizes.keys, default=1) // self.sizes.page) + 1

    def numbers(self, *shape: int, amplitude: float = 1.0) -> NDArray[Any]:
        """Draw signed numbers that every dtype holds."""
        return grid(self.random, shape, amplitude).astype(self.dtype)

    def of_sequences(self, low: int, high: int) -> NDArray[np.int64]:
        """Draw an integer for each sequence."""
        return self.random.integers(low, high + 1, len(self.sizes.queries))


def draw_stack(random: Random, dtype: str, layers: tuple[str, ...], sizes: Sizes) -> Arguments:
    """Draw a call: queries, and keys and values as the forms store them."""
    encoding = _ENCODINGS[int(random.integers(len(_ENCODINGS)))] if "quantized" in layers else ""
    draft = _Draft(random, dtype, layers, sizes, encoding)
    depth, value_depth = sizes.depths
    heads, shared = sizes.heads
    if "latent" in layers:
        inner, rotary = sizes.latent
        small = float(1 / np.sqrt(inner))
        call: Arguments = {
            "query": draft.numbers(*draft.shape[:-1], depth),
            "query_rotary": draft.numbers(*draft.shape[:-1], rotary),
            **_held(draft, "latent", (), inner),
            **_held(draft, "key_rotary", (), rotary),
            "key_weight": draft.numbers(heads, inner, depth, amplitude=small),
            "value_weight": draft.numbers(heads, inner, value_depth, amplitude=small),
        }
    else:
        call = {
            "query": draft.numbers(*draft.shape[:-1], depth),
            **_held(draft, "key", (shared,), depth),
            **_held(draft, "value", (shared,), value_depth),
        }
    if encoding:
        call["encoding"] = encoding
    if "packed" in layers:
        call["query_starts"] = np.cumsum((0, *sizes.queries))
    if "paged" in layers:
        call |= _table(draft, call)
    elif "packed" in layers:
        call["key_starts"] = np.cumsum((0, *sizes.keys))
    return call | _lists(draft)


def _held(draft: _Draft, name: str, heads: tuple[int, ...], depth: int) -> Arguments:
    """Draw an array of keys, values or latent vectors, in pages or not, of numbers or of codes."""
    sizes, coded = draft.sizes, bool(draft.encoding) and name != "key_rotary"
    if "paged" in draft.layers:
        shape: tuple[int, ...] = (len(sizes.keys) * draft.table + 1, *heads, sizes.page, depth)
    else:
        shape = (*draft.batch, *heads, draft.shape[-1], depth)
    stored = f"{name}_pages" if "paged" in draft.layers else f"{name}_codes" if coded else name
    if not coded:
        return {stored: draft.numbers(*shape)}
    granularity = draft.random.choice(3)
    scale = ((1,), (*shape[:-2], 1, 1), (*shape[:-1], 1))[granularity]
    # Codes from 1 to 63 are numbers of moderate size in each encoding of 8 bits.
    sign, most = (8, 8) if draft.encoding == "e2m1fn" else (128, 64)
    codes = draft.random.integers(1, most, shape) + draft.random.choice([0, sign], shape)
    scales = draft.random.choice([0.0625, 0.05, 0.3, 0.11], scale)
    if draft.encoding == "int8":
        codes, scales = codes - 96, scales / 16
    width = np.int8 if draft.encoding == "int8" else np.uint8
    # Of float32, so that float64 holds the product with a code.
    held: Arguments = {
        stored: codes.astype(width),
        f"{name}_scales": scales.astype(np.float32).astype(draft.dtype),
    }
    if draft.encoding == "int8":
        held[f"{name}_zero_points"] = draft.random.integers(-9, 10, (*shape[:-2], 1, 1))
    return held


def _table(draft: _Draft, call: Arguments) -> Arguments:
    """List the pages of each sequence in any order, and put large numbers in places that are not read."""
    sizes = draft.sizes
    count = len(sizes.keys)
    table = draft.random.permutation(count * draft.table).reshape(count, draft.table)
    read = np.zeros((count * draft.table + 1, sizes.page), bool)
    for entry, length in enumerate(sizes.keys):
        for j in range(length):
            read[table[entry, j // sizes.page], j % sizes.page] = True
    for name, pages in call.items():
        if name.endswith("_pages"):
            np.moveaxis(pages, -2, 1)[~read] = _UNREAD if pages.dtype.kind == "f" else _UNREAD_CODE
    unread = np.arange(draft.table) * sizes.page >= np.array(sizes.keys)[:, None]
    return {"block_table": np.where(unread, -1, table), "key_lengths": np.array(sizes.keys)}


def _lists(draft: _Draft) -> Arguments:
    """Draw lists of keys or blocks, which name few keys of another sequence."""
    *outer, queries, keys = draft.shape
    rows, columns = draft.sizes.blocks
    if "block_sparse" in draft.layers:
        blocks = (*outer, -(-queries // rows), -(-keys // columns))
        sizes = {"query_block": rows, "key_block": columns}
        if draft.random.random() < 0.5:
            return sizes | {"block_mask": draft.random.random(blocks) < 0.6}
        counts = draft.random.integers(0, min(blocks[-1], 3) + 1, blocks[:-1])
        return sizes | {"block_counts": counts, "block_indices": draft.random.random(blocks).argsort(axis=-1)}
    if "listed" not in draft.layers:
        return {}
    heads = () if "latent" in draft.layers else (draft.sizes.heads[1],)
    width = min(keys, 6)
    lists = draft.random.random((*draft.batch, *heads, queries, keys)).argsort(axis=-1)[..., :width]
    return {"key_indices": np.where(draft.random.random(lists.shape) < 0.2, -1, lists)}


# The options of a call.


def _segments(draft: _Draft) -> Arguments:
    *_, queries, keys = draft.shape
    sequences = (len(draft.sizes.keys),) if "paged" in draft.layers else draft.batch
    return {
        "query_segment_ids": draft.random.integers(0, 2, (*draft.batch, queries)),
        "key_segment_ids": draft.random.integers(0, 2, (*sequences, keys)),
    }


def _positions(draft: _Draft) -> Arguments:
    *_, queries, keys = draft.shape
    sequences = (len(draft.sizes.keys),) if "paged" in draft.layers else draft.batch
    return {
        "query_positions": draft.random.integers(0, 6, (*draft.batch, queries)),
        "key_positions": draft.random.integers(-1, 6, (*sequences, keys)),
        "is_causal": True,
    }


def _padding(draft: _Draft) -> Arguments:
    padding = np.minimum(draft.of_sequences(0, 3), np.array(draft.sizes.keys))
    return {"left_padding": padding, "is_causal": True}


def _offset(draft: _Draft) -> Arguments:
    return {"is_causal": True, "query_offset": draft.of_sequences(-1, 4)}


def _together(draft: _Draft) -> Arguments:
    """Draw the options that served models have at once."""
    return _sinks(draft) | {"softcap": 2.0, "window": (2, 0), "is_causal": True, "scale": 0.4}


def _sinks(draft: _Draft) -> Arguments:
    return {"sinks": draft.numbers(draft.sizes.heads[0])}


#: Each option, the rules that it has in a call of attention, and how to draw it.
OPTIONS: Mapping[str, tuple[tuple[str, ...], Callable[[_Draft], Arguments]]] = {
    "nothing": (("STACK-1",), lambda _: {}),
    "causality": (("MASK-3",), lambda _: {"is_causal": True}),
    "offsets": (("MASK-7", "MASK-3"), _offset),
    "window": (("MASK-8",), lambda _: {"window": (2, 1)}),
    "sinks": (("SOFT-5",), _sinks),
    "softcap": (("SCORE-5",), lambda _: {"softcap": 1.5}),
    "scale": (("SCORE-3",), lambda _: {"scale": -0.75}),
    "mask": (("MASK-1",), lambda draft: {"mask": draft.random.random(draft.shape[-3:]) < 0.7}),
    "bias": (("SCORE-4",), lambda draft: {"bias": draft.numbers(*draft.shape[-2:], amplitude=0.5)}),
    "query lengths": (
        ("STACK-3",),
        lambda draft: {"query_lengths": draft.of_sequences(0, min(1, draft.shape[-2]))},
    ),
    "key lengths": (
        ("STACK-3",),
        lambda draft: {"key_lengths": draft.of_sequences(0, min(draft.sizes.keys))},
    ),
    "segments": (("MASK-11",), _segments),
    "positions": (("MASK-14", "MASK-3"), _positions),
    "left padding": (("PAGE-6", "MASK-3"), _padding),
    "dropout": (
        ("DROP-1", "DROP-2"),
        lambda draft: {"dropout_mask": draft.random.random(draft.shape) < 0.7, "dropout_rate": 0.3},
    ),
    "all together": (("SCORE-3", "SCORE-5", "MASK-3", "MASK-8", "SOFT-5"), _together),
}


def options_of(layers: tuple[str, ...]) -> tuple[str, ...]:
    """Name the options that a form or a stack has."""
    lacks = {"key lengths"} if "paged" in layers else {"left padding"}
    return tuple(name for name in OPTIONS if name not in lacks)


def draw_call(
    random: Random, dtype: str, layers: tuple[str, ...], sizes: Sizes, option: str = "nothing"
) -> Arguments:
    """Draw a call with an option."""
    draft = _Draft(random, dtype, layers, sizes)
    return draw_stack(random, dtype, layers, sizes) | OPTIONS[option][1](draft)


# Groups of cases.

#: The stacks of served models, which meet every option.
_SERVED = (
    "packed_paged_attention",
    "packed_paged_quantized_attention",
    "packed_paged_latent_attention",
    "packed_paged_quantized_listed_latent_attention",
)
#: How many of the other stacks meet each option.
_OTHERS = 6
_REST = Sizes(rest=(2, 3))
#: A batch of decoding, of chunks of a prompt and of sequences without keys or without queries.
_MIXED = Sizes(queries=(1, 4, 0, 1, 2), keys=(9, 4, 3, 0, 7), heads=(4, 1), page=4)
#: The sizes of calls whose sequences begin and end at tiles.
TILES: Mapping[str, Sizes] = {
    "16": Sizes(
        queries=(16, 1, 17), keys=(33, 17, 48), page=16, blocks=(16, 16), heads=(2, 1), depths=(8, 8)
    ),
    "64": Sizes(queries=(3, 65), keys=(65, 129), page=64, blocks=(32, 64), heads=(2, 1), depths=(8, 8)),
}


def _turn(name: str, option: int) -> bool:
    """Whether an operation meets an option. Each option meets some of those that are not served."""
    return name in STACKS and (tuple(STACKS).index(name) + option) % (len(STACKS) // _OTHERS) == 0


def _case(random: Random, dtype: str, sizes: Sizes, option: str = "nothing") -> Call:
    """Draw a case of an operation."""
    sizes_of_tiles = replace(sizes, name="") in TILES.values()
    rules = OPTIONS[option][0]
    rules = rules if rules == ("STACK-1",) else tuple(dict.fromkeys(("STACK-2", *rules)))
    call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, option)
    # The weights of tiles are ten times as large as all else, and few functions return them.
    outputs = ("output", "lse") if sizes_of_tiles else ()
    return Call(call, rules, operation=sizes.name, outputs=outputs)


@chapter.group("STACK-1")
def several_forms(draw: Draw) -> Iterator[Yielded]:
    """Several forms store one call, with and without rows and places that nothing reads."""
    calls = [replace(sizes, name=name) for sizes in (Sizes(), _REST) for name in STACKS]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        case = _case(random, dtype, sizes)
        maxima = replace(case, arguments={**case.arguments, "return_max": True}, rules=("STACK-1", "SOFT-8"))
        yield maxima if any(sizes.rest) else case


@chapter.group("STACK-2", each=tuple(OPTIONS)[1:])
def forms_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option of attention acts in a form or a stack as it does without forms."""
    place = tuple(OPTIONS).index(option)
    names = [name for name in STORED if option in options_of(STORED[name].layers)]
    chosen = [name for name in names if name in (*FORMS, *_SERVED) or _turn(name, place)]
    calls = [replace(_REST if len(name) % 2 else Sizes(), name=name) for name in chosen]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        yield _case(random, dtype, sizes, option)


@chapter.group("STACK-1")
def batch_of_decoding_and_prefill(draw: Draw) -> Iterator[Yielded]:
    """Sequences with one query, with a chunk of a prompt, without queries and without keys are in one row."""
    calls = [replace(_MIXED, name=name) for name in (*_SERVED, _SERVED[0]) * 2]
    for index, (random, dtype, sizes) in enumerate(draw_in_turn(draw, *calls)):
        option = "all together" if index <= len(_SERVED) else "causality"
        case = _case(random, dtype, sizes, option)
        yield replace(case, rules=("STACK-1", "PACK-2", "PAGE-7", *OPTIONS[option][0]))


@chapter.group("STACK-2", each=tuple(name for name in OPTIONS if name not in ("nothing", "key lengths")))
def mixed_batch_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option acts on a batch of decoding and of chunks, at small sizes and at those of tiles."""
    place = tuple(OPTIONS).index(option)
    forms = [name for name in FORMS if option in options_of(FORMS[name].layers)]
    names = [name for name in _SERVED if option in options_of(STACKS[name].layers)]
    calls = [replace(_MIXED, name=name) for name in names]
    # Every second call is in float32, so that each size of tiles is.
    calls += [replace(TILES[size], name=names[0]) for size in ("16", "64", "64", "16")]
    calls += [
        replace(TILES[size], name=forms[(place + turn) % len(forms)])
        for turn, size in enumerate(("16", "64", "16"))
    ]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        yield _case(random, dtype, sizes, option)


@chapter.group("PACK-3")
def rows_past_the_last_sequence(draw: Draw) -> Iterator[Yielded]:
    """The row of packed queries is longer than its sequences, with sinks."""
    calls = [replace(_REST, name=name) for name in (*_SERVED, "packed_quantized_attention")]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        yield replace(_case(random, dtype, sizes, "sinks"), rules=("PACK-3", "SOFT-5"))


@chapter.group("STACK-1", each=tuple(TILES))
def forms_across_tiles(draw: Draw, size: str) -> Iterator[Yielded]:
    """Sequences begin and end inside tiles, at their edges and one after them."""
    others = (name for name in STACKS if name not in _SERVED and _turn(name, int(size)))
    names = [*_SERVED, *others, *FORMS]
    for random, dtype, sizes in draw_in_turn(draw, *(replace(TILES[size], name=name) for name in names)):
        case = _case(random, dtype, sizes, "all together")
        yield replace(case, rules=("STACK-1", *case.rules))


@chapter.group("STACK-1", each=("int32", "uint8"))
def integers_of_other_dtypes(draw: Draw, width: str) -> Iterator[Yielded]:
    """Tables, lengths and boundaries have other dtypes of integers."""
    for random, dtype, sizes in draw_in_turn(draw, *(Sizes(name=name) for name in _SERVED)):
        case = _case(random, dtype, sizes)
        names = ("block_table", "key_lengths", "query_starts")
        arguments = dict(case.arguments)
        arguments["block_table"] = np.maximum(arguments["block_table"], 0)
        yield replace(case, arguments=arguments | {own: arguments[own].astype(width) for own in names})


@chapter.group("STACK-3")
def used_lengths(draw: Draw) -> Iterator[Yielded]:
    """Sequences of a row use fewer queries and keys than they have rows."""
    calls = [replace(_REST, name=name) for name in STORED if name.startswith("packed")]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        case = _case(random, dtype, sizes, "sinks")
        lengths: Arguments = {"query_lengths": random.integers(0, 4, len(_REST.queries))}
        if "key_starts" in case.arguments:
            lengths["key_lengths"] = random.integers(0, 5, len(_REST.keys))
        yield replace(case, arguments={**case.arguments, **lengths}, rules=("STACK-3", "SOFT-5"))


@chapter.group("STACK-4")
def not_a_number_in_unread_places(draw: Draw) -> Iterator[Yielded]:
    """NaN and infinity stand in rows of no sequence, and in unread places of pages and their scales."""
    calls = [replace(_REST, name=name) for name in STACKS if {"packed", "paged"} & {*STACKS[name].layers}]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        case = _case(random, dtype, sizes)
        yield replace(case, arguments=_poisoned(random, sizes, case.arguments), rules=("STACK-4",))


def _poisoned(random: Random, sizes: Sizes, arguments: Mapping[str, Any]) -> Arguments:
    """Put NaN or infinity where no query reads."""
    call = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in arguments.items()}
    poison = (np.nan, np.inf)[int(random.integers(2))]
    for name, array in call.items():
        if name.endswith("_pages") and array.dtype.kind == "f":
            array[array == _UNREAD] = poison
        if "packed" not in name and name in ("query", "query_rotary") and "query_starts" in call:
            array[:, call["query_starts"][-1] :] = poison
        if name in ("key", "value", "latent", "key_rotary") and "key_starts" in call:
            array[..., call["key_starts"][-1] :, :] = poison
    return call | _poisoned_scales(call, poison, sizes)


def _poisoned_scales(call: Arguments, poison: float, sizes: Sizes) -> Arguments:
    """Give each place of the pages a scale of its own, which is a number where the place is read."""
    scales: Arguments = {}
    if "block_table" not in call:
        return scales
    for name in [name for name in call if name.endswith("_scales")]:
        pages = call[name.replace("_scales", "_pages")]
        read = np.zeros((len(pages), sizes.page), bool)
        for entry, length in enumerate(sizes.keys):
            for j in range(length):
                read[call["block_table"][entry, j // sizes.page], j % sizes.page] = True
        shape = (len(pages), *(1,) * (pages.ndim - 3), sizes.page, 1)
        scales[name] = np.where(read.reshape(shape), 0.25, poison).astype(call[name].dtype)
    return scales


@chapter.group("SOFT-8")
def maxima_in_forms(draw: Draw) -> Iterator[Yielded]:
    """The maximum of a row is that of its sequence, of its blocks or of its lists."""
    for random, dtype, sizes in draw_in_turn(draw, *(replace(_REST, name=name) for name in FORMS)):
        case = _case(random, dtype, sizes)
        yield replace(case, arguments={**case.arguments, "return_max": True}, rules=("STACK-2", "SOFT-8"))
