"""A backward pass in NumPy by tiles. Its options are the choices that libraries and kernels make."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product as pairs
from math import log2
from typing import Any, Literal

import numpy as np

from attnspec.dtypes import DTYPES, FORMATS, SHORT, numpy_dtype
from attnspec.reference.budget.budget import Accuracy
from tools import units
from tools.algorithms import Array, Function, divide, round_to, sequential, short_exponential
from tools.gradient_calls import (
    Call,
    Forward,
    Product,
    forward,
    prepare_call,
    round_gradients,
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
    short = partial(round_to, storage=call.storage) if cast else _as_it_is

    def cotangents(at: tuple[slice, slice]) -> Array:
        r = product(call.g[..., at[0], :], np.swapaxes(call.value[..., at[1], :], -1, -2))
        return (round_to(r, call.storage) if cast_cotangents else r) * call.kept[..., at[0], at[1]]

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
    return round_gradients(call, found)


def all_stored(call: Call) -> dict[str, Array]:
    """Compute everything in the dtype of the inputs."""
    return backward(prepare_call(call.given, call.dtype, call.storage.type))


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
    output = divide((e * call.kept) @ call.value, total)
    g = divide(call.g, total)
    d_total = divide(call.h, total) - (g * output).sum(axis=-1, keepdims=True)
    t = e * (call.kept * (g @ np.swapaxes(call.value, -1, -2)) + d_total)
    u = t * slope * s.dtype.type(call.scale)
    found = {
        "d_query": u @ call.key,
        "d_key": np.swapaxes(u, -1, -2) @ call.query,
        "d_value": np.swapaxes(e * call.kept, -1, -2) @ g,
        "d_scores": t,
        "d_sinks": of_sink * d_total,
    }
    return round_gradients(call, found)


def _parts(count: int, size: int) -> list[slice]:
    return [slice(start, start + (size or count)) for start in range(0, count, size or max(count, 1))]


def _as_it_is(array: Array) -> Array:
    return array


@dataclass(frozen=True)
class Backward:
    """A way to compute gradients, and the class or profile that it must meet."""

    #: Takes a `Call` and returns the gradients by name, in the dtypes of their arrays.
    function: Callable[[Call], dict[str, Array]]
    #: None for a fault.
    accuracy: Accuracy | None = "full"
    dtypes: tuple[str, ...] = DTYPES  # the dtypes that it supports
    profile: str = ""
    #: The largest number of products that a problem may need, because simulated arithmetic is slow.
    products: int = 2**40


def run(algorithm: Backward, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """Convert the inputs to the working precision, and compute the gradients."""
    dtype = str(arguments["query"].dtype)
    with np.errstate(all="ignore"):  # a row may have no allowed key, and a fault may overflow
        return algorithm.function(prepare_call(arguments, dtype, numpy_dtype(FORMATS[dtype].working).type))


def multiply_in_order(left: Array, right: Array) -> Array:
    """Multiply matrices, and add the products one after the other."""
    return sequential(left[..., :, None, :] * np.swapaxes(right, -1, -2)[..., None, :, :])


def multiply_on_units(left: Array, right: Array, *, split: units.Split, block: int = 4) -> Array:
    """Multiply stacks of matrices on simulated matrix units."""
    of_heads = zip(left.reshape(-1, *left.shape[-2:]), right.reshape(-1, *right.shape[-2:]), strict=True)
    add = partial(units.aligned_sum, digits=24)
    found = [units.multiply(split(a, b), block=block, add=add) for a, b in of_heads]
    return np.stack(found).reshape(*left.shape[:-1], right.shape[-1])


def _on_units(split: units.Split, profile: str, *, block: int = 4, **options: Any) -> Backward:
    product = partial(multiply_on_units, split=split, block=block)
    dtypes = SHORT if profile == "matrix" else ("float32",)
    function = partial(backward, product=product, **options)
    return Backward(function, "cast" if dtypes == SHORT else "full", dtypes, profile, 2**17)


#: The options of flash kernels.
_FLASH: dict[str, Any] = {"cast": True, "columns": 64, "rows": 32, "folded": True}

#: The algorithms by name, roughly from simple to complex.
BACKWARDS: Mapping[str, Backward] = {
    "dense": Backward(partial(backward, weights="kept", delta="keys")),
    "weights kept, delta of the output": Backward(partial(backward, weights="kept")),
    "recomputed": Backward(backward),
    "recomputed, delta of the keys": Backward(partial(backward, delta="keys")),
    "recomputed to base 2": Backward(partial(backward, weights="base 2", folded=True)),
    "sequential sums": Backward(partial(backward, delta="keys", product=multiply_in_order), products=2**17),
    "scaled first": Backward(partial(backward, scaled_first=True)),
    "division last": Backward(division_last),
    "tiles of 16 keys": Backward(partial(backward, columns=16, folded=True)),
    "tiles of 64 keys": Backward(partial(backward, columns=64, delta="keys")),
    "tiles of 1 key": Backward(partial(backward, columns=1), products=2**17),
    "tiles of 8 queries": Backward(partial(backward, rows=8)),
    "split over queries, one by one": Backward(partial(backward, rows=1), products=2**17),
    "tiles of 32 and 16, from the last": Backward(partial(backward, rows=32, columns=16, reverse=True)),
    "cast": Backward(partial(backward, cast=True), "cast"),
    "cast, weights kept": Backward(partial(backward, cast=True, weights="kept", delta="keys"), "cast"),
    "cast in tiles": Backward(partial(backward, **_FLASH), "cast"),
    "cast, scaled first": Backward(partial(backward, cast=True, scaled_first=True), "cast"),
    "cast, exponentials short": Backward(
        partial(backward, exponential=short_exponential, **_FLASH), "cast", SHORT
    ),
    "cast as differentiated": Backward(
        partial(backward, cast=True, cast_cotangents=True, weights="kept", delta="keys"), "cast"
    ),
    "all stored": Backward(all_stored, "storage", SHORT),
    "matrix units, blocks of 4": _on_units(units.as_they_are, "matrix", **_FLASH),
    "matrix units, blocks of 16": _on_units(units.as_they_are, "matrix", block=16, cast=True),
    "bf16x3, blocks of 4": _on_units(units.split_in_two, "bf16x3"),
    "tf32 cut off, blocks of 4": _on_units(partial(units.cut_off, digits=11), "tf32"),
    "bf16, blocks of 4": _on_units(units.round_to_bfloat16, "bf16"),
}
