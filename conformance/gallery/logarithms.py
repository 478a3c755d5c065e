"""Wrong about results other than the output: the lse, the weights, and the form of the results."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.reference.notation import Attention

ENTRIES = rows(
    ("lse_to_base_two_with_a_natural_sum", "lse", "SOFT-6", "I",
     lambda call, top, total: base.lse(call, top, total) * np.log(2).astype(top.dtype),
     "Multiply the lse by the natural logarithm of 2 once too often."),
    ("lse_to_base_ten", "lse", "SOFT-6", "I",
     lambda call, top, total: base.lse(call, top, total) / np.log(10).astype(top.dtype),
     "Return the logarithm to base 10."),
    ("lse_with_the_maximum_subtracted", "lse", "SOFT-6", "I",
     lambda call, top, total: base.lse(call, -top, total),
     "Subtract the maximum from the logarithm of the sum."),
    ("denominator_returned_for_the_lse", "lse", "SOFT-6", "I",
     lambda call, top, total: base.lse(call, top, total) * 0 + total[..., 0],
     "Return the sum of the shifted exponentials, and no logarithm of it."),
    ("lse_of_a_sum_kept_from_zero", "lse", "SOFT-6", "I",
     lambda call, top, total: base.lse(call, top, total + total.dtype.type(1e-6)),
     "Add 0.000001 to the sum before its logarithm is taken."),
    ("lse_through_float32", "lse", "NUM-2", "C",
     lambda call, top, total: base.lse(call, top, total).astype(np.float32).astype(top.dtype),
     "Round the lse to float32, and return it in the dtype that it should have."),
    ("lse_in_float32", "finish", "NUM-7", "S",
     lambda call, output, lse, weights: base.finish(call, output, lse.astype(np.float32), weights),
     "Return the lse in float32 whatever the inputs are."),
    ("lse_with_a_maximum_before_the_scale", "lse", "SOFT-6", "K",
     lambda call, top, total: base.lse(call, top / top.dtype.type(base.factor(call) or 1.0), total),
     "Add the largest dot product, and not the largest score, to the logarithm of the sum."),
    ("lse_of_positions_before_heads", "finish", "SHAPE-8", "H",
     lambda call, output, lse, weights: base.finish(call, output, lse
         if call.flat else np.swapaxes(lse, -1, -2), weights),
     "Return the lse with the axis of heads last."),
    ("output_of_positions_before_heads", "finish", "SHAPE-3", "H",
     lambda call, output, lse, weights: base.finish(call, output
         if call.flat else np.swapaxes(output, -2, -3), lse, weights),
     "Return the output with the axis of heads after that of positions."),
    ("lse_of_a_sum_to_base_two", "lse", "SOFT-6", "I",
     lambda call, top, total: top[..., 0] + (base.lse(call, top,
         total) - top[..., 0]) / np.log(2).astype(top.dtype),
     "Add the logarithm to base 2 of the sum to the maximum."),
    ("lse_of_a_maximum_to_base_two", "lse", "SOFT-6", "I",
     lambda call, top, total: top[..., 0] / np.log(2).astype(top.dtype) + (base.lse(call,
         top, total) - top[..., 0]),
     "Add the natural logarithm of the sum to a maximum that is to base 2."),
    ("maximum_returned_for_the_lse", "lse", "SOFT-6", "I",
     After(lambda lse, _call, top, _total: np.where(lse == -np.inf, lse, top[..., 0])),
     "Return the largest score of a row."),
    ("lse_of_the_mean", "attend", "SOFT-6", "I",
     After(lambda output, lse, p, call: (output, lse - np.log(max(call.keys, 1)).astype(lse.dtype), p)),
     "Take the logarithm of the mean of the exponentials."),
    ("lse_before_the_mask", "attend", "SOFT-6", "I",
     After(lambda output, _, p, call: (output,
         base.softmax_of(call, base.score(call), np.ones(call.shape, dtype=bool))[1], p)),
     "Return the lse of all keys, disallowed ones included."),
    ("weights_without_the_sink", "attend", "SOFT-5", "M",
     After(lambda output, lse, _, call: (output, lse, base.attend(call.but(sinks=None))[2])),
     "Return weights that sum to 1, as if there were no sink."),
    ("weights_not_raised", "attend", "SOFT-4", "J",
     After(lambda output, lse, _, call: (output, lse, base.attend(call.but(dropout_rate=0.0))[2])),
     "Return weights of which some are dropped, and the others not raised."),
    ("weights_averaged_over_heads", "attend", "SOFT-4", "H",
     After(lambda output, lse, p, _call: (output, lse,
         np.broadcast_to(p.mean(axis=-3, keepdims=True), p.shape))),
     "Return for each head the mean of the weights of all."),
)  # fmt: skip


@wrong("attend", "SOFT-6", "K")
def lse_before_the_scale(call: Attention) -> Any:
    """Return the lse of the dot products."""
    output, _, p = base.attend(call)
    bare = call.but(scale=1.0)
    return output, base.softmax_of(bare, base.score(bare), base.allowed_pairs(call))[1], p


@wrong("attend", "DROP-3", "J")
def lse_of_the_kept_keys(call: Attention) -> Any:
    """Take the lse over the keys that dropout keeps."""
    output, lse, p = base.attend(call)
    if call.dropout_mask is None:
        return output, lse, p
    return output, base.softmax_of(call, base.score(call), base.allowed_pairs(call) & call.dropout_mask)[1], p


@wrong("finish", "SHAPE-3", "H")
def axes_of_one_dropped(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Drop the axes of one from the output."""
    result = base.finish(call, output, lse, weights)
    return (result[0].squeeze(), *result[1:]) if isinstance(result, tuple) else result.squeeze()


@wrong("finish", "SHAPE-8", "H")
def weights_before_the_lse(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return output, weights and lse, in this order."""
    result = base.finish(call, output, lse, weights)
    return (result[0], result[2], result[1]) if isinstance(result, tuple) and len(result) > 2 else result


@wrong("finish", "SHAPE-8", "H")
def lse_before_the_output(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return the lse first, and the output after it."""
    result = base.finish(call, output, lse, weights)
    return (result[1], result[0], *result[2:]) if isinstance(result, tuple) else result


@wrong("finish", "NUM-1", "S")
def output_in_float32(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return the output in float32 whatever the inputs are."""
    result = base.finish(call, output, lse, weights)
    if isinstance(result, tuple):
        return (result[0].astype(np.float32), *result[1:])
    return result.astype(np.float32)


@wrong("finish", "NUM-1", "S")
def output_in_float64(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return the output in float64 whatever the inputs are."""
    result = base.finish(call, output, lse, weights)
    wide = output[0] if call.flat else output
    return (wide.astype(np.float64), *result[1:]) if isinstance(result, tuple) else wide.astype(np.float64)


@wrong("attend", "SOFT-4", "C")
def weights_not_divided(call: Attention) -> Any:
    """Return the exponentials as the weights, and divide only the output."""
    output, lse, _ = base.attend(call)
    s, allowed = base.score(call), base.allowed_pairs(call)
    return output, lse, base.drop(call, base.exponentials(call, s, allowed, base.top(call, s, allowed)))
