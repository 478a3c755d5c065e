"""Figures: numbers that a worked example printed, compared with values at the printed precision."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Figure


def misprint(figure: Figure, values: Mapping[str, Any], errors: Mapping[str, Any]) -> str:
    """Describe how a figure disagrees with the values, or return an empty string.

    A figure agrees if some number within the error of the value prints as the figure, that
    is, lies within half a unit of the last known place.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec import Figure
    >>> from attnspec.conformance.judge.figure import misprint
    >>> figure = Figure("000", "In [1]", "output", ("0.33", "0.67"))
    >>> misprint(figure, {"output": np.array([1 / 3, 2 / 3])}, {})
    ''
    >>> misprint(figure, {"output": np.array([1 / 3, 0.6])}, {})
    'worked example 000, In [1], output: printed 0.67, got 0.6, allowed 0.005'
    """
    value, error = _of(figure, np.asarray(values[figure.of]), np.asarray(errors.get(figure.of, 0.0)))
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


def _of(figure: Figure, value: NDArray[Any], error: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
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
