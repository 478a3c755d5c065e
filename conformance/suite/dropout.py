"""The chapter `dropout`: dropout by a mask and by a seed."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.judge.judge import judge_outputs
from attnspec.conformance.relations.chance import (
    as_with_the_mask,
    differs_by_the_seed,
    drops_at_the_probability,
    drops_independently,
    has_one_mask,
    shares_no_row,
)
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import draw_option, dropout
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Problem, Shape

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
    """With equal scores and nothing dropped, each weight is 1 / n over 1 - rate, and the lse is log n."""
    for problem in draw.problems(MASKED):
        arguments = problem.arguments | {
            "query": np.zeros_like(problem.query),
            "dropout_mask": np.ones(problem.shape, dtype=bool),
            "dropout_rate": rate,
        }
        *rows, keys = problem.shape
        mean = problem.value.astype(np.float64).mean(axis=-2, keepdims=True)
        expected = {
            "output": np.broadcast_to(mean / (1 - rate), (*rows, problem.value.shape[-1])),
            "lse": np.full(rows, np.log(keys)),
            "weights": np.full(problem.shape, 1 / keys / (1 - rate)),
        }
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


_FORWARD, _BACKWARD = "seeded_dropout_attention", "seeded_dropout_attention_vjp"
#: Enough weights for counts, more keys and queries than a tile has, and powers of two, for pairs.
_MANY = Shape((2, 4), 128, 256, 64, 64)
#: Sizes of which no axis is a multiple of a tile.
_UNEVEN = Shape((2, 3), 75, 130, 64, 64)
#: More heads and batch entries than a short period has.
_HEADS = Shape((9, 9), 8, 64, 64, 64)
#: Few weights, for many seeds.
_FEW = Shape((2, 4), 8, 64, 64, 64)
#: Small and large ones, neighbours, and two that differ only in their upper bits.
_SEEDS = (0, 1, 2, 65537, 2**31 - 1)
#: Two that differ by each number to 1024, or in each bit alone, and neighbours that float32 rounds to one.
_MORE_SEEDS = (
    *range(32),
    *range(32, 1024 + 1, 32),
    *(2**bit for bit in range(11, 31)),
    2**24 + 1,
    2**31 - 2,
    2**31 - 1,
)
_PROBABILITIES = (0.25, 0.5, 0.1)
_OPTIONS = (
    "scale",
    "softcap",
    "bias",
    "mask",
    "is_causal",
    "query_offset",
    "window",
    "key_lengths",
    "sinks",
)
_AS_WITH_THE_MASK = as_with_the_mask(judge_outputs)


def _with_seed(arguments: Any, p: float, seed: int = 42) -> dict[str, Any]:
    return {**arguments, "dropout_p": p, "seed": seed}


def _flat(draw: Draw, shape: Shape, index: int = 0) -> dict[str, Any]:
    """Draw a problem whose weights are all far from 0."""
    return draw.problem(shape, "float32", index, 0.125).arguments


def _relate(*calls: Any, run: Any, operation: str = _FORWARD) -> Calls:
    return Calls(
        tuple(Call(arguments, operation=operation) for arguments in calls), run, live=True, bits=True
    )


def _with_cotangent(problem: Problem) -> dict[str, Any]:
    d_output = problem.array(*problem.query.shape[:-1], problem.value.shape[-1])
    return problem.arguments | {"d_output": d_output}


@chapter.group("DROP-5", operation=_FORWARD)
def result_of_a_mask(draw: Draw) -> Iterator[Yielded]:
    """Output and lse are those of attention with the mask of the call, and with its rate."""
    for index, problem in enumerate(draw.problems((*SHAPES[1:], *GROUPED))):
        p = _PROBABILITIES[index // 2 % len(_PROBABILITIES)]
        yield _relate(_with_seed(problem.arguments, p), run=_AS_WITH_THE_MASK)


@chapter.group("DROP-5", operation=_FORWARD, each=_OPTIONS)
def result_of_a_mask_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Output and lse are those of attention with the mask of the call, beside another option."""
    for problem in draw.problems(MASKED[:1]):
        needs, own = draw_option(problem, option)
        yield _relate(_with_seed(problem.arguments | needs | own, 0.5), run=_AS_WITH_THE_MASK)


