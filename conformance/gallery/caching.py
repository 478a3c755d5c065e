"""Wrong about caches, pages and partial results."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.reference.call import Call
from attnspec.reference.errors import need
from attnspec.reference.notation import Attention

ENTRIES = rows(
    ("appended_at_the_first_length", "append", "CACHE-1", "H",
     lambda call, cache, new, lengths: base.append(call, cache, new, np.asarray(lengths).ravel()[:1].sum()),
     "Write for all batch entries where the first one ends."),
    ("appended_first_position_alone", "append", "CACHE-1", "G",
     lambda call, cache, new, lengths: base.append(call, cache, new[..., :1, :], lengths),
     "Write a single position, as in decoding."),
    ("rest_of_the_cache_read_by_one_query", "by_key_lengths", "CACHE-3", "G",
     lambda call: True if call.queries == 1 else base.by_key_lengths(call),
     "Read the whole cache in a step of one query."),
    ("pages_in_order_of_memory", "check_pages", "CACHE-4", "V",
     lambda call, pages, block_table: np.sort(base.check_pages(call, pages, block_table), axis=-1),
     "Sort the pages of a sequence."),
    ("page_clamped_to_the_last", "check_pages", "CACHE-5", "V",
     lambda call, pages, block_table: base.check_pages(call, pages, np.minimum(block_table, len(pages) - 1)),
     "Read the last page for one past it."),
    ("third_part_dropped", "merge", "CACHE-6", "I",
     lambda call, outputs, lses: base.merge(call, outputs[:2], lses[:2]),
     "Merge two parts, however many there are.", "Dao-AILab/flash-attention#1973"),
    ("merged_lse_is_the_largest", "merge", "CACHE-6", "I",
     lambda call, outputs, lses: (base.merge(call, outputs, lses)[0], lses.max(axis=0, initial=-np.inf)),
     "Return the largest lse of the parts."),
    ("empty_part_counts_as_zero", "merge", "CACHE-7", "I",
     lambda call, outputs, lses: base.merge(call, outputs, np.where(lses == -np.inf, 0, lses)),
     "Take the lse of an empty part for 0."),
    ("part_of_nan_left_out", "merge", "CACHE-9", "C",
     lambda call, outputs, lses: base.merge(call, outputs, np.where(np.isfinite(lses), lses, -np.inf)),
     "Take a part whose lse is no finite number for an empty one."),
    ("appended_one_late", "append", "CACHE-1", "A",
     lambda call, cache, new, lengths: base.append(call, cache, new,
         np.minimum(np.asarray(lengths) + 1, cache.shape[-2] - new.shape[-2])),
     "Leave a place free before the new positions, where there is one."),
    ("write_clamped_to_the_capacity", "check_append", "CACHE-2", "V",
     lambda call, cache, new, lengths: base.check_append(call, cache, new,
         np.clip(np.asarray(lengths), 0, cache.shape[-2] - new.shape[-2])),
     "Move a write that does not fit to the last place where it does."),
    ("pages_of_the_first_sequence", "check_pages", "CACHE-4", "H",
     After(lambda table, *_: np.broadcast_to(table[:1], table.shape) if table.ndim > 1 else table),
     "Let all sequences have the pages of the first."),
    ("page_counted_from_the_end", "check_pages", "CACHE-5", "V",
     lambda call, pages, block_table: base.check_pages(call, pages,
         np.where(block_table < 0, block_table + len(pages), block_table)),
     "Take a negative page for one from the end."),
    ("parts_averaged", "merge", "CACHE-6", "I",
     lambda call, outputs, lses: (base.merge(call, outputs,
         np.where(lses == -np.inf, -np.inf, 0).astype(lses.dtype))[0], base.merge(call, outputs, lses)[1]),
     "Take the mean of the parts that have something to attend to."),
)  # fmt: skip


@wrong("new_positions", "CACHE-1", "S")
def new_positions_of_another_dtype_misread(call: Call, cache: Array, new: Array) -> Any:
    """Read the memory of new positions as numbers of the dtype of the cache."""
    held = new.tobytes() + bytes(-new.nbytes % cache.itemsize)
    read = np.resize(np.frombuffer(held, cache.dtype), new.shape)
    return base.new_positions(call, cache, read if new.dtype != cache.dtype else new)


@wrong("check_append", "CACHE-2", "V")
def write_past_the_capacity_dropped(call: Call, cache: Array, new: Array, lengths: Any) -> Any:
    """Pass over positions that do not fit."""
    inside = np.clip(np.asarray(lengths), 0, None)
    base.check_append(call, cache, new[..., :0, :], np.minimum(inside, cache.shape[-2]))
    return inside


@wrong("check_append", "CACHE-2", "V")
def length_counted_from_the_end(call: Call, cache: Array, new: Array, lengths: Any) -> Any:
    """Take a negative length for one from the end, as an index of Python is."""
    array = np.asarray(lengths)
    return base.check_append(call, cache, new, np.where(array < 0, array + cache.shape[-2], array)[()])


@wrong("by_causality", "CACHE-3", "A", "hyprstream/hyprstream#1521")
def history_masked_in_a_step(call: Attention) -> Any:
    """Let a step of several queries attend only to its own keys."""
    seen = np.asarray(base.by_causality(call))
    step = call.is_causal and call.queries > 1 and np.ndim(call.query_offset) == 0 and call.query_offset > 0
    return seen & (call.j >= call.query_offset) if step else seen


@wrong("by_causality", "CACHE-3", "A", "Mikyx-1/TinyLLM#17")
def step_not_causal_in_itself(call: Attention) -> Any:
    """Let the queries of a step, after a cache, attend to each other."""
    if not call.is_causal or not np.any(np.asarray(call.query_offset) > 0):
        return base.by_causality(call)
    last = call.but(query_offset=np.asarray(call.query_offset) + call.queries - 1)
    return call.j <= base.position(last) - call.i


@wrong("gather", "CACHE-4", "H")
def pages_side_by_side(call: Call, pages: Array, table: Array) -> Any:
    """Take position k of every page, then position k + 1: pages and positions exchanged."""
    gathered = np.moveaxis(pages[table], -4, -3)  # (*B, H, T, K, D)
    return np.swapaxes(gathered, -2, -3).reshape(base.gather(call, pages, table).shape)


@wrong("merge", "CACHE-6", "I", "sgl-project/sglang#40903")
def parts_merged_to_base_two(call: Call, outputs: Array, lses: Array) -> Any:
    """Take the lses for logarithms to base 2."""
    natural = np.log(2).astype(lses.dtype)
    output, lse = base.merge(call, outputs, lses * natural)
    return output, lse / natural


@wrong("merge", "CACHE-6", "C")
def parts_merged_without_a_shift(_call: Call, outputs: Array, lses: Array) -> Any:
    """Take the exponentials of the lses as they are."""
    shares = np.exp(lses)
    total = shares.sum(axis=0)
    kept = np.where(lses[..., None] == -np.inf, 0, outputs)
    output = (shares[..., None] * kept).sum(axis=0) / np.where(total == 0, 1, total)[..., None]
    return output, np.log(total)


@wrong("merge", "CACHE-7", "B")
def empty_part_in_the_sum(call: Call, outputs: Array, lses: Array) -> Any:
    """Multiply the output of an empty part by 0, whatever it holds."""
    output, lse = base.merge(call, outputs, lses)
    leak = (np.where(lses == -np.inf, 0, 1)[..., None] * outputs).sum(axis=0)
    return np.where(np.isnan(leak), leak, output), lse


@wrong("merge", "CACHE-7", "B", "vllm-project/vllm#28840")
def nothing_in_any_part_is_nan(call: Call, outputs: Array, lses: Array) -> Any:
    """Take minus infinity from minus infinity where every part is empty."""
    output, lse = base.merge(call, outputs, lses)
    none = lse == -np.inf
    return np.where(none[..., None], np.nan, output), lse


@wrong("check_partials", "CACHE-6", "I")
def merged_in_one_shape(_call: Call, outputs: Array, _lses: Array) -> None:
    """Refuse parts with more axes than one of heads."""
    need("outputs", outputs.ndim <= 4, "four axes at most", outputs.ndim, "CACHE-6")


@wrong("check_append", "CACHE-8", "V")
def one_length_that_is_too_large_clamped(call: Call, cache: Array, new: Array, lengths: Any) -> Any:
    """Check one length for all, and clamp an array of them."""
    array = np.asarray(lengths)
    if array.ndim:
        lengths = np.clip(array, 0, cache.shape[-2] - new.shape[-2]).astype(array.dtype)
    return base.check_append(call, cache, new, lengths)


@wrong("merge", "CACHE-10", "I")
def merged_by_lses_to_base_2(call: Call, outputs: Array, lses: Array) -> Any:
    """Weigh parts by powers of 2."""
    output, lse = base.merge(call, outputs, lses * np.log(2))
    return output, lse / np.log(2)
