"""Errors of backends and of calls."""

from collections.abc import Callable
from typing import Any


class BackendError(Exception):
    """A backend cannot be used. The message says what was expected and what was given."""


class Unsupported(Exception):  # noqa: N818 - a verdict, not a fault
    """The implementation does not offer a call, according to its documentation.

    An adapter raises this for limits that a signature cannot express, such as two arguments
    that exclude each other.
    """


class NotApplicable(Unsupported):
    """The call cannot be made in this run, whatever the implementation offers, as one of other ranks."""


class NotDifferentiable(Unsupported):
    """A library knows no derivative of the outputs of a function."""


class ConversionError(Exception):
    """A conversion of the adapter raised `error`, and not the function.

    `key` is ``to_library`` or ``to_numpy``, and `of` the argument or the result that `conversion` converted.
    """

    def __init__(self, key: str, of: str, conversion: Callable[[Any], Any], error: BaseException) -> None:
        super().__init__(f"{key} of {of}: {error}")
        self.key = key
        self.of = of
        self.conversion = conversion
        self.error = error


class Broken(Exception):  # noqa: N818 - a verdict on an implementation, not a fault of ours
    """A call crashed, did not end in time, or had an invalid answer.

    This is neither a result nor a refusal.
    """


class Late(Broken):
    """A call had no answer within the time limit."""
