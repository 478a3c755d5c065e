"""The chapter `errors`: integers that a byte, 16 bits or float32 do not hold (ERR-1)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.suite.drawn_stacks import Arguments, Random
from attnspec.conformance.suite.gradients_of_forms import RULES as RULES_OF_GRADIENTS
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import MASKED, grid
from attnspec.conformance.suite.whole_calls import ATTENDING, draw_with

chapter = Chapter("errors")

#: Numbers near the end of a byte, 16 bits, float32, 32 bits and float64, and near the bound of ERR-1.
_STARTS = (2**7 - 3, 2**15 - 3, 2**24 - 1, 2**31 - 3, 2**53 - 1, 2**62 - 16)


@chapter.group("ERR-1", "MASK-14", each=_STARTS)
def positions_from(draw: Draw, start: int) -> Iterator[Yielded]:
    """Positions and offsets differ by less than float32 or a narrow integer tells apart."""
    turn = _STARTS.index(start)
    for place, operation in enumerate(ATTENDING):
        if "key_positions" not in OPERATIONS[operation].arguments:
            continue
        plain = operation in ("attention", "attention_vjp")
        if not plain and place % len(_STARTS) != turn:
            continue
        call = draw_with(draw, operation, "float32" if plain else "float64", "positions", index=place)
        keys = call["key_positions"]
        far = call["query_positions"] + start
        call |= {"query_positions": far, "key_positions": np.where(keys < 0, -1, keys + start)}
        rules = ("ERR-1", "MASK-14", "MASK-3", *(("GRAD-6",) if "d_lse" in call else ()))
        yield Call(call, rules, operation=operation)
    problem = draw.problem(MASKED[0], "float32")
    by_offset = {"is_causal": True, "query_offset": start + 2, "key_positions": _row(start, problem.batch, 7)}
    more = {"d_output": problem.array(*problem.query.shape)}
    for operation in ("attention", "attention_vjp"):
        own = more if operation == "attention_vjp" else {}
        yield Call(problem.arguments | by_offset | own, ("ERR-1", "MASK-7", "MASK-3"), operation=operation)
    near = {"window": (start + 3, None), "query_offset": start + 4}
    yield Call(problem.arguments | near, ("ERR-1", "MASK-7", "MASK-8"))


def _row(start: int, batch: tuple[int, ...], count: int) -> Any:
    """Return consecutive positions for each batch entry, the last ones first."""
    return np.broadcast_to(start + np.arange(count)[::-1], (*batch, count)).copy()


@chapter.group("ERR-1", "POS-10", "POS-5", each=_STARTS[:4])
def rotations_from(draw: Draw, start: int) -> Iterator[Yielded]:
    """Rotations and ALiBi count on past 16 bits, past the whole numbers of float32 and past 32 bits."""
    for index, dtype in enumerate(("float32", "float64")):
        random = np.random.default_rng(draw.number(index))
        features = grid(random, (2, 1, 5, 4), 1.0).astype(dtype)
        rows = start + random.integers(0, 6, (2, 5))
        axes = {"axis_positions": np.stack([rows, rows[::-1]]), "sections": np.array([1, 1])}
        given: tuple[tuple[Arguments, str], ...] = (
            ({"positions": rows}, "POS-10"),
            ({"offset": start}, "POS-5"),
            ({"offset": np.array([start, -start])}, "POS-5"),
            ({"positions": rows - start, "offset": start + 1}, "POS-10"),
            (axes, "POS-15"),
        )
        for options, rule in given:
            yield Call({"features": features} | options, ("ERR-1", rule), operation="rotary")
            if rule != "POS-15":
                turned = {"features": features, "d_rotated": np.flip(features).copy()}
                yield Call(turned | options, ("ERR-1", "GRAD-22", rule), operation="rotary_vjp")
        yield from _alibi_from(random, dtype, start)


def _alibi_from(random: Random, dtype: str, start: int) -> Iterator[Call]:
    """Draw biases at positions, and at an offset beside positions of keys."""
    pair = {
        name: grid(random, (2, 3, rows, 2), 1.0).astype(dtype) for name, rows in (("query", 3), ("key", 4))
    }
    keys = {"key_positions": start + random.integers(0, 6, (2, 4))}
    for own in ({"query_positions": start + random.integers(0, 6, (2, 3))}, {"query_offset": start + 2}):
        yield Call(pair | keys | own, ("ERR-1", "POS-8", "MASK-14"), operation="alibi_bias")
        cotangents = {"d_bias": grid(random, (2, 3, 3, 4), 1.0).astype(dtype)}
        rules = ("ERR-1", "GRAD-25", "POS-8", "MASK-14")
        slopes = {"slopes": np.array([0.5, -0.25, 0.125], dtype if dtype == "float64" else "float32")}
        yield Call(pair | cotangents | keys | own | slopes, rules, operation="alibi_bias_vjp")


@chapter.group("ERR-1", each=("int8", "uint8", "int16", "uint16", "int32"))
def sums_past_their_dtype(draw: Draw, dtype: str) -> Iterator[Yielded]:
    """A position and an offset, an index or a bound add up to more than their dtype holds."""
    most = int(np.iinfo(dtype).max)
    random = np.random.default_rng(draw.number())
    for name in ("float32", "float64"):
        features = grid(random, (2, 1, 5, 4), 1.0).astype(name)
        rows = (most - random.integers(0, 3, (2, 5))).astype(dtype)
        for options in ({"positions": rows, "offset": np.array([3, 5], dtype)}, {"offset": rows[:, 0]}):
            rules = ("ERR-1", "POS-10" if "positions" in options else "POS-5")
            yield Call({"features": features} | options, rules, operation="rotary")
            turned = {"features": features, "d_rotated": np.flip(features).copy()}
            yield Call(turned | options, ("ERR-1", "GRAD-22", *rules[1:]), operation="rotary_vjp")
    problem = draw.problem(MASKED[0], "float32")
    keys = _row(most - 6, problem.batch, 7).astype(dtype)
    offsets = {"query_offset": np.array([most - 1, most - 4], dtype), "key_positions": keys}
    pair = {name: problem.arguments[name] for name in ("query", "key")}
    yield Call(pair | offsets, ("ERR-1", "POS-8", "MASK-14"), operation="alibi_bias")
    yield Call(problem.arguments | offsets | {"is_causal": True}, ("ERR-1", "MASK-7", "MASK-3"))
    places = {"query_positions": _row(most - 4, problem.batch, 5).astype(dtype), "key_positions": keys}
    yield Call(problem.arguments | places | {"window": (2, 1)}, ("ERR-1", "MASK-14", "MASK-8"))


Make = Callable[[Random, int, str], Arguments]


def _numbers(random: Random, *shape: int) -> Any:
    return grid(random, shape, 1.0).astype(np.float32)


def _attending(random: Random, queries: int, keys: int, *outer: int) -> Arguments:
    """Draw queries, keys and values of a depth of one."""
    sizes = {"query": queries, "key": keys, "value": keys}
    return {name: _numbers(random, *outer, 1, count, 1) for name, count in sizes.items()}


def _pages(random: Random, most: int, dtype: str) -> Arguments:
    return {
        "pages": _numbers(random, most + 1, 1, 1, 2),
        "block_table": np.array([[most, 1], [most - 2, most - 1]], dtype),
    }


def _paged(random: Random, most: int, dtype: str) -> Arguments:
    own = _pages(random, most, dtype)
    return {
        "query": _numbers(random, 2, 1, 1, 2),
        "key_pages": own["pages"],
        "value_pages": np.flip(own["pages"]).copy(),
        "block_table": own["block_table"],
        "key_lengths": np.array([2, 1], dtype),
    }


def _table_of_many(random: Random, most: int, dtype: str) -> Arguments:
    """Draw a sequence of many positions, each of which is one page, and a shorter one."""
    pages = _numbers(random, 3, 1, 1, 1)
    return {
        "query": _numbers(random, 2, 1, 1, 1),
        "key_pages": pages,
        "value_pages": pages[::-1].copy(),
        "block_table": random.integers(0, 3, (2, most)).astype(dtype),
        "key_lengths": np.array([most, most - 1], dtype),
    }


def _appended(random: Random, most: int, dtype: str) -> Arguments:
    cache, new = _numbers(random, 2, 1, most + 3, 1), _numbers(random, 2, 1, 3, 1)
    return {"cache": cache, "new": new, "lengths": np.array([most, most - 3], dtype)}


def _packed_keys(random: Random, most: int, dtype: str) -> Arguments:
    starts = {"query_starts": np.array([0, 1, 3], dtype), "key_starts": np.array([0, most - 3, most], dtype)}
    return _attending(random, 3, most) | starts


def _packed_queries(random: Random, most: int, dtype: str) -> Arguments:
    starts = {"query_starts": np.array([0, most - 2, most], dtype), "key_starts": np.array([0, 0, 3], dtype)}
    return _attending(random, most, 3) | starts


def _listed(random: Random, most: int, dtype: str) -> Arguments:
    lists = np.array([[[most, 0, most - 3], [most - 1, most - 2, 5]]], dtype)
    return _attending(random, 2, most + 1) | {"key_indices": lists}


def _blocks(random: Random, most: int, dtype: str) -> Arguments:
    """Draw lists of blocks of one key: the last ones, and all but the first one."""
    names = np.stack([np.arange(most)[::-1], np.arange(most)])[None].astype(dtype)
    sizes = {"query_block": 1, "key_block": 1}
    return (
        _attending(random, 2, most)
        | sizes
        | {
            "block_counts": np.array([[3, most - 1]], dtype),
            "block_indices": names,
        }
    )


def _selected(random: Random, most: int, dtype: str) -> Arguments:
    scores = random.permutation(2 * most + 4).reshape(2, 1, most + 2).astype(np.float32)
    scores[..., -1] = 10 * most
    return {"scores": scores, "top_k": 3, "key_lengths": np.array([most, most - 1], dtype)}


def _selected_by_offset(random: Random, most: int, dtype: str) -> Arguments:
    offsets = {"is_causal": True, "query_offset": np.array([most, most - 1], dtype)}
    call = _selected(random, most, dtype) | offsets
    return {name: x for name, x in call.items() if name != "key_lengths"}


def _of_lengths(random: Random, most: int, dtype: str) -> Arguments:
    return _attending(random, 1, most + 2, 2) | {"key_lengths": np.array([most, most - 1], dtype)}


def _of_offsets(random: Random, most: int, dtype: str) -> Arguments:
    causal = {"is_causal": True, "query_offset": np.array([most, most - 1], dtype)}
    return _attending(random, 1, most + 2, 2) | causal


#: Lists of more keys or blocks take minutes.
_FEW = 1000
#: How to draw a call of each operation whose integers go up to a number, and its rule.
_COUNTED: Mapping[str, tuple[str, str, Make]] = {
    "pages": ("gather_pages", "CACHE-4", _pages),
    "pages of attention": ("paged_attention", "PAGE-1", _paged),
    "positions in pages": ("paged_attention", "PAGE-1", _table_of_many),
    "positions in a cache": ("append_cache", "CACHE-1", _appended),
    "packed keys": ("packed_attention", "PACK-1", _packed_keys),
    "packed queries": ("packed_attention", "PACK-1", _packed_queries),
    "listed keys": ("listed_attention", "SPARSE-6", _listed),
    "listed blocks": ("block_sparse_attention", "SPARSE-1", _blocks),
    "selected keys": ("select_keys", "SELECT-2", _selected),
    "selected keys before an offset": ("select_keys", "SELECT-2", _selected_by_offset),
    "keys": ("attention", "MASK-9", _of_lengths),
    "keys before an offset": ("attention", "MASK-7", _of_offsets),
}


@chapter.group("ERR-1", each=tuple(_COUNTED))
def many(draw: Draw, what: str) -> Iterator[Yielded]:
    """Tables, lists, starts and lengths count past signed bytes and past signed integers of 16 bits."""
    operation, rule, make = _COUNTED[what]
    for most, dtype in ((253, "uint8"), (2**15 + 3, "int32")):
        if most > _FEW and operation in ("select_keys", "block_sparse_attention"):
            continue
        call = make(np.random.default_rng(draw.number()), most, dtype)
        outputs = ("output", "lse") if "query" in call else ()
        yield Call(call, ("ERR-1", rule), operation=operation, outputs=outputs)
        rules = {"attention": "GRAD-9", **RULES_OF_GRADIENTS}
        if dtype == "uint8" and operation in rules:
            gradients = call | {"d_output": call["query"].copy()}
            yield Call(gradients, ("ERR-1", rules[operation], rule), operation=f"{operation}_vjp")
