"""The chapter `masking`: empty rows by the number of keys, masks that broadcast, rows of the lowest bias."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Shape
from attnspec.dtypes import FORMATS

chapter = Chapter("masking")

#: Numbers of keys that fill one vector of a processor or two, and one more: some libraries branch there.
WIDTHS = (8, 16, 17, 33)
#: Two batch entries of three heads, five queries, seven keys.
_BROADCAST = Shape((2, 3), 5, 7, 4, 4)


@chapter.group("MASK-6", "SOFT-7", each=tuple(product(("mask", "bias", "key_lengths"), WIDTHS)))
def empty_row_of_every_width(draw: Draw, which: tuple[str, int]) -> Iterator[Yielded]:
    """Rows with nothing to attend to among others, with as many keys as a vector unit holds, and more."""
    route, keys = which
    rules = ("MASK-2", "MASK-6", "SOFT-7") if route == "bias" else ("MASK-6", "SOFT-7")
    for problem in draw.in_each_dtype(Shape((2, 2), 5, keys, 8, 8)):
        mask = problem.mask()
        mask[:, :, 0] = mask[1, 1, 3] = False
        added = np.where(mask, problem.array(*problem.shape), -np.inf).astype(problem.query.dtype)
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": mask},
            "bias": {"bias": added},
            "key_lengths": {"key_lengths": np.array([0, problem.shape[-1] - 1])},
        }
        yield Call(problem.arguments | options[route], rules)


#: What a mask holds that broadcasts along the other axes of the scores.
_AXES = (
    "one row",
    "one row of each entry",
    "one row of each head",
    "one column",
    "one number of each head",
)


def _part(mask: Any, axes: str) -> Any:
    """Take a part of an array of (B, Hq, L, S) that broadcasts to it."""
    return {
        "one row": mask[0, 0, -1:],
        "one row of each entry": mask[:, :1, -1:],
        "one row of each head": mask[:1, :, -1:],
        "one column": mask[0, 0, :, -1:],
        "one number of each head": mask[:1, :, -1:, -1:],
    }[axes]


@chapter.group("MASK-4", "MASK-1", each=tuple(product(_AXES, ("is_causal", "window", "key_lengths"))))
def broadcast_mask_beside(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """A mask that broadcasts holds for every query, beside a source that differs from row to row."""
    axes, source = which
    for problem in draw.in_each_dtype(_BROADCAST):
        keys = problem.shape[-1]
        options: dict[str, dict[str, Any]] = {
            "is_causal": {"is_causal": True},
            "window": {"window": (1, 1)},
            "key_lengths": {"key_lengths": problem.random.integers(2, keys, problem.batch)},
        }
        mask = np.ascontiguousarray(_part(problem.random.random(problem.shape) < 0.6, axes))
        yield problem.arguments | {"mask": mask} | options[source]


@chapter.group("MASK-4", "SCORE-4", each=("one row", "one row of each head", "one column"))
def broadcast_bias_beside_causal(draw: Draw, axes: str) -> Iterator[Yielded]:
    """A bias that broadcasts, with minus infinity in some places, beside a causal mask."""
    for problem in draw.in_each_dtype(_BROADCAST):
        mask = problem.random.random(problem.shape) < 0.7
        bias = np.where(mask, problem.array(*problem.shape), -np.inf).astype(problem.query.dtype)
        arguments = problem.arguments | {"bias": np.ascontiguousarray(_part(bias, axes)), "is_causal": True}
        yield Call(arguments, ("MASK-4", "SCORE-4", "MASK-2"))


@chapter.group("MASK-5", "MASK-2", each=("all keys", "all keys that a mask allows", "some keys"))
def rows_of_the_lowest_bias(draw: Draw, which: str) -> Iterator[Yielded]:
    """The lowest finite number in the bias disallows nothing, also in the whole row."""
    for problem in draw.in_each_dtype(_BROADCAST, 0.5):
        lowest = -FORMATS[str(problem.query.dtype)].largest
        bias, mask = np.zeros(problem.shape), problem.mask()
        if which == "some keys":
            bias[..., ::2, 1:] = lowest
        else:
            bias[..., ::2, :] = lowest
        options: dict[str, Any] = {"bias": bias.astype(problem.query.dtype)}
        if which == "all keys that a mask allows":
            options["mask"] = mask
        yield problem.arguments | options
