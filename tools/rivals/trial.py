"""A trial: one call of a rule's inputs, with the results that rules compare with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference import attention
from tools.rivals.arithmetic import in_own_dtype

Array = NDArray[Any]
Given = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Trial:
    """One call.

    Attributes
    ----------
    given : mapping of str to array or option
        The arguments of attention.
    data : tuple of array, optional
        The expected results, if the source stores them.
    again : bool
        Whether it differs from the trial before only in the random numbers.
    """

    given: Given
    data: tuple[Array, ...] = ()
    again: bool = False

    @cached_property
    def exact(self) -> tuple[Array, ...]:
        """The results in float64, of the inputs as they are."""
        wide = {name: _wide(thing) for name, thing in self.given.items()}
        return outputs(attention(**wide))

    @cached_property
    def own(self) -> Array:
        """The output of plain arithmetic, in which each operation rounds to the dtype of the query."""
        return in_own_dtype(self.given)

    def repeated(self) -> "Trial":
        """Mark it as one that differs from the trial before only in the random numbers."""
        return replace(self, again=True)


def outputs(found: Any) -> tuple[Array, ...]:
    """Return the results of a call as a tuple of arrays."""
    return tuple(np.asarray(one) for one in (found if isinstance(found, tuple) else (found,)))


def _wide(thing: Any) -> Any:
    is_floating = isinstance(thing, np.ndarray) and thing.dtype.kind not in "biu"
    return thing.astype(np.float64) if is_floating else thing


#: Draws the trials of a rule.
Draw = Callable[[], list[Trial]]
