"""Wrong about codes, scales and blocks, and about attention over codes."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.operations.quantization import ENCODINGS
from attnspec.reference.call import Arguments, Call, Step, Steps
from attnspec.reference.quantized_attention import Quantised

#: The largest number of each format of 8 bits.
_LARGEST = {"float8_e4m3fn": 448, "float8_e5m2": 57344}


def _codes_in(given: Arguments, change: Callable[[Array, Any], Arguments]) -> Arguments:
    """Change the codes of a call, or their scales and zero points, by a function of codes and zero points."""
    changed: Arguments = {}
    for scales in [name for name in given if name.endswith("_scales")]:
        own = scales.removesuffix("_scales")
        codes = next(name for name in (f"{own}_pages", f"{own}_codes") if name in given)
        names = {"codes": codes, "points": f"{own}_zero_points"}
        result = change(given[codes], given[names["points"]])
        changed |= {names[kind]: x for kind, x in result.items()}
    return given | changed


def _wrapped(codes: Array, points: Any) -> Arguments:
    """Subtract zero points in 8 bits."""
    if points is None:
        return {}
    for axis, size in enumerate(codes.shape[-points.ndim :]):
        points = np.repeat(points, size // points.shape[axis], axis)
    return {"codes": (codes.astype(np.int64) - points).astype(np.int8), "points": None}


ENTRIES = rows(
    ("difference_of_bytes_wraps", "numbers_of_codes", "STACK-1", "Z",
     lambda call, given: base.numbers_of_codes(call, _codes_in(given, _wrapped)),
     "Subtract the zero points in 8 bits."),
    ("sign_of_signed_codes_lost", "numbers_of_codes", "STACK-1", "Z",
     lambda call, given: base.numbers_of_codes(call, _codes_in(given, lambda codes, _: {
         "codes": codes if given["encoding"] == "int8" else np.where(codes < 0, codes & 127, codes)})),
     "Take the low seven bits of a code that is stored as a negative integer."),
    ("scales_of_codes_applied_twice", "scale_codes", "QUANT-1", "Z",
     lambda _call, numbers, scale: numbers * scale * scale,
     "Multiply by the scale once when decoding, and once more."),
    ("codes_divided_by_their_scale", "scale_codes", "QUANT-1", "Z",
     lambda _call, numbers, scale: numbers / scale,
     "Take the factor by which numbers were multiplied when they were quantised."),
    ("scale_of_zero_taken_for_none", "scale_codes", "QUANT-8", "Z",
     lambda _call, numbers, scale: numbers * np.where(scale == 0, 1, scale).astype(numbers.dtype),
     "Multiply by 1 where the scale is 0, as a scale that is not given."),
    ("scales_rounded_to_bfloat16", "scale_codes", "QUANT-1", "Z",
     lambda _call, numbers, scale: numbers * scale.astype("bfloat16").astype(numbers.dtype),
     "Round the scale to 8 digits before the product."),
    ("decoded_through_bfloat16", "scale_codes", "QUANT-1", "Z",
     lambda _call, numbers, scale: (numbers * scale).astype("bfloat16").astype(numbers.dtype),
     "Round the product to 8 digits before it is rounded to the dtype of the result."),
    ("bytes_of_q8_0_read_as_unsigned", "unpack", "QUANT-6", "Z",
     lambda call, packed, blocks: packed if blocks == "q8_0" else base.unpack(call, packed, blocks),
     "Read the bytes of q8_0 without a sign."),
    ("weights_of_eight_bits_not_raised", "attend_low_precision", "QUANT-11", "Z",
     lambda call, *arrays: base.attend_low_precision(with_weights(call, lambda p: shorten(p, 1)), *arrays),
     "Round weights to e4m3fn as they are, so that small ones vanish.", "flashinfer-ai/flashinfer#5020"),
    ("weights_of_eight_bits_saturated", "attend_low_precision", "QUANT-11", "Z",
     lambda call, *arrays: base.attend_low_precision(with_weights(call, lambda p: shorten(p, 4096)), *arrays),
     "Raise weights so far that the largest are cut off at 448.", "Dao-AILab/flash-attention#2717"),
    ("decoded_values_twice_as_large", "attend_low_precision", "QUANT-10", "Z",
     lambda call, query, key, value, *others: base.attend_low_precision(call, query, key, 2 * value, *others),
     "Apply half of a scale to the output.", "lightseekorg/tokenspeed#759"),
    ("zero_points_left_out", "decode", "QUANT-2", "Z",
     lambda call, codes, scales, _zero_points, encoding,
         like: base.decode(call, codes, scales, None, encoding, like),
     "Decode as if the range were symmetric."),
    ("nibbles_of_q4_0_side_by_side", "unpack", "QUANT-7", "Z",
     lambda call, packed, blocks: base.unpack(call, packed, blocks) if blocks != "q4_0"
         else np.stack([packed % 16, packed // 16], axis=-1).reshape(*packed.shape[:-1], 32) - 8,
     "Take the two codes of a byte for neighbours."),
    ("fnuz_read_with_the_bias_of_fn", "decode_codes", "QUANT-12", "Z",
     lambda call, codes, encoding, dtype: base.decode_codes(call, codes, encoding.removesuffix("uz") if
         encoding == "e4m3fnuz" else encoding.removesuffix("fnuz"), dtype),
     "Decode e4m3fnuz as e4m3fn, and e5m2fnuz as e5m2, whose numbers are twice as large."),
    ("nan_of_fnuz_read_as_minus_zero", "decode_codes", "QUANT-12", "Z",
     lambda call, codes, encoding, dtype: np.where(codes % 256 == 128, 0, base.decode_codes(
         call, codes, encoding, dtype)) if encoding.endswith("fnuz")
         else base.decode_codes(call, codes, encoding, dtype),
     "Read the code 0x80 of a format fnuz as minus 0."),
    ("e2m1fn_read_as_an_integer", "decode_codes", "QUANT-13", "Z",
     lambda call, codes, encoding, dtype: np.where(codes < 8, codes, 8 - codes.astype(int)).astype(dtype)
         if encoding == "e2m1fn" else base.decode_codes(call, codes, encoding, dtype),
     "Read four bits as a sign and an integer."),
    ("subnormal_of_e2m1fn_read_as_normal", "decode_codes", "QUANT-13", "Z",
     lambda call, codes, encoding, dtype: np.where(codes % 8 == 1, np.where(codes < 8, 0.75, -0.75),
         base.decode_codes(call, codes, encoding, dtype)).astype(dtype)
         if encoding == "e2m1fn" else base.decode_codes(call, codes, encoding, dtype),
     "Read the code 1 as 0.75, as if its leading digit were 1."),
    ("e8m0fnu_with_a_bias_of_128", "decode_codes", "QUANT-14", "Z",
     lambda call, codes, encoding, dtype: base.decode_codes(call, codes, encoding, dtype) / (
         2 if encoding == "e8m0fnu" else 1), "Decode powers of two that are half as large."),
    ("nan_of_e8m0fnu_read_as_a_power", "decode_codes", "QUANT-14", "Z",
     lambda call, codes, encoding, dtype: np.where((codes == 255) & (encoding == "e8m0fnu"), np.inf,
         base.decode_codes(call, codes, encoding, dtype)).astype(dtype),
     "Read the code 255 as 2 to the power of 128."),
    ("codes_cut_to_their_bits", "check_code_range", "QUANT-15", "Z",
     lambda _call, _name, _codes, _encoding: None, "Read the low bits of a code that is too large."),
    ("zero_points_of_floats_passed_over", "check_zero_points", "QUANT-9", "Z",
     lambda _call, _name, _zero_points, _encoding: None,
     "Accept zero points that are subtracted from floating-point codes."),
    ("scales_of_the_cache_left_out", "keys_and_values", "QUANT-8", "Z",
     lambda call, query, key, value, encoding: base.keys_and_values(call,
         query, (key[0], None, key[2]), (value[0], None, value[2]), encoding),
     "Accept scales of keys and values, and attend to the bare codes.", "flashinfer-ai/flashinfer#4979"),
    ("keys_rounded_to_the_next_integers", "attend_by_codes", "QUANT-8", "Z",
     lambda call, query, key, value, storage, options: base.attend_by_codes(call,
         query, np.rint(key), value, storage, options),
     "Lose the fraction of a decoded key in a cast to integers."),
    ("signed_codes_read_as_unsigned", "decode_codes", "QUANT-1", "Z",
     After(lambda numbers, _call, _codes, encoding, _dtype: np.where(numbers < 0, numbers + 256, numbers)
         if encoding == "int8" else numbers),
     "Read the integers of int8 as bytes without a sign."),
    ("negative_codes_of_floats_read_as_0", "decode_codes", "QUANT-1", "Z",
     lambda call, codes, encoding, dtype: base.decode_codes(call,
         codes if encoding == "int8" else np.where(codes < 0, 0, codes), encoding, dtype),
     "Clip negative codes of floating-point numbers to 0."),
    ("unknown_encoding_read_as_int8", "check_declared", "ERR-16", "U",
     lambda call, operation, given: base.check_declared(call, operation, given | (
         {} if given.get("encoding", "int8") in ENCODINGS else {"encoding": "int8"})),
     "Read codes of an unknown encoding as integers."),
    ("key_scales_of_the_first_feature", "keys_and_values", "QUANT-8", "Z",
     lambda call, query, key, value, encoding: base.keys_and_values(call, query,
         (key[0], None if key[1] is None else key[1][..., :1], key[2]), value, encoding),
     "Multiply keys with scales by channel by the scale of the first feature."),
    ("e5m2_read_as_e4m3fn", "decode_codes", "QUANT-4", "Z",
     lambda call, codes, encoding, dtype: base.decode_codes(call, codes, "e4m3fn"
         if encoding == "e5m2" else encoding, dtype),
     "Decode every 8-bit floating-point number in one way."),
    ("infinity_of_e5m2_read_as_a_number", "decode_codes", "QUANT-4", "Z",
     After(lambda numbers, *_: np.where(np.isinf(numbers), np.copysign(65536, numbers),
         numbers).astype(numbers.dtype)),
     "Decode infinity as the number after the largest."),
    ("high_nibbles_of_q4_0_first", "unpack", "QUANT-7", "Z",
     After(lambda numbers, _call, _packed, blocks: numbers if blocks != "q4_0"
         else np.roll(numbers, 16, axis=-1)),
     "Take the first half of a block from the high nibbles."),
    ("nibbles_of_q4_0_in_twos_complement", "unpack", "QUANT-7", "Z",
     After(lambda numbers, _call, _packed, blocks: numbers if blocks != "q4_0"
         else np.where(numbers >= 0, numbers - 8, numbers + 8)),
     "Read a nibble as a signed integer, without the 8 that is subtracted."),
)  # fmt: skip


@wrong("decode", "QUANT-2", "Z")
def zero_points_subtracted_in_eight_bits(
    call: Call, codes: Array, scales: Array, zero_points: Any, encoding: str, like: Array
) -> Any:
    """Let the difference of two integers of 8 bits wrap around."""
    if zero_points is None:
        return base.decode(call, codes, scales, None, encoding, like)
    shifts = base.by_blocks(call, zero_points, tuple(codes.shape))
    wrapped = codes.astype(np.int8) - shifts.astype(np.int8)
    return base.decode(call, wrapped, scales, None, encoding, like)


@wrong("decode", "QUANT-2", "Z")
def zero_points_subtracted_after_the_scale(
    call: Call, codes: Array, scales: Array, zero_points: Any, encoding: str, like: Array
) -> Any:
    """Subtract the zero point from the product."""
    numbers = base.decode(call, codes, scales, None, encoding, like)
    if zero_points is None:
        return numbers
    return numbers - base.by_blocks(call, zero_points, tuple(codes.shape)).astype(numbers.dtype)


@wrong("decode_codes", "QUANT-3", "Z", "ml-explore/mlx#4164")
def nan_of_e4m3fn_read_as_480(call: Call, codes: Array, encoding: str, dtype: Any) -> Any:
    """Decode the codes of NaN as numbers above the largest."""
    numbers = base.decode_codes(call, codes, encoding, dtype)
    sign = np.where(np.asarray(codes).astype(np.int64) & 128, -1, 1).astype(numbers.dtype)
    return np.where(np.isnan(numbers) & (encoding == "e4m3fn"), sign * 480, numbers)


@wrong("decode_codes", "QUANT-3", "Z", "tile-ai/tilelang#2710")
def subnormals_of_e4m3fn_read_as_normal(call: Call, codes: Array, encoding: str, dtype: Any) -> Any:
    """Give codes without an exponent the leading digit that others have."""
    numbers = base.decode_codes(call, codes, encoding, dtype)
    if encoding != "e4m3fn":
        return numbers
    bits = np.asarray(codes).astype(np.int64) % 256
    read = np.ldexp(8.0 + (bits & 7), -10) * np.where(bits & 128, -1, 1)
    return np.where(bits & 0x78 == 0, read, numbers).astype(numbers.dtype)


@wrong("decode_codes", "QUANT-3", "Z", "google/XNNPACK#10460")
def top_of_e4m3fn_read_as_infinite(call: Call, codes: Array, encoding: str, dtype: Any) -> Any:
    """Read codes of the largest exponent as infinity and NaN, as IEEE 754 formats do."""
    numbers = base.decode_codes(call, codes, encoding, dtype)
    if encoding != "e4m3fn":
        return numbers
    bits = np.asarray(codes).astype(np.int64) % 256
    special = np.where(bits & 7, np.nan, np.where(bits & 128, -np.inf, np.inf))
    return np.where(bits & 0x78 == 0x78, special, numbers).astype(numbers.dtype)


@wrong("decode_codes", "QUANT-3", "Z")
def e4m3fn_read_with_the_bias_of_fnuz(call: Call, codes: Array, encoding: str, dtype: Any) -> Any:
    """Decode as e4m3fnuz, whose numbers are half as large."""
    numbers = base.decode_codes(call, codes, encoding, dtype)
    return numbers / 2 if encoding == "e4m3fn" else numbers


@wrong("by_blocks", "QUANT-5", "Z")
def blocks_interleaved(call: Call, given: Array, full: tuple[int, ...]) -> Any:
    """Repeat the scales as a whole, so that code i has the scale i modulo their number."""
    array = np.asarray(given)
    for axis in range(-array.ndim, 0):
        if array.shape[axis] not in (1, full[axis]):
            array = np.concatenate([array] * (full[axis] // array.shape[axis]), axis=axis)
    return base.by_blocks(call, array, full)


@wrong("by_blocks", "QUANT-5", "Z", "sgl-project/sgl-kernel-xpu#252")
def scale_of_the_first_head_for_all(call: Call, given: Array, full: tuple[int, ...]) -> Any:
    """Read one scale for all batch entries and heads."""
    array = np.asarray(given)
    return base.by_blocks(call, array[(slice(0, 1),) * (array.ndim - 2)], full)


@wrong("by_blocks", "QUANT-5", "Z", "vllm-project/vllm#49716")
def scales_of_tokens_one_late(call: Call, given: Array, full: tuple[int, ...]) -> Any:
    """Read the scale of a token where that of the next one is stored."""
    array = np.asarray(given)
    late = array.ndim > 1 and array.shape[-2] > 1
    return base.by_blocks(call, np.roll(array, -1, axis=-2) if late else array, full)


@wrong("keys_and_values", "QUANT-8", "Z", "vllm-project/vllm#6081")
def scales_of_keys_for_values(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> Any:
    """Use one scale for keys and values."""
    shared = key[1] if key[1] is not None and key[1].shape[-1] == 1 else value[1]
    return base.keys_and_values(call, query, key, (value[0], shared, value[2]), encoding)


def _with_tiled_scales(query: Array, coded: Quantised) -> Quantised:
    """Repeat codes for the query heads of a group, and scales of heads for all groups in turn.

    Without scales of heads, or with heads of their own, everything is as it was.
    """
    codes, scales, zero_points = coded
    shared = max(codes.shape[-3], 1) if codes.ndim > 2 else 1
    group = query.shape[-3] // shared if query.ndim > 2 else 1
    if group < 2 or scales is None or scales.ndim < 3 or scales.shape[-3] < 2:
        return coded
    if zero_points is not None and zero_points.ndim > 2 and zero_points.shape[-3] > 1:
        zero_points = np.repeat(zero_points, group, -3)
    return np.repeat(codes, group, -3), np.concatenate([scales] * group, -3), zero_points


def _tiled_scales_of(*names: str) -> Step:
    """Make the step that decodes with tiled scales. Other heads are repeated as they must be."""

    def decoded(call: Call, query: Array, key: Quantised, value: Quantised, encoding: str) -> Any:
        key = _with_tiled_scales(query, key) if "key" in names else key
        value = _with_tiled_scales(query, value) if "value" in names else value
        pair = base.keys_and_values(call, query, key, value, encoding)
        heads = max(x.shape[-3] if x.ndim > 2 else 1 for x in pair)
        return tuple(np.repeat(x, heads // max(x.shape[-3], 1), -3) if x.ndim > 2 else x for x in pair)

    return decoded


TILED_SCALES = rows(
    ("scales_of_value_heads_tiled", "keys_and_values", "QUANT-8", "D", _tiled_scales_of("value"),
     "Repeat the codes of values for the query heads of a group, and the scales for all groups in turn."),
    ("scales_of_key_heads_tiled", "keys_and_values", "QUANT-8", "D", _tiled_scales_of("key"),
     "Repeat the codes of keys for the query heads of a group, and the scales for all groups in turn."),
    ("scales_of_heads_tiled", "keys_and_values", "QUANT-8", "D", _tiled_scales_of("key", "value"),
     "Repeat all codes for the query heads of a group, and all scales for all groups in turn."),
)  # fmt: skip


@wrong("keys_and_values", "QUANT-8", "Z", "vllm-project/vllm#51091")
def last_scales_reset_to_one(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> Any:
    """Fill the scale of the last token with 1 after it was written."""
    scales = [None if each[1] is None else np.array(each[1]) for each in (key, value)]
    for each in scales:
        if each is not None and each.ndim > 1 and each.shape[-2] > 1:
            each[..., -1, :] = 1
    return base.keys_and_values(
        call, query, (key[0], scales[0], key[2]), (value[0], scales[1], value[2]), encoding
    )


@wrong("attend_by_codes", "QUANT-8", "Z")
def values_decoded_to_e4m3fn_again(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Round decoded values to the four digits of e4m3fn."""
    mantissa, exponent = np.frexp(value)
    short = np.ldexp(np.rint(mantissa * 16) / 16, exponent).astype(value.dtype)
    return base.attend_by_codes(call, query, key, short, storage, options)


