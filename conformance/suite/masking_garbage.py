"""The chapter `masking`: numbers in disallowed keys change nothing, whatever they are."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.comparison import same_bits
from attnspec.conformance.judge.failure import Failure, Missing
from attnspec.conformance.relations.nan import judge_elsewhere
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.group import Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import MASKED, SHAPES, Problem
from attnspec.conformance.verdict import Difference
from attnspec.dtypes import FORMATS

chapter = Chapter("masking")

#: Two batch entries of three heads, five queries and seven keys.
_WIDE = SHAPES[4]


def _garbage(problem: Problem, gone: NDArray[np.bool_], key: Any, value: Any) -> dict[str, Any]:
    """Write numbers into the keys and values that are disallowed for every query."""
    given = {name: array.copy() for name, array in problem.arguments.items()}
    given["key"][..., gone, :] = key
    given["value"][..., gone, :] = value
    return given


def _routes(problem: Problem) -> dict[str, tuple[NDArray[np.bool_], dict[str, Any]]]:
    """Return for each source the keys that it disallows for every query, and its arguments."""
    queries, keys = problem.shape[-2:]
    position = np.arange(keys)
    mask = np.tile([True, False], keys)[:keys]
    ids, own = np.ones((*problem.batch, queries), np.int64), np.broadcast_to(mask, (*problem.batch, keys))
    return {
        "mask": (~mask, {"mask": mask}),
        "bias": (~mask, {"bias": np.where(mask, 0.5, -np.inf).astype(problem.query.dtype)}),
        "is_causal": (position >= queries, {"is_causal": True}),
        "window": (position < 2, {"window": (0, None), "query_offset": 2}),
        "key_lengths": (position >= 4, {"key_lengths": 4}),
        "segments": (~mask, {"query_segment_ids": ids, "key_segment_ids": own.astype(np.int64)}),
        "key_positions": (~mask, {"key_positions": np.where(own, position, -1)}),
    }


_SOURCES = ("mask", "bias", "is_causal", "window", "key_lengths", "segments", "key_positions")


@chapter.group("MASK-12", each=tuple(product(_SOURCES, ("large", "largest"))))
def finite_garbage(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Finite numbers in keys and values that no query may attend to change no bit of the weights."""
    source, size = which
    for problem in draw.in_each_dtype(_WIDE):
        gone, options = _routes(problem)[source]
        most = 30000 if size == "large" else FORMATS[str(problem.query.dtype)].largest
        pairs = ((0, 0), (most, -most), (-most, most))
        calls = tuple(_garbage(problem, gone, key, value) | options for key, value in pairs)
        yield Calls(calls, _same_weights, beside=True)


def _same_weights(backend: Backend, calls: tuple[Case, ...]) -> Found:
    if "is_causal" in calls[0].arguments and "MASK-3" in backend.dialect:
        raise Missing(f"{backend.name} disallows other keys, by its declared variant of MASK-3")
    first, *others = [observe(backend, case)["weights"] for case in calls]
    for case, other in zip(calls[1:], others, strict=True):
        if difference := same_bits("weights", other, first):
            difference = _if_repeatable(backend, calls[0], difference)
            raise Failure("MASK-12", _what_happens(case, difference), difference)
    return None


def _what_happens(case: Case, difference: Difference) -> str:
    """Say what the disallowed keys of a call hold, and how they give NaN."""
    most = float(np.abs(case.arguments["key"]).max())
    source = " and ".join(f"`{name}`" for name in case.arguments if name not in ("query", "key", "value"))
    held = f"the keys that {source} disallows hold {most:.3g}, and 0 in the call with the expected weights"
    with np.errstate(over="ignore"):
        overflows = not np.isfinite(case.arguments["query"].sum(axis=-1) * most).all()
    if not overflows or difference.got == difference.got:
        return held
    return f"{held}: their product with a query overflows, and infinity with minus infinity added is NaN"


