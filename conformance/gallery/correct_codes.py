"""Correct attention over codes that is computed in other ways."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, correct
from attnspec.conformance.gallery.low_precision import shortened, with_weights
from attnspec.reference.call import Call
from attnspec.reference.notation import narrow
from attnspec.reference.quantized_attention import Quantised


@correct("keys_and_values", "cast")
def codes_decoded_to_the_dtype_of_the_query(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> Any:
    """Round decoded keys and values to the dtype of the query."""
    found = base.keys_and_values(call, query, key, value, encoding)
    return tuple(narrow(call, each, query.dtype).astype(each.dtype) for each in found)


@correct("attended_in_short", "cast")
def weights_of_eight_bits_raised(call: Call, *arrays: Any) -> Any:
    """Multiply weights by 256, round them to e4m3fn where the result has half precision, and divide."""
    if np.dtype(arrays[3]).itemsize > 2:  # in float32 and float64 weights are not rounded
        return base.attended_in_short(call, *arrays)
    return base.attended_in_short(with_weights(call, lambda p: shortened(p, 256)), *arrays)


@correct("scaled_codes")
def scales_multiplied_by_two_factors(_call: Call, numbers: Array, scale: Array) -> Any:
    """Split each scale into its power of 2 and its digits."""
    digits, exponent = np.frexp(scale)
    return np.ldexp(numbers * digits, exponent)
