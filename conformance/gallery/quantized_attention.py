"""Wrong about attention over codes."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Call
from attnspec.reference.quantized_attention import Quantised


@wrong("keys_and_values", "QUANT-8", "Z", "flashinfer-ai/flashinfer#4979")
def scales_of_the_cache_left_out(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> Any:
    """Accept scales of keys and values, and attend to the bare codes."""
    return base.keys_and_values(call, query, (key[0], None, key[2]), (value[0], None, value[2]), encoding)


@wrong("keys_and_values", "QUANT-8", "Z", "vllm-project/vllm#6081")
def scales_of_keys_for_values(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> Any:
    """Use one scale for keys and values."""
    shared = key[1] if key[1] is not None and key[1].shape[-1] == 1 else value[1]
    return base.keys_and_values(call, query, key, (value[0], shared, value[2]), encoding)


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


@wrong("attended_by_codes", "QUANT-8", "Z")
def keys_rounded_to_the_next_integers(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Lose the fraction of a decoded key in a cast to integers."""
    return base.attended_by_codes(call, query, np.rint(key), value, storage, options)


@wrong("attended_by_codes", "QUANT-8", "Z")
def values_decoded_to_e4m3fn_again(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Round decoded values to the four digits of e4m3fn."""
    mantissa, exponent = np.frexp(value)
    short = np.ldexp(np.rint(mantissa * 16) / 16, exponent).astype(value.dtype)
    return base.attended_by_codes(call, query, key, short, storage, options)
