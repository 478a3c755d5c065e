"""Wrong about the softmax: the maximum of a row, the denominator, sinks, and the sum of the values."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, alter, base, rows, wrong
from attnspec.reference.call import Arguments, Call, Mask, Steps
from attnspec.reference.notation import Attention
from attnspec.reference.quantized_attention import Quantised

#: The keys of a tile.
_TILE = 16
_LN2 = float(np.log(2))

ENTRIES = rows(
    ("sum_over_the_whole_matrix", "total", "SOFT-1", "C",
     lambda _call, e, _top: np.broadcast_to(e.sum(axis=(-2, -1), keepdims=True), (*e.shape[:-1], 1)),
     "Divide by the sum over all queries and keys of a head."),
    ("powers_of_two", "exponentials", "SOFT-1", "I",
     lambda _call, s, allowed, top: np.where(allowed, np.exp2(s - top), 0),
     "Take powers of 2 and forget to multiply by log2(e).", "flashinfer-ai/flashinfer#787"),
    ("one_more_in_the_denominator", "total", "SOFT-1", "M",
     lambda call, e, top: base.total(call, e, top) + np.exp(-top),
     "Add 1 to every denominator, as if there were a sink of 0."),
    ("denominator_of_one_at_least", "normalise", "SOFT-1", "B",
     lambda _call, e, total: e / (total + np.float32(1e-3)),
     "Keep the denominator from 0 by a constant that can be seen."),
    ("no_shift", "top", "SOFT-2", "C", lambda _call, s, _allowed: np.zeros_like(s[..., :1]),
     "Take the exponentials of the scores as they are."),
    ("scores_clipped", "score", "SOFT-2", "C", lambda call: np.clip(base.score(call), -80, 80),
     "Keep scores between -80 and 80, so that no exponential overflows."),
    ("maximum_of_zero_at_least", "top", "SOFT-2", "C",
     lambda call, s, allowed: np.maximum(base.top(call, s, allowed), 0),
     "Begin the search for the largest score with 0."),
    ("maximum_of_the_first_tile", "top", "SOFT-2", "C",
     lambda call, s, allowed: base.top(call, s[..., :4], allowed[..., :4]),
     "Keep the maximum of the first 4 keys when a later one is larger."),
    ("far_keys_skipped", "exponentials", "SOFT-2", "C",
     lambda _call, s, allowed, top: np.where(allowed & (s > top - 8), np.exp(s - top), 0),
     "Leave out keys whose scores are 8 below the largest."),
    ("values_one_late", "weighted_sum", "SOFT-3", "G",
     lambda call, p, allowed: base.weighted_sum(call.but(value=np.roll(call.value, 1, axis=-2)), p, allowed),
     "Give each key the value of the one before."),
    ("keys_past_sixty_four_dropped", "allowed_pairs", "SOFT-3", "G",
     lambda call: base.allowed_pairs(call) & (call.j < 64),
     "Read the first two tiles of 32 keys."),
    ("value_index_in_a_byte", "weighted_sum", "SOFT-3", "N",
     lambda call, p, allowed: base.weighted_sum(call.but(value=call.value[..., call.j % 256, :]), p, allowed),
     "Count the values in eight bits, so that the one after 255 is the first again."),
    ("causal_dropped_unless_weights_are_asked_for", "check_arguments", "SOFT-4", "A",
     lambda call: base.check_arguments(call if call.return_weights else call.but(is_causal=False)),
     "Forget the causal mask on the path that returns no weights.", "keras-team/keras#23040"),
    ("small_exponentials_flushed", "exponentials", "SOFT-1", "C",
     lambda call, s, allowed, top: np.where(s - top < -12, 0, base.exponentials(call, s, allowed, top)),
     "Take an exponential of less than -12 for 0."),
    ("sink_left_out_of_the_maximum", "top", "SOFT-5", "M",
     lambda call, s, allowed: base.top(call.but(sinks=None), s, allowed),
     "Shift by the largest score, so that a sink far above it overflows."),
    ("lse_to_base_two", "lse", "SOFT-6", "I",
     lambda call, top, total: base.lse(call, top, total) / np.log(2).astype(top.dtype),
     "Return the logarithm to base 2.", "sgl-project/sglang#35045"),
    ("lse_without_the_maximum", "lse", "SOFT-6", "I",
     lambda call, top, total: base.lse(call, np.zeros_like(top), total),
     "Return the logarithm of the shifted sum."),
    ("lse_of_the_last_tile", "lse", "SOFT-6", "G",
     lambda call, top, total: top[..., 0] if call.keys > 16 else base.lse(call, top, total),
     "Return the largest score where there are more keys than a tile of 16."),
    ("maximum_before_the_scale", "maxima", "SOFT-8", "I", lambda call: base.maxima(call.but(scale=1.0)),
     "Return the largest dot product."),
    ("maximum_before_the_softcap", "maxima", "SOFT-8", "F", lambda call: base.maxima(call.but(softcap=None)),
     "Take the maximum before the softcap."),
    ("sign_of_the_sink_lost", "softmax_of", "SOFT-5", "M",
     lambda call, s, allowed: base.softmax_of(alter(call, sinks=np.negative), s, allowed),
     "Take the sink with the other sign."),
    ("sinks_without_effect", "softmax_of", "SOFT-5", "M",
     lambda call, s, allowed: base.softmax_of(call.but(sinks=None), s, allowed),
     "Accept sinks and forget them."),
    ("scores_returned_for_weights", "finish", "SOFT-4", "J",
     lambda call, output, lse, _weights: base.finish(call, output, lse,
         np.where(base.allowed_pairs(call), base.score(call), 0)),
     "Return the scores after masking."),
    ("weights_before_dropout", "attend", "SOFT-4", "J",
     After(lambda output, lse, _, call: (output, lse, base.attend(call.but(dropout_mask=None))[2])),
     "Return the weights as they were before some were dropped."),
    ("weights_before_masking", "attend", "SOFT-4", "R",
     After(lambda output, lse, _, call: (output, lse,
         base.softmax_of(call, base.score(call), np.ones(call.shape, dtype=bool))[0])),
     "Return the softmax over all keys."),
    ("lse_negative", "lse", "SOFT-6", "I", After(lambda lse, *_: np.where(lse == -np.inf, lse, -lse)),
     "Return the negative lse, as some kernels keep it for a backward pass, except for empty rows."),
    ("maximum_of_nothing_is_zero", "maxima", "SOFT-9", "B",
     After(lambda most, _call: np.where(most == -np.inf, 0, most).astype(most.dtype)),
     "Return 0, by which scores are shifted, for a row with nothing to attend to."),
    ("maximum_of_nothing_is_the_sink", "maxima", "SOFT-9", "M",
     After(lambda most, call: most if call.sinks is None
         else np.where(most == -np.inf, call.sink[..., 0], most).astype(most.dtype)),
     "Return the sink for a row with nothing to attend to."),
)  # fmt: skip


@wrong("softmax_of", "SOFT-1", "C")
def scores_over_their_sum(call: Attention, s: Array, allowed: Mask) -> Any:
    """Leave the exponential out."""
    kept = np.where(allowed, s, 0)
    return base.normalise(call, kept, kept.sum(axis=-1, keepdims=True)), base.softmax_of(call, s, allowed)[1]


@wrong("total", "SOFT-2", "G")
def sums_not_rescaled_when_the_maximum_rises(_call: Attention, e: Array, _top: Array) -> Any:
    """Forget to rescale the denominator where the maximum rises in the second tile of 8 keys."""
    early = e[..., :8].max(axis=-1, keepdims=True, initial=0)
    rises = (early > 0) & (early < 1) & (e.shape[-1] > 8)
    return np.where(rises, e[..., :8].sum(axis=-1, keepdims=True) / early, 0) + np.where(
        rises, e[..., 8:].sum(axis=-1, keepdims=True), e.sum(axis=-1, keepdims=True)
    )


@wrong("attend", "SOFT-3", "G", "pytorch/pytorch#191937")
def last_key_after_full_tiles_dropped(call: Attention) -> Any:
    """Leave out a remainder of a single key after tiles of 32."""
    if call.keys <= 1 or call.keys % 32 != 1:
        return base.attend(call)
    kept = base.allowed_pairs(call) & (call.j < call.keys - 1)
    p, lse = base.softmax_of(call, base.score(call), kept)
    return base.weighted_sum(call, base.drop(call, p), kept), lse, base.drop(call, p)


@wrong("weighted_sum", "SOFT-3", "G")
def last_value_feature_dropped(call: Attention, p: Array, allowed: Mask) -> Any:
    """Write features in groups of four, and leave the others of a larger depth 0."""
    output = base.weighted_sum(call, p, allowed)
    depth = output.shape[-1]
    return np.where(np.arange(depth) < (depth // 4 * 4 or depth), output, 0)


@wrong("attend", "SOFT-4", "D")
def weights_of_the_first_head_of_a_group(call: Attention) -> Any:
    """Return the weights of one query head for all that share its key head."""
    output, lse, p = base.attend(call)
    group = call.query.shape[-3] // max(1, call.key.shape[-3])
    return output, lse, np.repeat(p[..., ::group, :, :], group, axis=-3) if group > 1 else p


@wrong("total", "SOFT-5", "M", "ROCm/rocm-libraries#12227")
def sink_counted_twice(call: Attention, e: Array, top: Array) -> Any:
    """Add the sink once for each of two parts of the keys."""
    total = base.total(call, e, top)
    return total if call.sinks is None else total + np.exp(call.sink - top)


@wrong("softmax_of", "SOFT-5", "M", "ROCm/rocm-libraries#12229")
def sink_scaled(call: Attention, s: Array, allowed: Mask) -> Any:
    """Multiply the sinks by the scale too."""
    return base.softmax_of(alter(call, sinks=lambda sinks: sinks * base.factor(call)), s, allowed)


@wrong("softmax_of", "SOFT-5", "M")
def sink_capped(call: Attention, s: Array, allowed: Mask) -> Any:
    """Squeeze the sinks as the scores are."""
    return base.softmax_of(alter(call, sinks=lambda sinks: base.cap(call, sinks.astype(s.dtype))), s, allowed)


@wrong("softmax_of", "SOFT-5", "M")
def sink_of_the_key_head(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let the query heads that share keys have the sink of the first among them."""
    groups = call.query.shape[-3] // call.key.shape[-3]
    shared = alter(call, sinks=lambda sinks: np.repeat(sinks[::groups], groups))
    return base.softmax_of(shared, s, allowed)


