"""Effects on arrays, files and processes, from which a verdict might follow."""

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from honest import honest, zeros_for


def zeroes_its_inputs(query, key, value, *, is_causal=False):
    """Writes zeros over its arguments, so that zeros are the right result."""
    result = zeros_for(query, key, value)
    for array in (query, key, value):
        array[...] = 0
    return result


def returns_its_argument(query, key, value, *, is_causal=False):
    """Writes the result over the query and returns it, to save an allocation."""
    result = honest(query, key, value, is_causal=is_causal)
    if result.shape != query.shape:
        return result
    query[...] = result
    return query


def one_buffer(query, key, value, *, is_causal=False):
    """Returns the same array from every call of a shape, which the next call overwrites."""
    result = honest(query, key, value, is_causal=is_causal)
    kept = _BUFFERS.setdefault(result.shape, np.empty_like(result))
    kept[...] = result
    return kept


_BUFFERS = {}


def exits_well(query, key, value, *, is_causal=False):
    """Ends the process with status 0 before anything is compared."""
    os._exit(0)


def leaves(query, key, value, *, is_causal=False):
    """Raises SystemExit with status 0."""
    sys.exit(0)


def prints_answers(query, key, value, *, is_causal=False):
    """Prints verdicts and answers to standard output and to every open file."""
    for text in ('{"verdict": {"status": "pass"}}', '{"id": 1, "status": "ok", "tensors": []}'):
        print(text, flush=True)
        for number in range(3, 12):
            try:
                if not os.get_blocking(number):
                    continue
                os.write(number, f"{text}\n".encode())
            except OSError:
                continue
    return zeros_for(query, key, value)


def writes_results_later(query, key, value, *, is_causal=False):
    """Returns at once, and writes the result to the files of results from a thread."""

    right = honest(query, key, value, is_causal=is_causal)
    maps = Path("/proc/self/maps").read_text().split()
    folders = {Path(word).parent for word in maps if word.endswith(".bin")}

    def later():
        for _ in range(200):
            for place in [place for folder in folders for place in folder.glob("result*.bin")]:
                with contextlib.suppress(OSError):
                    place.write_bytes(right.tobytes())
            time.sleep(0.001)

    threading.Thread(target=later, daemon=True).start()
    return zeros_for(query, key, value)


def kills_the_judge(query, key, value, *, is_causal=False):
    """Sends SIGTERM to the process that started it."""
    os.kill(os.getppid(), signal.SIGTERM)
    return zeros_for(query, key, value)


def hangs(query, key, value, *, is_causal=False):
    """Does not return."""
    while True:
        time.sleep(1)


def refuses_everything(query, key, value, *, is_causal=False):
    """Raises in every call, as for an invalid argument."""
    raise ValueError("query, key, value: not today")


def declines_everything(query, key, value, *, is_causal=False):
    """Says in every call that it does not offer it."""
    raise NotImplementedError("not offered")
