"""Comparing an output with its exact value: pattern first, then numbers, element by element."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Comparison:
    """How an output compares.

    Attributes
    ----------
    problem : str
        What is wrong, in a line or more; empty when nothing is.
    kind : {"", "shape", "dtype", "pattern", "value"}
        What of it is wrong.
    share : float
        The largest share of its budget that an element used; infinite where a
        number differs that may not.
    """

    problem: str
    kind: str
    share: float


def compare(
    name: str,
    got: NDArray[Any],
    expected: NDArray[Any],
    allowed: NDArray[Any],
    *dtypes: str,
    where: NDArray[np.bool_] | None = None,
) -> Comparison:
    """Compare one output.

    Parameters
    ----------
    name : str
        Of the output, for the message.
    got : array
        What the implementation returned.
    expected : float64 array
        The exact values, rounded to float64.
    allowed : float64 array
        The largest error of each element.
    *dtypes : str
        The dtypes that the output may have.
    where : bool array, optional
        Broadcasts against the output; where it is False nothing is said of it.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.judge.comparison import compare
    >>> got, expected = np.array([1.0, np.nan]), np.array([1.0, 2.0])
    >>> print(compare("output", got, expected, np.zeros(2), "float64").problem)
    output[1]: got nan, expected 2.0 (1 of 2 elements differ in being NaN or infinite)
    """
    if got.shape != expected.shape:
        return Comparison(f"{name}: got shape {got.shape}, expected {expected.shape}", "shape", np.inf)
    if str(got.dtype) not in dtypes:
        return Comparison(f"{name}: got dtype {got.dtype}, expected {' or '.join(dtypes)}", "dtype", np.inf)
    wide = got.astype(np.float64)
    if where is not None:
        wide, expected = np.where(where, wide, 0), np.where(where, expected, 0)
    same_pattern = np.where(
        np.isfinite(expected), np.isfinite(wide), (wide == expected) | (np.isnan(wide) & np.isnan(expected))
    )
    if not same_pattern.all():
        place = _first(~same_pattern)
        return Comparison(
            f"{name}{_index(place)}: got {wide[place]}, expected {expected[place]} "
            f"({(~same_pattern).sum()} of {wide.size} elements differ in being NaN or infinite)",
            "pattern",
            np.inf,
        )
    finite = np.isfinite(expected)
    error = np.abs(np.subtract(wide, expected, where=finite, out=np.zeros(wide.shape)))
    # Where nothing may be off, being off is infinitely many budgets.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = np.where(error == 0, 0.0, error / allowed)
    if not shares.size or shares.max() <= 1:
        return Comparison("", "", float(shares.max(initial=0.0)))
    place = np.unravel_index(int(shares.argmax()), shares.shape)
    problem = (
        f"{name}{_index(place)}: got {float(wide[place])!r}, expected {float(expected[place])!r}, "
        f"off by {error[place]:.3g}, allowed {allowed[place]:.3g}: {_budgets(shares[place])} "
        f"({(shares > 1).sum()} of {wide.size} elements are off)"
    )
    return Comparison(problem, "value", float(shares[place]))


def _budgets(share: float) -> str:
    return f"{share:.3g} budgets" if np.isfinite(share) else "nothing may be off here"


def _first(where: NDArray[np.bool_]) -> tuple[Any, ...]:
    return np.unravel_index(int(where.argmax()), where.shape)


def _index(place: tuple[Any, ...]) -> str:
    return f"[{', '.join(str(int(i)) for i in place)}]" if place else ""
