"""What ends the judging of a case early: a rule that does not hold, or an exception of the implementation."""

import traceback

from attnspec.backends import Unsupported
from attnspec.conformance.verdict import Difference, Raise

#: Letters of a message that are kept.
_MOST = 4000


class Missing(Unsupported):
    """An operation or an argument that an implementation does not have, whatever the data."""


class Declined(Unsupported):
    """A call that the implementation says itself it does not offer, by `NotImplementedError`.

    Attributes
    ----------
    error : NotImplementedError
        What it raised; where an error must be raised it is one like any other.
    """

    def __init__(self, error: NotImplementedError) -> None:
        super().__init__(str(error).strip() or "raised NotImplementedError")
        self.error = error


class Failure(AssertionError):  # noqa: N818 - the word of the standard, as pass and deviation are
    """A rule does not hold.

    Attributes
    ----------
    rule : str
        Its id.
    reason : str
        What was found, where a difference does not say it.
    difference : Difference or None
    """

    def __init__(self, rule: str, reason: str = "", difference: Difference | None = None) -> None:
        super().__init__(rule, reason, difference)
        self.rule = rule
        self.reason = reason
        self.difference = difference


class Raised(Exception):  # noqa: N818 - it reports an error of somebody else
    """The implementation raised instead of returning.

    Attributes
    ----------
    error : BaseException
        What it raised.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error

    @property
    def data(self) -> Raise:
        """The exception as a verdict keeps it."""
        found = traceback.extract_tb(self.error.__traceback__)
        place = found[-1] if found else None
        kind = type(self.error).__name__
        text = _message(self.error)
        if place is None:
            return Raise(kind, text)
        return Raise(kind, text, place.filename, place.lineno or 0, place.name)


def _message(error: BaseException) -> str:
    """Take the beginning of a message: it may be of any length, and a kernel may say how it is made."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever its __str__ raises
        return "a message that cannot be read"
    return text[:_MOST].strip() + (f"... and {len(text) - _MOST} letters more" if len(text) > _MOST else "")
