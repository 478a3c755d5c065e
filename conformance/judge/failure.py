"""Exceptions that end the judging of a case: a broken rule, or an error of the implementation."""

import traceback
from collections.abc import Sequence
from pathlib import Path

import attnspec
from attnspec.backends import Unsupported
from attnspec.conformance.verdict import Difference, Raise

#: The number of characters of a message that are kept.
_MOST = 4000
#: File, line and function.
Place = tuple[str, int, str]
#: The folder of this package, and its module that calls implementations.
OURS = str(Path(attnspec.__file__).parent)
_JUDGING = str(Path(OURS, "conformance"))


class Missing(Unsupported):
    """The implementation lacks an operation or an argument."""


class Declined(Unsupported):
    """The implementation declined a call by raising `NotImplementedError`.

    Attributes
    ----------
    error : NotImplementedError
        The exception. In a call that must raise, it counts as any other error.
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
        The finding, if there is no difference to show.
    difference : Difference or None
    """

    def __init__(self, rule: str, reason: str = "", difference: Difference | None = None) -> None:
        super().__init__(rule, reason, difference)
        self.rule = rule
        self.reason = reason
        self.difference = difference


class Raised(Exception):  # noqa: N818 - it reports an error of the implementation
    """The implementation raised instead of returning.

    Attributes
    ----------
    error : BaseException
        The exception.
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
    """Return the beginning of a message, which may be very long."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever its __str__ raises
        return "a message that cannot be read"
    more = f"... and {len(text) - _MOST} characters more" if len(text) > _MOST else ""
    return text[:_MOST].strip() + more


def own_place(frames: Sequence[Place]) -> Place:
    """Find the line of the implementation that raised, not a line in a library that it calls.

    Parameters
    ----------
    frames : sequence of (str, int, str)
        File, line and function of each call, the innermost last.

    Returns
    -------
    (str, int, str)
        The place of the innermost call in the folder of the first call outside this package. If there
        is no such call, the innermost call in this package. Empty if the call did not match the signature.

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
