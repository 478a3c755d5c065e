"""The chapter `invariance`: bits that do not move with the batch, padding, chunks, layout and other calls."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.judge.layout import OF_ANY_NUMBERS
from attnspec.conformance.relations.bits import (
    ALL,
    Part,
    same_after_others,
    same_as_the_whole,
    same_from_threads,
)
from attnspec.conformance.suite.group import Arguments, Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Shape

chapter = Chapter("invariance")

#: Past the tiles of most kernels, and no multiple of them. The first has a key head for each query head.
_SHAPES = (Shape((3, 4), 70, 300, 64, 64), Shape((3, 4), 70, 300, 64, 64, groups=2))
#: The problems of a group. Where kernels choose a path by the heads, there is one more.
_DRAWN = ((_SHAPES[0], "float32"), (_SHAPES[1], "bfloat16"))
_MORE = (*_DRAWN, (_SHAPES[1], "float32"))
#: The prompt of which every query is also a step of decoding.
_PROMPT = Shape((2, 4), 140, 140, 64, 64, groups=2)
_ARRAYS = ("query", "key", "value")


@lru_cache(maxsize=64)
def _normal(shape: tuple[int, ...], dtype: str, seed: int) -> NDArray[Any]:
    """Draw numbers with all their digits, so that each order of a sum has its own roundings."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def _problem(draw: Draw, shape: Shape, dtype: str, index: int = 0) -> dict[str, Any]:
    """Draw query, key and value; the same for all groups, as each of them is large."""
    seed = 0 if draw.seed is None else draw.number()
    shapes = draw.shapes(shape)
    return {name: _normal(shapes[name], dtype, seed + 10 * index + n) for n, name in enumerate(_ARRAYS)}


def _problems(draw: Draw, drawn: tuple[tuple[Shape, str], ...] = _DRAWN) -> Iterator[dict[str, Any]]:
    for shape, dtype in drawn:
        yield _problem(draw, shape, dtype)


def _relate(whole: Arguments, *others: tuple[Arguments, Part]) -> Calls:
    calls = (whole, *(arguments for arguments, _ in others))
    parts = [[part] for _, part in others]
    return Calls(calls, same_as_the_whole(*parts), live=True, beside=True, bits=True)


def _entries(batch: Arguments, entries: slice) -> dict[str, Any]:
    return {name: array[entries] for name, array in batch.items()}


@chapter.group("NUM-10")
def large_batch_entry_alone(draw: Draw) -> Iterator[Yielded]:
    """Each batch entry of a large problem has the same bits alone as in its batch."""
    for batch in _problems(draw, _MORE):
        alone = [slice(n, n + 1) for n in range(3)]
        yield _relate(batch, *((_entries(batch, entry), Part(whole=(entry, ALL, ALL))) for entry in alone))


@chapter.group("INV-1")
def place_in_the_batch(draw: Draw) -> Iterator[Yielded]:
    """A batch in another order gives the same bits in that order."""
    for batch in _problems(draw):
        calls = [batch, *({n: np.roll(x, by, axis=0) for n, x in batch.items()} for by in (1, 2))]
        moved = [[_move(n, (n + by) % 3) for n in range(3)] for by in (1, 2)]
        yield Calls(tuple(calls), same_as_the_whole(*moved), live=True, beside=True, bits=True)


def _move(before: int, after: int) -> Part:
    return Part((slice(after, after + 1), ALL, ALL), (slice(before, before + 1), ALL, ALL))


_FIRST = Part((slice(0, 1), ALL, ALL), (slice(0, 1), ALL, ALL))


@chapter.group("INV-2", each=("numbers", "count", "key_lengths"))
def other_entries(draw: Draw, changed: str) -> Iterator[Yielded]:
    """The first batch entry has the same bits beside others of other numbers, count or lengths."""
    for batch in _problems(draw):
        lengths = np.array([130, 300, 200])
        if changed == "numbers":
            others = {name: np.concatenate([x[:1], 8 * x[:0:-1]]) for name, x in batch.items()}
            yield _relate(batch, (others, _FIRST))
        elif changed == "count":
            more = {name: np.concatenate([x, x[1:]]) for name, x in batch.items()}  # five entries
            yield _relate(batch, (_entries(batch, slice(0, 2)), _FIRST), (more, _FIRST))
        else:
            said = [batch | {changed: np.array([130, *rest])} for rest in ((1, 131), (300, 300))]
            yield _relate(batch | {changed: lengths}, *((options, _FIRST) for options in said))


