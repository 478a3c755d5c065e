"""The chapter `masking`: its sources, and rows with nothing to attend to."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import biased, offset, segments, window
from attnspec.conformance.suite.problem import MASKED, PLANES, SHAPES, SHARED, Problem, Shape, share_along

chapter = Chapter("masking")

_LONG = tuple(shape for shape in SHAPES if shape.queries < shape.keys and len(shape.outer) != 1)
#: As many batch entries as queries: a mask of two axes fits both.
_SQUARE = Shape((2, 3), 2, 5, 4, 4)
#: The largest integer of 32 bits, which some use for an open side. It overflows if a position is added.
_WIDEST = 2**31 - 1


@chapter.group("MASK-1", each=("full", "queries and keys", "keys"))
def boolean_mask(draw: Draw, axes: str) -> Iterator[Yielded]:
    """False disallows, True allows, in every shape that broadcasts."""
    for problem in draw.problems():
        mask = problem.mask()
        leading = (0,) * (mask.ndim - 2)
        part = {"full": mask, "queries and keys": mask[leading], "keys": mask[(*leading, -1)]}[axes]
        yield problem.arguments | {"mask": part}


@chapter.group("MASK-1")
def mask_of_batch_entries(draw: Draw) -> Iterator[Yielded]:
    """A mask of each batch entry holds for all heads of it."""
    for problem in draw.problems(MASKED[:3], 3):
        yield problem.arguments | {"mask": problem.mask()[..., :1, :, :]}


@chapter.group("MASK-1", each=tuple(SHARED), step=1)
def mask_for_several(draw: Draw, along: str) -> Iterator[Yielded]:
    """One boolean of a mask is for all entries, heads, queries or keys, and the other axes are whole."""
    for problem in draw.problems((Shape((3, 4), 5, 6, 4, 3, groups=2),)):
        yield problem.arguments | {"mask": share_along(problem.mask(), SHARED[along])}


@chapter.group("MASK-1", "SCORE-4", each=tuple(PLANES), step=1)
def pairs_in_tiles(draw: Draw, which: str) -> Iterator[Yielded]:
    """A mask or a bias is read in tiles, of each entry for all heads or of each head for all entries."""
    option, along = PLANES[which]
    for problem in draw.problems((Shape((2, 2), 66, 68, 2, 2),)):
        pairs = problem.mask() if option == "mask" else biased(problem)
        rules = ("MASK-1",) if option == "mask" else ("SCORE-4",)
        yield Call(problem.arguments | {option: share_along(pairs, SHARED[along])}, rules)


@chapter.group("MASK-1", "SCORE-4", each=("mask", "bias"))
def one_for_each_head(draw: Draw, option: str) -> Iterator[Yielded]:
    """A mask or a bias of three axes has one plane for each head, not for each batch entry."""
    for problem in draw.problems((SHAPES[6], SHAPES[4])):  # the first has as many batch entries as heads
        plane = problem.mask() if option == "mask" else biased(problem)
        rules = ("MASK-1",) if option == "mask" else ("SCORE-4", "MASK-2")
        yield Call(problem.arguments | {option: plane[0]}, rules)


@chapter.group("MASK-1")
def mask_of_true(draw: Draw) -> Iterator[Yielded]:
    """A mask that allows every key changes nothing."""
    for problem in draw.problems():
        yield problem.arguments | {"mask": np.ones(problem.shape, dtype=bool)}


@chapter.group("MASK-1", each=("mask", "key_lengths"))
def keys_of_as_many_batch_entries_as_queries(draw: Draw, option: str) -> Iterator[Yielded]:
    """What disallows keys of a batch entry is no mask of pairs where there are as many queries as entries."""
    for problem in draw.in_each_dtype(_SQUARE):
        batch, *_, keys = problem.shape
        lengths = np.linspace(keys, 1, batch).astype(int)  # each another one, and none empty
        mask = np.arange(keys) < lengths[:, None, None, None]
        rules = ("MASK-1",) if option == "mask" else ("MASK-9",)
        yield Call(problem.arguments | {option: mask if option == "mask" else lengths}, rules)


@chapter.group("MASK-2")
def minus_infinity_in_the_bias(draw: Draw) -> Iterator[Yielded]:
    """Minus infinity disallows, while the other numbers of the same bias are added."""
    for problem in draw.problems():
        yield problem.arguments | {"bias": biased(problem)}


@chapter.group("MASK-2")
def additive_form_of_a_mask(draw: Draw) -> Iterator[Yielded]:
    """A bias of 0 and minus infinity gives what the boolean mask gives."""
    for problem in draw.problems():
        yield problem.arguments | {"bias": np.where(problem.mask(), 0, -np.inf).astype(problem.query.dtype)}


@chapter.group("MASK-2")
def large_negative_bias(draw: Draw) -> Iterator[Yielded]:
    """A large negative bias is a number, which cancels if every key has it."""
    for problem in draw.problems():
        yield problem.arguments | {
            "bias": np.full(problem.shape, -30000.0, problem.query.dtype),
            "scale": 0.25,
        }


@chapter.group("MASK-3")
def causal(draw: Draw) -> Iterator[Yielded]:
    """The causal mask is the lower triangle from the top left, for L below, at and above S."""
    for problem in draw.problems():
        yield problem.arguments | {"is_causal": True}


@chapter.group("MASK-7")
def causal_with_an_offset(draw: Draw) -> Iterator[Yielded]:
    """One offset, or one for each batch entry, moves the diagonal, also if negative or past the last key."""
    for problem in draw.problems(MASKED, 2):
        yield problem.arguments | {"is_causal": True} | offset(problem)


@chapter.group("MASK-7", "MASK-3")
def last_query_on_the_last_key(draw: Draw) -> Iterator[Yielded]:
    """The bottom-right alignment is the offset S - L, for L below, at and above S."""
    for problem in draw.problems(MASKED):
        queries, keys = problem.shape[-2:]
        yield problem.arguments | {"is_causal": True, "query_offset": keys - queries}


@chapter.group("MASK-7")
def offset_alone(draw: Draw) -> Iterator[Yielded]:
    """Without a causal mask or a window, an offset changes nothing."""
    for problem in draw.problems(MASKED, 2):
        yield problem.arguments | {"mask": problem.mask()} | offset(problem)


@chapter.group("MASK-8", each=("alone", "causal", "offset", "causal and offset"))
def windows(draw: Draw, beside: str) -> Iterator[Yielded]:
    """A window has bounds of None, 0, 1, 2, S and S + 1 on either side."""
    for problem in draw.problems(MASKED, 3):
        options = window(problem)
        if "causal" in beside:
            options["is_causal"] = True
        if "offset" in beside:
            options |= offset(problem)
        yield problem.arguments | options


@chapter.group("MASK-8", each=("left", "right", "both"))
def window_wider_than_any_sequence(draw: Draw, side: str) -> Iterator[Yielded]:
    """A bound of the largest integer of 32 bits allows every key on its side."""
    bounds = {"left": (_WIDEST, 0), "right": (0, _WIDEST), "both": (_WIDEST, _WIDEST)}
    for problem in draw.in_each_dtype(MASKED[0]):
        yield problem.arguments | {"window": bounds[side]}


@chapter.group("MASK-9")
def key_lengths(draw: Draw) -> Iterator[Yielded]:
    """From 0, which leaves nothing, to S, which leaves everything."""
    for problem in draw.problems(MASKED, 2):
        yield problem.arguments | {"key_lengths": problem.integers(0, problem.shape[-1])}


@chapter.group("MASK-10")
def query_lengths(draw: Draw) -> Iterator[Yielded]:
    """From 0, which leaves nothing, to L, which leaves everything."""
    for problem in draw.problems(MASKED, 2):
        yield problem.arguments | {"query_lengths": problem.integers(0, problem.shape[-2])}


@chapter.group("MASK-9")
def key_lengths_beside_causal(draw: Draw) -> Iterator[Yielded]:
    """Positions are counted from the first key, whatever part of the keys is used."""
    for problem in draw.problems(MASKED, 2):
        lengths = problem.integers(1, problem.shape[-1])
        yield problem.arguments | {"is_causal": True, "key_lengths": lengths}


@chapter.group("MASK-9", "MASK-7")
def key_lengths_beside_an_offset(draw: Draw) -> Iterator[Yielded]:
    """A length counts from the first key, wherever the queries stand."""
    for problem in draw.problems(MASKED, 2):
        keys = problem.shape[-1]
        options = {"query_offset": problem.integers(1, keys), "key_lengths": problem.integers(1, keys - 1)}
        yield problem.arguments | options


@chapter.group("MASK-11")
def segment_ids(draw: Draw) -> Iterator[Yielded]:
    """Ids are only compared, so they may be unsorted, negative, zero and large."""
    for problem in draw.problems(MASKED, 2):
        yield problem.arguments | segments(problem)


@chapter.group("MASK-4", each=("mask and bias", "mask and causal", "bias and causal", "all"))
def every_source_must_allow(draw: Draw, sources: str) -> Iterator[Yielded]:
    """Mask, bias and causal mask each disallow keys if they are given together."""
    for problem in draw.problems():
        options: dict[str, Any] = {}
        if "mask" in sources or sources == "all":
            options["mask"] = problem.mask()
        if "bias" in sources or sources == "all":
            options["bias"] = biased(problem)
        if "causal" in sources or sources == "all":
            options["is_causal"] = True
        yield problem.arguments | options


@chapter.group("MASK-5", each=("mask", "key_lengths"))
def large_numbers_in_disallowed_keys(draw: Draw, route: str) -> Iterator[Yielded]:
    """Large numbers in keys and values that no query may attend to do not change the result."""
    for problem in draw.problems(_LONG, 3):
        keys = problem.key.shape[-2]
        gone = np.arange(keys) >= keys // 2 + 1
        if route == "mask":
            gone = problem.random.permutation(gone)
        key, value = problem.key.copy(), problem.value.copy()
        key[..., gone, :] *= 1000  # at most some 16000: float16 ends at 65504
        value[..., gone, :] = -10000
        options = {"mask": ~gone} if route == "mask" else {"key_lengths": keys - int(gone.sum())}
        yield {"query": problem.query, "key": key, "value": value} | options


@chapter.group("MASK-5")
def score_below_any_sentinel(draw: Draw) -> Iterator[Yielded]:
    """Allowed keys with scores around -20000 outweigh disallowed ones with scores around 0."""
    for problem in draw.problems():
        mask = problem.mask()
        bias = np.where(mask, problem.array(*problem.shape) - 20000, 0).astype(problem.query.dtype)
        yield problem.arguments | {"mask": mask, "bias": bias}


#: Two batch entries of three heads, five queries, seven keys; and the other way round.
_WIDE, _TALL = SHAPES[4], MASKED[2]
#: The rows that are left without a key. A rule may hold for the first row and fail for one in the middle.
_ROWS = {"first": slice(0, 1), "middle": slice(2, 3), "last": slice(-1, None), "all": slice(None)}


def _mask(problem: Problem, rows: slice) -> dict[str, Any]:
    mask = problem.mask()
    mask[..., rows, :] = False
    return {"mask": mask}


def _bias(problem: Problem, rows: slice) -> dict[str, Any]:
    bias = problem.array(*problem.shape)
    bias[..., rows, :] = -np.inf
    return {"bias": bias}


def _segments(problem: Problem, rows: slice) -> dict[str, Any]:
    queries = np.zeros((*problem.batch, problem.shape[-2]), dtype=np.int64)
    queries[..., rows] = 5
    keys = np.zeros((*problem.batch, problem.shape[-1]), int)
    return {"query_segment_ids": queries, "key_segment_ids": keys}


def _mask_and_causal(problem: Problem, rows: slice) -> dict[str, Any]:
    """Allow row i to attend to keys up to i by the one source, and from i + 1 on by the other."""
    mask = problem.mask()
    for row in range(problem.shape[-2])[rows]:
        mask[..., row, : row + 1] = False
    return {"mask": mask, "is_causal": True}


_ANYWHERE = {"mask": _mask, "bias": _bias, "segments": _segments, "mask and causal": _mask_and_causal}
#: Routes that leave rows empty where they can: the shape, and the arguments.
_SOMEWHERE: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "first, by a negative offset": (_WIDE, {"is_causal": True, "query_offset": -2}),
    "first of one entry, by its offset": (_WIDE, {"is_causal": True, "query_offset": np.array([-3, 1])}),
    "first, by bottom-right": (_TALL, {"is_causal": True, "query_offset": -2}),
    "last, by a window past the keys": (_TALL, {"window": (1, None)}),
    "first, by a window before the keys": (_WIDE, {"window": (None, 0), "query_offset": -1}),
    "all, by no keys of one entry": (_WIDE, {"key_lengths": np.array([0, 4])}),
    "all, by no keys": (_TALL, {"key_lengths": 0}),
    "last, by query lengths": (_WIDE, {"query_lengths": np.array([4, 2])}),
    "all, by no queries": (_TALL, {"query_lengths": 0}),
    "last, by a window and a length": (_WIDE, {"window": (1, 0), "key_lengths": 3}),
}


@chapter.group("MASK-6", "SOFT-7", each=tuple(product(_ANYWHERE, _ROWS)))
def empty_row(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """A mask, a bias or segment ids leave a row with nothing to attend to."""
    route, place = which
    rules = ("MASK-2", "MASK-6", "SOFT-7") if route == "bias" else ("MASK-6", "SOFT-7")
    for problem in draw.in_each_dtype(_WIDE):
        yield Call(problem.arguments | _ANYWHERE[route](problem, _ROWS[place]), rules)


@chapter.group("MASK-6", "SOFT-7", each=tuple(_SOMEWHERE))
def empty_rows_at_the_ends(draw: Draw, route: str) -> Iterator[Yielded]:
    """An alignment, a window or a length leaves rows with nothing to attend to."""
    shape, options = _SOMEWHERE[route]
    for problem in draw.in_each_dtype(shape):
        yield problem.arguments | options


@chapter.group("MASK-6", "SOFT-7")
def no_keys_at_all(draw: Draw) -> Iterator[Yielded]:
    """With S = 0 every row is empty, and there is nothing to take a mean of."""
    for problem in draw.in_each_dtype(SHAPES[3]):
        none = {name: problem.arguments[name][..., :0, :] for name in ("key", "value")}
        yield problem.arguments | none


@chapter.group("SOFT-7", each=tuple(_ROWS))
def lse_of_an_empty_row(draw: Draw, place: str) -> Iterator[Yielded]:
    """The lse of a row with nothing to attend to is minus infinity."""
    for problem in draw.in_each_dtype(_WIDE):
        yield problem.arguments | _mask(problem, _ROWS[place])


@chapter.group("SOFT-7", "SOFT-5", "MASK-6", each=tuple(_ROWS))
def empty_row_with_a_sink(draw: Draw, place: str) -> Iterator[Yielded]:
    """The output of an empty row with a sink is 0, and its lse is the sink."""
    for problem in draw.in_each_dtype(_WIDE):
        sinks = problem.array(problem.shape[-3], amplitude=2.0)
        yield problem.arguments | _mask(problem, _ROWS[place]) | {"sinks": sinks}
