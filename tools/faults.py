"""Attention algorithms with one numerical fault each. A budget must reject them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from attnspec.conformance.gallery.numerics import truncate
from attnspec.dtypes import DTYPES, FORMATS, SHORT
from tools.algorithms import Algorithm, Array, Function, Head, dense, divide, finite, round_to, sequential


def softmax_in_half(head: Head, *, result: str = "output") -> Array:
    """Compute scores, exponentials, their sum and the weights in the storage dtype."""
    scores = head.scores.astype(head.storage)
    exponentials = _exponentials(head, scores)
    if result == "lse":
        return _lse(head, scores, exponentials, sequential)
    weights = divide(exponentials, sequential(exponentials)[:, None])
    return weights.astype(head.query.dtype) @ head.value


def scores_in_half(head: Head) -> Array:
    """Round the scores to the storage dtype, and continue in the working precision."""
    exponentials = _exponentials(head, round_to(head.scores, head.storage))
    return divide(exponentials @ head.value, exponentials.sum(axis=-1, keepdims=True))


def sums_in_half(head: Head, *, result: str = "output") -> Array:
    """Accumulate both sums over the keys in the storage dtype."""
    exponentials = _exponentials(head, head.scores)
    short = exponentials.astype(head.storage)
    if result == "lse":
        return _lse(head, head.scores, short, sequential)
    terms = (exponentials[:, None, :] * head.value.T).astype(head.storage)  # (L, Dv, S)
    return divide(sequential(terms), sequential(short)[:, None])


def in_float32(head: Head) -> Array:
    """Compute in float32 for any dtype of the inputs."""
    short = {name: getattr(head, name).astype(np.float32) for name in ("query", "key", "value")}
    return dense(replace(head, **short))


def rough_exponential(head: Head, *, result: str = "output") -> Array:
    """Use exponentials with errors of up to 1e-3 that depend on the argument.

    An equal relative error of all exponentials would cancel.
    """
    scores = head.scores
    wave = np.sin(40 * (scores - _top(head, scores)))
    rough = _exponentials(head, scores) * (1 + 1e-3 * wave)
    if result == "lse":
        return _lse(head, scores, rough)
    return divide(rough @ head.value, rough.sum(axis=-1, keepdims=True))


def missing_key(head: Head, *, result: str = "output") -> Array:
    """Leave out the last key if there is another one."""
    kept = max(len(head.key) - 1, 1)
    fewer = replace(head, key=head.key[:kept], value=head.value[:kept], allowed=head.allowed[:, :kept])
    if result == "lse":
        return _lse(fewer, fewer.scores, _exponentials(fewer, fewer.scores))
    return dense(fewer)


def truncated_result(head: Head) -> Array:
    """Truncate the result instead of rounding it to nearest."""
    return truncate(dense(head), head.storage)


def truncated_weights(head: Head) -> Array:
    """Truncate the exponentials where a kernel rounds them to the storage dtype."""
    exponentials = _exponentials(head, head.scores)
    total = exponentials.sum(axis=-1, keepdims=True)
    return divide(truncate(exponentials, head.storage) @ head.value, total)


def _sum(terms: Array) -> Array:
    total: Array = terms.sum(axis=-1)
    return total


def _top(head: Head, scores: Array) -> Array:
    return finite(head.mask(scores).max(axis=-1, keepdims=True))


def _lse(head: Head, scores: Array, exponentials: Array, total: Function = _sum) -> Array:
    logarithm: Array = np.log(total(exponentials).astype(FORMATS[str(scores.dtype)].lse))
    return logarithm + _top(head, scores)[:, 0]


def _exponentials(head: Head, scores: Array) -> Array:
    exponentials: Array = np.exp(scores - _top(head, scores))
    return np.where(head.allowed, exponentials, np.zeros_like(exponentials))


def _fault(function: Callable[..., Array], dtypes: tuple[str, ...], output: str = "output") -> Algorithm:
    return Algorithm(function, None, dtypes, output)


#: By name.
FAULTS: Mapping[str, Algorithm] = {
    "softmax in half": _fault(softmax_in_half, SHORT),
    "scores stored in half": _fault(scores_in_half, SHORT),
    "sums in half": _fault(sums_in_half, SHORT),
    "float64 in float32": _fault(in_float32, ("float64",)),
    "exp off by 1e-3": _fault(rough_exponential, DTYPES),
    "last key missing": _fault(missing_key, DTYPES),
    "result truncated": _fault(truncated_result, SHORT),
    "weights truncated": _fault(truncated_weights, SHORT),
    "lse, softmax in half": _fault(softmax_in_half, SHORT, "lse"),
    "lse, sums in half": _fault(sums_in_half, SHORT, "lse"),
    "lse, exp off by 1e-3": _fault(rough_exponential, DTYPES, "lse"),
    "lse, last key missing": _fault(missing_key, DTYPES, "lse"),
}
