"""Attention by nested loops over tiles of queries and tiles of keys, with a running maximum."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.call import Mask
from attnspec.reference.notation import Attention
from attnspec.reference.packing import Packed

#: A call of attention, or of a class that has more arguments.
A = TypeVar("A", bound=Attention)


@dataclass(frozen=True)
class Tile:
    """Some queries and some keys of a call."""

    whole: Attention  # the call, in the working precision
    rows: slice
    keys: slice
    number: int = 0  # its place among the visited tiles of keys
    count: int = 1  # the number of these tiles
    sizes: tuple[int, int] = (1, 1)  # the numbers of queries and of keys in a whole tile

    @property
    def call(self) -> Attention:
        """The call of only these queries and keys."""
        return cut(self.whole, self.rows, self.keys)

    @property
    def is_short(self) -> bool:
        """Whether it is the remainder after the whole tiles of keys."""
        return bool(self.keys.start > 0 and self.keys.stop - self.keys.start < self.sizes[1])

    @property
    def is_last(self) -> bool:
        """Whether it is the last of several visited tiles of keys."""
        return self.number > 0 and self.number == self.count - 1


def of_one_sequence(call: Attention) -> Attention:
    """Replace the positions of packed sequences by a mask, because a tile counts positions from one row."""
    if not isinstance(call, Packed):
        return call
    own = {field.name: getattr(call, field.name) for field in fields(Attention)}
    return Attention(**own | {"mask": base.allowed_pairs(call), "is_causal": False, "window": None})


def has_positions(call: Attention) -> bool:
    """Whether positions of queries or keys are given, which need not be those of the memory."""
    return call.query_positions is not None or call.key_positions is not None


def with_positions(call: A) -> A:
    """Return the call with positions of both queries and keys, because a tile counts from its first one."""
    rows = np.broadcast_to(base.position(call), (*call.batch, 1, call.queries, 1))[..., 0, :, 0]
    places = np.broadcast_to(base.key_position(call), (*call.batch, 1, 1, call.keys))[..., 0, 0, :]
    return call.but(query_positions=rows, key_positions=places, query_offset=0)


def cut(call: Attention, rows: slice, keys: slice) -> Attention:
    """Slice some queries and keys from a call, with their parts of the options."""
    placed = has_positions(call)
    call = with_positions(call) if placed else call
    changes: dict[str, Any] = {
        "query": call.query[..., rows, :],
        "key": call.key[..., keys, :],
        "value": call.value[..., keys, :],
        "query_offset": 0 if placed else call.query_offset + rows.start - keys.start,
    }
    for name, start in (("query_lengths", rows.start), ("key_lengths", keys.start)):
        if getattr(call, name) is not None:
            changes[name] = getattr(call, name) - start
    for name, part in (
        *(("query_segment_ids", rows), ("key_segment_ids", keys)),
        *(("query_positions", rows), ("key_positions", keys)),
    ):
        if getattr(call, name) is not None:
            changes[name] = getattr(call, name)[..., part]
    for name in ("mask", "bias", "dropout_mask"):
        if getattr(call, name) is not None:
            changes[name] = part_of(getattr(call, name), rows, keys)
    return call.but(**changes)


def part_of(array: Array, rows: slice, keys: slice) -> Array:
    """Slice the last two axes, if they exist, of an array that broadcasts to the scores."""
    if array.ndim > 0 and array.shape[-1] != 1:
        array = array[..., keys]
    if array.ndim > 1 and array.shape[-2] != 1:
        array = array[..., rows, :]
    return array


def slices(count: int, size: int) -> list[slice]:
    """Divide a range into tiles. An empty range has one empty tile."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True)
class State:
    """The sums of some rows so far: ``top`` and ``total`` (*B, Hq, L, 1), ``summed`` (*B, Hq, L, Dv)."""

    top: Array
    total: Array
    summed: Array


def row_tiles(loop: "Online", call: Attention) -> list[slice]:
    """List the tiles of queries. Rows that are in no tile stay 0."""
    return slices(call.queries, loop.sizes[0])


def key_tiles(loop: "Online", call: Attention, _rows: slice) -> list[slice]:
    """List the tiles of keys that some queries visit, in order."""
    return slices(call.keys, loop.sizes[1])


def part(tile: Tile) -> Attention:
    """Slice the arrays of the tile from those of the call."""
    return tile.call


def scored(_tile: Tile, call: Attention) -> Array:
    """Compute the tile's scores."""
    s: Array = base.score(call)
    return s


def seen(_tile: Tile, call: Attention) -> Mask:
    """Return the allowed pairs of the tile."""
    result: Mask = base.allowed_pairs(call)
    return result


