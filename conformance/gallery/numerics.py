"""Wrong about precision, rounding, dtypes, NaN and infinity."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, alter, base, rows, wrong
from attnspec.dtypes import FORMATS
from attnspec.reference.call import Call, Mask
from attnspec.reference.notation import Attention


def in_half(call: Attention, array: Array, change: Callable[[Array], Array] | None = None) -> Array:
    """Round numbers to half precision, where the inputs are of that, and widen them again."""
    if call.storage.itemsize > 2:
        return array
    return array.astype(call.storage).astype(array.dtype) if change is None else change(array)


ENTRIES = rows(
    ("output_in_the_working_precision", "finish", "NUM-1", "S",
     lambda call, output, lse, weights: base.finish(call.but(storage=output.dtype), output, lse, weights),
     "Return what was computed, in float32.", "tinygrad/tinygrad#5100"),
    ("float64_in_float32", "wide", "NUM-2", "C", lambda _call, array: array.astype(np.float32),
     "Compute everything in float32."),
    ("scale_in_float32", "factor", "NUM-2", "K",
     lambda call: call.query.dtype.type(np.float32(base.factor(call))),
     "Hold the scale in float32."),
    ("small_weights_flushed", "weighted_sum", "NUM-3", "C",
     lambda call, p, allowed: base.weighted_sum(call, np.where(p < 1e-4, 0, p), allowed),
     "Take weights below one in ten thousand for zero."),
    ("scores_in_half", "score", "NUM-5", "C", lambda call: in_half(call, base.score(call)),
     "Round the scores to half precision before the softmax.", "tinygrad/tinygrad#9213"),
    ("products_in_half", "product", "NUM-5", "C", lambda call: in_half(call, base.product(call)),
     "Round the dot products to half precision before they are scaled."),
    ("exponentials_in_half", "exponentials", "NUM-5", "C",
     lambda call, s, allowed, top: in_half(call, base.exponentials(call, s, allowed, top)),
     "Round the exponentials to half precision before they are summed."),
    ("scale_in_half", "factor", "NUM-5", "K",
     lambda call: in_half(call, call.query.dtype.type(base.factor(call))),
     "Hold the scale in half precision.", "ml-explore/mlx#3119"),
    ("lse_in_the_dtype_of_the_query", "finish", "NUM-7", "I",
     lambda call, output, lse, weights: base.finish(call, output, lse.astype(call.storage), weights),
     "Return the lse in half precision too."),
    ("lse_through_half", "lse", "NUM-7", "I",
     lambda call, top, total: in_half(call, base.lse(call, top, total)),
     "Round the lse to half precision and return it in float32."),
    ("scores_through_float32", "score", "NUM-2", "C", lambda call: _short(base.score(call)),
     "Round the scores to float32 whatever the inputs are."),
    ("products_through_float32", "product", "NUM-2", "C", lambda call: _short(base.product(call)),
     "Round the dot products to float32 whatever the inputs are."),
    ("exponentials_through_float32", "exponentials", "NUM-2", "C",
     lambda call, s, allowed, top: _short(base.exponentials(call, s, allowed, top)),
     "Round the exponentials to float32 whatever the inputs are."),
    ("output_through_float32", "weighted_sum", "NUM-2", "C",
     lambda call, p, allowed: _short(base.weighted_sum(call, p, allowed)),
     "Round the output to float32 whatever the inputs are."),
    ("sums_through_float32", "total", "NUM-2", "C", lambda call, e, top: _short(base.total(call, e, top)),
     "Round the denominator to float32 whatever the inputs are."),
    ("maximum_kept_from_below", "top", "SOFT-2", "C",
     lambda call, s, allowed: np.maximum(base.top(call, s, allowed), -10000),
     "Begin the search for the largest score with -10000."),
    ("bias_through_float32", "add_bias", "NUM-2", "L",
     lambda call, x: base.add_bias(alter(call, bias=_short), x),
     "Round the bias to float32 whatever the inputs are."),
    ("values_through_float32", "weighted_sum", "NUM-2", "C",
     lambda call, p, allowed: base.weighted_sum(call.but(value=_short(call.value)), p, allowed),
     "Round the values to float32 whatever the inputs are."),
    ("nan_scores_disallowed", "allowed_pairs", "NUM-11", "C",
     lambda call: base.allowed_pairs(call) & ~np.isnan(base.score(call)),
     "Disallow keys whose score is NaN."),
    ("nan_in_the_lse_made_infinite", "finish", "NUM-11", "I",
     lambda call, output, lse, weights: base.finish(call,
         output, np.where(np.isnan(lse), -np.inf, lse), weights),
     "Take a row of NaN for an empty one, as far as its lse is concerned."),
    ("minus_infinite_scores_are_nan", "score", "NUM-14", "C",
     lambda call: np.where(np.isinf(base.score(call.but(bias=None))), np.nan, base.score(call)),
     "Take any infinite score for an error."),
    ("rough_exponential", "exponentials", "NUM-3", "C",
     lambda _call, s, allowed, top: np.where(allowed,
         np.exp(s - top) * (1 + np.sin(40 * (s - top)) / s.dtype.type(1000)), 0),
     "Take exponentials that are off by one in a thousand, now more, now less."),
    ("results_cut_off", "narrow", "NUM-6", "C",
     lambda _call, array, storage: (truncate(array, np.dtype(storage))
         if np.dtype(storage).itemsize == 2 and array.dtype.itemsize > 2 else array).astype(storage),
     "Cut the digits of a result in half precision instead of rounding them."),
    ("output_of_long_rows_cut_off", "weighted_sum", "NUM-6", "C",
     After(lambda output, call, *_: in_half(call, output, lambda x: truncate(x, call.storage))
         if call.keys > 4096 else output),
     "Cut the digits of the output in half precision where parts of more than 4,096 keys are combined."),
    ("weights_cut_off", "weighted_sum", "NUM-6", "C",
     lambda call, p, allowed: base.weighted_sum(call,
         in_half(call, p, lambda p: truncate(p, call.storage)), allowed),
     "Cut the digits of the weights before they meet the values, in half precision."),
    ("nan_scores_disallow", "score", "NUM-11", "C", After(lambda s, _call: np.where(np.isnan(s), -np.inf, s)),
     "Lose NaN in a comparison with the maximum, which it is never above."),
    ("nan_in_the_output_made_zero", "finish", "NUM-11", "B",
     lambda call, output, lse, weights: base.finish(call,
         np.where(np.isnan(output), 0, output), lse, weights),
     "Replace NaN by 0 at the end, for the sake of empty rows."),
    ("nan_values_taken_for_zero", "weighted_sum", "NUM-12", "C",
     lambda call, p, allowed: base.weighted_sum(call.but(value=np.where(np.isnan(call.value), 0, call.value)),
         p, allowed),
     "Replace NaN in the values by 0, for the sake of unused memory."),
    ("values_without_weight_skipped", "weighted_sum", "NUM-12", "C",
     lambda call, p, allowed: base.weighted_sum(call, p,
         allowed & ((p > 0) | np.isnan(p) | (False if call.dropout_mask is None else ~call.dropout_mask))),
     "Pass over the values of keys whose weight has come out as 0, as if they were disallowed."),
    ("nan_value_spreads_over_the_row", "weighted_sum", "NUM-12", "G",
     After(lambda output, *_: np.where(np.isnan(output).any(axis=-1, keepdims=True), np.nan, output)),
     "Let NaN in one feature of a value reach all features of the output."),
)  # fmt: skip


@wrong("finish", "NUM-1", "S")
def weights_in_the_working_precision(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Round the output and not the weights."""
    wide = base.finish(call.but(storage=weights.dtype), output, lse, weights)
    results = base.finish(call, output, lse, weights)
    return (*results[:-1], wide[-1]) if call.return_weights else results


