"""Wrong about bits: the order of a sum depends on other rows. The values stay within the budget."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.notation import Attention


def in_splits(call: Attention, splits: int = 1) -> tuple[Array, Array, Array]:
    """Attend with the keys divided into a number of consecutive parts of one size.

    Within a part the keys are added one after the other, and then the parts are added. No sum uses a
    library function, because its order may depend on the shapes.
    """
    return in_tiles(call, -(-call.keys // max(splits, 1)))


def in_tiles(call: Attention, size: int) -> tuple[Array, Array, Array]:
    """Attend with the keys divided into consecutive parts of a size. The last part may be shorter."""
    s = base.add_bias(call, base.cap(call, products_by_feature(call) * base.factor(call)))  # (*B, Hq, L, S)
    allowed = np.broadcast_to(base.allowed_pairs(call), s.shape)
    top = base.top(call, s, allowed)
    e = base.exponentials(call, s, allowed, top)
    total = _add_up(e, size)[..., None]
    if call.sinks is not None:
        total = total + np.exp(call.sink - top)
    p = base.drop(call, base.normalise(call, e, total))
    value = base.repeat_heads(call, call.value).astype(p.dtype, copy=False)
    output = np.zeros((*p.shape[:-1], value.shape[-1]), p.dtype)
    for start in range(0, call.keys, max(size, 1)):
        part = np.zeros_like(output)
        for j in range(start, min(start + size, call.keys)):
            term = p[..., j, None] * value[..., None, j, :]
            part += np.where(allowed[..., j, None], term, 0)
        output += part
    return output, base.lse(call, top, total), p


def products_by_feature(call: Attention) -> Any:
    """Add up the products of one feature after the other."""
    key = base.repeat_heads(call, call.key)
    x = np.zeros(call.shape, call.query.dtype)
    for feature in range(key.shape[-1]):
        x += call.query[..., :, None, feature] * key[..., None, :, feature]
    return x


def _add_up(e: Array, size: int) -> Any:
    """Add up the last axis, part by part."""
    total = np.zeros(e.shape[:-1], e.dtype)
    for start in range(0, e.shape[-1], max(size, 1)):
        part = np.zeros_like(total)
        for j in range(start, min(start + size, e.shape[-1])):
            part += e[..., j]
        total += part
    return total


def _entries(call: Attention) -> int:
    return int(np.prod(call.batch, dtype=int))


ENTRIES = rows(
    ("another_path_for_a_batch_of_one", "attend", "NUM-10", "X",
     lambda call: in_splits(call, 4 if _entries(call) == 1 else 1),
     "Split the keys in four where there is one batch entry."),
    ("splits_by_the_size_of_the_buffer", "attend", "INV-3", "X",
     lambda call: in_splits(call, 1 + call.keys // 256),
     "Split the array of keys, and not the part of it that is valid."),
    ("one_query_split_over_the_keys", "attend", "INV-5", "X",
     lambda call: in_splits(call, 4 if call.queries == 1 else 1),
     "Split the keys in four where there is a single query."),
    ("splits_by_the_number_of_heads", "attend", "INV-9", "X",
     lambda call: in_splits(call, max(1, 4 // call.query.shape[-3])),
     "Choose the number of splits by the number of query heads."),
    ("tile_of_a_group", "attend", "INV-9", "X",
     lambda call: in_splits(call, 1 if call.queries * call.query.shape[-3] // call.key.shape[-3] >= 128
         else 2),
     "Put all queries of a key head into one tile, and split the keys in two where they are few."),
    ("result_kept_by_the_address", "attend", "ERR-13", "T",
     lambda call: call.steps.memory.setdefault("results",
         {}).setdefault((id(call.query), call.shape, call.value.shape), base.attend(call)),
     "Keep results by the address of the query, which another array has later."),
)  # fmt: skip


@wrong("attend", "INV-1", "X")
def work_cut_in_the_middle_of_the_batch(call: Attention) -> Any:
    """Give each of two processors half of the batch, and split the keys of the second half in three."""
    first, second = in_splits(call), in_splits(call, 3)
    late = np.arange(_entries(call)).reshape(call.batch) >= _entries(call) / 2
    return tuple(_where(late, other, one) for one, other in zip(first, second, strict=True))


def _where(late: Array, other: Array, one: Array) -> Any:
    return np.where(late.reshape(*late.shape, *(1,) * (one.ndim - late.ndim)), other, one)


@wrong("attend", "INV-2", "X", "Dao-AILab/flash-attention#2450")
def splits_by_the_batch_size(call: Attention) -> Any:
    """Choose the number of splits so that all processors have work, by the number of batch entries."""
    return in_splits(call, 12 // max(_entries(call), 1))


@wrong("attend", "INV-2", "X")
def splits_by_the_longest_entry(call: Attention) -> Any:
    """Choose the number of splits by the largest number of keys in the batch."""
    longest = call.keys if call.key_lengths is None else int(np.max(call.key_lengths, initial=0))
    return in_splits(call, 1 + longest // 128)


@wrong("attend", "INV-4", "X", "flashinfer-ai/flashinfer#2424")
def tile_by_the_number_of_queries(call: Attention) -> Any:
    """Take another tile for fewer than 64 queries, and split the keys in two there."""
    return in_splits(call, 1 if call.queries >= 64 else 2)


@wrong("attend", "INV-6", "X")
def sums_in_the_order_of_strides(call: Attention) -> Any:
    """Take another path, with the keys split in two, for arrays that do not lie in rows."""
    in_rows = all(array.flags.c_contiguous for array in (call.query, call.key, call.value))
    return in_splits(call, 1 if in_rows else 2)


@wrong("attend", "INV-7", "X")
def workspace_that_grows(call: Attention) -> Any:
    """Choose the number of splits by a workspace that is as large as the largest call so far asked for."""
    memory = call.steps.memory
    memory["workspace"] = max(memory.get("workspace", 0), call.keys)
    return in_splits(call, memory["workspace"] // 100)


@wrong("finish", "INV-7", "X")
def output_written_again(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Return an output that the next call of the same sizes writes again."""
    kept = call.steps.memory.setdefault((output.shape, call.storage), np.empty(output.shape, call.storage))
    kept[...] = output
    return base.finish(call, kept, lse, weights)


@wrong("attend", "INV-8", "X")
def scratch_shared_by_threads(call: Attention) -> Any:
    """Keep the queries of a call in a buffer that calls of the same sizes in other threads use too."""
    kept = call.steps.memory.setdefault(call.query.shape, np.empty_like(call.query))
    kept[...] = call.query
    return in_splits(call.but(query=kept))
