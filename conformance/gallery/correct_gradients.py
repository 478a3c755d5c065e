"""Correct backward passes that compute in another way: from lse or output, by tiles, in other orders."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, correct
from attnspec.reference.attention import attention_of
from attnspec.reference.call import Arguments, Call, Mask
from attnspec.reference.gradients import Gradients, attention_vjp_of
from attnspec.reference.latent import ARRAYS
from attnspec.reference.notation import Attention

_TILE = 4


def _finite(lse: Array) -> Any:
    """Put 0 in the place of an lse of minus infinity, and give the lse an axis of keys."""
    return np.where(lse == -np.inf, 0, lse)[..., None]


def _tiles(count: int) -> list[slice]:
    return [slice(start, start + _TILE) for start in range(0, count, _TILE)]


@correct("forward_again")
def weights_from_the_lse(call: Gradients) -> Any:
    """Compute the weights again from the scores and the lse."""
    _, lse, seen = base.forward_again(call)
    return np.where(seen, np.exp(base.score(call) - _finite(lse)), 0), lse, seen


@correct("forward_again")
def weights_from_the_lse_in_base_two(call: Gradients) -> Any:
    """Compute the weights again as powers of 2, from scores and lse in that unit."""
    _, lse, seen = base.forward_again(call)
    unit = lse.dtype.type(np.log2(np.e))
    return np.where(seen, np.exp2((base.score(call) - _finite(lse)) * unit), 0), lse, seen


@correct("delta")
def delta_from_the_output(call: Gradients, p: Array, _r: Array, allowed: Mask) -> Any:
    """Multiply each output by its cotangent, and never hold the gradients of the weights."""
    return _rows(call, base.weighted_sum(call, base.drop(call, p), allowed), allowed)


@correct("delta", "cast")
def delta_from_the_rounded_output(call: Gradients, p: Array, _r: Array, allowed: Mask) -> Any:
    """Multiply each output, as the forward pass returned it, by its cotangent."""
    output = base.weighted_sum(call, base.drop(call, p), allowed)
    return _rows(call, output.astype(call.storage).astype(p.dtype), allowed)


def _rows(call: Gradients, output: Array, allowed: Mask) -> Any:
    """Sum the products of the rows, 0 without an allowed key: a cotangent may be NaN there (PACK-7)."""
    some = np.asarray(allowed).any(axis=-1, keepdims=True)
    return np.where(some, (output * call.d_output).sum(axis=-1, keepdims=True), 0)


@correct("delta")
def delta_tile_by_tile(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Add up the mean over tiles of four keys, the last tile first."""
    total = np.zeros_like(r[..., :1])
    for keys in reversed(_tiles(call.keys)):
        total += np.where(allowed, p * r, 0)[..., keys].sum(axis=-1, keepdims=True)
    return total