def _if_repeatable(backend: Backend, case: Case, difference: Difference) -> Difference:
    """Return a difference in bits, if a repeated call has the same bits (NUM-9)."""
    first, again = (observe(backend, case)["weights"] for _ in range(2))
    if same_bits("weights", again, first) is not None:
        raise Missing(f"{backend.name} gives other bits when a call is repeated (NUM-9)")
    return difference


@chapter.group("MASK-12")
def finite_garbage_after_the_query(draw: Draw) -> Iterator[Yielded]:
    """A key that is disallowed for some queries only, by the causal mask, changes no bit of their weights."""
    for problem in draw.in_each_dtype(MASKED[1]):
        last = np.arange(problem.shape[-1]) == problem.shape[-1] - 1
        calls = tuple(_garbage(problem, last, x, -x) | {"is_causal": True} for x in (0, 30000))
        yield Calls(calls, _same_earlier_weights)


def _same_earlier_weights(backend: Backend, calls: tuple[Case, ...]) -> Found:
    first, other = (observe(backend, case)["weights"][..., :-1, :] for case in calls)
    difference = same_bits("weights", other, first)
    return difference and _if_repeatable(backend, calls[0], difference)


@chapter.group("MASK-13", each=tuple(product(_SOURCES, (np.nan, np.inf, -np.inf))))
def poison(draw: Draw, which: tuple[str, float]) -> Iterator[Yielded]:
    """NaN and infinity in keys and values that no query may attend to do not change the result."""
    source, number = which
    for problem in draw.in_each_dtype(_WIDE):
        gone, options = _routes(problem)[source]
        yield _garbage(problem, gone, number, number) | options


#: The key head that holds NaN or infinity, in a problem of as many query heads.
_SPOILED = -1, 0
_other_heads = partial(judge_elsewhere, dict.fromkeys(("output", "lse", "weights", "max"), _SPOILED))


@chapter.group("SHAPE-9", each=tuple(product(_SOURCES, (np.nan, np.inf))))
def poison_in_one_head(draw: Draw, which: tuple[str, float]) -> Iterator[Yielded]:
    """NaN and infinity in one head, in keys and values that no query may attend to, reach no other head."""
    source, number = which
    for problem in draw.in_each_dtype(_WIDE):
        gone, options = _routes(problem)[source]
        clean, spoiled = problem.arguments, _garbage(problem, gone, number, number)
        for name in ("key", "value"):
            whole = clean[name].copy()
            whole[_SPOILED] = spoiled[name][_SPOILED]
            spoiled[name] = whole
        yield Calls((clean | options, spoiled | options), _other_heads)


@chapter.group("MASK-13", each=(np.nan, np.inf))
def poison_beside_an_empty_row(draw: Draw, number: float) -> Iterator[Yielded]:
    """A row with no allowed key is 0 where the keys and values hold NaN and infinity."""
    for problem in draw.in_each_dtype(_WIDE):
        everywhere = np.ones(problem.shape[-1], dtype=bool)
        yield _garbage(problem, everywhere, number, number) | {"key_lengths": 0}


@chapter.group("MASK-13", each=(np.nan, np.inf))
def poison_in_the_bias_for_a_disallowed_key(draw: Draw, number: float) -> Iterator[Yielded]:
    """NaN and infinity in the bias for a key that another argument disallows do not change the result."""
    for problem in draw.in_each_dtype(MASKED[0]):
        mask = problem.random.random(problem.shape) < 0.5
        bias = np.where(mask, problem.random.normal(size=problem.shape), number).astype(problem.query.dtype)
        yield problem.arguments | {"mask": mask, "bias": bias}


@chapter.group("MASK-13")
def poison_after_the_query(draw: Draw) -> Iterator[Yielded]:
    """The last key is NaN. Under the causal mask it may change only the last row."""
    for problem in draw.in_each_dtype(MASKED[1]):
        last = np.arange(problem.shape[-1]) == problem.shape[-1] - 1
        yield _garbage(problem, last, np.nan, np.nan) | {"is_causal": True}
