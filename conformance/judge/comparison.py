"""Compares an output with its exact values, first the non-finite pattern, and with printed figures."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Figure
from attnspec.conformance.verdict import BATCH, Difference
from attnspec.dtypes import FORMATS, SHORT, Format, name_of

#: What the axes of an output count, the last one first.
_AXES = ("features", "rows", "heads")


def compare(
    name: str,
    got: NDArray[Any],
    expected: NDArray[Any],
    allowed: NDArray[Any],
    *dtypes: str,
    where: NDArray[np.bool_] | None = None,
) -> Difference | float:
    """Compare one output."""
    if got.shape != expected.shape:
        return Difference("shape", name, (), str(got.shape), str(expected.shape))
    if name_of(got.dtype) not in dtypes:
        return Difference("dtype", name, (), str(got.dtype), " or ".join(dtypes))
    if not np.all(allowed >= 0):  # a quotient by such a budget would pass any number
        raise AssertionError(
            f"{name}: expected budgets that are not negative and not NaN, got {np.min(allowed)}"
        )
    wide = got.astype(np.float64)
    if not np.isfinite(allowed).all():  # where a number is out of range, any result conforms (NUM-3)
        wide = np.where(np.isfinite(allowed), wide, expected)
    if where is not None:
        wide, expected = np.where(where, wide, 0), np.where(where, expected, 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = np.abs(wide - expected) / allowed
    # What is not finite, and an error of 0 with a budget of 0, makes this NaN or infinite.
    if (most := shares.max(initial=0.0)) <= 1:
        return float(most)
    if (form := FORMATS.get(name_of(got.dtype))) is not None:
        wide, expected = _in_range(name, wide, expected, allowed, form)
    finite = np.isfinite(expected)
    same = np.where(finite, np.isfinite(wide), (wide == expected) | (np.isnan(wide) & np.isnan(expected)))
    if not same.all():
        place = _first(~same)
        count = int((~same).sum())
        return Difference(
            "pattern",
            name,
            _plain(place),
            float(wide[place]),
            float(expected[place]),
            0.0,
            np.inf,
            count,
            wide.size,
            starts=_starts(name, ~same),
        )
    error = np.abs(np.subtract(wide, expected, where=finite, out=np.zeros(wide.shape)))
    # An error in an element with a budget of 0 uses an infinite share of it.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = np.where(error == 0, 0.0, error / allowed)
    if not shares.size or shares.max() <= 1:
        return float(shares.max(initial=0.0))
    place = np.unravel_index(int(shares.argmax()), shares.shape)
    most = float(np.broadcast_to(allowed, wide.shape)[place])
    numbers = float(wide[place]), float(expected[place]), most, float(shares[place])
    wrong = shares > 1
    return Difference(
        "value", name, _plain(place), *numbers, int(wrong.sum()), wide.size, starts=_starts(name, wrong)
    )


def _starts(name: str, wrong: NDArray[np.bool_]) -> tuple[str, ...]:
    """Return the axes of an output of which the first indices are right, with the first that is wrong.

    If most of the other rows are wrong, the first of them also stands as a negative number, from the end.
    """
    if name != "output" or wrong.ndim < len(_AXES):
        return ()
    starts = []
    for axis, what in enumerate(_AXES, start=1):
        along = np.any(np.moveaxis(wrong, -axis, 0).reshape(wrong.shape[-axis], -1), axis=1).tolist()
        first = along.index(True)
        starts += [f"{what} {first}"] if first and all(along[first:]) else []
        last = len(along) - first
        ends = what == "rows" and first and 2 * along.count(True) > last
        starts += [f"{what} {-last}"] if ends else []
    entries = wrong.reshape(-1, int(np.prod(wrong.shape[-len(_AXES) :])))  # the batch axes as one
    return (*starts, *([BATCH] if len(entries) > 1 and not entries[0].any() else []))


def _in_range(
    name: str, wide: NDArray[Any], expected: NDArray[Any], allowed: NDArray[Any], form: Format
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Let the largest number stand for what is beyond it, but not for a decoded infinity (NUM-3, QUANT-1).

    A number that is rounded once is infinite from half a step above the largest one on.
    """
    finite, largest = np.isfinite(expected), form.largest
    beyond = finite & (np.abs(expected) > largest)
    reaches = np.zeros(finite.shape, np.bool_)
    if form.name in SHORT:
        infinite = largest + form.unit * 2.0 ** form.exponents[1]  # rounding gives infinity from here on
        reaches = finite & (np.abs(expected) >= infinite * (1 + form.unit) - allowed)
    expected = np.where(beyond, np.copysign(np.where(allowed == 0, np.inf, largest), expected), expected)
    stands = np.isinf(wide) & (beyond | reaches) & np.isfinite(expected) & (name != "dequantized")
    return np.where(stands, np.copysign(largest, wide), wide), expected


