"""The chapter `projection`: tokens to queries, keys and values, in three conventions."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.suite.alone import draw_acting
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import grid
from attnspec.dtypes import DTYPES

chapter = Chapter("projection")

#: (tokens, depth, features). Some weights are square, so that a transposed weight raises no error.
_SIZES = ((4, 4, 4), (3, 5, 2), (3, 3, 5), (1, 3, 3))
_CONVENTIONS = ("row", "column", "linear")
_RULE = {"row": "PROJ-1", "column": "PROJ-2", "linear": "PROJ-7"}


@chapter.group("PROJ-1", "PROJ-2", "PROJ-7", "PROJ-3", operation="projection", each=_CONVENTIONS)
def both_conventions(draw: Draw, convention: str) -> Iterator[Yielded]:
    """Rows are multiplied from the right, columns from the left, and the bias goes to the features."""
    for index, (random, dtype) in enumerate(draw.generators(8)):
        count, depth, features = _SIZES[index // 2 % len(_SIZES)]
        arrays = {
            "tokens": grid(random, (count, depth), 1.0).astype(dtype),
            "weight": grid(random, (depth, features), 1.0).astype(dtype),
        }
        if convention == "column":
            arrays = {name: np.ascontiguousarray(array.T) for name, array in arrays.items()}
        if convention == "linear":
            arrays["weight"] = np.ascontiguousarray(arrays["weight"].T)
        bias = grid(random, (features,), 1.0).astype(dtype)
        yield Call({**arrays, "bias": bias, "convention": convention}, (_RULE[convention], "PROJ-3"))


@chapter.group("SHAPE-7", "PROJ-2", "PROJ-7", operation="projection", each=_CONVENTIONS[1:])
def no_tokens(_draw: Draw, convention: str) -> Iterator[Yielded]:
    """Without tokens, the result has the features of the weight, in the convention."""
    tokens = np.ones((3, 0) if convention == "column" else (0, 3), np.float32)
    weight = np.ones((2, 3), np.float32)
    yield {"tokens": tokens, "weight": weight, "convention": convention}


@chapter.group("PROJ-3", operation="projection", each=_CONVENTIONS)
def one_bias_a_feature(draw: Draw, convention: str) -> Iterator[Yielded]:
    """With a weight of zeros the result is the bias, although either axis has its length."""
    bias = grid(np.random.default_rng(draw.number()), (3,), 2.0)
    expected = np.broadcast_to(bias[:, None] if convention == "column" else bias, (2, 3, 3))
    for dtype in DTYPES:
        arguments = {"tokens": np.ones((2, 3, 3), dtype), "weight": np.zeros((3, 3), dtype)}
        given = {**arguments, "bias": bias.astype(dtype), "convention": convention}
        yield Call(given, expected={"projected": expected})


@chapter.group("PROJ-5", operation="self_attention", each=_CONVENTIONS)
def attention_of_three_projections(draw: Draw, convention: str) -> Iterator[Yielded]:
    """Each of the three has its own weight and bias, and the result is in the convention of the tokens."""
    for random, dtype in draw.generators():
        arrays = {"tokens": grid(random, (5, 3), 1.0)}
        for name, features in (("query", 4), ("key", 4), ("value", 2)):
            arrays[f"{name}_weight"] = grid(random, (3, features), 1.0)
            arrays[f"{name}_bias"] = grid(random, (features,), 1.0)
        if convention == "column":
            arrays = {name: array.T if array.ndim == 2 else array for name, array in arrays.items()}
        if convention == "linear":
            arrays = {name: array.T if name.endswith("weight") else array for name, array in arrays.items()}
        cast = {name: np.ascontiguousarray(array).astype(dtype) for name, array in arrays.items()}
        yield {**cast, "convention": convention}


#: The arguments of self-attention, and their rules. A bias of the keys has no effect.
_ALONE = {
    "query_bias": "PROJ-3",
    "value_bias": "PROJ-3",
    "convention": "PROJ-7",
    "scale": "SCORE-3",
}


@chapter.group("PROJ-5", operation="self_attention", each=tuple(_ALONE))
def self_attention_with_alone(draw: Draw, name: str) -> Iterator[Yielded]:
    """One argument acts beside what it needs and nothing else."""

    def make(random: np.random.Generator, dtype: str) -> dict[str, Any]:
        names = ("query_weight", "key_weight", "value_weight")
        arrays = {"tokens": grid(random, (5, 4), 1.0)} | {own: grid(random, (4, 4), 1.0) for own in names}
        options: dict[str, Any] = {"convention": "linear", "scale": -1.0}
        if name.endswith("bias"):
            arrays |= {name: grid(random, (4,), 1.0)}
        call = {own: array.astype(dtype) for own, array in arrays.items()}
        return call if name.endswith("bias") else call | {name: options[name]}

    yield from draw_acting(draw, "self_attention", name, make, "PROJ-5", _ALONE[name])
