"""The chapter `softmax`: the maximum of each row."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option, sinks
from attnspec.conformance.suite.problem import GROUPED, MASKED, Problem, Shape

chapter = Chapter("softmax")

#: Past tiles of 16 and 64 keys, and no multiple of them.
_LONG = (Shape((2, 2), 3, 70, 4, 4), Shape((1, 4), 17, 129, 8, 8, groups=2))
_OPTIONS = tuple(name for name in OPTIONS if name not in ("query_lengths", "segments", "dropout_rate"))


def _asked(problem: Problem, options: dict[str, Any], *rules: str) -> Call:
    return Call(problem.arguments | options | {"return_max": True}, rules, outputs=("output", "max"))


@chapter.group("SOFT-8")
def maximum_of_each_row(draw: Draw) -> Iterator[Yielded]:
    """Each row has a maximum of its own, also of grouped heads and at large amplitudes."""
    for problem in draw.problems((*MASKED, *GROUPED)):
        yield _asked(problem, {})


@chapter.group("SOFT-8", each=_OPTIONS)
def maximum_with_options(draw: Draw, option: str) -> Iterator[Yielded]:
    """The maximum is that of the scores after scale, softcap and bias, over the allowed keys."""
    for problem in draw.problems(GROUPED[:1]):
        needs, own = draw_option(problem, option)
        yield _asked(problem, needs | own, "SOFT-8", OPTIONS[option].rule)


@chapter.group("SOFT-8", each=("first", "middle", "last"))
def maximum_in_a_tile(draw: Draw, place: str) -> Iterator[Yielded]:
    """The largest score is in the first tile, in the middle or in the last, and every score is negative."""
    for problem in draw.problems(_LONG):
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
        yield _asked(problem, {"mask": mask, "key": key}, "SOFT-8", "MASK-5")


@chapter.group("SOFT-9", each=("mask", "key_lengths", "sinks"))
def maximum_of_nothing(draw: Draw, by: str) -> Iterator[Yielded]:
    """Some rows have no allowed key, also beside sinks."""
    for problem in draw.problems(MASKED):
        options: dict[str, Any] = sinks(problem) if by == "sinks" else {}
        if by == "key_lengths":
            yield _asked(problem, {"key_lengths": 0}, "SOFT-9", "MASK-9")
            continue
        mask = problem.mask()
        mask[..., ::2, :] = False
        yield _asked(problem, options | {"mask": mask}, "SOFT-9", "MASK-6")
