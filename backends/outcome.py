"""Outcomes: what a declared deviation gives instead, as data that the suite verifies element by element."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS

Arguments = Mapping[str, Any]
#: Which elements of each output are meant, by its name. An array broadcasts to its output.
Elements = Callable[[Arguments], Mapping[str, NDArray[np.bool_]]]


@dataclass(frozen=True)
class OtherCall:
    """The results are those of another call, whose arguments are computed from those of the call.

    The exact values, the budget and the dtype are those of the other call.
    """

    change: Callable[[Arguments], Arguments]


@dataclass(frozen=True)
class Variant:
    """The results are those of a named variant of a rule, or of the rule if the name is empty."""

    rule: str
    name: str


@dataclass(frozen=True)
class Special:
    """Some elements are one of a few numbers, such as NaN, or right. All others are right."""

    where: Elements
    numbers: tuple[float, ...] = (np.nan,)


@dataclass(frozen=True)
class Unwritten:
    """Some elements are memory that nobody wrote, and may be anything. All others are right."""

    where: Elements


@dataclass(frozen=True)
class Bound:
    """Each error is at most so many times the budget, or at most an absolute number. NaN is none."""

    budgets: float = 1.0
    absolute: float = 0.0


@dataclass(frozen=True)
class InDtype:
    """An output has another dtype, and the right numbers rounded to it.

    The dtype is one, that of an argument if it is the name of one, or any if it is empty.
    """

    dtype: str

    def of(self, arguments: Arguments) -> str:
        """Return the dtype for a call; empty for any."""
        return str(arguments[self.dtype].dtype) if self.dtype in arguments else self.dtype


@dataclass(frozen=True)
class NoArray:
    """An output is no array, but what a library has in its place."""

    output: str


@dataclass(frozen=True)
class Raises:
    """The call raises an exception of a type, or a type of one of those names, with words in its message.

    Beside other outcomes it may do so.
    """

    type: str
    message: str


#: The closed set of outcomes.
Outcome = OtherCall | Variant | Special | Unwritten | Bound | InDtype | NoArray | Raises
OUTCOMES: tuple[type, ...] = (OtherCall, Variant, Special, Unwritten, Bound, InDtype, NoArray, Raises)


def every_element(_: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    """Mean every element of every output."""
    outputs = {result.name for form in OPERATIONS.values() for result in form.results}
    return dict.fromkeys(outputs, np.ones((), np.bool_))


def row_elements(rows: Callable[[Arguments], NDArray[np.bool_]]) -> Elements:
    """Mean some rows of scores ``(*B, Hq, L)``, and of gradients what is summed over a row among others."""

    def where(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
        found = np.asarray(rows(arguments))  # (*B, Hq, L)
        heads: NDArray[np.bool_] = np.asarray(found.any(axis=-1))  # (*B, Hq)
        key_heads = arguments["key"].shape[:-2]
        if heads.shape != key_heads:
            heads = np.asarray(heads.reshape((*key_heads, -1)).any(axis=-1))
        return {
            **dict.fromkeys(("output", "weights", "d_query"), found[..., None]),
            **dict.fromkeys(("lse", "max"), found),
            **dict.fromkeys(("d_key", "d_value"), heads[..., None, None]),
            "d_bias": np.asarray(found.any()),
        }

    return where
