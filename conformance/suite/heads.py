"""The chapter `heads`: shared key heads, splitting and merging, multi-head attention."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.suite.alone import draw_acting
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import biased, dropout, sinks
from attnspec.conformance.suite.problem import GROUPED, grid
from attnspec.dtypes import DTYPES

chapter = Chapter("heads")

#: (batch axes, tokens, heads, depth of a head). Some have as many tokens as heads, so that a reshape without
#: the transposition has the right shape.
_SPLITS = (((2,), 3, 2, 4), ((), 3, 3, 2), ((2, 1), 4, 4, 1), ((), 5, 1, 3))


@chapter.group("HEAD-1")
def shared_key_heads(draw: Draw) -> Iterator[Yielded]:
    """Groups of two, three and five query heads read one key head each."""
    for problem in draw.problems(GROUPED, 2):
        yield problem.arguments


@chapter.group("HEAD-1")
def shared_heads_repeated_in_place(draw: Draw) -> Iterator[Yielded]:
    """Each value is the number of its key head, so the output shows which key head is read."""
    for problem in draw.problems(GROUPED, 2):
        heads, shared = problem.query.shape[-3], problem.key.shape[-3]
        numbers = np.arange(1, shared + 1, dtype=problem.value.dtype)[:, None, None]
        value = np.broadcast_to(numbers, problem.value.shape).copy()
        read = np.repeat(np.arange(1.0, shared + 1), heads // shared)[:, None, None]
        output = np.broadcast_to(read, (*problem.query.shape[:-1], value.shape[-1]))
        yield Call(problem.arguments | {"value": value}, expected={"output": output}, outputs=("output",))


@chapter.group("HEAD-1", each=("mask", "bias", "sinks", "dropout", "softcap", "is_causal"))
def options_of_query_heads(draw: Draw, option: str) -> Iterator[Yielded]:
    """An option that is given for each head is given for each query head, not for each key head."""
    for problem in draw.problems(GROUPED, 2):
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": problem.mask()},
            "bias": {"bias": biased(problem)},
            "sinks": sinks(problem),
            "dropout": dropout(problem),
            "softcap": {"softcap": 0.5},
            "is_causal": {"is_causal": True},
        }
        yield problem.arguments | options[option]


@chapter.group("HEAD-3", "HEAD-4")
def splitting_and_merging(draw: Draw) -> Iterator[Yielded]:
    """Features are cut into consecutive blocks and put together again, and nothing is rounded."""
    for index, (random, dtype) in enumerate(draw.generators(8)):
        batch, count, heads, depth = _SPLITS[index // 2 % len(_SPLITS)]
        features = grid(random, (*batch, count, heads * depth), 1.0).astype(dtype)
        split = grid(random, (*batch, heads, count, depth), 1.0).astype(dtype)
        yield Call({"features": features, "heads": heads}, ("HEAD-3",), operation="split_heads")
        yield Call({"split": split}, ("HEAD-4",), operation="merge_heads")


@chapter.group("HEAD-6", operation="multi_head_attention", each=(4, 2, 1))
def multi_head_attention(draw: Draw, key_heads: int) -> Iterator[Yielded]:
    """Multi-head attention takes its options in many combinations, and shares key heads."""
    for random, dtype in draw.generators():
        arguments = tokens_and_weights(random, dtype, 4, key_heads)
        every: dict[str, Any] = {
            f"{name}_bias": grid(random, arguments[f"{name}_weight"].shape[-1:], 1.0).astype(dtype)
            for name in ("query", "key", "value", "output")
        }
        every |= {"scale": 0.5, "is_causal": True, "mask": random.random((4, 3, 3)) < 0.7}
        yield arguments | {name: thing for name, thing in every.items() if random.random() < 0.5}


@chapter.group("HEAD-6", "PROJ-7", operation="multi_head_attention", each=(4, 2))
def multi_head_attention_of_linear_layers(draw: Draw, key_heads: int) -> Iterator[Yielded]:
    """Each of the four weights is transposed as in a linear layer, also if it is square."""
    for index, (random, dtype) in enumerate(draw.generators()):
        arguments = tokens_and_weights(random, dtype, 4, key_heads, width=8 if index // 2 % 2 else 5)
        for name in ("query", "key", "value", "output"):
            arguments[f"{name}_weight"] = np.ascontiguousarray(arguments[f"{name}_weight"].T)
        yield arguments | {"convention": "linear"}


@chapter.group(
    "HEAD-6",
    "MASK-6",
    operation="multi_head_attention",
    each=("nothing", "some keys", "all keys of a row", "later keys"),
)
def multi_head_attention_of_one_width(draw: Draw, masked: str) -> Iterator[Yielded]:
    """Tokens, heads and output have the same width, for which some libraries have a separate path."""
    for heads in (4, 3):
        width = heads * 2
        for dtype in DTYPES:
            random = np.random.default_rng(draw.number(heads))
            tokens = grid(random, (2, 3, width), 0.5).astype(dtype)
            arguments: dict[str, Any] = {"tokens": tokens, "heads": heads}
            for name in ("query", "key", "value", "output"):
                arguments[f"{name}_weight"] = grid(random, (width, width), 0.5).astype(dtype)
                arguments[f"{name}_bias"] = grid(random, (width,), 0.5).astype(dtype)
            if masked == "later keys":
                arguments["is_causal"] = True
            elif masked != "nothing":
                mask = random.random((2, heads, 3, 3)) < 0.7
                mask[..., 0] = True
                mask[..., 1, :] &= masked == "some keys"
                arguments["mask"] = mask
            yield Call(arguments, ("MASK-6", "HEAD-6") if masked == "all keys of a row" else ("HEAD-6",))


@chapter.group("HEAD-7", operation="multi_head_attention", each=(4, 5))
def cross_attention(draw: Draw, depth: int) -> Iterator[Yielded]:
    """Keys and values are projected from a longer memory, whose depth is that of the tokens or another."""
    for index, (random, dtype) in enumerate(draw.generators()):
        arguments = tokens_and_weights(random, dtype, 2, 2, memory=depth)
        masked = {"mask": random.random((2, 2, 3, 6)) < 0.7} if index // 2 % 2 else {}
        yield arguments | masked


@chapter.group("HEAD-7", operation="multi_head_attention", each=(8, 5))
def cross_attention_of_one_width(draw: Draw, depth: int) -> Iterator[Yielded]:
    """Tokens, heads and output have the same width, beside a memory of this depth or another."""
    for random, dtype in draw.generators(2):
        arguments = tokens_and_weights(random, dtype, 4, 4, memory=depth, width=8)
        for name, inner in (("value", depth), ("output", 8)):
            arguments[f"{name}_weight"] = grid(random, (inner, 8), 0.5).astype(dtype)
        yield arguments


@chapter.group("HEAD-7", "MASK-3", operation="multi_head_attention")
def causal_cross_attention(draw: Draw) -> Iterator[Yielded]:
    """A causal call has a longer memory, or one of the shape of the tokens."""
    for random, dtype in draw.generators(2):
        arguments = tokens_and_weights(random, dtype, 2, 2, memory=5)
        yield arguments | {"is_causal": True}
        yield as_deep_and_long(arguments)


#: The arguments of multi-head attention that other groups have only beside more. A bias of the keys shifts
#: all scores of a row by one number, so it has no effect.
ALONE = ("query_bias", "value_bias", "output_bias")


@chapter.group("HEAD-6", "PROJ-3", operation="multi_head_attention", each=ALONE)
def multi_head_attention_with_alone(draw: Draw, name: str) -> Iterator[Yielded]:
    """One bias acts, and no other option is given."""

    def make(random: np.random.Generator, dtype: str) -> dict[str, Any]:
        arguments = tokens_and_weights(random, dtype, 2, 2)
        return arguments | draw_bias_of(random, arguments, name)

    yield from draw_acting(draw, "multi_head_attention", name, make, "PROJ-3", "HEAD-6")


def draw_bias_of(random: np.random.Generator, arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """Draw the bias of one weight."""
    weight = arguments[name.replace("bias", "weight")]
    return {name: grid(random, weight.shape[-1:], 1.0).astype(weight.dtype)}


def as_deep_and_long(arguments: dict[str, Any]) -> dict[str, Any]:
    """Cut a memory to the shape of the tokens, in a causal call."""
    memory = arguments["memory"][:, : arguments["tokens"].shape[1]]
    return arguments | {"memory": memory, "is_causal": True}


def tokens_and_weights(
    random: np.random.Generator, dtype: str, heads: int, key_heads: int, *, memory: int = 0, width: int = 5
) -> dict[str, Any]:
    """Draw two batch entries of three tokens, and heads of depth 2, or 3 for the values.

    `memory` is the depth of the memory, if keys and values are not projected from the tokens.
    """
    inner = memory or width
    shapes = {
        "tokens": (2, 3, width),
        "query_weight": (width, heads * 2),
        "key_weight": (inner, key_heads * 2),
        "value_weight": (inner, key_heads * 3),
        "output_weight": (heads * 3, 4),
    }
    shapes |= {"memory": (2, 6, memory)} if memory else {}
    arguments: dict[str, Any] = {
        name: grid(random, shape, 0.5).astype(dtype) for name, shape in shapes.items()
    }
    return arguments | {"heads": heads} | ({"key_heads": key_heads} if key_heads != heads else {})