def same_bits(name: str, got: NDArray[Any], expected: NDArray[Any]) -> Difference | None:
    """Compare two results that must have the same bits. Return None if they have.

    Zeros of different sign differ. NaN is the same as any other NaN, because its payload is not defined.
    """
    if got.shape != expected.shape:
        return Difference("shape", name, (), str(got.shape), str(expected.shape))
    if got.tobytes() == expected.tobytes():
        return None
    left, right = (np.ascontiguousarray(array) for array in (got, expected))
    other = (left.view(f"V{left.itemsize}") != right.view(f"V{right.itemsize}")).reshape(got.shape)
    other &= ~(np.isnan(got) & np.isnan(expected))
    if not other.any():
        return None
    place = _first(other)
    numbers = float(got[place]), float(expected[place])
    return Difference("bits", name, _plain(place), *numbers, 0.0, np.inf, int(other.sum()), got.size)


def _first(where: NDArray[np.bool_]) -> tuple[Any, ...]:
    return np.unravel_index(int(where.argmax()), where.shape)


def _plain(place: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(int(index) for index in place)


def misprint(figure: Figure, values: Mapping[str, Any], errors: Mapping[str, Any]) -> str:
    """Describe how a figure disagrees with the values, or return an empty string.

    A figure agrees if some number within the error of the value prints as the figure, that
    is, lies within half a unit of the last known place.
    """
    value, error = _part(figure, np.asarray(values[figure.of]), np.asarray(errors.get(figure.of, 0.0)))
    where = f"worked example {figure.example}, {figure.cell}, {figure.of}"
    if figure.statistic != "value":
        where += f" ({figure.statistic})"
    flat, flat_error = value.ravel(), np.broadcast_to(error, value.shape).ravel()
    if len(figure.text) != flat.size and not (figure.cut and len(figure.text) < flat.size):
        return f"{where}: printed {len(figure.text)} numbers, got {flat.size}"
    for index, text in enumerate(figure.text):
        printed, got = Decimal(text), float(flat[index])
        if not np.isfinite(got) or not printed.is_finite():
            if float(printed) != got:
                return f"{where}: printed {text}, got {got}"
            continue
        cut = figure.cut and index == len(figure.text) - 1
        exact = "." not in text  # an integer that is printed without a point
        unit = Decimal(0 if exact else (0, (1,), _last_place(printed, text, None if cut else figure.places)))
        # A truncated print may be off by up to one unit, away from zero only.
        middle = printed + (unit / 2).copy_sign(printed) if cut else printed
        allowed = unit / 2 + Decimal(float(flat_error[index]))
        if abs(Decimal(got) - middle) > allowed:
            return f"{where}: printed {text}, got {got!r}, allowed {allowed:.3g}"
    return ""


def _last_place(printed: Decimal, text: str, places: int | None) -> int:
    """Return the power of ten of the last known place."""
    exponent = printed.as_tuple().exponent
    assert isinstance(exponent, int)  # noqa: S101 - finite, as the caller has seen
    if places is None:
        return exponent
    mantissa_exponent = int(text.partition("e")[2] or 0)
    return mantissa_exponent - places


def _part(figure: Figure, value: NDArray[Any], error: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the printed part of an array, with its error."""
    error = np.broadcast_to(error, value.shape)[figure.select]
    value = value[figure.select]
    if figure.transposed:
        value, error = np.swapaxes(value, -1, -2), np.swapaxes(error, -1, -2)
    if figure.statistic == "shape":
        return np.array(value.shape), np.zeros(1)
    if figure.statistic == "disallowed":
        return (~value).astype(np.float64), np.zeros(1)
    if figure.statistic == "variance":
        wide = value.astype(np.float64)
        off = np.abs(wide - wide.mean())
        # d(mean of squares) = 2 mean(off * d), plus the n additions and products of the example in float64.
        own = (wide.size + 4) * 2.0**-53 * (np.mean(off**2) + 2 * np.mean(off) * np.abs(wide).mean())
        return np.array(wide.var()), np.array(2 * np.mean(off * (error + error.mean())) + own)
    return value, error
