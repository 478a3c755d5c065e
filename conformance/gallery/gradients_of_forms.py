"""Wrong about the gradients of latent vectors, of the scale and of slopes."""

import math
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Arguments, Call, Mask
from attnspec.reference.gradients import Gradients
from attnspec.reference.notation import Attention

LATENT = rows(
    ("latent_collects_from_keys_alone", "d_latent", "LATENT-5", "W",
     lambda call, given, d_keys, d_values: base.d_latent(call, given, d_keys, 0 * d_values),
     "Give the latent the gradient of the keys, and forget that values are projected from it too."),
    ("latent_collects_from_values_alone", "d_latent", "LATENT-5", "W",
     lambda call, given, d_keys, d_values: base.d_latent(call, given, 0 * d_keys, d_values),
     "Give the latent the gradient of the values, as if keys were constants."),
    ("latent_of_the_last_head", "d_latent", "LATENT-5", "W",
     lambda call, given, *ds: base.d_latent(call, given, *(_head(d, -1) for d in ds)),
     "Write the gradient of the latent anew for each head."),
    ("mean_of_the_heads_for_the_latent", "d_latent", "LATENT-5", "W",
     lambda call, given, d_keys, d_values: base.d_latent(call, given, d_keys, d_values) / d_keys.shape[-3],
     "Give the latent the mean of what its heads add."),
    ("weights_of_one_head_in_d_latent", "d_latent", "LATENT-5", "W",
     lambda call, given, *ds: base.d_latent(call, given | _of_head_0(given), *ds),
     "Project the gradients of all heads back by the weights of the first."),
    ("rotary_part_of_one_head", "d_shared_rotary", "LATENT-5", "W",
     lambda call, d: base.d_shared_rotary(call, _head(d, 0)),
     "Give the rotary part of the keys the gradient of the first head."),
    ("mean_of_the_heads_for_the_rotary_part", "d_shared_rotary", "LATENT-5", "W",
     lambda call, d: base.d_shared_rotary(call, d) / max(d.shape[-3], 1),
     "Give the rotary part of the keys the mean of its heads."),
    ("weights_of_the_last_batch_entry", "d_latent_weight", "LATENT-5", "W",
     lambda call, given, d: base.d_latent_weight(
         call, given | {"latent": given["latent"][-1:]}, d[-1:]) if d.ndim > 3 else
         base.d_latent_weight(call, given, d),
     "Write the gradients of the weights anew for each batch entry."),
    ("mean_of_the_batch_for_the_weights", "d_latent_weight", "LATENT-5", "W",
     lambda call, given, d: base.d_latent_weight(call, given, d) / max(math.prod(d.shape[:-3]), 1),
     "Give the weights the mean of the batch entries."),
    ("weights_from_tiles_of_keys", "d_latent_weight", "LATENT-5", "G",
     lambda call, given, d: base.d_latent_weight(call, given, _whole_tiles(d, 64)),
     "Leave out the keys past the last whole tile of 64 in the gradients of the weights."),
    ("weights_of_unfilled_positions", "d_latent_weight", "GRAD-12", "G",
     lambda call, given, d: base.d_latent_weight(call, given, d)
         + 0 * (np.swapaxes(given["latent"][..., None, :, :], -1, -2) @ d).sum(),
     "Multiply positions that no query may attend to by 0 where they are NaN."),
    ("cotangent_of_the_lse_of_a_latent_ignored", "latent_backward", "LATENT-5", "I",
     lambda call, given: base.latent_backward(call, given | {"d_lse": None}),
     "Pass nothing of the cotangent of the lse on to latent vectors."),
    ("softcap_of_a_latent_only_forward", "latent_backward", "LATENT-5", "F",
     lambda call, given: base.latent_backward(call, given | {"softcap": None}),
     "Compute the gradients of latent attention without the softcap."),
    ("offset_of_a_latent_only_forward", "latent_backward", "LATENT-5", "A",
     lambda call, given: base.latent_backward(call, given | {"query_offset": 0}),
     "Count queries from 0 in the backward pass of latent attention."),
)  # fmt: skip


def _head(d: Array, head: int) -> Array:
    """Keep one head, and set the others to 0."""
    result = np.zeros_like(d)
    result[..., head, :, :] = d[..., head, :, :]
    return result


def _of_head_0(given: Arguments) -> Arguments:
    names = ("key_weight", "value_weight")
    return {name: np.broadcast_to(given[name][:1], given[name].shape) for name in names}


def _whole_tiles(d: Array, size: int) -> Array:
    """Set what lies past the last whole tile to 0, if there is a whole one."""
    result, last = d.copy(), d.shape[-2] // size * size
    result[..., last or None :, :] = 0
    return result


