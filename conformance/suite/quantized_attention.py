"""The chapter `quantization`: attention over codes of keys and values."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attnspec.conformance.suite.codes import LARGEST, drawn_codes, drawn_scales
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import SHAPES, Problem, Shape
from attnspec.operations.quantization import ENCODINGS

chapter = Chapter("quantization")

_OPERATION = "quantized_attention"
#: A problem with a depth and a number of keys that have blocks, and one with grouped heads.
_PLAIN, _GROUPED = Shape((2, 3), 5, 6, 8, 4), Shape((2, 4), 3, 6, 8, 12, groups=2)
#: Keys just past tiles of 16 and 64, and a single query.
_TILED = (Shape((2,), 5, 17, 8, 8), Shape((1, 2), 1, 65, 16, 16), Shape((2, 2), 65, 64, 4, 4))
#: The last two axes of scales, in parts of the numbers of keys and features; 0 for a single entry.
_PARTS = {
    "tensor": None,
    "head": (0, 0),
    "token": (1, 0),
    "channel": (0, 1),
    "block of features": (1, 4),
    "block of tokens": (3, 0),
}
#: The granularities of each encoding that are drawn.
_PAIRS = (*product(ENCODINGS[:1], _PARTS), *product(ENCODINGS[1:], ("head", "token")))
_LAYOUTS = ("transposed", "sliced", "reversed")


def _call(
    problem: Problem, encoding: str, granularity: str = "head", *, scale_dtype: str = ""
) -> dict[str, Any]:
    """Draw codes and scales for the shapes of a problem."""
    dtype = scale_dtype or str(problem.query.dtype)
    arguments: dict[str, Any] = {"query": problem.query, "encoding": encoding}
    for name in ("key", "value"):
        shape = problem.arguments[name].shape
        arguments[f"{name}_codes"] = drawn_codes(problem.random, encoding, shape)
        arguments[f"{name}_scales"] = drawn_scales(
            problem.random, encoding, _shape_of_scales(shape, granularity), dtype
        )
    return arguments


def _shape_of_scales(shape: tuple[int, ...], granularity: str) -> tuple[int, ...]:
    parts = _PARTS[granularity]
    if parts is None:
        return (1,)
    last = (size // part if part else 1 for size, part in zip(shape[-2:], parts, strict=True))
    return (*shape[:-2], *last)


@chapter.group("QUANT-8", "QUANT-5", operation=_OPERATION, each=_PAIRS)
def codes_and_granularities(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Keys and values are codes of each encoding with scales of each granularity."""
    encoding, granularity = which
    shape = _GROUPED if granularity in ("head", "block of features") else _PLAIN
    for problem in draw.problems((shape,)):
        yield _call(problem, encoding, granularity)


@chapter.group("QUANT-8", "QUANT-2", operation=_OPERATION, each=("tensor", "token", "channel"))
def codes_with_zero_points(draw: Draw, granularity: str) -> Iterator[Yielded]:
    """Keys and values have zero points of their own."""
    for problem in draw.problems((_GROUPED,)):
        arguments = _call(problem, "int8", granularity)
        for name in ("key", "value"):
            shape = _shape_of_scales(problem.arguments[name].shape, granularity)
            points = problem.random.integers(-128, 128, shape).astype(np.int8)
            arguments[f"{name}_zero_points"] = points
            arguments[f"{name}_scales"] = (arguments[f"{name}_scales"] * 0.5).astype(problem.query.dtype)
        yield arguments


@chapter.group("QUANT-8", operation=_OPERATION, each=("none", "key_scales", "value_scales"))
def scales_left_out(draw: Draw, given: str) -> Iterator[Yielded]:
    """Without scales, numbers of codes are the keys or the values."""
    for problem in draw.problems((SHAPES[1],)):
        arguments = _call(problem, "e4m3fn")
        yield {name: x for name, x in arguments.items() if not name.endswith("_scales") or name == given}


@chapter.group("QUANT-8", operation=_OPERATION, each=tuple(OPTIONS))
def options_beside_codes(draw: Draw, option: str) -> Iterator[Yielded]:
    """Every option of attention has its effect on decoded keys and values."""
    encoding = ENCODINGS[list(OPTIONS).index(option) % len(ENCODINGS)]
    for problem in draw.problems((_PLAIN,)):
        needs, own = draw_option(problem, option)
        call = _call(problem, encoding, "token") | needs | own
        yield Call(call, ("QUANT-8", OPTIONS[option].rule))


@chapter.group("QUANT-8", operation=_OPERATION)
def codes_of_many_keys(draw: Draw) -> Iterator[Yielded]:
    """There are more keys than a tile of 16 or 64 holds, or as many, and one query or many."""
    for index, problem in enumerate(draw.problems(_TILED)):
        yield _call(problem, ENCODINGS[index // 2], "token")


@chapter.group("QUANT-8", operation=_OPERATION)
def scales_of_another_dtype(draw: Draw) -> Iterator[Yielded]:
    """Scales are float32 beside queries in half precision, as kernels keep them."""
    for dtype, encoding in (("float16", "int8"), ("bfloat16", "e4m3fn"), ("float16", "e5m2")):
        problem = draw.problem(_GROUPED, dtype)
        yield _call(problem, encoding, scale_dtype="float32")


@chapter.group("MASK-5", "QUANT-8", operation=_OPERATION, each=ENCODINGS)
def large_codes_in_disallowed_places(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """Keys past their length have the largest codes and large scales."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, encoding, "token") | {"key_lengths": 4}
        for name in ("key", "value"):
            arguments[f"{name}_codes"][..., 4:, :] = LARGEST[encoding]
            arguments[f"{name}_scales"][..., 4:, :] = 8
        yield arguments


@chapter.group("MASK-13", "QUANT-8", operation=_OPERATION, each=("codes", "scales"))
def nan_in_disallowed_places(draw: Draw, what: str) -> Iterator[Yielded]:
    """Codes or scales of keys past their length are NaN, as in memory that was never written."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, "e4m3fn", "token") | {"key_lengths": 4}
        for name in ("key", "value"):
            arguments[f"{name}_{what}"][..., 4:, :] = 0x7F if what == "codes" else np.nan
        yield arguments


@chapter.group("QUANT-8", "NUM-11", "NUM-12", operation=_OPERATION, each=("key", "value"))
def codes_that_are_not_numbers(draw: Draw, name: str) -> Iterator[Yielded]:
    """A code of one key or value is NaN."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, "e4m3fn")
        arguments[f"{name}_codes"][1, 2, 3, 1] = 0xFF
        rules = ("QUANT-8", "NUM-11" if name == "key" else "NUM-12")
        yield Call(arguments, rules)


@chapter.group("NUM-8", "QUANT-8", operation=_OPERATION, each=_LAYOUTS)
def strides_of_codes(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Codes are stored in other layouts."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, "int8", "token")
        yield Call(arguments, layout=dict.fromkeys(("key_codes", "value_codes"), layout))
