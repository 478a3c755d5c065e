"""Codes and their scales: the chapter `quantization`."""

import math
from typing import Any, Literal

import numpy as np
from array_api_compat import device
from numpy.typing import NDArray

from attnspec.operations.quantization import BLOCKS, OF_BLOCK, RANGES
from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import check_declared, dtype_name, need, within
from attnspec.reference.functions import public
from attnspec.reference.notation import narrow, out_dtype, reshape, wide

#: The word for an encoding of codes.
Encoding = Literal["int8", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e2m1fn", "e8m0fnu"]
#: Digits after the leading one, and what is subtracted from the exponent.
_FLOATS = {"e4m3fn": (3, 7), "e5m2": (2, 15), "e4m3fnuz": (3, 8), "e5m2fnuz": (2, 16), "e2m1fn": (1, 1)}


def dequantize_of(call: Call, **arguments: Any) -> Array:
    """Decode codes, and multiply by their scale.

    Notes
    -----
    Rules QUANT-1 to QUANT-5.

    Examples
    --------
    >>> from attnspec.reference import dequantize
    >>> dequantize([0.5], [[-128, 3]], zero_points=[-2]).tolist()
    [[-63.0, 2.5]]
    >>> dequantize([[0.5], [1.0]], [[0x38, 0x01], [0x7E, 0xFF]], encoding="e4m3fn").tolist()
    [[0.5, 0.0009765625], [448.0, nan]]
    """
    checked = check_declared(call, "dequantize", arguments)
    scales, codes, zero_points, encoding = (
        checked[name] for name in ("scales", "codes", "zero_points", "encoding")
    )
    check_zero_points(call, "zero_points", zero_points, encoding)
    check_code_range(call, "codes", codes, encoding)
    return narrow(call, decode(call, codes, scales, zero_points, encoding, scales), out_dtype(call, scales))


dequantize = public(dequantize_of)


@step
def check_zero_points(_call: Call, name: str, zero_points: Any, encoding: str) -> None:
    """Refuse zero points of floating-point codes (QUANT-9)."""
    alone = zero_points is None or encoding == "int8"
    need(name, alone, "none with floating-point codes", "some", "QUANT-9")


@step
def check_code_range(call: Call, name: str, codes: Array, encoding: str) -> None:
    """Refuse codes that the encoding does not have (QUANT-15). This reads codes of more than 8 bits."""
    if encoding == "e2m1fn" or dtype_name(codes) not in ("int8", "uint8"):
        within(call, name, codes, *RANGES[encoding], "QUANT-15")


@step
@part
def decode(call: Call, codes: Array, scales: Array, zero_points: Array, encoding: str, like: Array) -> Array:
    """Decode, subtract the zero point and multiply, in the working precision of an array (QUANT-1)."""
    numbers = decode_codes(call, codes, encoding, wide(call, like).dtype)
    if zero_points is not None:
        shifts = call.xp.astype(by_blocks(call, zero_points, tuple(codes.shape)), numbers.dtype)
        numbers = numbers - shifts
    if scales is None:
        return numbers
    factors = call.xp.astype(by_blocks(call, scales, tuple(codes.shape)), numbers.dtype)
    return scale_codes(call, numbers, factors)


@step
def scale_codes(_call: Call, numbers: Array, scales: Array) -> Array:
    """Multiply decoded numbers by their scale (QUANT-1)."""
    return numbers * scales


@step
def by_blocks(call: Call, given: Array, full: tuple[int, ...]) -> Array:
    """Repeat each entry for the block that it stands for (QUANT-5). Axes of one are left to broadcast."""
    for axis in range(-given.ndim, 0):
        if given.shape[axis] not in (1, full[axis]):
            given = call.xp.repeat(given, full[axis] // given.shape[axis], axis=axis)
    return given


@step
def decode_codes(call: Call, codes: Array, encoding: str, dtype: Any) -> Array:
    """Return the numbers that codes stand for, without their scale (QUANT-3, QUANT-4)."""
    if encoding == "int8":
        return call.xp.astype(codes, dtype)
    return look_up(call, numbers_of_codes(encoding), codes, dtype)


def look_up(call: Call, table: NDArray[np.float64], codes: Array, dtype: Any) -> Array:
    """Take the number of each code from a table. A code of a signed integer is the one with its bits."""
    xp = call.xp
    places = xp.astype(codes, xp.int32) % len(table)
    known = xp.asarray(table.tolist(), dtype=dtype, device=device(codes))
    taken = xp.take(known, reshape(xp, places, (math.prod(codes.shape),)), axis=0)
    return reshape(xp, taken, tuple(codes.shape))


def numbers_of_codes(encoding: str) -> NDArray[np.float64]:
    """Return the number of each code of a floating-point encoding (QUANT-3, QUANT-4, QUANT-12 to 14)."""
    codes = np.arange(256 if encoding != "e2m1fn" else 16)
    if encoding == "e8m0fnu":
        return np.where(codes == 255, np.nan, np.ldexp(1.0, codes - 127))
    (digits, shift), sign = _FLOATS[encoding], codes.size // 2
    exponent, fraction = (codes % sign) >> digits, codes & ((1 << digits) - 1)
    leading = np.where(exponent > 0, 1 << digits, 0)
    numbers = np.ldexp((leading + fraction).astype(np.float64), np.maximum(exponent, 1) - shift - digits)
    if encoding == "e5m2":
        numbers = np.where(exponent == 31, np.where(fraction == 0, np.inf, np.nan), numbers)
    elif encoding == "e4m3fn":
        numbers = np.where(codes & 127 == 127, np.nan, numbers)
    elif encoding.endswith("fnuz"):
        numbers = np.where(codes == 128, np.nan, numbers)
    signed: NDArray[np.float64] = np.copysign(numbers, np.where(codes < sign, 1, -1))
    return signed


def dequantize_blocks_of(call: Call, **arguments: Any) -> Array:
    """Decode blocks of 32 codes as gguf packs them.

    Notes
    -----
    Rules QUANT-6 and QUANT-7.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import dequantize_blocks
    >>> packed = np.array([[[0xF0] + [0x88] * 15]])
    >>> dequantize_blocks([[0.5]], packed, blocks="q4_0")[0, [0, 1, 16, 17]].tolist()
    [-4.0, 0.0, 3.5, 0.0]
    """
    checked = check_declared(call, "dequantize_blocks", arguments)
    scales, packed, blocks = (checked[name] for name in ("scales", "packed", "blocks"))
    need("packed", packed.shape[-1] == BLOCKS[blocks], f"{BLOCKS[blocks]} bytes", packed.shape[-1], "QUANT-9")
    return _dequantize_blocks(call, scales, packed, blocks)


dequantize_blocks = public(dequantize_blocks_of)


@part
def _dequantize_blocks(call: Call, scales: Array, packed: Array, blocks: str) -> Array:
    xp = call.xp
    numbers = unpack(call, xp.astype(packed, xp.int32) % 256, blocks)  # (*B, N, U, 32)
    factors = wide(call, scales)
    result = scale_codes(call, xp.astype(numbers, factors.dtype), factors[..., None])
    *outer, count = scales.shape
    return narrow(call, reshape(xp, result, (*outer, count * OF_BLOCK)), out_dtype(call, scales))


@step
def unpack(call: Call, packed: Array, blocks: str) -> Array:
    """Return the 32 integers of each block (QUANT-6, QUANT-7)."""
    xp = call.xp
    if blocks == "q8_0":
        return xp.where(packed < 128, packed, packed - 256)
    return xp.concat([packed % 16, packed // 16], axis=-1) - 8
