"""Correct attention algorithms in NumPy, as libraries and kernels compute it: what a budget must let pass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import e, log2, sqrt
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rounding import WORKING, Accuracy

Array = NDArray[Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Algorithm:
    """A way to compute attention, and the class of budget that it must meet.

    Attributes
    ----------
    function : callable
        Takes query, key, value in the working precision, the allowed keys, and
        by name the scale and the storage dtype. Its result is rounded by `run`.
    accuracy : {"full", "cast", "storage"}
    """

    function: Callable[..., Array]
    accuracy: Accuracy = "full"


def run(
    function: Callable[..., Array], query: Array, key: Array, value: Array, allowed: Mask, *, scale: float
) -> Array:
    """Widen the inputs, compute, and round the result once.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.algorithms import dense, run
    >>> one = np.ones((1, 1), np.float16)
    >>> run(dense, one, one, one, np.ones((1, 1), bool), scale=1.0)
    array([[1.]], dtype=float16)
    """
    storage = query.dtype
    wide = (array.astype(WORKING[str(storage)]) for array in (query, key, value))
    with np.errstate(all="ignore"):  # a part without an allowed key has lse -inf; faults may overflow
        return function(*wide, allowed, scale=scale, storage=storage).astype(storage)


def dense(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, **_: Any) -> Array:
    """Do as the formula says: all scores, all weights, one product."""
    return _weights(scale * (query @ key.T), allowed) @ value


def summed_by(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    total: Callable[[Array], Array],
    **_: Any,
) -> Array:
    """Do as the formula says, with every sum, over the last axis, taken as told."""
    scores = scale * total(query[:, None, :] * key)  # (L, S)
    exponentials = _exponentials(scores, allowed)
    # (L, Dv, S): the sum over keys is the last axis too
    return divided(total(exponentials[:, None, :] * value.T), total(exponentials)[:, None])


def sequential(terms: Array) -> Array:
    """Add one after the other, rounding each time, in the dtype of the terms."""
    total: Array = np.add.accumulate(terms, axis=-1)[..., -1]
    return total


def pairwise(terms: Array) -> Array:
    """Add neighbours, then neighbouring sums, and so on."""
    while terms.shape[-1] > 1:
        if terms.shape[-1] % 2:
            terms = np.concatenate([terms, np.zeros_like(terms[..., :1])], axis=-1)
        terms = terms[..., ::2] + terms[..., 1::2]
    return terms[..., 0]


def online(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    storage: Any,
    tile: int,
    cast: bool = False,
) -> Array:
    """Take the keys a tile at a time, rescaling what has been summed when the maximum rises."""
    top = np.full((len(query), 1), -np.inf, query.dtype)
    total = np.zeros_like(top)
    output = np.zeros((len(query), value.shape[-1]), query.dtype)
    for start in range(0, len(key), tile):
        part = slice(start, start + tile)
        scores = np.where(allowed[:, part], scale * (query @ key[part].T), -np.inf)  # (L, tile)
        top, before = np.maximum(top, scores.max(axis=-1, keepdims=True)), top
        shift = _finite(top)
        kept, exponentials = np.exp(before - shift), np.exp(scores - shift)
        total = total * kept + exponentials.sum(axis=-1, keepdims=True)
        weights = rounded(exponentials, storage) if cast else exponentials
        output = output * kept + weights @ value[part]
    return divided(output, total)


def split(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    parts: int,
    normalised: bool = False,
    **_: Any,
) -> Array:
    """Attend to parts of the keys on their own and merge by the log of their denominators."""
    outputs, logs = [], []
    for k, v, a in zip(*(np.array_split(x, parts) for x in (key, value, allowed.T)), strict=True):
        scores = np.where(a.T, scale * (query @ k.T), -np.inf)
        top = _finite(scores.max(axis=-1, keepdims=True, initial=-np.inf))
        exponentials = np.exp(scores - top)
        total = exponentials.sum(axis=-1, keepdims=True)
        outputs.append(divided(exponentials @ v, total))
        logs.append(np.log(total) + top)
    lse = np.stack(logs)  # (parts, L, 1)
    top = _finite(lse.max(axis=0))
    weights = np.exp(lse - top)
    if not normalised:  # as FlashAttention's combining kernel has it
        weights = np.exp(lse - _finite(np.log(weights.sum(axis=0)) + top))
        return (weights * np.stack(outputs)).sum(axis=0)
    return divided((weights * np.stack(outputs)).sum(axis=0), weights.sum(axis=0))


def base_two(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, **_: Any) -> Array:
    """Fold log2(e) into the scale and the scale into the exponent, for hardware that has only 2**x."""
    factor = query.dtype.type(scale * log2(e))
    products = np.where(allowed, query @ key.T, -np.inf)
    top = _finite((products if scale >= 0 else -products).max(axis=-1, keepdims=True))
    exponentials = np.where(allowed, np.exp2(products * factor - top * factor), 0)
    return divided(exponentials @ value, exponentials.sum(axis=-1, keepdims=True))


def base_two_query(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, **_: Any) -> Array:
    """Fold log2(e) and the scale into the query."""
    scores = np.where(allowed, (query * query.dtype.type(scale * log2(e))) @ key.T, -np.inf)
    exponentials = np.exp2(scores - _finite(scores.max(axis=-1, keepdims=True)))
    return divided(exponentials @ value, exponentials.sum(axis=-1, keepdims=True))


def scaled_query(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, **_: Any) -> Array:
    """Scale the query before the product."""
    return _weights((scale * query) @ key.T, allowed) @ value


def scaled_both(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, **_: Any) -> Array:
    """Scale query and key by the root of the scale, as PyTorch's math path does."""
    return _weights((sqrt(scale) * query) @ (sqrt(scale) * key).T, allowed) @ value


