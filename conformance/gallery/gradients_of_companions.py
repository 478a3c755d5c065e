"""Wrong about the gradients of companions: merging, rotary embedding and multi-head attention."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Call
from attnspec.reference.positions import Rotary


@wrong("d_levels", "GRAD-21", "I")
def cotangent_of_the_merged_lse_ignored(call: Call, w: Array, r: Array, delta: Array, h: Array) -> Any:
    """Pass nothing of the merged lse's cotangent on to the lses of the parts."""
    return base.d_levels(call, w, r, delta, np.zeros_like(h))


@wrong("d_levels", "GRAD-21", "I")
def cotangent_of_the_merged_lse_for_every_part(
    _call: Call, w: Array, r: Array, delta: Array, h: Array
) -> Any:
    """Give each part the whole cotangent of the merged lse, without its share."""
    return w * (r - delta) + h


@wrong("d_levels", "GRAD-21", "I")
def lses_taken_as_constants(call: Call, w: Array, r: Array, _delta: Array, h: Array) -> Any:
    """Take the shares of the parts as constants, so that the output moves no lse."""
    return base.d_levels(call, w, r, r, h)


@wrong("parted", "GRAD-21", "I")
def cotangent_for_every_part(call: Call, outputs: Array, lses: Array, g: Array, h: Array) -> Any:
    """Give the output of each part the whole cotangent, without its share."""
    d_outputs, d_lses = base.parted(call, outputs, lses, g, h)
    whole = np.where((lses == -np.inf)[..., None], 0, np.broadcast_to(g, outputs.shape))
    return whole.astype(d_outputs.dtype), d_lses


@wrong("parted", "GRAD-21", "G")
def outputs_of_empty_parts_in_the_gradient(
    call: Call, outputs: Array, lses: Array, g: Array, h: Array
) -> Any:
    """Multiply the output of an empty part by its share of 0, which leaves NaN of NaN."""
    found = base.parted(call, outputs, lses, g, h)
    poisoned = (base.shares(call, lses) * (g * outputs).sum(axis=-1)).sum(axis=0)
    return found[0], found[1] + np.where(np.isnan(poisoned), poisoned, 0)


@wrong("turned_back", "GRAD-22", "Q")
def cotangent_turned_forwards(call: Rotary, g: Array) -> Any:
    """Turn the cotangent by the angle of the features, and not by its negative."""
    return base.rotated(call, g)


@wrong("turned_back", "GRAD-22", "Q")
def cotangent_past_the_rotary_depth_dropped(call: Rotary, g: Array) -> Any:
    """Give features past the rotary depth no gradient."""
    return np.where(np.arange(g.shape[-1]) < call.depth, base.turned_back(call, g), 0)


@wrong("turned_back", "GRAD-22", "Q")
def cotangent_turned_from_position_0(call: Rotary, g: Array) -> Any:
    """Count positions from 0 in the backward pass, whatever the offset."""
    return base.turned_back(call.but(offset=0), g)


@wrong("turned_back", "GRAD-22", "Q")
def cotangent_divided_by_the_factor(call: Rotary, g: Array) -> Any:
    """Invert the attention factor too, as if the gradient were the inverse of the rotation."""
    return base.turned_back(call.but(attention_factor=1 / call.attention_factor), g)


@wrong("turned_back", "GRAD-22", "Q")
def cotangent_by_its_own_positions(call: Rotary, g: Array) -> Any:
    """Count positions from 0 in the backward pass, whatever positions are given."""
    return base.turned_back(call.but(positions=None), g)


@wrong("collected", "GRAD-23", "V")
def memory_without_its_keys(
    call: Call, by_query: Array, by_key: Array, by_value: Array, *, cross: bool
) -> Any:
    """Lose what the keys pass on to the memory, or to the tokens without one."""
    return base.collected(call, by_query, np.zeros_like(by_key), by_value, cross=cross)


@wrong("collected", "GRAD-23", "V")
def tokens_from_queries_alone(
    call: Call, by_query: Array, by_key: Array, by_value: Array, *, cross: bool
) -> Any:
    """Take tokens without a memory for queries only."""
    found = base.collected(call, by_query, by_key, by_value, cross=cross)
    return found if cross else (by_query, None)


@wrong("d_shift", "GRAD-23", "H")
def bias_of_the_first_entry(call: Call, d: Array) -> Any:
    """Sum the gradient of a bias over only the positions of the first batch entry."""
    return base.d_shift(call, d[:1] if d.ndim > 2 else d)


@wrong("d_weight", "GRAD-23", "V")
def gradient_of_a_square_weight_transposed(call: Call, inputs: Array, d: Array, convention: str) -> Any:
    """Give a square weight the transpose of its gradient."""
    found = base.d_weight(call, inputs, d, convention)
    return found.T if found.shape[0] == found.shape[1] else found


@wrong("d_weight", "GRAD-23", "V")
def gradient_of_a_linear_layer_in_rows(call: Call, inputs: Array, d: Array, convention: str) -> Any:
    """Give a square weight of a linear layer the gradient of one in the row convention."""
    square = inputs.shape[-1] == d.shape[-1]
    return base.d_weight(call, inputs, d, "row" if square else convention)


@wrong("d_projected", "GRAD-23", "V")
def square_weight_not_transposed_on_the_way_back(call: Call, d: Array, weight: Array, convention: str) -> Any:
    """Go back through a square weight as forwards through it."""
    square = weight.shape[0] == weight.shape[1]
    return (
        d @ (weight if convention == "row" else weight.T)
        if square
        else base.d_projected(call, d, weight, convention)
    )
