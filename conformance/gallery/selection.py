"""Wrong about the selection of keys by their scores."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Call, Mask
from attnspec.reference.notation import Attention

ENTRIES = rows(
    ("smallest_scores_listed", "select", "SELECT-1", "Y",
     lambda call, scores, places, candidates: base.select(call, -scores, places, candidates),
     "List the keys with the smallest scores."),
    ("largest_sizes_listed", "select", "SELECT-1", "Y",
     lambda call, scores, places, candidates: base.select(call, np.abs(scores), places, candidates),
     "Drop the sign bit of scores."),
    ("negative_scores_in_the_order_of_their_bits", "select", "SELECT-1", "Y",
     lambda call, scores, places, candidates: base.select(
         call, np.where(scores < 0, -1 / scores, scores).astype(scores.dtype), places, candidates),
     "Compare bits without inverting those of negative numbers."),
    ("selection_among_the_first_64_keys", "candidate_keys", "SELECT-1", "G",
     lambda pairs, scores: base.candidate_keys(pairs, scores) & (pairs.j < 64),
     "Select among the keys of the first tile."),
    ("selection_ends_at_a_whole_tile", "candidate_keys", "SELECT-1", "G",
     lambda pairs, scores: base.candidate_keys(pairs, scores) & (pairs.j < max(pairs.keys // 16 * 16, 16)),
     "Select among the keys of the whole tiles of 16."),
    ("half_of_the_list_from_each_half", "select", "SELECT-1", "Y",
     lambda call, scores, places, candidates: _from_parts(call, scores, places, candidates, places // 2),
     "List half as many keys of each half of a row.", "sgl-project/sglang-jax#1545"),
    ("later_keys_selected", "candidate_keys", "SELECT-2", "A",
     lambda pairs, scores: base.candidate_keys(pairs.but(is_causal=False), scores),
     "Select among all keys of a causal call.", "deepseek-ai/DeepGEMM#209"),
    ("offset_of_a_selection_ignored", "candidate_keys", "SELECT-2", "A",
     lambda pairs, scores: base.candidate_keys(pairs.but(query_offset=0), scores),
     "Let each chunk begin at the first key.", "huggingface/transformers#48363"),
    ("selection_aligned_at_the_end", "candidate_keys", "SELECT-2", "A",
     lambda pairs, scores: base.candidate_keys(pairs.but(query_offset=pairs.keys - pairs.queries), scores),
     "Align the last query with the last key."),
    ("own_key_not_selected", "candidate_keys", "SELECT-2", "A",
     lambda pairs, scores: base.candidate_keys(_moved(pairs, -1), scores),
     "Select among the keys before the query."),
    ("next_key_selected", "candidate_keys", "SELECT-2", "A",
     lambda pairs, scores: base.candidate_keys(_moved(pairs, 1), scores),
     "Select among the keys up to the one after the query.", "NVIDIA/TensorRT-LLM#18585"),
    ("lengths_of_a_selection_ignored", "candidate_keys", "SELECT-2", "G",
     lambda pairs, scores: base.candidate_keys(pairs.but(key_lengths=None), scores),
     "Select among all places of a cache.", "NVIDIA/cudnn-frontend#410"),
    ("last_key_of_a_length_not_selected", "candidate_keys", "SELECT-2", "G",
     lambda pairs, scores: base.candidate_keys(
         pairs if pairs.key_lengths is None
         else pairs.but(key_lengths=np.maximum(np.asarray(pairs.key_lengths) - 1, 0)), scores),
     "Take the length for the index of the last key."),
    ("length_of_the_first_entry_in_a_selection", "candidate_keys", "SELECT-2", "G",
     lambda pairs, scores: base.candidate_keys(
         pairs if np.ndim(pairs.key_lengths) == 0
         else pairs.but(key_lengths=np.full(pairs.batch, pairs.key_lengths.ravel()[:1].sum())), scores),
     "Use the length of the first batch entry for all."),
    ("list_as_short_as_the_keys", "select", "SELECT-3", "Y",
     lambda call, scores, places, candidates: base.select(
         call, scores, max(min(places, scores.shape[-1]), 1), candidates),
     "Return as many places as there are keys.", "ByteDance-Seed/VeOmni#912"),
    ("places_that_are_left_hold_zero", "select", "SELECT-3", "Y",
     lambda call, scores, places, candidates: np.maximum(base.select(call, scores, places, candidates), 0),
     "Fill the places that are left with 0.", "NVIDIA/cudnn-frontend#672"),
    ("places_that_are_left_hold_the_length", "select", "SELECT-3", "Y",
     lambda call, scores, places, candidates: _filled(
         base.select(call, scores, places, candidates), scores.shape[-1]),
     "Fill the places that are left with an index past the last key."),
    ("places_of_a_list_in_pairs", "select", "SELECT-3", "Y",
     lambda call, scores, places, candidates: _padded(
         base.select(call, scores, max(places // 2 * 2, 1), candidates), places),
     "Store two places at a time, and not the last of an odd number.", "NVIDIA/cudnn-frontend#406"),
    ("keys_tied_at_the_end_dropped", "select", "SELECT-3", "Y",
     lambda call, scores, places, candidates: base.select(
         call, scores, places, candidates & _above_the_last(scores, places, candidates)),
     "List only keys above the score of the last place, if not all of these fit."),
    ("score_of_minus_infinity_listed", "candidate_keys", "SELECT-5", "C",
     lambda pairs, scores: base.candidate_keys(pairs, np.maximum(scores, np.finfo(np.float32).min)),
     "Let only lengths and causality say which keys may be listed.", "NVIDIA/cudnn-frontend#410"),
    ("score_of_nan_listed_first", "candidate_keys", "SELECT-6", "C",
     lambda pairs, scores: base.candidate_keys(pairs, np.where(np.isnan(scores), 0, scores)),
     "Sort NaN before all numbers, as torch.topk does.", "vllm-project/vllm#50201"),
    ("scores_rounded_to_16_bits", "select", "SELECT-7", "C",
     lambda call, scores, places, candidates: base.select(
         call, _leading_bits(scores), places, candidates),
     "Compare the first 16 bits of scores.", "sgl-project/sglang#35257"),
    ("scores_converted_to_float16", "select", "SELECT-7", "C",
     lambda call, scores, places, candidates: base.select(
         call, scores.astype(np.float16), places, candidates),
     "Compare scores in float16.", "NVIDIA/cudnn-frontend#446"),
    ("infinite_scores_not_listed", "candidate_keys", "SELECT-7", "C",
     lambda pairs, scores: base.candidate_keys(pairs, scores) & np.isfinite(scores),
     "Take an infinite score for a mark of no key.", "NVIDIA/TensorRT-LLM#18585"),
    ("negative_scores_are_zero", "select", "SELECT-7", "C",
     lambda call, scores, places, candidates: base.select(
         call, np.maximum(scores, 0).astype(scores.dtype), places, candidates),
     "Apply a ReLU to the sums instead of the products."),
    ("keys_counted_in_their_page", "select", "SELECT-8", "V",
     lambda call, scores, places, candidates: _each(
         base.select(call, scores, places, candidates), lambda key: key % 16),
     "Return the index in a page of 16."),
    ("keys_counted_over_all_entries", "select", "SELECT-8", "V",
     lambda call, scores, places, candidates: _in_the_batch(
         base.select(call, scores, places, candidates), scores.shape),
     "Return the place in an array that holds the keys of all entries.", "NVIDIA/cudnn-frontend#550"),
    ("keys_counted_from_one", "select", "SELECT-8", "Y",
     lambda call, scores, places, candidates: _each(
         base.select(call, scores, places, candidates), lambda key: key + 1),
     "Count keys from 1."),
    ("list_of_unsigned_integers", "select", "SELECT-8", "S",
     lambda call, scores, places, candidates: base.select(
         call, scores, places, candidates).astype(np.uint32),
     "Return unsigned integers, which have no -1."),
    ("index_products_below_zero_kept", "score_by_heads", "SELECT-10", "Y",
     lambda _call, index_query, index_key, index_weights: _summed(index_query, index_key, index_weights),
     "Weigh all products.", "ml-explore/mlx-lm#531"),
    ("index_scores_below_zero_cut", "score_by_heads", "SELECT-10", "Y",
     lambda _call, index_query, index_key, index_weights: np.maximum(
         _summed(index_query, index_key, index_weights), 0),
     "Apply the ReLU to the sum over the heads."),
    ("weight_in_the_relu", "score_by_heads", "SELECT-10", "Y",
     lambda call, index_query, index_key, index_weights: base.score_by_heads(
         call, index_query * index_weights[..., None], index_key, np.ones_like(index_weights)),
     "Weigh the queries, before the ReLU."),
    ("index_scores_scaled", "score_by_heads", "SELECT-10", "K",
     lambda call, index_query, index_key, index_weights: base.score_by_heads(
         call, index_query, index_key, index_weights / np.sqrt(np.float32(index_key.shape[-1]))),
     "Divide the products by the root of the depth."),
    ("index_scores_of_the_first_head", "score_by_heads", "SELECT-10", "D",
     lambda call, index_query, index_key, index_weights: base.score_by_heads(
         call, index_query[..., :1, :, :], index_key, index_weights[..., :1, :]),
     "Score by one head.", "ml-explore/mlx-lm#531"),
    ("index_weights_of_the_first_query", "score_by_heads", "SELECT-10", "H",
     lambda call, index_query, index_key, index_weights: base.score_by_heads(
         call, index_query, index_key, np.broadcast_to(index_weights[..., :1], index_weights.shape)),
     "Use the weights of the first query for all."),
    ("index_scores_in_half_precision", "score_by_heads", "NUM-7", "S",
     lambda call, index_query, index_key, index_weights: base.score_by_heads(
         call, index_query, index_key, index_weights).astype(index_query.dtype),
     "Return scores in the dtype of the queries."),
    ("index_scores_of_the_earlier_keys", "score_by_heads", "SELECT-10", "A",
     lambda call, index_query, index_key, index_weights: np.where(
         np.tri(index_query.shape[-2], index_key.shape[-2], dtype=bool),
         base.score_by_heads(call, index_query, index_key, index_weights), np.float32(-np.inf)),
     "Mask the keys after the query, although the call is not causal."),
    ("places_below_one_raised_to_one", "check_selection", "SELECT-9", "U",
     lambda call, scores, top_k, options: base.check_selection(call, scores, max(top_k, 1), options),
     "List one key where none is asked for."),
)  # fmt: skip


def _summed(query: Array, key: Array, weights: Array) -> Any:
    """Add up the weighted products of the heads."""
    wide = [x if x.dtype == np.float64 else x.astype(np.float32) for x in (query, key, weights)]
    return np.einsum("...hld,...sd,...hl->...ls", *wide)


def _moved(pairs: Attention, keys: int) -> Attention:
    return pairs.but(query_offset=np.asarray(pairs.query_offset)[()] + keys)


def _each(lists: Array, change: Any) -> Any:
    """Change the entries that are keys."""
    return np.where(lists >= 0, change(lists), lists)


def _filled(lists: Array, place: int) -> Any:
    return np.where(lists >= 0, lists, place)


def _padded(lists: Array, places: int) -> Any:
    return np.concatenate([lists, np.full((*lists.shape[:-1], places - lists.shape[-1]), -1)], axis=-1)


def _in_the_batch(lists: Array, shape: tuple[int, ...]) -> Any:
    entries = np.arange(np.prod(shape[:-2], dtype=int)).reshape((*shape[:-2], 1, 1))
    return np.where(lists >= 0, lists + entries * shape[-1], lists)


def _above_the_last(scores: Array, places: int, candidates: Mask) -> Mask:
    """Say which scores are above that of the last place, or whether all candidates fit."""
    ranked = np.sort(np.where(candidates, scores, -np.inf).astype(np.float64), axis=-1)[..., ::-1]
    if places >= scores.shape[-1]:
        return np.ones(scores.shape, bool)
    past = ranked[..., places : places + 1]
    return scores > past


def _leading_bits(scores: Array) -> Any:
    """Set the bits after the first 16 to 0."""
    size = 8 * scores.dtype.itemsize
    bits = scores.view(f"u{scores.dtype.itemsize}")
    return (bits >> (size - 16) << (size - 16)).view(scores.dtype)


def _from_parts(call: Call, scores: Array, places: int, candidates: Mask, each: int) -> Any:
    """Select in each half of a row, so many keys in the first."""
    middle = scores.shape[-1] // 2
    if middle < 8 or not each:
        return base.select(call, scores, places, candidates)
    first = base.select(call, scores[..., :middle], each, candidates[..., :middle])
    second = base.select(call, scores[..., middle:], places - each, candidates[..., middle:])
    return np.concatenate([first, _each(second, lambda key: key + middle)], axis=-1)


@wrong("select", "SELECT-4", "Y", "NVIDIA/TensorRT-LLM#17550")
def tied_key_listed_twice(call: Call, scores: Array, places: int, candidates: Mask) -> Any:
    """List the first of the keys that are tied at the last place again, instead of another one."""
    lists = base.select(call, scores, places, candidates).copy()
    if places < 2 or scores.shape[-1] < 2:
        return lists
    values = np.take_along_axis(scores, np.clip(lists, 0, None)[..., : scores.shape[-1]], axis=-1)[..., -2:]
    tied = (values[..., 0] == values[..., 1]) & (lists[..., -1] >= 0) & (lists.shape[-1] <= scores.shape[-1])
    lists[..., -1] = np.where(tied, lists[..., -2], lists[..., -1])
    return lists


@wrong("select", "SELECT-4", "Y")
def places_that_are_left_repeat_the_first(call: Call, scores: Array, places: int, candidates: Mask) -> Any:
    """Repeat the first key of a list that is not full."""
    lists = base.select(call, scores, places, candidates)
    return np.where(lists >= 0, lists, lists[..., :1])


@wrong("select", "SELECT-1", "Y", "sgl-project/sglang#36807")
def candidates_past_a_buffer_dropped(call: Call, scores: Array, places: int, candidates: Mask) -> Any:
    """Keep the first 16 keys whose score has the leading bits of the last place, and drop the others."""
    if not 0 < places < scores.shape[-1]:
        return base.select(call, scores, places, candidates)
    coarse = scores.astype(np.float32).view(np.uint32) >> 20
    coarse = np.where(scores < 0, -coarse.astype(np.int64), coarse)
    ranked = np.sort(np.where(candidates, coarse, -(2**40)), axis=-1)[..., ::-1]
    bucket = candidates & (coarse == ranked[..., places - 1 : places])
    kept = ~bucket | (np.cumsum(bucket, axis=-1) <= max(16, places))
    return base.select(call, scores, places, candidates & kept)


@wrong("select", "SELECT-4", "C")
def last_key_repeated_beside_nan(call: Call, scores: Array, places: int, candidates: Mask) -> Any:
    """Repeat a key for each NaN, because the comparison that finds the next key is false."""
    lists = base.select(call, scores, places, candidates)
    return np.where(np.isnan(scores).any(axis=-1, keepdims=True) & (lists < 0), lists[..., :1], lists)


@wrong("select", "SELECT-3", "C")
def no_key_beside_nan(call: Call, scores: Array, places: int, candidates: Mask) -> Any:
    """List no key where the largest score is NaN."""
    lists = base.select(call, scores, places, candidates)
    return np.where(np.isnan(scores).any(axis=-1, keepdims=True), -1, lists)


@wrong("select", "SELECT-6", "C", "vllm-project/vllm#50201")
def nan_listed_as_the_first_key(call: Call, scores: Array, places: int, candidates: Mask) -> Any:
    """Write key 0 for each NaN, because each comparison with it is false."""
    lists = base.select(call, scores, places, candidates)
    return np.where(np.isnan(scores).any(axis=-1, keepdims=True) & (lists < 0), 0, lists)
