"""Wrong about options in the backward pass: shared heads, softcap, dropout, bias, sinks, and masks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, alter, base, family, first, rows, wrong
from attnspec.reference.call import Mask, Step, Steps
from attnspec.reference.gradients import Gradients, sum_to


def of_groups(d: Array, like: Array, summed: Callable[[Array], Array]) -> Array:
    """Reduce the gradients of query heads, ``(*B, Hkv, group, S, D)``, to key heads by a function."""
    shape = (*d.shape[:-3], like.shape[-3], d.shape[-3] // like.shape[-3], *d.shape[-2:])
    return summed(d.reshape(shape))


ENTRIES = rows(
    ("last_head_of_a_group_kept", "sum_heads", "GRAD-3", "D",
     lambda _call, d, like: of_groups(d, like, lambda parts: parts[..., -1, :, :]),
     "Write the gradient of a key head anew for each of its query heads."),
    ("first_head_of_a_group_kept", "sum_heads", "GRAD-3", "D",
     lambda _call, d, like: of_groups(d, like, lambda parts: parts[..., 0, :, :]),
     "Give a key head the gradient of its first query head."),
    ("mean_of_a_group", "sum_heads", "GRAD-3", "D",
     lambda _call, d, like: of_groups(d, like, lambda parts: parts.mean(axis=-3)),
     "Give a key head the mean of its query heads' gradients.", "marin-community/levanter#449"),
    ("slope_of_the_softcap_left_out", "d_products", "GRAD-5", "F", lambda _call, t: t,
     "Pass the gradients of the scores on as if there were no softcap."),
    ("slope_from_the_capped_score", "d_products", "GRAD-5", "F",
     lambda call, t: _steep(call, t, lambda: 1 - (call.softcap * _bent(call)) ** 2),
     "Take one minus the square of the capped score, without dividing it by the softcap."),
    ("slope_without_the_square", "d_products", "GRAD-5", "F",
     lambda call, t: _steep(call, t, lambda: 1 - _bent(call)),
     "Take one minus the hyperbolic tangent, not its square."),
    ("slope_divided_by_the_softcap", "d_products", "GRAD-5", "F",
     lambda call, t: _steep(call, t, lambda: (1 - _bent(call) ** 2) / call.softcap),
     "Divide the slope by the softcap, and forget that the cap multiplies."),
    ("slope_after_the_bias", "d_products", "GRAD-5", "F",
     lambda call, t: _steep(call, t, lambda: 1 - (base.score(call) / call.softcap) ** 2),
     "Take the slope where the score is after the bias."),
    ("slope_before_the_scale", "d_products", "GRAD-5", "F",
     lambda call, t: _steep(call, t, lambda: 1 - np.tanh(base.product(call) / call.softcap) ** 2),
     "Take the slope at the product that is not scaled yet."),
    ("slope_in_the_bias", "d_bias", "GRAD-5", "F",
     lambda call, t: base.d_bias(call, base.d_products(call, t)),
     "Multiply the gradient of the bias by the slope of the softcap too."),
    ("slope_twice_in_d_key", "d_key", "GRAD-5", "F",
     lambda call, u, allowed: base.d_key(call, base.d_products(call, u), allowed),
     "Multiply by the slope once more for the keys."),
    ("slope_before_the_mean", "d_weights", "GRAD-5", "F",
     lambda call: _steep(call, base.d_weights(call), lambda: 1 - _bent(call) ** 2),
     "Multiply by the slope before the mean is subtracted, and again after it."),
    ("softcap_only_forward", "forward_again", "GRAD-5", "F",
     lambda call: base.forward_again(call.but(softcap=None)),
     "Compute the weights for the backward pass without the softcap."),
    ("dropped_weights_differentiated", "d_scores", "GRAD-8", "J",
     lambda call, p, r, delta, allowed: base.d_scores(call, base.drop(call, p), r, delta, allowed),
     "Differentiate the softmax with the weights after dropout.", "aws-neuron/nki-samples#81"),
    ("dropout_left_out_of_the_weights", "d_weights", "GRAD-8", "J",
     lambda call: base.d_weights(call.but(dropout_mask=None)),
     "Give the weights a gradient as if none were dropped.", "aws-neuron/nki-samples#81"),
    ("dropout_left_out_of_d_value", "d_value", "GRAD-8", "J",
     lambda call, p, allowed: base.d_value(call.but(dropout_mask=None), p, allowed),
     "Give the values a gradient as if no weight were dropped."),
    ("kept_gradients_left_as_they_are", "d_weights", "GRAD-8", "J",
     lambda call: base.d_weights(call.but(dropout_rate=0.0)),
     "Drop gradients of weights, and forget to raise the others."),
    ("delta_of_dropped_weights", "delta", "GRAD-8", "J",
     lambda call, p, r, allowed: base.delta(call, base.drop(call, p), r, allowed),
     "Take the mean with the weights after dropout, of gradients after dropout."),
    ("delta_without_dropout", "delta", "GRAD-8", "J",
     lambda call, p, _r, allowed: base.delta(call, p, base.d_weights(call.but(dropout_mask=None)), allowed),
     "Take the mean of gradients without dropout."),
    ("weights_dropped_as_in_the_first_head", "d_weights", "GRAD-8", "H",
     lambda call: base.d_weights(alter(call, dropout_mask=lambda mask: first(mask, -3))),
     "Let the gradients of all heads' weights have the dropout mask of the first."),
    ("d_bias_of_all_scores", "d_bias", "GRAD-2", "L", lambda _call, t: t,
     "Return the gradient of the bias in the shape of the scores."),
    ("batch_left_out_of_a_broadcast_bias", "d_bias", "GRAD-4", "L",
     lambda call, t: base.d_bias(call, t if call.bias.ndim == t.ndim and call.bias.shape[0] > 1 else t[:1]),
     "Sum over heads, queries and keys, and take the first batch entry."),
    ("d_bias_scaled", "d_bias", "GRAD-4", "K", lambda call, t: base.factor(call) * base.d_bias(call, t),
     "Multiply the gradient of the bias by the scale, as that of the product."),
    ("d_bias_nan_at_minus_infinity", "d_bias", "GRAD-11", "R",
     lambda call, t: base.d_bias(call, t) + 0 * call.bias.astype(t.dtype),
     "Multiply the bias by 0 on the way, which gives NaN where it is minus infinity."),
    ("d_bias_silently_zero", "d_bias", "GRAD-17", "L",
     lambda call, _t: np.zeros(call.bias.shape, call.query.dtype),
     "Return zeros for the gradient of the bias.", "ml-explore/mlx#2909"),
    ("d_sinks_silently_zero", "d_sinks", "GRAD-17", "M",
     lambda call, _lse, _delta: np.zeros(call.query.shape[-3], call.query.dtype),
     "Return zeros for the gradient of the sinks.", "ml-explore/mlx#2909"),
    ("d_value_silently_zero", "d_value", "GRAD-17", "W", lambda call, _p, _allowed: np.zeros_like(call.value),
     "Return zeros for the gradient of the value."),
    ("d_sinks_of_other_sign", "d_sinks", "GRAD-7", "M",
     lambda call, lse, delta: -base.d_sinks(call, lse, delta),
     "Move the sinks the other way.", "NVIDIA/cudnn-frontend#676"),
    ("d_sinks_without_the_lse", "d_sinks", "GRAD-7", "M",
     lambda call, lse, delta: base.d_sinks(call.but(d_lse=np.zeros_like(call.d_lse)), lse, delta),
     "Forget the cotangent of the lse for the sinks."),
    ("d_sinks_without_their_weight", "d_sinks", "GRAD-7", "M",
     lambda call, _lse, delta: sum_to(np, (call.d_lse - delta)[..., 0], (call.query.shape[-3], 1))[..., 0],
     "Sum what moves the denominator, without the weight of the sink."),
    ("mask_only_forward", "forward_again", "GRAD-9", "R", lambda call: again(call, call.but(mask=None)),
     "Forget the mask in the backward pass."),
    ("causal_only_forward", "forward_again", "GRAD-9", "A",
     lambda call: again(call, call.but(is_causal=False)),
     "Forget the causal mask in the backward pass."),
    ("diagonal_only_forward", "forward_again", "GRAD-9", "A",
     lambda call: again(call, call.but(query_offset=call.query_offset - 1) if call.is_causal else call),
     "Let a query attend only to the keys before its own, in the backward pass."),
    ("offset_only_forward", "forward_again", "GRAD-9", "A",
     lambda call: again(call, call.but(query_offset=0)),
     "Begin at position 0 in the backward pass, whatever the offset is.", "xlite-dev/ffpa-attn#300"),
    ("window_only_forward", "forward_again", "GRAD-9", "E", lambda call: again(call, call.but(window=None)),
     "Forget the window in the backward pass."),
    ("window_to_the_right_only_forward", "forward_again", "GRAD-9", "E",
     lambda call: again(call, alter(call, window=lambda window: (window[0], None))),
     "Forget the right bound of the window in the backward pass.", "AMD-AGI/Primus-Turbo#262"),
    ("key_lengths_only_forward", "forward_again", "GRAD-9", "R",
     lambda call: again(call, call.but(key_lengths=None)),
     "Forget the lengths of keys in the backward pass.", "Dao-AILab/flash-attention#2315"),
    ("query_lengths_only_forward", "forward_again", "GRAD-9", "R",
     lambda call: again(call, call.but(query_lengths=None)),
     "Forget the lengths of queries in the backward pass.", "Dao-AILab/flash-attention#2167"),
    ("segments_only_forward", "forward_again", "GRAD-9", "R",
     lambda call: again(call, call.but(query_segment_ids=None, key_segment_ids=None)),
     "Forget the segments in the backward pass."),
    ("mask_of_the_first_head_backward", "forward_again", "GRAD-9", "H",
     lambda call: again(call, alter(call, mask=lambda mask: first(mask, -3))),
     "Take the mask of the first head for all, in the backward pass."),
    ("gradients_of_tiled_heads", "sum_heads", "GRAD-3", "D",
     lambda _call, d, like: d.reshape(*d.shape[:-3], d.shape[-3] // like.shape[-3], like.shape[-3],
                                      *d.shape[-2:]).sum(axis=-4),
     "Assign query head h to key head h % Hkv, only in the backward pass."),
    ("offset_of_the_first_entry_backward", "forward_again", "GRAD-9", "A",
     lambda call: base.forward_again(call) if isinstance(call.query_offset, int) or not call.query_offset.size
         else again(call, call.but(query_offset=int(call.query_offset.ravel()[0]))),
     "Take the offset of the first batch entry for all, in the backward pass."),
    ("d_sinks_of_the_first_entry", "d_sinks", "GRAD-7", "M",
     lambda call, lse, delta: base.d_sinks(call.but(d_lse=_entry(call.d_lse)),
         lse.reshape(-1, *lse.shape[-2:])[0], _entry(delta)),
     "Sum over only the queries of the first batch entry."),
    ("d_sinks_of_the_first_head", "d_sinks", "GRAD-7", "D",
     After(lambda result, *_: np.broadcast_to(result[:1], result.shape)),
     "Give all sinks the gradient of the first."),
    ("backward_aligned_to_the_last_key", "forward_again", "GRAD-9", "A",
     lambda call: again(call, call.but(query_offset=call.query_offset + call.keys - call.queries)
         if call.is_causal else call),
     "Let the last query see the last key in the backward pass, as the forward pass does not."),
)  # fmt: skip


@wrong("sum_heads", "GRAD-3", "D", "XunhaoLai/native-sparse-attention-triton#27")
def heads_split_by_the_number_of_key_heads(_call: Gradients, d: Array, like: Array) -> Any:
    """Divide the number of a query head by that of key heads, which fits if groups are as large."""
    heads = like.shape[-3]
    places = np.minimum(np.arange(d.shape[-3]) // heads, heads - 1) if heads < d.shape[-3] else range(heads)
    result = np.zeros((*d.shape[:-3], heads, *d.shape[-2:]), d.dtype)
    for head, place in enumerate(places):
        result[..., place, :, :] += d[..., head, :, :]
    return result


def _bent(call: Gradients) -> Array:
    bend: Array = np.tanh(base.product(call) * base.factor(call) / call.softcap)
    return bend


def _steep(call: Gradients, t: Array, slope: Callable[[], Array]) -> Any:
    return t if call.softcap is None else np.where(t == 0, 0, t * slope())


@wrong("backward", "GRAD-8", "J", "NVIDIA/TransformerEngine#1031")
def dropped_anew(call: Gradients) -> Any:
    """Draw another dropout mask for the backward pass: here, that of the next query."""

    def later(mask: Array) -> Array:
        return np.roll(np.broadcast_to(mask, call.shape), -1, axis=-2)

    return base.backward(alter(call, dropout_mask=later))


@wrong("d_bias", "GRAD-4", "L", "pytorch/pytorch#188302")
def last_entry_of_a_broadcast_bias(call: Gradients, t: Array) -> Any:
    """Write the gradient of a bias anew along each axis that it is broadcast along."""
    return _pick(call, t, -1)


@wrong("d_bias", "GRAD-4", "L")
def mean_where_the_bias_is_broadcast(call: Gradients, t: Array) -> Any:
    """Take the mean over the axes that a bias is broadcast along, not the sum."""
    result = base.d_bias(call, t)
    return result * result.dtype.type(result.size / t.size) if t.size else result


@wrong("d_bias", "GRAD-4", "H")
def bias_of_keys_summed_over_keys(call: Gradients, t: Array) -> Any:
    """Sum over keys for a bias that has none but keys, where there are as many queries."""
    only_keys = call.bias.ndim == 1 or (call.bias.ndim > 1 and call.bias.shape[-2] == 1)
    turned = only_keys and call.bias.shape[-1] == call.keys == call.queries
    return base.d_bias(call, np.swapaxes(t, -1, -2) if turned else t)


@wrong("d_bias", "GRAD-4", "K")
def d_bias_before_the_softmax_scale(call: Gradients, t: Array) -> Any:
    """Divide the gradient of the bias by the scale, as if the scale came after the bias."""
    scale = base.factor(call)
    return base.d_bias(call, t) / scale if scale else base.d_bias(call, t)


@wrong("d_bias", "GRAD-11", "R")
def d_bias_where_others_mask(call: Gradients, _t: Array) -> Any:
    """Give the bias a gradient wherever it is finite, masked or not."""
    p, lse, seen = base.forward_again(call)
    r = base.d_weights(call)
    row = base.delta(call, p, r, seen)
    everywhere = np.exp(base.score(call) - lse[..., None])
    return base.d_bias(call, base.d_scores(call, everywhere, r, row, True))


@wrong("d_sinks", "GRAD-7", "M")
def d_sinks_without_empty_rows(call: Gradients, lse: Array, delta: Array) -> Any:
    """Leave out queries that may attend to no key, whose denominator is the sink."""
    some = base.allowed_pairs(call).any(axis=-1, keepdims=True)
    each = call.but(d_lse=np.where(some, call.d_lse, 0))
    return base.d_sinks(each, lse, np.where(some, delta, 0))


@wrong("d_sinks", "GRAD-7", "M")
def sink_of_minus_infinity_moved(call: Gradients, lse: Array, delta: Array) -> Any:
    """Subtract the lse from a sink of minus infinity, which is NaN where nothing else is in the row."""
    p = np.exp(call.sink - lse[..., None])
    return sum_to(np, (p * (call.d_lse - delta))[..., 0], (call.query.shape[-3], 1))[..., 0]


@wrong("forward_again", "GRAD-7", "M", "Dao-AILab/flash-attention#2706")
def sinks_only_forward(call: Gradients) -> Any:
    """Compute the weights for the backward pass without the sinks."""
    p, _, seen = base.forward_again(call.but(sinks=None))
    return p, base.forward_again(call)[1], seen


def _pick(call: Gradients, t: Array, place: int) -> Array:
    """Take one entry along each axis that the bias is broadcast along."""
    t = t[(place,) * (t.ndim - call.bias.ndim)]
    for axis, size in enumerate(call.bias.shape):
        if size != t.shape[axis]:
            t = np.take(t, [place], axis=axis)
    return t


def _entry(array: Array) -> Array:
    return array if array.ndim < 4 else first(array.reshape(-1, *array.shape[-3:]), -4)[0]


def again(call: Gradients, other: Gradients) -> tuple[Array, Array, Mask]:
    """Compute the weights from the lse of one call, with the masks of another."""
    lse, seen = base.forward_again(call)[1], base.allowed_pairs(other)
    shift = np.where(lse == -np.inf, 0, lse)[..., None]
    return np.where(seen, np.exp(base.score(call) - shift), 0), lse, seen


def _beside_the_output(change: Callable[[Gradients], Gradients]) -> Step:
    """Make a backward pass with the masks of another call, and the mean that the output of this one gives."""

    def backward(call: Gradients) -> Any:
        p, _, seen = base.forward_again(call)
        mean = base.delta(call, p, base.d_weights(call), seen)
        own = {"forward_again": lambda it: again(it, change(it)), "delta": lambda *_: mean}
        return base.backward(call.but(steps=Steps({**call.steps.replaced, **own})))

    return backward


BESIDE_THE_OUTPUT = rows(
    ("offset_only_forward_beside_the_output", "backward", "GRAD-9", "A",
     _beside_the_output(lambda call: call.but(query_offset=0)),
     "Align the mask at the top left in the backward pass, and keep the output of the forward pass."),
    ("causal_only_forward_beside_the_output", "backward", "GRAD-9", "A",
     _beside_the_output(lambda call: call.but(is_causal=False)),
     "Forget the causal mask in the backward pass, and keep the output of the forward pass."),
    ("window_only_forward_beside_the_output", "backward", "GRAD-9", "E",
     _beside_the_output(lambda call: call.but(window=None)),
     "Forget the window in the backward pass, and keep the output of the forward pass."),
    ("mask_only_forward_beside_the_output", "backward", "GRAD-9", "R",
     _beside_the_output(lambda call: call.but(mask=None)),
     "Forget the mask in the backward pass, and keep the output of the forward pass."),
    ("key_lengths_only_forward_beside_the_output", "backward", "GRAD-9", "R",
     _beside_the_output(lambda call: call.but(key_lengths=None)),
     "Forget the lengths of keys in the backward pass, and keep the output of the forward pass."),
)  # fmt: skip


@wrong("forward_again", "GRAD-9", "E")
def window_narrower_backward(call: Gradients) -> Any:
    """Take the left bound of the window as exclusive in the backward pass."""

    def narrower(window: Any) -> Any:
        return (None if window[0] is None else window[0] - 1, window[1])

    return again(call, alter(call, window=narrower))


@wrong("forward_again", "GRAD-9", "R")
def key_length_of_the_first_entry_backward(call: Gradients) -> Any:
    """Take the length of the first batch entry's keys for all, in the backward pass."""
    lengths = np.asarray(call.key_lengths)
    if call.key_lengths is None or not lengths.ndim or not lengths.size:
        return base.forward_again(call)
    return again(call, call.but(key_lengths=int(lengths.ravel()[0])))


