"""What `attnspec init` shows while it calls a function: the number of calls, and nothing that it prints."""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from time import monotonic
from typing import Any, TextIO

#: The seconds between two lines, and after which no other call is made if none has returned.
_BETWEEN, _MOST = 5.0, 180.0


class NoCallReturns(BaseException):
    """No call has returned for a long time. It is no `Exception`, which a wrong guess raises."""


def count_calls(function: Callable[..., Any], say: Callable[[str], None]) -> Callable[..., Any]:
    """Return a function that says how many calls it has made, and raises `NoCallReturns` if none returns."""
    started = said = monotonic()
    number, first, returned = 0, "", False

    @wraps(function)
    def call(*arrays: Any, **options: Any) -> Any:
        nonlocal said, number, first, returned
        now = monotonic()
        if now - said >= _BETWEEN:
            said = now
            say(f"init: {number} calls so far, {now - started:.0f} s")
        if now - started >= _MOST and not returned:
            raise NoCallReturns(
                f"expected some call to return, got none of {number} in {now - started:.0f} s; "
                f"the first raised {first}"
            )
        number += 1
        try:
            result = function(*arrays, **options)
        except Exception as error:
            first = first or f"{type(error).__name__}: {str(error).strip() or 'no message'}"
            raise
        returned = True
        return result

    return call


@contextmanager
def hide_output() -> Iterator[TextIO]:
    """Discard what Python and compiled code print, and yield the stream of errors as it was."""
    _flush()
    kept, nothing = (os.dup(1), os.dup(2)), os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nothing, number)
    try:
        with open(kept[1], "w", encoding="utf-8", closefd=False) as errors:
            yield errors
    finally:
        _flush()
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nothing)


def _flush() -> None:
    """Write what Python and the library of C hold back to the descriptors as they are now."""
    sys.stdout.flush()
    sys.stderr.flush()
    with suppress(OSError, AttributeError, TypeError):  # another system than POSIX
        ctypes.CDLL(None).fflush(None)
