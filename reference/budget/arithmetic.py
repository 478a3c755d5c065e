"""The arithmetic of a call, on which its budget depends besides its arguments."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS, SHORT, Format

Accuracy = Literal["full", "cast", "storage"]
Budget = NDArray[np.floating[Any]]
#: A number and its error, element by element.
Pair = tuple[Budget, Budget]


def add_rounding(value: Budget, error: Budget, storage: Format) -> Budget:
    """Add the rounding of the result: relative, or half the spacing of the subnormals."""
    with np.errstate(invalid="ignore"):
        # Where a value is not finite, results are compared as patterns, not by budget.
        final = np.maximum(storage.unit * np.abs(value) + storage.unit * error, storage.subnormal / 2)
        if not value.all():
            final = np.where((value == 0) & (error == 0), 0, final)
        result = error + final
        return result if np.isfinite(value).all() else np.where(np.isfinite(value), result, 0)


#: A larger error of an exponent carries no information. Products of three such exponentials are still finite.
LARGEST = 200.0


def exponential_error(exponent: Budget, error: Budget) -> Budget:
    """Return the error of an exponential from the error of its exponent, also where it underflows itself."""
    off: Budget = np.exp(np.minimum(exponent + error, LARGEST)) * -np.expm1(-error)
    return off


def finite_part(array: Budget) -> Budget:
    """Replace NaN and infinity by 0, as the formulas count them. A copy may be large: often none is made."""
    return array if np.isfinite(array).all() else np.where(np.isfinite(array), array, 0)


def absolute(array: Budget) -> Budget:
    """Return the absolute values. A copy may be large: none is made if no number is negative."""
    return array if (array >= 0).all() else np.abs(array)


@dataclass(frozen=True)
class Profile:
    """How a matrix product is computed."""

    #: Relative error of a factor that is first rounded or truncated to a shorter format. 0 if it is not.
    inputs: float = 0.0
    #: If factors are split into parts: the part of a product that is not computed, relative to the
    #: product.
    left_out: float = 0.0
    terms: int = 1  # the number of products of parts that make up one product
    #: The number of products that are aligned and added at a time, without being rounded themselves. 0 if
    #: each product and each sum is rounded.
    block: int = 0
    #: Relative error of a weight that is rounded to a shorter format than that of the result, 0 if it is
    #: not. It is taken to be multiplied before by a power of 2, of at least `RAISED` if its row is not
    #: normalised yet, and of at least `NORMALISED` if it is.
    weights: float = 0.0
    least: float = 0.0  # half of the smallest positive number of that format
    #: Unit of the sums of scores and outputs where it is not that of float32: of factors of 8 bits on Hopper.
    products: float = 0.0
    flushed: bool = False  # whether subnormal factors may be taken as 0

    @property
    def product(self) -> float:
        """Relative error of a product of two factors, before it is added."""
        return (2 + self.inputs) * self.inputs + self.left_out

    def summing(self, count: Any, unit: float) -> Any:
        """Return the error of a sum of products, relative to the sum of their absolute values."""
        if not self.block:
            return count * unit
        return _in_blocks(np.multiply(count, self.terms), self.block, 2.0**-24)

    def summing_products(self, count: Any, unit: float) -> Any:
        """Return the error of the sum of a score or of an output."""
        return _in_blocks(count, SHORT_BLOCK, self.products) if self.products else self.summing(count, unit)


#: The products of 8-bit factors that are added at a time: 16 on Ada, 32 on Hopper. Fewer have larger errors.
SHORT_BLOCK = 16


def _in_blocks(count: Any, block: int, unit: float) -> Any:
    """Return the error of a sum whose terms are aligned, truncated and added in blocks."""
    return np.ceil(np.divide(count, block)) * (block + 1) * 2 * unit


#: The least factors of weights that are rounded to 8 bits: before their row is divided by its sum, and after.
RAISED, NORMALISED = 16.0, 256.0

#: Each operation is rounded to nearest in the working precision.
PLAIN = Profile()

#: Blocks of 4, the shortest in use, have the largest error.
_UNITS = Profile(block=4)
_SHORT = dict.fromkeys(SHORT, _UNITS)
_FP8 = replace(_UNITS, weights=2.0**-4, least=2.0**-10)

#: By name, from the tightest to the loosest, and by the dtype of the inputs. Other dtypes are plain.
PROFILES: Mapping[str, Mapping[str, Profile]] = MappingProxyType(
    {
        "matrix": _SHORT,
        "flushed": dict.fromkeys((*SHORT, "float32"), Profile(flushed=True)),
        "tf32x3": {**_SHORT, "float32": Profile(inputs=2.0**-20, left_out=2.0**-20, terms=3, block=4)},
        "bf16x3": {**_SHORT, "float32": Profile(inputs=2.0**-16, left_out=2.0**-16, terms=3, block=4)},
        "tf32": {**_SHORT, "float32": Profile(inputs=2.0**-10, block=4)},
        "bf16": {**_SHORT, "float32": Profile(inputs=2.0**-8, block=4)},
        "fp8": dict.fromkeys((*SHORT, "float32"), _FP8),
        "fp8-14": dict.fromkeys((*SHORT, "float32"), replace(_FP8, products=2.0**-14)),
    }
)


def with_short_weights(profile: Profile) -> Profile:
    """Return a profile whose weights are rounded to e4m3fn, too."""
    return replace(profile, weights=_FP8.weights, least=_FP8.least)


@dataclass(frozen=True)
class Arithmetic:
    """The formats and the accuracy class of a call."""

    storage: Format  # of the inputs and the result
    work: Format  # of intermediate results
    lse: Format  # of an lse
    accuracy: Accuracy
    profile: Profile  # how matrix products are computed
    later: float = 1.0  # the factor of dropout, which may multiply a sum at its end

    @property
    def casts(self) -> bool:
        """Whether intermediate results are rounded to a shorter format."""
        return self.accuracy == "cast" and self.storage.unit > self.work.unit

    @property
    def largest(self) -> float:
        """Return the largest finite number of the working precision, whatever the class (NUM-3)."""
        return FORMATS[self.storage.working].largest

    def unbounded(self, error: Budget, size: Any) -> Budget:
        """Return the error, and infinity where a size is out of range (NUM-3) or made the error NaN."""
        result: Budget = np.where((size <= self.largest) & ~np.isnan(error), error, np.inf)
        return result

    @property
    def least(self) -> float:
        """Return the absolute error of a number that is rounded to the storage dtype for a product."""
        return self.later * (self.storage.normal if self.profile.flushed else self.storage.subnormal / 2)

    @property
    def tiny(self) -> float:
        """Return what an underflow may lose."""
        return self.later * self.work.normal

    def subnormal_loss(self, left: Budget, right: Budget, *, of_left: bool = True) -> Budget | float:
        """Return what a product loses where subnormal factors, or those of one matrix, are taken as 0."""
        if not self.profile.flushed:
            return 0.0
        small_left, small_right = (
            np.abs(factor) * (np.abs(factor) < self.later * self.storage.normal) for factor in (left, right)
        )
        lost: Budget = np.abs(left) @ small_right
        return lost + small_left @ np.abs(right) if of_left else lost


#: The largest part of a denominator that roundings to 0 may take: beyond it the bound is not derived.
MOST = 0.5


def short_weights(profile: Profile, weights: Budget, kept: Budget, value: Budget, output: Budget) -> Budget:
    """Return what the rounding of weights adds to the error of an output, in a row that has several."""
    p = weights[..., : kept.shape[-1]]
    most = weights.max(axis=-1, keepdims=True, initial=0.0)
    absolute = profile.least * (most / RAISED + 1 / NORMALISED) * (p > 0)  # (*B, Hq, L, S)
    lost = np.minimum(absolute.sum(axis=-1, keepdims=True), MOST)
    moved = profile.weights * p + absolute
    size = (kept * moved) @ np.abs(value)
    result: Budget = np.maximum(size, spread_of(moved, kept, value, output)) / (1 - lost)
    return result


def spread_of(moved: Budget, kept: Budget, value: Budget, output: Budget) -> Budget:
    """Sum ``moved[i, j] * |kept[i, j] value[j, c] - output[i, c]|`` over j."""
    spread = np.empty_like(output)
    for columns, distance in distances(kept, value, output):
        spread[..., columns] = np.swapaxes((moved[..., None, :, :] * distance).sum(axis=-1), -1, -2)
    return spread


#: The most distances of values that are computed at once.
_AT_ONCE = 2**16


def distances(kept: Budget, value: Budget, output: Budget) -> Iterator[tuple[slice, Budget]]:
    """Yield ``|kept[i, j] value[j, c] - output[i, c]|`` as (*B, Hq, c, L, S), some columns at a time."""
    step = max(1, _AT_ONCE // max(1, kept.size))
    for start in range(0, value.shape[-1], step):
        columns = slice(start, start + step)
        # Copied, so that a sum over the keys adds them in their order.
        of_keys, of_rows = (np.swapaxes(array[..., columns], -1, -2).copy() for array in (value, output))
        yield columns, np.abs(kept[..., None, :, :] * of_keys[..., None, :] - of_rows[..., None])


def softmax(s: Budget, allowed: NDArray[np.bool_], sink: Budget | None = None) -> tuple[Budget, Budget]:
    """Return the weights over the allowed keys of each row, and its lse. The sink has one more logit."""
    with np.errstate(all="ignore"):
        top = np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
        top = top if sink is None else np.maximum(top, sink)
        top = np.where(top == -np.inf, 0.0, top)
        exponentials = np.exp(np.where(allowed, s - top, -np.inf))
        total = exponentials.sum(axis=-1, keepdims=True)
        total = total if sink is None else total + np.exp(sink - top)
        divisor = np.where(total == 0, 1.0, total)
        lse = np.where(total == 0, -np.inf, top + np.log(divisor))
        return exponentials / divisor, np.where(top == np.inf, top, lse)[..., 0]


def transpose(pair: Pair) -> Pair:
    """Exchange the last two axes of numbers and their errors."""
    return np.swapaxes(pair[0], -1, -2), np.swapaxes(pair[1], -1, -2)
