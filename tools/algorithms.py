"""Correct attention algorithms in NumPy, as libraries and kernels compute it. A budget must accept them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from math import e, log2
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import DTYPES, FORMATS, SHORT
from attnspec.reference.budget.budget import Accuracy

#: Coefficients of 2**x on [0, 1] as FlashAttention 4 approximates it, the highest power first. The error is
#: 8.8e-5.
CUBIC = (0.07711909, 0.22756439, 0.69514614, 1.0)

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Function = Callable[[Array], Array]


@dataclass(frozen=True)
class Algorithm:
    """A way to compute attention, and the class of budget that it must meet."""

    #: Takes query, key, value in the working precision, the allowed keys, and by name the scale and the
    #: storage dtype. `run` rounds its result.
    function: Callable[..., Array]
    accuracy: Accuracy = "full"
    dtypes: tuple[str, ...] = DTYPES  # the dtypes for which it is accurate enough
    #: The result that it computes, `output` or `lse`.
    output: str = "output"


def run(
    function: Callable[..., Array],
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    output: str = "output",
) -> Array:
    """Compute in the working precision, and round the result once, an lse to its dtype."""
    storage = query.dtype
    wide = (array.astype(FORMATS[str(storage)].working) for array in (query, key, value))
    with np.errstate(all="ignore"):  # a part may have no allowed key, and a fault may overflow
        result = function(*wide, allowed, scale=float(scale), storage=storage)
        return result.astype(FORMATS[str(storage)].lse if output == "lse" else storage)


def dense(query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, **_: Any) -> Array:
    """Follow the formula: all scores, all weights, one product."""
    return _weights(scale * (query @ key.T), allowed) @ value


def summed_by(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, total: Function, **_: Any
) -> Array:
    """Follow the formula, with a given function for every sum over the last axis."""
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
    summed: bool = False,
    exponential: Function = np.exp,
    result: str = "output",
) -> Array:
    """Process the keys tile by tile, and rescale the sums when the maximum rises."""
    top = np.full((len(query), 1), -np.inf, query.dtype)
    total = np.zeros_like(top)
    output = np.zeros((len(query), value.shape[-1]), query.dtype)
    for start in range(0, len(key), tile):
        part = slice(start, start + tile)
        scores = np.where(allowed[:, part], scale * (query @ key[part].T), -np.inf)  # (L, tile)
        top, before = np.maximum(top, scores.max(axis=-1, keepdims=True)), top
        shift = _finite(top)
        # The short exponential is not used here: if the maximum does not change, the factor must be 1.
        kept, exponentials = np.exp(before - shift), exponential(scores - shift)
        weights = rounded(exponentials, storage) if cast else exponentials
        total = total * kept + (weights if summed else exponentials).sum(axis=-1, keepdims=True)
        output = output * kept + weights @ value[part]
    return (np.log(total) + top)[:, 0] if result == "lse" else divided(output, total)


def short_exponential(x: Array) -> Array:
    """Approximate an exponential by one to base 2: the integer part by a shift, the fraction by a cubic."""
    x = x * x.dtype.type(log2(e))
    whole = np.floor(np.maximum(x, -126))
    rest, power = np.maximum(x, -126) - whole, np.zeros_like(x)
    for coefficient in CUBIC:
        power = power * rest + x.dtype.type(coefficient)
    return np.where(x < -126, 0, np.ldexp(power, whole.astype(int)))


def split(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, parts: int, by_sum: bool, **_: Any
) -> Array:
    """Attend to parts of the keys separately, and merge the results by the logarithms of the denominators."""
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
    if not by_sum:  # as in the combining kernel of FlashAttention, which assumes that they add up to 1
        weights = np.exp(lse - _finite(np.log(weights.sum(axis=0)) + top))
    merged: Array = (weights * np.stack(outputs)).sum(axis=0)
    return divided(merged, weights.sum(axis=0)) if by_sum else merged


def base_two(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, early: bool, **_: Any
) -> Array:
    """Multiply the scale by log2(e). Apply it in the exponent if not negative, or early to the query."""
    factor = query.dtype.type(scale * log2(e))
    scores = np.where(allowed, (query * factor if early else query) @ key.T, -np.inf)
    top = _finite(scores.max(axis=-1, keepdims=True))
    exponentials = np.exp2(scores - top if early else scores * factor - top * factor)
    return divided(exponentials @ value, exponentials.sum(axis=-1, keepdims=True))


def scaled_first(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, share: float, **_: Any
) -> Array:
    """Scale before the product: only the query, or query and key by the root, as PyTorch does."""
    return _weights((scale**share * query) @ (scale ** (1 - share) * key).T, allowed) @ value


def backwards(query: Array, key: Array, value: Array, allowed: Mask, **options: Any) -> Array:
    """Process the keys from last to first."""
    return online(query, key[::-1], value[::-1], allowed[:, ::-1], **options)


def stored(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any, scores_too: bool
) -> Array:
    """Round the normalised weights to the storage dtype, as JAX does, or the result of every step."""
    scores = scale * (query @ key.T)
    if scores_too:
        scores = rounded(rounded(query @ key.T, storage) * scale, storage)
    return rounded(_weights(scores, allowed), storage) @ value


def stored_sums(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any
) -> Array:
    """Compute every operation in the storage dtype, sums included."""
    query, key, value = (array.astype(storage) for array in (query, key, value))
    scores = sequential(query[:, None, :] * key) * storage.type(scale)
    exponentials = _exponentials(scores, allowed)
    return divided(sequential(exponentials[:, None, :] * value.T), sequential(exponentials)[:, None])


def rounded(array: Array, storage: Any) -> Array:
    """Round to the storage dtype, and convert back."""
    return array.astype(storage).astype(array.dtype)


def divided(total: Array, by: Array) -> Array:
    """Divide. A row with no allowed key is 0."""
    return total / np.where(by == 0, np.ones_like(by), by)


def _finite(top: Array) -> Array:
    """Replace the maximum of a row with no allowed key, which is minus infinity, by 0."""
    return np.where(np.isfinite(top), top, np.zeros_like(top))


def _exponentials(scores: Array, allowed: Mask) -> Array:
    scores = np.where(allowed, scores, np.full_like(scores, -np.inf))
    exponentials: Array = np.exp(scores - _finite(scores.max(axis=-1, keepdims=True)))
    return exponentials


def _weights(scores: Array, allowed: Mask) -> Array:
    exponentials = _exponentials(scores, allowed)
    return divided(exponentials, exponentials.sum(axis=-1, keepdims=True))


#: The algorithms by name, roughly from simple to complex.
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
        "split in 2": Algorithm(partial(split, parts=2, by_sum=False)),
        "split in 3": Algorithm(partial(split, parts=3, by_sum=False)),
        "split in 3, divided by sum": Algorithm(partial(split, parts=3, by_sum=True)),
        "base 2": Algorithm(partial(base_two, early=False)),
        "base 2, scaled query": Algorithm(partial(base_two, early=True)),
        "scaled query": Algorithm(partial(scaled_first, share=1.0)),
        "scaled query and key": Algorithm(partial(scaled_first, share=0.5)),
        "weights cast": Algorithm(partial(stored, scores_too=False), "cast"),
        "exponentials cast, tile 32": Algorithm(partial(online, tile=32, cast=True), "cast"),
        "exponentials cast and summed": Algorithm(partial(online, tile=64, cast=True, summed=True), "cast"),
        "exponentials short and cast": Algorithm(
            partial(online, tile=64, cast=True, exponential=short_exponential), "cast", SHORT
        ),
        "lse, tile 16": Algorithm(partial(online, tile=16, result="lse"), output="lse"),
        "lse, key by key": Algorithm(partial(online, tile=1, result="lse"), output="lse"),
        "lse, exponentials short": Algorithm(
            partial(online, tile=64, exponential=short_exponential, result="lse"), "cast", SHORT, "lse"
        ),
        "all stored": Algorithm(partial(stored, scores_too=True), "storage"),
        "all stored, sums too": Algorithm(stored_sums, "storage"),
    }
)


#: An output and its lse.
Part = tuple[Array, Array]
Merge = Callable[[Part, Part], Part]


def by_sigmoids(one: Part, other: Part) -> Part:
    """Weight each output by the sigmoid of the difference of the lses."""
    (output, lse), (more, its) = one, other
    merged = _sigmoid(lse - its) * output + _sigmoid(its - lse) * more
    return merged, np.logaddexp(lse, its)


def by_difference(one: Part, other: Part) -> Part:
    """Move the first output towards the other, as implementations of ring attention do.

    The first output is rounded at its own size, even if its final weight is small.
    """
    (output, lse), (more, its) = one, other
    return output - _sigmoid(its - lse) * (output - more), np.logaddexp(lse, its)


def chain(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    parts: int,
    merge: Merge,
    **_: Any,
) -> Array:
    """Compute attention over each part of the keys, and merge each result into the previous ones."""
    found: list[Part] = []
    for k, v, a in zip(*(np.array_split(x, parts) for x in (key, value, allowed.T)), strict=True):
        scores = np.where(a.T, scale * (query @ k.T), -np.inf)
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(top), top, np.zeros_like(top))
        exponentials = np.exp(scores - shift)
        total = exponentials.sum(axis=-1, keepdims=True)
        found.append((divided(exponentials @ v, total), np.log(total) + shift))
    return reduce(merge, found)[0]


def denominator_by_logarithms(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    result: str = "output",
    **_: Any,
) -> Array:
    """Add each key to the logarithm of the denominator, which is rounded at its own size each time."""
    scores = np.where(allowed, scale * (query @ key.T), -np.inf)
    lse = np.logaddexp.accumulate(scores, axis=-1)[:, -1:]
    return lse[:, 0] if result == "lse" else np.exp(scores - lse) @ value


def _sigmoid(x: Array) -> Array:
    """Return the sigmoid of a difference of two lses, or 0 if both are minus infinity."""
    weight: Array = 1 / (1 + np.exp(-x))
    return np.where(np.isnan(weight), np.zeros_like(weight), weight)


#: Algorithms in use that exceed the budget, by name, and the result that each computes.
EXCEEDING: Mapping[str, tuple[Callable[..., Array], str]] = MappingProxyType(
    {
        "merged by difference, 2 parts": (partial(chain, parts=2, merge=by_difference), "output"),
        "merged by difference, 8 parts": (partial(chain, parts=8, merge=by_difference), "output"),
        "denominator by logaddexp": (denominator_by_logarithms, "output"),
        "lse by logaddexp": (partial(denominator_by_logarithms, result="lse"), "lse"),
    }
)