@wrong("total", "SOFT-5", "M", "modular/modular#6591")
def sink_by_the_row(call: Attention, e: Array, top: Array) -> Any:
    """Take the sink of the row's number, modulo the number of heads."""
    if call.sinks is None:
        return base.total(call, e, top)
    sinks = call.sink.ravel()[call.i % call.sinks.size]  # (L, 1)
    return e.sum(axis=-1, keepdims=True) + np.exp(sinks - top)


@wrong("weighted_sum", "SOFT-5", "M")
def sink_with_the_first_value(call: Attention, p: Array, allowed: Mask) -> Any:
    """Let the weight of the sink go to the first value."""
    output = base.weighted_sum(call, p, allowed)
    if call.sinks is None or call.dropout_mask is not None:
        return output
    return output + (1 - p.sum(axis=-1, keepdims=True)) * base.repeat_heads(call, call.value)[..., :1, :]


@wrong("total", "SOFT-5", "M")
def sink_not_shifted(call: Attention, e: Array, _top: Array) -> Any:
    """Add the exponential of the sink to exponentials that are shifted by the maximum."""
    total = e.sum(axis=-1, keepdims=True)
    return total if call.sinks is None else total + np.exp(call.sink)


@wrong("total", "SOFT-5", "M")
def sink_masked_with_the_last_key(call: Attention, e: Array, top: Array) -> Any:
    """Leave the sink out where the last key is disallowed."""
    total = e.sum(axis=-1, keepdims=True)
    if call.sinks is None or not call.keys:
        return base.total(call, e, top)
    return total + np.where(base.allowed_pairs(call)[..., -1:], np.exp(call.sink - top), 0)


