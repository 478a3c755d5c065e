"""Exceptions that end the judging of a case: a broken rule, or an error of the implementation."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attnspec
from attnspec.backends import Unsupported
from attnspec.backends.errors import NotApplicable
from attnspec.conformance.verdict import DECLINES, Code, Difference, Raise

if TYPE_CHECKING:  # the parent of a run, which reads exceptions and makes no arrays, needs no NumPy
    from numpy.typing import NDArray

#: The number of characters of a message that are kept.
_MOST = 4000
#: File, line and function.
Place = tuple[str, int, str]
#: The folder of this package, and its module that calls implementations.
OURS = str(Path(attnspec.__file__).parent)
_JUDGING = str(Path(OURS, "conformance"))


class Missing(Unsupported):
    """The implementation lacks what `lacks` names, as in a verdict, or is not asked for another reason."""

    def __init__(self, reason: str, *lacks: str) -> None:
        super().__init__(reason)
        self.lacks = lacks


def lacks_of(unsupported: Unsupported) -> tuple[str, ...]:
    """Return what an implementation lacks, if that is the reason of an exception."""
    return unsupported.lacks if isinstance(unsupported, Missing) else ()


def code_of(unsupported: Unsupported) -> Code:
    """Return the code of a verdict on a call that is unsupported."""
    if isinstance(unsupported, NotApplicable):
        return "not applicable"
    if isinstance(unsupported, Missing):
        return "lacks" if unsupported.lacks else "not applicable"
    return "declined"


class Declined(Unsupported):
    """The implementation declined a call by raising `NotImplementedError`.

    In a call that must raise, `error` counts as any other error.
    """

    def __init__(self, error: NotImplementedError) -> None:
        message = str(error).strip()
        super().__init__(f"{DECLINES}: {message}" if message else DECLINES)
        self.error = error


class Failure(AssertionError):  # noqa: N818 - the word of the standard, as pass and deviation are
    """A rule does not hold. The fields are those of a verdict.

    `outputs` are those of a call that had to be refused, or that changed an argument, `output` names the
    one that is no array, and `argument` the one that the call changed.
    """

    def __init__(
        self,
        rule: str,
        reason: str = "",
        difference: Difference | None = None,
        code: Code = "differs",
        *,
        outputs: dict[str, NDArray[Any]] | None = None,
        output: str = "",
        argument: str = "",
    ) -> None:
        super().__init__(rule, reason, difference)
        self.rule = rule
        self.reason = reason
        self.difference = difference
        self.code = code
        self.outputs = outputs
        self.output = output
        self.argument = argument


class Raised(Exception):  # noqa: N818 - it reports an error of the implementation
    """The implementation raised instead of returning, or a conversion of its adapter did.

    `function` is the function that was called, as the backend has it, or the conversion, if that raised.
    `conversion` is then its name with what it converted: ``to_library of key``. `valid` is as in a verdict.
    """

    valid = False

    def __init__(
        self, error: BaseException, function: Callable[..., Any] | None = None, conversion: str = ""
    ) -> None:
        super().__init__(error)
        self.error = error
        self.function = function
        self.conversion = conversion

    @property
    def data(self) -> Raise:
        """The exception as a verdict keeps it."""
        frames = [
            (frame.filename, frame.lineno or 0, frame.name)
            for frame in traceback.extract_tb(self.error.__traceback__)
        ]
        defined = definition(self.function)
        # A conversion of compiled code has no line.
        place = own_place(frames, defined) if defined or not self.conversion else ("", 0, "")
        return Raise(type(self.error).__name__, _message(self.error), *place, self.conversion, self.valid)


def _message(error: BaseException) -> str:
    """Return the beginning of a message, which may be very long."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever its __str__ raises
        return "a message that cannot be read"
    more = f"... and {len(text) - _MOST} characters more" if len(text) > _MOST else ""
    return text[:_MOST].strip() + more


def definition(function: Callable[..., Any] | None) -> Place | None:
    """Find where the function of a user is defined."""
    original: Any = None if function is None else unwrap(function)
    while isinstance(original, partial):
        original = unwrap(original.func)
    for function_or_call in (original, type(original).__call__):  # a function, or an object that is called
        code = getattr(function_or_call, "__code__", None)
        if code is not None:
            place = (code.co_filename, code.co_firstlineno, code.co_name)
            return None if place[0].startswith(OURS) else place
    return None


def own_place(frames: Sequence[Place], defined: Place | None = None) -> Place:
    """Find the line of the implementation that raised, not a line in a library that it calls."""
    outside = [place for place in frames if not place[0].startswith((OURS, "<"))]
    first = defined or next(iter(outside), None)
    if first is not None:
        folder = Path(first[0]).parent
        own = [place for place in outside if _belongs(Path(place[0]), folder)]
        return own[-1] if own else first
    inside = [place for place in frames if not place[0].startswith(_JUDGING)]
    return inside[-1] if inside else ("", 0, "")


def _belongs(file: Path, folder: Path) -> bool:
    """Whether a file is in a folder, but not in an environment that lies in it."""
    return file.is_relative_to(folder) and "site-packages" not in file.relative_to(folder).parts
