"""The chapter `softmax`: weights, the denominator with its sinks, the lse and the maximum."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from attnspec import Case
from attnspec.backends import Backend
from attnspec.backends.constraints import ANY
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import observe, without
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option, dropout, sinks
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Problem, Shape
from attnspec.conformance.verdict import Difference

chapter = Chapter("softmax")

_ONE_KEY = tuple(shape for shape in SHAPES if shape.keys == 1)
_LONG = ((3, 33), (2, 65), (2, 257), (33, 9))


@chapter.group("SOFT-1")
def rows_are_independent(draw: Draw) -> Iterator[Yielded]:
    """A bias that raises all scores of one row does not change the other rows."""
    for problem in draw.problems():
        bias = np.zeros(problem.shape, dtype=problem.query.dtype)
        bias[..., 0, :] = 8.0
        yield Call(problem.arguments | {"bias": bias}, outputs=("output", "weights"))


@chapter.group("SOFT-1")
def equal_scores_give_the_mean(draw: Draw) -> Iterator[Yielded]:
    """A query of zeros attends to all keys alike: a closed form, without exponentials."""
    for problem in draw.problems():
        value = problem.value.astype(np.float64)  # on a coarse grid: their sum is exact
        mean = value.mean(axis=-2, keepdims=True)
        expected = {
            "output": np.broadcast_to(mean, (*problem.shape[:-1], value.shape[-1])),
            "weights": np.full(problem.shape, 1 / value.shape[-2]),
        }
        arguments = problem.arguments | {"query": np.zeros_like(problem.query)}
        yield Call(arguments, expected=expected, outputs=tuple(expected))


@chapter.group("SOFT-2", each=(10000.0, -10000.0))
def common_shift(draw: Draw, shift: float) -> Iterator[Yielded]:
    """A bias shared by a row cancels, far beyond where the exponential over- or underflows."""
    for problem in draw.problems():
        query, key = np.round(problem.query), np.round(problem.key)  # adding the shift is exact
        bias = np.full(problem.shape, shift, dtype=problem.query.dtype)
        yield {"query": query, "key": key, "value": problem.value, "scale": 0.125, "bias": bias}


@chapter.group("SOFT-2", "NUM-5", each=(1.0, -1.0))
def scores_past_float16(draw: Draw, sign: float) -> Iterator[Yielded]:
    """One large feature in common puts every score at about 130000, above or below zero."""
    for problem in draw.problems(tuple(shape for shape in SHAPES if shape.depth > 1)):
        query, key = problem.query.copy(), problem.key.copy()
        query[..., 0], key[..., 0] = 512, sign * 512
        yield {"query": query, "key": key, "value": problem.value, "scale": 0.5}


@chapter.group("SOFT-2")
def large_scores(draw: Draw) -> Iterator[Yielded]:
    """Scores of thousands of both signs do not overflow, also if the largest is late in the row."""
    for problem in draw.problems():
        key = problem.key.copy()
        key[..., -1, :] *= 4
        yield problem.arguments | {"key": key, "scale": 500.0}


@chapter.group("SOFT-3")
def values_go_with_their_keys(draw: Draw) -> Iterator[Yielded]:
    """Keys and values in another order give the same output."""
    for problem in draw.problems():
        order = problem.random.permutation(problem.key.shape[-2])
        arrays = {"key": problem.key[..., order, :], "value": problem.value[..., order, :]}
        yield Call(problem.arguments | arrays, outputs=("output",))


@chapter.group("SOFT-3", each=_LONG)
def every_key_counts(draw: Draw, sizes: tuple[int, int]) -> Iterator[Yielded]:
    """With a query of zeros every key counts as much as any other, past every tile."""
    for problem in draw.in_each_dtype(Shape((), *sizes, 2, 6)):
        mean = problem.value.astype(np.float64).mean(axis=0)
        expected = {"output": np.broadcast_to(mean, (len(problem.query), len(mean)))}
        arguments = problem.arguments | {"query": np.zeros_like(problem.query)}
        yield Call(arguments, expected=expected, outputs=("output",))


@chapter.group("SOFT-3")
def one_key_gives_its_value(draw: Draw) -> Iterator[Yielded]:
    """Whatever the score, the output of a row with one key is its value."""
    # With one key. A backend that does not take one key is not tested.
    for problem in replace(draw, constraints=ANY).problems(_ONE_KEY, 6):
        yield Call(problem.arguments, outputs=("output",))


@chapter.group("SOFT-3")
def output_is_linear_in_the_values(draw: Draw) -> Iterator[Yielded]:
    """The output is linear in the values, which are whole numbers from 0 on, so that no sum cancels."""
    for problem in draw.problems():
        first, second = (problem.random.integers(0, 9, problem.value.shape) for _ in range(2))
        value = (first + 2 * second).astype(problem.value.dtype)
        yield Call(problem.arguments | {"value": value}, outputs=("output",))


@chapter.group("SOFT-4", "SHAPE-10", each=(("weights",), ("lse",), ("lse", "weights")))
def output_alone(draw: Draw, hidden: tuple[str, ...]) -> Iterator[Yielded]:
    """The output is the same when the weights or the lse are not asked for."""

    def run(backend: Backend, calls: tuple[Case, ...]) -> Found:
        flags = [f"return_{name}" for name in hidden]
        if not all(backend.has("attention", flag) for flag in flags):
            lacks = [f"output {name}" for name in hidden if not backend.has("attention", f"return_{name}")]
            raise Missing(f"{backend.name} does not return {' and '.join(hidden)}", *lacks)
        from attnspec.conformance.judge.judge import judge

        # Under a rule that is also tested on a backend without weights and lse.
        verdict = judge(without(backend, *flags), replace(calls[0], rules=("SOFT-1",)))
        rule = "SOFT-4" if verdict.rule == "SOFT-1" else verdict.rule
        return None if verdict.status == "pass" else replace(verdict, rule=rule)

    for problem in draw.problems():
        options: dict[str, Any] = {"mask": problem.mask(), "is_causal": True, "scale": 0.25}
        for taken in (options, {}):
            yield Calls((problem.arguments | taken,), run, live=True, beside=True)


#: Queries and keys: past a tile of keys, and more weights than signed integers of 16 and of 20 bits count.
_OF_WEIGHTS = ((3, 300), (257, 257), (8400, 63))


@chapter.group("SOFT-4", "MASK-3", "DROP-2", each=tuple(product(_OF_WEIGHTS, (0.0, 0.5))))
def many_returned_weights(draw: Draw, which: tuple[tuple[int, int], float]) -> Iterator[Yielded]:
    """With a query of zeros, all keys of a row have one weight, or none if they are dropped."""
    (queries, keys), rate = which
    for problem in draw.in_each_dtype(Shape((), queries, keys, 64, 64), dtypes=("float32", "float64")):
        row, key = np.indices((queries, keys))
        causal = queries == keys  # not with an offset, which many functions lack
        allowed = (key <= row) | (not causal)
        expected = allowed / allowed.sum(-1, keepdims=True)
        options: dict[str, Any] = {"is_causal": True} if causal else {}
        if rate:
            kept = problem.random.random((queries, keys)) >= rate
            options |= {"dropout_mask": kept, "dropout_rate": rate}
            expected *= kept / (1 - rate)
        arguments = problem.arguments | options | {"query": np.zeros_like(problem.query)}
        rules = ("SOFT-4", *(("MASK-3",) if causal else ()), *(("DROP-2",) if rate else ()))
        yield Call(arguments, rules, expected={"weights": expected}, outputs=("weights",))


@chapter.group("SOFT-4")
def returned_weights_are_those_used(draw: Draw) -> Iterator[Yielded]:
    """The returned weights applied to the values give the output, with dropout and without."""
    for number, problem in enumerate(draw.problems()):
        options = dropout(problem) if number % 4 < 2 else {}
        yield Calls((problem.arguments | {"is_causal": number % 3 > 0} | options,), _weights_give_the_output)


def _weights_give_the_output(backend: Backend, calls: tuple[Case, ...]) -> Found:
    (case,) = calls
    if not backend.has("attention", "return_weights"):
        raise Missing(f"{backend.name} has no argument return_weights", "output weights")
    outputs, value = observe(backend, case), case.arguments["value"].astype(np.float64)
    budgets = budgets_of(backend, case)
    applied = outputs["weights"].astype(np.float64) @ value
    allowed = budgets["output"] + budgets["weights"] @ np.abs(value)
    compared = compare("output", outputs["output"], applied, allowed, case.dtype)
    return compared if isinstance(compared, Difference) else None


@chapter.group("SOFT-5")
def one_sink_for_each_head(draw: Draw) -> Iterator[Yielded]:
    """Each query head has a sink of its own, which is neither scaled nor capped nor masked."""
    every: tuple[dict[str, Any], ...] = ({}, {"scale": 0.125}, {"softcap": 0.5}, {"is_causal": True})
    for index, problem in enumerate(draw.problems((*MASKED, *GROUPED), 2)):
        yield problem.arguments | sinks(problem) | every[index // 2 % len(every)]


@chapter.group("SOFT-5", each=(0.0, 3.0, -np.inf))
def sink_beside_equal_scores(draw: Draw, sink: float) -> Iterator[Yielded]:
    """With a query of zeros and values of one, the output is n / (n + exp(sink))."""
    for problem in draw.problems(MASKED):
        heads, keys = _heads(problem.shape), problem.shape[-1]
        arguments = {
            "query": np.zeros_like(problem.query),
            "key": problem.key,
            "value": np.ones_like(problem.value),
            "sinks": np.full(heads, sink, dtype=problem.query.dtype),
        }
        share = 1 / (keys + np.exp(sink))
        rows = problem.shape[:-1]
        expected = {
            "output": np.full((*rows, problem.value.shape[-1]), keys * share),
            "lse": np.full(rows, -np.log(share)),
            "weights": np.full(problem.shape, share),
        }
        yield Call(arguments, expected=expected)


@chapter.group("SOFT-5", "SOFT-2", each=("above", "below"))
def sink_far_from_all_scores(draw: Draw, side: str) -> Iterator[Yielded]:
    """A sink far above all scores takes everything without overflowing, and one far below takes nothing."""
    sink = 1000 if side == "above" else -1000
    for problem in draw.problems(MASKED):
        yield problem.arguments | {"sinks": np.full(_heads(problem.shape), sink, dtype=problem.query.dtype)}


@chapter.group("SOFT-6")
def lse(draw: Draw) -> Iterator[Yielded]:
    """The lse is that of the scores after scale, softcap, bias and mask."""
    for index, problem in enumerate(draw.problems((*MASKED, *GROUPED), 2)):
        every: tuple[dict[str, Any], ...] = (
            {},
            {"scale": 2.0},
            {"softcap": 1.5},
            {"mask": problem.mask()},
            {"bias": problem.array(*problem.shape, amplitude=3.0)},
        )
        yield Call(problem.arguments | every[index // 2 % len(every)], outputs=("lse",))


@chapter.group("SOFT-6")
def lse_of_equal_scores(draw: Draw) -> Iterator[Yielded]:
    """The lse of n scores of 0 is the logarithm of n, and that of a single key is its score."""
    for problem in draw.problems():
        alone = problem.key.shape[-2] == 1
        query = problem.query if alone else np.zeros_like(problem.query)
        # One score is exact: the numbers are multiples of 1/64.
        score = query.astype(np.float64) @ np.swapaxes(problem.key.astype(np.float64), -1, -2)
        log = 0.5 * score[..., 0] if alone else np.full(problem.shape[:-1], np.log(problem.shape[-1]))
        arguments = problem.arguments | {"query": query, "scale": 0.5}
        yield Call(arguments, expected={"lse": log}, outputs=("lse",))


def _heads(shape: tuple[int, ...]) -> int:
    return shape[-3] if len(shape) > 2 else 1


#: Past tiles of 16 and 64 keys, and no multiple of them.
_PAST_TILES = (Shape((2, 2), 3, 70, 4, 4), Shape((1, 4), 17, 129, 8, 8, groups=2))
_OPTIONS = tuple(name for name in OPTIONS if name not in ("query_lengths", "segments", "dropout_rate"))


def _with_maximum(problem: Problem, options: dict[str, Any], *rules: str) -> Call:
    return Call(problem.arguments | options | {"return_max": True}, rules, outputs=("output", "max"))


@chapter.group("SOFT-8")
def maximum_of_each_row(draw: Draw) -> Iterator[Yielded]:
    """Each row has a maximum of its own, also of grouped heads and at large amplitudes."""
    for problem in draw.problems((*MASKED, *GROUPED)):
        yield _with_maximum(problem, {})


@chapter.group("SOFT-8", each=_OPTIONS)
def maximum_with_options(draw: Draw, option: str) -> Iterator[Yielded]:
    """The maximum is that of the scores after scale, softcap and bias, over the allowed keys."""
    for problem in draw.problems(GROUPED[:1]):
        needs, own = draw_option(problem, option)
        yield _with_maximum(problem, needs | own, "SOFT-8", OPTIONS[option].rule)


@chapter.group("SOFT-8", each=("first", "middle", "last"))
def maximum_in_a_tile(draw: Draw, place: str) -> Iterator[Yielded]:
    """The largest score is in the first tile, in the middle or in the last, and every score is negative."""
    for problem in draw.problems(_PAST_TILES):
        keys = problem.shape[-1]
        chosen = {"first": 0, "middle": keys // 2, "last": keys - 1}[place]
        arguments = {name: np.abs(problem.arguments[name]) + 1 for name in ("query", "key")}
        arguments["key"] = -arguments["key"]
        arguments["key"][..., chosen, :] /= 8
        yield Call(
            problem.arguments | arguments | {"return_max": True},
            ("SOFT-8", "SOFT-2"),
            outputs=("output", "max"),
        )


@chapter.group("SOFT-8", "MASK-5")
def largest_score_of_a_disallowed_key(draw: Draw) -> Iterator[Yielded]:
    """Disallowed keys have the largest scores of all rows."""
    for problem in draw.problems(MASKED):
        mask = problem.mask()
        mask[..., -1] = False
        key = problem.key.copy()
        key[..., -1, :] *= 16
        yield _with_maximum(problem, {"mask": mask, "key": key}, "SOFT-8", "MASK-5")


@chapter.group("SOFT-9", each=("mask", "key_lengths", "sinks"))
def maximum_of_nothing(draw: Draw, by: str) -> Iterator[Yielded]:
    """Some rows have no allowed key, also beside sinks."""
    for problem in draw.problems(MASKED):
        options: dict[str, Any] = sinks(problem) if by == "sinks" else {}
        if by == "key_lengths":
            yield _with_maximum(problem, {"key_lengths": 0}, "SOFT-9", "MASK-9")
            continue
        mask = problem.mask()
        mask[..., ::2, :] = False
        yield _with_maximum(problem, options | {"mask": mask}, "SOFT-9", "MASK-6")
