"""Correct attention algorithms in NumPy, as libraries and kernels compute it. A budget must accept them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import e, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.suite.datasets import Problem
from attnspec.dtypes import DTYPES, FORMATS, SHORT, numpy_dtype
from attnspec.reference.budget.budget import Accuracy

#: Coefficients of 2**x on [0, 1] as FlashAttention 4 approximates it, the highest power first. The error is
#: 8.8e-5.
CUBIC = (0.07711909, 0.22756439, 0.69514614, 1.0)

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Function = Callable[[Array], Array]


@dataclass(frozen=True)
class Head:
    """One head in the working precision, with the storage dtype of its inputs."""

    query: Array  # (L, D)
    key: Array  # (S, D)
    value: Array  # (S, Dv)
    allowed: Mask  # (L, S)
    scale: float
    storage: Any

    @property
    def scores(self) -> Array:
        """The scores before the mask, ``(L, S)``."""
        return self.scale * (self.query @ self.key.T)

    def mask(self, scores: Array) -> Array:
        """Put minus infinity where a key is not allowed."""
        return np.where(self.allowed, scores, np.full_like(scores, -np.inf))

    def exponentials(self, scores: Array) -> Array:
        """Return the exponentials of scores, relative to the largest of each row."""
        exponentials: Array = np.exp(
            self.mask(scores) - finite(self.mask(scores).max(axis=-1, keepdims=True))
        )
        return exponentials

    def weights(self, scores: Array) -> Array:
        """Return the softmax of scores."""
        exponentials = self.exponentials(scores)
        return divide(exponentials, exponentials.sum(axis=-1, keepdims=True))

    def parts(self, count: int) -> Iterator["Head"]:
        """Split the keys."""
        for k, v, a in zip(
            *(np.array_split(x, count) for x in (self.key, self.value, self.allowed.T)), strict=True
        ):
            yield replace(self, key=k, value=v, allowed=a.T)


@dataclass(frozen=True)
class Algorithm:
    """A way to compute attention, and the class of budget that it must meet."""

    function: Callable[..., Array]  # takes a head; `run` rounds its result
    accuracy: Accuracy | None = "full"  # None for a fault, and for one in use that exceeds its budget
    dtypes: tuple[str, ...] = DTYPES  # the dtypes for which it is accurate enough
    output: str = "output"  # the result that it computes, or `lse`
    profile: str = ""  # the profile that it is judged by, a name in `PROFILES`


def run(algorithm: Algorithm, given: Problem) -> Array:
    """Compute in the working precision, and round the result once, an lse to its dtype."""
    form = FORMATS[given.dtype]
    wide = (array.astype(form.working) for array in (given.query, given.key, given.value))
    options = {} if algorithm.output == "output" else {"result": algorithm.output}
    with np.errstate(all="ignore"):  # a part may have no allowed key, and a fault may overflow
        head = Head(*wide, given.allowed, float(given.scale), numpy_dtype(given.dtype))
        return algorithm.function(head, **options).astype(form.lse if options else given.query.dtype)


def dense(head: Head) -> Array:
    """Follow the formula: all scores, all weights, one product."""
    return head.weights(head.scores) @ head.value


def sum_by(head: Head, *, total: Function) -> Array:
    """Follow the formula, with a given function for every sum over the last axis."""
    exponentials = head.exponentials(head.scale * total(head.query[:, None, :] * head.key))  # (L, S)
    # (L, Dv, S): the sum over keys is the last axis too
    return divide(total(exponentials[:, None, :] * head.value.T), total(exponentials)[:, None])


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
    head: Head,
    *,
    tile: int,
    cast: bool = False,
    summed: bool = False,
    exponential: Function = np.exp,
    result: str = "output",
) -> Array:
    """Process the keys tile by tile, and rescale the sums when the maximum rises."""
    top = np.full((len(head.query), 1), -np.inf, head.query.dtype)
    total = np.zeros_like(top)
    output = np.zeros((len(head.query), head.value.shape[-1]), head.query.dtype)
    for start in range(0, len(head.key), tile):
        part = slice(start, start + tile)
        scores = np.where(head.allowed[:, part], head.scale * (head.query @ head.key[part].T), -np.inf)
        top, before = np.maximum(top, scores.max(axis=-1, keepdims=True)), top
        shift = finite(top)
        # The short exponential is not used here: if the maximum does not change, the factor must be 1.
        kept, exponentials = np.exp(before - shift), exponential(scores - shift)
        weights = round_to(exponentials, head.storage) if cast else exponentials
        total = total * kept + (weights if summed else exponentials).sum(axis=-1, keepdims=True)
        output = output * kept + weights @ head.value[part]
    return (np.log(total) + top)[:, 0] if result == "lse" else divide(output, total)


def short_exponential(x: Array) -> Array:
    """Approximate an exponential by one to base 2: the integer part by a shift, the fraction by a cubic."""
    x = x * x.dtype.type(log2(e))
    whole = np.floor(np.maximum(x, -126))
    rest, power = np.maximum(x, -126) - whole, np.zeros_like(x)
    for coefficient in CUBIC:
        power = power * rest + x.dtype.type(coefficient)
    return np.where(x < -126, 0, np.ldexp(power, whole.astype(int)))


#: An output and its lse.
Part = tuple[Array, Array]
Merge = Callable[[Part, Part], Part]


def _part(head: Head) -> Part:
    """Attend to some of the keys."""
    scores = np.where(head.allowed, head.scores, -np.inf)
    top = finite(scores.max(axis=-1, keepdims=True, initial=-np.inf))
    exponentials = np.exp(scores - top)
    total = exponentials.sum(axis=-1, keepdims=True)
    return divide(exponentials @ head.value, total), np.log(total) + top


def split(head: Head, *, parts: int, by_sum: bool) -> Array:
    """Attend to parts of the keys separately, and merge the results by the logarithms of the denominators."""
    outputs, lse = map(np.stack, zip(*map(_part, head.parts(parts)), strict=True))  # (parts, L, 1)
    top = finite(lse.max(axis=0))
    weights = np.exp(lse - top)
    if not by_sum:  # as in the combining kernel of FlashAttention, which assumes that they add up to 1
        weights = np.exp(lse - finite(np.log(weights.sum(axis=0)) + top))
    merged: Array = (weights * outputs).sum(axis=0)
    return divide(merged, weights.sum(axis=0)) if by_sum else merged


def base_two(head: Head, *, early: bool) -> Array:
    """Multiply the scale by log2(e). Apply it in the exponent if not negative, or early to the query."""
    factor = head.query.dtype.type(head.scale * log2(e))
    scores = np.where(head.allowed, (head.query * factor if early else head.query) @ head.key.T, -np.inf)
    top = finite(scores.max(axis=-1, keepdims=True))
    exponentials = np.exp2(scores - top if early else scores * factor - top * factor)
    return divide(exponentials @ head.value, exponentials.sum(axis=-1, keepdims=True))


def scale_first(head: Head, *, share: float) -> Array:
    """Scale before the product: only the query, or query and key by the root, as PyTorch does."""
    query, key = head.scale**share * head.query, head.scale ** (1 - share) * head.key
    return head.weights(query @ key.T) @ head.value


def backwards(head: Head, *, tile: int) -> Array:
    """Process the keys from last to first."""
    turned = replace(head, key=head.key[::-1], value=head.value[::-1], allowed=head.allowed[:, ::-1])
    return online(turned, tile=tile)


def store(head: Head, *, scores_too: bool) -> Array:
    """Round the normalised weights to the storage dtype, as JAX does, or the result of every step."""
    scores = head.scores
    if scores_too:
        scores = round_to(round_to(head.query @ head.key.T, head.storage) * head.scale, head.storage)
    return round_to(head.weights(scores), head.storage) @ head.value


def store_sums(head: Head) -> Array:
    """Compute every operation in the storage dtype, sums included."""
    query, key, value = (array.astype(head.storage) for array in (head.query, head.key, head.value))
    scores = sequential(query[:, None, :] * key) * head.storage.type(head.scale)
    exponentials = head.exponentials(scores)
    return divide(sequential(exponentials[:, None, :] * value.T), sequential(exponentials)[:, None])


def round_to(array: Array, storage: Any) -> Array:
    """Round to the storage dtype, and convert back."""
    return array.astype(storage).astype(array.dtype)


def divide(total: Array, by: Array) -> Array:
    """Divide. A row with no allowed key is 0."""
    return total / np.where(by == 0, np.ones_like(by), by)


def finite(top: Array) -> Array:
    """Replace the maximum of a row with no allowed key, which is minus infinity, by 0."""
    return np.where(np.isfinite(top), top, np.zeros_like(top))


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


def chain(head: Head, *, parts: int, merge: Merge) -> Array:
    """Compute attention over each part of the keys, and merge each result into the previous ones."""
    return reduce(merge, map(_part, head.parts(parts)))[0]


def denominator_by_logarithms(head: Head, *, result: str = "output") -> Array:
    """Add each key to the logarithm of the denominator, which is rounded at its own size each time."""
    scores = np.where(head.allowed, head.scores, -np.inf)
    lse = np.logaddexp.accumulate(scores, axis=-1)[:, -1:]
    return lse[:, 0] if result == "lse" else np.exp(scores - lse) @ head.value


def _sigmoid(x: Array) -> Array:
    """Return the sigmoid of a difference of two lses, or 0 if both are minus infinity."""
    weight: Array = 1 / (1 + np.exp(-x))
    return np.where(np.isnan(weight), np.zeros_like(weight), weight)


def _online(tile: int, *more: Any, **options: Any) -> Algorithm:
    return Algorithm(partial(online, tile=tile, **options), *more)


#: The algorithms by name, roughly from simple to complex.
ALGORITHMS: Mapping[str, Algorithm] = {
    "dense": Algorithm(dense),
    "sequential sums": Algorithm(partial(sum_by, total=sequential)),
    "pairwise sums": Algorithm(partial(sum_by, total=pairwise)),
    "online, tile 16": _online(16),
    "online, tile 32": _online(32),
    "online, tile 64": _online(64),
    "online, key by key": _online(1),
    "reversed, tile 16": Algorithm(partial(backwards, tile=16)),
    "split in 2": Algorithm(partial(split, parts=2, by_sum=False)),
    "split in 3": Algorithm(partial(split, parts=3, by_sum=False)),
    "split in 3, divided by sum": Algorithm(partial(split, parts=3, by_sum=True)),
    "base 2": Algorithm(partial(base_two, early=False)),
    "base 2, scaled query": Algorithm(partial(base_two, early=True)),
    "scaled query": Algorithm(partial(scale_first, share=1.0)),
    "scaled query and key": Algorithm(partial(scale_first, share=0.5)),
    "weights cast": Algorithm(partial(store, scores_too=False), "cast"),
    "exponentials cast, tile 32": _online(32, "cast", cast=True),
    "exponentials cast and summed": _online(64, "cast", cast=True, summed=True),
    "exponentials short and cast": _online(64, "cast", SHORT, cast=True, exponential=short_exponential),
    "lse, tile 16": _online(16, "full", DTYPES, "lse"),
    "lse, key by key": _online(1, "full", DTYPES, "lse"),
    "lse, exponentials short": _online(64, "cast", SHORT, "lse", exponential=short_exponential),
    "all stored": Algorithm(partial(store, scores_too=True), "storage"),
    "all stored, sums too": Algorithm(store_sums, "storage"),
    "split in 8, merged by sigmoids": Algorithm(partial(chain, parts=8, merge=by_sigmoids)),
}

#: Algorithms in use that exceed the budget, by name.
EXCEEDING: Mapping[str, Algorithm] = {
    "merged by difference, 2 parts": Algorithm(partial(chain, parts=2, merge=by_difference), None),
    "merged by difference, 8 parts": Algorithm(partial(chain, parts=8, merge=by_difference), None),
    "denominator by logaddexp": Algorithm(denominator_by_logarithms, None),
    "lse by logaddexp": Algorithm(denominator_by_logarithms, None, output="lse"),
}