@correct("d_scores")
def cotangent_of_the_lse_in_delta(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Subtract the cotangent of the lse from the mean first."""
    return np.where(allowed, p * (r - (delta - call.d_lse)), 0)


@correct("d_scores")
def softmax_by_its_jacobian(call: Gradients, p: Array, r: Array, _delta: Array, allowed: Mask) -> Any:
    """Multiply by the matrix of all derivatives of a row's weights."""
    jacobian = np.eye(p.shape[-1], dtype=p.dtype) * p[..., None] - p[..., :, None] * p[..., None, :]
    moved = (jacobian * np.where(allowed, r, 0)[..., None, :]).sum(axis=-1)
    return np.where(allowed, moved + p * call.d_lse, 0)


@correct("d_scores", "cast")
def gradients_cast_to_storage(call: Gradients, p: Array, r: Array, delta: Array, allowed: Mask) -> Any:
    """Round the gradients of the scores to the dtype of the query before the products."""
    return base.d_scores(call, p, r, delta, allowed).astype(call.storage).astype(p.dtype)


@correct("d_value", "cast")
def weights_cast_for_d_value(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Round the weights to the dtype of the query before they meet the cotangents."""
    return base.d_value(call, p.astype(call.storage).astype(p.dtype), allowed)


@correct("d_products")
def slope_by_its_square(call: Gradients, t: Array) -> Any:
    """Take the slope of the softcap from the square of the capped score."""
    if call.softcap is None:
        return t
    capped = base.cap(call, base.product(call) * base.factor(call)) / t.dtype.type(call.softcap)
    return np.where(t == 0, 0, t * (1 - capped * capped))


@correct("d_query")
def d_query_tile_by_tile(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Add up the keys by tiles of four, the last tile first."""
    key = base.repeat_heads(call, call.key)
    total = np.zeros_like(call.query)
    for keys in reversed(_tiles(call.keys)):
        total += base.multiply_allowed(call, u[..., keys], allowed[..., keys], key[..., keys, :])
    return base.factor(call) * total


@correct("d_key")
def d_key_of_scaled_gradients(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Scale the gradients of the products, and add up the queries by tiles of four."""
    u = u * base.factor(call)
    total = np.zeros_like(base.repeat_heads(call, call.key))
    for queries in _tiles(call.queries):
        turned, pairs = (np.swapaxes(array[..., queries, :], -1, -2) for array in (u, allowed))
        total += base.multiply_allowed(call, turned, pairs, call.query[..., queries, :])
    return base.sum_heads(call, total, call.key)


@correct("d_value")
def groups_in_one_sum(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Put the queries of all heads of a group in one row of matrices, and multiply once."""
    *batch, heads, queries, depth = call.d_output.shape
    shared = call.value.shape[-3]
    rows = heads // shared * queries

    def joined(array: Array) -> Array:
        return array.reshape(*batch, shared, rows, array.shape[-1])

    kept = joined(np.where(allowed, base.drop(call, p), 0))
    turned, pairs = (np.swapaxes(array, -1, -2) for array in (kept, joined(np.asarray(allowed))))
    return base.multiply_allowed(call, turned, pairs, call.d_output.reshape(*batch, shared, rows, depth))


@correct("sum_heads")
def groups_added_one_by_one(_call: Gradients, d: Array, like: Array) -> Any:
    """Add the gradients of the heads of a group to the last one's, in place."""
    heads = like.shape[-3]
    parts = d.reshape(*d.shape[:-3], heads, d.shape[-3] // heads, *d.shape[-2:])
    total = parts[..., -1, :, :].copy()
    for place in reversed(range(parts.shape[-3] - 1)):
        total += parts[..., place, :, :]
    return total


@correct("d_sinks")
def d_sinks_as_of_a_key(call: Gradients, lse: Array, delta: Array) -> Any:
    """Take the sink for a key with a value of 0, and add up its gradients query by query."""
    top = np.where(lse == -np.inf, 0, lse)[..., None]
    moved = np.exp(call.sink - top) * ((0 - delta) + call.d_lse)
    total = np.zeros_like(moved[..., 0, 0])
    for query in range(call.queries):
        total += moved[..., query, 0]
    return total.reshape(-1, total.shape[-1]).sum(axis=0)


@correct("backward")
def one_query_differentiated_at_a_time(call: Gradients) -> Any:
    """Take the gradients for the cotangents of one query after the other, all others 0, and add them."""
    result = [np.zeros_like(d) for d in base.backward(call)]
    rows = np.arange(call.queries)[:, None]  # not `call.i`, which an offset moves
    for query in range(call.queries):
        alone = {name: np.where(rows == query, getattr(call, name), 0) for name in ("d_output", "d_lse")}
        result = [total + d for total, d in zip(result, base.backward(call.but(**alone)), strict=True)]
    return result


@correct("latent_backward")
def latent_gradients_absorbed(call: Call, given: Arguments) -> Any:
    """Attend over the latent with absorbed queries and cotangents, and project the gradients."""
    return _absorbed(call, given)


def _absorbed(call: Call, given: Arguments) -> tuple[Array, ...]:
    inner, names = given["latent"].shape[-1], (*ARRAYS, "d_output", "d_lse", "return_d_scale")
    weights = {name: given[f"{name}_weight"] for name in ("key", "value")}
    own = given["query"] @ weights["key"].swapaxes(-1, -2)  # (*B, Hq, L, Dc)
    query = np.concatenate([own, given["query_rotary"]], axis=-1)
    key = np.concatenate([given["latent"], given["key_rotary"]], axis=-1)[..., None, :, :]
    latent = given["latent"][..., None, :, :]
    options = {name: x for name, x in given.items() if name not in ARRAYS}
    options["scale"] = base.latent_scale(call, given)
    options["d_output"] = given["d_output"] @ weights["value"].swapaxes(-1, -2)
    d_query, d_key, d_latent, *rest = attention_vjp_of(call, query, key, latent, **options)
    plain = {name: x for name, x in options.items() if name not in names}
    context = attention_of(call, query, key, latent, **plain)  # (*B, Hq, L, Dc)
    d_own = d_query[..., :inner]
    products = (
        d_own.swapaxes(-1, -2) @ given["query"],
        context.swapaxes(-1, -2) @ given["d_output"],
    )
    d_key = d_key[..., 0, :, :]
    return (
        d_own @ weights["key"],
        d_query[..., inner:],
        d_key[..., :inner] + d_latent[..., 0, :, :],
        d_key[..., inner:],
        *(product.reshape(-1, *product.shape[-3:]).sum(axis=0) for product in products),
        *rest,
    )


@correct("d_scale")
def gradient_of_the_scale_from_d_query(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Sum queries times their gradients before the scale."""
    return np.sum(call.query * base.d_query(call.but(scale=1.0), u, allowed))


@correct("d_slopes")
def gradient_of_slopes_by_rows(call: Attention, g: Array) -> Any:
    """Multiply the cotangents of a row by its distances as vectors, and add up the rows from the last."""
    distance = abs(base.key_position(call) - base.position(call)).astype(g.dtype)
    rows = -(g * np.broadcast_to(distance, g.shape if distance.ndim < g.ndim else distance.shape)).sum(
        axis=-1
    )
    rows = (rows if rows.ndim > 1 else rows[None])[..., ::-1]
    return rows.sum(axis=(*range(rows.ndim - 2), -1))
