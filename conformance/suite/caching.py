"""The chapter `caching`: caches of keys and values, and merging of partial results."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from attnspec import Case
from attnspec.backends import Backend
from attnspec.case import Misuse
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import SHAPES, Problem, Shape, grid
from attnspec.conformance.verdict import Difference
from attnspec.dtypes import DTYPES

chapter = Chapter("caching")

#: A sequence of six, attending to itself.
_SEQUENCES = (Shape((2, 2), 6, 6, 4, 4), Shape((2, 4), 6, 6, 4, 4, groups=2))
#: The places where it is split into steps.
_CUTS = {"one": (5,), "several": (3,), "one by one": (3, 4, 5), "nothing before": (2,)}
#: The number in the unused part of a cache and in pages of other sequences.
_GARBAGE = 1000
_WIDTHS = ("uint8", "int16", "uint32", "int64")


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
            "lengths": lengths if isinstance(lengths, int) else lengths.astype(random.choice(_WIDTHS)),
        }


@chapter.group("CACHE-1", "ERR-1", operation="append_cache")
def appending_another_dtype(draw: Draw) -> Iterator[Yielded]:
    """Numbers of more or fewer digits than the cache has are refused, or rounded once."""
    for dtype, other in permutations(DTYPES, 2):
        random = np.random.default_rng(draw.number())
        cache, new = grid(random, (2, 6, 4), 1.0).astype(dtype), random.normal(size=(2, 2, 4)).astype(other)
        misuse = Misuse("new", allowed=True)
        yield Call({"cache": cache, "new": new, "lengths": 3}, misuse=misuse)


@chapter.group("CACHE-1", operation="append_cache", each=(np.nan, np.inf))
def appending_to_numbers_that_are_none(draw: Draw, number: float) -> Iterator[Yielded]:
    """Positions that are not written hold NaN or infinity, and keep them, and a new one holds it too."""
    for random, dtype in draw.generators(1):
        cache = grid(random, (2, 3, 6, 4), 1.0).astype(dtype)
        new = grid(random, (2, 3, 2, 4), 1.0).astype(dtype)
        cache[0, 1, 4], cache[1, :, :3], new[1, 0, 1, 2] = number, -number, number
        yield {"cache": cache, "new": new, "lengths": np.array([1, 2])}


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
                caches[name] = _append(cache, new, start)
            arguments: dict[str, Any] = {"query": problem.query[..., start:stop, :], **caches}
            arguments |= {"is_causal": True, "query_offset": start}
            if by == "key_lengths":
                arguments["key_lengths"] = stop
            yield Call(arguments, ("CACHE-3",))


@chapter.group("CACHE-3", "MASK-9", each=("is_causal", "window"), step=1)
def steps_at_unequal_lengths(draw: Draw, option: str) -> Iterator[Yielded]:
    """The last query of each batch entry is at its last key, and the lengths differ."""
    for problem in draw.problems((Shape((3, 2), 1, 9, 4, 4), Shape((2, 2), 3, 7, 4, 4)), 2):
        queries, keys = problem.shape[-2:]
        lengths = keys - np.arange(problem.batch[-1]) * ((keys - queries) // 2)
        window = {"window": (2, 0)} if option == "window" else {}
        places = {"key_lengths": lengths, "query_offset": lengths - queries}
        yield problem.arguments | {"is_causal": True} | window | places


@chapter.group("CACHE-4", operation="gather_pages")
def pages_in_any_order(draw: Draw) -> Iterator[Yielded]:
    """Pages are gathered in any order, shared by sequences, used twice by one, or of one sequence alone."""
    for random, dtype in draw.generators():
        yield {
            "pages": grid(random, (5, 2, 3, 4), 1.0).astype(dtype),
            "block_table": random.integers(0, 5, (2, 3) if random.random() < 0.7 else (4,)).astype(
                random.choice(_WIDTHS)
            ),
        }


@chapter.group("CACHE-4", operation="gather_pages", each=(np.nan, np.inf))
def pages_of_numbers_that_are_none(draw: Draw, number: float) -> Iterator[Yielded]:
    """NaN or infinity is in pages that no table lists, and at one place of a page that a table lists."""
    for random, dtype in draw.generators(1):
        pages = grid(random, (5, 2, 3, 4), 1.0).astype(dtype)
        pages[[0, 3]], pages[1, 1, 2, 0] = number, -number
        yield {"pages": pages, "block_table": np.array([[4, 2], [1, 4]])}


@chapter.group("CACHE-4", operation="gather_pages")
def pages_beside_none(draw: Draw) -> Iterator[Yielded]:
    """A table has pages before, between and after entries of -1, or has none."""
    table = np.array([[4, -1, 2, -1], [-1, 0, -1, 3], [1, 2, 3, -1]])
    for random, dtype in draw.generators(2):
        pages = grid(random, (5, 2, 3, 4), 1.0).astype(dtype)
        yield {"pages": pages, "block_table": table}
    yield {"pages": pages.astype("float32"), "block_table": np.full_like(table, -1)}


@chapter.group("CACHE-4", "MASK-9")
def attention_over_pages(draw: Draw) -> Iterator[Yielded]:
    """Attention over gathered pages, the last of them not full, is attention over the keys themselves."""
    for problem in draw.problems(_SEQUENCES, 3):
        keys = problem.key.shape[-2]
        key_pages, value_pages, table = _store_in_pages(problem, 4)
        gathered = {}
        for name, pages in (("key", key_pages), ("value", value_pages)):
            yield Call({"pages": pages, "block_table": table}, ("CACHE-4",), operation="gather_pages")
            gathered[name] = _gather(pages, table)
        # The rules of attention only, because a backend may lack tables of pages.
        yield Call({"query": problem.query, **gathered, "key_lengths": keys}, ("MASK-9",))


def _steps(cuts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return pairwise((0, *cuts, 6))


def _append(cache: Any, new: Any, start: int) -> Any:
    filled = cache.copy()
    filled[..., start : start + new.shape[-2], :] = new
    return filled


def _store_in_pages(problem: Problem, size: int) -> tuple[Any, Any, Any]:
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


def _gather(pages: Any, table: Any) -> Any:
    """Concatenate the pages of each batch entry."""
    return np.stack([np.concatenate(pages[row], axis=-2) for row in table])


_SPLIT = (SHAPES[1], SHAPES[4], Shape((2, 4), 3, 5, 4, 4, groups=2))
#: The distance of lses from 0. The exponential of the second overflows, that of the third is 0.
_SHIFTS = {"near 0": 0, "far above": 10000, "far below": -10000}
#: The places where the keys are split: into parts of different sizes, or with an empty part.
_PARTS = {"two": (3,), "three": (1, 3), "an empty one": (0, 2), "an empty one last": (2, None)}


@chapter.group("CACHE-6", operation="merge_partials", each=tuple(_SHIFTS))
def merging(draw: Draw, shift: str) -> Iterator[Yielded]:
    """Parts are merged by lses near 0 and far from it, where their exponentials overflow or are 0."""
    for random, dtype in draw.generators():
        arguments = _parts(random, dtype)
        arguments["lses"] = (arguments["lses"] + _SHIFTS[shift]).astype(arguments["lses"].dtype)
        yield arguments


@chapter.group("CACHE-7", operation="merge_partials")
def no_parts(draw: Draw) -> Iterator[Yielded]:
    """There is no part, and so nothing to attend to."""
    for random, dtype in draw.generators(1):
        yield {name: x[:0] for name, x in _parts(random, dtype).items()}


@chapter.group("CACHE-7", operation="merge_partials", each=(0.0, 5.0, np.nan, np.inf, -np.inf))
def parts_with_nothing_to_attend_to(draw: Draw, poison: float) -> Iterator[Yielded]:
    """One part is empty, or two, or in one row all of them, whatever their outputs hold."""
    for random, dtype in draw.generators():
        arguments = _parts(random, dtype)
        empty = random.random((3, 2, 4)) < 0.4
        empty[:, 1, 2] = True
        arguments["lses"][empty] = -np.inf
        arguments["outputs"][empty] = poison
        clean = arguments | {"outputs": np.where(empty[..., None], 0, arguments["outputs"])}
        yield Call(arguments, expected=exact("merge_partials", clean))


@chapter.group("CACHE-9", operation="merge_partials", each=(np.nan, np.inf))
def parts_that_are_not_numbers(draw: Draw, number: float) -> Iterator[Yielded]:
    """The lse of one part is NaN or plus infinity in one row."""
    for random, dtype in draw.generators():
        arguments = _parts(random, dtype)
        arguments["lses"][0, 1, 2] = number
        arguments["lses"][2, 0, 1] = number
        arguments["lses"][1, 0, 1] = -np.inf
        yield arguments


@chapter.group("CACHE-9", "CACHE-7", operation="merge_partials", each=(np.nan, np.inf, -np.inf))
def one_part_that_is_no_number(draw: Draw, number: float) -> Iterator[Yielded]:
    """The lse of the only part is NaN or infinite in one row."""
    for random, dtype in draw.generators(1):
        arguments = {name: x[:1].copy() for name, x in _parts(random, dtype).items()}
        arguments["lses"][0, 1, 2] = number
        yield Call(arguments, ("CACHE-7" if number < 0 else "CACHE-9",))


@chapter.group("CACHE-10", "CACHE-6", "CACHE-7", "SOFT-6", "SOFT-7", each=tuple(_PARTS))
def parts_of_its_own(draw: Draw, cuts: str) -> Iterator[Yielded]:
    """Attention over parts of the keys, merged by the lse that it gave, is attention over all of them."""
    for problem in draw.problems(_SPLIT, 2):
        keys = problem.shape[-1]
        bounds = (0, *(keys if cut is None else cut for cut in _PARTS[cuts]), keys)
        yield Calls(
            tuple(_part(problem, start, stop) for start, stop in pairwise(bounds)),
            _merge_to_the_whole,
            live=True,
        )


def _parts(random: np.random.Generator, dtype: str) -> dict[str, Any]:
    """Draw three parts of (2, 4) rows, with values of depth 3."""
    return {
        "outputs": grid(random, (3, 2, 4, 3), 1.0).astype(dtype),
        "lses": grid(random, (3, 2, 4), 2.0).astype(lse_dtype(dtype)),
    }


def _part(problem: Problem, start: int, stop: int) -> Call:
    part = {name: problem.arguments[name][..., start:stop, :] for name in ("key", "value")}
    return Call(problem.arguments | part, outputs=("output", "lse"))


def _merge_to_the_whole(backend: Backend, cases: tuple[Case, ...]) -> Found:
    if backend.function("merge_partials") is None:
        raise Missing(f"{backend.name} has no merge_partials", "operation merge_partials")
    if not backend.has("attention", "return_lse"):
        raise Missing(f"{backend.name} returns no lse", "output lse")
    if {"SOFT-6", "SOFT-7"} & set(backend.dialect):
        raise Missing(f"{backend.name} declares another lse, by which parts cannot be merged")
    results = [observe(backend, case) for case in cases]
    outputs, lses = (np.stack([result[name] for result in results]) for name in ("output", "lse"))
    merge = replace(cases[0], operation="merge_partials", arguments={"outputs": outputs, "lses": lses})
    output = observe(backend, merge)["output"]
    whole = exact("attention", _whole(cases), backend.dialect)["output"]
    allowed = _inherited_error(backend, cases, whole) + budgets_of(backend, merge)["output"]
    compared = compare("output", output, whole, allowed, cases[0].dtype)
    return compared if isinstance(compared, Difference) else None


def _whole(cases: tuple[Case, ...]) -> dict[str, Any]:
    """Concatenate the parts of the keys."""
    joined = {
        name: np.concatenate([case.arguments[name] for case in cases], axis=-2) for name in ("key", "value")
    }
    return {**cases[0].arguments, **joined}


def _inherited_error(backend: Backend, cases: tuple[Case, ...], whole: Any) -> Any:
    """Bound the error of the merged output that is due to the outputs and lses of the parts."""
    parts = [exact(case.operation, case.arguments, backend.dialect) for case in cases]
    budgets = [budgets_of(backend, case) for case in cases]
    top = np.max([part["lse"] for part in parts], axis=0)
    rates = [np.exp(part["lse"] - top)[..., None] for part in parts]
    # The errors of two lses change a quotient of their exponentials by at most twice the largest error.
    worst = np.expm1(2 * np.max([budget["lse"] for budget in budgets], axis=0))[..., None]
    bound = np.zeros_like(whole)
    for rate, part, budget in zip(rates, parts, budgets, strict=True):
        share = rate / sum(rates)
        error = budget["output"] + worst * (np.abs(part["output"] - whole) + budget["output"])
        bound += share * (1 + worst) * error
    return bound
