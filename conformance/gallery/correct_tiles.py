"""Correct entries with another algorithm: tile by tile, part by part, row by row, key by key."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, correct
from attnspec.reference.call import Call, Mask
from attnspec.reference.notation import Attention

_NO_WEIGHTS = ("return_weights",)


@dataclass(frozen=True)
class Partial:
    """The sums over some keys: ``top`` and ``total`` (*B, Hq, L, 1), ``output`` (*B, Hq, L, Dv)."""

    top: Array
    total: Array
    output: Array

    def __add__(self, other: "Partial") -> "Partial":
        """Add two sums, shifted by the larger maximum."""
        top = np.maximum(self.top, other.top)
        shift = np.where(top == -np.inf, 0, top)
        own, its = np.exp(self.top - shift), np.exp(other.top - shift)
        total = self.total * own + other.total * its
        return Partial(top, total, self.output * own + other.output * its)

    @property
    def result(self) -> tuple[Array, Array]:
        """Output and lse."""
        shift = np.where(self.top == -np.inf, 0, self.top)
        lse: Array = (shift + np.log(self.total))[..., 0]
        return self.output / np.where(self.total == 0, 1, self.total), lse


@dataclass(frozen=True)
class Whole:
    """The arrays of a call that parts use: scores, allowed keys, values, and factors of dropout.

    With `short` the exponentials are rounded to the dtype of the query.
    """

    call: Attention
    s: Array
    allowed: Mask
    value: Array
    kept: Array
    short: bool = False

    def part(self, keys: slice) -> Partial:
        """Attend to some of the keys."""
        seen = self.allowed[..., keys]
        s = np.where(seen, self.s[..., keys], -np.inf).astype(self.s.dtype)
        top = s.max(axis=-1, keepdims=True, initial=-np.inf)
        e = np.exp(s - np.where(top == -np.inf, 0, top))
        p = e.astype(self.call.storage).astype(e.dtype) if self.short else e
        p = p * self.kept[..., keys]
        value = np.where(seen[..., None], self.value[..., None, keys, :], 0)
        return Partial(top, e.sum(axis=-1, keepdims=True), (p[..., None] * value).sum(axis=-2))

    def tiles(self, size: int) -> Iterable[slice]:
        """Divide the keys into tiles."""
        return (slice(start, start + size) for start in range(0, self.call.keys, size))

    @property
    def sink(self) -> Partial:
        """Return the sums of each row without keys."""
        rows = (*self.s.shape[:-1], 1)
        none = np.zeros((*self.s.shape[:-1], self.value.shape[-1]), self.s.dtype)
        if self.call.sinks is None:
            return Partial(np.full(rows, -np.inf, self.s.dtype), np.zeros(rows, self.s.dtype), none)
        top = np.broadcast_to(self.call.sink, rows)
        return Partial(top, np.where(top == -np.inf, 0, 1).astype(self.s.dtype), none)


def _whole(call: Attention) -> Whole:
    s = base.score(call)
    value = np.broadcast_to(base.repeat_heads(call, call.value), (*s.shape[:-2], *call.value.shape[-2:]))
    kept = np.broadcast_to(base.drop(call, np.ones_like(s)), s.shape)
    return Whole(call, s, base.allowed_pairs(call), value, kept)


def _without_weights(partial: Partial) -> tuple[Array, Array, Array]:
    output, lse = partial.result
    return output, lse, np.zeros(())


@correct("attend", lacks=_NO_WEIGHTS)
def tiles_with_a_running_maximum(call: Attention) -> Any:
    """Take four keys at a time, and rescale what has been summed when the maximum rises."""
    whole = _whole(call)
    return _without_weights(reduce(Partial.__add__, map(whole.part, whole.tiles(4)), whole.sink))


@correct("attend", "cast", lacks=_NO_WEIGHTS)
def tiles_with_short_weights(call: Attention) -> Any:
    """Round the exponentials of a tile of 16 keys before dropout and values."""
    whole = replace(_whole(call), short=True)
    return _without_weights(reduce(Partial.__add__, map(whole.part, whole.tiles(16)), whole.sink))


@correct("attend", lacks=_NO_WEIGHTS)
def one_key_at_a_time(call: Attention) -> Any:
    """Hold no more than one key's share of the scores, from the last key to the first."""
    whole = _whole(call)
    keys = reversed(list(whole.tiles(1)))
    return _without_weights(reduce(Partial.__add__, map(whole.part, keys), whole.sink))


@correct("attend", lacks=_NO_WEIGHTS)
def empty_tiles_skipped(call: Attention) -> Any:
    """Leave out tiles of three keys that no query may attend to."""
    whole = _whole(call)
    tiles = (keys for keys in whole.tiles(3) if whole.allowed[..., keys].any())
    return _without_weights(reduce(Partial.__add__, map(whole.part, tiles), whole.sink))


@correct("attend", lacks=_NO_WEIGHTS)
def halves_of_halves(call: Attention) -> Any:
    """Attend to each half of the keys in the same way, and join the two."""
    whole = _whole(call)

    def result(start: int, stop: int) -> Partial:
        if stop - start <= 1:
            return whole.part(slice(start, stop))
        middle = (start + stop) // 2
        return result(start, middle) + result(middle, stop)

    return _without_weights(result(0, call.keys) + whole.sink)


