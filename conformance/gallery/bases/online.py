"""Attention by nested loops over tiles of queries and tiles of keys, with a running maximum."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.tile import Tile, of_one_sequence, slices
from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention


@dataclass(frozen=True)
class State:
    """The sums of some rows so far: ``top`` and ``total`` (*B, Hq, L, 1), ``summed`` (*B, Hq, L, Dv)."""

    top: Array
    total: Array
    summed: Array


def row_tiles(one: "Online", call: Attention) -> list[slice]:
    """List the tiles of queries. Rows that are in no tile stay 0."""
    return slices(call.queries, one.sizes[0])


def key_tiles(one: "Online", call: Attention, _rows: slice) -> list[slice]:
    """List the tiles of keys that some queries visit, in order."""
    return slices(call.keys, one.sizes[1])


def part(tile: Tile) -> Attention:
    """Slice the arrays of the tile from those of the call."""
    return tile.call


def scored(_tile: Tile, call: Attention) -> Array:
    """Compute the tile's scores."""
    s: Array = base.scored(call)
    return s


def seen(_tile: Tile, call: Attention) -> Mask:
    """Return the allowed pairs of the tile."""
    found: Mask = base.allowed(call)
    return found


def begun(call: Attention, rows: slice, dtype: Any) -> State:
    """Start with the sink, or with an empty sum."""
    count = rows.stop - rows.start
    shape = (*call.query.shape[:-2], count, 1)
    none = np.zeros((*shape[:-1], call.value.shape[-1]), dtype)
    if call.sinks is None:
        return State(np.full(shape, -np.inf, dtype), np.zeros(shape, dtype), none)
    top = np.broadcast_to(call.sink, shape).astype(dtype)
    return State(top, np.where(top == -np.inf, 0, 1).astype(dtype), none)


def raised(_tile: Tile, top: Array, s: Array) -> Array:
    """Return the larger of the running maximum and that of the tile. Masked scores are -inf."""
    found: Array = np.maximum(top, s.max(axis=-1, keepdims=True))
    return found


def shift_of(_tile: Tile, top: Array) -> Array:
    """Replace a maximum of minus infinity by 0, because subtracting it gives NaN."""
    return np.where(top == -np.inf, 0, top).astype(top.dtype)


def factor(_tile: Tile, before: Array, shift: Array) -> Array:
    """Return the factor of the sums when the maximum rises."""
    found: Array = np.exp(before - shift)
    return found


def rescaled(_tile: Tile, summed: Array, less: Array) -> Array:
    """Rescale the values summed so far. Infinite sums do not change, because 0 times infinity is NaN."""
    return np.where(np.isfinite(summed), summed * less, summed)


def exponentials(_tile: Tile, s: Array, shift: Array) -> Array:
    """Compute the part of the denominator of the tile, key by key."""
    e: Array = np.exp(s - shift)
    return e


def weighted(_tile: Tile, call: Attention, e: Array, allowed: Mask) -> Array:
    """Apply dropout, and sum the values of the tile."""
    found: Array = base.weighted(call, base.dropped(call, e), allowed)
    return found


def ended(_call: Attention, state: State) -> tuple[Array, Array]:
    """Divide by the denominator, and compute its logarithm: return output, and lse with an axis of 1."""
    total = np.where(state.total == 0, 1, state.total)
    lse = np.where(state.total == 0, -np.inf, state.top + np.log(total))
    return state.summed / total, np.where(state.top == np.inf, np.inf, lse)