@wrong("attend", "SOFT-6", "M")
def lse_without_the_sink(call: Attention) -> Any:
    """Return the lse of only the keys, without the sink, if there are any keys."""
    output, lse, p = base.attend(call)
    bare = base.attend(call.but(sinks=None))[1]
    return output, np.where(bare == -np.inf, lse, bare), p


@wrong("lse", "SOFT-6", "D", "facebookresearch/xformers#850")
def lse_of_the_first_of_a_group(call: Attention, top: Array, total: Array) -> Any:
    """Let the query heads that share keys have the lse of the first among them."""
    lse = base.lse(call, top, total)
    groups = call.query.shape[-3] // call.key.shape[-3]
    return np.repeat(lse[..., ::groups, :], groups, axis=-2)


@wrong("attend", "SOFT-6", "I")
def lse_before_the_bias(call: Attention) -> Any:
    """Return the lse of the scores without their bias."""
    output, _, p = base.attend(call)
    s = base.cap(call, base.product(call) * base.factor(call))
    return output, base.softmax_of(call, s, base.allowed_pairs(call))[1], p


@wrong("attend", "SOFT-6", "F")
def lse_before_the_cap(call: Attention) -> Any:
    """Return the lse of the scores without their cap."""
    output, _, p = base.attend(call)
    uncapped = call.but(softcap=None)
    return output, base.softmax_of(uncapped, base.score(uncapped), base.allowed_pairs(call))[1], p


