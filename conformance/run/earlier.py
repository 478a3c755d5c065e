"""Find the earlier call after which a call fails that passes as the first one of a process."""

import time
from collections.abc import Callable, Sequence

from attnspec.conformance.run.plan import Outline
from attnspec.conformance.verdict import Verdict

#: The largest number of earlier calls that are made again: the last ones before the call that fails.
_MOST_CALLS = 400
#: Seconds after which no further process is started.
_MOST_SECONDS = 60.0
_QUERIES_AND_KEYS = slice(3, 5)

#: Makes calls in a new process and then the failing one. Returns its verdict.
Trial = Callable[[Sequence[Outline]], Verdict]


def earlier_call(trial: Trial, done: Sequence[Outline], failing: Verdict) -> tuple[str, Verdict] | None:
    """Return the name of one earlier call after which a call fails, and how it fails then.

    What is remembered often has the sizes of the call, so calls of as many queries and keys come first.
    Halves are tried by turns. If only several calls together make it fail, none is found.
    """
    began = time.monotonic()
    own = failing.sizes[_QUERIES_AND_KEYS]
    alike = [case for case in done if case.sizes[_QUERIES_AND_KEYS] == own]
    for calls in (alike, done):
        part, found = [*calls[-_MOST_CALLS:]], None
        halves = [part]
        while halves and time.monotonic() - began < _MOST_SECONDS:
            half = halves.pop()
            if half and (verdict := trial(half)).status == "fail" and verdict.difference:
                part, found = half, verdict
                middle = len(half) // 2
                halves = [half[:middle], half[middle:]] if middle else []
        if found and len(part) == 1:
            return part[0].name, found
    return None
