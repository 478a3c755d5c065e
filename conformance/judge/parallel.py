"""Runs the computation of exact values in several threads."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import ThreadpoolController

#: The libraries whose threads are limited.
_LIBRARIES = ThreadpoolController()

T = TypeVar("T")
S = TypeVar("S")


def mapped(function: Callable[[T], S], things: Iterable[T], threads: int = 0) -> Iterator[S]:
    """Call a function with each of several things, in as many threads as there are processors.

    Each thread multiplies small matrices. Several threads in each product would wait for each other.

    Examples
    --------
    >>> from attnspec.conformance.judge.parallel import mapped
    >>> list(mapped(abs, [-1, 2]))
    [1, 2]
    """
    with _LIBRARIES.limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads or _processors()) as pool:
        yield from pool.map(function, things)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
