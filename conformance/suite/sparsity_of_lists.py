"""The chapter `sparsity`: attention to listed keys."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.gradients import cotangents
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, biased, draw_option, sinks
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.sparsity import GARBAGE, MASKING, OTHERS, SHAPES

chapter = Chapter("sparsity")

Options = dict[str, Any]
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
