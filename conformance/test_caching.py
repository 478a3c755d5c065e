"""The chapter `caching`: caches, steps, pages."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.suite.problem import SETTINGS, Problem, Shape, grid, problems
from attnspec.conformance.suite import Record, check, check_golden, exact, golden, observed, require, rule

#: A sequence of six, attending to itself.
_SEQUENCES = (Shape((2, 2), 6, 6, 4, 4), Shape((2, 4), 6, 6, 4, 4, groups=2))
#: Where it is cut: into a step of one, steps of several, one after the other.
_CUTS = {"one": (5,), "several": (3,), "one by one": (3, 4, 5), "nothing before": (0, 2)}


@golden("caching")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("CACHE-1")
@pytest.mark.parametrize("count", [0, 1, 3])
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_appending(
    count: int, seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Nothing, one or several positions, from the first to the last that fit; to two axes too."""
    require(backend, operation="append_cache")
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    outer: tuple[int, ...] = (2, 3) if random.random() < 0.7 else ()
    lengths = (
        random.integers(0, 7 - count, 2)
        if outer and random.random() < 0.7
        else int(random.integers(0, 7 - count))
    )
    arguments = {
        "cache": grid(random, (*outer, 6, 4), 1.0).astype(dtype),
        "new": grid(random, (*outer, count, 4), 1.0).astype(dtype),
        "lengths": lengths,
    }
    check(backend, "CACHE-1", arguments, record_property, operation="append_cache")


@rule("CACHE-3")
@pytest.mark.parametrize("cuts", _CUTS)
@SETTINGS
@given(data=st.data())
def test_steps_equal_the_full_pass(
    cuts: str, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Later rows, computed from all keys with an offset, are those of the full pass."""
    problem = data.draw(problems(backend, _SEQUENCES))
    whole = exact(problem.arguments | {"is_causal": True})
    for start, stop in _steps(_CUTS[cuts], 6):
        step = problem.arguments | {"query": problem.query[..., start:stop, :]}
        expected = {name: x[..., start:stop, :] for name, x in whole.items() if name != "lse"}
        if "SOFT-6" not in backend.dialect:
            expected["lse"] = whole["lse"][..., start:stop]
        arguments = step | {"is_causal": True, "query_offset": start}
        check(backend, "CACHE-3", arguments, record_property, expected=expected)


@rule("CACHE-3", "CACHE-1")
@pytest.mark.parametrize("by", ["causality", "key_lengths"])
@SETTINGS
@given(data=st.data())
def test_steps_with_a_cache(by: str, data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """A cache that is larger than the sequence, filled step by step; the rest of it holds large numbers."""
    require(backend, operation="append_cache")
    problem = data.draw(problems(backend, _SEQUENCES))
    whole = exact(problem.arguments | {"is_causal": True})["output"]
    caches = {
        name: np.full((*problem.key.shape[:-2], 8, 4), 1000, problem.key.dtype) for name in ("key", "value")
    }
    for start, stop in _steps((3, 5), 6):
        for name, cache in caches.items():
            new = {"cache": cache, "new": problem.arguments[name][..., start:stop, :], "lengths": start}
            caches[name] = observed(backend, new, "append_cache")["appended"]
        arguments: dict[str, Any] = {"query": problem.query[..., start:stop, :], **caches}
        arguments |= {"is_causal": True, "query_offset": start}
        arguments |= {"key_lengths": stop} if by == "key_lengths" else {}
        expected = {"output": whole[..., start:stop, :]}
        check(backend, "CACHE-3", arguments, record_property, expected=expected)


def _steps(cuts: tuple[int, ...], end: int) -> list[tuple[int, int]]:
    bounds = [0, *(cut for cut in cuts if cut), end]
    return list(pairwise(bounds))


def _paged(problem: Problem, size: int) -> tuple[Any, Any, Any]:
    """Lay the keys and values of batch entries out in pages, in any order, beside pages of others."""
    batch, heads, keys, _ = problem.key.shape
    count = -(-keys // size)
    table = problem.random.permutation(batch * count + 2)[: batch * count].reshape(batch, count)
    paged = []
    for array in (problem.key, problem.value):
        pages = np.full((batch * count + 2, heads, size, array.shape[-1]), 1000, array.dtype)
        for entry in range(batch):
            for position in range(keys):
                pages[table[entry, position // size], :, position % size] = array[entry, :, position]
        paged.append(pages)
    return paged[0], paged[1], table


@rule("CACHE-4")
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_pages_in_any_order(
    seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Pages out of order, shared by sequences, used twice by one; a table of one sequence too."""
    require(backend, operation="gather_pages")
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    arguments = {
        "pages": grid(random, (5, 2, 3, 4), 1.0).astype(dtype),
        "block_table": random.integers(0, 5, (2, 3) if random.random() < 0.7 else (4,)),
    }
    check(backend, "CACHE-4", arguments, record_property, operation="gather_pages")


@rule("CACHE-4", "MASK-9")
@SETTINGS
@given(data=st.data())
def test_attention_over_pages(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Attention over gathered pages, the last of them not full, is attention over the keys themselves."""
    require(backend, operation="gather_pages")
    problem = data.draw(problems(backend, _SEQUENCES))
    keys = problem.key.shape[-2]
    key_pages, value_pages, table = _paged(problem, 4)
    gathered = {
        name: observed(backend, {"pages": pages, "block_table": table}, "gather_pages")["gathered"]
        for name, pages in (("key", key_pages), ("value", value_pages))
    }
    arguments = {"query": problem.query, **gathered, "key_lengths": keys}
    expected = {"output": exact(problem.arguments)["output"]}
    check(backend, "CACHE-4", arguments, record_property, expected=expected)
