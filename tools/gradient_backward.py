"""A backward pass in NumPy by tiles. Its options are the choices that libraries and kernels make."""

from functools import partial
from itertools import product as pairs
from math import log2
from typing import Literal

import numpy as np

from tools.algorithms import Array, Function, divided, rounded
from tools.gradient_call import (
    Call,
    Forward,
    Product,
    finished,
    forward,
    prepared,
    scores,
)


def backward(
    call: Call,
    *,
    weights: Literal["kept", "recomputed", "base 2"] = "recomputed",
    delta: Literal["output", "keys"] = "output",
    rows: int = 0,
    columns: int = 0,
    reverse: bool = False,
    folded: bool = False,
    scaled_first: bool = False,
    cast: bool = False,
    cast_cotangents: bool = False,
    exponential: Function = np.exp,
    product: Product = np.matmul,
) -> dict[str, Array]:
    """Compute the gradients by tiles from the results of the forward pass."""
    left = forward(call, exponential=exponential, cast=cast, product=product)
    short = partial(rounded, storage=call.storage) if cast else _as_it_is

    def cotangents(at: tuple[slice, slice]) -> Array:
        r = product(call.g[..., at[0], :], np.swapaxes(call.value[..., at[1], :], -1, -2))
        return (rounded(r, call.storage) if cast_cotangents else r) * call.kept[..., at[0], at[1]]

    queries, keys = call.allowed.shape[-2:]
    tiles = list(pairs(_parts(queries, rows), _parts(keys, columns)))[:: -1 if reverse else 1]
    row_sums = np.zeros_like(left.lse)
    if delta == "output":
        row_sums = (call.g * left.output).sum(axis=-1, keepdims=True)
    else:
        for at in tiles:
            p, _ = _weights(call, left, at, weights, exponential, product)
            row_sums[..., at[0], :] += (p * cotangents(at)).sum(axis=-1, keepdims=True)

    scale = call.query.dtype.type(call.scale)
    found = {f"d_{name}": np.zeros_like(getattr(call, name)) for name in ("query", "key", "value")}
    found["d_scores"] = np.zeros(call.allowed.shape, call.query.dtype)
    for at in tiles:
        i, j = at
        p, slope = _weights(call, left, at, weights, exponential, product)
        r, d, h = cotangents(at), row_sums[..., i, :], call.h[..., i, :]
        t = p * (r - (d - h)) if folded else p * r - p * d + p * h if delta == "keys" else p * (r - d + h)
        found["d_scores"][..., i, j] = short(t)
        u = short(t * slope * scale if scaled_first else t * slope)
        found["d_query"][..., i, :] += product(u, call.key[..., j, :])
        found["d_key"][..., j, :] += product(np.swapaxes(u, -1, -2), call.query[..., i, :])
        dropped = short(p * call.kept[..., i, j])
        found["d_value"][..., j, :] += product(np.swapaxes(dropped, -1, -2), call.g[..., i, :])
    if not scaled_first:
        found |= {name: found[name] * scale for name in ("d_query", "d_key")}
    found["d_sinks"] = np.exp(call.sink - np.where(np.isfinite(left.lse), left.lse, 0)) * (call.h - row_sums)
    return finished(call, found)


def all_stored(call: Call) -> dict[str, Array]:
    """Compute everything in the dtype of the inputs."""
    return backward(prepared(call.given, call.dtype, call.storage.type))


def _weights(
    call: Call,
    left: Forward,
    at: tuple[slice, slice],
    how: str,
    exponential: Function,
    product: Product,
) -> tuple[Array, Array | float]:
    """Return the weights of a tile, and the slope of the softcap."""
    i, j = at
    s, slope = scores(call, call.query[..., i, :], call.key[..., j, :], (..., i, j), product=product)
    if how == "kept":
        return left.weights[..., i, j], slope
    lse = np.where(np.isfinite(left.lse), left.lse, 0)[..., i, :].astype(s.dtype)
    if how == "base 2":
        factor = s.dtype.type(log2(np.e))
        p = np.exp2(s * factor - lse * factor)
    else:
        p = exponential(s - lse)
    return np.where(call.allowed[..., i, j], p, np.zeros_like(p)), slope


def division_last(call: Call) -> dict[str, Array]:
    """Differentiate a forward pass that divides by the denominator at the very end."""
    s, slope = scores(call, call.query, call.key)
    s = np.where(call.allowed, s, np.full_like(s, -np.inf))
    top = np.maximum(s.max(axis=-1, keepdims=True), call.sink)
    top = np.where(np.isfinite(top), top, np.zeros_like(top))
    e, of_sink = np.exp(s - top), np.exp(call.sink - top)
    total = e.sum(axis=-1, keepdims=True) + of_sink
    output = divided((e * call.kept) @ call.value, total)
    g = divided(call.g, total)
    d_total = divided(call.h, total) - (g * output).sum(axis=-1, keepdims=True)
    t = e * (call.kept * (g @ np.swapaxes(call.value, -1, -2)) + d_total)
    u = t * slope * s.dtype.type(call.scale)
    found = {
        "d_query": u @ call.key,
        "d_key": np.swapaxes(u, -1, -2) @ call.query,
        "d_value": np.swapaxes(e * call.kept, -1, -2) @ g,
        "d_scores": t,
        "d_sinks": of_sink * d_total,
    }
    return finished(call, found)


def _parts(count: int, size: int) -> list[slice]:
    return [slice(start, start + (size or count)) for start in range(0, count, size or max(count, 1))]


def _as_it_is(array: Array) -> Array:
    return array
