"""Wrong about heads, and about query heads that are folded into the groups that share a key head."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, alter, base, rows, wrong
from attnspec.reference.call import Call, Mask
from attnspec.reference.notation import Attention


def _groups(call: Attention, array: Array) -> int:
    return int(call.query.shape[-3] // array.shape[-3])


ENTRIES = rows(
    ("key_heads_tiled", "repeat_heads", "HEAD-1", "D",
     lambda call, array: np.concatenate([array] * _groups(call, array), axis=-3),
     "Repeat the key heads as a whole, so that query head h reads key head h % Hkv.", "onnx/onnx#7274"),
    ("features_dealt_out", "split", "HEAD-3", "H",
     lambda _call, features, heads: np.stack([features[..., head::heads] for head in range(heads)], axis=-3),
     "Give feature f to head f modulo the heads."),
    ("heads_merged_from_the_last", "side_by_side", "HEAD-4", "H",
     lambda call, split: base.side_by_side(call, split[..., ::-1, :, :]),
     "Put the last head first."),
    ("bias_of_the_output_dropped", "check_multi_head", "HEAD-6", "V",
     lambda call, given: base.check_multi_head(call, given) | {"output_bias": None},
     "Take a bias for the last projection and leave it out."),
    ("many_heads_never_causal", "check_multi_head", "HEAD-6", "A",
     lambda call, given: base.check_multi_head(call, given) | {"is_causal": False},
     "Take the causal flag and leave it out.", "lablup/mlxcel#1001"),
    ("bias_heads_folded_the_other_way", "attend", "HEAD-1", "D",
     lambda call: base.attend(alter(call, bias=lambda bias: _swap_groups(call, bias, -3))),
     "Unfold the heads of a bias as groups of key heads, and not as key heads of groups."),
    ("mask_heads_folded_the_other_way", "by_mask", "HEAD-1", "D",
     lambda call: base.by_mask(alter(call, mask=lambda mask: _swap_groups(call, mask, -3))),
     "Unfold the heads of a mask as groups of key heads, and not as key heads of groups."),
    ("dropout_heads_folded_the_other_way", "drop", "DROP-1", "D",
     lambda call, p: base.drop(alter(call, dropout_mask=lambda mask: _swap_groups(call, mask, -3)), p),
     "Unfold the heads of a dropout mask as groups of key heads, and not as key heads of groups."),
    ("lse_heads_folded_the_other_way", "lse", "SOFT-6", "D",
     lambda call, top, total: _swap_groups(call, base.lse(call, top, total), -2),
     "Write the heads of the lse as groups of key heads."),
    ("split_without_transposing", "split", "HEAD-3", "H",
     lambda _call, features, heads: features.reshape(*features.shape[:-2],
         heads, features.shape[-2], features.shape[-1] // heads),
     "Reshape features straight to (heads, positions, depth).", "onnx/onnx#7118"),
    ("fewer_heads_that_divide", "check_split", "HEAD-5", "U",
     lambda _call, features, heads: next(count for count in range(heads, 0, -1)
         if features.shape[-1] % count == 0),
     "Take the next smaller number of heads that divides."),
    ("scale_of_the_model_depth", "check_multi_head", "HEAD-6", "K",
     After(lambda given, _call, _given: given if given["scale"] is not None
         else given | {"scale": given["query_weight"].shape[-1]**-0.5}),
     "Divide by the root of the depth of the model, before it is split into heads."),
    ("mask_of_the_first_of_many_heads", "check_multi_head", "HEAD-6", "H",
     After(lambda given, _call, _given: given | {"mask": given["mask"][..., :1, :, :]}
         if given["mask"] is not None and given["mask"].ndim > 2 else given),
     "Let all heads of multi-head attention have the mask of the first."),
    ("memory_of_equal_depth_dropped", "check_multi_head", "HEAD-7", "V",
     After(lambda given, _call, _given: given | {"source": given["tokens"]}
         if given["source"].shape[-1] == given["tokens"].shape[-1] else given),
     "Project keys and values from the tokens, where the memory is as deep."),
    ("memory_of_the_shape_of_tokens_dropped", "check_multi_head", "HEAD-7", "V",
     After(lambda given, _call, _given: given | {"source": given["tokens"]}
         if given["is_causal"] and given["source"].shape == given["tokens"].shape else given),
     "Project keys and values from the tokens, where a causal call has a memory of their shape."),
    ("memory_cut_to_the_tokens", "check_multi_head", "HEAD-7", "V",
     After(lambda given, _call, _given: given
         if given["mask"] is not None and given["mask"].shape[-1] > given["tokens"].shape[-2]
         else given | {"source": given["source"][..., : given["tokens"].shape[-2], :]}),
     "Read as many positions of the memory as there are tokens."),
    ("sinks_folded_the_other_way", "softmax_of", "SOFT-5", "D",
     lambda call, s, allowed: base.softmax_of(alter(call, sinks=lambda sinks: _swap_groups(call, sinks, -1)),
         s, allowed),
     "Unfold the sinks as groups of key heads, and not as key heads of groups."),
)  # fmt: skip


@wrong("repeat_heads", "HEAD-1", "D", "flashinfer-ai/flashinfer#1148")
def groups_of_three_by_halves(call: Attention, array: Array) -> Any:
    """Find the key head by a shift, which is right for groups of a power of two."""
    shift = _groups(call, array).bit_length() - 1
    heads = np.arange(call.query.shape[-3]) >> shift
    return np.take(array, np.minimum(heads, array.shape[-3] - 1), axis=-3)


@wrong("weighted_sum", "HEAD-1", "D", "PrimeIntellect-ai/prime-rl#2681")
def value_heads_tiled(call: Attention, p: Array, allowed: Mask) -> Any:
    """Repeat the key heads in place and the value heads as a whole."""
    value = np.concatenate([call.value] * _groups(call, call.value), axis=-3)
    return base.weighted_sum(call.but(value=value), p, allowed)


@wrong("repeat_heads", "HEAD-1", "D")
def first_key_head_for_all(call: Attention, array: Array) -> Any:
    """Read the first key head where heads are shared."""
    whole = base.repeat_heads(call, array)
    return whole if _groups(call, array) == 1 else np.broadcast_to(array[..., :1, :, :], whole.shape)


@wrong("by_mask", "HEAD-1", "D")
def mask_of_the_key_head(call: Attention) -> Any:
    """Let the query heads that share keys have the mask of the first among them."""
    mask, groups = call.mask, _groups(call, call.key)
    if mask is None or mask.ndim < 3 or mask.shape[-3] == 1:
        return np.ones((), dtype=bool) if mask is None else mask
    return np.repeat(mask[..., ::groups, :, :], groups, axis=-3)


@wrong("by_mask", "HEAD-1", "D")
def mask_of_the_number_of_the_key_head(call: Attention) -> Any:
    """Let the query heads that share keys have the mask at the number of their key head."""
    return base.by_mask(alter(call, mask=lambda mask: _by_key_head(call, mask)))


@wrong("attend", "SCORE-4", "D")
def bias_of_the_number_of_the_key_head(call: Attention) -> Any:
    """Let the query heads that share keys have the bias at the number of their key head."""
    return base.attend(alter(call, bias=lambda bias: _by_key_head(call, bias)))


def _by_key_head(call: Attention, array: Array) -> Array:
    """Read an array of query heads at the number of the key head of each."""
    if array.ndim < 3 or array.shape[-3] == 1:
        return array
    return np.repeat(array[..., : call.key.shape[-3], :, :], _groups(call, call.key), axis=-3)


@wrong("check_heads", "HEAD-2", "D")
def heads_left_over(call: Attention) -> Any:
    """Let the query heads that are left over read the last key head."""
    query, key = (getattr(call, name).shape[-3:-2] for name in ("query", "key"))
    if not query or query[0] % key[0] == 0 or query[0] < key[0]:
        return base.check_heads(call)
    index = np.minimum(np.arange(query[0]) // (query[0] // key[0]), key[0] - 1)
    return call.but(**{name: np.take(getattr(call, name), index, axis=-3) for name in ("key", "value")})


@wrong("check_heads", "HEAD-2", "D")
def any_number_of_key_heads_taken(call: Attention) -> Any:
    """Find the key head by a division that is rounded down, whatever the numbers of heads."""
    query, key = (getattr(call, name).shape[-3:-2] for name in ("query", "key"))
    value = call.value.shape[-3:-2]
    if not query or not query[0] or not key[0] or query[0] % key[0] == 0 or value != key:
        return base.check_heads(call)
    index = np.arange(query[0]) * key[0] // query[0]
    return call.but(**{name: np.take(getattr(call, name), index, axis=-3) for name in ("key", "value")})


@wrong("check_heads", "HEAD-2", "D")
def fewer_value_heads_repeated(call: Attention) -> Any:
    """Let value heads be shared by key heads, as key heads are by query heads."""
    key, value = (getattr(call, name).shape[-3:-2] for name in ("key", "value"))
    if key != value and key and key[0] % value[0] == 0:
        call = call.but(value=np.repeat(call.value, key[0] // value[0], axis=-3))
    return base.check_heads(call)


@wrong("check_heads", "HEAD-2", "D")
def spare_key_heads_dropped(call: Attention) -> Any:
    """Read as many key heads as there are query heads."""
    heads = call.query.shape[-3] if call.query.ndim > 2 else 0
    if heads and call.key.shape[-3] > heads:
        call = call.but(**{name: getattr(call, name)[..., :heads, :, :] for name in ("key", "value")})
    return base.check_heads(call)


@wrong("side_by_side", "HEAD-4", "H")
def merged_without_transposing(_call: Call, split: Array) -> Any:
    """Reshape (heads, positions, depth) straight to (positions, features)."""
    *batch, heads, count, depth = split.shape
    return split.reshape(*batch, count, heads * depth)


def _swap_groups(call: Attention, array: Array, axis: int) -> Array:
    """Unfold an axis of query heads as (group, key head), and read it as (key head, group)."""
    shared, heads = call.key.shape[-3], call.query.shape[-3]
    if array.ndim < -axis or array.shape[axis] != heads:
        return array
    order = np.arange(heads).reshape(heads // shared, shared).T.ravel()
    return np.take(array, order, axis=axis)


@wrong("softmax_of", "SOFT-5", "D")
def sink_of_the_number_of_the_key_head(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let a query head have the sink at the number of its key head."""
    groups = call.query.shape[-3] // call.key.shape[-3]
    shared = alter(call, sinks=lambda sinks: np.repeat(sinks[: call.key.shape[-3]], groups))
    return base.softmax_of(shared, s, allowed)


