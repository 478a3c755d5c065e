"""Wrong about rows with nothing to attend to, and about numbers at disallowed keys."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention

ENTRIES = rows(
    ("empty_rows_are_nan", "normalise", "MASK-6", "B", lambda _call, e, total: e / total,
     "Divide by the denominator, whatever it is.", "openvinotoolkit/openvino#35959"),
    ("lse_of_empty_rows_is_plus_infinity", "lse", "SOFT-7", "I",
     lambda call, top, total: np.where(total[..., 0] == 0, np.inf, base.lse(call, top, total)),
     "Mark a row with nothing to attend to by plus infinity."),
    ("lse_of_empty_rows_is_zero", "lse", "SOFT-7", "I",
     lambda call, top, total: np.where(total[..., 0] == 0, 0, base.lse(call, top, total)),
     "Leave the lse of a row with nothing to attend to as the buffer was.", "pytorch/pytorch#134650"),
    ("lse_of_empty_rows_is_low", "lse", "SOFT-7", "I",
     lambda call, top, total: base.lse(call, top, np.where(total == 0, np.finfo(total.dtype).tiny, total)),
     "Take the logarithm of a denominator that is kept from 0."),
    ("maximum_of_disallowed_keys_too", "top", "MASK-12", "C",
     lambda call, s, allowed: base.top(call, s, np.ones_like(allowed)),
     "Shift by the largest of all scores, disallowed ones included."),
    ("disallowed_scores_lowered", "exponentials", "MASK-12", "C",
     lambda _call, s, allowed, top: np.exp(np.where(allowed, s, s - np.float32(1e9)) - top),
     "Take a large number away from the scores of disallowed keys."),
    ("disallowed_values_multiplied", "weighted_sum", "MASK-13", "G",
     lambda call, p, _allowed: p @ base.repeat_heads(call, call.value),
     "Multiply the values of disallowed keys by 0.", "Dao-AILab/flash-attention#2374"),
    ("minus_infinity_added", "exponentials", "MASK-13", "G",
     lambda _call, s, allowed, top: np.exp(s + np.where(allowed, 0, -np.inf).astype(s.dtype) - top),
     "Add minus infinity to the scores of disallowed keys, which leaves NaN as it is."),
    ("lse_of_empty_rows_is_nan", "lse", "SOFT-7", "I",
     lambda call, top, total: np.where(total[..., 0] == 0, np.nan, base.lse(call, top, total)),
     "Take minus infinity from minus infinity in the lse of a row with nothing to attend to."),
    ("lse_of_empty_rows_is_the_lowest_number", "lse", "SOFT-7", "I",
     lambda call, top, total: np.where(total[..., 0] == 0,
         np.finfo(total.dtype).min, base.lse(call, top, total)),
     "Give a row with nothing to attend to the lowest finite number as its lse."),
)  # fmt: skip


@wrong("attend", "MASK-6", "B")
def empty_rows_are_the_mean(call: Attention) -> Any:
    """Fill with the lowest finite number, so that a row of it is uniform."""
    allowed = base.allowed_pairs(call)
    seen: Mask = allowed | ~allowed.any(axis=-1, keepdims=True)
    s = np.where(allowed, base.score(call), np.finfo(call.query.dtype).min)
    p, lse = base.softmax_of(call, s, seen)
    return base.weighted_sum(call, base.drop(call, p), seen), lse, base.drop(call, p)


@wrong("weighted_sum", "MASK-6", "B", "flashinfer-ai/flashinfer#1533")
def empty_rows_hold_the_row_before(call: Attention, p: Array, allowed: Mask) -> Any:
    """Skip a row with nothing to do, and leave in its place what the last one left there."""
    output = base.weighted_sum(call, p, allowed)
    for row in range(1, call.queries):
        stale = ~allowed[..., row, :].any(axis=-1, keepdims=True)
        output[..., row, :] = np.where(stale, output[..., row - 1, :], output[..., row, :])
    return output


@wrong("normalise", "MASK-6", "B")
def empty_row_in_the_middle_is_nan(call: Attention, e: Array, total: Array) -> Any:
    """Guard the first and the last row of a tile against a denominator of 0."""
    middle = (call.i > 0) & (call.i < call.queries - 1)
    return np.where(middle, e / total, base.normalise(call, e, total))


@wrong("weighted_sum", "MASK-6", "B")
def empty_rows_are_the_first_value(call: Attention, p: Array, allowed: Mask) -> Any:
    """Take the first key where no other is left."""
    output = base.weighted_sum(call, p, allowed)
    if not call.keys:
        return output
    return np.where(
        allowed.any(axis=-1, keepdims=True), output, base.repeat_heads(call, call.value)[..., :1, :]
    )


@wrong("normalise", "MASK-6", "B")
def rows_before_the_first_key_are_nan(call: Attention, e: Array, total: Array) -> Any:
    """Guard against empty rows, but for those that an offset leaves empty."""
    p = base.position(call)
    return np.where(call.is_causal & (p < 0), e / total, base.normalise(call, e, total))


@wrong("weighted_sum", "MASK-6", "B")
def padded_queries_are_the_mean(call: Attention, p: Array, allowed: Mask) -> Any:
    """Return the mean of the values for queries past their length."""
    output = base.weighted_sum(call, p, allowed)
    past = ~np.asarray(base.by_query_lengths(call))
    mean = base.repeat_heads(call, call.value).mean(axis=-2, keepdims=True)
    return np.where(past, mean, output)


@wrong("attend", "SOFT-7", "M", "ikawrakow/ik_llama.cpp#2344")
def lse_of_empty_rows_without_the_sink(call: Attention) -> Any:
    """Give a row without keys the lse minus infinity, though it has a sink."""
    output, lse, p = base.attend(call)
    return output, np.where(base.allowed_pairs(call).any(axis=-1), lse, -np.inf), p


@wrong("product", "MASK-12", "C")
def keys_scaled_by_the_largest(call: Attention) -> Any:
    """Divide all keys by the largest number among them, disallowed ones included, as for a short format."""
    most = np.abs(call.key).max(initial=0) or 1
    return base.product(call.but(key=call.key / most)) * most


@wrong("attend", "MASK-6", "B")
def empty_rows_are_the_mean_but_for_the_lse(call: Attention) -> Any:
    """Give a row with nothing to attend to equal weights, and the lse minus infinity."""
    output, lse, p = base.attend(call)
    empty = ~base.allowed_pairs(call).any(axis=-1, keepdims=True) & (call.sinks is None) & (call.keys > 0)
    mean = base.repeat_heads(call, call.value).sum(axis=-2, keepdims=True) / max(call.keys, 1)
    return np.where(empty, mean, output), lse, np.where(empty, 1 / max(call.keys, 1), p).astype(p.dtype)


@wrong("normalise", "MASK-6", "B")
def empty_rows_are_nan_unless_all_are(call: Attention, e: Array, total: Array) -> Any:
    """Look for rows with nothing to attend to by looking at all of a head."""
    nothing = ~(total > 0).any(axis=-2, keepdims=True)
    return np.where(nothing, base.normalise(call, e, total), e / total)


@wrong("attend", "MASK-6", "M")
def empty_rows_with_a_sink_are_nan(call: Attention) -> Any:
    """Take a row with a sink and no keys for one of no sum."""
    output, lse, p = base.attend(call)
    empty = ~base.allowed_pairs(call).any(axis=-1, keepdims=True) & (call.sinks is not None)
    return np.where(empty, np.nan, output), lse, np.where(empty, np.nan, p)