def begun(call: Attention, rows: slice, dtype: Any) -> State:
    """Start with the sink, or with an empty sum."""
    count = rows.stop - rows.start
    shape = (*call.query.shape[:-2], count, 1)
    none = np.zeros((*shape[:-1], call.value.shape[-1]), dtype)
    if call.sinks is None:
        return State(np.full(shape, -np.inf, dtype), np.zeros(shape, dtype), none)
    top = np.broadcast_to(call.sink, shape).astype(dtype)
    return State(top, np.where(top == -np.inf, 0, 1).astype(dtype), none)


def raised(_tile: Tile, top: Array, s: Array) -> Any:
    """Return the larger of the running maximum and that of the tile. Masked scores are -inf."""
    return np.maximum(top, s.max(axis=-1, keepdims=True))


def shift_of(_tile: Tile, top: Array) -> Array:
    """Replace a maximum of minus infinity by 0, because subtracting it gives NaN."""
    return np.where(top == -np.inf, 0, top).astype(top.dtype)


def factor(_tile: Tile, before: Array, shift: Array) -> Any:
    """Return the factor of the sums when the maximum rises."""
    return np.exp(before - shift)


def rescaled(_tile: Tile, summed: Array, less: Array) -> Array:
    """Rescale the values summed so far. Infinite sums do not change, because 0 times infinity is NaN."""
    return np.where(np.isfinite(summed), summed * less, summed)


def exponentials(_tile: Tile, s: Array, shift: Array) -> Array:
    """Compute the part of the denominator of the tile, key by key."""
    e: Array = np.exp(s - shift)
    return e


def weighted(_tile: Tile, call: Attention, e: Array, allowed: Mask) -> Any:
    """Apply dropout, and sum the values of the tile."""
    return base.weighted_sum(call, base.drop(call, e), allowed)


def ended(_call: Attention, state: State) -> tuple[Array, Array]:
    """Divide by the denominator, and compute its logarithm: return output, and lse with an axis of 1."""
    total = np.where(state.total == 0, 1, state.total)
    lse = np.where(state.total == 0, -np.inf, state.top + np.log(total))
    return state.summed / total, np.where(state.top == np.inf, np.inf, lse)


@dataclass(frozen=True)
class Online:
    """A loop over tiles. Each field except the first two is a step that an entry may replace."""

    name: str  # the suffix of the names of entries
    sizes: tuple[int, int]  # the numbers of queries and of keys in a tile
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
        p: Array = base.drop(call, e / np.where(state.total == 0, 1, state.total))
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
    result = [call.query]
    if call.bias is not None:
        result.append(base.wide(call, call.bias))
    if call.sinks is not None:
        result.append(base.wide(call, call.sinks))
    return result


#: The loops by the numbers of queries and of keys in a tile.
SQUARE, WIDE, TALL = Online("32x32", (32, 32)), Online("64x128", (64, 128)), Online("128x64", (128, 64))
TILED = (SQUARE, WIDE, TALL)


def bounds(call: Attention) -> tuple[Any, Any]:
    """Return the smallest and the largest distance from a position to a key, or None for no limit."""
    left, right = call.window or (None, None)
    if call.is_causal:
        right = 0 if right is None else min(right, 0)
    return (None if left is None else -left), right


def positions(call: Attention, rows: slice) -> tuple[int, int]:
    """Return the first and the last position of some queries over all batch entries."""
    offsets = np.asarray(call.query_offset)
    if not offsets.size or rows.start == rows.stop:
        return 0, -1
    return int(offsets.min()) + rows.start, int(offsets.max()) + rows.stop - 1


def visited(loop: Online, call: Attention, rows: slice) -> list[slice]:
    """List the tiles that have a key that window, causal mask and lengths allow to some query."""
    (first, last), (least, most) = positions(call, rows), bounds(call)
    if has_positions(call):
        least = most = None
    begin = 0 if least is None else first + least
    end = call.keys if most is None else last + most + 1
    if call.key_lengths is not None:
        end = min(end, int(np.max(call.key_lengths, initial=0)))
    return [keys for keys in slices(call.keys, loop.sizes[1]) if keys.start < end and keys.stop > begin]


def masked_at_edges(tile: Tile, call: Attention) -> Mask:
    """Leave out window and causal mask if they allow every pair of the tile."""
    whole = tile.whole
    (first, last), (least, most) = positions(whole, tile.rows), bounds(whole)
    inside = least is None or tile.keys.start >= last + least
    inside = inside and (most is None or tile.keys.stop - 1 <= first + most) and not has_positions(whole)
    result: Mask = base.allowed_pairs(call.but(is_causal=False, window=None) if inside else call)
    return result


WINDOWED = Online("windowed_64x64", (64, 64), key_tiles=visited, seen=masked_at_edges)
WINDOWED_SMALL = Online("windowed_32x16", (32, 16), key_tiles=visited, seen=masked_at_edges)
