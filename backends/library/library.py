"""An array library as an object: the operations that differ between libraries."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import array_api_compat
import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.deviation import Deviation
from attnspec.dtypes import DTYPES

#: Compiles a function of arrays as a whole, for each shape.
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
#: Takes a function, its arrays and the cotangents of its outputs, and returns gradients.
Differentiate = Callable[[Callable[..., Any], Sequence[Any], Sequence[Any]], Sequence[Any]]

#: Functions that take an array. If its library compiles each change of axes for each shape, they return what
#: makes an array on its device of one on the host, where the axes are changed; None for another library.
FROM_HOST: list[Callable[[Any], Callable[[NDArray[Any]], Any] | None]] = []


def _nothing() -> None:
    """Do nothing."""


def _no_device() -> str:
    return ""


def _as_they_are(arrays: Any) -> Any:
    return arrays


@dataclass(frozen=True)
class Library:
    """An array library.

    Attributes
    ----------
    name, version : str
    xp : module
        Its array namespace, from array-api-compat.
    to_library : callable
        Converts a NumPy array to an array of the library on a device. The array shares no memory
        with another. The device is named as in the library; empty means the default device.
    to_numpy : callable
        Converts an array of the library and its expected device to a NumPy array. It may raise
        ValueError for another device.
    dtypes : tuple of str
        The dtypes of the specification that the library has.
    default_dtypes : tuple of str
        The dtypes that a function on the library is judged in by default.
    strides : {"none", "positive", "any"}
        The strides that a slice can have. ``none`` if the library hides the layout.
    lacks : tuple of str
        Operations that the reference cannot compute on the library.
    compile : callable, optional
        Compiles the parts of the reference that do not read values. Without it they run eagerly.
    capture : callable, optional
        Compiles a function of arrays as a whole at its first call. Later calls replay it.
    differentiate : callable, optional
        Takes a function of arrays, the arrays, and a cotangent for each of its outputs. Returns the
        gradient with respect to each array, None for one that the outputs do not depend on.
    constant : callable, optional
        Returns an array through which no derivative flows.
    prepare_eager : callable
        Called before functions run eagerly on the library.
    compute : callable
        Computes several lazy arrays together.
    release : callable
        Clears caches of the library that later calls do not need.
    fit_integers : callable
        Takes the arguments of a call by name, with arrays of NumPy, and returns them with integers of the
        width in which a user of the library has them.
    at_call : callable
        Takes the arguments of a call, and returns the context in which it is made.
    deviations : tuple of Deviation
        How the reference breaks rules if the library computes it.
    releases : str
        The releases of which they are true, as a version specifier.
    accelerator : callable
        Names a device that is there beside the default one; empty if none is.

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
    capture: Compiler | None = None
    differentiate: Differentiate | None = None
    constant: Callable[[Any], Any] | None = None
    prepare_eager: Callable[[], object] = _nothing
    compute: Callable[[Sequence[Any]], Sequence[Any]] = _as_they_are
    release: Callable[[], object] = _nothing
    fit_integers: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _as_they_are
    at_call: Callable[[Iterable[Any]], AbstractContextManager[object]] = nullcontext
    deviations: tuple[Deviation, ...] = ()
    releases: str = ""
    accelerator: Callable[[], str] = _no_device


def array_api_library(name: str, version: str, xp: Any, **more: Any) -> Library:
    """Make a `Library` for a library that needs only the Array API and `numpy.asarray`."""
    return Library(
        name, version, xp, partial(_put, xp), lambda array, _device: np.asarray(array).copy(), **more
    )


def _put(xp: Any, array: NDArray[Any], device: str) -> Any:
    placed = xp.asarray(array)
    return array_api_compat.to_device(placed, device) if device else placed


def has_64_bits(arguments: Iterable[Any]) -> bool:
    """Whether some argument of a call is an array of 64-bit numbers, or an integer that needs them.

    An integer array of NumPy needs them if the sum of two of its numbers may.
    """
    return any(
        has_64_bits(argument)
        if isinstance(argument, tuple | list)
        else not -(2**31) <= argument < 2**31
        if isinstance(argument, int)
        else has_64_bits([2 * int(argument.min()), 2 * int(argument.max())] if argument.size else [])
        if isinstance(argument, np.ndarray) and argument.dtype.kind in "iu"
        else hasattr(argument, "dtype") and np.dtype(argument.dtype).itemsize >= 8
        for argument in arguments
    )


def fit_integers(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a call with integers of 32 bits, or of 64 in an array that needs them."""
    if not has_64_bits(arguments.values()):
        fitting = {np.dtype(np.int64): np.int32, np.dtype(np.uint64): np.uint32}
        return {name: _cast(x, fitting) for name, x in arguments.items()}
    longer = {np.dtype(np.int32): np.int64, np.dtype(np.uint32): np.int64}
    return {name: _cast(x, longer) if has_64_bits([x]) else x for name, x in arguments.items()}


def _cast(argument: Any, dtypes: Mapping[Any, Any]) -> Any:
    is_array = isinstance(argument, np.ndarray)
    return argument.astype(dtypes.get(argument.dtype, argument.dtype)) if is_array else argument


def permute(array: Any, order: Sequence[int], xp: Any) -> Any:
    """Bring the axes of an array into another order."""
    if (from_host := _from_host(array)) is not None:
        return from_host(np.asarray(array).transpose(order))
    return xp.permute_dims(array, order) if hasattr(xp, "permute_dims") else array.transpose(order)


def reshape(array: Any, shape: Sequence[int]) -> Any:
    """Return an array in another shape."""
    if (from_host := _from_host(array)) is not None:
        return from_host(np.asarray(array).reshape(shape))
    return (
        array.reshape(shape)
        if hasattr(array, "reshape")
        else array_api_compat.array_namespace(array).reshape(array, shape)
    )


def _from_host(array: Any) -> Callable[[NDArray[Any]], Any] | None:
    return next(filter(None, (maker(array) for maker in FROM_HOST)), None)


def device_of(array: Any) -> dict[str, Any]:
    """Return the keyword that makes an array on the device of another; empty on the host."""
    device = getattr(array, "device", "cpu")
    return {} if device == "cpu" else {"device": device}
