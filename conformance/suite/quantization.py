"""The chapter `quantization`: codes, attention over codes, and attention in short formats."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnspec.case import Misuse
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import SHAPES, Problem, Shape
from attnspec.dtypes import DTYPES, FORMATS
from attnspec.operations.quantization import BLOCKS


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


@chapter.group("QUANT-3", "QUANT-4", "QUANT-12", "QUANT-13", operation="dequantize", each=tuple(CODES))
def every_code(_draw: Draw, encoding: str) -> Iterator[Yielded]:
    """All codes are decoded, NaN and infinity among them, with a scale of 1 and one of another sign."""
    codes = np.arange(16 if encoding == "e2m1fn" else 256, dtype=np.uint8).reshape(-1, 16)
    for scale, dtype in product((1.0, -0.375), DTYPES):
        arguments = {"scales": np.array([scale], dtype), "codes": codes, "encoding": encoding}
        yield Call(arguments, (CODES[encoding].rule,))


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


@chapter.group("QUANT-14", operation="dequantize")
def every_power_of_two(_draw: Draw) -> Iterator[Yielded]:
    """Codes of scales are decoded, NaN among them, where the dtype has the power as a normal number."""
    for scale, dtype in product((1.0, 0.75), DTYPES):
        largest, normal = np.log2([FORMATS[dtype].largest, FORMATS[dtype].normal])
        powers = np.arange(max(-127, int(normal) + 1), min(128, int(largest) + 1))
        codes = np.append(powers + 127, 255).astype(np.uint8)
        yield {"scales": np.array([scale], dtype), "codes": codes[None], "encoding": "e8m0fnu"}


@chapter.group("QUANT-1", "QUANT-5", operation="dequantize", each=("e4m3fn", "e8m0fnu"))
def scales_of_scales(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """Scales of blocks are codes with one scale of all digits, or with one for each head."""
    for index, (random, dtype) in enumerate(draw.generators(2)):
        scales = random.normal(size=(1,) if index % 2 else (3, 1, 1)).astype(dtype)
        codes = draw_codes(random, encoding, (3, 5, 4)) & (0x7F if encoding == "e4m3fn" else 0xFF)
        yield {"scales": np.abs(scales), "codes": codes, "encoding": encoding}


@chapter.group("QUANT-1", operation="dequantize")
def codes_of_other_integers(draw: Draw) -> Iterator[Yielded]:
    """Codes are unsigned bytes or wider integers, and a row, a head or an entry may be absent."""
    shapes = ((4, 3), (2, 4, 3), (2, 0, 3), (0, 2, 4, 3), (2, 2, 0, 3))
    for shape, (random, dtype) in zip(shapes, draw.generators(), strict=False):
        codes = draw_codes(random, "int8", shape).astype(np.int32 if dtype == "float32" else np.int64)
        yield {"scales": draw_scales(random, "int8", (1,), dtype), "codes": codes}
    for dtype in DTYPES:
        yield {"scales": np.array([-0.375], dtype), "codes": np.arange(256, dtype=np.uint8).reshape(8, 32)}


@chapter.group("QUANT-2", operation="dequantize")
def zero_points_of_unsigned_bytes(draw: Draw) -> Iterator[Yielded]:
    """Codes and zero points are unsigned bytes, and those above 127 are no negative numbers."""
    for random, dtype in draw.generators(1):
        for shape, low in product(((1,), (2, 1, 6, 1), (8,)), (0, 128)):
            codes, points = random.integers(0, 256, (2, 3, 6, 8)), random.integers(low, 256, shape)
            call = {"scales": random.normal(size=shape).astype(dtype)}
            yield call | {"codes": codes.astype(np.uint8), "zero_points": points.astype(np.uint8)}


@chapter.group("QUANT-1", operation="dequantize")
def scales_that_are_not_numbers(draw: Draw) -> Iterator[Yielded]:
    """The scale of a token is NaN, as that of a block of MX may be, and codes of 0 beside it are NaN too."""
    for encoding in ENCODINGS:
        for random, dtype in draw.generators(1):
            codes, scales = draw_codes(random, encoding, (2, 4, 6)), np.ones((2, 4, 1), dtype)
            codes[..., 1], scales[1, 2] = 0, np.nan
            yield {"scales": scales, "codes": codes, "encoding": encoding}


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


@chapter.group(
    "QUANT-1", operation="dequantize", each=("e8m0fnu", *(name for name in CODES if name != "e2m1fn"))
)
def codes_of_signed_bytes(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """The array of codes has a signed dtype, so half of the codes are negative numbers."""
    for random, dtype in draw.generators(1):
        scales = draw_scales(random, encoding, (3, 1), dtype)
        codes: Any = draw_codes(random, encoding, (3, 8))
        codes[:, :2] = (128, 255) if encoding == "e8m0fnu" else codes[:, :2] | 0x80
        yield {"scales": scales, "codes": codes.view(np.int8), "encoding": encoding}


@chapter.group("QUANT-5", operation="dequantize")
def blocks_of_heads_and_entries(draw: Draw) -> Iterator[Yielded]:
    """Several heads or batch entries have one scale, and others have another one."""
    for shape in ((2, 1, 1), (2, 2, 5, 1), (1, 4, 1, 2)):
        for random, dtype in draw.generators(1):
            codes = draw_codes(random, "int8", (4, 4, 5, 6))
            yield {"scales": draw_scales(random, "int8", shape, dtype), "codes": codes}


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


@chapter.group("QUANT-1", operation="dequantize")
def products_beyond_the_largest_number(_draw: Draw) -> Iterator[Yielded]:
    """Products are above the largest number by less than half a step, and round to it, or are infinite."""
    for dtype, scale, code in (("float16", 636.0, 103), ("bfloat16", 135 * 2.0**114, 121)):
        codes = [[code, -code, code + 1, -code - 1]]
        yield {"scales": np.array([scale], dtype), "codes": np.array(codes, np.int8)}


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


@chapter.group("QUANT-6", "QUANT-7", operation="dequantize_blocks", each=tuple(BLOCKS))
def blocks_of_signed_bytes(draw: Draw, blocks: str) -> Iterator[Yielded]:
    """The array of bytes has a signed dtype, so half of the bytes are negative numbers."""
    rule = "QUANT-6" if blocks == "q8_0" else "QUANT-7"
    for random, dtype in draw.generators(1):
        packed = random.integers(-128, 128, (2, 3, BLOCKS[blocks])).astype(np.int8)
        scales = random.normal(size=(2, 3)).astype(dtype)
        yield Call({"scales": scales, "packed": packed, "blocks": blocks}, (rule,))


@chapter.group("QUANT-1", operation="dequantize_blocks", each=tuple(BLOCKS))
def scales_of_blocks_that_are_not_numbers(draw: Draw, blocks: str) -> Iterator[Yielded]:
    """The scale of one block is NaN."""
    for random, dtype in draw.generators(1):
        packed = random.integers(0, 256, (2, 3, BLOCKS[blocks])).astype(np.uint8)
        scales = random.normal(size=(2, 3)).astype(dtype)
        packed[1, 1, 0], scales[1, 1] = 0, np.nan
        yield {"scales": scales, "packed": packed, "blocks": blocks}


def _pairs(draw: Draw) -> Iterator[list[tuple[np.random.Generator, str]]]:
    """Yield three pairs of generators, each of one seed and two dtypes."""
    every = list(draw.generators(3))
    yield from (every[start : start + 2] for start in range(0, len(every), 2))


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


@chapter.group("QUANT-8", "QUANT-5", operation=_QUANTIZED, each=(2, 8))
def blocks_of_many_tokens(draw: Draw, blocks: int) -> Iterator[Yielded]:
    """A block of tokens has a scale, and there are more tokens than a tile of 64 holds."""
    for problem in draw.problems((Shape((2,), 3, 128, 8, 8),)):
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