@wrong("d_value", "GRAD-9", "R")
def values_past_their_length_moved(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Let queries attend to all keys for the gradient of the values, with weights that are not normalised."""
    if call.key_lengths is None:
        return base.d_value(call, p, allowed)
    more, _, seen = again(call, call.but(key_lengths=None))
    return base.d_value(call, more, seen)


LAST = rows(
    ("values_of_a_group_not_summed", "d_value", "GRAD-3", "D",
     lambda call, p, allowed: of_groups(base.d_value(call.but(value=base.repeat_heads(call, call.value)), p,
         allowed), call.value, lambda parts: parts[..., 0, :, :]),
     "Sum over the heads of a group for the keys, and not for the values."),
    ("tiles_after_the_diagonal_counted_from_zero", "d_products", "GRAD-9", "A",
     After(lambda u, call, _t: np.where(call.j // 4 > call.i // 4, 0, u) if call.is_causal else u),
     "Skip tiles of 4 queries and keys past the diagonal, without the offset of the queries."),
)  # fmt: skip


def _of_pairs(call: Gradients, near: Array) -> Any:
    """Return gradients of which those of keys and values are sums over some pairs only."""
    steps: dict[str, Step] = {
        "d_key": lambda call, u, allowed: base.d_key(call, np.where(near, u, 0), allowed),
        "d_value": lambda call, p, allowed: base.d_value(call, np.where(near, p, 0), allowed),
    }
    return base.backward(call.but(steps=Steps({**call.steps.replaced, **steps})))


def _reach_of(tile: int) -> tuple[str, str, Step]:
    def backward(call: Gradients) -> Any:
        left = (call.window or (None, None))[0]
        return (
            base.backward(call)
            if left is None
            else _of_pairs(call, _tiles_between(call, tile) <= left // tile)
        )

    return (
        f"last_tile_of_{tile}_queries_in_a_window_left_out",
        f"Count the tiles of {tile} queries that look back at a tile of keys by rounding down.",
        backward,
    )


def _from_the_diagonal(tile: int) -> tuple[str, str, Step]:
    def backward(call: Gradients) -> Any:
        return _of_pairs(call, _tiles_between(call, tile) >= 0) if call.is_causal else base.backward(call)

    return (
        f"causal_queries_of_a_tile_of_{tile}_keys_from_its_index",
        f"Begin with the tile of queries that has the index of a tile of {tile} keys, without the offset.",
        backward,
    )


def _tiles_between(call: Gradients, tile: int) -> Array:
    """Return how many tiles the tile of each query is after that of each key, ``(L, S)``."""
    between: Array = call.i // tile - call.j // tile
    return between


SHORT_REACH = family(_reach_of, "backward", "GRAD-19", "E", 16, 32, 64)
FROM_THE_DIAGONAL = family(_from_the_diagonal, "backward", "GRAD-19", "A", 16, 32, 64)
