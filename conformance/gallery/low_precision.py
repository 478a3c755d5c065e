"""Wrong about attention whose queries are codes too."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Call, Steps

#: The largest number of each format of 8 bits.
_LARGEST = {"float8_e4m3fn": 448, "float8_e5m2": 57344}


def shortened(p: Array, factor: float, name: str = "float8_e4m3fn") -> Array:
    """Multiply weights by a factor, round them to 8 bits, saturate, and divide by the factor."""
    raised = np.minimum(p * factor, _LARGEST[name]).astype(np.float32)
    short: Array = raised.astype(getattr(ml_dtypes, name)).astype(p.dtype)
    divided: Array = short / np.asarray(factor, p.dtype)
    return divided


def with_weights(call: Call, change: Callable[[Array], Array]) -> Call:
    """Return a call whose second product takes changed weights."""

    def weighted(inner: Any, p: Array, seen: Any) -> Any:
        return base.weighted(inner, change(p), seen)

    return call.but(steps=Steps({**call.steps.replaced, "weighted": weighted}))


@wrong("attended_in_short", "QUANT-11", "Z", "flashinfer-ai/flashinfer#5020")
def weights_of_eight_bits_not_raised(call: Call, *arrays: Any) -> Any:
    """Round weights to e4m3fn as they are, so that small ones vanish."""
    return base.attended_in_short(with_weights(call, lambda p: shortened(p, 1)), *arrays)


@wrong("attended_in_short", "QUANT-11", "Z", "Dao-AILab/flash-attention#2717")
def weights_of_eight_bits_saturated(call: Call, *arrays: Any) -> Any:
    """Raise weights so far that the largest are cut off at 448."""
    return base.attended_in_short(with_weights(call, lambda p: shortened(p, 4096)), *arrays)


@wrong("attended_in_short", "QUANT-11", "Z")
def weights_of_two_digits(call: Call, *arrays: Any) -> Any:
    """Round weights to two digits."""

    def coarse(p: Array) -> Array:
        mantissa, exponent = np.frexp(p)
        short: Array = np.ldexp(np.rint(mantissa * 4) / 4, exponent).astype(p.dtype)
        return short

    return base.attended_in_short(with_weights(call, coarse), *arrays)


@wrong("attended_in_short", "QUANT-11", "Z")
def weights_of_eight_bits_truncated(call: Call, *arrays: Any) -> Any:
    """Cut weights off after four digits, and lose the small ones."""

    def cut(p: Array) -> Array:
        mantissa, exponent = np.frexp(p * 256)
        short = np.ldexp(np.floor(mantissa * 16) / 16, exponent) / 256
        found: Array = np.where(p * 256 < 2.0**-6, 0, short).astype(p.dtype)
        return found

    return base.attended_in_short(with_weights(call, cut), *arrays)


@wrong("attended_in_short", "QUANT-10", "Z", "vllm-project/vllm#51363")
def decoded_query_normalised_to_one(call: Call, query: Array, *others: Any) -> Any:
    """Drop the scale of the query, here by making its largest number 1."""
    largest = np.abs(query).max(axis=(-2, -1), keepdims=True, initial=0)
    return base.attended_in_short(call, query / np.where(largest == 0, 1, largest), *others)


@wrong("attended_in_short", "QUANT-10", "Z", "lightseekorg/tokenspeed#759")
def decoded_values_twice_as_large(call: Call, query: Array, key: Array, value: Array, *others: Any) -> Any:
    """Apply half of a scale to the output."""
    return base.attended_in_short(call, query, key, 2 * value, *others)


@wrong("attended_in_short", "QUANT-10", "Z")
def softcap_before_the_scales(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Cap scores of bare codes, and multiply by the scales afterwards."""
    softcap = options["softcap"]
    changed = {**options, "softcap": None if softcap is None else softcap / 4}
    return base.attended_in_short(call, query, key, value, storage, changed)
