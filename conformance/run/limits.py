"""The limits of a run of the sizes: what does not fit is left out, and the verdict says so."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from attnspec.conformance.judge.sized import Sized
from attnspec.conformance.verdict import LEFT_OUT

#: Copies of the arrays: ours, those of the library, and the comparison of inputs after the call.
_COPIES = 3
#: Octets for each score of an implementation that keeps all of them: the scores, the weights, a mask.
_PER_SCORE = 12
#: From this size of all scores on, the memory of a call shows whether an implementation keeps them.
_SHOWS = 2**27
#: The number of earlier cases from which the time of the next one is estimated.
_EARLIER = 5
_GIB = 2**30


def memory() -> float:
    """Return the memory of this machine, in octets."""
    with suppress(ValueError, OSError, AttributeError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return 8.0 * _GIB


def peak_memory() -> float:
    """Return the largest memory that this process has used, in octets; 0 where it is not known."""
    try:
        import resource
    except ImportError:  # not on Windows
        return 0.0
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(found if sys.platform == "darwin" else found * 1024)


@dataclass
class Limits:
    """The time and the memory that a run of the sizes may use.

    Parameters
    ----------
    seconds : float
        The time that is left.
    octets : float
        The memory, by default half of that of the machine.
    clock : callable, optional
        Returns the time in seconds.
    peak : callable, optional
        Returns the largest memory that this process has used, in octets.
    """

    seconds: float
    octets: float = 0.0
    clock: Callable[[], float] = time.monotonic
    peak: Callable[[], float] = peak_memory
    _end: float = 0.0
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=_EARLIER))
    _keeps_scores: bool = True
    _before: float = 0.0

    def __post_init__(self) -> None:
        self._end = self.clock() + self.seconds
        self.octets = self.octets or memory() / 2

    def left_out(self, item: Sized) -> str:
        """Return the reason that a case is left out; empty if it is not.

        Examples
        --------
        >>> from attnspec.conformance.judge.sized import Sized
        >>> from attnspec.conformance.run.limits import Limits
        >>> from attnspec.formula import Formula
        >>> item = Sized("one", "", ("SOFT-3",), "", Formula(2**20, 2**20, 64, 64), "float32")
        >>> Limits(60.0, 2.0**33).left_out(item)
        'left out: it needs about 12291.0 GiB of memory, and may use 8.0 (--memory)'
        """
        needed = _COPIES * item.octets + (_PER_SCORE * item.scores if self._keeps_scores else 0)
        if needed > self.octets:
            return (
                f"{LEFT_OUT} it needs about {needed / _GIB:.1f} GiB of memory, and may use "
                f"{self.octets / _GIB:.1f} (--memory)"
            )
        left, expected = self._end - self.clock(), max(self._rates, default=0.0) * item.work
        if left <= 0 or expected > left:
            about = f"it needs about {expected:.0f} s, and " if expected > left > 0 else ""
            return f"{LEFT_OUT} {about}{max(left, 0):.0f} s are left (--within)"
        self._before = self.peak()
        return ""

    def took(self, item: Sized, seconds: float) -> None:
        """Learn from a case how fast the implementation is, and whether it keeps all scores."""
        if item.work >= _SHOWS:  # the time of a smaller case does not depend on its work
            self._rates.append(seconds / item.work)
        size = 4 * item.scores
        if size >= _SHOWS:
            self._keeps_scores = self.peak() - self._before > size / 4 + _COPIES * item.octets
