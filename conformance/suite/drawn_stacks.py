"""Draws calls of the chapter `stacks`: arrays as several forms store them, and options of attention."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.conformance.suite import words
from attnspec.conformance.suite.problem import grid

Arguments = dict[str, Any]
Random = np.random.Generator
#: The number in places of pages that no query reads, and the code there, which is NaN or large.
UNREAD, _UNREAD_CODE = 1000, 127
ENCODINGS = ("int8", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1fn")


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
    spare: int = 1  # pages of a table past the longest sequence
    listed: int = 6  # the width of lists of keys
    encoding: str = ""  # one that is drawn if it is empty


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
        """The number of pages of a sequence: those of the longest one, and some more."""
        return -(-max(self.sizes.keys, default=1) // self.sizes.page) + self.sizes.spare

    def numbers(self, *shape: int, amplitude: float = 1.0) -> NDArray[Any]:
        """Draw signed numbers that every dtype holds."""
        return grid(self.random, shape, amplitude).astype(self.dtype)

    def of_sequences(self, low: int, high: int) -> NDArray[np.int64]:
        """Draw an integer for each sequence."""
        return self.random.integers(low, high + 1, len(self.sizes.queries))


def draw_stack(random: Random, dtype: str, layers: tuple[str, ...], sizes: Sizes) -> Arguments:
    """Draw a call: queries, and keys and values as the forms store them."""
    encoding = sizes.encoding or ENCODINGS[int(random.integers(len(ENCODINGS)))]
    encoding = encoding if "quantized" in layers else ""
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
            np.moveaxis(pages, -2, 1)[~read] = UNREAD if pages.dtype.kind == "f" else _UNREAD_CODE
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
    width = min(keys, draft.sizes.listed)
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
        lambda draft: {"key_lengths": draft.of_sequences(0, min(draft.sizes.keys, default=0))},
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


def draw_call(random: Random, dtype: str, layers: tuple[str, ...], sizes: Sizes, *options: str) -> Arguments:
    """Draw a call with some options."""
    draft = _Draft(random, dtype, layers, sizes)
    call = draw_stack(random, dtype, layers, sizes)
    for option in options:
        call |= OPTIONS[option][1](draft)
    return call


#: Options that a call has at once: with offsets, with positions, and aligned at the end.
TOGETHER: Mapping[str, tuple[str, ...]] = {
    "offsets": ("scale", "softcap", "bias", "offsets", "sinks", "query lengths", "dropout", "mask"),
    "positions": ("softcap", "positions", "sinks", "segments", "key lengths", "left padding"),
    "positions alone": ("bias", "positions", "sinks", "dropout"),
    "ends": ("bias", "causality", "sinks", "query lengths", "key lengths", "left padding"),
}


def _weaker(draft: _Draft, call: Arguments) -> Arguments:
    """Draw masks and lengths of a call again, so that they leave something to other options."""
    random, sizes, keys = draft.random, draft.sizes, draft.shape[-1]
    weaker: Arguments = {
        "mask": random.random(draft.shape[-3:]) < 0.85,
        "query_segment_ids": (random.random((*draft.batch, draft.shape[-2])) < 0.1).astype(np.int64),
        "key_segment_ids": (random.random(np.shape(call.get("key_segment_ids", ()))) < 0.2).astype(np.int64),
        "query_lengths": draft.of_sequences(max(sizes.queries) - 2, max(sizes.queries)),
        "left_padding": np.minimum(draft.of_sequences(0, 2), np.array(sizes.keys) // 3),
    }
    if "paged" not in draft.layers:
        weaker["key_lengths"] = draft.of_sequences(min(4, keys), min(9, keys))
    return {name: x for name, x in weaker.items() if name in call}


def draw_beside(
    random: Random, dtype: str, layers: tuple[str, ...], sizes: Sizes, *options: str
) -> Arguments:
    """Draw a call with some options, each of which leaves something to the others."""
    call = draw_call(random, dtype, layers, sizes, *options)
    return call | _weaker(_Draft(random, dtype, layers, sizes), call)


def draw_together(
    random: Random, dtype: str, layers: tuple[str, ...], sizes: Sizes, together: str
) -> Arguments:
    """Draw a call with many options, each of which matters although the others do too."""
    draft = _Draft(random, dtype, layers, sizes)
    call = draw_stack(random, dtype, layers, sizes)
    for name in TOGETHER[together]:
        if name in options_of(layers):
            call |= OPTIONS[name][1](draft)
    call |= _weaker(draft, call)
    call |= draw_finer(random, call, together)
    alone = {"is_causal": together != "positions alone", "return_max": True}
    windows: Mapping[str, Arguments] = {"offsets": {"window": (5, 4)}, "positions": {"window": (2, 1)}}
    return call | alone | windows.get(together, {})


def with_batch_axes(name: str, call: Mapping[str, Any], count: int) -> Arguments:
    """Give the arrays of a call two batch axes instead of one, or leave the first entry alone."""
    form, changed = OPERATIONS[name], dict(call)
    for own, array in call.items():
        shape = form.arguments[own].shape
        if shape[:1] == ("*B",) and np.ndim(array) == len(shape) and len(array) > 1:
            first = array[0] if array.ndim > 1 else int(array[0])
            changed[own] = array.reshape(2, -1, *array.shape[1:]) if count else first
    return changed


def of_width(call: Arguments, place: int) -> Arguments:
    """Give the integers of a call that are no codes a narrow dtype or a wide one, by turns."""
    width = (16, 32, 64, 8)[place]
    return call | {
        name: x.astype(f"int{width}" if x.min(initial=0) < 0 else f"uint{width}")
        for name, x in call.items()
        if isinstance(x, np.ndarray) and x.dtype == np.int64
    }


def draw_finer(random: Random, call: Arguments, together: str) -> Arguments:
    """Give codes scales and zero points of blocks, channels or places, and integers of the other sign."""
    finer: Arguments = {}
    for name in [name for name in call if name.endswith("_scales")]:
        own = name.removesuffix("_scales")
        stored = f"{own}_pages" if f"{own}_pages" in call else f"{own}_codes"
        codes = call[stored]
        *outer, depth = codes.shape
        blocks = (*outer, depth if depth % 2 else depth // 2)
        shape = {"offsets": blocks, "positions": (depth,)}.get(together, (*outer, 1))
        unit = 1 / 16 if call["encoding"] == "int8" else 1
        scales = random.choice([0.0625, 0.05, 0.3, 0.11], shape) * unit
        finer[name] = scales.astype(np.float32).astype(call[name].dtype)
        if call["encoding"] == "int8":  # of an unsigned byte
            finer[stored] = (codes.astype(np.int64) + 128).astype(np.uint8)
            finer[f"{own}_zero_points"] = random.integers(64, 192, shape)
        elif call["encoding"] != "e2m1fn":
            finer[stored] = codes.view(np.int8)
    return finer
