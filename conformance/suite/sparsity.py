"""The chapter `sparsity`: blocks of queries and keys, and lists of keys."""

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
            lists = _block_lists(problem, sizes)
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


def _block_lists(problem: Problem, sizes: Options) -> Options:
    """Draw lists of blocks, not in order and with repetitions; what follows the count is no block."""
    *rows, columns = _shape(problem, sizes)
    width = columns + 2
    indices = problem.random.integers(0, columns, (*rows, width), dtype=np.int64)
    counts = problem.random.integers(1, width, tuple(rows), dtype=np.int64)
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


_LISTED, _LISTED_VJP = "listed_attention", "listed_attention_vjp"
#: More keys than a tile of 64, and lists that are longer and shorter than a tile of 16.
_LONG = (Shape((1, 4), 3, 130, 8, 8, groups=4), Shape((2,), 17, 65, 8, 8))


@chapter.group("SPARSE-6", operation=_LISTED)
def listed_keys(draw: Draw) -> Iterator[Yielded]:
    """Lists have every shape that broadcasts, in any order; keys that are in no list hold large numbers."""
    for problem in draw.problems(SHAPES):
        lists = problem.broadcastable(_key_lists(problem, 4))
        yield _spoil_other_keys(problem, lists) | {"key_indices": lists}


@chapter.group("SPARSE-6", "SPARSE-9", operation=_LISTED)
def keys_of_each_list(draw: Draw) -> Iterator[Yielded]:
    """With the identity as value, the output shows which keys each query attends to."""
    shape = Shape((2, 4), 3, 9, 4, 9, groups=2)
    for problem in draw.in_each_dtype(shape, dtypes=("float32", "float16")):
        value = np.broadcast_to(
            np.eye(*problem.value.shape[-2:], dtype=problem.value.dtype), problem.value.shape
        )
        yield problem.arguments | {"value": np.array(value), "key_indices": _key_lists(problem, 4)}


@chapter.group("SPARSE-6", operation=_LISTED, each=(1, 16, 40))
def long_lists(draw: Draw, width: int) -> Iterator[Yielded]:
    """Lists of one key and of more than a tile have keys of all tiles."""
    for problem in draw.problems(_LONG):
        lists, last = _key_lists(problem, width), problem.shape[-1] - 1
        lists = np.where(lists == last, lists[..., :1], lists)  # no list holds a key twice
        lists[..., 0] = last
        yield _spoil_other_keys(problem, lists) | {"key_indices": lists}


@chapter.group("SPARSE-6", "SPARSE-7", operation=_LISTED, each=("lists of all queries", "no key"))
def lists_of_many_places(draw: Draw, which: str) -> Iterator[Yielded]:
    """Lists are longer than a tile of 64 and have places of no key, or belong to more queries than a tile."""
    shape = Shape((2,), 3, 130, 4, 4) if which == "no key" else Shape((2,), 67, 9, 4, 4)
    for problem in draw.problems((shape,)):
        lists = _key_lists(problem, 100 if which == "no key" else 4)
        if which == "no key":
            lists[(problem.random.random(lists.shape) < 0.3) | (lists == 0)] = -1
            yield Call(problem.arguments | {"key_indices": lists}, ("SPARSE-7",))
        else:
            yield Call(problem.arguments | {"key_indices": lists[..., :1, :]}, ("SPARSE-6",))


@chapter.group("SPARSE-7", operation=_LISTED, each=("first", "last", "between", "wider than the keys"))
def entries_of_no_key(draw: Draw, place: str) -> Iterator[Yielded]:
    """Entries of -1 stand anywhere in a list, which may have more places than there are keys."""
    for problem in draw.problems(SHAPES):
        keys = problem.shape[-1]
        lists = _key_lists(problem, 4)
        if place == "wider than the keys":
            wide = np.full((*lists.shape[:-1], 2 * keys + 3), -1, lists.dtype)
            wide[..., -4:] = lists
            yield problem.arguments | {"key_indices": wide}
            continue
        chosen = {"first": slice(0, 2), "last": slice(2, 4), "between": slice(1, 4, 2)}[place]
        lists[..., chosen] = -1
        yield _spoil_other_keys(problem, lists) | {"key_indices": lists}


@chapter.group("SPARSE-8", operation=_LISTED)
def keys_listed_twice(draw: Draw) -> Iterator[Yielded]:
    """A key that is listed two or three times has the weight of one that is listed once."""
    for problem in draw.problems(SHAPES):
        lists = _key_lists(problem, 5)
        lists[..., 3] = lists[..., 0]
        lists[..., 1::2, 4] = lists[..., 1::2, 0]
        yield problem.arguments | {"key_indices": lists}


