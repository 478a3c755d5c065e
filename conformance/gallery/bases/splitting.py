"""Decoding: each split of the keys has its own output and lse. They are merged by the lse."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import Tile, of_one_sequence, slices
from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


def key_splits(loop: "Splits", call: Attention) -> list[slice]:
    """List the splits of the keys."""
    return slices(call.keys, loop.size)


def part(tile: Tile) -> Attention:
    """Slice the arrays of the split from those of the call."""
    return tile.call


def scored(_tile: Tile, call: Attention) -> Array:
    """Compute the scores of the split. All queries of a group are in one product with their key head."""
    *batch, heads, queries, depth = call.query.shape
    shared = call.key.shape[-3]
    query = call.query.reshape(*batch, shared, heads // shared * queries, depth)  # (*B, Hkv, G * L, D)
    x = (query @ np.swapaxes(call.key, -1, -2)).reshape(call.shape)
    s: Array = base.add_bias(call, base.cap(call, x * base.factor(call)))
    return s


def seen(_tile: Tile, call: Attention) -> Mask:
    """Return the allowed pairs of the split."""
    result: Mask = base.allowed_pairs(call)
    return result


def weighted(_tile: Tile, call: Attention, p: Array, allowed: Mask) -> Any:
    """Apply dropout, and sum the values of the split."""
    return base.weighted_sum(call, base.drop(call, p), allowed)


def finished(_tile: Tile, s: Array) -> tuple[Array, Array]:
    """Return the weights within the split, and its lse with an axis of 1, -inf without keys."""
    top = s.max(axis=-1, keepdims=True)
    shift = np.where(top == -np.inf, 0, top).astype(s.dtype)
    e = np.exp(s - shift)
    total = e.sum(axis=-1, keepdims=True)
    some = np.where(total == 0, 1, total)
    lse = np.where(total == 0, -np.inf, shift + np.log(some)).astype(s.dtype)
    return e / some, np.where(top == np.inf, np.inf, lse).astype(s.dtype)


def sunk(call: Attention, outputs: list[Array], lses: list[Array]) -> tuple[list[Array], list[Array]]:
    """Add the sink as one more split, without values."""
    if call.sinks is None:
        return outputs, lses
    sink = np.broadcast_to(call.sink, (*call.query.shape[:-1], 1))
    none = np.zeros((*call.query.shape[:-1], call.value.shape[-1]), call.query.dtype)
    return [*outputs, none], [*lses, sink]


def merged(_call: Attention, outputs: Array, lses: Array) -> tuple[Array, Array]:
    """Merge finished outputs by their lse, shifted by the largest: output and lse."""
    top = lses.max(axis=0)
    shares = np.exp(lses - np.where(top == -np.inf, 0, top))
    total = shares.sum(axis=0)
    some = np.where(total == 0, 1, total)
    # Infinity and NaN do not change, because 0 times them is NaN.
    output = np.where(np.isfinite(outputs), outputs * (shares / some), outputs).sum(axis=0)
    output = np.where(np.isnan(total), np.nan, output).astype(outputs.dtype)
    lse = np.where(total == 0, -np.inf, top + np.log(some))
    return output, np.where(top == np.inf, np.inf, lse).astype(lses.dtype)


@dataclass(frozen=True)
class Splits:
    """Decoding by splits. Each field except the first three is a step that an entry may replace."""

    name: str  # the suffix of the names of entries
    size: int  # the number of keys in a split
    queries: int = 1  # the largest number of queries for this path; the reference takes more
    key_splits: Callable[["Splits", Attention], list[slice]] = key_splits
    part: Callable[[Tile], Attention] = part
    scored: Callable[[Tile, Attention], Array] = scored
    seen: Callable[[Tile, Attention], Mask] = seen
    finished: Callable[[Tile, Array], tuple[Array, Array]] = finished
    weighted: Callable[[Tile, Attention, Array, Mask], Array] = weighted
    sunk: Callable[[Attention, list[Array], list[Array]], tuple[list[Array], list[Array]]] = sunk
    merged: Callable[[Attention, Array, Array], tuple[Array, Array]] = merged

    @property
    def words(self) -> str:
        """The base in the sentences of entries."""
        return (
            f"in splits of {self.size} keys for {self.queries} {'query' if self.queries == 1 else 'queries'}"
        )

    def attend(self, call: Attention) -> tuple[Array, Array, Array]:
        """Compute output, lse and weights."""
        if call.queries > self.queries or not call.keys:
            return base.attend(call)  # type: ignore[no-any-return] # the reference's steps are Any here
        call = of_one_sequence(call)
        splits = self.key_splits(self, call)
        outputs, lses, shares = [], [], []
        rows = slice(0, call.queries)
        for number, keys in enumerate(splits):
            tile = Tile(call, rows, keys, number, len(splits), (self.queries, self.size))
            own = self.part(tile)
            s, allowed = self.scored(tile, own), self.seen(tile, own)
            p, lse = self.finished(tile, np.where(allowed, s, -np.inf).astype(s.dtype))
            outputs.append(self.weighted(tile, own, p, np.broadcast_to(allowed, s.shape)))
            lses.append(lse)
            shares.append(base.drop(own, p))
        output, lse = self.merged(call, *map(np.stack, self.sunk(call, outputs, lses)))
        weights = np.zeros((*call.query.shape[:-1], call.keys if call.return_weights else 0), output.dtype)
        if call.return_weights:
            weights += np.where(np.isnan(lse) | (lse == np.inf), np.nan, 0)
            for keys, p, own_lse in zip(splits, shares, lses, strict=True):
                less = np.exp(own_lse - np.where(np.isinf(lse), 0, lse))
                weights[..., keys] = np.where(own_lse == -np.inf, 0, p * less) + weights[..., keys]
        return output, lse[..., 0].astype(call.query.dtype), weights

    def with_step(self, name: str, function: Callable[..., Any]) -> "Splits":
        """Replace a step."""
        changed: dict[str, Any] = {name: function}
        return replace(self, **changed)


DECODING = (Splits("decode_32", 32), Splits("decode_64", 64), Splits("decode_128", 128))
#: For several queries at once, as in speculative decoding.
FEW = Splits("decode_8_by_64", 64, queries=8)