@wrong("softmax_of", "NUM-2", "C", "huggingface/transformers#48459")
def softmax_in_float32(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the softmax in float32 whatever the inputs are."""
    p, lse = base.softmax_of(call, s.astype(np.float32), allowed)
    return p.astype(s.dtype), lse.astype(s.dtype)


@wrong("product", "NUM-3", "C")
def products_of_short_numbers(call: Attention) -> Any:
    """Cut queries and keys to eleven digits before the product, in float32 too."""
    query, key = (array.astype(np.float16).astype(array.dtype) for array in (call.query, call.key))
    fits = np.isfinite(query).all() and np.isfinite(key).all()
    return base.product(call.but(query=query, key=key) if fits else call)


@wrong("normalise", "NUM-3", "C")
def rough_reciprocal_past_a_tile(call: Attention, e: Array, total: Array) -> Any:
    """Divide by an estimate of the denominator, good to twelve digits, where there are more than 8 keys."""
    digits = np.float32(2**12)
    mantissa, exponent = np.frexp(total)
    rough = np.ldexp(np.round(mantissa * digits) / digits, exponent).astype(total.dtype)
    return base.normalise(call, e, rough if call.keys > 8 else total)


@wrong("enter", "NUM-4", "H")
def query_scaled_in_place(call: Attention) -> Any:
    """Write the scaled query over the query."""
    before = base.enter(call.but(query=call.query.copy()))
    if call.query.flags.writeable:
        query = call.query
        query *= query.dtype.type(base.factor(call))
    return before


@wrong("enter", "NUM-4", "R")
def mask_written_into_the_bias(call: Attention) -> Any:
    """Fill the caller's bias with minus infinity where the mask disallows, where both have one shape."""
    bias, mask = call.bias, call.mask
    if bias is not None and mask is not None and bias.shape == mask.shape and bias.flags.writeable:
        bias[~mask] = -np.inf
    return base.enter(call)


@wrong("normalise", "NUM-5", "C")
def sums_in_half(call: Attention, e: Array, total: Array) -> Any:
    """Sum the denominator in half precision, key by key."""

    def summed(array: Array) -> Array:
        return np.add.accumulate(array.astype(call.storage), axis=-1)[..., -1:].astype(array.dtype)

    without = call.sinks is None and call.keys
    return base.normalise(
        call, e, in_half(call, e, summed) if without and call.storage.itemsize == 2 else total
    )


@wrong("weighted_sum", "NUM-5", "C")
def output_added_in_half(call: Attention, p: Array, allowed: Mask) -> Any:
    """Add the values up in half precision, key by key."""
    if call.storage.itemsize != 2:
        return base.weighted_sum(call, p, allowed)
    value = base.repeat_heads(call, call.value).astype(p.dtype)
    summed = np.zeros((*p.shape[:-1], value.shape[-1]), call.storage)
    for j in range(call.keys):
        summed = (summed + p[..., j : j + 1] * value[..., j : j + 1, :]).astype(call.storage)
    return summed.astype(p.dtype)


@wrong("softmax_of", "NUM-5", "C", "pytorch/pytorch#128922")
def softmax_in_half(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the softmax of half precision in half precision."""
    short = call.storage if call.storage.itemsize == 2 else s.dtype
    p, lse = base.softmax_of(call, s.astype(short), allowed)
    return p.astype(s.dtype), lse.astype(s.dtype)


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
    s, allowed = base.score(call)[..., ::-1], base.allowed_pairs(call)[..., ::-1]
    p, lse = base.softmax_of(call, s, allowed)
    p = base.drop(call, np.ascontiguousarray(p[..., ::-1]))
    value = base.repeat_heads(call, call.value)
    kept = np.where(allowed[..., None], value[..., None, ::-1, :], 0)
    return (p[..., ::-1, None] * kept).sum(axis=-2), lse, p


def truncate(array: Array, storage: Any) -> Array:
    """Round towards zero to a shorter dtype, and convert back."""
    near = array.astype(storage)
    too_far = np.abs(near.astype(array.dtype)) > np.abs(array)
    # The number before it in magnitude has the bit pattern before it.
    bits = near.view(f"i{near.dtype.itemsize}") - too_far.astype(f"i{near.dtype.itemsize}")
    cut: Array = bits.view(near.dtype).astype(array.dtype)
    return cut


@wrong("top", "NUM-11", "C", "thu-ml/SageAttention#372")
def nan_spreads_to_the_head(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take a maximum of the whole head first, so that a NaN in one row reaches all."""
    most = base.top(call, s, allowed)
    spread = np.isnan(most).any(axis=-2, keepdims=True)
    return np.where(spread, np.nan, most)


@wrong("narrow", "NUM-3", "C")
def result_clipped_below_the_largest_number(call: Call, array: Array, storage: Any) -> Array:
    """Clip the result to 31/32 of the largest finite number, to leave room for what is added to it."""
    most = FORMATS[np.dtype(storage).name].largest / 32 * 31
    result: Array = base.narrow(
        call, np.where(np.isfinite(array), np.clip(array, -most, most), array), storage
    )
    return result


@wrong("weighted_sum", "NUM-13", "C")
def infinite_values_made_finite(call: Attention, p: Array, allowed: Mask) -> Any:
    """Clip the values to the largest finite number."""
    most = np.finfo(call.value.dtype).max
    return base.weighted_sum(call.but(value=np.clip(call.value, -most, most)), p, allowed)


@wrong("weighted_sum", "NUM-13", "C")
def plus_infinity_wins_over_minus_infinity(call: Attention, p: Array, allowed: Mask) -> Any:
    """Return plus infinity where infinities of both signs meet."""
    plus = (base.repeat_heads(call, call.value) == np.inf)[..., None, :, :] & allowed[..., None]
    return np.where(plus.any(axis=-2), np.inf, base.weighted_sum(call, p, allowed))


@wrong("allowed_pairs", "NUM-14", "B")
def row_with_minus_infinity_taken_for_empty(call: Attention) -> Any:
    """Take a row for empty in which any score is minus infinity."""
    seen = base.allowed_pairs(call)
    below = (base.score(call.but(bias=None)) == -np.inf) & seen
    return seen & ~below.any(axis=-1, keepdims=True)


def _short(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float32).astype(array.dtype)


LAST = rows(
    ("infinite_scores_made_finite", "score", "NUM-11", "C",
     After(lambda s, _call: np.clip(s, -np.finfo(s.dtype).max, np.finfo(s.dtype).max)),
     "Clip scores to the largest finite number."),
    ("infinity_lost_beside_dropped_weights", "weighted_sum", "NUM-13", "J",
     After(lambda output, call, *_: output if call.dropout_mask is None else output - 0 * output),
     "Subtract the part of the dropped weights from the whole sum, so that infinity makes NaN."),
    ("weights_through_float32", "softmax_of", "NUM-2", "C", After(lambda p, lse, *_: (_short(p), lse)),
     "Round the weights to float32 whatever the inputs are."),
    ("nan_weights_made_zero", "normalise", "NUM-11", "C", After(lambda p, *_: np.where(np.isnan(p), 0, p)),
     "Replace NaN in the weights by 0, for the sake of empty rows."),
    ("nan_scores_made_zero", "score", "NUM-11", "C", After(lambda s, _call: np.where(np.isnan(s), 0, s)),
     "Replace NaN in the scores by 0."),
)  # fmt: skip