@wrong("latent_backward", "LATENT-5", "K")
def gradients_at_the_scale_of_the_absorbed_depth(call: Call, given: Arguments) -> Any:
    """Take the scale of the depth of the absorbed form in the backward pass."""
    depth = given["latent"].shape[-1] + given["key_rotary"].shape[-1]
    scale = 1 / math.sqrt(depth) if given["scale"] is None else given["scale"]
    return base.latent_backward(call, given | {"scale": scale})


@wrong("latent_backward", "LATENT-5", "W")
def weights_without_the_rotary_part(call: Call, given: Arguments) -> Any:
    """Compute the weights of the backward pass again without the rotary part."""
    return base.latent_backward(call, given | {"query_rotary": 0 * given["query_rotary"]})


@wrong("latent_backward", "LATENT-5", "H")
def gradient_of_a_square_latent_weight_transposed(call: Call, given: Arguments) -> Any:
    """Return the gradients of square weights as linear layers hold them."""
    results = list(base.latent_backward(call, given))
    results[4:6] = (d.swapaxes(-1, -2) if d.shape[-1] == d.shape[-2] else d for d in results[4:6])
    return tuple(results)


@wrong("latent_backward", "LATENT-5", "W")
def rotary_part_of_the_query_before_its_own(call: Call, given: Arguments) -> Any:
    """Exchange the two parts of the gradient of the joined query where they have one depth."""
    own, rotary, *others = base.latent_backward(call, given)
    return (rotary, own, *others) if own.shape == rotary.shape else (own, rotary, *others)


@wrong("d_latent", "LATENT-6", "C")
def gradients_of_projected_keys_in_bfloat16(
    call: Call, given: Arguments, d_keys: Array, d_values: Array
) -> Any:
    """Store the gradients of projected keys in bfloat16, whatever the dtype of the call."""
    bits = d_keys.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return base.d_latent(call, given, bits.view(np.float32).astype(d_keys.dtype), d_values)


SCALE = rows(
    ("gradient_of_the_logarithm_of_the_scale", "d_scale", "GRAD-24", "K",
     lambda call, u, allowed: base.factor(call) * base.d_scale(call, u, allowed),
     "Multiply the gradient of the scale by the scale, as if its logarithm were learned."),
    ("gradient_of_the_scale_of_the_first_entry", "d_scale", "GRAD-24", "H",
     lambda call, u, allowed: base.d_scale(call, _only(u, 0), allowed),
     "Sum the gradient of the scale over the first batch entry."),
    ("gradient_of_the_scale_of_the_first_head", "d_scale", "GRAD-24", "W",
     lambda call, u, allowed: base.d_scale(call, _head(u, 0) if u.shape[-3] else u, allowed),
     "Sum the gradient of the scale over the first head."),
    ("mean_over_the_queries_for_the_scale", "d_scale", "GRAD-24", "K",
     lambda call, u, allowed: base.d_scale(call, u, allowed) / max(call.queries, 1),
     "Take the mean over the queries for the gradient of the scale."),
    ("gradient_of_the_scale_before_the_softcap", "d_scale", "GRAD-24", "F",
     lambda call, _u, allowed: base.d_scale(call, _of_scores(call), allowed),
     "Leave the slope of the softcap out of the gradient of the scale."),
    ("gradient_of_the_scale_of_capped_scores", "d_scale", "GRAD-24", "F",
     lambda call, u, allowed: np.where(allowed, u * base.cap(call, base.product(call)), 0).sum(),
     "Multiply by capped dot products for the gradient of the scale."),
    ("gradient_of_the_scale_with_the_bias", "d_scale", "GRAD-24", "K",
     lambda call, u, allowed: np.where(allowed, u * base.add_bias(call, base.product(call)), 0).sum(),
     "Multiply by dot products with their bias for the gradient of the scale."),
    ("default_scale_without_a_gradient", "d_scale", "GRAD-24", "K",
     lambda call, u, allowed: base.d_scale(call, u, allowed) * (call.scale is not None),
     "Give the scale a gradient of 0 unless it is given."),
    ("gradient_of_the_scale_from_the_queries", "d_scale", "GRAD-24", "K",
     lambda call, u, allowed: np.sum(call.query * base.d_query(call, u, allowed)) / base.factor(call),
     "Divide query times d_query by the scale, which may be 0."),
    ("gradient_of_the_scale_for_each_head", "d_scale", "GRAD-2", "S",
     lambda call, u, _allowed: (u * base.product(call)).sum(axis=(-2, -1)),
     "Return a gradient of the scale for each head."),
    ("gradient_of_the_scale_of_whole_tiles", "d_scale", "GRAD-24", "G",
     lambda call, u, allowed: base.d_scale(call, _whole_tiles(u, 32), allowed),
     "Leave the queries past the last whole tile of 32 out of the gradient of the scale."),
)  # fmt: skip