@wrong("softmax_of", "SOFT-5", "D")
def sink_of_the_place_in_the_group(call: Attention, s: Array, allowed: Mask) -> Any:
    """Let a query head have the sink at its number modulo the key heads."""
    heads, shared = call.query.shape[-3], call.key.shape[-3]
    modulo = alter(call, sinks=lambda sinks: sinks[np.arange(heads) % shared])
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
    return _swap_groups(call, output, -3), lse, p


@wrong("attend", "HEAD-1", "D")
def results_folded_the_other_way(call: Attention) -> Any:
    """Write the heads of all results as groups of key heads."""
    output, lse, p = base.attend(call)
    return _swap_groups(call, output, -3), _swap_groups(call, lse, -2), _swap_groups(call, p, -3)


@wrong("attend", "SCORE-4", "D")
def bias_of_the_key_head(call: Attention) -> Any:
    """Let the query heads that share keys have the bias of the first among them."""
    groups = call.query.shape[-3] // call.key.shape[-3]

    def shared(bias: Array) -> Array:
        has_heads = bias.ndim > 2 and bias.shape[-3] == call.query.shape[-3]
        return np.repeat(bias[..., ::groups, :, :], groups, axis=-3) if has_heads else bias

    return base.attend(alter(call, bias=shared))


@wrong("product", "HEAD-1", "D")
def first_query_head_of_the_group(call: Attention) -> Any:
    """Let the query heads that share keys have the scores of the first among them."""
    x, groups = base.product(call), call.query.shape[-3] // call.key.shape[-3]
    return np.repeat(x[..., ::groups, :, :], groups, axis=-3)


@wrong("weighted_sum", "HEAD-1", "D")
def first_value_head_for_all(call: Attention, p: Array, allowed: Mask) -> Any:
    """Read the first value head where heads are shared."""
    one = np.broadcast_to(call.value[..., :1, :, :], call.value.shape)
    same = call.value.shape[-3] == call.query.shape[-3]
    return base.weighted_sum(call if same else call.but(value=one), p, allowed)
