"""The error for a call that the standard refuses, and checks of plain arguments: the chapter `errors`."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


class ArgumentError(ValueError):
    """An argument that cannot be used.

    The message names the argument, what was expected, what was got and the rule.
    """


def check_number(name: str, given: Any, rule: str) -> float:
    """Take a finite real number.

    Raises
    ------
    ArgumentError
        For anything else, booleans and strings included.

    Examples
    --------
    >>> from attnspec.reference.errors import check_number
    >>> check_number("scale", True, "ERR-6")
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: scale: expected a finite number, got True [ERR-6]
    """
    real = isinstance(given, int | float | np.floating | np.integer) and not isinstance(given, bool)
    try:
        number = float(given) if real else math.nan
    except OverflowError:  # an integer past the largest float
        number = math.inf
    if not math.isfinite(number):
        raise ArgumentError(f"{name}: expected a finite number, got {given!r} [{rule}]")
    return number


def check_flag(name: str, given: Any) -> bool:
    """Take True or False: a mask passed by mistake would be taken for true.

    Raises
    ------
    ArgumentError
        For anything else.
    """
    if not isinstance(given, bool | np.bool_):
        raise ArgumentError(f"{name}: expected True or False, got {type(given).__name__} [ERR-3]")
    return bool(given)


def check_integers(
    name: str, given: ArrayLike, shape: tuple[int, ...], rule: str, *, alone: bool = True
) -> NDArray[np.int64]:
    """Take integers of a shape or, where that is allowed, a single one.

    Parameters
    ----------
    name : str
    given : int or integer array
    shape : tuple of int
        The shape an array must have.
    rule : str
        Cited by the error.
    alone : bool, optional
        Whether one integer for all may be given instead, which is no array.

    Raises
    ------
    ArgumentError
        When it is not of integers, or of another shape.

    Examples
    --------
    >>> from attnspec.reference.errors import check_integers
    >>> check_integers("key_lengths", [3, 4], (3,), "ERR-8")
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: key_lengths: expected shape (3,), got (2,) [ERR-8]
    """
    try:
        array = np.asarray(given)
    except ValueError as error:  # ragged nested lists
        raise ArgumentError(f"{name}: expected integers, got {type(given).__name__} [{rule}]") from error
    if array.dtype.kind not in "iu":
        raise ArgumentError(f"{name}: expected integers, got {array.dtype} [{rule}]")
    single = alone and array.ndim == 0 and not isinstance(given, np.ndarray)
    if array.shape != shape and not single:
        raise ArgumentError(f"{name}: expected shape {shape}, got {array.shape} [{rule}]")
    return np.broadcast_to(array.astype(np.int64), shape)


def check_booleans(name: str, given: ArrayLike, rule: str) -> NDArray[np.bool_]:
    """Take an array of booleans: numbers as a mask mean opposite things in different libraries.

    Raises
    ------
    ArgumentError
        For any other dtype.
    """
    array = np.asarray(given)
    if array.dtype != bool:
        raise ArgumentError(f"{name}: expected bool, got {array.dtype}; an additive mask is a bias [{rule}]")
    return array