def shorten(p: Array, factor: float, name: str = "float8_e4m3fn") -> Array:
    """Multiply weights by a factor, round them to 8 bits, saturate, and divide by the factor."""
    raised = np.minimum(p * factor, _LARGEST[name]).astype(np.float32)
    short: Array = raised.astype(getattr(ml_dtypes, name)).astype(p.dtype)
    divided: Array = short / np.asarray(factor, p.dtype)
    return divided


def with_weights(call: Call, change: Callable[[Array], Array]) -> Call:
    """Return a call whose second product takes changed weights."""

    def weighted(inner: Any, p: Array, seen: Any) -> Any:
        return base.weighted_sum(inner, change(p), seen)

    return call.but(steps=Steps({**call.steps.replaced, "weighted_sum": weighted}))


@wrong("attend_low_precision", "QUANT-11", "Z")
def weights_of_two_digits(call: Call, *arrays: Any) -> Any:
    """Round weights to two digits."""

    def coarse(p: Array) -> Array:
        mantissa, exponent = np.frexp(p)
        short: Array = np.ldexp(np.rint(mantissa * 4) / 4, exponent).astype(p.dtype)
        return short

    return base.attend_low_precision(with_weights(call, coarse), *arrays)


@wrong("attend_low_precision", "QUANT-11", "Z")
def weights_of_eight_bits_truncated(call: Call, *arrays: Any) -> Any:
    """Cut weights off after four digits, and lose the small ones."""

    def cut(p: Array) -> Any:
        mantissa, exponent = np.frexp(p * 256)
        short = np.ldexp(np.floor(mantissa * 16) / 16, exponent) / 256
        return np.where(p * 256 < 2.0**-6, 0, short).astype(p.dtype)

    return base.attend_low_precision(with_weights(call, cut), *arrays)


