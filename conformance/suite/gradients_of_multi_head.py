"""The chapter `gradients`: the gradients of multi-head attention."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.heads import tokens_and_weights
from attnspec.conformance.suite.problem import grid

chapter = Chapter("gradients")

_VJP = "multi_head_attention_vjp"
_PROJECTIONS = ("query", "key", "value", "output")
#: What is given beside the arrays, and the rules on it.
_OPTIONS = {
    "scale": ("SCORE-3",),
    "is_causal": ("MASK-3",),
    "mask": ("MASK-1",),
    "biases": ("PROJ-3",),
}


def _drawn(
    random: np.random.Generator, dtype: str, heads: int, key_heads: int, **sizes: int
) -> dict[str, Any]:
    """Draw tokens, weights and the cotangent of the output."""
    found = tokens_and_weights(random, dtype, heads, key_heads, **sizes)
    rows = (*found["tokens"].shape[:-1], found["output_weight"].shape[-1])
    return found | {"d_output": grid(random, rows, 1.0).astype(dtype)}


def _biases(random: np.random.Generator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Draw a bias for each weight."""
    return {
        f"{name}_bias": grid(random, weight.shape[-1:], 1.0).astype(weight.dtype)
        for name in _PROJECTIONS
        for weight in (arguments[f"{name}_weight"],)
    }


@chapter.group("GRAD-23", "GRAD-2", "HEAD-6", operation=_VJP, each=(4, 2, 1))
def through_all_projections(draw: Draw, key_heads: int) -> Iterator[Yielded]:
    """The tokens have the sum of the gradients of queries, keys and values."""
    for random, dtype in draw.generators(9):
        yield _drawn(random, dtype, 4, key_heads)


@chapter.group("GRAD-23", "HEAD-7", operation=_VJP, each=(4, 5))
def through_a_memory(draw: Draw, depth: int) -> Iterator[Yielded]:
    """Keys and values contribute to the gradient of the memory, but not to that of the tokens."""
    for random, dtype in draw.generators(9):
        yield _drawn(random, dtype, 2, 2, memory=depth)


@chapter.group("GRAD-23", "PROJ-7", operation=_VJP, each=(4, 2))
def through_linear_layers(draw: Draw, key_heads: int) -> Iterator[Yielded]:
    """The gradient of a weight is transposed like the weight, also if the weight is square."""
    for index, (random, dtype) in enumerate(draw.generators(9)):
        arguments = _drawn(random, dtype, 4, key_heads, width=8 if index // 2 % 2 else 5)
        own = _biases(random, arguments)
        for name in _PROJECTIONS:
            arguments[f"{name}_weight"] = np.ascontiguousarray(arguments[f"{name}_weight"].T)
        yield Call(arguments | own | {"convention": "linear"}, ("GRAD-23", "PROJ-7", "PROJ-3"))


@chapter.group("GRAD-23", operation=_VJP, each=tuple(_OPTIONS))
def through_multi_head_attention_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option of the forward pass counts in the backward pass, and biases have gradients."""
    for index, (random, dtype) in enumerate(draw.generators(9)):
        heads, memory = (4, 4) if index // 2 % 2 else (3, 0)
        arguments = _drawn(random, dtype, heads, heads, memory=memory)
        keys = 6 if memory else 3
        mask = random.random((2, heads, 3, keys)) < 0.7
        mask[..., 0] = True
        own: dict[str, dict[str, Any]] = {
            "scale": {"scale": (0.5, -1.0)[index // 2 % 2]},
            "is_causal": {"is_causal": True},
            "mask": {"mask": mask},
            "biases": _biases(random, arguments),
        }
        rules = (*_OPTIONS[option], *(("HEAD-7",) if memory else ()))
        yield Call(arguments | own[option], ("GRAD-23", *rules))


@chapter.group("GRAD-23", operation=_VJP, each=("square", "as many tokens as features"))
def through_multi_head_attention_of_one_width(draw: Draw, sizes: str) -> Iterator[Yielded]:
    """Tokens, heads and output have the same width, so no shape shows that a gradient is transposed."""
    width = 6 if sizes == "square" else 4
    for random, dtype in draw.generators(9):
        count = 3 if sizes == "square" else width
        arguments: dict[str, Any] = {
            name: grid(random, (2, count, width), 0.5).astype(dtype) for name in ("tokens", "d_output")
        }
        for name in _PROJECTIONS:
            arguments[f"{name}_weight"] = grid(random, (width, width), 0.5).astype(dtype)
        yield Call(arguments | _biases(random, arguments) | {"heads": 2}, ("GRAD-23", "PROJ-3"))
