"""The chapter `quantization`: codes, attention over codes, and attention in short formats."""

from collections.abc import Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import SHAPES, Problem, Shape
from attnspec.dtypes import DTYPES, SHORT
from attnspec.operations.quantization import BLOCKS, ENCODINGS

#: The positive codes that are drawn: numbers from about 1/64 to 2, and now and then a subnormal one.
_COMMON: Mapping[str, tuple[int, int]] = MappingProxyType({"e4m3fn": (0x08, 0x40), "e5m2": (0x24, 0x40)})
#: The first code with all exponent bits 0 and the last one.
_SUBNORMAL: Mapping[str, tuple[int, int]] = MappingProxyType({"e4m3fn": (0x01, 0x07), "e5m2": (0x01, 0x03)})
#: Codes of the largest finite number.
LARGEST: Mapping[str, int] = MappingProxyType({"int8": 127, "e4m3fn": 0x7E, "e5m2": 0x7B})


def draw_codes(random: np.random.Generator, encoding: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Draw finite codes of both signs."""
    if encoding == "int8":
        return random.integers(-128, 128, shape).astype(np.int8)
    low, high = _COMMON[encoding]
    codes = random.integers(low, high + 1, shape)
    tiny = random.integers(*_SUBNORMAL[encoding], shape)
    codes = np.where(random.random(shape) < 0.1, tiny, codes)
    return (codes + 128 * random.integers(0, 2, shape)).astype(np.uint8)


def draw_scales(
    random: np.random.Generator, encoding: str, shape: tuple[int, ...], dtype: str
) -> NDArray[Any]:
    """Draw scales of few digits, by which numbers of codes become numbers of about 1.

    Every dtype holds them, and float64 holds their products with codes.
    """
    unit = 2.0**-8 if encoding == "int8" else 0.25
    return (random.choice([1, 2, 3, 5, 7], shape) * unit).astype(dtype)


chapter = Chapter("quantization")

_FLOATS = ("e4m3fn", "e5m2")
_RULES = {"int8": "QUANT-1", "e4m3fn": "QUANT-3", "e5m2": "QUANT-4"}
#: The shapes of scales beside codes of shape (2, 3, 6, 8).
_GRANULARITIES = {
    "tensor": (1,),
    "head": (3, 1, 1),
    "head of an entry": (2, 3, 1, 1),
    "token": (2, 1, 6, 1),
    "token of a head": (2, 3, 6, 1),
    "channel": (8,),
    "block of features": (2, 3, 6, 2),
    "block of tokens": (3, 2, 1),
    "block of both": (2, 3, 3, 4),
}


@chapter.group("QUANT-3", "QUANT-4", operation="dequantize", each=_FLOATS)
def every_code(_draw: Draw, encoding: str) -> Iterator[Yielded]:
    """All 256 codes are decoded, NaN and infinity among them, with a scale of 1 and one of another sign."""
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    for scale, dtype in product((1.0, -0.375), DTYPES):
        arguments = {"scales": np.array([scale], dtype), "codes": codes, "encoding": encoding}
        yield Call(arguments, (_RULES[encoding],))


@chapter.group("QUANT-1", operation="dequantize", each=ENCODINGS)
def scales_of_all_digits(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """Scales use all digits of their dtype, so that the product has to be rounded, and rounded once."""
    for index, dtype in enumerate(DTYPES):
        random = np.random.default_rng(draw.number(index))
        yield {
            "scales": random.normal(size=(2, 1, 5, 1)).astype(dtype),
            "codes": draw_codes(random, encoding, (2, 2, 5, 6)),
            "encoding": encoding,
        }


@chapter.group("QUANT-1", operation="dequantize")
def codes_of_other_integers(draw: Draw) -> Iterator[Yielded]:
    """Codes are integers of more than 8 bits, and a row, a head or an entry may be absent."""
    shapes = ((4, 3), (2, 4, 3), (2, 0, 3), (0, 2, 4, 3), (2, 2, 0, 3))
    for shape, (random, dtype) in zip(shapes, draw.generators(), strict=False):
        codes = draw_codes(random, "int8", shape).astype(np.int32 if dtype == "float32" else np.int64)
        yield {"scales": draw_scales(random, "int8", (1,), dtype), "codes": codes}


@chapter.group("QUANT-2", operation="dequantize", each=("tensor", "token", "channel", "block of features"))
def zero_points(draw: Draw, granularity: str) -> Iterator[Yielded]:
    """Zero points of both signs are subtracted, also where the difference needs more than 8 bits."""
    for random, dtype in draw.generators(1):
        shape = _GRANULARITIES[granularity]
        codes = draw_codes(random, "int8", (2, 3, 6, 8))
        codes[0, 0, 0, :2] = -128, 127
        points = random.integers(-128, 128, shape).astype(np.int8)
        points.flat[0] = random.choice([-128, 127])
        yield {
            "scales": random.normal(size=shape).astype(dtype),
            "codes": codes,
            "zero_points": points,
        }


@chapter.group("QUANT-5", operation="dequantize", each=tuple(_GRANULARITIES))
def granularities(draw: Draw, granularity: str) -> Iterator[Yielded]:
    """Scales belong to a tensor, a head, a token, a channel or a block."""
    encoding = ENCODINGS[list(_GRANULARITIES).index(granularity) % len(ENCODINGS)]
    for random, dtype in draw.generators(1):
        shape = _GRANULARITIES[granularity]
        signs = random.choice([-1, 1], shape).astype(dtype)
        yield {
            "scales": draw_scales(random, encoding, shape, dtype) * signs,
            "codes": draw_codes(random, encoding, (2, 3, 6, 8)),
            "encoding": encoding,
        }


@chapter.group("QUANT-1", operation="dequantize")
def products_below_the_normal_numbers(draw: Draw) -> Iterator[Yielded]:
    """Products are subnormal numbers of float16, or round to 0."""
    for index in range(2):
        random = np.random.default_rng(draw.number(index))
        codes: Any = draw_codes(random, "e4m3fn", (4, 8))
        scales = (random.normal(size=(4, 1)) * 2.0**-17).astype(np.float16)
        yield {"scales": scales, "codes": codes, "encoding": "e4m3fn"}


@chapter.group("QUANT-6", "QUANT-7", operation="dequantize_blocks", each=tuple(BLOCKS))
def packed_blocks(draw: Draw, blocks: str) -> Iterator[Yielded]:
    """Bytes of every value, in one block of a row or in several."""
    rule = "QUANT-6" if blocks == "q8_0" else "QUANT-7"
    shapes = ((1, 1), (3, 2), (2, 5, 3))
    for shape, pair in zip(shapes, _pairs(draw), strict=True):
        for random, dtype in pair:
            packed = random.integers(0, 256, (*shape, BLOCKS[blocks])).astype(np.uint8)
            scales = random.normal(size=shape).astype(dtype)
            yield Call({"scales": scales, "packed": packed, "blocks": blocks}, (rule,))


def _pairs(draw: Draw) -> Iterator[list[tuple[np.random.Generator, str]]]:
    """Yield three pairs of generators, each of one seed and two dtypes."""
    every = list(draw.generators(3))
    yield from (every[start : start + 2] for start in range(0, len(every), 2))


_QUANTIZED = "quantized_attention"
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
        arguments[f"{name}_codes"] = draw_codes(problem.random, encoding, shape)
        arguments[f"{name}_scales"] = draw_scales(
            problem.random, encoding, _shape_of_scales(shape, granularity), dtype
        )
    return arguments


def _shape_of_scales(shape: tuple[int, ...], granularity: str) -> tuple[int, ...]:
    parts = _PARTS[granularity]
    if parts is None:
        return (1,)
    last = (size // part if part else 1 for size, part in zip(shape[-2:], parts, strict=True))
    return (*shape[:-2], *last)


@chapter.group("QUANT-8", "QUANT-5", operation=_QUANTIZED, each=_PAIRS)
def codes_and_granularities(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Keys and values are codes of each encoding with scales of each granularity."""
    encoding, granularity = which
    shape = _GROUPED if granularity in ("head", "block of features") else _PLAIN
    for problem in draw.problems((shape,)):
        yield _call(problem, encoding, granularity)


@chapter.group("QUANT-8", "QUANT-2", operation=_QUANTIZED, each=("tensor", "token", "channel"))
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
    for problem in draw.problems((_PLAIN,)):
        needs, own = draw_option(problem, option)
        call = _call(problem, encoding, "token") | needs | own
        yield Call(call, ("QUANT-8", OPTIONS[option].rule))


@chapter.group("SOFT-8", "QUANT-8", operation=_QUANTIZED)
def maximum_beside_codes(draw: Draw) -> Iterator[Yielded]:
    """The maximum is that of the scores of decoded keys."""
    for problem in draw.problems((_PLAIN, _GROUPED)):
        yield Call(_call(problem, "int8") | {"return_max": True}, outputs=("output", "max"))


@chapter.group("QUANT-8", operation=_QUANTIZED)
def codes_of_many_keys(draw: Draw) -> Iterator[Yielded]:
    """There are more keys than a tile of 16 or 64 holds, or as many, and one query or many."""
    for index, problem in enumerate(draw.problems(_TILED)):
        yield _call(problem, ENCODINGS[index // 2], "token")


@chapter.group("QUANT-8", operation=_QUANTIZED)
def scales_of_another_dtype(draw: Draw) -> Iterator[Yielded]:
    """Scales are float32 beside queries in half precision, as kernels keep them."""
    for dtype, encoding in (("float16", "int8"), ("bfloat16", "e4m3fn"), ("float16", "e5m2")):
        problem = draw.problem(_GROUPED, dtype)
        yield _call(problem, encoding, scale_dtype="float32")


@chapter.group("MASK-5", "QUANT-8", operation=_QUANTIZED, each=ENCODINGS)
def large_codes_in_disallowed_places(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """Keys past their length have the largest codes and large scales."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, encoding, "token") | {"key_lengths": 4}
        for name in ("key", "value"):
            arguments[f"{name}_codes"][..., 4:, :] = LARGEST[encoding]
            arguments[f"{name}_scales"][..., 4:, :] = 8
        yield arguments


@chapter.group("MASK-13", "QUANT-8", operation=_QUANTIZED, each=("codes", "scales"))
def nan_in_disallowed_places(draw: Draw, what: str) -> Iterator[Yielded]:
    """Codes or scales of keys past their length are NaN, as in memory that was never written."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, "e4m3fn", "token") | {"key_lengths": 4}
        for name in ("key", "value"):
            arguments[f"{name}_{what}"][..., 4:, :] = 0x7F if what == "codes" else np.nan
        yield arguments


@chapter.group("QUANT-8", "NUM-11", "NUM-12", operation=_QUANTIZED, each=("key", "value"))
def codes_that_are_not_numbers(draw: Draw, name: str) -> Iterator[Yielded]:
    """A code of one key or value is NaN."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, "e4m3fn")
        arguments[f"{name}_codes"][1, 2, 3, 1] = 0xFF
        rules = ("QUANT-8", "NUM-11" if name == "key" else "NUM-12")
        yield Call(arguments, rules)


@chapter.group("NUM-8", "QUANT-8", operation=_QUANTIZED, each=_LAYOUTS)
def strides_of_codes(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Codes are stored in other layouts."""
    for problem in draw.problems((_PLAIN,)):
        arguments = _call(problem, "int8", "token")
        yield Call(arguments, layout=dict.fromkeys(("key_codes", "value_codes"), layout))


_LOW_PRECISION = "low_precision_attention"
#: The options that may be applied in the wrong order to a scale, or that change weights.
_OPTIONS = ("scale", "softcap", "bias", "is_causal", "key_lengths", "sinks", "dropout")
_NAMES = ("query", "key", "value")


def _low_precision_call(problem: Problem, encoding: str, granularity: str = "head") -> dict[str, Any]:
    arguments: dict[str, Any] = {"encoding": encoding}
    for name in _NAMES:
        shape = problem.arguments[name].shape
        own = (*shape[:-1], 1) if granularity == "token" else (*shape[:-2], 1, 1)
        arguments[f"{name}_codes"] = draw_codes(problem.random, encoding, shape)
        arguments[f"{name}_scales"] = draw_scales(problem.random, encoding, own, str(problem.query.dtype))
    return arguments


@chapter.group("QUANT-10", operation=_LOW_PRECISION, each=ENCODINGS)
def codes_throughout(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """Queries, keys and values are codes, with a scale for each head or each token, in each dtype."""
    for index, shape in enumerate((_PLAIN, _GROUPED)):
        for problem in draw.in_each_dtype(shape, index=index):
            yield _low_precision_call(problem, encoding, ("head", "token")[index])


@chapter.group("QUANT-10", operation=_LOW_PRECISION, each=_OPTIONS)
def options_beside_codes_throughout(draw: Draw, option: str) -> Iterator[Yielded]:
    """Options of attention have their effect on decoded arrays."""
    encoding = ENCODINGS[_OPTIONS.index(option) % len(ENCODINGS)]
    for problem in draw.problems((_PLAIN,)):
        needs, own = draw_option(problem, option)
        yield Call(
            _low_precision_call(problem, encoding, "token") | needs | own, ("QUANT-10", OPTIONS[option].rule)
        )


@chapter.group("SOFT-8", "QUANT-10", operation=_LOW_PRECISION)
def maximum_beside_codes_throughout(draw: Draw) -> Iterator[Yielded]:
    """The maximum is that of the scores of decoded queries and keys."""
    for problem in draw.problems((_PLAIN, _GROUPED)):
        call = _low_precision_call(problem, "e4m3fn", "token")
        yield Call(call | {"return_max": True}, outputs=("output", "max"))


@chapter.group("QUANT-10", operation=_LOW_PRECISION)
def codes_throughout_of_many_keys(draw: Draw) -> Iterator[Yielded]:
    """There are more keys than a tile of 16 or 64 holds, or as many, and one query or many."""
    for index, problem in enumerate(draw.problems(_TILED)):
        yield _low_precision_call(problem, ENCODINGS[1 + index % 2], "token")


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def flat_rows_of_many_keys(draw: Draw) -> Iterator[Yielded]:
    """All weights of a row are near 1/300, below most numbers of 8 bits, and values have one sign."""
    for problem in draw.in_each_dtype(Shape((), 3, 300, 4, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn")
        arguments["value_codes"] = arguments["value_codes"] & 0x7F
        arguments["query_scales"] = arguments["query_scales"] / 64
        yield arguments


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def rows_with_a_late_maximum(draw: Draw) -> Iterator[Yielded]:
    """Scores rise with the key, so that weights are computed against maxima that later keys exceed."""
    for problem in draw.in_each_dtype(Shape((), 3, 48, 4, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn")
        rising = (np.arange(48) / 8).astype(np.float64)[:, None] * np.ones(4)
        codes = rising.astype("float8_e4m3fn").view(np.uint8)
        arguments |= {"key_codes": codes, "key_scales": np.ones((1, 1), problem.query.dtype)}
        arguments["query_codes"] = np.full((3, 4), 0x30, np.uint8)  # 0.5
        arguments["query_scales"] = np.array([[0.5], [1], [2]], problem.query.dtype)
        yield arguments


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def rows_of_a_large_key_and_many_small_ones(draw: Draw) -> Iterator[Yielded]:
    """One key has a weight of about a half, and the others share the rest, with values of one sign."""
    for problem in draw.in_each_dtype(Shape((), 2, 400, 1, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn") | {"scale": 1.0}
        keys = np.full((400, 1), 0x00, np.uint8)
        keys[133] = 0x4C  # 6, and exp(6) is about 403
        values = np.full((400, 4), 0x40, np.uint8)  # 2
        values[133] = 0xB8  # -1
        one = np.ones((1, 1), problem.query.dtype)
        arguments |= {"query_codes": np.full((2, 1), 0x38, np.uint8), "query_scales": one}
        yield arguments | {"key_codes": keys, "value_codes": values, "key_scales": one, "value_scales": one}


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def equal_weights_between_two_numbers(draw: Draw) -> Iterator[Yielded]:
    """All 228 weights are equal and 256 times as large just below 1.125, and values have one sign."""
    for problem in draw.in_each_dtype(Shape((), 2, 228, 4, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn")
        arguments["key_codes"] = np.zeros((228, 4), np.uint8)
        arguments["value_codes"] = arguments["value_codes"] & 0x7F
        yield arguments
