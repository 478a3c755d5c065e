"""Functions that behave badly, for the list of bad input."""

import os
import signal
import sys
import time

import broken
import numpy as np

from attnspec import reference

lists, nothing = broken.lists, broken.nothing
transposed_output, nan_everywhere = broken.transposed_output, broken.nan_everywhere
mutating, raising, exiting = broken.mutating, broken.raising, broken.exiting
no_function = 3
_random = np.random.default_rng(7)


def raising_at_random(query, key, value):
    if _random.random() < 0.3:
        raise RuntimeError("not this time")
    return reference.attention(query, key, value, dtype=query.dtype)


def raising_once(query, key, value, _calls=[]):  # noqa: B006 - it remembers, which is what is wrong with it
    _calls.append(1)
    if len(_calls) == 2:
        raise RuntimeError("not this time")
    return reference.attention(query, key, value, dtype=query.dtype)


def crashing_at_times(query, key, value):
    if query.dtype == np.float32 and query.size == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    return reference.attention(query, key, value, dtype=query.dtype)


def never_returning(query, key, value):
    while True:
        time.sleep(1)


def printing_megabytes(query, key, value):
    sys.stdout.write("noise " * 200_000)
    sys.stderr.write("noise " * 200_000)
    return reference.attention(query, key, value, dtype=query.dtype)


def misnamed(query, keys, values):
    return query


def f(query, key, value):
    return query
