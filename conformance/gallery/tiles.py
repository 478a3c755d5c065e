"""Wrong about loops over tiles: their ends, their remainders, and the masks of whole tiles."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, alter, base, family
from attnspec.reference.call import Mask, Step
from attnspec.reference.notation import Attention
from attnspec.reference.packing import Packed

#: Tiles of queries, and of keys.
_PAIRS = ((32, 16), (64, 16), (64, 32), (128, 32), (128, 64))

Named = tuple[str, str, Step]
_SIZES = (16, 32, 64, 128)


def _index(call: Attention) -> Any:
    """Return the number of each query, in its sequence, which an offset does not change: tiles follow it."""
    if isinstance(call, Packed):
        return base.place_in_sequence(call, call.query_starts, call.queries)[:, None]
    return call.i


def _remainder_of_keys(size: int) -> Named:
    def allowed(call: Attention) -> Any:
        return base.allowed_pairs(call) & ((call.j < call.keys // size * size) | (call.keys < size))

    text = f"Leave out the keys after the last whole tile of {size}."
    return f"keys_after_tiles_of_{size}_dropped", text, allowed


def _clamped_tile(size: int) -> Named:
    def attend(call: Attention) -> Any:
        more = -call.keys % size
        if call.keys <= size or not more:
            return base.attend(call)
        read = np.where(np.arange(call.keys) < call.keys - size + more, 0, -more) + np.arange(call.keys)
        rows = {name: getattr(call, name)[..., read, :] for name in ("key", "value")}

        def columns(array: Array) -> Array:
            return array if array.ndim == 0 or array.shape[-1] == 1 else array[..., read]

        return base.attend(alter(call.but(**rows), mask=columns, bias=columns, dropout_mask=columns))

    text = (
        f"Clamp the start of the last tile of {size} keys so that it is whole, and number its keys as if not."
    )
    return f"last_tile_of_{size}_keys_clamped", text, attend


def _one_tile_of_keys(size: int) -> Named:
    def allowed(call: Attention) -> Any:
        return base.allowed_pairs(call) & (call.j < size)

    return f"keys_past_{size}_dropped", f"Read the first {size} keys.", allowed


def _remainder_of_queries(size: int) -> Named:
    def weighted(call: Attention, p: Array, allowed: Mask) -> Any:
        whole = call.queries // size * size or call.queries
        return np.where(call.i < whole, base.weighted_sum(call, p, allowed), 0)

    name = f"queries_after_tiles_of_{size}_dropped"
    return name, f"Leave the rows after the last whole tile of {size} queries 0.", weighted


def _padding(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return pad(call, size) if call.keys > size else base.attend(call)

    text = f"Let the padding of the last tile of {size} keys into the sum, where there are several."
    return f"padding_of_tiles_of_{size}_in_the_sum", text, attend


def _padding_always(size: int) -> Named:
    name = f"padding_to_tiles_of_{size}_in_the_sum"
    sentence = f"Let the padding of the last tile of {size} keys into the sum."
    return name, sentence, lambda call: pad(call, size)


def _padding_beside_causality(size: int) -> Named:
    name = f"padding_of_causal_tiles_of_{size}_in_the_sum"
    sentence = f"Let causality take the place of the mask of padding in tiles of {size} keys."
    return name, sentence, lambda call: pad(call, size) if call.is_causal else base.attend(call)


def pad(call: Attention, size: int, shown: Any = None) -> Any:
    """Attend also to padding of 0 after the keys, unless a causal mask or a window disallows it.

    `shown` says which rows do, as a column; None stands for all.
    """
    more = -call.keys % size
    if not more:
        return base.attend(call)

    def fill(array: Array, number: Any) -> Array:
        if array.shape[-1] == 1:
            return array
        shape = np.broadcast_shapes(array.shape[:-1], np.shape(number)[:-1])
        parts = (array, np.asarray(number, array.dtype))
        return np.concatenate(
            [np.broadcast_to(x, (*shape, n)) for x, n in zip(parts, (array.shape[-1], more), strict=True)], -1
        )

    rows = {
        name: np.pad(getattr(call, name), [(0, 0)] * (call.key.ndim - 2) + [(0, more), (0, 0)])
        for name in ("key", "value")
    }
    longer = alter(
        call.but(**rows),
        mask=lambda mask: fill(mask, True if shown is None else shown),
        bias=lambda bias: fill(bias, 0),
        dropout_mask=lambda mask: fill(mask, True),
        key_segment_ids=lambda ids: fill(ids, 0),
    )
    output, lse, p = base.attend(longer)
    return output, lse, p[..., : call.keys]


def _depth(size: int) -> Named:
    def product(call: Attention) -> Any:
        return base.product(call.but(query=call.query[..., :size], key=call.key[..., :size]))

    return f"depth_past_{size}_dropped", f"Sum over the first {size} features.", product


REMAINDERS = family(_remainder_of_keys, "allowed_pairs", "SOFT-3", "G", *_SIZES)
CLAMPED = family(_clamped_tile, "attend", "SOFT-3", "G", *_SIZES)
ONE_TILE = family(_one_tile_of_keys, "allowed_pairs", "SOFT-3", "G", 16, 32, 128)
QUERIES = family(_remainder_of_queries, "weighted_sum", "SOFT-3", "G", 8, 32)
PADDINGS = family(_padding, "attend", "SOFT-3", "G", *_SIZES)
PADDINGS_ALWAYS = family(_padding_always, "attend", "SOFT-3", "G", 4, 8, *_SIZES)
PADDINGS_CAUSAL = family(_padding_beside_causality, "attend", "MASK-3", "G", 8, *_SIZES)
DEPTHS = family(_depth, "product", "SCORE-1", "G", 8, 32, 64)


def _first_tile_of(option: str) -> Any:
    def of_size(size: int) -> Named:
        def attend(call: Attention) -> Any:
            def again(array: Array) -> Array:
                return array if array.ndim == 0 or array.shape[-1] == 1 else array[..., call.j % size]

            return base.attend(alter(call, **{option: again}))

        words = option.replace("_", " ")
        name = f"{option}_of_the_first_tile_of_{size}"
        return name, f"Read the {words} from its first column in every tile of {size} keys.", attend

    return of_size


def _causal_from_the_first_row(sizes: tuple[int, int]) -> Named:
    rows, keys = sizes

    def by_causality(call: Attention) -> Any:
        start = _index(call) // rows * rows - _index(call)  # from each query to the first of its tile
        reached = call.j // keys * keys <= base.position(call) + start + keys - 1
        return base.by_causality(call) & (reached if call.is_causal else True)

    text = f"End the causal loop over tiles of {keys} keys as if tiles of {rows} queries were of {keys}."
    return f"causal_tiles_of_{rows}_queries_as_if_of_{keys}", text, by_causality


def _causal_without_the_offset(sizes: tuple[int, int]) -> Named:
    rows, keys = sizes

    def by_causality(call: Attention) -> Any:
        last = _index(call) // rows * rows + rows - 1
        return base.by_causality(call) & ((call.j // keys * keys <= last) | (not call.is_causal))

    name = f"causal_tiles_of_{rows}_queries_by_{keys}_keys_without_the_offset"
    sentence = f"End the causal loop over tiles of {keys} keys by the index of the last of {rows} queries."
    return name, sentence, by_causality


def _causal_from_the_first_query(size: int) -> Named:
    def by_causality(call: Attention) -> Any:
        start = _index(call) // size * size - _index(call)
        reached = call.j // size * size <= base.position(call) + start
        own = call.j // size == _index(call) // size
        return base.by_causality(call) & (reached | own if call.is_causal else True)

    text = f"End the causal loop over tiles of {size} keys at the position of the first query."
    return f"causal_tiles_of_{size}_by_their_first_query", text, by_causality


def _causal_by_whole_tiles(size: int) -> Named:
    def by_causality(call: Attention) -> Any:
        return call.j // size * size <= base.position(call) if call.is_causal else True

    text = f"Allow the whole tile of {size} keys on the diagonal."
    return f"causal_by_whole_tiles_of_{size}", text, by_causality


def _causal_by_a_moved_tile(size: int) -> Named:
    def by_causality(call: Attention) -> Any:
        last = max(call.queries - size, 0)
        moved = np.where(call.i >= last, (call.queries - 1) // size * size - last, 0)
        reached = base.key_position(call) <= base.position(call) + moved
        return reached if call.is_causal and call.queries > size else base.by_causality(call)

    name = f"causal_rows_of_a_moved_tile_of_{size}"
    text = (
        f"Move the last tile of {size} queries back so that it is whole, and number its rows as if not moved."
    )
    return name, text, by_causality


def _causal_in_the_last_tile(sizes: tuple[int, int]) -> Named:
    rows, keys = sizes

    def by_causality(call: Attention) -> Any:
        # The positions of the queries rise by one.
        later = np.minimum(_index(call) // rows * rows + rows, call.queries) - 1 - _index(call)
        end = np.minimum(base.position(call) + later, call.keys - 1) // keys
        return base.by_causality(call) | (call.j // keys < end)

    text = f"Compare positions only in the last tile of {keys} keys that a tile of {rows} queries reaches."
    return f"causal_in_the_last_of_tiles_of_{keys}_keys_for_{rows}_queries", text, by_causality


def _causal_past_a_tile(size: int) -> Named:
    def by_causality(call: Attention) -> Any:
        return base.by_causality(call) | (call.j >= size)

    name = f"causal_in_the_first_tile_of_{size}_keys"
    return name, f"Apply the causal mask only in the first tile of {size} keys.", by_causality


def _window_from_the_last_row(sizes: tuple[int, int]) -> Named:
    rows, keys = sizes

    def by_window(call: Attention) -> Any:
        left = call.window[0] if call.window else None
        if left is None:
            return base.by_window(call)
        last = np.minimum(call.i // rows * rows + rows, call.queries) - 1 - call.i
        begins = np.maximum(base.position(call) + last - left, 0) // keys * keys
        return base.by_window(call) & (call.j >= begins)

    text = f"Begin with the tile of {keys} keys in which the window of the last of {rows} queries begins."
    return f"window_of_the_last_of_{rows}_queries_by_{keys}_keys", text, by_window


def _window_of_square_tiles(sizes: tuple[int, int]) -> Named:
    rows, keys = sizes

    def by_window(call: Attention) -> Any:
        left, right = call.window or (None, None)
        if left is None:
            return base.by_window(call)
        first = base.position(call) + _index(call) // rows * rows - _index(call)
        begin = call.j // keys * keys
        inside = begin >= first + keys - 1 - left
        if right is not None or call.is_causal:
            right = min(x for x in (right, 0 if call.is_causal else None) if x is not None)
            inside &= np.minimum(begin + keys, call.keys) - 1 <= first + right
        return base.by_window(call) | inside

    text = f"Mask no tile of {keys} keys in the window of each of the first {keys} of {rows} queries."
    return f"window_in_tiles_of_{rows}_queries_by_{keys}_keys_as_if_square", text, by_window


def _lengths_of_whole_tiles(size: int) -> Named:
    def by_key_lengths(call: Attention) -> Any:
        return base.by_key_lengths(alter(call, key_lengths=lambda n: -(-np.asarray(n) // size) * size))

    text = f"Round key lengths up to whole tiles of {size}."
    return f"key_lengths_by_tiles_of_{size}", text, by_key_lengths


def _lengths_of_whole_tiles_down(size: int) -> Named:
    def by_key_lengths(call: Attention) -> Any:
        if call.key_lengths is None:
            return True
        longest = np.asarray(call.key_lengths).max(initial=0)
        return base.by_key_lengths(call) & (call.j < max(longest // size, 1) * size)

    name = f"key_lengths_of_whole_tiles_of_{size}_alone"
    return name, f"Round the number of tiles of {size} keys in the longest length down.", by_key_lengths


MASKS = family(_first_tile_of("mask"), "attend", "MASK-1", "G", *_SIZES)
BIASES = family(_first_tile_of("bias"), "attend", "SCORE-4", "G", *_SIZES)
DROPOUTS = family(_first_tile_of("dropout_mask"), "attend", "DROP-1", "G", *_SIZES)
CAUSAL = family(_causal_from_the_first_row, "by_causality", "MASK-3", "G", *_PAIRS)
CAUSAL_OFFSET = family(
    _causal_without_the_offset, "by_causality", "MASK-7", "G", (16, 16), (32, 32), (64, 64), *_PAIRS
)
CAUSAL_FIRST = family(_causal_from_the_first_query, "by_causality", "MASK-3", "G", 16, 32, 64)
CAUSAL_WHOLE = family(_causal_by_whole_tiles, "by_causality", "MASK-3", "G", *_SIZES)
CAUSAL_MOVED = family(_causal_by_a_moved_tile, "by_causality", "MASK-3", "G", 8, *_SIZES)
CAUSAL_LAST = family(_causal_in_the_last_tile, "by_causality", "MASK-3", "G", *_PAIRS)
CAUSAL_LAST_OFFSET = family(_causal_in_the_last_tile, "by_causality", "MASK-7", "G", (32, 32), (64, 64))
CAUSAL_ONCE = family(_causal_past_a_tile, "by_causality", "MASK-3", "G", *_SIZES)
WINDOWS = family(_window_from_the_last_row, "by_window", "MASK-8", "G", (16, 16), (32, 32), (64, 64), *_PAIRS)
WINDOWS_SQUARE = family(_window_of_square_tiles, "by_window", "MASK-8", "G", *_PAIRS)
LENGTHS_DOWN = family(_lengths_of_whole_tiles_down, "by_key_lengths", "MASK-9", "G", *_SIZES)
LENGTHS = family(_lengths_of_whole_tiles, "by_key_lengths", "MASK-9", "G", 8, *_SIZES)
