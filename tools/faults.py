"""Attention algorithms with one numerical fault each. A budget must reject them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.conformance.gallery.numerics import truncate
from attnspec.dtypes import DTYPES, FORMATS, SHORT
from tools.algorithms import Array, Mask, dense, divided, rounded, sequential


@dataclass(frozen=True)
class Fault:
    """A faulty algorithm, in the form of those of `meta.algorithms`, and the dtypes it concerns."""

    function: Callable[..., Array]
    dtypes: tuple[str, ...]
    output: str = "output"


def softmax_in_half(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    storage: Any,
    result: str = "output",
) -> Array:
    """Compute scores, exponentials, their sum and the weights in the storage dtype."""
    scores = (scale * (query @ key.T)).astype(storage)
    exponentials = _exponentials(scores, allowed)
    if result == "lse":
        return _lse(scores, exponentials, allowed, sequential)
    weights = divided(exponentials, sequential(exponentials)[:, None])
    return weights.astype(query.dtype) @ value


def scores_in_half(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any
) -> Array:
    """Round the scores to the storage dtype, and continue in the working precision."""
    exponentials = _exponentials(rounded(scale * (query @ key.T), storage), allowed)
    return divided(exponentials @ value, exponentials.sum(axis=-1, keepdims=True))


def sums_in_half(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    storage: Any,
    result: str = "output",
) -> Array:
    """Accumulate both sums over the keys in the storage dtype."""
    scores = scale * (query @ key.T)
    exponentials = _exponentials(scores, allowed)
    if result == "lse":
        return _lse(scores, exponentials.astype(storage), allowed, sequential)
    terms = (exponentials[:, None, :] * value.T).astype(storage)  # (L, Dv, S)
    return divided(sequential(terms), sequential(exponentials.astype(storage))[:, None])


def in_float32(query: Array, key: Array, value: Array, allowed: Mask, **options: Any) -> Array:
    """Compute in float32 for any dtype of the inputs."""
    short = np.float32
    return dense(query.astype(short), key.astype(short), value.astype(short), allowed, **options)


def rough_exponential(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    result: str = "output",
    **_: Any,
) -> Array:
    """Use exponentials with errors of up to 1e-3 that depend on the argument.

    An equal relative error of all exponentials would cancel.
    """
    scores = scale * (query @ key.T)
    wave = np.sin(40 * (scores - _top(scores, allowed)))
    rough = _exponentials(scores, allowed) * (1 + 1e-3 * wave)
    if result == "lse":
        return _lse(scores, rough, allowed)
    return divided(rough @ value, rough.sum(axis=-1, keepdims=True))


def missing_key(
    query: Array, key: Array, value: Array, allowed: Mask, *, result: str = "output", **options: Any
) -> Array:
    """Leave out the last key if there is another one."""
    kept = max(len(key) - 1, 1)
    if result == "lse":
        scores = options["scale"] * (query @ key[:kept].T)
        return _lse(scores, _exponentials(scores, allowed[:, :kept]), allowed[:, :kept])
    return dense(query, key[:kept], value[:kept], allowed[:, :kept], **options)


def truncated_result(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any
) -> Array:
    """Truncate the result instead of rounding it to nearest."""
    return truncate(dense(query, key, value, allowed, scale=scale), storage)


def truncated_weights(
    query: Array, key: Array, value: Array, allowed: Mask, *, scale: float, storage: Any
) -> Array:
    """Truncate the exponentials where a kernel rounds them to the storage dtype."""
    exponentials = _exponentials(scale * (query @ key.T), allowed)
    total = exponentials.sum(axis=-1, keepdims=True)
    return divided(truncate(exponentials, storage) @ value, total)


def _sum(terms: Array) -> Array:
    total: Array = terms.sum(axis=-1)
    return total


def _top(scores: Array, allowed: Mask) -> Array:
    top = np.where(allowed, scores, np.full_like(scores, -np.inf)).max(axis=-1, keepdims=True)
    shift: Array = np.where(np.isfinite(top), top, np.zeros_like(top))
    return shift


def _lse(scores: Array, exponentials: Array, allowed: Mask, total: Callable[[Array], Array] = _sum) -> Array:
    logarithm: Array = np.log(total(exponentials).astype(FORMATS[str(scores.dtype)].lse))
    return logarithm + _top(scores, allowed)[:, 0]


def _exponentials(scores: Array, allowed: Mask) -> Array:
    exponentials: Array = np.exp(scores - _top(scores, allowed))
    return np.where(allowed, exponentials, np.zeros_like(exponentials))


#: By name.
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "softmax in half": Fault(softmax_in_half, SHORT),
        "scores stored in half": Fault(scores_in_half, SHORT),
        "sums in half": Fault(sums_in_half, SHORT),
        "float64 in float32": Fault(in_float32, ("float64",)),
        "exp off by 1e-3": Fault(rough_exponential, DTYPES),
        "last key missing": Fault(missing_key, DTYPES),
        "result truncated": Fault(truncated_result, SHORT),
        "weights truncated": Fault(truncated_weights, SHORT),
        "lse, softmax in half": Fault(partial(softmax_in_half, result="lse"), SHORT, "lse"),
        "lse, sums in half": Fault(partial(sums_in_half, result="lse"), SHORT, "lse"),
        "lse, exp off by 1e-3": Fault(partial(rough_exponential, result="lse"), DTYPES, "lse"),
        "lse, last key missing": Fault(partial(missing_key, result="lse"), DTYPES, "lse"),
    }
)
