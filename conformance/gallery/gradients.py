"""Wrong about derivatives of the softmax and of products, about cotangents, and gradients of companions."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.reference.call import Call, Mask
from attnspec.reference.gradients import Gradients

ENTRIES = rows(
    ("cotangent_of_the_merged_lse_ignored", "d_levels", "GRAD-21", "I",
     lambda call, w, r, delta, h: base.d_levels(call, w, r, delta, np.zeros_like(h)),
     "Pass nothing of the merged lse's cotangent on to the lses of the parts."),
    ("cotangent_of_the_merged_lse_for_every_part", "d_levels", "GRAD-21", "I",
     lambda _call, w, r, delta, h: w * (r - delta) + h,
     "Give each part the whole cotangent of the merged lse, without its share."),
    ("lses_taken_as_constants", "d_levels", "GRAD-21", "I",
     lambda call, w, r, _delta, h: base.d_levels(call, w, r, r, h),
     "Take the shares of the parts as constants, so that the output moves no lse."),
    ("cotangent_turned_forwards", "turn_back", "GRAD-22", "Q", base.rotate,
     "Turn the cotangent by the angle of the features, and not by its negative."),
    ("cotangent_past_the_rotary_depth_dropped", "turn_back", "GRAD-22", "Q",
     lambda call, g: np.where(np.arange(g.shape[-1]) < call.depth, base.turn_back(call, g), 0),
     "Give features past the rotary depth no gradient."),
    ("cotangent_turned_from_position_0", "turn_back", "GRAD-22", "Q",
     lambda call, g: base.turn_back(call.but(offset=0), g),
     "Count positions from 0 in the backward pass, whatever the offset."),
    ("cotangent_divided_by_the_factor", "turn_back", "GRAD-22", "Q",
     lambda call, g: base.turn_back(call.but(attention_factor=1 / call.attention_factor), g),
     "Invert the attention factor too, as if the gradient were the inverse of the rotation."),
    ("factor_of_angles_lost_backward", "turn_back", "GRAD-22", "Q",
     lambda call, g: base.turn_back(call.but(attention_factor=1.0) if call.cosines is None else call, g),
     "Multiply by the attention factor only beside tables of cosines and sines."),
    ("cotangent_by_its_own_positions", "turn_back", "GRAD-22", "Q",
     lambda call, g: base.turn_back(call.but(positions=None), g),
     "Count positions from 0 in the backward pass, whatever positions are given."),
    ("bias_of_the_first_entry", "d_shift", "GRAD-23", "H",
     lambda call, d: base.d_shift(call, d[:1] if d.ndim > 2 else d),
     "Sum the gradient of a bias over only the positions of the first batch entry."),
    ("delta_left_out", "delta", "GRAD-1", "W", lambda _call, _p, r, _allowed: np.zeros_like(r[..., :1]),
     "Multiply the weights by their gradients and subtract no mean."),
    ("delta_of_the_next_row", "delta", "GRAD-1", "W",
     lambda call, p, r, allowed: np.roll(base.delta(call, p, r, allowed), -1, axis=-2),
     "Read the mean of the row after, and of the first row after the last."),
    ("delta_added", "delta", "GRAD-1", "W", lambda call, p, r, allowed: -base.delta(call, p, r, allowed),
     "Give the mean the other sign."),
    ("diagonal_of_the_softmax", "d_scores", "GRAD-1", "W",
     lambda call, p, r, _delta, allowed: np.where(allowed, p * (1 - p) * (r + call.d_lse), 0),
     "Take the softmax for a function of each score alone, such as a sigmoid."),
    ("weights_left_out_of_the_softmax", "d_scores", "GRAD-1", "W",
     lambda call, _p, r, delta, allowed: np.where(allowed, r - delta + call.d_lse, 0),
     "Take the gradients of the weights for those of the scores, less their mean."),
    ("scale_left_out_of_d_query", "d_query", "GRAD-1", "K",
     lambda call, u, allowed: base.d_query(call.but(scale=1.0), u, allowed),
     "Scale only the gradient of the key."),
    ("scale_left_out_of_d_key", "d_key", "GRAD-1", "K",
     lambda call, u, allowed: base.d_key(call.but(scale=1.0), u, allowed),
     "Scale only the gradient of the query."),
    ("scale_twice_in_d_key", "d_key", "GRAD-1", "K",
     lambda call, u, allowed: base.factor(call) * base.d_key(call, u, allowed),
     "Multiply queries that are scaled already by the scale."),
    ("default_scale_in_d_query", "d_query", "GRAD-1", "K",
     lambda call, u, allowed: base.d_query(call.but(scale=None), u, allowed),
     "Multiply by one over the root of the depth, whatever scale is given."),
    ("weights_again_without_scale", "forward_again", "GRAD-1", "K",
     lambda call: base.forward_again(call.but(scale=1.0)),
     "Compute the weights for the backward pass from products that are not scaled."),
    ("d_value_of_the_sum", "d_value", "GRAD-1", "W",
     lambda call, p, allowed: base.d_value(call.but(d_output=np.ones_like(call.d_output)), p, allowed),
     "Take the loss for the sum of all outputs in the gradient of the values."),
    ("cotangent_of_the_lse_ignored", "convert_cotangents", "GRAD-6", "I",
     lambda call: base.convert_cotangents(call.but(d_lse=None)),
     "Accept a cotangent of the lse and forget it.", "Dao-AILab/flash-attention#889"),
    ("cotangent_of_the_lse_subtracted", "d_scores", "GRAD-6", "I",
     lambda call, p, r, delta, allowed: base.d_scores(call.but(d_lse=-call.d_lse), p, r, delta, allowed),
     "Give the cotangent of the lse the other sign in the gradients of the scores."),
    ("cotangent_of_the_lse_added_to_delta", "delta", "GRAD-6", "I",
     lambda call, p, r, allowed: base.delta(call, p, r, allowed) + 2 * call.d_lse,
     "Fold the cotangent of the lse into the mean, with the wrong sign."),
    ("cotangent_of_the_lse_unweighted", "d_scores", "GRAD-6", "I",
     lambda call, p, r, delta, allowed: np.where(allowed, p * (r - delta) + call.d_lse, 0),
     "Add the cotangent of the lse to each score's gradient, without the weight."),
    ("values_moved_by_the_lse", "d_value", "GRAD-14", "I",
     lambda call, p, allowed: base.d_value(call.but(d_output=call.d_output + call.d_lse), p, allowed),
     "Add the cotangent of the lse to that of each feature of the output."),
    ("delta_as_a_plain_mean", "delta", "GRAD-1", "W",
     lambda _call, _p, r, allowed: np.where(allowed, r,
         0).sum(axis=-1, keepdims=True) / np.maximum(allowed.sum(axis=-1, keepdims=True), 1).astype(r.dtype),
     "Subtract the mean of the gradients of the weights, without the weights."),
)  # fmt: skip


@wrong("merge_gradients", "GRAD-21", "I")
def cotangent_for_every_part(call: Call, outputs: Array, lses: Array, g: Array, h: Array) -> Any:
    """Give the output of each part the whole cotangent, without its share."""
    d_outputs, d_lses = base.merge_gradients(call, outputs, lses, g, h)
    whole = np.where((lses == -np.inf)[..., None], 0, np.broadcast_to(g, outputs.shape))
    return whole.astype(d_outputs.dtype), d_lses


@wrong("merge_gradients", "GRAD-21", "G")
def outputs_of_empty_parts_in_the_gradient(
    call: Call, outputs: Array, lses: Array, g: Array, h: Array
) -> Any:
    """Multiply the output of an empty part by its share of 0, which leaves NaN of NaN."""
    result = base.merge_gradients(call, outputs, lses, g, h)
    poisoned = (base.shares(call, lses) * (g * outputs).sum(axis=-1)).sum(axis=0)
    return result[0], result[1] + np.where(np.isnan(poisoned), poisoned, 0)


@wrong("collect", "GRAD-23", "V")
def memory_without_its_keys(
    call: Call, by_query: Array, by_key: Array, by_value: Array, *, cross: bool
) -> Any:
    """Lose what the keys pass on to the memory, or to the tokens without one."""
    return base.collect(call, by_query, np.zeros_like(by_key), by_value, cross=cross)


@wrong("collect", "GRAD-23", "V")
def tokens_from_queries_alone(
    call: Call, by_query: Array, by_key: Array, by_value: Array, *, cross: bool
) -> Any:
    """Take tokens without a memory for queries only."""
    result = base.collect(call, by_query, by_key, by_value, cross=cross)
    return result if cross else (by_query, None)


@wrong("delta", "GRAD-1", "P", "XunhaoLai/native-sparse-attention-triton#27")
def values_cut_to_the_depth_of_keys(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Take as many features of values and cotangents as the keys have."""
    depth = call.key.shape[-1]
    short = call.but(value=call.value[..., :depth], d_output=call.d_output[..., :depth])
    r[...] = base.d_weights(short)
    return base.delta(call, p, r, allowed)