@chapter.group("SPARSE-9", "HEAD-1", operation=_LISTED)
def lists_of_key_heads(draw: Draw) -> Iterator[Yielded]:
    """Each key head has a list of its own, which its query heads share."""
    for problem in draw.problems((SHAPES[1], Shape((6,), 4, 5, 3, 3, groups=2))):
        keys = problem.shape[-1]
        heads = problem.key.shape[-3]
        lists = _key_lists(problem, 2)
        for head in range(heads):
            lists[..., head, :, 0] = head % keys
        lists[..., 1] = -1
        yield problem.arguments | {"key_indices": lists}


@chapter.group("SPARSE-4", operation=_LISTED, each=MASKING)
def lists_and_masks(draw: Draw, option: str) -> Iterator[Yielded]:
    """A listed key is disallowed where another argument masks."""
    for problem in draw.problems(SHAPES[1:2]):
        needs, own = draw_option(problem, option)
        yield Call(
            problem.arguments | {"key_indices": _key_lists(problem, 4)} | needs | own,
            ("SPARSE-4", OPTIONS[option].rule),
        )


@chapter.group("SPARSE-6", operation=_LISTED, each=OTHERS)
def lists_and_options(draw: Draw, option: str) -> Iterator[Yielded]:
    """Lists have their effect beside an option that changes scores or the denominator."""
    for problem in draw.problems(SHAPES[1:2]):
        _, own = draw_option(problem, option)
        yield Call(
            problem.arguments | {"key_indices": _key_lists(problem, 4)} | own,
            ("SPARSE-6", OPTIONS[option].rule),
        )


@chapter.group("SPARSE-5", "MASK-6", operation=_LISTED, each=("alone", "sinks"))
def queries_without_keys(draw: Draw, beside: str) -> Iterator[Yielded]:
    """Some queries have a list of -1 only."""
    for problem in draw.problems(SHAPES):
        lists = _key_lists(problem, 3)
        lists[..., ::2, :] = -1
        options = sinks(problem) if beside == "sinks" else {}
        yield problem.arguments | {"key_indices": lists} | options


@chapter.group("MASK-13", operation=_LISTED)
def unlisted_keys_of_nan(draw: Draw) -> Iterator[Yielded]:
    """Keys and values that are in no list hold NaN and infinity, the first and the last among them."""
    for problem in draw.problems(SHAPES):
        keys = problem.shape[-1]
        lists = _key_lists(problem, 3)
        lists[(lists == 0) | (lists == keys - 1)] = -1
        arguments = {name: x.copy() for name, x in problem.arguments.items()}
        for place in (0, keys - 1):
            arguments["key"][..., place, :], arguments["value"][..., place, :] = np.nan, np.inf
        yield arguments | {"key_indices": lists}


@chapter.group(
    "SPARSE-12",
    operation=_LISTED_VJP,
    each=("alone", "no key", "sinks", "wider than the keys", "bias", "shared by all heads"),
)
def gradients_of_lists(draw: Draw, beside: str) -> Iterator[Yielded]:
    """Each query adds its part to the gradients of its keys, and keys in no list have gradients of 0."""
    for problem in draw.problems(SHAPES[1:]):
        keys = problem.shape[-1]
        lists = _key_lists(problem, 4)
        lists[lists == 0] = -1
        if beside == "no key":
            lists[..., ::2, :], lists[..., 2:] = -1, -1
        if beside == "wider than the keys":
            empty = np.full((*lists.shape[:-1], keys + 1), -1, lists.dtype)
            lists = np.concatenate([lists[..., :2], empty, lists[..., 2:]], axis=-1)
        if beside == "shared by all heads" and lists.ndim > 2:
            lists = lists[..., :1, :, :]
        options = sinks(problem) if beside == "sinks" else {}
        options |= {"bias": biased(problem)} if beside == "bias" else {}
        cotangent = cotangents(problem, lse=beside == "sinks")
        yield problem.arguments | {"key_indices": lists} | options | cotangent


def _key_lists(problem: Problem, width: int) -> NDArray[Any]:
    """Draw lists of different keys for each key head and query, in any order."""
    shape = (*problem.key.shape[:-2], problem.shape[-2])
    orders = problem.random.random((*shape, problem.shape[-1])).argsort(axis=-1)
    lists = np.full((*shape, width), -1)
    lists[..., : orders.shape[-1]] = orders[..., :width]
    return lists.astype(problem.choice(np.int32, np.int64))


def _spoil_other_keys(problem: Problem, lists: NDArray[Any]) -> dict[str, Any]:
    """Fill keys and values that are in no list of any head or query with large numbers."""
    unused = ~np.isin(np.arange(problem.shape[-1]), lists)
    return problem.arguments | {
        name: np.where(unused[:, None], GARBAGE, problem.arguments[name]).astype(problem.key.dtype)
        for name in ("key", "value")
    }
