"""Ring attention in JAX over eight devices of one process: ``attnspec check jax_ring:sharded_attention``.

The function has the arrays of all ranks, as `sharded_attention` of the standard. `shard_map` gives each
device its shard, and the keys go around with `ppermute`. All devices need shards of one size: they are filled
up, and the rows that are added are no keys. JAX differentiates it.
"""

import math
import os
from functools import cache, partial

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # most of the time goes to compiling

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

jax.config.update("jax_num_cpu_devices", 8)  # in place of eight devices
jax.config.update("jax_enable_x64", True)


def sharded_attention(
    query,  # (*B, Hq, L, D), the rows of all ranks
    key,  # (*B, Hkv, S, D)
    value,  # (*B, Hkv, S, Dv)
    *,
    query_shards,
    key_shards,
    scale=None,
    is_causal=False,
    query_offset=0,
    window=None,
    query_positions=None,  # (*B, L)
    key_positions=None,  # (*B, S)
    sinks=None,  # (Hq,)
    return_lse=False,
):
    batch = query.shape[:-3]
    if query_positions is None:
        offset = jnp.asarray(query_offset)[..., None]
        query_positions = jnp.broadcast_to(offset + jnp.arange(query.shape[-2]), (*batch, query.shape[-2]))
    if key_positions is None:
        key_positions = jnp.broadcast_to(jnp.arange(key.shape[-2]), (*batch, key.shape[-2]))
    left, right = window or (None, None)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    shards = (tuple(np.asarray(cuts).tolist()) for cuts in (query_shards, key_shards))
    over_ranks = compile_ring(*shards, len(batch), (left, 0 if is_causal else right), scale)
    if sinks is None:
        sinks = jnp.full(query.shape[-3], -jnp.inf, query.dtype)
    output, lse = over_ranks(query, key, value, query_positions, key_positions, sinks)
    return (output, lse) if return_lse else output


@cache
def compile_ring(query_shards, key_shards, batch, limits, scale):
    """Compile the whole computation, once for each mesh."""
    own, other = rows_of(query_shards), rows_of(key_shards)
    ranks, back = len(own), np.flatnonzero(own.ravel() >= 0).astype(np.int32)
    rows = PartitionSpec(*(None,) * (batch + 1), "rank", None)
    places = PartitionSpec(*(None,) * batch, "rank")
    step = jax.shard_map(
        partial(ring, ranks=ranks, limits=limits, scale=scale),
        mesh=Mesh(jax.devices()[:ranks], ("rank",)),
        in_specs=(rows, rows, rows, places, places, PartitionSpec()),
        out_specs=(rows, PartitionSpec(*rows[:-1])),
    )

    @jax.jit
    def run(query, key, value, query_positions, key_positions, sinks):
        wide = jnp.promote_types(query.dtype, jnp.float32)
        output, lse = step(
            fill(query.astype(wide), own, -2, 0.0),
            fill(key.astype(wide), other, -2, 0.0),
            fill(value.astype(wide), other, -2, 0.0),
            fill(query_positions, own, -1, 0),
            fill(key_positions, other, -1, -1),
            sinks.astype(wide),
        )
        return jnp.take(output, back, axis=-2).astype(query.dtype), jnp.take(lse, back, axis=-1)

    return run


def rows_of(shards):
    """Return the rows of each shard, filled up with -1 to the size of the largest."""
    spans = list(zip(np.asarray(shards)[:-1], np.asarray(shards)[1:], strict=True))
    rows = np.full((len(spans), max(1, *(end - first for first, end in spans))), -1, np.int32)
    for row, (first, end) in zip(rows, spans, strict=True):
        row[: end - first] = np.arange(first, end)
    return rows


def fill(array, rows, axis, filler):
    """Put shards of one size, which are filled up, one after the other."""
    more = [(0, 0)] * array.ndim
    more[axis] = (0, 1)  # row -1 is the one that is added
    return jnp.take(jnp.pad(array, more, constant_values=filler), rows.ravel(), axis=axis)


def ring(query, key, value, own, other, sinks, *, ranks, limits, scale):
    """Compute the rows of a device."""
    heads = key.shape[-3]
    query = query.reshape(*query.shape[:-3], heads, -1, *query.shape[-2:])  # (*B, Hkv, g, l, D)
    top = jnp.broadcast_to(sinks.reshape(heads, -1, 1), query.shape[:-1])
    total = jnp.where(top == -jnp.inf, 0.0, 1.0)
    output = jnp.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    turn = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    left, right = limits

    def step(state, _):
        top, total, output, key, value, other = state
        ahead = other[..., None, :] - own[..., :, None]  # (*B, l, s)
        allowed = jnp.broadcast_to(other[..., None, :] >= 0, ahead.shape)
        allowed = allowed if left is None else allowed & (ahead >= -left)
        allowed = allowed if right is None else allowed & (ahead <= right)
        allowed = allowed[..., None, None, :, :]
        scores = jnp.where(allowed, scale * (query @ key[..., None, :, :].mT), -jnp.inf)
        largest = lax.stop_gradient(jnp.maximum(top, scores.max(axis=-1)))
        base = jnp.where(largest == -jnp.inf, 0.0, largest)
        old = jnp.exp(jnp.where(top == -jnp.inf, -jnp.inf, top - base))
        weights = jnp.exp(scores - base[..., None])
        total = total * old + weights.sum(axis=-1)
        output = output * old[..., None] + weights @ value[..., None, :, :]
        key, value, other = (lax.ppermute(x, "rank", turn) for x in (key, value, other))
        return (largest, total, output, key, value, other), None

    # A loop, because the compiler takes as long for each step that is written out.
    start = (lax.pcast(x, "rank", to="varying") for x in (top, total, output))  # each device has its own
    state = (*start, key, value, other)
    (top, total, output, *_), _ = lax.scan(step, state, None, length=ranks)
    nothing = total == 0
    output = output / jnp.where(nothing, 1.0, total)[..., None]
    lse = jnp.where(nothing, -jnp.inf, top + jnp.log(jnp.where(nothing, 1.0, total)))
    return output.reshape(*output.shape[:-4], -1, *output.shape[-2:]), lse.reshape(
        *lse.shape[:-3], -1, lse.shape[-1]
    )
