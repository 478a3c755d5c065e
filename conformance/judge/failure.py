"""What ends the judging of a case early: a rule that does not hold, or an exception of the implementation."""

import traceback
from collections.abc import Sequence
from pathlib import Path

import attnspec
from attnspec.backends import Unsupported
from attnspec.conformance.verdict import Difference, Raise

#: Letters of a message that are kept.
_MOST = 4000
#: File, line and function.
Place = tuple[str, int, str]
#: Where this package is, and the part of it that calls implementations.
OURS = str(Path(attnspec.__file__).parent)
_JUDGING = str(Path(OURS, "conformance"))


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
        frames = [
            (one.filename, one.lineno or 0, one.name)
            for one in traceback.extract_tb(self.error.__traceback__)
        ]
        return Raise(type(self.error).__name__, _message(self.error), *own_place(frames))


def _message(error: BaseException) -> str:
    """Take the beginning of a message: it may be of any length, and a kernel may say how it is made."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever its __str__ raises
        return "a message that cannot be read"
    return text[:_MOST].strip() + (f"... and {len(text) - _MOST} letters more" if len(text) > _MOST else "")


def own_place(frames: Sequence[Place]) -> Place:
    """Find the line of an implementation that an exception came from, rather than one of what it calls.

    Parameters
    ----------
    frames : sequence of (str, int, str)
        File, line and function of each call, the innermost last.

    Returns
    -------
    (str, int, str)
        Of the innermost call in the folder that the first call outside of this package is in; with no
        such call, of the innermost here; and nothing where the call itself did not fit.

    Examples
    --------
    >>> from attnspec.conformance.judge.failure import own_place
    >>> own_place([("/me/kernel.py", 7, "attention"), ("/lib/numpy/core.py", 99, "dot")])
    ('/me/kernel.py', 7, 'attention')
    """
    outside = [place for place in frames if not place[0].startswith((OURS, "<"))]
    if outside:
        folder = str(Path(outside[0][0]).parent)
        return [place for place in outside if place[0].startswith(folder)][-1]
    inside = [place for place in frames if not place[0].startswith(_JUDGING)]
    return inside[-1] if inside else ("", 0, "")
