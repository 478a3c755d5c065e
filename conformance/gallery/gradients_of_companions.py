"""Wrong about the gradients of companions: of the merging of partial results, and of rotary embedding."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Call


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
def cotangent_turned_forwards(call: Call, g: Array, *rest: Any, **options: Any) -> Any:
    """Turn the cotangent by the angle of the features, and not by its negative."""
    return base.rotated(call, g, *rest, **options)


@wrong("turned_back", "GRAD-22", "Q")
def cotangent_past_the_rotary_depth_dropped(call: Call, g: Array, *rest: Any, **options: Any) -> Any:
    """Give features past the rotary depth no gradient."""
    _, _, depth = rest
    return np.where(np.arange(g.shape[-1]) < depth, base.turned_back(call, g, *rest, **options), 0)


@wrong("turned_back", "GRAD-22", "Q")
def cotangent_turned_from_position_0(call: Call, g: Array, offset: Any, *rest: Any, **options: Any) -> Any:
    """Count positions from 0 in the backward pass, whatever the offset."""
    return base.turned_back(call, g, 0 * np.asarray(offset), *rest, **options)
