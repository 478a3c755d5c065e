"""Wrong about dropout."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, first, wrong
from attnspec.reference.notation import Attention


@wrong("allowed", "DROP-1", "J")
def dropped_before_the_softmax(call: Attention) -> Any:
    """Take the dropout mask for a mask, so that the other weights grow."""
    seen = base.allowed(call)
    return seen if call.dropout_mask is None else seen & call.dropout_mask


@wrong("dropped", "DROP-1", "J")
def kept_and_dropped_exchanged(call: Attention, p: Array) -> Any:
    """Drop where the mask is True."""
    return base.dropped(altered(call, dropout_mask=np.logical_not), p)


@wrong("dropped", "DROP-1", "H")
def dropout_of_the_first_head(call: Attention, p: Array) -> Any:
    """Let all heads have the dropout mask of the first."""
    return base.dropped(altered(call, dropout_mask=lambda mask: first(mask, -3)), p)


@wrong("dropped", "DROP-1", "J")
def dropped_weights_shared_out(call: Attention, p: Array) -> Any:
    """Normalise again after dropping."""
    kept = base.dropped(call, p)
    total = kept.sum(axis=-1, keepdims=True)
    return kept if call.dropout_mask is None else kept / np.where(total == 0, 1, total)


@wrong("dropped", "DROP-2", "J")
def kept_weights_left_as_they_are(call: Attention, p: Array) -> Any:
    """Forget to raise the kept weights."""
    return base.dropped(call.but(dropout_rate=0.0), p)


@wrong("dropped", "DROP-2", "J", "NVIDIA/apex#816")
def kept_weights_divided_by_the_rate(call: Attention, p: Array) -> Any:
    """Divide by the rate of dropping."""
    return base.dropped(call.but(dropout_rate=1 - call.dropout_rate if call.dropout_rate else 0.0), p)


@wrong("dropped", "DROP-2", "J")
def rate_counted_in_the_mask(call: Attention, p: Array) -> Any:
    """Divide by the share that the mask keeps."""
    if call.dropout_mask is None or not call.dropout_mask.any():
        return base.dropped(call, p)
    return base.dropped(call.but(dropout_rate=1 - call.dropout_mask.mean()), p)


@wrong("attend", "DROP-3", "J")
def lse_after_dropout(call: Attention) -> Any:
    """Add the logarithm of what is kept to the lse."""
    output, lse, p = base.attend(call)
    return output, lse if call.dropout_mask is None else lse + np.log(p.sum(axis=-1)), p


@wrong("attend", "DROP-3", "J")
def lse_of_the_rate(call: Attention) -> Any:
    """Divide the denominator by the rate of keeping, and not the weights."""
    output, lse, p = base.attend(call)
    return output, lse + np.log(1 - call.dropout_rate).astype(lse.dtype), p


@wrong("check_rate", "DROP-4", "J", "pytorch/pytorch#124464")
def rate_without_a_mask_ignored(call: Attention) -> Any:
    """Drop nothing if only a rate is given."""
    return base.check_rate(call if call.dropout_mask is not None else call.but(dropout_rate=0.0))


@wrong("check_rate", "DROP-4", "U")
def rate_of_one_taken(call: Attention) -> Any:
    """Keep nothing at a rate of 1, and divide by 0."""
    if call.dropout_rate != 1 or call.dropout_mask is None:
        return base.check_rate(call)
    return call.but(dropout_mask=np.zeros_like(call.dropout_mask), dropout_rate=0.0)


@wrong("dropped", "DROP-2", "J")
def raised_by_the_share_that_was_kept(call: Attention, p: Array) -> Any:
    """Divide by how much of the mask is True, not by one minus the rate."""
    if call.dropout_mask is None or not 0 < call.dropout_mask.mean() < 1:
        return base.dropped(call, p)
    return base.dropped(call.but(dropout_rate=1 - call.dropout_mask.mean()), p)
