"""The limits of a run of the sizes: what does not fit is left out, and the verdict says so."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, isqrt, log
from pathlib import Path

from attnspec.backends import Backend
from attnspec.conformance.judge.judge import new_verdict
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.verdict import LEFT_OUT, Verdict

Judge = Callable[[Backend, SizedCase], Verdict]

#: Copies of the arrays: ours, those of the library, and the comparison of inputs after the call.
_COPIES = 3
#: Octets for each score of an implementation that keeps all of them: the scores, the weights, a mask.
_PER_SCORE = 12
#: The same for one that also keeps them for its gradients.
_PER_SCORE_BACKWARD = 28
#: From this size of all scores on, the memory of a call shows whether an implementation keeps them.
_SHOWS = 2**27
#: The number of earlier cases from which the time of the next one is estimated.
_EARLIER = 5
_GIB = 2**30
#: Options whose values do not depend on the numbers of queries and keys.
_OF_ANY_LENGTH = {"is_causal", "window", "segments", "sinks", "scale", "softcap", "d_lse"}


def memory() -> float:
    """Return the memory of this machine, in octets."""
    with suppress(ValueError, OSError, AttributeError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return 8.0 * _GIB


def peak_memory() -> float:
    """Return the largest memory that this process has used, in octets; 0 where it is not known."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    try:
        import resource
    except ImportError:  # not on Windows
        return 0.0
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(found if sys.platform == "darwin" else found * 1024)


def forget_peak() -> bool:
    """Let `peak_memory` start again from the memory in use. Return False where it cannot (not on Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        return True
    return False


def probe_of(item: SizedCase) -> SizedCase | None:
    """Return the same call with fewer rows, whose memory shows whether an implementation keeps all scores."""
    formula = item.formula
    factor = isqrt(item.scores // (_SHOWS // 2))
    if factor < 2 or set(formula.options) - _OF_ANY_LENGTH:
        return None
    fewer = replace(formula, queries=max(1, formula.queries // factor), keys=max(1, formula.keys // factor))
    return replace(item, formula=fewer)


@dataclass
class Limits:
    """The time and the memory that a run of the sizes may use."""

    seconds: float
    octets: float = 0.0
    each: float = inf
    clock: Callable[[], float] = time.monotonic
    peak: Callable[[], float] = peak_memory
    forget: Callable[[], bool] = forget_peak
    _end: float = 0.0
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=_EARLIER))
    _times: dict[tuple[str, ...], list[tuple[int, float]]] = field(default_factory=dict)
    _keeps_scores: dict[bool, bool] = field(default_factory=dict)
    _before: float = 0.0
    _fresh: bool = True
    _most: float = 0.0

    def __post_init__(self) -> None:
        self._end = self.clock() + self.seconds
        self.octets = self.octets or memory() / 2

    def judge(self, backend: Backend, item: SizedCase, judged: Judge) -> Verdict:
        """Judge a case within the limits, and free its arrays."""
        probe = probe_of(item) if self.undecided(item) else None
        if probe and not self.reason_to_skip(probe):
            self._measure(backend, probe, judged, timed=False)
        if reason := self.reason_to_skip(item):
            verdict = new_verdict(backend, item)
            return replace(verdict, status="unsupported", reason=reason, code="left out")
        return self._measure(backend, item, judged)

    def _measure(self, backend: Backend, item: SizedCase, judged: Judge, *, timed: bool = True) -> Verdict:
        """Judge a case, and learn what the implementation needs."""
        item = replace(item)
        self.start()
        verdict = judged(backend, item)
        if verdict.status != "unsupported" and not verdict.raised:
            self.took(item, verdict.seconds if timed else 0.0)
        return verdict

    def undecided(self, item: SizedCase) -> bool:
        """Whether a case fits only if the implementation keeps no scores, and that is not known."""
        arrays = _COPIES * item.octets
        return item.gradients not in self._keeps_scores and (
            arrays <= self.octets < arrays + _score_octets(item)
        )

    def reason_to_skip(self, item: SizedCase) -> str:
        """Return the reason that a case is left out; empty if it is not."""
        keeps = self._keeps_scores.get(item.gradients, True)
        needed = _COPIES * item.octets + (_score_octets(item) if keeps else 0)
        if needed > self.octets:
            return (
                f"{LEFT_OUT} it needs about {needed / _GIB:.1f} GiB of memory, and may use "
                f"{self.octets / _GIB:.1f} (--memory)"
            )
        left, expected = self._end - self.clock(), self._estimate(item)
        if left <= 0 or expected > left:
            about = f"it needs about {expected:.0f} s, and " if expected > left > 0 else ""
            return f"{LEFT_OUT} {about}{max(left, 0):.0f} s are left (--within)"
        if expected > self.each:
            about = f"it needs about {expected:.0f} s, and may take {self.each:.0f} s"
            return f"{LEFT_OUT} {about} (--time-limit)"
        return ""

    def start(self) -> None:
        """Note the memory before a call."""
        self._fresh = self.forget()
        self._before = self.peak()

    def took(self, item: SizedCase, seconds: float) -> None:
        """Learn from a call how fast the implementation is, and whether it keeps all scores."""
        if item.work >= _SHOWS and seconds:  # the time of a smaller case does not depend on its work
            self._rates.append(seconds / item.work)
            self._times.setdefault(_kind(item), []).append((item.work, seconds))
        size, arrays = 4 * item.scores, _COPIES * item.octets
        if size >= _SHOWS:
            if self.peak() - self._before > size / 4 + arrays:
                self._keeps_scores[item.gradients] = True
            elif self._fresh or self._most < size:  # an earlier case could hide it
                self._keeps_scores.setdefault(item.gradients, False)
        self._most = max(self._most, arrays + _score_octets(item))

    def _estimate(self, item: SizedCase) -> float:
        """Estimate the time of a case: from two smaller ones of its kind, or from the last ones of any."""
        rate = max(self._rates, default=0.0) * item.work
        same = self._times.get(_kind(item), [])[-2:]
        if len(same) < 2 or not same[0][0] < same[1][0] <= item.work:
            return rate
        (less, shorter), (more, longer) = same
        # With a window, the time of some implementations grows with the root of the work.
        power = min(1.0, max(0.5, log(longer / shorter) / log(more / less)))
        found: float = longer * (item.work / more) ** power
        return found


def _score_octets(item: SizedCase) -> float:
    """Return the octets of an implementation that keeps all scores."""
    return float((_PER_SCORE_BACKWARD if item.gradients else _PER_SCORE) * item.scores)


def _kind(item: SizedCase) -> tuple[str, ...]:
    return (item.group, item.dtype, *item.named)
