"""The chapter `caching`: caches, steps, pages."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Problem, Shape, grid

chapter = Chapter("caching")

#: A sequence of six, attending to itself.
_SEQUENCES = (Shape((2, 2), 6, 6, 4, 4), Shape((2, 4), 6, 6, 4, 4, groups=2))
#: The places where it is split into steps.
_CUTS = {"one": (5,), "several": (3,), "one by one": (3, 4, 5), "nothing before": (2,)}
#: The number in the unused part of a cache and in pages of other sequences.
_GARBAGE = 1000


@chapter.group("CACHE-1", operation="append_cache", each=(0, 1, 3))
def appending(draw: Draw, count: int) -> Iterator[Yielded]:
    """No, one or several positions are appended at every length at which they fit, also with two axes."""
    for random, dtype in draw.generators():
        outer: tuple[int, ...] = (2, 3) if random.random() < 0.7 else ()
        lengths: Any = int(random.integers(0, 7 - count))
        if outer and random.random() < 0.7:
            lengths = random.integers(0, 7 - count, 2)
        yield {
            "cache": grid(random, (*outer, 6, 4), 1.0).astype(dtype),
            "new": grid(random, (*outer, count, 4), 1.0).astype(dtype),
            "lengths": lengths,
        }


@chapter.group("CACHE-3", each=tuple(_CUTS))
def steps(draw: Draw, cuts: str) -> Iterator[Yielded]:
    """Later rows that are computed from all keys with an offset equal those of the full pass."""
    for problem in draw.problems(_SEQUENCES, 3):
        for start, stop in _steps(_CUTS[cuts]):
            query = {"query": problem.query[..., start:stop, :]}
            yield problem.arguments | query | {"is_causal": True, "query_offset": start}


@chapter.group("CACHE-3", "CACHE-1", each=("causality", "key_lengths"))
def steps_with_a_cache(draw: Draw, by: str) -> Iterator[Yielded]:
    """A cache larger than the sequence is filled step by step, and its unused part holds large numbers."""
    for problem in draw.problems(_SEQUENCES, 2):
        caches = {
            name: np.full((*problem.key.shape[:-2], 8, problem.key.shape[-1]), _GARBAGE, problem.key.dtype)
            for name in ("key", "value")
        }
        for start, stop in _steps((3, 5)):
            for name, cache in caches.items():
                new = problem.arguments[name][..., start:stop, :]
                yield Call(
                    {"cache": cache, "new": new, "lengths": start}, ("CACHE-1",), operation="append_cache"
                )
                caches[name] = _appended(cache, new, start)
            arguments: dict[str, Any] = {"query": problem.query[..., start:stop, :], **caches}
            arguments |= {"is_causal": True, "query_offset": start}
            if by == "key_lengths":
                arguments["key_lengths"] = stop
            yield Call(arguments, ("CACHE-3",))


@chapter.group("CACHE-4", operation="gather_pages")
def pages_in_any_order(draw: Draw) -> Iterator[Yielded]:
    """Pages are gathered in any order, shared by sequences, used twice by one, or of one sequence alone."""
    for random, dtype in draw.generators():
        yield {
            "pages": grid(random, (5, 2, 3, 4), 1.0).astype(dtype),
            "block_table": random.integers(0, 5, (2, 3) if random.random() < 0.7 else (4,)),
        }


@chapter.group("CACHE-4", "MASK-9")
def attention_over_pages(draw: Draw) -> Iterator[Yielded]:
    """Attention over gathered pages, the last of them not full, is attention over the keys themselves."""
    for problem in draw.problems(_SEQUENCES, 3):
        keys = problem.key.shape[-2]
        key_pages, value_pages, table = _paged(problem, 4)
        gathered = {}
        for name, pages in (("key", key_pages), ("value", value_pages)):
            yield Call({"pages": pages, "block_table": table}, ("CACHE-4",), operation="gather_pages")
            gathered[name] = _gathered(pages, table)
        # The rules of attention only, because a backend may lack tables of pages.
        yield Call({"query": problem.query, **gathered, "key_lengths": keys}, ("MASK-9",))


def _steps(cuts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return pairwise((0, *cuts, 6))


def _appended(cache: Any, new: Any, start: int) -> Any:
    filled = cache.copy()
    filled[..., start : start + new.shape[-2], :] = new
    return filled


def _paged(problem: Problem, size: int) -> tuple[Any, Any, Any]:
    """Store the keys and values of batch entries in pages, in any order, among pages of other sequences."""
    batch, heads, keys, _ = problem.key.shape
    count = -(-keys // size)
    table = problem.random.permutation(batch * count + 2)[: batch * count].reshape(batch, count)
    paged = []
    for array in (problem.key, problem.value):
        pages = np.full((batch * count + 2, heads, size, array.shape[-1]), _GARBAGE, array.dtype)
        for entry in range(batch):
            for position in range(keys):
                pages[table[entry, position // size], :, position % size] = array[entry, :, position]
        paged.append(pages)
    return paged[0], paged[1], table


def _gathered(pages: Any, table: Any) -> Any:
    """Concatenate the pages of each batch entry."""
    return np.stack([np.concatenate(pages[row], axis=-2) for row in table])