@chapter.group("INV-3", each=("key_lengths", "query_lengths"))
def padding(draw: Draw, name: str) -> Iterator[Yielded]:
    """Rows within the lengths have the same bits in longer arrays, with large numbers in the padding."""
    arrays = ("key", "value") if name == "key_lengths" else ("query",)
    for batch in _problems(draw):
        size = batch[arrays[0]].shape[-2]
        lengths = np.array([size // 2 - 1, size, 1])
        whole = batch | {name: lengths}
        part = Part((ALL, ALL, slice(0, batch["query"].shape[-2])))
        longer = ({array: _pad(batch[array], by) for array in arrays} for by in (size, 3 * size))
        yield _relate(whole, *((whole | more, part) for more in longer))


def _pad(array: NDArray[Any], more: int) -> NDArray[Any]:
    """Add positions with numbers of about a hundred."""
    shape = (*array.shape[:-2], more, array.shape[-1])
    return np.concatenate([array, 100 * _normal(shape, str(array.dtype), 1)], axis=-2)


@chapter.group("INV-4", each=("all keys", "causal", "causal and keys so far"))
def chunks(draw: Draw, kind: str) -> Iterator[Yielded]:
    """Each chunk of the queries has the same bits as in the call with all queries."""
    for batch in _problems(draw):
        queries, keys = batch["query"].shape[-2], batch["key"].shape[-2]
        before = keys - queries
        causal = {"is_causal": True, "query_offset": before}
        unit = draw.constraints.multiple[0]
        cuts = sorted({min(queries, size + -size % unit) for size in (1, 33, 64)} | {0, queries})
        others = []
        for start, end in pairwise(cuts):
            rows = slice(start, end)
            chunk = batch | {"query": batch["query"][..., rows, :]}
            if kind != "all keys":
                chunk |= {"is_causal": True, "query_offset": before + start}
            if kind == "causal and keys so far":
                chunk |= {name: batch[name][..., : before + end, :] for name in ("key", "value")}
            others.append((chunk, Part(whole=(ALL, ALL, rows))))
        yield _relate(batch if kind == "all keys" else batch | causal, *others)


@chapter.group("INV-5", each=("growing keys", "key_lengths"))
def decoding(draw: Draw, kind: str) -> Iterator[Yielded]:
    """A query alone, with the keys up to its own, has the same bits as in the causal call."""
    for shape, dtype in _DRAWN:
        prompt = _problem(draw, _PROMPT._replace(groups=shape.groups), dtype)
        others = []
        for position in (1, 63, 128):
            row = slice(position, position + 1)
            step = {"query": prompt["query"][..., row, :]}
            if kind == "growing keys":
                step |= {name: prompt[name][..., : position + 1, :] for name in ("key", "value")}
            else:
                step |= {"key_lengths": position + 1}
            others.append((prompt | step, Part(whole=(ALL, ALL, row))))
        # The steps are not causal: query 0 of a causal call has one key.
        calls = (prompt | {"is_causal": True}, *(step for step, _ in others))
        run = same_as_the_whole(*([part] for _, part in others))
        yield Calls(calls, run, live=True, bits=True)


@chapter.group("INV-6", each=OF_ANY_NUMBERS)
def layout(draw: Draw, kind: str) -> Iterator[Yielded]:
    """Arrays that lie otherwise in memory give the same bits."""
    for batch in _problems(draw):
        laid = Call(batch, layout=dict.fromkeys(batch, kind))
        yield Calls((batch, laid), same_as_the_whole([Part()]), live=True, beside=True, bits=True)


@chapter.group("INV-7")
def other_calls_between(draw: Draw) -> Iterator[Yielded]:
    """A result keeps its bits, and the call repeated gives them again, after calls of other sizes."""
    for shape, dtype in _DRAWN:
        yield Calls(_different(draw, shape, dtype), same_after_others, live=True, beside=True, bits=True)


@chapter.group("INV-8")
def threads(draw: Draw) -> Iterator[Yielded]:
    """Calls that several threads make at once have the bits that each has alone."""
    for shape, dtype in _DRAWN:
        yield Calls(_different(draw, shape, dtype), same_from_threads, live=True, beside=True, bits=True)


def _different(draw: Draw, shape: Shape, dtype: str) -> tuple[Mapping[str, Any], ...]:
    """Draw a problem, one of the same sizes, a longer one and one with a single query."""
    small = shape._replace(outer=(1, 4), queries=shape.queries // 2, keys=shape.keys // 2)
    shapes = (small, small, shape, small._replace(queries=1))
    return tuple(_problem(draw, shape, dtype, index) for index, shape in enumerate(shapes))


@chapter.group("INV-9")
def heads_alone(draw: Draw) -> Iterator[Yielded]:
    """A query head alone, and a key head with all of its query heads, has the bits that it has among all."""
    for batch in _problems(draw, _MORE):
        heads, shared = batch["query"].shape[-3], batch["key"].shape[-3]
        group = heads // shared
        others = []
        for first, count in ((0, 1), (heads - 1, 1), (heads // 2, group)):
            own, key = slice(first, first + count), slice(first // group, first // group + 1)
            taken = {name: x[:, own if name == "query" else key] for name, x in batch.items()}
            others.append((taken, Part(whole=(ALL, own, ALL))))
        yield _relate(batch, *others)
