"""The chapter `sparsity`: blocks of queries and keys."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.gradients import cotangents
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, biased, draw_option, sinks
from attnspec.conformance.suite.problem import Problem, Shape

chapter = Chapter("sparsity")

_BLOCKS, _BLOCKS_VJP = "block_sparse_attention", "block_sparse_attention_vjp"
#: Several heads, grouped heads, and one head without its axis. The last blocks are smaller.
SHAPES = (
    Shape((2, 3), 5, 7, 4, 4),
    Shape((2, 4), 6, 9, 4, 4, groups=2),
    Shape((), 7, 5, 3, 2),
)
#: One past a block of 16 queries and 64 keys, one short of it, and as many.
_EDGES = (Shape((1, 2), 17, 65, 8, 8), Shape((2,), 31, 63, 8, 8), Shape((2,), 16, 128, 8, 8))
#: The number of each key and value that must not be read.
GARBAGE = 500
#: The options that mask, and the others that both operations take.
MASKING = ("mask", "bias", "is_causal", "query_offset", "window", "key_lengths", "positions")
OTHERS = ("scale", "softcap", "sinks")
Options = dict[str, Any]


@chapter.group("SPARSE-1", "SPARSE-2", operation=_BLOCKS)
def blocks(draw: Draw) -> Iterator[Yielded]:
    """Masks of blocks have every shape that broadcasts, and blocks have two sizes, also past the axes."""
    for problem in draw.problems(SHAPES, 2):
        sizes = _sizes(problem.choice((2, 3), (3, 2), (4, 1), (1, 4), (8, 2), (2, 16)))
        shown = problem.broadcastable(_mask(problem, sizes))
        yield problem.arguments | sizes | {"block_mask": shown}


@chapter.group("SPARSE-1", "SPARSE-2", operation=_BLOCKS)
def keys_of_each_block(draw: Draw) -> Iterator[Yielded]:
    """With the identity as value, the output shows which keys each query attends to."""
    for shape in (Shape((2,), 7, 11, 4, 11), Shape((2, 2), 9, 6, 4, 6)):
        for problem in draw.in_each_dtype(shape, dtypes=("float32", "bfloat16")):
            sizes = _sizes((2, 4))
            value = np.broadcast_to(
                np.eye(*problem.value.shape[-2:], dtype=problem.value.dtype), problem.value.shape
            )
            arguments = problem.arguments | {"value": np.array(value)}
            yield arguments | sizes | {"block_mask": _mask(problem, sizes)}


@chapter.group("SPARSE-1", "MASK-3", "MASK-7", operation=_BLOCKS)
def blocks_of_unlike_sizes_beside_an_offset(draw: Draw) -> Iterator[Yielded]:
    """Blocks count queries from 0, whatever the offset is. Exchanged sizes would fit the mask too."""
    for problem in draw.in_each_dtype(Shape((2,), 5, 5, 4, 5), dtypes=("float32", "float16")):
        value = np.broadcast_to(
            np.eye(*problem.value.shape[-2:], dtype=problem.value.dtype), problem.value.shape
        )
        shown = {**_sizes((3, 4)), "block_mask": np.array([[True, False], [False, True]])}
        arguments = problem.arguments | {"value": np.array(value)} | shown
        yield Call(arguments, ("SPARSE-1",))
        yield arguments | {"is_causal": True, "query_offset": 2}


@chapter.group("SPARSE-2", "SPARSE-1", operation=_BLOCKS)
def edges(draw: Draw) -> Iterator[Yielded]:
    """The last blocks hold one query and one key, or are full; keys outside the blocks hold large numbers."""
    for problem in draw.problems(_EDGES):
        sizes = _sizes((16, 64))
        shown = _mask(problem, sizes)
        shown[..., -1, :], shown[..., -1] = False, True  # the last queries attend to the last block alone
        yield _spoil_hidden(problem, sizes, shown) | {"block_mask": shown}


@chapter.group("SPARSE-3", operation=_BLOCKS, each=("alone", "and a mask of blocks"))
def lists_of_blocks(draw: Draw, beside: str) -> Iterator[Yielded]:
    """Blocks are listed in any order and twice, and other numbers follow the count."""
    for problem in draw.problems(SHAPES):
        sizes = _sizes(problem.choice((2, 3), (3, 2), (2, 2)))
        lists = _block_lists(problem, sizes)
        more = {"block_mask": _mask(problem, sizes)} if beside != "alone" else {}
        yield problem.arguments | sizes | lists | more


@chapter.group("SPARSE-3", "SPARSE-2", operation=_BLOCKS)
def long_lists_of_blocks(draw: Draw) -> Iterator[Yielded]:
    """Lists of blocks of 16 queries and 16 keys, shared by all heads."""
    for problem in draw.problems(_EDGES):
        sizes = _sizes((16, 16))
        lists = _block_lists(problem, sizes)
        shared = {
            "block_counts": lists["block_counts"][..., :1, :],
            "block_indices": lists["block_indices"][..., :1, :, :],
        }
        yield problem.arguments | sizes | shared


@chapter.group("SPARSE-4", operation=_BLOCKS, each=MASKING)
def blocks_and_masks(draw: Draw, option: str) -> Iterator[Yielded]:
    """Blocks are active in part where another argument masks."""
    for problem in draw.problems(SHAPES[1:2]):
        sizes = _sizes((3, 2))
        needs, own = draw_option(problem, option)
        yield Call(
            problem.arguments | sizes | {"block_mask": _mask(problem, sizes)} | needs | own,
            ("SPARSE-4", OPTIONS[option].rule),
        )


@chapter.group("SPARSE-1", operation=_BLOCKS, each=OTHERS)
def blocks_and_options(draw: Draw, option: str) -> Iterator[Yielded]:
    """Blocks have their effect beside an option that changes scores or the denominator."""
    for problem in draw.problems(SHAPES[1:2]):
        sizes = _sizes((2, 3))
        _, own = draw_option(problem, option)
        yield Call(
            problem.arguments | sizes | {"block_mask": _mask(problem, sizes)} | own,
            ("SPARSE-1", OPTIONS[option].rule),
        )


@chapter.group("SPARSE-5", "MASK-6", operation=_BLOCKS, each=("block_mask", "block_counts", "sinks"))
def queries_without_blocks(draw: Draw, by: str) -> Iterator[Yielded]:
    """The first queries, and those of a later block, have no active block."""
    for problem in draw.problems(SHAPES):
        sizes = _sizes((2, 2))
        if by == "block_counts":
            lists = _block_lists(problem, sizes, distinct=True)
            lists["block_counts"][..., ::2] = 0
            yield problem.arguments | sizes | lists
            continue
        shown = _mask(problem, sizes)
        shown[..., ::2, :] = False
        options = sinks(problem) if by == "sinks" else {}
        yield problem.arguments | sizes | {"block_mask": shown} | options


@chapter.group("SPARSE-5", "MASK-6", operation=_BLOCKS)
def queries_whose_blocks_are_masked(draw: Draw) -> Iterator[Yielded]:
    """A block is active, but every key of it that a query could attend to is after the query."""
    for problem in draw.problems(SHAPES):
        sizes = _sizes((3, 3))
        shown = _mask(problem, sizes)
        shown[..., 0, :] = True
        shown[..., 0, 0] = False
        yield problem.arguments | sizes | {"block_mask": shown, "is_causal": True}


@chapter.group("MASK-13", operation=_BLOCKS)
def blocks_of_nan(draw: Draw) -> Iterator[Yielded]:
    """Keys and values hold NaN and infinity in a block that is inactive for all queries."""
    for problem in draw.problems(SHAPES):
        sizes = _sizes((2, 2))
        shown = _mask(problem, sizes)
        shown[..., 1] = False
        arguments = {name: x.copy() for name, x in problem.arguments.items()}
        arguments["key"][..., 2:4, :], arguments["value"][..., 2:4, :] = np.nan, np.inf
        yield arguments | sizes | {"block_mask": shown}


@chapter.group("NUM-8", operation=_BLOCKS, each=("transposed", "sliced"))
def strides_of_blocks(draw: Draw, layout: str) -> Iterator[Yielded]:
    """The result does not depend on the strides of the arrays, of the mask of blocks and of the lists."""
    for problem in draw.in_each_dtype(SHAPES[1], dtypes=("float32",)):
        sizes = _sizes((2, 3))
        arrays = problem.arguments | {"block_mask": _mask(problem, sizes)} | _block_lists(problem, sizes)
        yield Call(arrays | sizes, ("NUM-8", "SPARSE-1"), layout=dict.fromkeys(arrays, layout))


@chapter.group("SPARSE-12", operation=_BLOCKS_VJP, each=("block_mask", "lists", "causal", "sinks", "bias"))
def gradients_of_blocks(draw: Draw, by: str) -> Iterator[Yielded]:
    """Each block adds its part to the gradients, and one that is inactive for all queries adds nothing."""
    for problem in draw.problems(SHAPES[1:]):
        sizes = _sizes((2, 3))
        shown = _mask(problem, sizes)
        shown[..., 1], shown[..., 1, :] = False, False
        options = _block_lists(problem, sizes) if by == "lists" else {"block_mask": shown}
        options |= {"is_causal": True} if by == "causal" else sinks(problem) if by == "sinks" else {}
        options |= {"bias": biased(problem)} if by == "bias" else {}
        yield problem.arguments | sizes | options | cotangents(problem, lse=by == "sinks")


@chapter.group("SPARSE-12", "SPARSE-2", operation=_BLOCKS_VJP)
def gradients_at_the_edges(draw: Draw) -> Iterator[Yielded]:
    """The last block of keys is read by all blocks of queries, and holds one key."""
    for problem in draw.problems(_EDGES[:1]):
        sizes = _sizes((16, 64))
        shown = _mask(problem, sizes)
        shown[..., -1] = True
        yield problem.arguments | sizes | {"block_mask": shown} | cotangents(problem)


def _sizes(sizes: tuple[int, int]) -> Options:
    return {"query_block": sizes[0], "key_block": sizes[1]}


def _shape(problem: Problem, sizes: Options) -> tuple[int, ...]:
    """Return the shape of the blocks of a problem."""
    *outer, queries, keys = problem.shape
    return (*outer, -(-queries // sizes["query_block"]), -(-keys // sizes["key_block"]))


def _mask(problem: Problem, sizes: Options) -> NDArray[np.bool_]:
    """Draw a mask of blocks that differs between heads, with the first block of keys active."""
    shown = problem.random.random(_shape(problem, sizes)) < 0.5
    shown[..., 0] = True
    return shown


def _block_lists(problem: Problem, sizes: Options, *, distinct: bool = False) -> Options:
    """Draw lists of blocks, not in order and maybe with repetitions; what follows the count is no block."""
    *rows, columns = _shape(problem, sizes)
    width = columns + 2
    indices = problem.random.integers(0, columns, (*rows, width), dtype=np.int64)
    counts = problem.random.integers(1, width, tuple(rows), dtype=np.int64)
    if distinct:
        indices[..., :columns] = problem.random.random((*rows, columns)).argsort(axis=-1)
        counts = np.minimum(counts, columns)
    unused = np.arange(width) >= counts[..., None]
    wrong = problem.random.choice(np.array([-1, -7, 0, columns, 2**31 - 1]), indices.shape)
    dtype = problem.choice(np.int32, np.int64)
    return {
        "block_counts": counts.astype(dtype),
        "block_indices": np.where(unused, wrong, indices).astype(dtype),
    }


def _spoil_hidden(problem: Problem, sizes: Options, shown: NDArray[np.bool_]) -> Options:
    """Fill keys and values with large numbers where a block is inactive for all queries and heads."""
    arguments = problem.arguments | sizes
    columns = shown.reshape(-1, shown.shape[-1]).any(axis=0)
    unused = ~np.repeat(columns, sizes["key_block"])[: problem.shape[-1]]
    return arguments | {
        name: np.where(unused[:, None], GARBAGE, arguments[name]).astype(problem.key.dtype)
        for name in ("key", "value")
    }
