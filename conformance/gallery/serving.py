"""Wrong about what served models have at once: long caches, chunks, finer scales, and one number for all."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.reference.call import Arguments, Call
from attnspec.reference.packing import Packed
from attnspec.reference.sparsity import Sparse

_SHORT, _TILE, _MANY = 32, 64, 128

ENTRIES = rows(
    ("scale_of_zero_left_out_in_pages", "as_attention", "STACK-2", "K",
     lambda call, given: base.as_attention(call, given | ({} if given["scale"] else {"scale": None})),
     "Take a scale of 0 for none where keys are in pages."),
    ("rows_past_their_length_counted_beside_sinks", "without_the_rest", "STACK-2", "W",
     lambda call: base.without_the_rest(call if call.sinks is None else call.but(query_used=None)),
     "Compute the weights of rows past their length from the lse, which is finite beside a sink."),
    ("no_key_taken_for_key_0_past_a_tile", "listed_keys", "SPARSE-7", "G",
     lambda call: base.listed_keys(call.but(key_indices=_no_key_in_the_first_tile(call))),
     "Look for entries of -1 in the first 64 places of a list only, and read key 0 for others."),
    ("scales_of_blocks_of_tokens_by_tile", "by_blocks", "QUANT-8", "Z",
     lambda call, given, full: _within_tiles(base.by_blocks(call, given, full), given, full),
     "Look up the scale of a block of tokens by the place of the token in its tile of 64."),
    ("blocks_of_tokens_numbered_in_each_tile", "by_blocks", "QUANT-8", "Z",
     lambda call, given, full: _numbered_in_tiles(base.by_blocks(call, given, full), given, full),
     "Add the block of the first token of a tile of 32 to that of a token counted in the tile."),
    ("windows_of_a_tile_from_its_last_query", "within_sequences", "STACK-2", "E",
     lambda call: base.within_sequences(call.but(mask=_not_before_the_last_window(call))),
     "Begin at the first tile of keys in the window of the last query of a tile of 64 queries."),
    ("queries_of_a_tile_from_its_first_key", "without_the_rest", "PACK-7", "W",
     lambda call: base.without_the_rest(call.but(mask=_not_after_the_first_window(call))),
     "End at the last tile of queries whose window has the first key of a tile of 64 keys."),
    ("window_of_whole_pages", "as_attention", "STACK-2", "E",
     After(lambda plain, _call, given: _with_pages_of_window(plain, given["key"].shape[2], whole=True)),
     "Begin a window with the whole page in which it begins."),
    ("window_of_the_same_slots_in_each_page", "as_attention", "STACK-2", "E",
     After(lambda plain, _call, given: _with_pages_of_window(plain, given["key"].shape[2], whole=False)),
     "Begin in each page at the slot at which the window begins in its first page."),
    ("rows_of_a_table_by_the_longest_sequence", "as_attention", "PAGE-3", "V",
     lambda call, given: base.as_attention(call, given | {"block_table": _by_the_longest(given)}),
     "Find the row of a table by the number of pages of the longest sequence, and not by its width."),
    ("subnormal_codes_read_as_normal", "decode_codes", "QUANT-3", "Z",
     After(lambda numbers, _call, _codes, encoding, _dtype: _as_normal(numbers, encoding)),
     "Decode a code of 8 bits with an exponent of 0 as if its leading digit were 1."),
)  # fmt: skip

#: The smallest normal number of each format of 8 bits.
_NORMAL = {"e4m3fn": 2.0**-6, "e4m3fnuz": 2.0**-7, "e5m2": 2.0**-14, "e5m2fnuz": 2.0**-15}


def _by_the_longest(given: Arguments) -> Any:
    table, lengths, size = given["block_table"], np.asarray(given["key_lengths"]), given["key"].shape[2]
    if table.ndim != 2 or not table.size or not size:
        return table
    width = -(-int(lengths.max(initial=0)) // size)
    place = np.arange(len(table))[:, None] * width + np.arange(table.shape[1])
    read = np.take(table, np.minimum(place, table.size - 1))
    return np.where(read < 0, read + given["key"].shape[0], read)  # as an index from the end


def _as_normal(numbers: Array, encoding: str) -> Array:
    least, size = _NORMAL.get(encoding, 0.0), np.abs(numbers)
    wrong = np.sign(numbers) * (least + size) / 2
    return np.where((size > 0) & (size < least), wrong, numbers).astype(numbers.dtype)


def _with_pages_of_window(plain: Arguments, size: int, *, whole: bool) -> Arguments:
    """Move where a window begins to the start of its page, or let each page begin at the same slot."""
    left, right = plain.get("window") or (None, None)
    if left is None or plain.get("query_positions") is not None or not size:
        return plain
    query, keys = np.arange(plain["query"].shape[-2])[:, None], np.arange(plain["key"].shape[-2])
    offset = np.asarray(plain["query_offset"])
    begins = np.maximum(query + (offset[..., None, None, None] if offset.ndim else offset) - left, 0)
    kept = keys >= begins // size * size if whole else keys % size >= begins % size
    mask = kept if plain["mask"] is None else kept & plain["mask"]
    return plain | {"mask": mask, "window": (None, right) if whole else plain["window"]}


def _no_key_in_the_first_tile(call: Sparse) -> Array:
    past = np.arange(call.key_indices.shape[-1]) >= _TILE
    return np.where(past & (call.key_indices < 0), 0, call.key_indices)


def _within_tiles(repeated: Array, given: Array, full: tuple[int, ...]) -> Array:
    if given.ndim < 2 or not 1 < given.shape[-2] < full[-2]:
        return repeated
    return repeated[..., np.arange(full[-2]) % _TILE, :]


def _numbered_in_tiles(repeated: Array, given: Array, full: tuple[int, ...]) -> Array:
    if given.ndim < 2 or not 1 < given.shape[-2] < full[-2]:
        return repeated
    place, size = np.arange(full[-2]), full[-2] // given.shape[-2]
    block = place // _SHORT * _SHORT // size + place % _SHORT // size
    return repeated[..., block * size, :]


def _places(call: Packed) -> tuple[Array, Array, Array]:
    """Return the place of each query and key in its sequence, and the position of each query."""
    query, key = (
        np.asarray(base.place_in_sequence(call, starts, size))
        for starts, size in ((call.query_starts, call.queries), (call.key_starts, call.keys))
    )
    return query, key, query + _offsets(call)


def _offsets(call: Packed) -> Any:
    own = np.searchsorted(call.query_starts, np.arange(call.queries), side="right") - 1
    offsets = np.concatenate([np.broadcast_to(call.offsets, (len(call.query_starts) - 1,)), [0]])
    return offsets[own]


def _beside(call: Packed, kept: Array) -> Any:
    return kept if call.mask is None else call.mask & kept


def _not_before_the_last_window(call: Packed) -> Any:
    if call.window is None or call.window[0] is None or call.query_positions is not None:
        return call.mask
    query, key, position = _places(call)
    counts = np.append(np.diff(call.query_starts), 0)
    own = np.searchsorted(call.query_starts, np.arange(call.queries), side="right") - 1
    last = np.minimum(query // _TILE * _TILE + _TILE, np.maximum(counts[own], 1)) - 1
    begin = (position - query + last - call.window[0]) // _TILE * _TILE
    return _beside(call, key >= begin[:, None])


def _not_after_the_first_window(call: Packed) -> Any:
    if call.window is None or call.window[0] is None or call.query_positions is not None:
        return call.mask
    query, key, position = _places(call)
    begin = position - query + query // _TILE * _TILE
    return _beside(call, begin[:, None] <= key // _TILE * _TILE + call.window[0])


def _attended_stack_without_sinks(
    call: Call, layers: tuple[str, ...], given: Arguments, where: Any
) -> tuple[Array, ...]:
    """Attend with sinks, and without them in the rows for which a function of the shape says so."""
    both = [base.attend_stack(call, layers, own) for own in (given, given | {"sinks": None})]
    whole, bare = (own if isinstance(own, tuple) else (own,) for own in both)
    return tuple(np.where(where(x.ndim), y, x) for x, y in zip(whole, bare, strict=True))


@wrong("attend_stack", "STACK-2", "M", "Dao-AILab/flash-attention#1973")
def sinks_lost_over_a_long_cache(call: Call, layers: tuple[str, ...], given: Arguments) -> Any:
    """Leave the sinks out where parts of more than 128 keys in pages are merged."""
    if given.get("sinks") is None or "paged" not in layers:
        return base.attend_stack(call, layers, given)
    many = np.asarray(given["key_lengths"]) > _MANY
    return _attended_stack_without_sinks(
        call, layers, given, lambda axes: many.reshape(*many.shape, *(1,) * (axes - many.ndim))
    )


@wrong("entries_of_rows", "STACK-2", "V")
def padding_of_the_first_sequence_alone(call: Call, given: Arguments) -> Any:
    """Give one left padding for all sequences to the first one."""
    padding, sequences = given["left_padding"], len(given["query_starts"]) - 1
    if np.ndim(padding) or not sequences:
        return base.entries_of_rows(call, given)
    return base.entries_of_rows(call, given | {"left_padding": np.eye(1, sequences, dtype=int)[0] * padding})
