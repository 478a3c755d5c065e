"""Wrong about calls that several forms store."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Arguments, Call
from attnspec.reference.packing import Packed


def _without(step: str, *names: str) -> Any:
    """Replace a step by itself without some of its arguments."""

    def run(call: Call, given: Arguments) -> Any:
        return getattr(base, step)(call, given | {name: None for name in names if name in given})

    return run


def _sparse_without(*names: str) -> Any:
    """Replace blocks and lists by themselves without some options of the call."""
    return lambda given: base.attend_sparse(given.but(**dict.fromkeys(names)))


def _backward_without(name: str) -> Any:
    """Compute the gradients of a packed row without one of its options."""
    if name == "bias":  # which has a gradient all the same
        return lambda call: base.without_the_rest(
            call.but(bias=0 * call.bias if call.bias is not None else None)
        )
    return lambda call: base.without_the_rest(call.but(**{name: None}))


def _by_places(call: Call, given: Arguments) -> Arguments:
    """Read the mask of a packed row by the places of query and key in their sequences."""
    if given.get("mask") is None:
        return given
    starts = {"query": given["query_starts"], "key": given["key_starts"]}
    queries, keys = (np.shape(given[of])[-2] for of in starts)
    mask = np.broadcast_to(given["mask"], (*np.shape(given["mask"])[:-2], queries, keys))
    packed = Packed(call.steps, call.xp, call.dtype, given["query"], given["key"], given["key"])
    rows, columns = (
        np.maximum(base.place_in_sequence(packed, starts[of].astype(int), size), 0)
        for of, size in (("query", queries), ("key", keys))
    )
    return given | {"mask": mask[..., rows[:, None], columns]}


def _first_query(arguments: Arguments) -> Array:
    """Return the first row of the sequence of each row of queries."""
    starts = np.asarray(arguments["query_starts"])
    rows_of = np.arange(np.shape(arguments["query"])[-2])
    own = np.minimum(np.searchsorted(starts, rows_of, side="right") - 1, len(starts) - 1)
    first: Array = starts[own]
    return first


#: The axes of an array of a call with two batch axes.
_TWO_BATCH_AXES = 5

ENTRIES = rows(
    ("mask_ignored_in_packed_gradients", "without_the_rest", "PACK-7", "W", _backward_without("mask"),
     "Leave the mask of a packed row out in the backward pass."),
    ("bias_ignored_in_packed_gradients", "without_the_rest", "PACK-7", "W", _backward_without("bias"),
     "Compute the weights of a packed row without the bias in the backward pass."),
    ("dropout_ignored_in_packed_gradients", "without_the_rest", "PACK-7", "W",
     _backward_without("dropout_mask"), "Keep every weight of a packed row in the backward pass."),
    ("used_keys_ignored_in_packed_gradients", "without_the_rest", "PACK-7", "W",
     _backward_without("key_used"), "Let keys past the used length of a sequence collect gradients."),
    ("segments_ignored_in_gradients_of_blocks", "sparse_gradients", "SPARSE-12", "W",
     lambda given, *cotangents: base.sparse_gradients(
         given.but(query_segment_ids=None, key_segment_ids=None), *cotangents),
     "Pass gradients across segments where blocks or lists are given."),
    ("negative_positions_held_without_causality", "gather_stack", "STACK-2", "V",
     lambda call, given: base.gather_stack(
         call, given if given["is_causal"] or given["window"] else given | {"key_positions": None}),
     "Read the positions of keys in pages only where causality or a window compares them."),
    ("window_by_places_beside_positions", "gather_stack", "STACK-2", "E",
     lambda call, given: base.gather_stack(
         call, given if given["key_positions"] is None else given | {"window": None}),
     "Leave the window out where keys in pages have positions."),
    ("dropout_ignored_beside_a_latent", "attend_latent", "STACK-2", "J",
     lambda call, given, storage: base.attend_latent(call, given | {"dropout_mask": None}, storage),
     "Keep every weight beside latent vectors."),
    ("mask_ignored_in_a_packed_row", "attend_packed", "STACK-2", "V", _without("attend_packed", "mask"),
     "Leave the mask of a packed row out."),
    ("mask_of_a_packed_row_by_places", "attend_packed", "STACK-2", "V",
     lambda call, given: base.attend_packed(call, _by_places(call, given)),
     "Read the mask of a packed row as if every sequence began at its first row and column."),
    ("bias_ignored_in_a_packed_row", "attend_packed", "STACK-2", "V", _without("attend_packed", "bias"),
     "Leave the bias of a packed row out."),
    ("positions_ignored_in_a_packed_row", "attend_packed", "STACK-2", "A",
     _without("attend_packed", "query_positions", "key_positions"), "Count positions whatever is given."),
    ("segments_ignored_in_a_packed_row", "attend_packed", "STACK-2", "V",
     _without("attend_packed", "query_segment_ids", "key_segment_ids"), "Attend across segments."),
    ("dropout_ignored_in_a_packed_row", "attend_packed", "STACK-2", "J",
     _without("attend_packed", "dropout_mask"), "Keep every weight of a packed row."),
    ("mask_ignored_in_pages", "as_attention", "STACK-2", "V", _without("as_attention", "mask"),
     "Leave the mask out where keys are in pages."),
    ("bias_ignored_in_pages", "as_attention", "STACK-2", "V", _without("as_attention", "bias"),
     "Leave the bias out where keys are in pages."),
    ("used_queries_ignored_in_pages", "as_attention", "STACK-2", "V",
     _without("as_attention", "query_lengths"), "Compute every query where keys are in pages."),
    ("bias_ignored_beside_a_latent", "attend_latent", "STACK-2", "V",
     lambda call, given, storage: base.attend_latent(call, given | {"bias": None}, storage),
     "Leave the bias out beside latent vectors."),
    ("segments_ignored_beside_a_latent", "attend_latent", "STACK-2", "V",
     lambda call, given, storage: base.attend_latent(
         call, given | {"query_segment_ids": None, "key_segment_ids": None}, storage),
     "Attend across segments beside latent vectors."),
    ("dropout_ignored_beside_blocks", "attend_sparse", "STACK-2", "J", _sparse_without("dropout_mask"),
     "Keep every weight where blocks or lists are given."),
    ("used_queries_ignored_beside_blocks", "attend_sparse", "STACK-2", "V", _sparse_without("query_lengths"),
     "Compute every query where blocks or lists are given."),
    ("segments_ignored_beside_blocks", "attend_sparse", "STACK-2", "V",
     _sparse_without("query_segment_ids", "key_segment_ids"),
     "Attend across segments where blocks or lists are given."),
    ("mask_ignored_in_packed_pages", "entries_of_rows", "STACK-2", "V", _without("entries_of_rows", "mask"),
     "Leave the mask out where packed queries read pages."),
    ("bias_ignored_in_packed_pages", "entries_of_rows", "STACK-2", "V", _without("entries_of_rows", "bias"),
     "Leave the bias out where packed queries read pages."),
    ("dropout_ignored_in_packed_pages", "entries_of_rows", "STACK-2", "J",
     _without("entries_of_rows", "dropout_mask"), "Keep every weight where packed queries read pages."),
    ("segments_ignored_in_packed_pages", "entries_of_rows", "STACK-2", "V",
     _without("entries_of_rows", "query_segment_ids", "key_segment_ids"),
     "Attend across the segments of a sequence in pages."),
    ("padding_ignored_in_packed_pages", "entries_of_rows", "STACK-2", "V",
     lambda call, given: base.entries_of_rows(call, given | {"left_padding": 0}),
     "Take the left padding for keys where packed queries read pages.", "Dao-AILab/flash-attention#1788"),
    ("positions_ignored_in_pages", "gather_stack", "STACK-2", "A",
     lambda call, given: base.gather_stack(call, given | {"key_positions": None}),
     "Take the place of a key for its position, whatever positions are given."),
    ("used_queries_ignored_in_packed_pages", "entries_of_rows", "STACK-3", "V",
     _without("entries_of_rows", "query_lengths"), "Compute every query of the row."),
    ("used_lengths_ignored", "used_rows", "STACK-3", "V", lambda _call, _of: None,
     "Compute every query of the row, and read every key.", "Dao-AILab/flash-attention#1713"),
    ("used_keys_ignored", "used_rows", "STACK-3", "V",
     lambda call, of: None if of == "key" else base.used_rows(call, of), "Read every key of the row."),
    ("zero_points_ignored_in_a_stack", "numbers_of_codes", "STACK-1", "Z",
     lambda call, given: base.numbers_of_codes(
         call, given | {name: None for name in given if name.endswith("_zero_points")}),
     "Do not subtract the zero points."),
    ("lists_dropped_over_pages", "mask_of_lists", "STACK-1", "V",
     lambda call, given: base.mask_of_lists(call, given) | (
         {"mask": given.get("mask")} if "block_table" in given else {}),
     "Attend to all keys of the pages, whatever the lists or blocks say."),
    ("lists_of_the_first_outer_entry", "mask_of_lists", "STACK-2", "V",
     lambda call, given: base.mask_of_lists(call, given | {
         name: np.broadcast_to(x[:1], x.shape) for name, x in given.items()
         if name in ("key_indices", "block_mask", "block_indices") and np.ndim(x) == _TWO_BATCH_AXES}),
     "Read the lists of the first entry of two batch axes for all of them."),
    ("mask_replaced_by_lists", "mask_of_lists", "STACK-2", "V", _without("mask_of_lists", "mask"),
     "Let the lists or the blocks stand for the mask too."),
)  # fmt: skip


@wrong("numbers_of_codes", "STACK-1", "Z")
def scales_of_keys_for_values_in_a_stack(call: Call, given: Arguments) -> Any:
    """Multiply the codes of the values by the scales of the keys, where the shapes allow it."""
    own, its = given.get("key_scales"), given.get("value_scales")
    fits = own is not None and its is not None and (own.shape == its.shape or own.size == 1)
    return base.numbers_of_codes(call, given | ({"value_scales": own} if fits else {}))


@wrong("numbers_of_codes", "STACK-1", "Z")
def one_scale_for_all_pages(call: Call, given: Arguments) -> Any:
    """Multiply the codes of every page by the scales of the first one."""
    first = {
        name: np.broadcast_to(x[:1], x.shape)
        for name, x in given.items()
        if name.endswith("_scales") and "block_table" in given and x.ndim > 2
    }
    return base.numbers_of_codes(call, given | first)


@wrong("numbers_of_codes", "STACK-1", "Z")
def scales_by_the_entry_of_the_table(call: Call, given: Arguments) -> Any:
    """Look up the scales of a page by its place in the table of its sequence, not by its number."""
    changed = {}
    for name, scales in given.items():
        if not name.endswith("_scales") or "block_table" not in given or scales.ndim < 3:
            continue
        moved = scales.copy()
        for table in np.atleast_2d(given["block_table"]):
            for place, page in enumerate(table):
                if 0 <= page < len(moved):
                    moved[page] = scales[place % len(scales)]
        changed[name] = moved
    return base.numbers_of_codes(call, given | changed)


@wrong("numbers_of_codes", "STACK-1", "Z", "vllm-project/vllm#26646")
def scale_of_the_first_place_of_a_page(call: Call, given: Arguments) -> Any:
    """Multiply the codes of all places of a page by the scale of its first place."""
    first = {
        name: np.broadcast_to(x[..., :1, :], x.shape)
        for name, x in given.items()
        if name.endswith("_scales") and "block_table" in given and x.ndim > 2
    }
    return base.numbers_of_codes(call, given | first)


@wrong("decode", "STACK-1", "Z")
def codes_rounded_to_the_short_dtype(call: Call, *given: Any) -> Any:
    """Round decoded numbers to 8 bits of fraction before they are used, in calls in pages."""
    numbers = base.decode(call, *given)
    if numbers.ndim != 4:
        return numbers
    fraction, exponent = np.frexp(numbers)
    return np.ldexp(np.round(fraction * 64) / 64, exponent).astype(numbers.dtype)


@wrong("entries_of_rows", "STACK-1", "V")
def table_of_the_row_number(call: Call, given: Arguments) -> Any:
    """Read the table of sequence `i` for query `i`, as in a batch of single queries."""
    sequences = len(given["query_starts"]) - 1
    result = base.entries_of_rows(call, given)
    own = np.arange(len(result["block_table"])) % max(sequences, 1)
    return result | {"block_table": given["block_table"][own]} if sequences else result


@wrong("entries_of_rows", "STACK-1", "A")
def every_query_at_the_last_key(call: Call, given: Arguments) -> Any:
    """Put each query of a chunk at the last key of its sequence, as in a step of decoding."""
    result = base.entries_of_rows(call, given)
    return result | ({"query_offset": result["key_lengths"] - 1} if given["query_offset"] is None else {})


@wrong("entries_of_rows", "STACK-1", "A")
def chunk_at_the_first_key(call: Call, given: Arguments) -> Any:
    """Put the first query of a sequence at its first key, unless there is an offset."""
    return base.entries_of_rows(call, given | ({"query_offset": 0} if given["query_offset"] is None else {}))


@wrong("entries_of_rows", "STACK-1", "A")
def chunk_of_the_longest_sequence(call: Call, given: Arguments) -> Any:
    """Align the queries of each sequence as if it had as many as the longest one."""
    result, counts = base.entries_of_rows(call, given), np.diff(given["query_starts"])
    if given["query_offset"] is not None or not counts.size:
        return result
    own = np.searchsorted(given["query_starts"], np.arange(len(result["key_lengths"])), side="right") - 1
    behind = counts.max() - counts[np.minimum(own, len(counts) - 1)]
    return result | {"query_offset": result["query_offset"] - behind}


@wrong("entries_of_rows", "STACK-1", "G")
def keys_of_the_first_sequence_for_all(call: Call, given: Arguments) -> Any:
    """Read as many keys of each sequence as the first has, as far as it has them."""
    result = base.entries_of_rows(call, given)
    lengths = np.broadcast_to(given["key_lengths"], (max(len(given["query_starts"]) - 1, 0),))
    most = lengths[0] if lengths.size else 0
    return result | {"key_lengths": np.minimum(result["key_lengths"], most)}


@wrong("entries_of_rows", "STACK-2", "V")
def mask_by_the_place_in_the_sequence(call: Call, given: Arguments) -> Any:
    """Read the row of a mask by the place of the query in its sequence."""
    return base.entries_of_rows(call, given | {"mask": _by_the_place(given["mask"], given)})


@wrong("entries_of_rows", "STACK-2", "V")
def bias_by_the_place_in_the_sequence(call: Call, given: Arguments) -> Any:
    """Read the row of a bias by the place of the query in its sequence."""
    return base.entries_of_rows(call, given | {"bias": _by_the_place(given["bias"], given)})


def _by_the_place(pairs: Any, given: Arguments) -> Any:
    if pairs is None or pairs.ndim < 2 or pairs.shape[-2] < 2:
        return pairs
    return pairs[..., np.arange(pairs.shape[-2]) - _first_query(given), :]


@wrong("entries_of_rows", "STACK-2", "E")
def window_by_the_row(call: Call, given: Arguments) -> Any:
    """Count the window of packed queries over pages from the row, not from the place in the sequence."""
    result = base.entries_of_rows(call, given)
    if given["window"] is None or given["is_causal"]:
        return result
    return result | {"query_offset": np.arange(len(result["query_offset"]))}


@wrong("entries_of_rows", "STACK-2", "A")
def offset_of_one_sequence_for_all(call: Call, given: Arguments) -> Any:
    """Move the queries of all sequences by the offset of the first."""
    offset = given["query_offset"]
    if np.ndim(offset) == 0 or not np.size(offset):
        return base.entries_of_rows(call, given)
    return base.entries_of_rows(call, given | {"query_offset": int(offset[0])})


@wrong("rows_of_entries", "PACK-3", "V")
def rows_of_no_sequence_left_as_they_are(call: Call, given: Arguments, results: Arguments) -> Any:
    """Give rows of no sequence the value of the sink, or whatever is computed for them."""
    starts = given["query_starts"].copy()
    starts[-1] = np.shape(given["query"])[-2]
    return base.rows_of_entries(call, given | {"query_starts": starts}, results)


@wrong("numbers_of_codes", "STACK-4", "Z")
def scales_of_unread_places_counted(call: Call, given: Arguments) -> Any:
    """Multiply decoded numbers of unread places by 0, so that a scale of NaN there reaches every place."""
    result = base.numbers_of_codes(call, given)
    names = [name for name in ("key_pages", "value_pages", "latent_pages") if name in result]
    return result | {
        name: result[name] + (0 * result[name]).sum(dtype=np.float64).astype(result[name].dtype)
        for name in names
    }


@wrong("gather_stack", "STACK-4", "G")
def unread_places_times_zero(call: Call, given: Arguments) -> Any:
    """Multiply all places of all pages by 0, and add them to what is read."""
    result = base.gather_stack(call, given)
    leak = sum((0 * x).sum() for name, x in given.items() if name.endswith("_pages"))
    held = "latent" if "latent" in result else "value"
    return result | {held: result[held] + np.asarray(leak, result[held].dtype)}


@wrong("mask_of_lists", "STACK-1", "V", "vllm-project/vllm#26445")
def lists_of_pages_not_of_places(call: Call, given: Arguments) -> Any:
    """Take an entry of a list for a place in the memory of the pages, where that is one of the sequence."""
    table = given.get("block_table")
    if table is None or "key_indices" not in given or table.ndim != 2 or "query_starts" not in given:
        return base.mask_of_lists(call, given)
    pages = given["latent_pages" if "latent_pages" in given else "key_pages"]
    size, lists = pages.shape[-2], given["key_indices"].copy()
    own = np.searchsorted(given["query_starts"], np.arange(lists.shape[-2]), side="right") - 1
    for i, g in enumerate(np.minimum(own, len(table) - 1)):
        places = {int(page): place for place, page in reversed(list(enumerate(table[g]))) if page >= 0}
        row = lists[..., i, :]
        page = row // size
        known = np.vectorize(lambda number, places=places: places.get(int(number), -1))(page)
        lists[..., i, :] = np.where((row >= 0) & (known >= 0), known * size + row % size, row)
    return base.mask_of_lists(call, given | {"key_indices": lists})


@wrong("mask_of_lists", "STACK-1", "V")
def list_of_the_first_query_of_a_sequence(call: Call, given: Arguments) -> Any:
    """Use the list of the first query of a sequence for all of its queries."""
    if "key_indices" not in given or "query_starts" not in given:
        return base.mask_of_lists(call, given)
    first = np.minimum(_first_query(given), given["key_indices"].shape[-2] - 1)
    return base.mask_of_lists(call, given | {"key_indices": given["key_indices"][..., first, :]})


@wrong("mask_of_lists", "STACK-1", "V")
def blocks_counted_from_the_sequence(call: Call, given: Arguments) -> Any:
    """Count the blocks of queries from the beginning of each sequence."""
    mask = given.get("block_mask")
    if mask is None or "query_starts" not in given:
        return base.mask_of_lists(call, given)
    size, count = given["query_block"], np.shape(given["query"])[-2]
    place = (np.arange(count) - _first_query(given)) // size
    rows_of = np.broadcast_to(mask, (*mask.shape[:-2], -(-count // size), mask.shape[-1]))
    return base.mask_of_lists(call, given | {"query_block": 1, "block_mask": rows_of[..., place, :]})


@wrong("mask_of_lists", "STACK-2", "A")
def listed_keys_after_the_query(call: Call, given: Arguments) -> Any:
    """Attend to every listed key, those after the query included."""
    listed = "key_indices" in given
    return base.mask_of_lists(call, given) | ({"is_causal": False} if listed else {})


@wrong("gather_stack", "STACK-1", "V")
def rotary_parts_in_the_order_of_memory(call: Call, given: Arguments) -> Any:
    """Gather latent vectors by the table, and rotary parts in the order in which pages lie in memory."""
    result = base.gather_stack(call, given)
    if "latent" not in result:
        return result
    pages = given["key_rotary_pages"]
    memory = pages.reshape(-1, pages.shape[-1])[: result["key_rotary"].shape[-2]]
    enough = len(memory) == result["key_rotary"].shape[-2]
    rotary = np.broadcast_to(memory, result["key_rotary"].shape)
    return result | ({"key_rotary": np.where(np.abs(rotary) > 100, 0, rotary)} if enough else {})


@wrong("used_rows", "STACK-3", "V")
def used_length_of_the_first_sequence(call: Packed, of: str) -> Any:
    """Use as many rows of each sequence as the first uses."""
    lengths: Any = getattr(call, f"{of}_used")
    if lengths is None or np.ndim(lengths) == 0 or not np.size(lengths):
        return base.used_rows(call, of)
    return base.used_rows(call.but(**{f"{of}_used": int(lengths[0])}), of)


@wrong("used_rows", "STACK-3", "V")
def used_length_counted_from_the_row(call: Packed, of: str) -> Any:
    """Compare the row in the whole array with the used length."""
    lengths: Any = getattr(call, f"{of}_used")
    if lengths is None or np.ndim(lengths) == 0:
        return base.used_rows(call, of)
    starts = getattr(call, f"{of}_starts")
    count = call.queries if of == "query" else call.keys
    own = base.sequence_of_row(call, starts, count)
    below = np.arange(count) < np.append(lengths, 0)[own]
    return below[:, None] if of == "query" else below