@dataclass(frozen=True)
class Online:
    """A loop over tiles. Each field except the first two is a step that an entry may replace.

    Attributes
    ----------
    name : str
        The suffix of the names of entries.
    sizes : pair of int
        The numbers of queries and of keys in a tile.
    """

    name: str
    sizes: tuple[int, int]
    row_tiles: Callable[["Online", Attention], list[slice]] = row_tiles
    key_tiles: Callable[["Online", Attention, slice], list[slice]] = key_tiles
    part: Callable[[Tile], Attention] = part
    scored: Callable[[Tile, Attention], Array] = scored
    seen: Callable[[Tile, Attention], Mask] = seen
    begun: Callable[[Attention, slice, Any], State] = begun
    raised: Callable[[Tile, Array, Array], Array] = raised
    shift_of: Callable[[Tile, Array], Array] = shift_of
    factor: Callable[[Tile, Array, Array], Array] = factor
    rescaled: Callable[[Tile, Array, Array], Array] = rescaled
    exponentials: Callable[[Tile, Array, Array], Array] = exponentials
    weighted: Callable[[Tile, Attention, Array, Mask], Array] = weighted
    ended: Callable[[Attention, State], tuple[Array, Array]] = ended

    @property
    def words(self) -> str:
        """The base in the sentences of entries."""
        return "in tiles of {} queries and {} keys".format(*self.sizes)

    def attend(self, call: Attention) -> tuple[Array, Array, Array]:
        """Compute output, lse and weights, the weights in a second pass."""
        call = of_one_sequence(call)
        dtype = np.result_type(*(array.dtype for array in _numbers(call)))
        output = np.zeros((*call.query.shape[:-1], call.value.shape[-1]), dtype)
        lse = np.zeros((*call.query.shape[:-1], 1), dtype)
        p = np.zeros(call.shape if call.return_weights else (), dtype)
        for rows in self.row_tiles(self, call):
            every = self.key_tiles(self, call, rows)
            tiles = [Tile(call, rows, keys, n, len(every), self.sizes) for n, keys in enumerate(every)]
            state = self.begun(call, rows, dtype)
            for tile in tiles:
                state = self.added(tile, state)
            output[..., rows, :], lse[..., rows, :] = self.ended(call, state)
            if call.return_weights:
                p[..., rows, :] = np.where(np.isnan(state.total), np.nan, 0)
                for tile in tiles:
                    p[..., rows, tile.keys] = self.weights(tile, state)
        return output, lse[..., 0].astype(call.query.dtype), p

    def added(self, tile: Tile, state: State) -> State:
        """Add a tile to the sums."""
        call, s, allowed = self._masked(tile)
        top = self.raised(tile, state.top, s)
        shift = self.shift_of(tile, top)
        less, e = self.factor(tile, state.top, shift), self.exponentials(tile, s, shift)
        summed = self.rescaled(tile, state.summed, less)
        total = state.total * less + e.sum(axis=-1, keepdims=True)
        return State(top, total, summed + self.weighted(tile, call, e, allowed))

    def weights(self, tile: Tile, state: State) -> Array:
        """Compute the weights of a tile from the sums of all tiles."""
        call, s, _ = self._masked(tile)
        e = self.exponentials(tile, s, self.shift_of(tile, state.top))
        p: Array = base.dropped(call, e / np.where(state.total == 0, 1, state.total))
        return p

    def _masked(self, tile: Tile) -> tuple[Attention, Array, Mask]:
        call = self.part(tile)
        s, allowed = self.scored(tile, call), self.seen(tile, call)
        return call, np.where(allowed, s, -np.inf).astype(s.dtype), np.broadcast_to(allowed, s.shape)

    def with_step(self, name: str, function: Callable[..., Any]) -> "Online":
        """Replace a step."""
        changed: dict[str, Any] = {name: function}
        return replace(self, **changed)


def _numbers(call: Attention) -> list[Array]:
    found = [call.query]
    if call.bias is not None:
        found.append(base.wide(call, call.bias))
    if call.sinks is not None:
        found.append(base.wide(call, call.sinks))
    return found


#: The loops by the numbers of queries and of keys in a tile.
SQUARE, WIDE, TALL = Online("32x32", (32, 32)), Online("64x128", (64, 128)), Online("128x64", (128, 64))
TILED = (SQUARE, WIDE, TALL)