def _only(u: Array, entry: int) -> Array:
    if u.ndim < 4 or not len(u):
        return u
    result = np.zeros_like(u)
    result[entry] = u[entry]
    return result


def _of_scores(call: Gradients) -> Array:
    """Return the gradients of the scores, before the slope of the softcap."""
    p, _, seen = base.forward_again(call)
    r = base.d_weights(call)
    return np.asarray(base.d_scores(call, p, r, base.delta(call, p, r, seen), seen))


@wrong("d_scale", "NUM-5", "C")
def gradient_of_the_scale_added_in_half_precision(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Add up the gradient of the scale in the dtype of the query."""
    terms = np.where(allowed, u * base.product(call), 0).astype(call.storage)
    total = np.zeros((), call.storage)
    for row in np.moveaxis(terms, -2, 0):
        total = total + row.sum(dtype=call.storage)
    return total.astype(u.dtype)


SLOPES = rows(
    ("gradient_of_slopes_upwards", "d_slopes", "GRAD-25", "Q", lambda call, g: -base.d_slopes(call, g),
     "Give the gradient of the slopes the other sign."),
    ("gradient_of_slopes_from_position_0", "d_slopes", "GRAD-25", "Q",
     lambda call, g: base.d_slopes(call.but(query_offset=0), g),
     "Count queries from 0 for the gradient of the slopes, whatever the offset."),
    ("gradient_of_slopes_by_index", "d_slopes", "GRAD-25", "Q",
     lambda call, g: base.d_slopes(call.but(query_positions=None, key_positions=None), g),
     "Take the distance of indices for the gradient of the slopes, whatever positions are given."),
    ("gradient_of_slopes_of_past_keys", "d_slopes", "GRAD-25", "Q",
     lambda call, g: base.d_slopes(call, np.where(base.key_position(call) <= base.position(call), g, 0)
                                   if g.ndim > 2 else g),
     "Leave the keys after a query out of the gradient of the slopes."),
    ("gradient_of_slopes_of_the_first_entry", "d_slopes", "GRAD-25", "H",
     lambda call, g: base.d_slopes(call, _only(g, 0)),
     "Sum the gradient of the slopes over the first batch entry."),
    ("mean_of_the_batch_for_the_slopes", "d_slopes", "GRAD-25", "H",
     lambda call, g: base.d_slopes(call, g) / max(math.prod(g.shape[:-3]), 1),
     "Give the slopes the mean of the batch entries."),
    ("one_more_step_of_distance", "d_slopes", "GRAD-25", "Q",
     lambda call, g: base.d_slopes(call.but(query_offset=call.query_offset + 1), g),
     "Count the distance from the position after that of the query."),
    ("gradient_of_slopes_of_whole_tiles", "d_slopes", "GRAD-25", "G",
     lambda call, g: base.d_slopes(call, _whole_tiles(g, 16)),
     "Leave the queries past the last whole tile of 16 out of the gradient of the slopes."),
    ("heads_exchanged_in_d_slopes", "d_slopes", "GRAD-25", "Q",
     lambda call, g: base.d_slopes(call, g)[::-1],
     "Return the gradients of the slopes in the reverse order of the heads."),
)  # fmt: skip


@wrong("d_slopes", "GRAD-25", "Q")
def signed_distance_in_d_slopes(call: Attention, g: Array) -> Any:
    """Take the position of the key less that of the query, without its absolute value."""
    terms = (base.key_position(call) - base.position(call)) * g
    terms = terms if terms.ndim > 2 else terms[None]
    return terms.sum(axis=(*range(terms.ndim - 3), -2, -1)).astype(g.dtype)


@wrong("d_slopes", "GRAD-25", "C")
def gradient_of_slopes_added_in_half_precision(call: Attention, g: Array) -> Any:
    """Add up the gradient of the slopes in the dtype of the query."""
    terms = base.penalty(call, np.ones_like(g[..., :1, :1]), base.position(call), base.key_position(call)) * g
    terms = (terms if terms.ndim > 2 else terms[None]).astype(call.query.dtype)
    total = terms.sum(axis=(*range(terms.ndim - 3), -2, -1), dtype=call.query.dtype)
    return total.astype(g.dtype)