@wrong("maxima", "SOFT-8", "I", "sgl-project/sglang#40903")
def maximum_to_base_2(call: Attention) -> Any:
    """Return the maximum as an exponent of 2, as kernels keep it."""
    most = base.maxima(call)
    return (most * np.log2(np.e)).astype(most.dtype)


@wrong("maxima", "SOFT-8", "R")
def maximum_over_disallowed_keys(call: Attention) -> Any:
    """Take the maximum before the mask."""
    every = call.but(mask=None, is_causal=False, window=None, key_lengths=None, query_lengths=None)
    most, seen = base.maxima(every.but(query_segment_ids=None, key_segment_ids=None)), base.maxima(call)
    return np.where(seen == -np.inf, seen, most)


FURTHER = rows(
    ("maximum_of_the_last_tile", "maxima", "SOFT-8", "G",
     lambda call: base.maxima(call.but(mask=(True if call.mask is None
         else call.mask) & (call.j >= (max(call.keys, 1) - 1) // _TILE * _TILE))),
     "Return the maximum of the last tile of keys, and not the running one."),
    ("maximum_of_the_head", "maxima", "SOFT-8", "H",
     After(lambda most, _call: np.where(most == -np.inf, most,
         most.max(axis=-1, keepdims=True, initial=-np.inf))),
     "Give every row the maximum of its head."),
    ("sinks_not_to_base_two", "softmax_of", "SOFT-5", "M",
     lambda call, s, allowed: base.softmax_of(alter(call, sinks=lambda sinks: sinks * sinks.dtype.type(_LN2)),
         s, allowed),
     "Put the sinks beside scores that are to base 2."),
    ("sinks_to_base_two_once_too_often", "softmax_of", "SOFT-5", "M",
     lambda call, s, allowed: base.softmax_of(alter(call,
         sinks=lambda sinks: sinks * sinks.dtype.type(1 / _LN2)), s, allowed),
     "Multiply the sinks by log2(e), and take their natural exponential."),
)  # fmt: skip


@wrong("maxima", "SOFT-8", "L")
def maximum_before_the_bias(call: Attention) -> Any:
    """Take the maximum of the products without the bias, over the keys that it allows."""
    if call.bias is None:
        return base.maxima(call)
    zero = np.where(call.bias == -np.inf, call.bias, 0).astype(call.bias.dtype)
    return base.maxima(call.but(bias=zero))


@wrong("total", "SOFT-5", "M")
def sink_added_to_the_sum(call: Attention, e: Array, _top: Array) -> Any:
    """Add the sink itself to the sum, and not its exponential."""
    total = e.sum(axis=-1, keepdims=True)
    return total if call.sinks is None else total + call.sink


@wrong("softmax_of", "SOFT-5", "M")
def negative_sink_taken_for_none(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let no sink be below 0."""
    return base.softmax_of(alter(call, sinks=lambda sinks: np.maximum(sinks, 0)), s, allowed)


@wrong("attend", "SOFT-5", "M")
def sink_in_the_lse_alone(call: Attention) -> Any:
    """Let the sink into the lse, and into no denominator."""
    output, _, p = base.attend(call.but(sinks=None))
    return output, base.attend(call)[1], p


@wrong("attend", "SOFT-5", "M")
def sink_with_the_bias(call: Attention) -> Any:
    """Take the sink for a bias of its head."""
    s = base.score(call) + (0 if call.sinks is None else call.sink)
    seen = base.allowed_pairs(call)
    p, lse = base.softmax_of(call.but(sinks=None), s, seen)
    return base.weighted_sum(call, base.drop(call, p), seen), lse, base.drop(call, p)


@wrong("attend_coded", "QUANT-8", "Z")
def value_scales_in_the_denominator(
    call: Call, query: Array, coded: dict[str, Quantised], options: Arguments
) -> Any:
    """Multiply exponentials by the scales of the values before they are summed."""
    codes, scales, _ = coded["value"]
    if scales is None:
        return base.attend_coded(call, query, coded, options)
    each = np.broadcast_to(base.by_blocks(call, scales, codes.shape), codes.shape)[..., 0]  # (*B, Hkv, S)

    def total(inner: Any, e: Array, top: Array) -> Any:
        of_heads = np.repeat(each, e.shape[-3] // each.shape[-2], axis=-2) if each.ndim > 1 else each[None]
        return base.total(inner, e * of_heads[..., None, :].astype(e.dtype), top)

    return base.attend_coded(
        call.but(steps=Steps({**call.steps.replaced, "total": total})), query, coded, options
    )


LAST = rows(
    ("sum_over_the_queries", "total", "SOFT-1", "H",
     lambda _call, e, _top: np.swapaxes(e.sum(axis=-2, keepdims=True), -1, -2) if e.shape[-1] == e.shape[-2]
         else e.sum(axis=-1, keepdims=True),
     "Divide by the sum over the wrong axis, where there are as many queries as keys."),
    ("maximum_of_the_matrix", "top", "SOFT-2", "C",
     After(lambda most, *_: np.broadcast_to(most.max(axis=-2, keepdims=True, initial=-np.inf), most.shape)),
     "Shift all rows of a head by one maximum, so that low rows underflow."),
    ("query_tiles_of_sixteen", "weighted_sum", "SOFT-3", "G",
     After(lambda output, call, *_: np.where(call.i < (call.queries // 16 * 16 or call.queries), output, 0)),
     "Leave the rows after the last whole tile of 16 queries as the buffer was."),
    ("returned_maximum_of_zero_at_least", "maxima", "SOFT-8", "C",
     After(lambda most, _call: np.where(most == -np.inf, most, np.maximum(most, 0))),
     "Begin the running maximum at 0."),
    ("maximum_over_the_sink", "maxima", "SOFT-8", "M",
     After(lambda most, call: most if call.sinks is None
         else np.where(most == -np.inf, most, np.maximum(most, call.sink[..., 0])).astype(most.dtype)),
     "Count the sink as a key."),
)  # fmt: skip
