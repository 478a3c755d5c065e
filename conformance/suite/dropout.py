"""The chapter `dropout`: the effect of a given dropout mask."""

from collections.abc import Iterator

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import dropout
from attnspec.conformance.suite.problem import MASKED, SHAPES

chapter = Chapter("dropout")


@chapter.group("DROP-1", "DROP-2")
def dropped_and_kept(draw: Draw) -> Iterator[Yielded]:
    """Dropout masks have every shape that broadcasts, and rates differ from the share that is dropped."""
    for problem in draw.problems():
        yield problem.arguments | dropout(problem)


@chapter.group("DROP-1")
def rate_of_zero(draw: Draw) -> Iterator[Yielded]:
    """At a rate of 0 the kept weights do not change: the output loses only what the dropped ones add."""
    for problem in draw.problems(SHAPES[1:]):
        yield problem.arguments | {"dropout_mask": problem.mask()}


@chapter.group("DROP-2", each=(0.0, 0.25, 0.9))
def kept_weights_are_divided(draw: Draw, rate: float) -> Iterator[Yielded]:
    """With equal scores and nothing dropped, each weight is 1 / n over 1 - rate."""
    for problem in draw.problems(MASKED):
        arguments = problem.arguments | {
            "query": np.zeros_like(problem.query),
            "dropout_mask": np.ones(problem.shape, dtype=bool),
            "dropout_rate": rate,
        }
        expected = {"weights": np.full(problem.shape, 1 / problem.shape[-1] / (1 - rate))}
        yield Call(arguments, expected=expected)


@chapter.group("DROP-1", "SOFT-1")
def row_of_dropped_weights(draw: Draw) -> Iterator[Yielded]:
    """A row whose weights are all dropped has the output 0, and the lse of its scores."""
    for problem in draw.problems(MASKED):
        mask = np.ones(problem.shape, dtype=bool)
        mask[..., 1, :] = False
        yield problem.arguments | {"dropout_mask": mask, "dropout_rate": 0.5}


@chapter.group("DROP-3")
def lse_without_dropout(draw: Draw) -> Iterator[Yielded]:
    """The lse is that of the same call without dropout."""
    for problem in draw.problems():
        yield Call(problem.arguments | dropout(problem), outputs=("lse",))
