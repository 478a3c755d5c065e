"""Wrong about attention over a cache in pages."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.reference.call import Arguments, Call
from attnspec.reference.notation import align_batch

ENTRIES = rows(
    ("padding_of_the_first_tile", "after_padding", "PAGE-6", "V",
     lambda call, keys, padding, like: base.after_padding(call, keys, np.minimum(padding, 16), like),
     "Take positions of the left padding for keys from the second tile of 16 on."),
    ("padding_before_new_positions_only", "as_attention", "PAGE-6", "V",
     lambda call, given: base.as_attention(
         call, given | {"left_padding": np.minimum(given["left_padding"], given["key_lengths"])}),
     "Take new positions for keys, whatever the left padding is."),
    ("offset_of_an_unsigned_byte", "offset_at_the_end", "PAGE-7", "A",
     lambda _call, offset, end, queries: (end - queries) % 256 if offset is None else offset,
     "Subtract the number of queries from the end in an unsigned byte."),
    ("table_of_signed_bytes", "read_pages", "PAGE-1", "N",
     lambda call, pages, table, new, lengths: base.read_pages(
         call, pages, table.astype(np.int8), new, lengths),
     "Read the numbers of pages as signed bytes."),
    ("table_of_the_inner_batch_axis", "as_attention", "PAGE-1", "H",
     lambda call, given: base.as_attention(call, given | {"block_table": (
         np.broadcast_to(given["block_table"][:1], given["block_table"].shape)
         if given["block_table"].ndim > 2 else given["block_table"])}),
     "Let the entries of the outer batch axis share the tables of the first."),
    ("new_positions_not_attended", "end_of_keys", "PAGE-2", "V", lambda _call, given: given["key_lengths"],
     "Write the new positions and attend to those before them only."),
    ("every_entry_looked_up", "read_entries", "PAGE-3", "V", lambda _call, given, _end: given["block_table"],
     "Read the entries past the length too."),
    ("left_padding_attended", "after_padding", "PAGE-6", "V",
     lambda call, keys, _padding, like: base.after_padding(call, keys, 0, like),
     "Take the left padding for keys.", "Dao-AILab/flash-attention#1788"),
    ("nan_in_pages_cleared", "read_pages", "NUM-11", "N",
     lambda call, pages, table, new, lengths: np.nan_to_num(
         base.read_pages(call, pages, table, new, lengths), posinf=np.inf, neginf=-np.inf),
     "Take NaN in keys and values of pages for 0."),
    ("queries_at_the_beginning", "offset_at_the_end", "PAGE-7", "A",
     lambda _call, offset, _end, _queries: 0 if offset is None else offset,
     "Put query 0 at key 0, unless there is an offset."),
    ("all_queries_at_the_last_key", "offset_at_the_end", "PAGE-7", "A",
     lambda call, offset, end, queries: base.offset_at_the_end(call, offset, end, min(queries, 1)),
     "Put the first of several queries at the last key, as if it were the only one."),
    ("end_without_the_new_positions", "as_attention", "PAGE-7", "A",
     After(lambda plain, _call, given: plain if given["query_offset"] is not None
         else plain | {"query_offset": given["key_lengths"] - given["query"].shape[-2]}),
     "Align the last query with the last key before the new ones."),
)  # fmt: skip


@wrong("as_attention", "PAGE-1", "H")
def table_of_the_first_sequence(call: Call, given: Arguments) -> Any:
    """Let all sequences read the pages of the first, as far as they are read."""
    table = given["block_table"]
    if table.ndim < 2 or not table.size:
        return base.as_attention(call, given)
    first = np.broadcast_to(table[:1], table.shape)
    there = (first >= 0) & (first < given["key"].shape[0])
    return base.as_attention(call, given | {"block_table": np.where(there, first, table)})


@wrong("read_pages", "PAGE-1", "V")
def last_page_left_out(call: Call, pages: Array, table: Array, new: Any, lengths: Any) -> Any:
    """Read whole pages only, so that 0 stands for the positions of a last page that is not full."""
    result = base.read_pages(call, pages, table, new, lengths)
    whole = np.asarray(lengths) // pages.shape[2] * pages.shape[2]
    place = np.arange(result.shape[-2])[:, None]
    partly = (place >= whole[..., None, None, None]) & (place < np.asarray(lengths)[..., None, None, None])
    return np.where(partly, 0, result) if result.ndim > 3 else np.where(partly[0, 0], 0, result)


@wrong("end_of_keys", "PAGE-1", "V")
def last_page_left_out_if_it_is_full(call: Call, given: Arguments) -> Any:
    """Divide the length by the page and add no page for the rest, which is 0."""
    end = np.asarray(base.end_of_keys(call, given))
    page = given["key"].shape[-2]
    return np.where((end > 0) & (end % max(page, 1) == 0), end - page, end)


@wrong("end_of_keys", "PAGE-3", "V")
def position_at_the_length_read(call: Call, given: Arguments) -> Any:
    """Compare positions with the length by less or equal, within the pages that the length needs."""
    end = np.asarray(base.end_of_keys(call, given))
    return end + (end % max(given["key"].shape[-2], 1) != 0)


@wrong("as_attention", "PAGE-7", "A")
def causal_in_the_last_page_alone(call: Call, given: Arguments) -> Any:
    """Compare positions only in the page that is being filled, and attend to all of each whole one."""
    plain = base.as_attention(call, given)
    if not plain.get("is_causal") or given["query_positions"] is not None:
        return plain
    page, queries, keys = given["key"].shape[-2], given["query"].shape[-2], plain["key"].shape[-2]
    whole = align_batch(np.asarray(plain["key_lengths"]) // max(page, 1) * page)
    i, j = np.arange(queries)[:, None], np.arange(keys)
    seen = (j < whole) | (j <= i + align_batch(plain["query_offset"]))
    return plain | {"is_causal": False, "mask": seen if plain["mask"] is None else seen & plain["mask"]}


@wrong("read_pages", "PAGE-1", "H")
def heads_and_positions_of_a_page_exchanged(
    call: Call, pages: Array, table: Array, new: Any, lengths: Any
) -> Any:
    """Read a page as positions, then heads, where the bytes of it are heads, then positions."""
    count, heads, size, depth = pages.shape
    turned = np.swapaxes(pages.reshape(count, size, heads, depth), 1, 2)
    return base.read_pages(call, turned, table, new, lengths)


@wrong("read_pages", "PAGE-1", "V", "hw-native-sys/pypto#470")
def next_page_in_memory(call: Call, pages: Array, table: Array, new: Any, lengths: Any) -> Any:
    """Look up every second page, and read the next one from the memory behind it."""
    own = table.copy()
    own[..., 1::2] = np.minimum(own[..., 0 : own.shape[-1] - 1 : 2] + 1, max(len(pages) - 1, 0))
    return base.read_pages(call, pages, own, new, lengths)


@wrong("read_pages", "PAGE-1", "N", "ROCm/ATOM#702")
def page_numbers_in_8_bits(call: Call, pages: Array, table: Array, new: Any, lengths: Any) -> Any:
    """Multiply the number of a page by its size in 8 bits."""
    size = pages.shape[2]
    return base.read_pages(call, pages, (table * size).astype(np.int8).astype(np.int64) // size, new, lengths)


@wrong("end_of_keys", "PAGE-1", "G")
def length_of_the_longest_sequence(call: Call, given: Arguments) -> Any:
    """Read as many positions of every sequence as the longest has."""
    end = base.end_of_keys(call, given)
    return np.full_like(end, np.max(end)) if np.ndim(end) and np.size(end) else end


@wrong("read_pages", "PAGE-2", "V")
def new_position_one_late(call: Call, pages: Array, table: Array, new: Any, lengths: Any) -> Any:
    """Write new positions one place after the end."""
    if new is None or not new.shape[-2]:
        return base.read_pages(call, pages, table, new, lengths)
    room = pages.shape[2] * table.shape[-1] - new.shape[-2]
    return base.read_pages(call, pages, table, new, np.minimum(np.asarray(lengths) + 1, room))


@wrong("read_pages", "PAGE-2", "V")
def new_positions_stay_in_their_page(call: Call, pages: Array, table: Array, new: Any, lengths: Any) -> Any:
    """Write new positions into the page of the first of them, over its beginning where they do not fit."""
    if new is None or not new.shape[-2]:
        return base.read_pages(call, pages, table, new, lengths)
    result, size = base.read_pages(call, pages, table, None, lengths).copy(), pages.shape[2]
    starts = np.broadcast_to(lengths, table.shape[:-1])
    for entry in np.ndindex(table.shape[:-1]):
        for n in range(new.shape[-2]):
            page, place = divmod(int(starts[entry]), size)
            result[entry][:, page * size + (place + n) % size] = new[entry][:, n]
    return result


@wrong("end_of_keys", "PAGE-4", "G")
def whole_pages_read(call: Call, given: Arguments) -> Any:
    """Round the length up to whole pages where there are no new positions."""
    end, size = base.end_of_keys(call, given), given["key"].shape[2]
    return end if given["new_key"] is not None else -(-np.asarray(end) // size) * size


@wrong("as_attention", "PAGE-5", "G", "Dao-AILab/flash-attention#1745")
def pages_multiplied_by_zero(call: Call, given: Arguments) -> Any:
    """Multiply the positions past the end by weights of 0."""
    plain = base.as_attention(call, given)
    leak = (0 * given["value"]).sum()
    return plain | {"value": plain["value"] + leak.astype(plain["value"].dtype)}


@wrong("as_attention", "PAGE-6", "A")
def positions_from_the_left_padding(call: Call, given: Arguments) -> Any:
    """Count positions from the end of the left padding, for a given offset."""
    plain, offset = base.as_attention(call, given), given["query_offset"]
    return plain if offset is None else plain | {"query_offset": offset + given["left_padding"]}


@wrong("check_entries_read", "PAGE-8", "U", "microsoft/onnxruntime#32391")
def pages_that_there_are_not_clamped(call: Call, given: Arguments) -> Any:
    """Read the nearest page for an entry that is no page."""
    table = given["block_table"]
    clipped = np.clip(table, 0, max(given["key"].shape[0] - 1, 0))
    return base.check_entries_read(call, given | {"block_table": clipped})


@wrong("check_declared", "PAGE-8", "U", "Dao-AILab/flash-attention#2711")
def length_clamped_to_the_table(call: Call, operation: str, given: Arguments) -> Any:
    """Take a length past the table for all of its positions."""
    if operation != "paged_attention":
        return base.check_declared(call, operation, given)
    room = given["block_table"].shape[-1] * given["key_pages"].shape[2]
    room -= 0 if given["new_key"] is None else given["new_key"].shape[-2]
    lengths = given["key_lengths"]
    if isinstance(lengths, int) or np.asarray(lengths).dtype.kind in "iu":
        lengths = np.minimum(lengths, max(room, 0)) if np.ndim(lengths) else min(lengths, max(room, 0))
    return base.check_declared(call, operation, given | {"key_lengths": lengths})


@wrong("check_declared", "PAGE-9", "U")
def new_keys_alone_ignored(call: Call, operation: str, given: Arguments) -> Any:
    """Ignore new keys without new values, and new values without new keys."""
    alone = (given.get("new_key") is None) != (given.get("new_value") is None)
    new = {"new_key": None, "new_value": None} if alone else {}
    return base.check_declared(call, operation, given | new)
