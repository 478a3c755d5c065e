"""Wrong about blocks of queries and keys, and about lists of keys."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, first, rows, wrong
from attnspec.conformance.gallery.tiles import pad
from attnspec.reference.notation import Attention, enter, finish
from attnspec.reference.sparsity import Sparse, plain_fields

#: A tile of a list.
_TILE = 16

ENTRIES = rows(
    ("listed_blocks_past_the_count", "listed_blocks", "SPARSE-3", "G",
     lambda call: base.listed_blocks(call.but(block_counts=np.full_like(call.block_counts, 2**31 - 1))),
     "Read the whole list, whatever its count."),
    ("first_listed_block_alone", "listed_blocks", "SPARSE-3", "G",
     lambda call: base.listed_blocks(call.but(block_counts=np.minimum(call.block_counts, 1))),
     "Read one block of each list."),
    ("mask_of_blocks_ignored_beside_lists", "active_blocks", "SPARSE-3", "U",
     lambda call: base.active_blocks(call if call.block_indices is None else call.but(block_mask=None)),
     "Follow the lists alone if both lists and a mask of blocks are given.", "flashinfer-ai/flashinfer#4593"),
    ("active_blocks_taken_for_full_ones", "sparse_mask", "SPARSE-4", "R",
     lambda call: base.sparse_mask(call.but(mask=None)),
     "Attend to every key of an active block, whatever the mask says."),
    ("list_of_the_first_query", "listed_keys", "SPARSE-6", "H",
     lambda call: base.listed_keys(call.but(key_indices=first(call.key_indices, -2))),
     "Let all queries have the list of the first, as in decoding."),
    ("lists_of_the_first_entry", "listed_keys", "SPARSE-6", "H",
     lambda call: base.listed_keys(call.but(key_indices=first(call.key_indices, -4))),
     "Let all batch entries have the lists of the first."),
    ("no_key_taken_for_the_first", "listed_keys", "SPARSE-7", "V",
     lambda call: base.listed_keys(call.but(key_indices=np.maximum(call.key_indices, 0))),
     "Clamp an entry of -1 to key 0.", "NVIDIA/cudnn-frontend#298"),
    ("places_past_the_number_of_keys_dropped", "listed_keys", "SPARSE-7", "G",
     lambda call: base.listed_keys(call.but(key_indices=call.key_indices[..., : max(call.keys, 1)])),
     "Read as many places of a list as there are keys.", "NVIDIA/cudnn-frontend#298"),
    ("list_of_the_first_key_head", "listed_keys", "SPARSE-9", "D",
     lambda call: base.listed_keys(call.but(key_indices=first(call.key_indices, -3))),
     "Let all heads have the list of the first key head."),
    ("listed_key_clamped", "check_lists", "SPARSE-11", "V",
     lambda call: base.check_lists(call) if getattr(call.key_indices, "dtype", np.dtype(float)).kind != "i"
         else base.check_lists(call.but(key_indices=np.clip(call.key_indices, -1, call.keys - 1))),
     "Read the last key for one past it."),
)  # fmt: skip


@wrong("elements", "SPARSE-1", "H")
def sizes_of_blocks_exchanged(call: Sparse, blocks: Array) -> Any:
    """Take the size of a block of keys for that of queries, and the other way round."""
    other = call.but(query_block=call.key_block, key_block=call.query_block)
    if blocks.shape != other.blocks:
        return base.elements(call, blocks)
    return base.elements(other, blocks)


@wrong("elements", "SPARSE-1", "G")
def blocks_of_queries_as_wide_as_of_keys(call: Sparse, blocks: Array) -> Any:
    """Find the block of a query by the size of a block of keys."""
    row = np.minimum(np.arange(call.queries) // call.key_block, max(blocks.shape[-2] - 1, 0))
    return np.repeat(blocks[..., row, :], call.key_block, axis=-1)[..., : call.keys]


@wrong("active_blocks", "SPARSE-1", "H")
def blocks_of_the_first_head(call: Sparse) -> Any:
    """Let all heads have the blocks of the first."""
    result = base.active_blocks(call)
    return result if result.ndim < 3 else np.broadcast_to(first(result, -3), result.shape)


@wrong("active_blocks", "SPARSE-1", "H")
def blocks_of_the_first_entry(call: Sparse) -> Any:
    """Let all batch entries have the blocks of the first."""
    result = base.active_blocks(call)
    return result if result.ndim < 4 else np.broadcast_to(first(result, -4), result.shape)


@wrong("elements", "SPARSE-1", "A")
def blocks_moved_by_the_offset(call: Sparse, blocks: Array) -> Any:
    """Find the block of a query by its position among the keys."""
    if np.ndim(call.query_offset) or not call.query_offset:
        return base.elements(call, blocks)
    row = np.clip((np.arange(call.queries) + call.query_offset) // call.query_block, 0, blocks.shape[-2] - 1)
    return np.repeat(blocks[..., row, :], call.key_block, axis=-1)[..., : call.keys]


def _is_causal_by_one_offset(call: Sparse) -> bool:
    """Whether causality in blocks, and not in lists of keys, is by one offset alone."""
    placed = call.query_positions is not None or call.key_positions is not None
    return bool(call.is_causal) and call.key_indices is None and not placed and not np.ndim(call.query_offset)


def _with_pairs(call: Sparse, seen: Any) -> Any:
    """Attend to some pairs in place of those that causality allows."""
    return base.attend_sparse(call.but(is_causal=False, mask=seen if call.mask is None else seen & call.mask))


@wrong("attend_sparse", "SPARSE-4", "A")
def diagonal_in_blocks_of_one_index(call: Sparse) -> Any:
    """Look for keys after a query only in the block whose index is that of its block of queries."""
    if not _is_causal_by_one_offset(call):
        return base.attend_sparse(call)
    i, j = np.arange(call.queries)[:, None], np.arange(call.keys)
    row, column = i // call.query_block, j // call.key_block
    last = np.minimum((row + 1) * call.query_block, call.queries) - 1
    at = np.where(row == column, j, column * call.key_block) - call.query_offset
    seen = at <= np.where(row == column, i, last)
    return _with_pairs(call, seen)


@wrong("elements", "SPARSE-2", "G", "flashinfer-ai/flashinfer#4951")
def last_keys_without_a_block(call: Sparse, blocks: Array) -> Any:
    """Pass over the last block of keys if it is not full."""
    whole = call.keys // call.key_block * call.key_block
    return base.elements(call, blocks) & (np.arange(call.keys) < whole)


@wrong("elements", "SPARSE-2", "G", "meta-pytorch/attention-gym#71")
def last_block_that_ends_at_the_last_key(call: Sparse, blocks: Array) -> Any:
    """Move the last block of keys back until it is full, so that it overlaps the one before."""
    result = base.elements(call, blocks)
    start = max(call.keys - call.key_block, 0)
    if call.keys % call.key_block:
        result[..., start:] |= result[..., -1:]
    return result


@wrong("attend_sparse", "SPARSE-2", "G")
def last_block_padded_with_keys_of_zero(given: Sparse) -> Any:
    """Fill up the last block of keys with zeros, and attend to them."""
    more = -given.keys % given.key_block if given.key_indices is None else 0
    if not more:
        return base.attend_sparse(given)
    pad = [(0, 0)] * (given.key.ndim - 2) + [(0, more), (0, 0)]
    if any(x is not None for x in (given.bias, given.mask)):
        return base.attend_sparse(given)
    return base.attend_sparse(given.but(key=np.pad(given.key, pad), value=np.pad(given.value, pad)))


@wrong("listed_blocks", "SPARSE-3", "G")
def lists_taken_for_ranges(call: Sparse) -> Any:
    """Read all blocks from the least to the largest that is listed."""
    result = base.listed_blocks(call)
    after = np.maximum.accumulate(result, axis=-1)
    return after & np.maximum.accumulate(result[..., ::-1], axis=-1)[..., ::-1]


@wrong("attend_sparse", "SPARSE-4", "A")
def causal_by_blocks(given: Sparse) -> Any:
    """Attend to whole blocks that begin before the last query of a block."""
    if not given.is_causal or given.key_indices is not None or np.ndim(given.query_offset):
        return base.attend_sparse(given)
    last = (np.arange(given.queries) // given.query_block + 1) * given.query_block - 1 + given.query_offset
    begins = np.arange(given.keys) // given.key_block * given.key_block
    seen = begins <= last[:, None]
    return _with_pairs(given, seen)


@wrong("attend_sparse", "SPARSE-4", "A")
def causal_in_the_last_block_alone(given: Sparse) -> Any:
    """Compare positions only in the last block of keys that the last query of a block reaches."""
    if not _is_causal_by_one_offset(given):
        return base.attend_sparse(given)
    i, j = np.arange(given.queries)[:, None], np.arange(given.keys)
    last = np.minimum((i // given.query_block + 1) * given.query_block, given.queries) - 1
    end = np.minimum(last + given.query_offset, given.keys - 1) // given.key_block
    block = j // given.key_block
    seen = (block < end) | ((block == end) & (j <= i + given.query_offset))
    return base.attend_sparse(
        given.but(is_causal=False, mask=seen if given.mask is None else seen & given.mask)
    )


@wrong("sparse_mask", "SPARSE-5", "B", "pytorch/pytorch#141126")
def queries_without_blocks_attend_to_all(call: Sparse) -> Any:
    """Take the mean of all values where a query has no key."""
    result = np.broadcast_to(base.sparse_mask(call), call.shape)
    return result | ~result.any(axis=-1, keepdims=True)


@wrong("listed_blocks", "SPARSE-5", "B")
def one_block_at_least(call: Sparse) -> Any:
    """Read the first entry of a list with a count of 0."""
    blocks = np.clip(call.block_indices, 0, max(call.blocks[-1] - 1, 0))
    taken = np.where(call.block_counts[..., None] == 0, blocks, call.block_indices)
    return base.listed_blocks(call.but(block_counts=np.maximum(call.block_counts, 1), block_indices=taken))


@wrong("check_blocks", "SPARSE-10", "U")
def size_of_nothing_taken_for_one(call: Sparse) -> Any:
    """Take a size of a block below 1 for 1."""
    sizes = {"query_block": call.query_block, "key_block": call.key_block}
    return base.check_blocks(call.but(**{name: max(size, 1) for name, size in sizes.items()}))


@wrong("check_blocks", "SPARSE-10", "U")
def counts_without_lists_ignored(call: Sparse) -> Any:
    """Ignore one of counts and lists if the other is not given."""
    if (call.block_counts is None) != (call.block_indices is None):
        call = call.but(block_counts=None, block_indices=None)
    return base.check_blocks(call)


@wrong("check_blocks", "SPARSE-11", "V")
def listed_block_clamped(call: Sparse) -> Any:
    """Read the last block for one past it, and the first for one below."""
    if call.block_indices is None or call.block_counts is None or call.block_indices.dtype.kind != "i":
        return base.check_blocks(call)
    blocks = -(-call.keys // max(call.key_block, 1))
    return base.check_blocks(call.but(block_indices=np.clip(call.block_indices, 0, max(blocks - 1, 0))))


@wrong("listed_keys", "SPARSE-6", "V", "hw-native-sys/pypto-lib#158")
def first_listed_key_taken_for_key_0(call: Sparse) -> Any:
    """Read key 0 for the first entry of a list, whatever it is."""
    indices = call.key_indices.copy()
    if indices.shape[-1]:
        indices[..., 0] = np.where(indices[..., 0] < 0, -1, 0)
    return base.listed_keys(call.but(key_indices=indices))


@wrong("listed_keys", "SPARSE-6", "G")
def rest_of_a_list_lost(call: Sparse) -> Any:
    """Read the full tiles of a list that is longer than a tile."""
    width = call.key_indices.shape[-1]
    kept = width if width <= _TILE else width // _TILE * _TILE
    return base.listed_keys(call.but(key_indices=call.key_indices[..., :kept]))


@wrong("listed_keys", "SPARSE-6", "N")
def listed_keys_of_eight_bits(call: Sparse) -> Any:
    """Keep the numbers of keys in eight bits with a sign."""
    indices = call.key_indices
    return base.listed_keys(call.but(key_indices=np.where(indices > 127, indices - 256, indices)))


@wrong("listed_keys", "SPARSE-7", "V")
def no_key_taken_for_the_last(call: Sparse) -> Any:
    """Count an entry of -1 from the end, as an index of Python."""
    indices = call.key_indices
    return base.listed_keys(call.but(key_indices=np.where(indices < 0, call.keys - 1, indices)))


@wrong("listed_keys", "SPARSE-7", "G", "vllm-project/vllm-gaudi#1777")
def list_ends_at_the_first_entry_of_no_key(call: Sparse) -> Any:
    """Stop reading a list at an entry of -1."""
    ended = np.maximum.accumulate(call.key_indices < 0, axis=-1)
    return base.listed_keys(call.but(key_indices=np.where(ended, -1, call.key_indices)))


@wrong("attend_sparse", "SPARSE-8", "V")
def key_listed_twice_counts_twice(given: Sparse) -> Any:
    """Gather the listed keys, and attend to each of them as often as it is listed."""
    if given.key_indices is None:
        return base.attend_sparse(given)
    places = np.arange(given.keys)
    counts = (given.key_indices[..., None] == places).sum(axis=-2)  # broadcasts to (*B, Hkv, L, S)
    if given.query.ndim > 2 and counts.ndim > 2 and counts.shape[-3] > 1:
        counts = np.repeat(counts, given.query.shape[-3] // given.key.shape[-3], axis=-3)
    more = np.log(np.maximum(counts, 1)).astype(given.query.dtype)
    return base.attend_sparse(given.but(bias=more if given.bias is None else more + given.bias))


@wrong("listed_keys", "SPARSE-9", "D")
def lists_of_key_heads_tiled(call: Sparse) -> Any:
    """Give query head h the list of key head h % Hkv."""
    heads = call.key.shape[-3] if call.key.ndim > 2 else 1
    group = call.query.shape[-3] // heads if call.query.ndim > 2 else 1
    result = base.listed_keys(call)
    if group == 1 or result.ndim < 3 or result.shape[-3] == 1:
        return result
    return np.concatenate([result[..., ::group, :, :]] * group, axis=-3)


@wrong("attend_sparse", "SPARSE-3", "G")
def padding_of_a_block_that_is_not_last_in_its_list(given: Sparse) -> Any:
    """Mask the padding of the last block of keys only where the block is the last of a list."""
    more = -given.keys % given.key_block
    if given.block_indices is None or not more or given.return_max:
        return base.attend_sparse(given)
    place, counts = np.arange(given.block_indices.shape[-1]), given.block_counts[..., None]
    inside = ((given.block_indices == given.blocks[-1] - 1) & (place < counts - 1)).any(axis=-1)
    inside = np.repeat(inside, given.query_block, axis=-1)[..., : given.queries, None]  # (..., L, 1)
    call = enter(Attention(**plain_fields(given)))
    return finish(call, *pad(call, given.key_block, inside))


@wrong("sparse_gradients", "SPARSE-12", "W", "NVIDIA/cudnn-frontend#298")
def gradients_of_places_past_the_number_of_keys_dropped(given: Sparse, own: Any) -> Any:
    """Read as many places of a list as there are keys in the backward pass of keys and values."""
    result = base.sparse_gradients(given, own)
    if given.key_indices is None:
        return result
    fewer = given.but(key_indices=given.key_indices[..., : max(given.keys, 1)])
    short = base.sparse_gradients(fewer, own)
    return (result[0], *short[1:3], *result[3:])


@wrong("sparse_gradients", "SPARSE-12", "W", "NVIDIA/cudnn-frontend#676")
def no_key_gives_nan_in_the_backward_pass(given: Sparse, own: Any) -> Any:
    """Multiply by the weight of an entry of -1, which was computed from other memory."""
    d_query, *others = base.sparse_gradients(given, own)
    if given.key_indices is None:
        return (d_query, *others)
    broken = (given.key_indices < 0).any(axis=-1, keepdims=True)  # broadcasts to (*B, Hkv, L, 1)
    if d_query.ndim > 2 and broken.ndim > 2 and broken.shape[-3] > 1:
        broken = np.repeat(broken, d_query.shape[-3] // given.key.shape[-3], axis=-3)
    return (np.where(broken, np.nan, d_query).astype(d_query.dtype), *others)


@wrong("sparse_gradients", "SPARSE-12", "W")
def blocks_ignored_in_the_backward_pass(given: Sparse, own: Any) -> Any:
    """Compute the gradients of keys and values as if all blocks were active."""
    result = base.sparse_gradients(given, own)
    if given.key_indices is not None:
        return result
    dense = base.sparse_gradients(given.but(block_mask=None, block_indices=None, block_counts=None), own)
    return (result[0], *dense[1:3], *result[3:])
