"""The chapter `softmax`: sinks in the denominator, and the logarithm of the denominator."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import sinks
from attnspec.conformance.suite.problem import GROUPED, MASKED

chapter = Chapter("softmax")


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
        output_shape = (*problem.shape[:-1], problem.value.shape[-1])
        expected = {"output": np.full(output_shape, keys * share), "weights": np.full(problem.shape, share)}
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