@correct("attend", lacks=_NO_WEIGHTS)
def parts_merged_by_their_lse(call: Attention) -> Any:
    """Attend to three parts of the keys by themselves, and merge finished results by their lse."""
    whole = _whole(call)
    parts = [whole.part(keys).result for keys in whole.tiles(-(-call.keys // 3) or 1)]
    parts.append(whole.sink.result)
    outputs, lses = (np.stack(arrays) for arrays in zip(*parts, strict=True))
    return *base.merge(call, outputs, lses), np.zeros(())


@correct("attend", lacks=_NO_WEIGHTS)
def divided_at_the_end(call: Attention) -> Any:
    """Sum the values by their exponentials, and divide the sum."""
    s, allowed = base.score(call), base.allowed_pairs(call)
    top = base.top(call, s, allowed)
    e = base.exponentials(call, s, allowed, top)
    total = base.total(call, e, top)
    summed = base.weighted_sum(call, base.drop(call, e), allowed)
    return summed / np.where(total == 0, 1, total), base.lse(call, top, total), np.zeros(())


@correct("attend")
def two_passes(call: Attention) -> Any:
    """Find the denominators tile by tile first, and the weights in a second pass."""
    whole = _whole(call)
    partial = reduce(Partial.__add__, map(whole.part, whole.tiles(5)), whole.sink)
    shift = np.where(partial.top == -np.inf, 0, partial.top)
    e = np.where(whole.allowed, np.exp(whole.s - shift), 0)
    p = base.drop(call, e / np.where(partial.total == 0, 1, partial.total))
    return base.weighted_sum(call, p, whole.allowed), partial.result[1], p


@correct("attend")
def deleted_then_attended(call: Attention) -> Any:
    """Take from each row the keys that it may attend to, and attend to these with no mask at all."""
    whole = _whole(call)
    output = np.zeros((*whole.s.shape[:-1], whole.value.shape[-1]), whole.s.dtype)
    lse, p = np.full(whole.s.shape[:-1], -np.inf, whole.s.dtype), np.zeros_like(whole.s)
    sinks = None if call.sinks is None else np.broadcast_to(call.sink, (*whole.s.shape[:-1], 1))[..., 0]
    for row in np.ndindex(whole.s.shape[:-1]):  # (*B, Hq, L)
        (chosen,) = np.nonzero(whole.allowed[row])
        s = whole.s[row][chosen]
        extra = s[:0] if sinks is None else sinks[row][None]
        top = max(np.append(s, extra), default=-np.inf, key=lambda x: (np.isnan(x), x))
        if top == -np.inf:
            continue
        e = np.exp(s - top)
        total = e.sum() + np.exp(extra - top).sum()
        p[row][chosen] = e / total * whole.kept[row][chosen]
        output[row] = p[row][chosen] @ whole.value[row[:-1]][chosen]
        lse[row] = top + np.log(total)
    return output, lse, p


@correct("attend")
def one_query_at_a_time(call: Attention) -> Any:
    """Attend with each query by itself, as in decoding."""
    if call.queries < 2:
        return base.attend(call)
    allowed = base.allowed_pairs(call)
    given = {name: getattr(call, name) for name in ("bias", "dropout_mask")}
    full = {name: np.broadcast_to(array, call.shape) for name, array in given.items() if array is not None}
    full["mask"] = allowed  # it contains all sources
    none: dict[str, Any] = dict.fromkeys(
        (
            *("window", "query_lengths", "key_lengths", "query_segment_ids", "key_segment_ids"),
            *("query_positions", "key_positions"),
        )
    )
    rows = []
    for i in range(call.queries):
        rows_of: dict[str, Any] = {name: array[..., i : i + 1, :] for name, array in full.items()}
        row = call.but(query=call.query[..., i : i + 1, :], is_causal=False, **none, **rows_of)
        rows.append(base.attend(row))
    output, p = (np.concatenate([row[part] for row in rows], axis=-2) for part in (0, 2))
    return output, np.concatenate([row[1] for row in rows], axis=-1), p


@correct("attend")
def one_head_at_a_time(call: Attention) -> Any:
    """Attend in each query head of each batch entry by itself, with arrays of two axes."""
    groups = call.query.shape[-3] // call.key.shape[-3]
    s, allowed = base.score(call), base.allowed_pairs(call)
    output = np.zeros((*s.shape[:-1], call.value.shape[-1]), s.dtype)
    lse, p = np.zeros(s.shape[:-1], s.dtype), np.zeros_like(s)
    kept = np.broadcast_to(base.drop(call, np.ones_like(s)), s.shape)
    for head in np.ndindex(s.shape[:-2]):
        alone = call.but(
            query=call.query[head],
            value=call.value[(*head[:-1], head[-1] // groups)][None],
            sinks=None if call.sinks is None else np.asarray(call.sinks)[head[-1]][None],
        )
        weights, result = base.softmax_of(alone, s[head][None], allowed[head][None])
        lse[head] = result[0]
        p[head] = weights[0] * kept[head]
        value = np.where(allowed[head][..., None], alone.value[0], 0)  # (L, S, Dv)
        output[head] = np.einsum("ls,lsc->lc", p[head], value)
    return output, lse, p


@correct("select")
def selection_tile_by_tile(call: Call, scores: Any, places: int, candidates: Any) -> Any:
    """Select among the keys of a tile of 16 and those that are in the list so far."""
    lists = np.full((*scores.shape[:-1], places), -1)
    for start in range(0, scores.shape[-1], 16):
        tile = np.arange(start, min(start + 16, scores.shape[-1]))
        keys = np.concatenate([np.broadcast_to(tile, (*lists.shape[:-1], len(tile))), lists], axis=-1)
        known = np.take_along_axis(candidates, keys, axis=-1) & (keys >= 0)
        chosen = base.select(call, np.take_along_axis(scores, keys, axis=-1), places, known)
        lists = np.where(chosen >= 0, np.take_along_axis(keys, chosen, axis=-1), -1)
    return lists
