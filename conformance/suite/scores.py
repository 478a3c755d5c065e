"""The chapter `scores`: dot products, scale, softcap and bias, tested by the weights and the lse."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import biased
from attnspec.conformance.suite.problem import MASKED, SHAPES, SHARED, Shape, share_along

chapter = Chapter("scores")

_SQUARE = tuple(shape for shape in SHAPES if shape.queries == shape.keys > 1)
_OTHER_VALUE_DEPTH = tuple(shape for shape in SHAPES if shape.depth != shape.value_depth)
#: Numbers of features below, at and above the sizes of tiles.
_FEATURES = np.array([0, 7, 8, 15, 16, 31, 32, 63, 64, 70])


@chapter.group("SCORE-2", "SCORE-1")
def default_scale(draw: Draw) -> Iterator[Yielded]:
    """Without a scale, scores are dot products over the root of the depth of queries and keys."""
    for problem in draw.problems():
        yield problem.arguments


@chapter.group("SCORE-2")
def default_scale_beside_other_value_depths(draw: Draw) -> Iterator[Yielded]:
    """The default scale does not depend on the depth of the values."""
    for shape in _OTHER_VALUE_DEPTH:
        for problem in draw.in_each_dtype(shape, 4.0):
            yield problem.arguments


@chapter.group("SCORE-1")
def one_feature_each(draw: Draw) -> Iterator[Yielded]:
    """Each query has one feature that is not zero, so its row would be flat without this feature."""
    for problem in draw.in_each_dtype(Shape((), len(_FEATURES), 5, 71, 4)):
        queries, depth = problem.query.shape
        features = np.resize(_FEATURES, queries) % depth
        yield problem.arguments | {"query": 8 * np.eye(depth)[features].astype(problem.query.dtype)}


@chapter.group("SCORE-3", each=(1.0, 0.3, 0.0, -0.5))
def given_scale(draw: Draw, scale: float) -> Iterator[Yielded]:
    """Zero and negative scales are numbers like any other."""
    for problem in draw.problems():
        yield problem.arguments | {"scale": scale}


@chapter.group("SCORE-4", each=("full", "keys", "queries", "head", "scalar"))
def broadcast_bias(draw: Draw, axes: str) -> Iterator[Yielded]:
    """The bias is added to the scaled scores, its trailing axes aligned with theirs."""
    for problem in draw.problems():
        full = problem.shape
        shape = {
            "full": full,
            "keys": full[-1:],
            "queries": (full[-2], 1),
            "head": (*full[-3:-2], 1, 1),
            "scalar": (1, 1),
        }[axes]
        yield problem.arguments | {"bias": problem.array(*shape, amplitude=3.0), "scale": 0.25}


@chapter.group("SCORE-4")
def bias_of_batch_entries(draw: Draw) -> Iterator[Yielded]:
    """A bias of each batch entry is added to the scores of all heads of it."""
    for problem in draw.problems(MASKED[:3], 3):
        bias = problem.array(*problem.batch, 1, *problem.shape[-2:], amplitude=3.0)
        yield problem.arguments | {"bias": bias, "scale": 0.25}


@chapter.group("SCORE-1")
def queries_are_rows(draw: Draw) -> Iterator[Yielded]:
    """A query that equals a key far from all others attends to that key alone."""
    for problem in draw.problems(_SQUARE, 4):
        keys = problem.key.shape[-2]
        order = problem.random.permutation(keys)
        # Query i matches key order[i]. With queries and keys exchanged, it would be the inverse order.
        width = draw.shapes(Shape((), keys, keys, keys, keys))["key"][-1]
        key = np.broadcast_to(np.eye(keys, width, dtype=problem.key.dtype), (*problem.key.shape[:-1], width))
        query = np.array(key[..., order, :])
        yield {"query": query, "key": np.array(key), "value": problem.array(*key.shape), "scale": 64.0}


@chapter.group("SCORE-5", each=(0.5, 3.0, 50.0, 1000.0, 2.0**-12, 1e-7))
def softcap(draw: Draw, cap: float) -> Iterator[Yielded]:
    """The softcap is far below the scores, about as large, or far above."""
    for problem in draw.problems(SHAPES[: 1 if cap == 1e-7 else None]):
        yield problem.arguments | {"softcap": cap}


@chapter.group("SCORE-5")
def cap_on_the_scaled_score_alone(draw: Draw) -> Iterator[Yielded]:
    """The cap applies after the scale, also a negative one, and before a bias that is far larger."""
    for problem in draw.problems(MASKED, 3):
        options = {"softcap": 0.5, "scale": problem.choice(2.0, -0.5), "bias": biased(problem, amplitude=4.0)}
        yield problem.arguments | options


@chapter.group("SCORE-5", "MASK-5", each=("mask", "bias", "is_causal"))
def tiny_cap_beside_a_mask(draw: Draw, source: str) -> Iterator[Yielded]:
    """A tiny cap does not apply to a mask: a disallowed key has the weight 0."""
    for problem in draw.problems(MASKED, 3):
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": problem.mask()},
            "bias": {"bias": np.where(problem.mask(), 0, -np.inf).astype(problem.query.dtype)},
            "is_causal": {"is_causal": True},
        }
        yield problem.arguments | {"softcap": 1 / 64} | options[source]


@chapter.group("SCORE-1", "SCORE-2", "SCORE-3", "SCORE-4", "SCORE-5", operation="scores")
def scores_by_themselves(draw: Draw) -> Iterator[Yielded]:
    """A function for scores alone, with some of its options and without."""
    for problem in draw.problems(MASKED, 3):
        every = {"scale": 0.3, "softcap": 1.5, "bias": biased(problem)}
        options = {name: thing for name, thing in every.items() if problem.random.random() < 0.5}
        of = {"scale": "SCORE-3", "bias": "SCORE-4", "softcap": "SCORE-5"}
        rules = ("SCORE-1", "SCORE-2", *(of[name] for name in options))
        taken = rules if "scale" not in options else tuple(rule for rule in rules if rule != "SCORE-2")
        yield Call({"query": problem.query, "key": problem.key} | options, taken)


@chapter.group("SCORE-4", each=tuple(SHARED), step=1)
def bias_for_several(draw: Draw, along: str) -> Iterator[Yielded]:
    """One number of a bias is for all entries, heads, queries or keys, and the other axes are whole."""
    for problem in draw.problems((Shape((3, 4), 5, 6, 4, 3, groups=2),)):
        yield problem.arguments | {"bias": share_along(problem.array(*problem.shape), SHARED[along])}
