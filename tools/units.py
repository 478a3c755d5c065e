"""Simulated attention on matrix units, and with weights of 8 bits: the profiles other than `full` and `cast`.

Products on a matrix unit are exact, and sums are aligned and truncated in blocks. The profile `fp8` rounds
the weights to 8 bits before the second product.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from attnspec.dtypes import FORMATS, SHORT, numpy_dtype
from attnspec.reference.budget.budget import Accuracy
from tools.algorithms import Algorithm, Array, Head, divide
from tools.algorithms import round_to as narrowed

#: Splits the factors of a product into pairs of shorter factors, whose products add up to it.
Split = Callable[[Array, Array], list[tuple[Array, Array]]]


#: Adds a sum so far, which comes first, and products of factors, over the last axis.
Add = Callable[[Array], Array]


def attend(
    head: Head,
    *,
    split: Split,
    block: int = 4,
    digits: int = 24,
    add: Add | None = None,
    factor: float = 0.0,
    result: str = "output",
) -> Array:
    """Compute both products on the units, and everything else with NumPy.

    With a factor, the exponentials are rounded to 8 bits after a multiplication by it.
    """
    sum_of = add or partial(aligned_sum, digits=digits)

    def product(left: Array, right: Array) -> Array:
        form = FORMATS[str(head.storage)]
        return multiply([*split(*(x.astype(form.working) for x in (left, right)))], block=block, add=sum_of)

    scores = np.where(
        head.allowed, np.float32(head.scale) * product(head.query, head.key.T), np.float32(-np.inf)
    )
    top = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - top)
    total = exponentials.sum(axis=-1, keepdims=True)
    if result == "lse":
        return (np.log(total) + top)[:, 0]
    weights = (
        to_nearest(exponentials * np.float32(factor)) if factor else narrowed(exponentials, head.storage)
    )
    return divide(product(weights, head.value), total * np.float32(factor or 1))


def multiply(pairs: list[tuple[Array, Array]], *, block: int, add: Add) -> Array:
    """Add products of matrices to one sum, which starts at 0."""
    total = np.zeros((len(pairs[0][0]), pairs[0][1].shape[-1]))
    for left, right in ((a.astype(np.float64), b.astype(np.float64)) for a, b in pairs):
        for start in range(0, left.shape[-1], block):
            part = slice(start, start + block)
            terms = left[:, None, part] * right.T[None, :, part]  # exact: (L, S, block)
            total = add(np.concatenate([total[..., None], terms], axis=-1))
    return total.astype(np.float32)


def aligned_sum(terms: Array, digits: int) -> Array:
    """Add over the last axis as in Fasi et al.: align to the largest term, truncate, add, and truncate."""
    largest = np.abs(terms).max(axis=-1)
    spacing = np.ldexp(1.0, np.frexp(np.where(largest == 0, 1, largest))[1] - digits)
    exact = (np.trunc(terms / spacing[..., None]) * spacing[..., None]).sum(axis=-1)
    mantissa, exponent = np.frexp(exact)
    cut: Array = np.ldexp(np.trunc(np.ldexp(mantissa, digits)), exponent - digits)
    return cut


def paired_sum(terms: Array) -> Array:
    """Add products in pairs and then to the sum so far, each time rounded to nearest: CDNA 1 and 2."""
    total, *products = np.moveaxis(terms, -1, 0).astype(np.float32)
    while len(products) > 1:
        products = [sum(products[i : i + 2]) for i in range(0, len(products), 2)]
    rounded: Array = (total + products[0]).astype(np.float64)
    return rounded


def sum_rounded_down(terms: Array) -> Array:
    """Align and truncate products, align their sum and that so far, and round them down: CDNA 3."""
    total, products = terms[..., 0], terms[..., 1:]
    spacing = np.ldexp(1.0, _exponent(np.abs(products).max(axis=-1)) - 24)
    added = (np.trunc(products / spacing[..., None]) * spacing[..., None]).sum(axis=-1)
    most = np.maximum(_exponent(added), _exponent(total))
    both = sum(
        np.floor(x / np.ldexp(1.0, most - bits)) * np.ldexp(1.0, most - bits)
        for x, bits in ((added, 31), (total, 24))
    )
    rounded: Array = np.asarray(both).astype(np.float32).astype(np.float64)
    return rounded


def _exponent(x: Array) -> Array:
    return np.where(x == 0, -126, np.frexp(x)[1] - 1)


def flush(left: Array, right: Array, *, least: float = 0.0) -> list[tuple[Array, Array]]:
    """Take subnormal factors of float16 as 0, as CDNA 2 does, or factors below another number."""
    return [_both(left, right, lambda x: np.where(np.abs(x) < (least or 2.0**-14), np.float32(0), x))]


def as_they_are(left: Array, right: Array) -> list[tuple[Array, Array]]:
    """Multiply half precision, which the units accept."""
    return [(left, right)]


def cut_off(left: Array, right: Array, *, digits: int) -> list[tuple[Array, Array]]:
    """Truncate float32 to fewer digits, as units do in tf32."""
    shift = np.uint32(24 - digits)
    return [_both(left, right, lambda x: ((x.view(np.uint32) >> shift) << shift).view(np.float32))]


def round_to_bfloat16(left: Array, right: Array) -> list[tuple[Array, Array]]:
    """Round float32 to bfloat16."""
    return [_both(left, right, _short)]


def split_in_two(left: Array, right: Array, *, crossed: bool = True) -> list[tuple[Array, Array]]:
    """Split float32 into two numbers of bfloat16, and leave out the product of the small parts."""
    large = _both(left, right, _short)
    small = _both(left - large[0], right - large[1], _short)
    return [(small[0], large[1]), (large[0], small[1]), large] if crossed else [(small[0], large[1]), large]


def split_in_three(left: Array, right: Array) -> list[tuple[Array, Array]]:
    """Split float32 into three numbers of bfloat16, and leave out the three smallest products."""
    first = _both(left, right, _short)
    second = _both(left - first[0], right - first[1], _short)
    third = _both(left - first[0] - second[0], right - first[1] - second[1], _short)
    small = [(third[0], first[1]), (second[0], second[1]), (first[0], third[1])]
    return [*small, (second[0], first[1]), (first[0], second[1]), first]


def split_by_cutting(left: Array, right: Array, *, crossed: bool = True) -> list[tuple[Array, Array]]:
    """Split float32 into two numbers of tf32, each cut off, and leave out the product of the small parts."""
    ((large_left, large_right),) = cut_off(left, right, digits=11)
    ((small_left, small_right),) = cut_off(left - large_left, right - large_right, digits=11)
    small = [(small_left, large_right), (large_left, small_right)]
    return [*(small if crossed else small[:1]), (large_left, large_right)]


def _both(left: Array, right: Array, shorten: Callable[[Array], Array]) -> tuple[Array, Array]:
    return shorten(np.ascontiguousarray(left)), shorten(np.ascontiguousarray(right))


def _short(array: Array) -> Array:
    return narrowed(array, numpy_dtype("bfloat16"))


def _unit(
    split: Split, profile: str, *, correct: bool = True, dtypes: tuple[str, ...] = (), **options: Any
) -> Algorithm:
    dtypes = dtypes or (SHORT if profile in ("", "matrix", "fp8-14") else ("float32",))
    accuracy: Accuracy = "full" if dtypes == ("float32",) else "cast"
    function = partial(attend, split=split, **options)
    return Algorithm(function, accuracy if correct else None, dtypes, profile=profile)


_CDNA: Mapping[str, Any] = {"add": paired_sum, "dtypes": ("float16",)}


#: The algorithms by name: for each profile one that stays within it, and one that does not.
UNITS: Mapping[str, Algorithm] = {
    "matrix units, blocks of 4": _unit(as_they_are, "matrix"),
    "matrix units, blocks of 16": _unit(as_they_are, "matrix", block=16),
    "bf16x3, blocks of 4": _unit(split_in_two, "bf16x3"),
    "tf32 cut off, blocks of 4": _unit(partial(cut_off, digits=11), "tf32"),
    "bf16, blocks of 4": _unit(round_to_bfloat16, "bf16"),
    "bf16x6, blocks of 8": _unit(split_in_three, "", block=8, dtypes=("float32",)),
    "tf32x3 cut off, blocks of 4": _unit(split_by_cutting, "tf32x3"),
    "CDNA 1": _unit(as_they_are, "", add=paired_sum),
    "CDNA 2": _unit(flush, "flushed", **_CDNA),
    "CDNA 3": _unit(as_they_are, "matrix", block=8, add=sum_rounded_down),
    "CDNA 3, tf32": _unit(partial(cut_off, digits=11), "tf32", add=sum_rounded_down),
    "fp8 weights, sums of 14 digits, Hopper": _unit(as_they_are, "fp8-14", block=32, digits=14, factor=256.0),
    "fp8 weights, sums of 14 digits, Ada": _unit(as_they_are, "fp8-14", block=16, digits=14, factor=256.0),
    "bf16x6, three products": _unit(split_in_two, "", correct=False, dtypes=("float32",)),
    "tf32x3, one cross term missing": _unit(
        partial(split_by_cutting, crossed=False), "tf32x3", correct=False
    ),
    "CDNA 2, factors flushed below 2^-8": _unit(
        partial(flush, least=2.0**-8), "flushed", correct=False, **_CDNA
    ),
    "matrix units, sums of 14 digits": _unit(as_they_are, "matrix", digits=14, correct=False),
    "bf16x3, one cross term missing": _unit(partial(split_in_two, crossed=False), "bf16x3", correct=False),
    "bf16 declared as tf32": _unit(round_to_bfloat16, "tf32", correct=False),
    "bf16, sums of 8 digits": _unit(round_to_bfloat16, "bf16", digits=8, correct=False),
}


#: The largest number of each format.
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
Round = Callable[[Array], Array]


def to_nearest(x: Array, name: str = "float8_e4m3fn") -> Array:
    """Round to a format of 8 bits, to nearest, and saturate."""
    short: Array = np.minimum(x, np.float32(_LARGEST[name])).astype(getattr(ml_dtypes, name))
    return short.astype(np.float32)


def truncate(x: Array) -> Array:
    """Truncate to the four digits of e4m3fn."""
    near = to_nearest(x)
    mantissa, exponent = np.frexp(x)
    spacing = np.maximum(np.ldexp(np.ones_like(mantissa), exponent - 4), 2.0**-9)
    cut: Array = np.where(near > x, near - spacing, near).astype(np.float32)
    return cut


def dense(
    head: Head,
    *,
    factor: float = 256.0,
    rounded: Round = to_nearest,
    summed: bool = False,
    normalised: bool = False,
) -> Array:
    """Multiply all exponentials of a row, or its weights, by a factor, and round them."""
    s = np.where(head.allowed, np.float32(head.scale) * (head.query @ head.key.T), np.float32(-np.inf))
    exponentials = np.exp(s - s.max(axis=-1, keepdims=True))
    total = exponentials.sum(axis=-1, keepdims=True)
    if normalised:
        return narrowed(
            rounded(exponentials / total * np.float32(factor)) @ head.value / np.float32(factor), head.storage
        )
    short = rounded(exponentials * np.float32(factor))
    below = short.sum(axis=-1, keepdims=True) if summed else total * np.float32(factor)
    return divide(short @ head.value, below)


def online(head: Head, *, factor: float = 256.0, lag: float = 0.0, tile: int = 8) -> Array:
    """Go tile by tile, and keep a maximum that is exceeded by less than `lag` binary orders."""
    s = np.where(head.allowed, np.float32(head.scale) * (head.query @ head.key.T), np.float32(-np.inf))
    top = np.full((len(s), 1), -np.inf, np.float32)
    total, output = np.zeros((len(s), 1), np.float32), np.zeros((len(s), head.value.shape[-1]), np.float32)
    for start in range(0, s.shape[-1], tile):
        part = s[:, start : start + tile]
        highest = part.max(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):  # rows in which nothing is allowed yet
            raised = np.where(highest - top > lag * np.log(2), np.maximum(highest, top), top)
            kept = np.where(raised > -np.inf, np.exp(top - raised), 0).astype(np.float32)
            exponentials = np.where(part > -np.inf, np.exp(part - raised), 0) * np.float32(factor)
        total = total * kept + exponentials.sum(axis=-1, keepdims=True)
        output = (
            output * kept + to_nearest(exponentials.astype(np.float32)) @ head.value[start : start + tile]
        )
        top = raised.astype(np.float32)
    return divide(output, total)


def _short_weights(function: Callable[..., Array], *, correct: bool = True, **options: Any) -> Algorithm:
    dtypes = (*SHORT, "float32")
    return Algorithm(partial(function, **options), "cast" if correct else None, dtypes, profile="fp8")


#: The algorithms by name: some that stay within the profile, and some that do not.
SHORT_WEIGHTS: Mapping[str, Algorithm] = {
    "fp8 weights, raised by 2^8": _short_weights(dense),
    "fp8 weights, raised by 2^4": _short_weights(dense, factor=16.0),
    "fp8 weights, normalised, times 448": _short_weights(dense, normalised=True, factor=448.0),
    "fp8 weights, summed as rounded": _short_weights(dense, summed=True),
    "fp8 weights, tile 8": _short_weights(online),
    "fp8 weights, maximum 4 behind": _short_weights(online, factor=16.0, lag=4.0),
    "fp8 weights, not raised": _short_weights(dense, factor=1.0, correct=False),
    "fp8 weights, normalised, not raised": _short_weights(dense, normalised=True, factor=1.0, correct=False),
    "fp8 weights, saturated": _short_weights(online, lag=4.0, correct=False),
    "fp8 weights, truncated": _short_weights(dense, rounded=truncate, correct=False),
    "fp8 weights, in e5m2": _short_weights(
        dense, rounded=partial(to_nearest, name="float8_e5m2"), correct=False
    ),
}
