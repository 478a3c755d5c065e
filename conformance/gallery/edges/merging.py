"""Wrong about merging splits: sinks, shares, the lse, precision, and empty splits."""

import numpy as np

from attnspec.conformance.gallery.bases import splitting
from attnspec.conformance.gallery.bases.splitting import DECODING, FEW
from attnspec.conformance.gallery.bases.tile import Tile
from attnspec.conformance.gallery.edges.entering import on
from attnspec.conformance.gallery.entry import Array
from attnspec.reference.notation import Attention

_SMALL, _MIDDLE, _LARGE = DECODING
Lists = tuple[list[Array], list[Array]]
Merged = tuple[Array, Array]


@on("sunk", "SOFT-5", "M", *DECODING, FEW)
def sink_in_every_split(call: Attention, outputs: list[Array], lses: list[Array]) -> Lists:
    """Count the sink once for each split."""
    if call.sinks is None:
        return outputs, lses
    for _ in range(len(outputs)):
        outputs, lses = splitting.sunk(call, outputs, lses)
    return outputs, lses


@on("sunk", "SOFT-5", "M", _SMALL, _MIDDLE)
def sink_where_there_is_one_split(call: Attention, outputs: list[Array], lses: list[Array]) -> Lists:
    """Forget the sink where several splits are merged."""
    return splitting.sunk(call if len(outputs) == 1 else call.but(sinks=None), outputs, lses)


@on("sunk", "SOFT-5", "M", _MIDDLE, _LARGE)
def sinks_of_key_heads(call: Attention, outputs: list[Array], lses: list[Array]) -> Lists:
    """Read the sink of the number of the key head for all heads of its group, past one split."""
    if call.sinks is None or len(outputs) == 1:
        return splitting.sunk(call, outputs, lses)
    group = call.query.shape[-3] // call.key.shape[-3]
    heads = np.arange(call.query.shape[-3]) // group
    return splitting.sunk(call.but(sinks=call.sinks[heads]), outputs, lses)


@on("merged", "SOFT-6", "I", _SMALL, _LARGE)
def lse_of_the_last_split(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Return the lse of the last split."""
    return splitting.merged(call, outputs, lses)[0], lses[-1 if call.sinks is None else -2]


@on("merged", "SOFT-6", "I", *DECODING)
def largest_lse_for_that_of_all(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Return the largest lse of the splits for that of all keys."""
    return splitting.merged(call, outputs, lses)[0], lses.max(axis=0)


@on("merged", "SOFT-2", "C", _MIDDLE, _LARGE)
def merged_without_a_shift(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Merge several splits by the exponentials of their lse as it is."""
    if len(lses) == 1:
        return splitting.merged(call, outputs, lses)
    shares = np.exp(lses)
    total = shares.sum(axis=0)
    output = (outputs * shares).sum(axis=0) / np.where(total == 0, 1, total)
    return output.astype(outputs.dtype), np.log(total).astype(lses.dtype)


@on("merged", "NUM-3", "I", _SMALL, _LARGE)
def merged_by_the_shares_of_one_head(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Merge all heads by the lse of the first."""
    first = np.broadcast_to(lses[..., :1, :, :], lses.shape)
    output, lse = splitting.merged(call, outputs, lses)
    return splitting.merged(call, outputs, first)[0] if len(lses) > 1 else output, lse


@on("merged", "HEAD-1", "D", _SMALL, _MIDDLE)
def merged_by_the_shares_of_sixteen_heads(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Keep the lse of splits for sixteen heads, and read them over and over."""
    output, lse = splitting.merged(call, outputs, lses)
    heads = np.arange(lses.shape[-3]) % 16
    return splitting.merged(call, outputs, lses[..., heads, :, :])[0] if len(lses) > 1 else output, lse


@on("merged", "NUM-3", "C", *DECODING)
def outputs_of_splits_in_storage(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Hold the outputs of several splits in half precision."""
    short = outputs if len(lses) == 1 else outputs.astype(np.float16).astype(outputs.dtype)
    return splitting.merged(call, short, lses)


@on("merged", "NUM-2", "C", _SMALL, _LARGE)
def splits_merged_in_float32(call: Attention, outputs: Array, lses: Array) -> Merged:
    """Merge several splits in float32 whatever the inputs are."""
    if len(lses) == 1:
        return splitting.merged(call, outputs, lses)
    output, lse = splitting.merged(call, outputs.astype(np.float32), lses.astype(np.float32))
    return output.astype(outputs.dtype), lse.astype(lses.dtype)


@on("finished", "MASK-6", "B", _SMALL, _MIDDLE)
def empty_split_is_nan(tile: Tile, s: Array) -> Merged:
    """Divide 0 by 0 in a split without allowed keys, where there are several."""
    p, lse = splitting.finished(tile, s)
    return np.where((lse == -np.inf) & (tile.count > 1), np.nan, p).astype(p.dtype), lse


@on("finished", "MASK-1", "B", _MIDDLE, _LARGE)
def empty_split_counts_as_one_key(tile: Tile, s: Array) -> Merged:
    """Give a split without allowed keys an lse of 0, where there are several."""
    p, lse = splitting.finished(tile, s)
    return p, np.where((lse == -np.inf) & (tile.count > 1), 0, lse).astype(lse.dtype)


@on("finished", "SOFT-6", "G", *DECODING)
def tail_divided_by_a_whole_split(tile: Tile, s: Array) -> Merged:
    """Count the padding of the tail, with scores of 0, in its sum."""
    p, lse = splitting.finished(tile, s)
    more = tile.sizes[1] - s.shape[-1] if tile.is_short else 0
    padded = np.logaddexp(lse, np.log(more)).astype(lse.dtype) if more else lse
    less = np.exp(lse - np.where(padded == -np.inf, 0, padded))
    return (p * less).astype(p.dtype), padded


@on("finished", "SOFT-2", "G", _SMALL, _MIDDLE)
def maximum_of_a_split_from_0(tile: Tile, s: Array) -> Merged:
    """Begin the search for the largest score of a split with 0, where there are several."""
    if tile.count == 1:
        return splitting.finished(tile, s)
    top = np.maximum(s.max(axis=-1, keepdims=True), 0)
    e = np.exp(s - top)
    total = e.sum(axis=-1, keepdims=True)
    some = np.where(total == 0, 1, total)
    return e / some, np.where(total == 0, -np.inf, top + np.log(some)).astype(s.dtype)