@chapter.group("DROP-6", operation=_FORWARD)
def same_mask(draw: Draw) -> Iterator[Yielded]:
    """The mask is the same with other numbers, and after a call with another seed."""
    for shape in (_UNEVEN, _UNEVEN._replace(groups=3)):
        first, second = (_flat(draw, shape, index) for index in range(2))
        others = (_with_seed(second, 0.5), _with_seed(first, 0.5, 43))
        yield _relate(_with_seed(first, 0.5), *others, run=has_one_mask)


@chapter.group("DROP-6", operation=_FORWARD, each=_OPTIONS)
def same_mask_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """The mask is the same with another option, which may disallow some keys."""
    for shape in (_FEW,):
        problem = draw.problem(shape, "float32", amplitude=0.125)
        needs, own = draw_option(problem, option)
        plain = problem.arguments
        yield _relate(_with_seed(plain, 0.5), _with_seed(plain | needs | own, 0.5), run=has_one_mask)


@chapter.group("DROP-7", operation=_FORWARD, each=(0.01, 0.1, 0.3, 0.75, 0.95))
def share_of_dropped_weights(draw: Draw, p: float) -> Iterator[Yielded]:
    """As many weights are dropped as the probability says, up to chance."""
    for shape in (_MANY,):
        yield _relate(_with_seed(_flat(draw, shape), p), run=drops_at_the_probability)


@chapter.group("DROP-8", operation=_FORWARD)
def neighbours(draw: Draw) -> Iterator[Yielded]:
    """Weights of a row, of a column, of two heads and of two batch entries are dropped independently."""
    for shape in (_MANY, _HEADS):
        yield _relate(_with_seed(_flat(draw, shape), 0.5), run=drops_independently)


@chapter.group("DROP-9", operation=_FORWARD)
def other_seeds(draw: Draw) -> Iterator[Yielded]:
    """Seeds give masks that are independent of each other."""
    calls = (_with_seed(_flat(draw, _UNEVEN), 0.5, seed) for seed in _SEEDS)
    yield _relate(*calls, run=differs_by_the_seed)


@chapter.group("DROP-9", operation=_FORWARD)
def many_seeds(draw: Draw) -> Iterator[Yielded]:
    """Seeds that differ in one bit, or by a small number, have no row of their masks in common."""
    arguments = _flat(draw, _FEW)
    yield _relate(*(_with_seed(arguments, 0.5, seed) for seed in _MORE_SEEDS), run=shares_no_row)


@chapter.group("DROP-10", operation=_FORWARD, each=(0.0, 1.0))
def nothing_left_to_chance(draw: Draw, p: float) -> Iterator[Yielded]:
    """A probability of 0 drops nothing, and one of 1 everything."""
    for problem in draw.problems(MASKED):
        yield _with_seed(problem.arguments, p)


@chapter.group("DROP-11", operation=_BACKWARD)
def gradients_of_the_mask(draw: Draw) -> Iterator[Yielded]:
    """The gradients are those of attention with the mask of the forward pass."""
    for problem in draw.problems((*MASKED[:2], GROUPED[0])):
        arguments = _with_seed(_with_cotangent(problem), 0.5)
        yield _relate(arguments, run=_AS_WITH_THE_MASK, operation=_BACKWARD)


@chapter.group("DROP-11", operation=_BACKWARD, each=(*_OPTIONS, "d_lse"))
def gradients_of_the_mask_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """The gradients are those of attention with the mask of the call, beside another option."""
    for problem in draw.problems(MASKED[:1]):
        if option == "d_lse":
            given = {"d_lse": problem.array(*problem.shape[:-1]).astype(lse_dtype(str(problem.query.dtype)))}
        else:
            needs, own = draw_option(problem, option)
            given = needs | own
        arguments = _with_seed(_with_cotangent(problem) | given, 0.5)
        yield _relate(arguments, run=_AS_WITH_THE_MASK, operation=_BACKWARD)


@chapter.group("DROP-11", "DROP-10", operation=_BACKWARD, each=(0.0, 1.0))
def gradients_without_chance(draw: Draw, p: float) -> Iterator[Yielded]:
    """At 0 the gradients are those without dropout, and at 1 they are 0."""
    for problem in draw.problems(MASKED[:1]):
        yield _with_seed(_with_cotangent(problem), p)
