"""Wrong about dropout."""

from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.conformance.gallery import base, base_checks, base_masking
from attnspec.conformance.gallery.base import Array, Call
from attnspec.conformance.gallery.base_checks import Given
from attnspec.conformance.gallery.entry import altered, first, wrong


@wrong("allowed", "DROP-1", "J")
def dropped_before_the_softmax(call: Call) -> Any:
    """Take the dropout mask for a mask, so that the other weights grow."""
    seen = base_masking.allowed(call)
    return seen if call.dropout_mask is None else seen & call.dropout_mask


@wrong("dropped", "DROP-1", "J")
def kept_and_dropped_exchanged(call: Call, p: Array) -> Any:
    """Drop where the mask is True."""
    return base.dropped(altered(call, dropout_mask=np.logical_not), p)


@wrong("dropped", "DROP-1", "H")
def dropout_of_the_first_head(call: Call, p: Array) -> Any:
    """Let all heads have the dropout mask of the first."""
    return base.dropped(altered(call, dropout_mask=lambda mask: first(mask, -3)), p)


@wrong("dropped", "DROP-1", "J")
def dropped_weights_shared_out(call: Call, p: Array) -> Any:
    """Normalise again after dropping."""
    kept = base.dropped(call, p)
    total = kept.sum(axis=-1, keepdims=True)
    return kept if call.dropout_mask is None else kept / np.where(total == 0, 1, total)


@wrong("dropped", "DROP-2", "J")
def kept_weights_left_as_they_are(call: Call, p: Array) -> Any:
    """Forget to raise the kept weights."""
    return base.dropped(replace(call, dropout_rate=0.0), p)


@wrong("dropped", "DROP-2", "J", "NVIDIA/apex#816")
def kept_weights_divided_by_the_rate(call: Call, p: Array) -> Any:
    """Divide by the rate of dropping."""
    return base.dropped(replace(call, dropout_rate=1 - call.dropout_rate if call.dropout_rate else 0.0), p)


@wrong("dropped", "DROP-2", "J")
def rate_counted_in_the_mask(call: Call, p: Array) -> Any:
    """Divide by the share that the mask keeps."""
    if call.dropout_mask is None or not call.dropout_mask.any():
        return base.dropped(call, p)
    return base.dropped(replace(call, dropout_rate=1 - call.dropout_mask.mean()), p)


@wrong("attend", "DROP-3", "J")
def lse_after_dropout(call: Call) -> Any:
    """Add the logarithm of what is kept to the lse."""
    output, lse, p = base.attend(call)
    kept = p.sum(axis=-1)
    return output, np.where(kept > 0, lse + np.log(kept), lse) if call.dropout_mask is not None else lse, p


@wrong("attend", "DROP-3", "J")
def lse_of_the_rate(call: Call) -> Any:
    """Divide the denominator by the rate of keeping, and not the weights."""
    output, lse, p = base.attend(call)
    return output, lse + np.log(1 - call.dropout_rate).astype(lse.dtype), p


@wrong("check_rate", "DROP-4", "J", "pytorch/pytorch#124464")
def rate_without_a_mask_ignored(given: Given) -> Any:
    """Drop nothing where a rate is given alone."""
    return base_checks.check_rate(
        given if given["dropout_mask"] is not None else given | {"dropout_rate": 0.0}
    )


@wrong("check_rate", "DROP-4", "U")
def rate_of_one_taken(given: Given) -> Any:
    """Keep nothing at a rate of 1, and divide by 0."""
    if given["dropout_rate"] != 1 or given["dropout_mask"] is None:
        return base_checks.check_rate(given)
    return given | {"dropout_mask": np.zeros_like(given["dropout_mask"]), "dropout_rate": 0.0}


@wrong("dropped", "DROP-2", "J")
def raised_by_the_share_that_was_kept(call: Call, p: Array) -> Any:
    """Divide by how much of the mask is True, not by one minus the rate."""
    if call.dropout_mask is None or not 0 < call.dropout_mask.mean() < 1:
        return base.dropped(call, p)
    return base.dropped(replace(call, dropout_rate=1 - call.dropout_mask.mean()), p)
