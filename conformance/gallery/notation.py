"""Wrong about axes and shapes."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Mask
from attnspec.reference.errors import broadcasts, need
from attnspec.reference.notation import Attention

ENTRIES = rows(
    ("output_transposed", "finish", "SHAPE-3", "H",
     lambda call, output, lse, weights: base.finish(call, np.swapaxes(output, -1, -2), lse, weights),
     "Return depth before positions."),
    ("weights_transposed", "finish", "SHAPE-4", "H",
     lambda call, output, lse, weights: base.finish(call, output, lse, np.swapaxes(weights, -1, -2)),
     "Return a column for each query."),
    ("keys_past_the_queries_dropped", "allowed_pairs", "SHAPE-5", "A",
     lambda call: base.allowed_pairs(call) & (call.j < call.queries),
     "Let the loop over the keys end with the queries.", "ml-explore/mlx#1999"),
    ("lse_with_an_axis_of_one", "finish", "SHAPE-8", "H",
     lambda call, output, lse, weights: base.finish(call, output, lse[..., None], weights),
     "Keep the axis that the sum was taken over."),
    ("two_axes_as_many_heads", "allowed_pairs", "SHAPE-2", "H",
     lambda call: base.allowed_pairs(call) & (
         (call.i == call.j) | (not (call.flat and call.queries == call.keys))),
     "Take two axes for heads of one position each, where both have as many: each query meets its own key."),
)  # fmt: skip


@wrong("enter", "SHAPE-1", "H")
def keys_of_the_first_batch_entry(call: Attention) -> Any:
    """Let every batch entry read the keys of the first, as with a stride that is lost."""
    call = base.enter(call)
    return call.but(key=np.broadcast_to(call.key[:1], call.key.shape)) if call.key.ndim > 3 else call


@wrong("finish", "SHAPE-1", "H", "onnx/onnx#7142")
def batch_and_heads_exchanged(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Write the results with batch and heads exchanged, where there are as many of both."""
    if output.ndim == 4 and output.shape[0] == output.shape[1]:
        output, lse, weights = (np.swapaxes(array, 0, 1) for array in (output, lse, weights))
    return base.finish(call, output, lse, weights)


@wrong("enter", "SHAPE-1", "H")
def batch_axes_counted_the_other_way(call: Attention) -> Any:
    """Flatten several batch axes of the keys by columns, and those of the queries by rows."""
    call = base.enter(call)
    axes = call.key.ndim - 3
    order = (*reversed(range(axes)), axes, axes + 1, axes + 2)
    return call.but(key=call.key.transpose(order).reshape(call.key.shape))


@wrong("product", "SHAPE-1", "H")
def first_feature_of_the_next_head(call: Attention) -> Any:
    """Read the first feature of each query from the head after it."""
    query = call.query.copy()
    query[..., 0] = np.roll(query[..., 0], -1, axis=-2)
    return base.product(call.but(query=query))


@wrong("check_axes", "SHAPE-2", "H")
def two_axes_refused(call: Attention) -> Any:
    """Ask for an axis of heads."""
    need("query", call.query.ndim > 2, "three axes or more", call.query.shape, "SHAPE-2")
    return base.check_axes(call)


@wrong("finish", "SHAPE-3", "P")
def output_as_deep_as_the_query(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Make the output as the query is, whatever the depth of the values."""
    like_query: Array = np.zeros(call.query.shape, output.dtype)
    depth = min(output.shape[-1], like_query.shape[-1])
    like_query[..., :depth] = output[..., :depth]
    return base.finish(call, like_query, lse, weights)


@wrong("finish", "SHAPE-5", "G")
def queries_past_the_keys_dropped(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Leave rows past the number of keys as the buffer was."""
    past = call.i >= max(call.keys, 1)
    return base.finish(call, np.where(past, 0, output), lse, np.where(past, 0, weights))


@wrong("check_axes", "SHAPE-6", "H")
def batch_axis_of_one_repeated(call: Attention) -> Any:
    """Broadcast the batch axes of keys and values."""
    batch = call.query.shape[:-3]
    repeated = {
        name: np.broadcast_to(getattr(call, name), (*batch, *getattr(call, name).shape[-3:]))
        for name in ("key", "value")
        if broadcasts(getattr(call, name).shape[:-3], batch) and call.query.ndim > 2
    }
    return base.check_axes(call.but(**repeated))


@wrong("check_axes", "SHAPE-6", "G")
def values_cut_to_the_keys(call: Attention) -> Any:
    """Pass over values that have no key."""
    cut = call.value[..., : call.key.shape[-2], :] if call.value.ndim > 1 else call.value
    return base.check_axes(call.but(value=cut))


@wrong("check_axes", "SHAPE-6", "G")
def depth_of_the_shorter(call: Attention) -> Any:
    """Sum over as many features as both have."""
    depth = min(call.query.shape[-1], call.key.shape[-1])
    cut = {name: getattr(call, name)[..., :depth] for name in ("query", "key")}
    return base.check_axes(call.but(**cut))


@wrong("top", "SHAPE-7", "O", "Dao-AILab/flash-attention#2470")
def maximum_of_no_keys(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the maximum of a row without saying what that of none is."""
    most = np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True)
    return base.top(call, most, np.ones(most.shape, dtype=bool))


@wrong("check_axes", "SHAPE-7", "O", "pytorch/pytorch#174939")
def no_batch_entries_refused(call: Attention) -> Any:
    """Divide the work by the number of batch entries and heads."""
    need("query", 0 not in call.query.shape[:-2], "a batch entry or more", call.query.shape, "SHAPE-7")
    return base.check_axes(call)


@wrong("enter", "SHAPE-9", "N")
def keys_rounded_by_the_largest_of_all(call: Attention) -> Any:
    """Round keys to 10 bits of the largest in the whole array, as a scale per tensor does."""
    call = base.enter(call)
    most = np.abs(call.key[np.isfinite(call.key)]).max(initial=0) or 1
    return call.but(key=np.round(call.key / most * 1024) * most / 1024)


@wrong("weighted_sum", "SHAPE-9", "C")
def every_head_is_nan_with_one_value(call: Attention, p: Array, allowed: Mask) -> Any:
    """Return NaN in all heads if a value of any head is NaN or infinite."""
    output = base.weighted_sum(call, p, allowed)
    return output if np.isfinite(call.value).all() else np.full_like(output, np.nan)


@wrong("finish", "SHAPE-10", "H")
def no_weights_beside_the_lse(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return the output and the lse where the weights are asked for too."""
    result = base.finish(call, output, lse, weights)
    return result[:2] if isinstance(result, tuple) else result