@wrong("convert_cotangents", "GRAD-6", "I", "meta-pytorch/attention-gym#200")
def cotangent_of_the_lse_in_base_two(call: Gradients) -> Any:
    """Take the cotangent of the lse for that of a logarithm to base 2."""
    given = base.convert_cotangents(call)
    return given.but(d_lse=given.d_lse * np.log2(np.e).astype(given.d_lse.dtype))


@wrong("backward", "GRAD-13", "W")
def divided_by_the_largest_cotangent(call: Gradients) -> Any:
    """Divide the cotangents by the largest one and multiply the gradients again, also if it is 0."""
    most = max(np.abs(call.d_output).max(initial=0), np.abs(call.d_lse).max(initial=0))
    scaled = call.but(d_output=call.d_output / most, d_lse=call.d_lse / most)
    return [result * most for result in base.backward(scaled)]


LAST = rows(
    ("gradient_of_a_square_weight_transposed", "d_weight", "GRAD-23", "V",
     After(lambda result, *_: result.T if result.shape[0] == result.shape[1] else result),
     "Give a square weight the transpose of its gradient."),
    ("gradient_of_a_linear_layer_in_rows", "d_weight", "GRAD-23", "V",
     lambda call, inputs, d, convention: base.d_weight(call, inputs, d, "row"
         if inputs.shape[-1] == d.shape[-1] else convention),
     "Give a square weight of a linear layer the gradient of one in the row convention."),
    ("square_weight_not_transposed_on_the_way_back", "d_projected", "GRAD-23", "V",
     lambda call, d, weight, convention: d @ (weight if convention == "row" else weight.T)
         if weight.shape[0] == weight.shape[1] else base.d_projected(call, d, weight, convention),
     "Go back through a square weight as forwards through it."),
    ("maximum_differentiated", "d_scores", "GRAD-1", "W",
     After(lambda t, _call, p, _r, delta, allowed:
         np.where((p == p.max(axis=-1, keepdims=True, initial=0)) & allowed, t - delta, t)),
     "Let a derivative flow through the maximum in the numerators, and none in the denominator."),
    ("square_weights_not_transposed", "d_value", "GRAD-1", "W",
     lambda call, p, allowed: base.d_value(call, p, allowed) if call.queries != call.keys
         else base.sum_heads(call, np.where(allowed, base.drop(call, p), 0) @ call.d_output, call.value),
     "Multiply by the weights as they are, where there are as many queries as keys."),
    ("loss_of_the_sum", "convert_cotangents", "GRAD-1", "W",
     After(lambda given, _call: given.but(d_output=np.ones_like(given.d_output))),
     "Take the loss for the sum of all outputs, and put ones in the place of the cotangents."),
    ("cotangent_of_the_lse_of_the_first_head", "convert_cotangents", "GRAD-6", "D",
     After(lambda given, _call: given.but(d_lse=np.broadcast_to(given.d_lse[..., :1, :, :],
         given.d_lse.shape))),
     "Let all heads have the cotangent of the lse of the first."),
    ("small_number_added_to_cotangents", "convert_cotangents", "GRAD-13", "W",
     After(lambda given, _call: given.but(d_output=given.d_output + given.d_output.dtype.type(1e-07))),
     "Add one in ten million to each cotangent, so that none is 0."),
)  # fmt: skip
