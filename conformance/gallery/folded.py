"""Wrong about query heads that are folded into the groups that share a key head."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, wrong
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def _turned(call: Attention, array: Array, axis: int) -> Array:
    """Unfold an axis of query heads as (group, key head), and read it as (key head, group)."""
    shared, heads = call.key.shape[-3], call.query.shape[-3]
    if array.ndim < -axis or array.shape[axis] != heads:
        return array
    order = np.arange(heads).reshape(heads // shared, shared).T.ravel()
    return np.take(array, order, axis=axis)


@wrong("attend", "HEAD-1", "D")
def bias_heads_folded_the_other_way(call: Attention) -> Any:
    """Unfold the heads of a bias as groups of key heads, and not as key heads of groups."""
    return base.attend(altered(call, bias=lambda bias: _turned(call, bias, -3)))


@wrong("by_mask", "HEAD-1", "D")
def mask_heads_folded_the_other_way(call: Attention) -> Any:
    """Unfold the heads of a mask as groups of key heads, and not as key heads of groups."""
    return base.by_mask(altered(call, mask=lambda mask: _turned(call, mask, -3)))


@wrong("dropped", "DROP-1", "D")
def dropout_heads_folded_the_other_way(call: Attention, p: Array) -> Any:
    """Unfold the heads of a dropout mask as groups of key heads, and not as key heads of groups."""
    return base.dropped(altered(call, dropout_mask=lambda mask: _turned(call, mask, -3)), p)


@wrong("softmax_of", "SOFT-5", "D")
def sinks_folded_the_other_way(call: Attention, s: Array, allowed: Mask) -> Any:
    """Unfold the sinks as groups of key heads, and not as key heads of groups."""
    return base.softmax_of(altered(call, sinks=lambda sinks: _turned(call, sinks, -1)), s, allowed)


@wrong("softmax_of", "SOFT-5", "D")
def sink_of_the_number_of_the_key_head(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let a query head have the sink at the number of its key head."""
    groups = call.query.shape[-3] // call.key.shape[-3]
    shared = altered(call, sinks=lambda sinks: np.repeat(sinks[: call.key.shape[-3]], groups))
    return base.softmax_of(shared, s, allowed)


@wrong("softmax_of", "SOFT-5", "D")
def sink_of_the_place_in_the_group(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let a query head have the sink at its number modulo the key heads."""
    heads, shared = call.query.shape[-3], call.key.shape[-3]
    modulo = altered(call, sinks=lambda sinks: sinks[np.arange(heads) % shared])
    return base.softmax_of(modulo, s, allowed)


@wrong("product", "HEAD-1", "D")
def key_heads_alone_tiled(call: Attention) -> Any:
    """Repeat the value heads in place and the key heads as a whole."""
    groups = call.query.shape[-3] // call.key.shape[-3]
    return base.product(call.but(key=np.concatenate([call.key] * groups, axis=-3)))


@wrong("attend", "HEAD-1", "D")
def output_heads_folded_the_other_way(call: Attention) -> Any:
    """Write the heads of the output as groups of key heads."""
    output, lse, p = base.attend(call)
    return _turned(call, output, -3), lse, p


@wrong("attend", "HEAD-1", "D")
def results_folded_the_other_way(call: Attention) -> Any:
    """Write the heads of all results as groups of key heads."""
    output, lse, p = base.attend(call)
    return _turned(call, output, -3), _turned(call, lse, -2), _turned(call, p, -3)


@wrong("lse", "SOFT-6", "D")
def lse_heads_folded_the_other_way(call: Attention, top: Array, total: Array) -> Any:
    """Write the heads of the lse as groups of key heads."""
    return _turned(call, base.lse(call, top, total), -2)


@wrong("attend", "SCORE-4", "D")
def bias_of_the_key_head(call: Attention) -> Any:
    """Let the query heads that share keys have the bias of the first among them."""
    groups = call.query.shape[-3] // call.key.shape[-3]

    def shared(bias: Array) -> Array:
        has_heads = bias.ndim > 2 and bias.shape[-3] == call.query.shape[-3]
        return np.repeat(bias[..., ::groups, :, :], groups, axis=-3) if has_heads else bias

    return base.attend(altered(call, bias=shared))


@wrong("product", "HEAD-1", "D")
def first_query_head_of_the_group(call: Attention) -> Any:
    """Let the query heads that share keys have the scores of the first among them."""
    x, groups = base.product(call), call.query.shape[-3] // call.key.shape[-3]
    return np.repeat(x[..., ::groups, :, :], groups, axis=-3)


@wrong("weighted", "HEAD-1", "D")
def first_value_head_for_all(call: Attention, p: Array, allowed: Mask) -> Any:
    """Read the first value head where heads are shared."""
    one = np.broadcast_to(call.value[..., :1, :, :], call.value.shape)
    same = call.value.shape[-3] == call.query.shape[-3]
    return base.weighted(call if same else call.but(value=one), p, allowed)