@wrong("attend_low_precision", "QUANT-10", "Z", "vllm-project/vllm#51363")
def decoded_query_normalised_to_one(call: Call, query: Array, *others: Any) -> Any:
    """Drop the scale of the query, here by making its largest number 1."""
    largest = np.abs(query).max(axis=(-2, -1), keepdims=True, initial=0)
    return base.attend_low_precision(call, query / np.where(largest == 0, 1, largest), *others)


@wrong("attend_low_precision", "QUANT-10", "Z")
def softcap_before_the_scales(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Cap scores of bare codes, and multiply by the scales afterwards."""
    softcap = options["softcap"]
    changed = {**options, "softcap": None if softcap is None else softcap / 4}
    return base.attend_low_precision(call, query, key, value, storage, changed)


def _vanish(array: Array, size: Array) -> Array:
    """Set to 0 what 8 bits lose beside the largest size of a block of 64 keys, on the last axis."""
    result = array.copy()
    for start in range(0, array.shape[-1], 64):
        keys = slice(start, start + 64)
        least = size[..., keys].max(axis=-1, keepdims=True) * 2.0**-17
        result[..., keys] = np.where(size[..., keys] < least, 0, array[..., keys])
    return result


@wrong("attend_low_precision", "QUANT-16", "Z", "Dao-AILab/flash-attention#2707")
def weights_scaled_by_keys_ahead(call: Call, *arrays: Any) -> Any:
    """Scale weights of 8 bits by the largest of their block before the mask is applied."""

    def weighted(inner: Any, p: Array, seen: Any) -> Any:
        s = base.score(inner).astype(np.float64)
        top = np.where(seen, s, -np.inf).max(axis=-1, keepdims=True)
        size = np.exp(np.minimum(s - np.where(np.isfinite(top), top, 0), 300.0))
        return base.weighted_sum(inner, _vanish(p, size), seen)

    return base.attend_low_precision(
        call.but(steps=Steps({**call.steps.replaced, "weighted_sum": weighted})), *arrays
    )


@wrong("attend_low_precision", "QUANT-16", "Z")
def values_scaled_by_keys_ahead(call: Call, query: Array, key: Array, value: Array, *others: Any) -> Any:
    """Scale values of 8 bits by the largest of their block of keys, whichever of them a query attends to."""
    turned = value.swapaxes(-1, -2)
    result = _vanish(turned, np.abs(turned)).swapaxes(-1, -2)
    return base.attend_low_precision(call, query, key, result, *others)
