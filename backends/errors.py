"""Errors of backends and of calls."""


class BackendError(Exception):
    """A backend cannot be used. The message says what was expected and what was given."""


class Unsupported(Exception):  # noqa: N818 - a verdict, not a fault
    """The implementation does not offer a call, according to its documentation.

    An adapter raises this for limits that a signature cannot express, such as two arguments
    that exclude each other.
    """


class NotDifferentiable(Unsupported):
    """A library knows no derivative of the outputs of a function."""


class Broken(Exception):  # noqa: N818 - a verdict on an implementation, not a fault of ours
    """A call crashed, did not end in time, or had an invalid answer.

    This is neither a result nor a refusal.
    """


class Late(Broken):
    """A call had no answer within the time limit."""
