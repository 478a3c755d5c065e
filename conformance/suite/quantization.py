"""The chapter `quantization`: decoding codes."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from attnspec.conformance.suite.codes import drawn_codes, drawn_scales
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.dtypes import DTYPES
from attnspec.operations.quantization import BLOCKS, ENCODINGS

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
            "codes": drawn_codes(random, encoding, (2, 2, 5, 6)),
            "encoding": encoding,
        }


@chapter.group("QUANT-1", operation="dequantize")
def codes_of_other_integers(draw: Draw) -> Iterator[Yielded]:
    """Codes are integers of more than 8 bits, and a row, a head or an entry may be absent."""
    shapes = ((4, 3), (2, 4, 3), (2, 0, 3), (0, 2, 4, 3), (2, 2, 0, 3))
    for shape, (random, dtype) in zip(shapes, draw.generators(), strict=False):
        codes = drawn_codes(random, "int8", shape).astype(np.int32 if dtype == "float32" else np.int64)
        yield {"scales": drawn_scales(random, "int8", (1,), dtype), "codes": codes}


@chapter.group("QUANT-2", operation="dequantize", each=("tensor", "token", "channel", "block of features"))
def zero_points(draw: Draw, granularity: str) -> Iterator[Yielded]:
    """Zero points of both signs are subtracted, also where the difference needs more than 8 bits."""
    for random, dtype in draw.generators(1):
        shape = _GRANULARITIES[granularity]
        codes = drawn_codes(random, "int8", (2, 3, 6, 8))
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
            "scales": drawn_scales(random, encoding, shape, dtype) * signs,
            "codes": drawn_codes(random, encoding, (2, 3, 6, 8)),
            "encoding": encoding,
        }


@chapter.group("QUANT-1", operation="dequantize")
def products_below_the_normal_numbers(draw: Draw) -> Iterator[Yielded]:
    """Products are subnormal numbers of float16, or round to 0."""
    for index in range(2):
        random = np.random.default_rng(draw.number(index))
        codes: Any = drawn_codes(random, "e4m3fn", (4, 8))
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
