"""Wrong about axes and shapes."""

from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.conformance.gallery import base, base_checks, base_masking
from attnspec.conformance.gallery.base import Array, Call, Mask, Steps
from attnspec.conformance.gallery.base_checks import Given, need
from attnspec.conformance.gallery.entry import wrong


@wrong("entered", "SHAPE-1", "H")
def keys_of_the_first_batch_entry(own: Steps, given: Given) -> Any:
    """Let every batch entry read the keys of the first, as with a stride that is lost."""
    call = base.entered(own, given)
    return replace(call, key=np.broadcast_to(call.key[:1], call.key.shape)) if call.key.ndim > 3 else call


@wrong("returned", "SHAPE-1", "H", "onnx/onnx#7142")
def batch_and_heads_exchanged(call: Call, output: Array, lse: Array, weights: Array) -> Any:
    """Write the results with batch and heads exchanged, where there are as many of both."""
    if output.ndim == 4 and output.shape[0] == output.shape[1]:
        output, lse, weights = (np.swapaxes(array, 0, 1) for array in (output, lse, weights))
    return base.returned(call, output, lse, weights)


@wrong("entered", "SHAPE-1", "H")
def batch_axes_counted_the_other_way(own: Steps, given: Given) -> Any:
    """Flatten several batch axes of the keys by columns, and those of the queries by rows."""
    call = base.entered(own, given)
    axes = call.key.ndim - 3
    order = (*reversed(range(axes)), axes, axes + 1, axes + 2)
    return replace(call, key=call.key.transpose(order).reshape(call.key.shape))


@wrong("product", "SHAPE-1", "H")
def first_feature_of_the_next_head(call: Call) -> Any:
    """Read the first feature of each query from the head after it."""
    query = call.query.copy()
    query[..., 0] = np.roll(query[..., 0], -1, axis=-2)
    return base.product(replace(call, query=query))


@wrong("allowed", "SHAPE-2", "H")
def two_axes_as_many_heads(call: Call) -> Any:
    """Take two axes for heads of one position each, where both have as many: each query meets its own key."""
    alone = call.flat and call.queries == call.keys
    return base_masking.allowed(call) & ((call.i == call.j) | (not alone))


@wrong("check_axes", "SHAPE-2", "H")
def two_axes_refused(given: Given) -> Any:
    """Ask for an axis of heads."""
    need("query", given["query"].ndim > 2, "three axes or more", given["query"].shape)
    return base_checks.check_axes(given)


@wrong("returned", "SHAPE-3", "H")
def output_transposed(call: Call, output: Array, lse: Array, weights: Array) -> Any:
    """Return depth before positions."""
    return base.returned(call, np.swapaxes(output, -1, -2), lse, weights)


@wrong("returned", "SHAPE-3", "P")
def output_as_deep_as_the_query(call: Call, output: Array, lse: Array, weights: Array) -> Any:
    """Make the output as the query is, whatever the depth of the values."""
    like_query: Array = np.zeros(call.query.shape, output.dtype)
    depth = min(output.shape[-1], like_query.shape[-1])
    like_query[..., :depth] = output[..., :depth]
    return base.returned(call, like_query, lse, weights)


@wrong("returned", "SHAPE-4", "H")
def weights_transposed(call: Call, output: Array, lse: Array, weights: Array) -> Any:
    """Return a column for each query."""
    return base.returned(call, output, lse, np.swapaxes(weights, -1, -2))


@wrong("allowed", "SHAPE-5", "A", "ml-explore/mlx#1999")
def keys_past_the_queries_dropped(call: Call) -> Any:
    """Let the loop over the keys end with the queries."""
    return base_masking.allowed(call) & (call.j < call.queries)


@wrong("returned", "SHAPE-5", "G")
def queries_past_the_keys_dropped(call: Call, output: Array, lse: Array, weights: Array) -> Any:
    """Leave rows past the number of keys as the buffer was."""
    past = call.i >= max(call.keys, 1)
    return base.returned(call, np.where(past, 0, output), lse, np.where(past, 0, weights))


@wrong("check_axes", "SHAPE-6", "H")
def batch_axis_of_one_repeated(given: Given) -> Any:
    """Broadcast the batch axes of keys and values."""
    batch = given["query"].shape[:-3]
    repeated = {
        name: np.broadcast_to(given[name], (*batch, *given[name].shape[-3:]))
        for name in ("key", "value")
        if base_checks.broadcasts(given[name].shape[:-3], batch) and given["query"].ndim > 2
    }
    return base_checks.check_axes(given | repeated)


@wrong("check_axes", "SHAPE-6", "G")
def values_cut_to_the_keys(given: Given) -> Any:
    """Pass over values that have no key."""
    cut = given["value"][..., : given["key"].shape[-2], :] if given["value"].ndim > 1 else given["value"]
    return base_checks.check_axes(given | {"value": cut})


@wrong("check_axes", "SHAPE-6", "G")
def depth_of_the_shorter(given: Given) -> Any:
    """Sum over as many features as both have."""
    depth = min(given["query"].shape[-1], given["key"].shape[-1])
    cut = {name: given[name][..., :depth] for name in ("query", "key")}
    return base_checks.check_axes(given | cut)


@wrong("top", "SHAPE-7", "O", "Dao-AILab/flash-attention#2470")
def maximum_of_no_keys(call: Call, s: Array, allowed: Mask) -> Any:
    """Take the maximum of a row without saying what that of none is."""
    most = np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True)
    return base.top(call, most, np.ones(most.shape, dtype=bool))


@wrong("check_axes", "SHAPE-7", "O", "pytorch/pytorch#174939")
def no_batch_entries_refused(given: Given) -> Any:
    """Divide the work by the number of batch entries and heads."""
    need("query", 0 not in given["query"].shape[:-2], "a batch entry or more", given["query"].shape)
    return base_checks.check_axes(given)


@wrong("returned", "SHAPE-8", "H")
def lse_with_an_axis_of_one(call: Call, output: Array, lse: Array, weights: Array) -> Any:
    """Keep the axis that the sum was taken over."""
    return base.returned(call, output, lse[..., None], weights)
