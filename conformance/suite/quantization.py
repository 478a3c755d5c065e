"""The chapter `quantization`: attention over codes, and how codes and scales are drawn."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnspec.case import Misuse
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import SHAPES, Problem, Shape


class Codes(NamedTuple):
    """The codes of a floating-point encoding that are drawn."""

    rule: str
    common: tuple[int, int]  # numbers from about 1/64 to 2
    subnormal: tuple[int, int]  # the first code with all exponent bits 0, and the last one
    largest: int  # of finite numbers
    sign: int = 128


CODES: Mapping[str, Codes] = {
    "e4m3fn": Codes("QUANT-3", (0x08, 0x40), (0x01, 0x07), 0x7E),
    "e5m2": Codes("QUANT-4", (0x24, 0x40), (0x01, 0x03), 0x7B),
    "e4m3fnuz": Codes("QUANT-12", (0x10, 0x48), (0x01, 0x07), 0x7F),
    "e5m2fnuz": Codes("QUANT-12", (0x28, 0x44), (0x01, 0x03), 0x7F),
    "e2m1fn": Codes("QUANT-13", (0, 5), (0, 2), 0x7, sign=8),
}
#: The encodings of queries, keys and values. `e8m0fnu` is one of scales.
ENCODINGS = ("int8", *CODES)


def draw_codes(random: np.random.Generator, encoding: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Draw finite codes of both signs."""
    if encoding == "int8":
        return random.integers(-128, 128, shape).astype(np.int8)
    if encoding == "e8m0fnu":
        return random.integers(121, 129, shape).astype(np.uint8)
    _, (low, high), subnormal, _, sign = CODES[encoding]
    codes = random.integers(low, high + 1, shape)
    codes = np.where(random.random(shape) < 0.1, random.integers(*subnormal, shape), codes)
    return (codes + sign * random.integers(0, 2, shape)).astype(np.uint8)


def draw_scales(
    random: np.random.Generator, encoding: str, shape: tuple[int, ...], dtype: str
) -> NDArray[Any]:
    """Draw scales of few digits, by which numbers of codes become numbers of about 1.

    Every dtype holds them, and float64 holds their products with codes.
    """
    unit = 2.0**-8 if encoding == "int8" else 0.25
    return (random.choice([1, 2, 3, 5, 7], shape) * unit).astype(dtype)


chapter = Chapter("quantization")

_QUANTIZED = "quantized_attention"
#: A problem with a depth and a number of keys that have blocks, and one with grouped heads.
PLAIN, GROUPED = Shape((2, 3), 5, 6, 8, 4), Shape((2, 4), 3, 6, 8, 12, groups=2)
#: Keys just past tiles of 16 and 64, and a single query.
TILED = (Shape((2,), 5, 17, 8, 8), Shape((1, 2), 1, 65, 16, 16), Shape((2, 2), 65, 64, 4, 4))
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
        arguments[f"{name}_codes"] = draw_codes(problem.random, encoding, shape)
        of_scales = shape_of_scales(shape, granularity)
        arguments[f"{name}_scales"] = draw_scales(problem.random, encoding, of_scales, dtype)
    return arguments


