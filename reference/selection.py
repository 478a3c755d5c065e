"""The scores of an indexer, and keys that are selected by scores: the chapter `selection`."""

import math
from typing import Any

from attnspec.reference.call import Array, Call, Mask, part, step
from attnspec.reference.errors import check_declared, need, real, whole
from attnspec.reference.functions import public
from attnspec.reference.masking import MASK_CHECKS, allowed_pairs
from attnspec.reference.notation import Attention, count, wide


def indexer_scores_of(call: Call, **arrays: Array) -> Array:
    """Score each key for each query by the weighted products of the heads of an indexer.

    Notes
    -----
    Rule SELECT-10.

    Examples
    --------
    >>> from attnspec.reference import indexer_scores
    >>> indexer_scores([[[1.0]], [[-1.0]]], [[2.0], [-3.0]], [[10.0], [1.0]]).tolist()
    [[20.0, 3.0]]
    """
    return score_by_heads(call, **check_declared(call, "indexer_scores", arrays))


indexer_scores = public(indexer_scores_of)


@step
@part
def score_by_heads(call: Call, index_query: Array, index_key: Array, index_weights: Array) -> Array:
    """Weigh the products that are above 0, and add them up over the heads (SELECT-10)."""
    xp, query, key = call.xp, wide(call, index_query), wide(call, index_key)
    products = query @ xp.matrix_transpose(key)[..., None, :, :]  # (*B, H, L, S)
    kept = xp.where(products > 0, products, xp.zeros_like(products))
    return xp.sum(kept * wide(call, index_weights)[..., None], axis=-3)


def select_keys_of(call: Call, scores: Array, *, top_k: Any, **options: Any) -> Array:
    """List the keys with the largest scores for each query.

    Notes
    -----
    Rules SELECT-1 to SELECT-9.

    Examples
    --------
    >>> from attnspec.reference import select_keys
    >>> select_keys([[3.0, 1.0, 2.0]], top_k=2).tolist()
    [[0, 2]]
    """
    places, pairs = check_selection(call, scores, top_k, options)
    return select(call, scores, places, candidate_keys(pairs, scores))


select_keys = public(select_keys_of)


@step
def check_selection(call: Call, scores: Array, top_k: Any, options: dict[str, Any]) -> tuple[int, Attention]:
    """Check the arguments, and return a call of attention of one head with the same masks (SELECT-9)."""
    shape = tuple(real(call, "scores", scores, "ERR-2").shape)
    need("scores", len(shape) >= 2, "two axes or more", f"shape {shape}", "ERR-16")
    queries = scores[..., None, :, :]
    keys = call.xp.matrix_transpose(queries)
    pairs = Attention(call.steps, call.xp, call.dtype, queries, keys, keys, **options)
    for check in MASK_CHECKS:
        pairs = check(pairs)
    return whole("top_k", top_k, 1, "SELECT-9"), pairs


@step
def candidate_keys(pairs: Attention, scores: Array) -> Mask:
    """Say which keys may be listed, ``(*B, L, S)`` (SELECT-2, SELECT-5, SELECT-6)."""
    return allowed_pairs(pairs)[..., 0, :, :] & (scores > -math.inf)


@step
def select(call: Call, scores: Array, places: int, candidates: Mask) -> Array:
    """List the candidates by falling score, then -1 (SELECT-1, SELECT-3)."""
    xp, keys = call.xp, scores.shape[-1]
    ranked = xp.where(candidates, wide(call, scores), -math.inf)  # every candidate is above this
    order = xp.argsort(ranked, axis=-1, descending=True)
    if places > keys:
        filler = xp.broadcast_to(count(xp, places - keys, scores), (*order.shape[:-1], places - keys))
        order = xp.concat([order, xp.astype(filler, order.dtype)], axis=-1)
    held = xp.sum(xp.astype(candidates, xp.int64), axis=-1)[..., None]  # how many keys may be listed
    return xp.where(count(xp, places, scores) < held, order[..., :places], -1)
