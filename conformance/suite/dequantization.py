"""The chapter `quantization`: the numbers of codes, with scales, zero points and in packed blocks."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.quantization import CODES, ENCODINGS, draw_codes, draw_scales
from attnspec.dtypes import DTYPES, FORMATS
from attnspec.operations.quantization import BLOCKS

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


@chapter.group("QUANT-5", "QUANT-2", operation="dequantize")
def zero_points_of_blocks(draw: Draw) -> Iterator[Yielded]:
    """Several tokens, heads or entries have one zero point, or all codes do. The scale has no axes."""
    for shape in ((2, 1), (2, 1, 1), (2, 2, 6, 1), ()):
        for random, dtype in draw.generators(1):
            codes = draw_codes(random, "int8", (4, 4, 6, 3))
            points = np.asarray(random.integers(-9, 10, shape))
            yield {"scales": np.array(2.0**-8, dtype), "codes": codes, "zero_points": points}


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


@chapter.group("QUANT-1", operation="dequantize")
def products_below_the_normal_numbers_of_each_dtype(draw: Draw) -> Iterator[Yielded]:
    """The product of a normal scale and a code is a subnormal number, or rounds to one."""
    for index, (dtype, form) in enumerate(FORMATS.items()):
        random = np.random.default_rng(draw.number(index))
        codes: Any = draw_codes(random, "e4m3fn", (4, 8)) & 0xBF  # numbers below 2
        scales = (form.normal * random.uniform(1, 2, (4, 1))).astype(dtype)
        yield {"scales": scales, "codes": codes, "encoding": "e4m3fn"}


@chapter.group("QUANT-6", "QUANT-7", each=tuple(BLOCKS))  # no source of calls of other groups
def blocks_at_the_ends_of_each_dtype(draw: Draw, blocks: str) -> Iterator[Yielded]:
    """The products of blocks are subnormal numbers, or above the largest number."""
    for index, (dtype, form) in enumerate(FORMATS.items()):
        random = np.random.default_rng(draw.number(index))
        packed = random.integers(0, 256, (2, 2, BLOCKS[blocks])).astype(np.uint8)
        scales = [[3 * form.subnormal, form.normal / 4], [form.largest / 4, -form.largest / 64]]
        rule = "QUANT-6" if blocks == "q8_0" else "QUANT-7"
        call = {"scales": np.array(scales, dtype), "packed": packed, "blocks": blocks}
        yield Call(call, (rule,), operation="dequantize_blocks")


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
