"""The chapter `selection`: lists of the keys with the largest scores."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Shape, grid
from attnspec.dtypes import numpy_dtype

chapter = Chapter("selection")

_SELECT, _INDEX = "select_keys", "indexer_scores"
#: Batch axes, queries and keys.
_SMALL = (((), 1, 1), ((), 3, 5), ((2,), 5, 3), ((2, 3), 4, 7), ((3,), 1, 9))
#: Keys at the edges of tiles.
_TILES = (
    ((2,), 3, 16),
    ((), 2, 17),
    ((1,), 2, 64),
    ((2,), 2, 65),
    ((), 3, 130),
    ((2,), 1, 257),
    ((), 1, 1025),
)
#: How many places a list has, for a number of keys.
_PLACES: Mapping[str, Any] = {
    "one": lambda _: 1,
    "some": lambda keys: (keys + 1) // 2,
    "all": lambda keys: keys,
    "more": lambda keys: keys + 3,
}
#: The scores of places that may not be listed.
_PAST: Mapping[str, float] = {"large": 1000.0, "NaN": np.nan, "infinity": np.inf}


def _scores(
    draw: Draw, sizes: Any = _SMALL, *, ties: bool = False
) -> Iterator[tuple[np.random.Generator, Any]]:
    """Draw scores in two dtypes: of few values, or different in a row as far as the dtype allows."""
    twice = [size for size in sizes for _ in range(2)]
    for (random, dtype), (batch, queries, keys) in zip(draw.generators(len(sizes)), twice, strict=True):
        shape = (*batch, queries, keys)
        drawn = random.integers(-2, 3, shape) if ties else random.random(shape).argsort(axis=-1) - keys // 2
        yield random, drawn.astype(numpy_dtype(dtype))


def _entries(random: np.random.Generator, scores: NDArray[Any], low: int, high: int) -> Any:
    """Draw an integer from `low` to `high`, or one for each batch entry, in a narrow type or a wide one."""
    batch = scores.shape[:-2]
    if not batch:
        return int(random.integers(low, high + 1))
    dtype = (np.int32, np.int64)[int(random.integers(2))]
    return random.integers(low, high + 1, batch).astype(dtype)


@chapter.group("SELECT-1", operation=_SELECT, each=tuple(_PLACES))
def largest_scores(draw: Draw, places: str) -> Iterator[Yielded]:
    """The scores of a row differ, and one, some or all of the keys fit into the list."""
    for _, scores in _scores(draw):
        yield {"scores": scores, "top_k": _PLACES[places](scores.shape[-1])}


@chapter.group("SELECT-1", operation=_SELECT, each=(1, 8, 16, 33, 64, 128))
def lists_of_tiles(draw: Draw, places: int) -> Iterator[Yielded]:
    """More keys than a tile, and lists that are shorter and longer than a tile."""
    for _, scores in _scores(draw, _TILES):
        yield {"scores": scores, "top_k": places}


@chapter.group("SELECT-1", "SELECT-4", operation=_SELECT, each=(1, 2, 5))
def equal_scores(draw: Draw, places: int) -> Iterator[Yielded]:
    """Several keys have the score of the last place."""
    for _, scores in _scores(draw, ties=True):
        yield {"scores": scores, "top_k": places}


@chapter.group("SELECT-4", "SELECT-1", operation=_SELECT, each=(4, 16, 48))
def plateaus(draw: Draw, places: int) -> Iterator[Yielded]:
    """Most keys have the score 0, as after a ReLU, and some a negative zero."""
    for random, scores in _scores(draw, _TILES[:6]):
        few = np.where(random.random(scores.shape) < 0.1, np.abs(scores), 0)
        signed = np.where((few == 0) & (random.random(scores.shape) < 0.5), -0.0, few)
        yield {"scores": signed.astype(scores.dtype), "top_k": places}


@chapter.group("SELECT-2", operation=_SELECT, each=(None, 2, -2, "per entry"))
def causal_lists(draw: Draw, offset: int | str | None) -> Iterator[Yielded]:
    """Later keys have larger scores, for queries at an offset and before the first key too."""
    for random, scores in _scores(draw, (*_SMALL, _TILES[0], _TILES[3])):
        rising = np.sort(scores, axis=-1)
        given = _entries(random, scores, -2, scores.shape[-1]) if offset == "per entry" else offset
        options = {} if given is None else {"query_offset": given}
        yield {"scores": rising, "top_k": 2, "is_causal": True} | options


@chapter.group("SELECT-2", "SELECT-3", operation=_SELECT, each=tuple(_PAST))
def lists_of_lengths(draw: Draw, past: str) -> Iterator[Yielded]:
    """Past the length stand large numbers, NaN or infinity, and one sequence may have no key."""
    for random, scores in _scores(draw, (*_SMALL, *_TILES[:6])):
        keys = scores.shape[-1]
        lengths = _entries(random, scores, 0, keys)
        over = np.arange(keys) >= np.asarray(lengths)[..., None, None]
        yield {
            "scores": np.where(over, _PAST[past], scores).astype(scores.dtype),
            "top_k": int(random.integers(1, keys + 3)),
            "key_lengths": lengths,
        }


@chapter.group("SELECT-2", operation=_SELECT, each=tuple(_PAST))
def later_scores(draw: Draw, later: str) -> Iterator[Yielded]:
    """Above the diagonal of a chunk and past the lengths stand large numbers, NaN or infinity."""
    for random, scores in _scores(draw, (*_SMALL, *_TILES[:5])):
        queries, keys = scores.shape[-2:]
        lengths, offset = _entries(random, scores, 1, keys), _entries(random, scores, 0, keys - 1)
        diagonal = np.arange(queries)[:, None] + np.asarray(offset)[..., None, None]
        over = (np.arange(keys) > diagonal) | (np.arange(keys) >= np.asarray(lengths)[..., None, None])
        yield {
            "scores": np.where(over, _PAST[later], scores).astype(scores.dtype),
            "top_k": 3,
            "is_causal": True,
            "query_offset": offset,
            "key_lengths": lengths,
        }


_FILLED = ("more places than keys", "as many", "equal scores", "few keys of many", "no keys", "no queries")


@chapter.group("SELECT-3", "SELECT-2", operation=_SELECT, each=_FILLED)
def places_of_lists(draw: Draw, why: str) -> Iterator[Yielded]:
    """A list has as many places as were asked for, and each holds a key if there are enough of them."""
    for random, scores in _scores(draw):
        keys = scores.shape[-1]
        if why in ("more places than keys", "as many"):
            yield {"scores": scores, "top_k": keys if why == "as many" else 2 * keys + 1}
        elif why == "equal scores":
            yield {"scores": np.zeros_like(scores), "top_k": max(keys - 2, 1)}
        elif why == "few keys of many":
            yield {"scores": scores, "top_k": keys, "is_causal": True, "key_lengths": (keys + 1) // 2}
        else:
            part = (..., slice(0), slice(None)) if why == "no queries" else (..., slice(0))
            yield {"scores": scores[part], "top_k": int(random.integers(1, 4))}


@chapter.group("SELECT-5", "SELECT-3", operation=_SELECT)
def scores_of_minus_infinity(draw: Draw) -> Iterator[Yielded]:
    """An added mask leaves fewer keys than places, and none in some rows."""
    for random, scores in _scores(draw, (*_SMALL, _TILES[3])):
        masked = random.random(scores.shape) < 0.6
        masked[..., -1, :] = True
        yield {
            "scores": np.where(masked, -np.inf, scores).astype(scores.dtype),
            "top_k": (scores.shape[-1] + 2) // 2,
        }


@chapter.group("SELECT-6", "SELECT-3", "SELECT-4", operation=_SELECT, each=("some", "a whole row"))
def scores_of_nan(draw: Draw, where: str) -> Iterator[Yielded]:
    """Some scores are NaN, of either sign, or all those of a row."""
    for random, scores in _scores(draw, (*_SMALL, _TILES[3])):
        wrong = random.random(scores.shape) < 0.4
        if where == "a whole row":
            wrong[..., 0, :] = True
        nan = np.copysign(np.nan, random.random(scores.shape) - 0.5)
        yield {
            "scores": np.where(wrong, nan, scores).astype(scores.dtype),
            "top_k": (scores.shape[-1] + 1) // 2,
        }


@chapter.group(
    "SELECT-7",
    operation=_SELECT,
    each=("next to each other", "of all sizes", "infinite", "negative", "subnormal"),
)
def exact_comparison(draw: Draw, scores_are: str) -> Iterator[Yielded]:
    """Scores differ in their last bit, are larger than float16 holds, infinite, subnormal or all negative."""
    for random, scores in _scores(draw, (((), 3, 5), ((2,), 2, 12), ((2,), 2, 65))):
        yield {"scores": _extreme(random, scores, scores_are), "top_k": scores.shape[-1] // 2}


def _extreme(random: np.random.Generator, scores: NDArray[Any], kind: str) -> NDArray[Any]:
    """Replace scores by numbers that only an exact comparison orders."""
    dtype, bits = scores.dtype, np.dtype(f"u{scores.dtype.itemsize}")
    order = random.random(scores.shape).argsort(axis=-1)
    if kind == "negative":
        return np.asarray(-np.abs(scores) - np.ones((), dtype))
    if kind == "subnormal":  # and a zero
        return np.asarray(order, bits).view(dtype)
    if kind == "next to each other":  # from 3 on, all numbers that the dtype has
        return np.asarray(np.full((), 3, dtype).view(bits) + order, bits).view(dtype)
    # Numbers whose bits are evenly spaced, from the smallest subnormal to almost the largest number.
    step = (3 << (8 * dtype.itemsize - 4)) // scores.shape[-1]
    sized = np.asarray(1 + order.astype(bits) * bits.type(step), bits).view(dtype)
    signed = np.where(random.random(scores.shape) < 0.3, -sized, sized)
    infinite = (random.random(scores.shape) < 0.25) & (kind == "infinite")
    return np.where(infinite, np.inf, signed).astype(dtype)


@chapter.group("SELECT-1", "SELECT-3", operation=_SELECT, each=("infinite", "above minus infinity"))
def ends_of_the_range(draw: Draw, listed: str) -> Iterator[Yielded]:
    """Scores are infinite, or the largest or the lowest number; a list holds one kind of them, or three."""
    for random, scores in _scores(draw, (*_SMALL[2:4], *_TILES[:3])):
        largest = (np.full((), np.inf, scores.dtype).view(f"u{scores.itemsize}") - 1).view(scores.dtype)
        ends = np.array([np.inf, largest, -largest, -np.inf], scores.dtype)
        kinds = random.random(scores.shape).argsort(axis=-1) % len(ends)
        few = kinds[..., :1, :] == 0 if listed == "infinite" else kinds[..., :1, :] < 3
        yield {"scores": ends[kinds], "top_k": int(few.sum(axis=-1).max())}


@chapter.group("SELECT-8", operation=_SELECT)
def lists_of_each_entry(draw: Draw) -> Iterator[Yielded]:
    """All batch entries have the same scores, or the reverse, so that the same keys are listed in each."""
    for _, scores in _scores(draw, (((3,), 2, 5), ((2, 2), 2, 17), ((3,), 1, 70))):
        same = np.broadcast_to(scores[(0,) * (scores.ndim - 2)], scores.shape).copy()
        same[-1] = same[-1, ..., ::-1]
        yield {"scores": same, "top_k": 4}


#: Batch axes, heads, queries, keys and features of an indexer.
_INDEXERS = (
    ((), 1, 1, 1, 1),
    ((2,), 3, 4, 5, 4),
    ((2, 1), 2, 5, 3, 8),
    ((1,), 4, 3, 17, 16),
    ((), 2, 17, 65, 32),
)


def _indexer(draw: Draw, *, rounds: bool = False) -> Iterator[dict[str, NDArray[Any]]]:
    """Draw queries, keys and weights of each size: short numbers, or those of which each sum is rounded."""
    twice = [size for size in _INDEXERS for _ in range(2)]
    for (random, dtype), sizes in zip(draw.generators(len(_INDEXERS)), twice, strict=True):
        batch, heads, queries, keys, depth = sizes
        shapes = {"query": (heads, queries, depth), "key": (keys, depth), "weights": (heads, queries)}
        arrays: dict[str, NDArray[Any]] = {}
        for name, shape in shapes.items():
            whole = (*batch, *shape)
            drawn = random.normal(size=whole) if rounds else grid(random, whole, 1.0)
            arrays[f"index_{name}"] = drawn.astype(dtype)
        yield arrays


@chapter.group("SELECT-10", operation=_INDEX, each=("signed", "positive", "one head"))
def scores_of_an_indexer(draw: Draw, weights: str) -> Iterator[Yielded]:
    """Products are weighted by numbers of both signs, by positive ones, or in one head alone."""
    for arguments in _indexer(draw):
        weight = arguments["index_weights"].copy()
        if weights == "one head":
            weight[..., 1:, :] = 0
        yield arguments | {"index_weights": np.abs(weight) if weights == "positive" else weight}


@chapter.group("SELECT-10", operation=_INDEX)
def products_below_zero(draw: Draw) -> Iterator[Yielded]:
    """All products of some heads are below 0, and all those of some queries."""
    for arguments in _indexer(draw):
        query, key = (np.abs(arguments[name]) for name in ("index_query", "index_key"))
        query[..., ::2, :, :], query[..., 1::2, :] = -query[..., ::2, :, :], -np.abs(query[..., 1::2, :])
        yield arguments | {"index_query": query, "index_key": key}


@chapter.group("NUM-7", "NUM-3", "SELECT-10", operation=_INDEX)
def rounded_index_scores(draw: Draw) -> Iterator[Yielded]:
    """Each sum is rounded, and half precision would hold the scores with an error of its own."""
    yield from _indexer(draw, rounds=True)


@chapter.group("SPARSE-6", "SPARSE-7", each=("causal", "lengths"))
def attention_over_selected_keys(draw: Draw, by: str) -> Iterator[Yielded]:
    """Keys are selected by scores, and attention over the lists has no other mask."""
    shapes = (Shape((2, 2), 4, 7, 4, 4), Shape((2, 4), 3, 17, 8, 8, groups=2))
    for problem in draw.problems(shapes):
        *batch, _, queries, keys = problem.shape
        scores = problem.random.random((*batch, queries, keys)).argsort(axis=-1)
        options: dict[str, Any] = {"is_causal": True, "query_offset": 1}
        held = np.broadcast_to(np.arange(keys) <= np.arange(queries)[:, None] + 1, scores.shape)
        if by == "lengths":
            lengths = problem.random.integers(0, keys + 1, tuple(batch))
            options, held = (
                {"key_lengths": lengths},
                np.broadcast_to(np.arange(keys) < lengths[..., None, None], scores.shape),
            )
        selection = {"scores": scores.astype(problem.query.dtype), "top_k": 3} | options
        yield Call(selection, ("SELECT-1", "SELECT-2", "SELECT-3"), operation=_SELECT)
        order = np.where(held, scores, -1).argsort(axis=-1)[..., :-4:-1]
        lists = np.where(np.take_along_axis(held, order, axis=-1), order, -1)
        arguments = problem.arguments | {"key_indices": lists[..., None, :, :]}
        yield Call(arguments, operation="listed_attention")