def backwards(query: Array, key: Array, value: Array, allowed: Mask, **options: Any) -> Array:
    """Take the keys from last to first."""
    return online(query, key[::-1], value[::-1], allowed[:, ::-1], **options)


def cast_after(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any) -> Array:
    """Round the weights, normalised, to the storage dtype, as JAX does."""
    return rounded(_weights(scale * (query @ key.T), allowed), storage) @ value


def stored(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any) -> Array:
    """Round what each step gives to the storage dtype; within a step, sums are wide."""
    scores = rounded(rounded(query @ key.T, storage) * scale, storage)
    return rounded(_weights(scores, allowed), storage) @ value


def stored_sums(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any
) -> Array:
    """Do everything in the storage dtype, one operation at a time, the sums too."""
    query, key, value = (array.astype(storage) for array in (query, key, value))
    scores = sequential(query[:, None, :] * key) * storage.type(scale)
    exponentials = _exponentials(scores, allowed)
    return divided(sequential(exponentials[:, None, :] * value.T), sequential(exponentials)[:, None])


def rounded(array: Array, storage: Any) -> Array:
    """Round to the storage dtype and widen again."""
    return array.astype(storage).astype(array.dtype)


def divided(total: Array, by: Array) -> Array:
    """Divide; where there is nothing to divide by, a row with no allowed key, give 0."""
    return total / np.where(by == 0, np.ones_like(by), by)


def _finite(top: Array) -> Array:
    """Shift by 0 in a row with no allowed key, whose maximum is minus infinity."""
    return np.where(np.isfinite(top), top, np.zeros_like(top))


def _exponentials(scores: Array, allowed: Mask) -> Array:
    scores = np.where(allowed, scores, np.full_like(scores, -np.inf))
    exponentials: Array = np.exp(scores - _finite(scores.max(axis=-1, keepdims=True)))
    return exponentials


def _weights(scores: Array, allowed: Mask) -> Array:
    exponentials = _exponentials(scores, allowed)
    return divided(exponentials, exponentials.sum(axis=-1, keepdims=True))


#: By name, roughly from plain to clever.
ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "dense": Algorithm(dense),
        "sequential sums": Algorithm(partial(summed_by, total=sequential)),
        "pairwise sums": Algorithm(partial(summed_by, total=pairwise)),
        "online, tile 16": Algorithm(partial(online, tile=16)),
        "online, tile 32": Algorithm(partial(online, tile=32)),
        "online, tile 64": Algorithm(partial(online, tile=64)),
        "online, key by key": Algorithm(partial(online, tile=1)),
        "reversed, tile 16": Algorithm(partial(backwards, tile=16)),
        "split in 2": Algorithm(partial(split, parts=2)),
        "split in 3": Algorithm(partial(split, parts=3)),
        "split in 3, parts normalised": Algorithm(partial(split, parts=3, normalised=True)),
        "base 2": Algorithm(base_two),
        "base 2, scaled query": Algorithm(base_two_query),
        "scaled query": Algorithm(scaled_query),
        "scaled query and key": Algorithm(scaled_both),
        "weights cast": Algorithm(cast_after, "cast"),
        "exponentials cast, tile 32": Algorithm(partial(online, tile=32, cast=True), "cast"),
        "all stored": Algorithm(stored, "storage"),
        "all stored, sums too": Algorithm(stored_sums, "storage"),
    }
)
