"""The chapter `masking`: positions of queries and keys as data."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.alone import each_acts
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import Options, positions
from attnspec.conformance.suite.plain_values import SINGLE, draw_plain, rules_of
from attnspec.conformance.suite.problem import GROUPED, MASKED, Problem, Shape

chapter = Chapter("masking")

#: What compares the positions.
_COMPARED: Mapping[str, Options] = {
    "causal": {"is_causal": True},
    "window": {"window": (2, 1)},
    "open window": {"window": (1, None)},
    "causal and window": {"is_causal": True, "window": (2, None)},
}


@chapter.group("MASK-14", each=tuple(_COMPARED))
def positions_in_any_order(draw: Draw, compared: str) -> Iterator[Yielded]:
    """Positions of queries, of keys and of both replace the indices, in any order and with repetitions."""
    for number, problem in enumerate(draw.problems((*MASKED[:3], GROUPED[0]))):
        drawn = positions(problem)
        names = (tuple(drawn), ("query_positions",), ("key_positions",))[number % 3]
        yield problem.arguments | _COMPARED[compared] | {name: drawn[name] for name in names}


@chapter.group("MASK-14", "MASK-7", each=tuple(_COMPARED))
def positions_of_keys_and_an_offset(draw: Draw, compared: str) -> Iterator[Yielded]:
    """An offset moves the queries, while the keys have positions of their own."""
    for problem in draw.problems(MASKED[:3]):
        keys = positions(problem)["key_positions"]
        offset = problem.integers(-1, 3)
        yield problem.arguments | _COMPARED[compared] | {"key_positions": keys, "query_offset": offset}


def _index(problem: Problem, axis: int) -> NDArray[np.int64]:
    """Return the indices of queries or keys for each batch entry."""
    size = problem.shape[axis]
    return np.broadcast_to(np.arange(size), (*problem.batch, size)).copy()


def _left_padding(problem: Problem) -> Options:
    """Shift each sequence to the right, so that the places before it hold no key."""
    padding = problem.random.integers(0, problem.shape[-1] - 1, (*problem.batch, 1))
    return {
        "query_positions": _index(problem, -2) + problem.shape[-1] - problem.shape[-2] - padding,
        "key_positions": np.maximum(_index(problem, -1) - padding, -1),
        "is_causal": True,
    }


def _ring_buffer(problem: Problem) -> Options:
    """Store the last keys of a sequence at their position modulo the size of the buffer."""
    queries, keys = problem.shape[-2:]
    last = problem.random.integers(keys // 2, 3 * keys, (*problem.batch, 1))  # position of the last key
    at = last - (last - _index(problem, -1)) % keys
    first = max(1, keys - queries)
    return {
        "query_positions": last - queries + 1 + _index(problem, -2),
        "key_positions": np.where(at < 0, -1, at),
        "is_causal": True,
        "window": (first, None),
    }


def _chunk(problem: Problem) -> Options:
    """Compute a chunk of a prefill in the middle of a sequence."""
    start = problem.random.integers(0, problem.shape[-1], (*problem.batch, 1))
    return {"query_positions": _index(problem, -2) + start, "is_causal": True, "window": (3, 0)}


def _tree(problem: Problem) -> Options:
    """Verify drafts of a tree: a position is a depth, and a mask allows the branch."""
    queries, keys = problem.shape[-2:]
    held = max(keys - queries, 0)
    depths = problem.random.integers(0, 3, (*problem.batch, keys - held))
    places = np.concatenate([_index(problem, -1)[..., :held], held + depths], axis=-1)
    mask = problem.mask()
    mask[..., :held] = True
    own = held + problem.random.integers(0, 3, (*problem.batch, queries))
    return {"query_positions": own, "key_positions": places, "is_causal": True, "mask": mask}


def _zigzag(problem: Problem) -> Options:
    """Hold the first and the last chunk of each half, as sharding by zigzag does."""
    keys, queries = (_index(problem, axis) for axis in (-1, -2))
    order = np.where(keys % 2, problem.shape[-1] - 1 - keys // 2, keys // 2)
    return {"query_positions": 2 * queries + 1, "key_positions": order, "is_causal": True}


#: What positions are for.
_USES: Mapping[str, Callable[[Problem], Options]] = {
    "left padding": _left_padding,
    "ring buffer": _ring_buffer,
    "chunk of a prefill": _chunk,
    "tree of drafts": _tree,
    "zigzag": _zigzag,
}


@chapter.group("MASK-14", each=tuple(_USES))
def uses_of_positions(draw: Draw, use: str) -> Iterator[Yielded]:
    """Padding, a ring buffer, a chunk, a tree and a shard are positions."""
    for problem in draw.problems((*MASKED[:3], GROUPED[0])):
        yield Call(problem.arguments | _USES[use](problem), ("MASK-14", "MASK-4"))


#: The places that hold no key: the first, the last, every second one.
_ABSENT: tuple[Callable[[int], NDArray[np.bool_]], ...] = (
    lambda keys: np.arange(keys) < 1,
    lambda keys: np.arange(keys) == keys - 1,
    lambda keys: np.arange(keys) % 2 == 1,
)


@chapter.group("MASK-15", each=("alone", "causal", "window"))
def places_without_a_key(draw: Draw, beside: str) -> Iterator[Yielded]:
    """A negative position disallows a key, alone and beside causality and a window."""
    options: dict[str, Options] = {
        "causal": {"is_causal": True, "query_offset": 2},
        "window": {"window": (4, 2)},
    }
    for number, problem in enumerate(draw.problems(MASKED)):
        absent = _ABSENT[number % len(_ABSENT)](problem.shape[-1])
        keys = np.where(absent, problem.choice(-1, -7, -(2**31)), _index(problem, -1))
        yield problem.arguments | options.get(beside, {}) | {"key_positions": keys}


@chapter.group("MASK-15", "MASK-6", "SOFT-7", each=("all", "one entry"))
def no_place_with_a_key(draw: Draw, entries: str) -> Iterator[Yielded]:
    """A row is empty if no place of its entry holds a key."""
    for problem in draw.in_each_dtype(MASKED[0]):
        keys = np.full((*problem.batch, problem.shape[-1]), -1)
        if entries == "one entry":
            keys[1:] = np.arange(problem.shape[-1])
        yield problem.arguments | {"key_positions": keys}


_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")


@chapter.group("MASK-14", "ERR-1", each=_INTEGERS)
def positions_of_every_integer_dtype(draw: Draw, dtype: str) -> Iterator[Yielded]:
    """Positions are compared at their value in each dtype of integers, also past the range of an index."""
    most = int(np.iinfo(dtype).max) // 2
    for problem in draw.in_each_dtype(MASKED[0], dtypes=("float32",)):
        queries, keys = (_index(problem, axis) for axis in (-2, -1))
        for start in (0, most - 20):
            yield problem.arguments | {
                "query_positions": (start + 2 + queries).astype(dtype),
                "key_positions": (start + np.flip(keys, -1)).astype(dtype),
                "is_causal": True,
                "window": (3, None),
            }


@chapter.group("MASK-7", "MASK-9", "MASK-10", "MASK-11", "ERR-1", each=(8, 16, 32, 64))
def lengths_and_ids_of_every_integer_dtype(draw: Draw, width: int) -> Iterator[Yielded]:
    """Lengths, offsets and ids are read at their value in each dtype of integers, forward and backward."""
    for sign, name in (("", "attention"), ("u", "attention"), ("u", "attention_vjp"), ("", "attention_vjp")):
        problem = draw.problem(MASKED[0], "float32")
        queries, keys = problem.shape[-2:]
        least, most = -2 if not sign else 0, int(np.iinfo(f"{sign}int{width}").max)
        numbers = {
            "query_offset": problem.random.integers(least, 4, 2),
            "query_lengths": np.array([queries, 2]),
            "key_lengths": np.array([keys - 1, keys]),
            "query_segment_ids": most // 2 - problem.random.integers(0, 2, (2, queries)),
            "key_segment_ids": most // 2 - problem.random.integers(0, 2, (2, keys)),
        }
        own = {argument: x.astype(f"{sign}int{width}") for argument, x in numbers.items()}
        own |= {"d_output": problem.array(*problem.query.shape)} if name.endswith("_vjp") else {}
        yield Call(problem.arguments | own | {"is_causal": True}, operation=name)


#: Many queries and one past tiles of 64 and 128 keys, and one past 1024.
_LONG = (
    Shape((1, 4), 133, 139, 4, 3, groups=2),
    Shape((2, 2), 1, 139, 4, 3),
    Shape((1, 1), 1, 1100, 2, 2),
)


@chapter.group("MASK-14", "MASK-15", each=("ring buffer", "zigzag", "left padding"))
def positions_past_large_tiles(draw: Draw, use: str) -> Iterator[Yielded]:
    """Tiles of keys that the order of positions spreads over the array are all visited."""
    for shape in _LONG:
        for problem in draw.in_each_dtype(shape, dtypes=("float32",)):
            options: dict[str, Any] = _USES[use](problem)
            yield Call(problem.arguments | options, ("MASK-14",), outputs=("output", "lse"))


_GRADIENTS = ("attention_vjp", "latent_attention_vjp", "block_sparse_attention_vjp", "sharded_attention_vjp")
_STACKS = ("packed_block_sparse_attention", "packed_latent_attention")
#: Operations by what they are given without causality and a window. Others meet positions in other groups.
_NOT_COMPARED = {
    "offset": ("attention_vjp", *SINGLE),
    "positions": ("sharded_attention", "low_precision_attention", *_GRADIENTS, *_STACKS),
}


@chapter.group("MASK-4", "MASK-15", "STACK-2", each=tuple(_NOT_COMPARED), step=3)
def no_causality_beside(draw: Draw, places: str) -> Iterator[Yielded]:
    """An offset or positions disallow no key without causality and a window, but for one at -1."""
    own = {"is_causal": None, **({"query_offset": 2} if places == "offset" else {})}
    options, rules = ([], ["MASK-7"]) if places == "offset" else (["positions"], ["MASK-14", "MASK-15"])
    for index, operation in enumerate(_NOT_COMPARED[places]):

        def suits(call: dict[str, Any], operation: str = operation) -> bool:
            keys = {name: np.maximum(x, 0) for name, x in call.items() if name == "key_positions"}
            return each_acts(operation, call, {"is_causal": True, **keys})

        call = draw_plain(draw, operation, "float32", own, *options, index=index, suits=suits)
        yield Call(call, rules_of(operation, "MASK-4", *rules), operation=operation)
