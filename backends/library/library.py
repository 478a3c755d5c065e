"""An array library as an object: all that is done with it differently than with another."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import array_api_compat
import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import DTYPES

#: Makes of a function of arrays one that is compiled whole for each shape.
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]


def _nothing() -> None:
    """Do nothing, where a library has nothing to be done."""


def _as_they_are(arrays: Sequence[Any]) -> Sequence[Any]:
    return arrays


@dataclass(frozen=True)
class Library:
    """An array library.

    Attributes
    ----------
    name, version : str
    xp : module
        Its array namespace, as array-api-compat gives it.
    to_library : callable
        Given a NumPy array that nobody else holds and a device, puts it into the library. The
        device is as the library names it; empty for where the library puts it.
    to_numpy : callable
        Given one of its arrays, and the device that it is expected on, gives a NumPy array. It
        may raise ValueError for another device.
    dtypes : tuple of str
        Those of the standard that it has.
    default_dtypes : tuple of str
        Those that a function on it is judged in where it does not say.
    strides : {"none", "positive", "any"}
        Which strides a view may have that is made from outside, by slicing; with none the
        layout is the library's own affair.
    lacks : tuple of str
        Operations that the source in Array API calls cannot have on it.
    compile : callable, optional
        How parts of that source are compiled that look at shapes alone; without it they run as
        they stand.
    prepare_eager : callable
        Called before functions are run on it operation by operation.
    compute : callable
        Has lazy arrays computed, several at once.
    release : callable
        Lets go, between calls, of what the library keeps of those before and never needs again.

    Examples
    --------
    >>> from attnspec.backends import load_library
    >>> library = load_library("numpy")
    >>> library.name, library.strides
    ('numpy', 'any')
    """

    name: str
    version: str
    xp: Any
    to_library: Callable[[NDArray[Any], str], Any]
    to_numpy: Callable[[Any, str], NDArray[Any]]
    dtypes: tuple[str, ...] = DTYPES
    default_dtypes: tuple[str, ...] = ("float32", "float64")
    strides: Literal["none", "positive", "any"] = "none"
    lacks: tuple[str, ...] = ()
    compile: Compiler | None = None
    prepare_eager: Callable[[], object] = _nothing
    compute: Callable[[Sequence[Any]], Sequence[Any]] = _as_they_are
    release: Callable[[], object] = _nothing


def array_api_library(name: str, version: str, xp: Any, **more: Any) -> Library:
    """Make the object of a library that needs nothing but its Array API, and NumPy's on the way out.

    Parameters
    ----------
    name, version, xp
        As in `Library`.
    **more
        Other fields of `Library`.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.library.library import array_api_library
    >>> array_api_library("numpy", "2", np).to_library(np.ones(2), "cpu")
    array([1., 1.])
    """
    return Library(name, version, xp, partial(_put, xp), _take, **more)


def _put(xp: Any, array: NDArray[Any], device: str) -> Any:
    placed = xp.asarray(array)
    return array_api_compat.to_device(placed, device) if device else placed


def _take(array: Any, _device: str) -> NDArray[Any]:
    # Not `np.array(array)`: asked for a copy, some draw a deprecation warning.
    return np.asarray(array).copy()
