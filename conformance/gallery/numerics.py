"""Wrong about precision, rounding and dtypes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Call, Mask
from attnspec.reference.notation import Attention


def in_half(call: Attention, array: Array, change: Callable[[Array], Array] | None = None) -> Array:
    """Round numbers to half precision, where the inputs are of that, and widen them again."""
    if call.storage.itemsize > 2:
        return array
    return array.astype(call.storage).astype(array.dtype) if change is None else change(array)


@wrong("returned", "NUM-1", "S", "tinygrad/tinygrad#5100")
def output_in_the_working_precision(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return what was computed, in float32."""
    return base.returned(call.but(storage=output.dtype), output, lse, weights)


@wrong("returned", "NUM-1", "S")
def weights_in_the_working_precision(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Round the output and not the weights."""
    wide = base.returned(call.but(storage=weights.dtype), output, lse, weights)
    results = base.returned(call, output, lse, weights)
    return (*results[:-1], wide[-1]) if call.return_weights else results


@wrong("wide", "NUM-2", "C")
def float64_in_float32(_call: Call, array: Array) -> Any:
    """Compute everything in float32."""
    return array.astype(np.float32)


@wrong("softmax_of", "NUM-2", "C", "huggingface/transformers#48459")
def softmax_in_float32(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the softmax in float32 whatever the inputs are."""
    p, lse = base.softmax_of(call, s.astype(np.float32), allowed)
    return p.astype(s.dtype), lse.astype(s.dtype)


@wrong("factor", "NUM-2", "K")
def scale_in_float32(call: Attention) -> Any:
    """Hold the scale in float32."""
    return call.query.dtype.type(np.float32(base.factor(call)))


@wrong("exponentials", "NUM-3", "C")
def rough_exponential(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Take exponentials that are off by one in a thousand, now more, now less."""
    rough = np.exp(s - top) * (1 + np.sin(40 * (s - top)) / s.dtype.type(1000))
    return np.where(allowed, rough, 0)


@wrong("product", "NUM-3", "C")
def products_of_short_numbers(call: Attention) -> Any:
    """Cut queries and keys to eleven digits before the product, in float32 too."""
    query, key = (array.astype(np.float16).astype(array.dtype) for array in (call.query, call.key))
    fits = np.isfinite(query).all() and np.isfinite(key).all()
    return base.product(call.but(query=query, key=key) if fits else call)


@wrong("normalised", "NUM-3", "C")
def rough_reciprocal_past_a_tile(call: Attention, e: Array, total: Array) -> Any:
    """Divide by an estimate of the denominator, good to twelve digits, where there are more than 8 keys."""
    digits = np.float32(2**12)
    mantissa, exponent = np.frexp(total)
    rough = np.ldexp(np.round(mantissa * digits) / digits, exponent).astype(total.dtype)
    return base.normalised(call, e, rough if call.keys > 8 else total)


@wrong("weighted", "NUM-3", "C")
def small_weights_flushed(call: Attention, p: Array, allowed: Mask) -> Any:
    """Take weights below one in ten thousand for zero."""
    return base.weighted(call, np.where(p < 1e-4, 0, p), allowed)


@wrong("entered", "NUM-4", "H")
def query_scaled_in_place(call: Attention) -> Any:
    """Write the scaled query over the query."""
    before = base.entered(call.but(query=call.query.copy()))
    if call.query.flags.writeable:
        query = call.query
        query *= query.dtype.type(base.factor(call))
    return before


@wrong("entered", "NUM-4", "R")
def mask_written_into_the_bias(call: Attention) -> Any:
    """Fill the caller's bias with minus infinity where the mask disallows, where both have one shape."""
    bias, mask = call.bias, call.mask
    if bias is not None and mask is not None and bias.shape == mask.shape and bias.flags.writeable:
        bias[~mask] = -np.inf
    return base.entered(call)


@wrong("scored", "NUM-5", "C", "tinygrad/tinygrad#9213")
def scores_in_half(call: Attention) -> Any:
    """Round the scores to half precision before the softmax."""
    return in_half(call, base.scored(call))


@wrong("product", "NUM-5", "C")
def products_in_half(call: Attention) -> Any:
    """Round the dot products to half precision before they are scaled."""
    return in_half(call, base.product(call))


@wrong("exponentials", "NUM-5", "C")
def exponentials_in_half(call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Round the exponentials to half precision before they are summed."""
    return in_half(call, base.exponentials(call, s, allowed, top))


@wrong("factor", "NUM-5", "K", "ml-explore/mlx#3119")
def scale_in_half(call: Attention) -> Any:
    """Hold the scale in half precision."""
    return in_half(call, call.query.dtype.type(base.factor(call)))


@wrong("normalised", "NUM-5", "C")
def sums_in_half(call: Attention, e: Array, total: Array) -> Any:
    """Sum the denominator in half precision, key by key."""

    def summed(array: Array) -> Array:
        return np.add.accumulate(array.astype(call.storage), axis=-1)[..., -1:].astype(array.dtype)

    without = call.sinks is None and call.keys
    return base.normalised(
        call, e, in_half(call, e, summed) if without and call.storage.itemsize == 2 else total
    )


@wrong("softmax_of", "NUM-5", "C", "pytorch/pytorch#128922")
def softmax_in_half(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the softmax of half precision in half precision."""
    short = call.storage if call.storage.itemsize == 2 else s.dtype
    p, lse = base.softmax_of(call, s.astype(short), allowed)
    return p.astype(s.dtype), lse.astype(s.dtype)


@wrong("narrow", "NUM-6", "C")
def results_cut_off(_call: Call, array: Array, storage: Any) -> Any:
    """Cut the digits of a result in half precision instead of rounding them."""
    short = np.dtype(storage).itemsize == 2 and array.dtype.itemsize > 2
    return (truncated(array, np.dtype(storage)) if short else array).astype(storage)


@wrong("weighted", "NUM-6", "C")
def weights_cut_off(call: Attention, p: Array, allowed: Mask) -> Any:
    """Cut the digits of the weights before they meet the values, in half precision."""
    return base.weighted(call, in_half(call, p, lambda p: truncated(p, call.storage)), allowed)


@wrong("returned", "NUM-7", "I")
def lse_in_the_dtype_of_the_query(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return the lse in half precision too."""
    return base.returned(call, output, lse.astype(call.storage), weights)


@wrong("lse", "NUM-7", "I")
def lse_through_half(call: Attention, top: Array, total: Array) -> Any:
    """Round the lse to half precision and return it in float32."""
    return in_half(call, base.lse(call, top, total))


@wrong("attend", "NUM-9", "T", "Dao-AILab/flash-attention#414")
def sums_in_another_order_each_time(call: Attention) -> Any:
    """Add up the keys from the last one in every second call."""
    times = call.steps.memory["times"] = call.steps.memory.get("times", 0) + 1
    return reversed_keys(call) if times % 2 else base.attend(call)


@wrong("attend", "NUM-10", "T", "Dao-AILab/flash-attention#2595")
def sums_in_another_order_in_a_batch(call: Attention) -> Any:
    """Add up the keys from the last one where there are several batch entries."""
    return reversed_keys(call) if call.query.ndim > 3 and len(call.query) > 1 else base.attend(call)


def reversed_keys(call: Attention) -> tuple[Array, Array, Array]:
    """Attend to the keys in the other order, which is right to within the budget."""
    s, allowed = base.scored(call)[..., ::-1], base.allowed(call)[..., ::-1]
    p, lse = base.softmax_of(call, s, allowed)
    p = base.dropped(call, np.ascontiguousarray(p[..., ::-1]))
    value = base.shared(call, call.value)
    kept = np.where(allowed[..., None], value[..., None, ::-1, :], 0)
    return (p[..., ::-1, None] * kept).sum(axis=-2), lse, p


def truncated(array: Array, storage: Any) -> Array:
    """Round towards zero to a shorter dtype, and convert back.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.gallery.numerics import truncated
    >>> truncated(np.array([0.9999, -0.9999]), np.dtype(np.float16)).tolist()
    [0.99951171875, -0.99951171875]
    """
    near = array.astype(storage)
    too_far = np.abs(near.astype(array.dtype)) > np.abs(array)
    # The number before it in magnitude has the bit pattern before it.
    bits = near.view(f"i{near.dtype.itemsize}") - too_far.astype(f"i{near.dtype.itemsize}")
    cut: Array = bits.view(near.dtype).astype(array.dtype)
    return cut
