"""Implementations that manipulate their process, for ``test_hostile.py``."""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np

from attnspec import reference


def right(query, key, value):
    return reference.attention(query, key, value, dtype=query.dtype)


def interrupting(query, key, value):
    raise KeyboardInterrupt


def interrupted_by_a_signal(query, key, value):
    os.kill(os.getpid(), signal.SIGINT)
    return right(query, key, value)


def interrupting_the_parent(query, key, value):
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)


def ending_the_parent(query, key, value):
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)


def told_to_end(query, key, value):
    os.kill(os.getpid(), signal.SIGTERM)


def killed(query, key, value):
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(query, key, value):
    os.kill(os.getpid(), signal.SIGSTOP)


def alarmed(query, key, value):
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    time.sleep(60)


def aborting(query, key, value):
    os.abort()


def reading_nowhere(query, key, value):
    ctypes.string_at(0)


def leaving_well(query, key, value):
    os._exit(0)


def exiting_well(query, key, value):
    sys.exit(0)


def out_of_memory(query, key, value):
    raise MemoryError


def recursing(query, key, value):
    return recursing(query, key, value)


def ending_a_generator(query, key, value):
    raise GeneratorExit


def ending_an_iteration(query, key, value):
    raise StopIteration(query)


class MuteError(Exception):
    def __str__(self):
        raise ValueError("no words")


def raising_without_words(query, key, value):
    raise MuteError


def raising_surrogates(query, key, value):
    raise ValueError("\ud800 \x1b[31m [red]")


def raising_megabytes(query, key, value):
    raise ValueError("no " * 20_000_000)


class _Sealed(BaseException):
    pass


def raising_its_own_kind(query, key, value):
    raise _Sealed("sealed")


def closing_all_files(query, key, value):
    os.closerange(3, 256)
    return right(query, key, value)


def breaking_the_judge(query, key, value):
    """What stands for a fault of ours: a part of the judge raises, and the call itself does not."""
    from attnspec.conformance.judge import judge

    if query.ndim == 2:
        judge.budgets_of = None
    return right(query, key, value)


def closing_the_standard_streams(query, key, value):
    os.closerange(0, 3)
    return right(query, key, value)


def without_standard_streams(query, key, value):
    sys.stdin = sys.stdout = sys.stderr = None
    return right(query, key, value)


def writing_everywhere(query, key, value):
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, b"no verdict\n")
    return right(query, key, value)


def answering_itself(query, key, value):
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, b'{"verdict": {"case": "another", "status": "pass"}}\n')
    return right(query, key, value)


def answering_in_part(query, key, value):
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, b'{"verdict": {"case": "softmax-000-float64", "status": "fine"}}\n')
    return right(query, key, value)


def forking(query, key, value):
    os.fork()
    return right(query, key, value)


def starting_a_process_that_stays(query, key, value):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(987)"])
    return right(query, key, value)


def starting_a_thread_that_stays(query, key, value):
    threading.Thread(target=time.sleep, args=(987,), daemon=False).start()
    return right(query, key, value)


def hanging_at_exit(query, key, value):
    atexit.register(time.sleep, 987)
    return right(query, key, value)


def hanging(query, key, value):
    time.sleep(987)


def hanging_without_a_watch(query, key, value):
    faulthandler.cancel_dump_traceback_later()
    faulthandler.disable()
    time.sleep(987)


def hanging_with_the_lock(query, key, value):
    ctypes.PyDLL(None).sleep(987)  # a PyDLL keeps the interpreter's lock


def deaf_and_hanging(query, key, value):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(987)


def with_errors_of_numbers(query, key, value):
    np.seterr(all="raise")
    return right(query, key, value)


def with_warnings_as_errors(query, key, value):
    warnings.simplefilter("error")
    return right(query, key, value)


def elsewhere(query, key, value):
    os.chdir("/")
    return right(query, key, value)


def without_arguments(query, key, value):
    sys.argv.clear()
    os.environ.clear()
    return right(query, key, value)


def without_garbage(query, key, value):
    gc.disable()
    np.random.seed(0)  # noqa: NPY002 - as people do
    return right(query, key, value)


def noisy(query, key, value):
    sys.stdout.write("noise " * 200_000)
    sys.stderr.write("noise " * 200_000)
    os.write(1, b"more noise\n")
    return right(query, key, value)


def enormous(query, key, value):
    return np.broadcast_to(query.dtype.type(0), (10**6, 10**6))


class _Lying:
    dtype = np.dtype("float64")

    @property
    def shape(self):
        raise RuntimeError("no shape today")


def lying(query, key, value):
    return _Lying()


def of_objects(query, key, value):
    return np.asarray(right(query, key, value)).astype(object)


def masked(query, key, value):
    return np.ma.masked_all_like(np.asarray(right(query, key, value)))


def of_words(query, key, value):
    return np.full(query.shape, "nan")


def of_complex_numbers(query, key, value):
    return right(query, key, value) * 1j


def a_function(query, key, value):
    return right


def a_generator(query, key, value):
    yield right(query, key, value)


async def a_coroutine(query, key, value):
    return right(query, key, value)


def replacing_the_module(query, key, value):
    for name in list(sys.modules):
        if name.startswith("attnspec.reference"):
            del sys.modules[name]
    return right(query, key, value)
