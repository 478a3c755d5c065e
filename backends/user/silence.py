"""Hides what a function prints while `attnspec init` calls it, as a run does."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


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