def shape_of_scales(shape: tuple[int, ...], granularity: str) -> tuple[int, ...]:
    """Return the shape of the scales of codes of a shape."""
    parts = _PARTS[granularity]
    if parts is None:
        return (1,)
    last = (size // part if part else 1 for size, part in zip(shape[-2:], parts, strict=True))
    return (*shape[:-2], *last)


@chapter.group("QUANT-8", operation=_QUANTIZED, each=(*ENCODINGS, "e8m0fnu"))
def every_code_of_values(_draw: Draw, encoding: str) -> Iterator[Yielded]:
    """The code of the one key of each query is each of an encoding, as a signed or an unsigned integer."""
    codes = np.arange(16 if encoding == "e2m1fn" else 256, dtype=np.uint8).reshape(-1, 1, 1, 1)
    for signed, dtype in product(sorted({False, encoding != "e2m1fn"}), ("float32", "float64", "bfloat16")):
        # The first power of two is below the normal numbers of float32.
        stored = codes[int(encoding == "e8m0fnu" and dtype != "float64") :]
        stored = stored.view(np.int8) if signed else stored
        query = np.zeros((len(stored), 1, 1, 1), dtype)
        yield {"query": query, "key_codes": 0 * stored + 1, "value_codes": stored, "encoding": encoding}


@chapter.group("QUANT-8", "QUANT-5", operation=_QUANTIZED, each=_PAIRS)
def codes_and_granularities(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Keys and values are codes of each encoding with scales of each granularity."""
    encoding, granularity = which
    shape = GROUPED if granularity in ("head", "block of features") else PLAIN
    for problem in draw.problems((shape,)):
        yield _call(problem, encoding, granularity)


@chapter.group("QUANT-8", "QUANT-2", operation=_QUANTIZED, each=("tensor", "token", "channel"))
def codes_with_zero_points(draw: Draw, granularity: str) -> Iterator[Yielded]:
    """Keys and values have zero points of their own."""
    for problem in draw.problems((GROUPED,)):
        arguments = _call(problem, "int8", granularity)
        for name in ("key", "value"):
            shape = shape_of_scales(problem.arguments[name].shape, granularity)
            points = problem.random.integers(-128, 128, shape).astype(np.int8)
            arguments[f"{name}_zero_points"] = points
            arguments[f"{name}_scales"] = (arguments[f"{name}_scales"] * 0.5).astype(problem.query.dtype)
        yield arguments


@chapter.group("QUANT-8", operation=_QUANTIZED, each=("none", "key_scales", "value_scales"))
def scales_left_out(draw: Draw, given: str) -> Iterator[Yielded]:
    """Without scales, numbers of codes are the keys or the values."""
    for problem in draw.problems((SHAPES[1],)):
        arguments = _call(problem, "e4m3fn")
        yield {name: x for name, x in arguments.items() if not name.endswith("_scales") or name == given}


@chapter.group("QUANT-8", operation=_QUANTIZED, each=tuple(OPTIONS))
def options_beside_codes(draw: Draw, option: str) -> Iterator[Yielded]:
    """Every option of attention has its effect on decoded keys and values."""
    encoding = ENCODINGS[list(OPTIONS).index(option) % len(ENCODINGS)]
    for problem in draw.problems((PLAIN,)):
        needs, own = draw_option(problem, option)
        call = _call(problem, encoding, "token") | needs | own
        yield Call(call, ("QUANT-8", OPTIONS[option].rule))


@chapter.group("SOFT-8", "QUANT-8", operation=_QUANTIZED)
def maximum_beside_codes(draw: Draw) -> Iterator[Yielded]:
    """The maximum is that of the scores of decoded keys."""
    for problem in draw.problems((PLAIN, GROUPED)):
        yield Call(_call(problem, "int8") | {"return_max": True}, outputs=("output", "max"))


@chapter.group("QUANT-8", operation=_QUANTIZED)
def codes_of_many_keys(draw: Draw) -> Iterator[Yielded]:
    """There are more keys than a tile of 16 or 64 holds, or as many, and one query or many."""
    for index, problem in enumerate(draw.problems(TILED)):
        yield _call(problem, ENCODINGS[index // 2], "token")


@chapter.group("QUANT-8", operation=_QUANTIZED, each=("key", "value"))
def scales_of_any_sign(draw: Draw, name: str) -> Iterator[Yielded]:
    """Some scales of tokens are negative, and one is 0."""
    for problem in draw.problems((PLAIN, GROUPED)):
        call = _call(problem, "e4m3fn", "token")
        yield call | {f"{name}_scales": with_signs(call[f"{name}_scales"])}


def with_signs(scales: NDArray[Any]) -> NDArray[Any]:
    """Give every second token a negative scale, and the first one a scale of 0."""
    signs = np.where(np.arange(scales.shape[-2]) % 2, -1, 1)
    signs[0] = 0
    return (scales * signs[:, None]).astype(scales.dtype)


@chapter.group("QUANT-8", "QUANT-5", operation=_QUANTIZED, each=(2, 8, 3, 5, 9))
def blocks_of_many_tokens(draw: Draw, blocks: int) -> Iterator[Yielded]:
    """A block of tokens has a scale, of more tokens than a tile of 64 holds; some blocks divide no tile."""
    tokens, depth = (128, 8) if blocks in (2, 8) else (90, 4)
    for problem in draw.problems((Shape((2,), 3, tokens, depth, depth),)):
        call = _call(problem, "int8", "token")
        for name in ("key_scales", "value_scales"):
            call[name] = call[name][..., :blocks, :]
        yield call


@chapter.group("QUANT-8", "QUANT-5", operation=_QUANTIZED)
def blocks_of_many_heads(draw: Draw) -> Iterator[Yielded]:
    """Two heads have one scale, and the next two another one."""
    for problem in draw.problems((Shape((2, 4), 3, 5, 8, 4),)):
        call = _call(problem, "int8")
        yield call | {name: call[name][:, ::2] for name in ("key_scales", "value_scales")}


@chapter.group("QUANT-5", "SHAPE-7", operation=_QUANTIZED)
def a_scale_for_each_head_of_no_keys(draw: Draw) -> Iterator[Yielded]:
    """A cache that is still empty has the scales of its heads already."""
    for problem in draw.problems((Shape((2,), 3, 0, 8, 4),)):
        yield _call(problem, "int8")


@chapter.group("QUANT-8", "ERR-1", operation=_QUANTIZED)
def scales_of_another_dtype(draw: Draw) -> Iterator[Yielded]:
    """Scales of float32 beside half precision, as kernels keep them, are refused or used at their values."""
    for dtype, encoding in (("float16", "int8"), ("bfloat16", "e4m3fn"), ("float16", "e5m2")):
        problem = draw.problem(GROUPED, dtype)
        misuse = Misuse("key_scales", ("value_scales",), allowed=True)
        yield Call(_call(problem, encoding, scale_dtype="float32"), misuse=misuse)


@chapter.group("MASK-5", "QUANT-8", operation=_QUANTIZED, each=ENCODINGS)
def large_codes_in_disallowed_places(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """Keys past their length have the largest codes and large scales."""
    for problem in draw.problems((PLAIN,)):
        arguments = _call(problem, encoding, "token") | {"key_lengths": 4}
        for name in ("key", "value"):
            arguments[f"{name}_codes"][..., 4:, :] = CODES[encoding].largest if encoding in CODES else 127
            arguments[f"{name}_scales"][..., 4:, :] = 8
        yield arguments


@chapter.group("MASK-13", "QUANT-8", operation=_QUANTIZED, each=("codes", "scales"))
def nan_in_disallowed_places(draw: Draw, what: str) -> Iterator[Yielded]:
    """Codes or scales of keys past their length are NaN, as in memory that was never written."""
    for problem in draw.problems((PLAIN,)):
        arguments = _call(problem, "e4m3fn", "token") | {"key_lengths": 4}
        for name in ("key", "value"):
            arguments[f"{name}_{what}"][..., 4:, :] = 0x7F if what == "codes" else np.nan
        yield arguments


@chapter.group("QUANT-8", "NUM-11", "NUM-12", operation=_QUANTIZED, each=("key", "value"))
def codes_that_are_not_numbers(draw: Draw, name: str) -> Iterator[Yielded]:
    """A code of one key or value is NaN."""
    for problem in draw.problems((PLAIN,)):
        arguments = _call(problem, "e4m3fn")
        arguments[f"{name}_codes"][1, 2, 3, 1] = 0xFF
        rules = ("QUANT-8", "NUM-11" if name == "key" else "NUM-12")
        yield Call(arguments, rules)


@chapter.group("NUM-8", "QUANT-8", operation=_QUANTIZED, each=_LAYOUTS)
def strides_of_codes(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Codes are stored in other layouts."""
    for problem in draw.problems((PLAIN,)):
        arguments = _call(problem, "int8", "token")
        yield Call(arguments, layout=dict.fromkeys(("key_codes", "value_codes"), layout))
