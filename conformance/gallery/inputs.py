"""Wrong about the arrays of the caller: overwritten, or refused although they are valid."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import base, wrong
from attnspec.reference.errors import need
from attnspec.reference.notation import Attention


@wrong("entered", "NUM-4", "L")
def scores_added_into_the_bias(call: Attention) -> Any:
    """Take a bias of the scores' shape and dtype for the buffer that scores are added into."""
    before = base.entered(call.but(bias=None if call.bias is None else call.bias.copy()))
    bias = call.bias
    if bias is not None and bias.size and bias.shape == call.shape and bias.dtype == call.query.dtype:
        bias += bias.dtype.type(1)
    return before


@wrong("entered", "NUM-4", "R")
def masks_joined_in_place(call: Attention) -> Any:
    """Write the causal mask into a mask of the scores' shape."""
    mask = call.mask
    if mask is not None and mask.shape == call.shape and call.is_causal:
        mask &= base.by_causality(base.entered(call))
    return base.entered(call)


@wrong("entered", "NUM-4", "H")
def keys_scaled_in_place(call: Attention) -> Any:
    """Write the scaled keys over the keys."""
    before = base.entered(call.but(key=call.key.copy()))
    if call.key.flags.writeable and np.isfinite(call.key).all():
        call.key[...] *= call.key.dtype.type(base.factor(call))
    return before


@wrong("entered", "NUM-4", "G")
def values_past_the_length_cleared_in_place(call: Attention) -> Any:
    """Write 0 over the values past a key length, to keep what is there out of the sum."""
    before = base.entered(call.but(value=call.value.copy()))
    if call.key_lengths is not None and call.value.ndim > 2:
        past = ~np.asarray(base.by_key_lengths(before))  # (*B, 1, 1, S) or (S,)
        past = past[..., 0, :] if past.ndim > 1 else past
        np.copyto(call.value, 0, where=past[..., None])
    return before


@wrong("check_axes", "SHAPE-5", "U")
def more_queries_than_keys_refused(call: Attention) -> Any:
    """Ask for as many keys as queries, or more."""
    enough = call.key.shape[-2] >= call.query.shape[-2]
    return _asking(call, "key", enough, "as many positions as query", "SHAPE-5")


@wrong("check_axes", "SHAPE-5", "U")
def other_numbers_of_keys_refused(call: Attention) -> Any:
    """Ask for as many keys as queries."""
    equal = call.key.shape[-2] == call.query.shape[-2]
    return _asking(call, "key", equal, "as many positions as query", "SHAPE-5")


@wrong("check_axes", "SHAPE-3", "P")
def values_of_another_depth_refused(call: Attention) -> Any:
    """Ask for values as deep as the queries."""
    equal = call.value.shape[-1] == call.query.shape[-1]
    return _asking(call, "value", equal, "the depth of query", "SHAPE-3")


@wrong("check_axes", "SHAPE-1", "H")
def several_batch_axes_refused(call: Attention) -> Any:
    """Ask for one batch axis at most."""
    return _asking(call, "query", call.query.ndim <= 4, "four axes at most", "SHAPE-1")


@wrong("check_axes", "SHAPE-7", "O")
def no_keys_refused(call: Attention) -> Any:
    """Ask for a key or more."""
    return _asking(call, "key", call.key.shape[-2] > 0, "a position or more", "SHAPE-7")


@wrong("check_axes", "SHAPE-7", "O")
def no_queries_refused(call: Attention) -> Any:
    """Ask for a query or more."""
    return _asking(call, "query", call.query.shape[-2] > 0, "a position or more", "SHAPE-7")


@wrong("check_heads", "HEAD-1", "D")
def shared_heads_refused(call: Attention) -> Any:
    """Ask for as many key heads as query heads, or for one."""
    if call.query.ndim > 2:
        need(
            "key",
            call.key.shape[-3] in (1, call.query.shape[-3]),
            "one head or all",
            call.key.shape,
            "HEAD-1",
        )
    return base.check_heads(call)


@wrong("check_masks", "MASK-1", "H")
def mask_of_few_axes_refused(call: Attention) -> Any:
    """Ask for a mask with all axes of the scores."""
    if call.mask is not None:
        need("mask", call.mask.ndim == len(call.shape), "all axes of the scores", call.mask.shape, "MASK-1")
    return base.check_masks(call)


@wrong("check_bias", "SCORE-4", "H")
def bias_of_few_axes_refused(call: Attention) -> Any:
    """Ask for a bias with all axes of the scores."""
    if call.bias is not None:
        need("bias", call.bias.ndim == len(call.shape), "all axes of the scores", call.bias.shape, "SCORE-4")
    return base.check_bias(call)


@wrong("check_integers", "MASK-7", "U")
def negative_offset_refused(call: Attention) -> Any:
    """Ask for an offset from 0 on."""
    need("query_offset", np.all(np.asarray(call.query_offset) >= 0), "0 or more", call.query_offset, "MASK-7")
    return base.check_integers(call)


def _asking(call: Attention, name: str, good: bool, expected: str, rule: str) -> Any:  # noqa: FBT001 - as `need`
    """Refuse a call because of the shape of an array, or continue like the reference."""
    need(name, good, expected, getattr(call, name).shape, rule)
    return base.check_axes(call)
