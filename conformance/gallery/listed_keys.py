"""Wrong about lists of keys."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, first, wrong
from attnspec.reference.sparsity import Sparse

#: A tile of a list.
_TILE = 16


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


@wrong("listed_keys", "SPARSE-6", "H")
def list_of_the_first_query(call: Sparse) -> Any:
    """Let all queries have the list of the first, as in decoding."""
    return base.listed_keys(call.but(key_indices=first(call.key_indices, -2)))


@wrong("listed_keys", "SPARSE-6", "H")
def lists_of_the_first_entry(call: Sparse) -> Any:
    """Let all batch entries have the lists of the first."""
    return base.listed_keys(call.but(key_indices=first(call.key_indices, -4)))


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


@wrong("listed_keys", "SPARSE-7", "V", "NVIDIA/cudnn-frontend#298")
def no_key_taken_for_the_first(call: Sparse) -> Any:
    """Clamp an entry of -1 to key 0."""
    return base.listed_keys(call.but(key_indices=np.maximum(call.key_indices, 0)))


@wrong("listed_keys", "SPARSE-7", "G", "vllm-project/vllm-gaudi#1777")
def list_ends_at_the_first_entry_of_no_key(call: Sparse) -> Any:
    """Stop reading a list at an entry of -1."""
    ended = np.maximum.accumulate(call.key_indices < 0, axis=-1)
    return base.listed_keys(call.but(key_indices=np.where(ended, -1, call.key_indices)))


@wrong("listed_keys", "SPARSE-7", "G", "NVIDIA/cudnn-frontend#298")
def places_past_the_number_of_keys_dropped(call: Sparse) -> Any:
    """Read as many places of a list as there are keys."""
    return base.listed_keys(call.but(key_indices=call.key_indices[..., : max(call.keys, 1)]))


@wrong("attended", "SPARSE-8", "V")
def key_listed_twice_counts_twice(given: Sparse) -> Any:
    """Gather the listed keys, and attend to each of them as often as it is listed."""
    if given.key_indices is None:
        return base.attended(given)
    places = np.arange(given.keys)
    counts = (given.key_indices[..., None] == places).sum(axis=-2)  # broadcasts to (*B, Hkv, L, S)
    if given.query.ndim > 2 and counts.ndim > 2 and counts.shape[-3] > 1:
        counts = np.repeat(counts, given.query.shape[-3] // given.key.shape[-3], axis=-3)
    more = np.log(np.maximum(counts, 1)).astype(given.query.dtype)
    return base.attended(given.but(bias=more if given.bias is None else more + given.bias))


@wrong("listed_keys", "SPARSE-9", "D")
def list_of_the_first_key_head(call: Sparse) -> Any:
    """Let all heads have the list of the first key head."""
    return base.listed_keys(call.but(key_indices=first(call.key_indices, -3)))


@wrong("listed_keys", "SPARSE-9", "D")
def lists_of_key_heads_tiled(call: Sparse) -> Any:
    """Give query head h the list of key head h % Hkv."""
    heads = call.key.shape[-3] if call.key.ndim > 2 else 1
    group = call.query.shape[-3] // heads if call.query.ndim > 2 else 1
    found = base.listed_keys(call)
    if group == 1 or found.ndim < 3 or found.shape[-3] == 1:
        return found
    return np.concatenate([found[..., ::group, :, :]] * group, axis=-3)


@wrong("check_lists", "SPARSE-11", "V")
def listed_key_clamped(call: Sparse) -> Any:
    """Read the last key for one past it."""
    if getattr(call.key_indices, "dtype", np.dtype(float)).kind != "i":
        return base.check_lists(call)
    return base.check_lists(call.but(key_indices=np.clip(call.key_indices, -1, call.keys - 1)))


@wrong("sparse_gradients", "SPARSE-12", "W", "NVIDIA/cudnn-frontend#298")
def gradients_of_places_past_the_number_of_keys_dropped(given: Sparse, d_output: Array, d_lse: Array) -> Any:
    """Read as many places of a list as there are keys in the backward pass of keys and values."""
    found = base.sparse_gradients(given, d_output, d_lse)
    if given.key_indices is None:
        return found
    fewer = given.but(key_indices=given.key_indices[..., : max(given.keys, 1)])
    short = base.sparse_gradients(fewer, d_output, d_lse)
    return (found[0], *short[1:3], *found[3:])


@wrong("sparse_gradients", "SPARSE-12", "W", "NVIDIA/cudnn-frontend#676")
def no_key_gives_nan_in_the_backward_pass(given: Sparse, d_output: Array, d_lse: Array) -> Any:
    """Multiply by the weight of an entry of -1, which was computed from other memory."""
    d_query, *others = base.sparse_gradients(given, d_output, d_lse)
    if given.key_indices is None:
        return (d_query, *others)
    broken = (given.key_indices < 0).any(axis=-1, keepdims=True)  # broadcasts to (*B, Hkv, L, 1)
    if d_query.ndim > 2 and broken.ndim > 2 and broken.shape[-3] > 1:
        broken = np.repeat(broken, d_query.shape[-3] // given.key.shape[-3], axis=-3)
    return (np.where(broken, np.nan, d_query).astype(d_query.dtype), *others)


@wrong("sparse_gradients", "SPARSE-12", "W")
def blocks_ignored_in_the_backward_pass(given: Sparse, d_output: Array, d_lse: Array) -> Any:
    """Compute the gradients of keys and values as if all blocks were active."""
    found = base.sparse_gradients(given, d_output, d_lse)
    if given.key_indices is not None:
        return found
    dense = base.sparse_gradients(
        given.but(block_mask=None, block_indices=None, block_counts=None), d_output, d_lse
    )
    return (found[0], *dense[1:3], *found[3:])
