"""Simulated attention on matrix units: products are exact, and sums are aligned and truncated in blocks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.dtypes import SHORT, numpy_dtype
from attnspec.reference.budget.budget import Accuracy
from tools.algorithms import Array, Mask, divided
from tools.algorithms import rounded as narrowed

#: Splits the factors of a product into pairs of shorter factors, whose products add up to it.
Split = Callable[[Array, Array], list[tuple[Array, Array]]]


@dataclass(frozen=True)
class Unit:
    """An algorithm on matrix units, in the form of those of `meta.algorithms`.

    Attributes
    ----------
    function : callable
    profile : str
        The profile that it is judged by, a name in `PROFILES`.
    dtypes : tuple of str
    accuracy : {"full", "cast"} or None
        None if it is faulty.
    """

    function: Callable[..., Array]
    profile: str
    dtypes: tuple[str, ...] = ("float32",)
    accuracy: Accuracy | None = "full"


def attend(
    query: Array,
    key: Array,
    value: Array,
    allowed: Mask,
    *,
    scale: float,
    storage: Any,
    split: Split,
    block: int = 4,
    digits: int = 24,
) -> Array:
    """Compute both products on the units, and everything else with NumPy."""

    def product(left: Array, right: Array) -> Array:
        return multiplied(split(left, right), block=block, digits=digits)

    scores = np.where(allowed, np.float32(scale) * product(query, key.T), np.float32(-np.inf))
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = narrowed(exponentials, storage)
    return divided(product(weights, value), exponentials.sum(axis=-1, keepdims=True))


def multiplied(pairs: list[tuple[Array, Array]], *, block: int, digits: int) -> Array:
    """Add products of matrices to one sum, which starts at 0 and has a number of digits."""
    total = np.zeros((len(pairs[0][0]), pairs[0][1].shape[-1]))
    for left, right in ((a.astype(np.float64), b.astype(np.float64)) for a, b in pairs):
        for start in range(0, left.shape[-1], block):
            part = slice(start, start + block)
            terms = left[:, None, part] * right.T[None, :, part]  # exact: (L, S, block)
            total = aligned_sum(np.concatenate([total[..., None], terms], axis=-1), digits)
    return total.astype(np.float32)


def aligned_sum(terms: Array, digits: int) -> Array:
    """Add over the last axis as in Fasi et al.: align to the largest term, truncate, add, and truncate.

    Examples
    --------
    >>> import numpy as np
    >>> from tools.units import aligned_sum
    >>> float(aligned_sum(np.array([1.0, 2.0**-24, 2.0**-24, 2.0**-24]), 24))
    1.0
    """
    largest = np.abs(terms).max(axis=-1)
    spacing = np.ldexp(1.0, np.frexp(np.where(largest == 0, 1, largest))[1] - digits)
    exact = (np.trunc(terms / spacing[..., None]) * spacing[..., None]).sum(axis=-1)
    mantissa, exponent = np.frexp(exact)
    cut: Array = np.ldexp(np.trunc(np.ldexp(mantissa, digits)), exponent - digits)
    return cut


def as_they_are(left: Array, right: Array) -> list[tuple[Array, Array]]:
    """Multiply half precision, which the units accept."""
    return [(left, right)]


def cut_off(left: Array, right: Array, *, digits: int) -> list[tuple[Array, Array]]:
    """Truncate float32 to fewer digits, as units do in tf32."""
    shift = np.uint32(24 - digits)
    return [_both(left, right, lambda x: ((x.view(np.uint32) >> shift) << shift).view(np.float32))]


def rounded_to_bfloat16(left: Array, right: Array) -> list[tuple[Array, Array]]:
    """Round float32 to bfloat16."""
    return [_both(left, right, _short)]


def split_in_two(left: Array, right: Array, *, crossed: bool = True) -> list[tuple[Array, Array]]:
    """Split float32 into two numbers of bfloat16, and leave out the product of the small parts."""
    large = _both(left, right, _short)
    small = _both(left - large[0], right - large[1], _short)
    return [(small[0], large[1]), (large[0], small[1]), large] if crossed else [(small[0], large[1]), large]


def _both(left: Array, right: Array, shorten: Callable[[Array], Array]) -> tuple[Array, Array]:
    return shorten(np.ascontiguousarray(left)), shorten(np.ascontiguousarray(right))


def _short(array: Array) -> Array:
    return narrowed(array, numpy_dtype("bfloat16"))


#: The algorithms by name: for each profile one that stays within it, and one that does not.
UNITS: Mapping[str, Unit] = MappingProxyType(
    {
        "matrix units, blocks of 4": Unit(partial(attend, split=as_they_are), "matrix", SHORT, "cast"),
        "matrix units, blocks of 16": Unit(
            partial(attend, split=as_they_are, block=16), "matrix", SHORT, "cast"
        ),
        "bf16x3, blocks of 4": Unit(partial(attend, split=split_in_two), "bf16x3"),
        "tf32 cut off, blocks of 4": Unit(partial(attend, split=partial(cut_off, digits=11)), "tf32"),
        "bf16, blocks of 4": Unit(partial(attend, split=rounded_to_bfloat16), "bf16"),
        "matrix units, sums of 14 digits": Unit(
            partial(attend, split=as_they_are, digits=14), "matrix", SHORT, None
        ),
        "bf16x3, one cross term missing": Unit(
            partial(attend, split=partial(split_in_two, crossed=False)), "bf16x3", accuracy=None
        ),
        "bf16 declared as tf32": Unit(partial(attend, split=rounded_to_bfloat16), "tf32", accuracy=None),
        "bf16, sums of 8 digits": Unit(
            partial(attend, split=rounded_to_bfloat16, digits=8), "bf16", accuracy=None
        ),
    }
)
