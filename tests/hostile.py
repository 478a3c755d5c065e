"""Implementations that manipulate their process: what a call does, how its run ends, what is said of it."""

# ruff: noqa: F401 - the rows use them

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
from attnspec.backends.library.numpy import LIBRARY as NUMPY


def right(query, key, value):
    return reference.attention(query, key, value, dtype=query.dtype)


def lose_the_device():
    """Make each later copy of an array fail, as on a GPU after an access to a bad address."""

    def fail(*_):
        raise OSError("bad address")

    object.__setattr__(NUMPY, "to_library", fail)


class MuteError(Exception):
    def __str__(self):
        raise ValueError("no words")


class _Sealed(BaseException):
    pass


class _Lying:
    dtype = np.dtype("float64")

    @property
    def shape(self):
        raise RuntimeError("no shape today")


def send(number):
    os.kill(os.getpid(), number)


def write_to_all(octets):
    """Write to each file that is open, that of the answers among them."""
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, octets)


def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def stop_the_clock():
    ignore_signals()
    time.monotonic = time.perf_counter = time.time = lambda: 0.0
    signal.signal = signal.setitimer = threading.Thread.start = lambda *_: None


def empty_frames(frame):
    while frame:
        for thing in frame.f_locals.values():
            if isinstance(thing, list | dict | set):
                thing.clear()
        frame = frame.f_back


def forget_modules():
    for name in list(sys.modules):
        if name.startswith("attnspec.reference"):
            del sys.modules[name]


async def promise():
    return None


CALLS = {
    "right": ("", "good", ""),
    "interrupting": ("raise KeyboardInterrupt", "fails", "raised KeyboardInterrupt"),
    "interrupted_by_a_signal": ("send(signal.SIGINT)", "good", ""),
    "told_to_end": ("send(signal.SIGTERM)", "fails", "its process was killed by SIGTERM"),
    "killed": ("send(signal.SIGKILL)", "fails", "its process was killed by SIGKILL"),
    "stopped": ("send(signal.SIGSTOP)", "fails", "did not end in 2 s"),
    "alarmed": ("signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(60)", "fails", "killed by SIGALRM"),
    "aborting": ("os.abort()", "fails", "its process was killed by SIGABRT"),
    "reading_nowhere": ("ctypes.string_at(0)", "fails", "its process was killed by SIGSEGV"),
    "leaving_well": ("os._exit(0)", "fails", "its process ended with status 0"),
    "exiting_well": ("sys.exit(0)", "fails", "raised SystemExit: 0"),
    "losing_its_device": (
        "lose_the_device(); raise RuntimeError", "fails", "left its device unusable: OSError: bad address"),
    "losing_its_device_unseen": (
        "lose_the_device()", "fails", "left its device unusable: OSError: bad address"),
    "out_of_memory": ("raise MemoryError", "fails", "raised MemoryError"),
    "recursing": ("return recursing(query, key, value)", "fails", "raised RecursionError"),
    "ending_a_generator": ("raise GeneratorExit", "fails", "raised GeneratorExit"),
    "ending_an_iteration": ("raise StopIteration(query)", "fails", "raised StopIteration"),
    "raising_without_words": ("raise MuteError", "fails", "raised MuteError"),
    "raising_surrogates": (
        r"raise ValueError('\ud800 \x1b[31m [red]')", "fails", "raised ValueError: \ufffd \ufffd[31m [red]"),
    "raising_megabytes": ("raise ValueError('no ' * 20_000_000)", "fails", "raised ValueError: no no no"),
    "raising_its_own_kind": ("raise _Sealed('sealed')", "fails", "raised _Sealed: sealed"),
    "closing_all_files": ("os.closerange(3, 256)", "fails", "its process ended with status 1"),
    "closing_the_standard_streams": ("os.closerange(0, 3)", "good", ""),
    "without_standard_streams": ("sys.stdin = sys.stdout = sys.stderr = None", "good", ""),
    "writing_everywhere": (r"write_to_all(b'no verdict\n')", "fails", "its process wrote what is no verdict"),
    "answering_itself": (
        r"""write_to_all(b'{"verdict": {"case": "another", "status": "pass"}}\n')""",
        "fails", "its process answered to another question"),
    "answering_in_part": (
        r"""write_to_all(b'{"verdict": {"case": "softmax-000-float64", "status": "fine"}}\n')""",
        "fails", "its process wrote what is no verdict"),
    "forking": ("os.fork()", "either", ""),  # either process may be the one that is heard
    "starting_a_process_that_stays": (
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(987)'])", "good", ""),
    "starting_a_thread_that_stays": ("threading.Thread(target=time.sleep, args=(987,)).start()", "good", ""),
    "hanging_at_exit": ("atexit.register(time.sleep, 987)", "good", ""),
    "hanging": ("time.sleep(987)", "fails", "did not end in 2 s"),
    "hanging_without_a_watch": (
        "faulthandler.cancel_dump_traceback_later(); faulthandler.disable(); time.sleep(987)",
        "fails", "did not end in 2 s"),
    # A PyDLL keeps the interpreter's lock.
    "hanging_with_the_lock": ("ctypes.PyDLL(None).sleep(987)", "fails", "did not end in 2 s"),
    "deaf_and_hanging": ("ignore_signals(); time.sleep(987)", "fails", "did not end in 2 s"),
    "with_errors_of_numbers": ("np.seterr(all='raise')", "good", ""),
    "with_warnings_as_errors": ("warnings.simplefilter('error')", "good", ""),
    "elsewhere": ("os.chdir('/')", "good", ""),
    "without_arguments": ("sys.argv.clear(); os.environ.clear()", "good", ""),
    "without_garbage": ("gc.disable(); np.random.seed(0)", "good", ""),
    "noisy": (
        r"print('noise ' * 200_000, sys.stderr.write('noise ' * 200_000)); os.write(1, b'more noise\n')",
        "good", ""),
    "enormous": ("return np.broadcast_to(query.dtype.type(0), (10**6, 10**6))", "fails", "SHAPE-3"),
    "lying": ("return _Lying()", "fails", "output: expected an array of numpy, got _Lying"),
    "of_objects": ("return right(query, key, value).astype(object)", "fails", "output: got dtype object"),
    "masked": ("return np.ma.masked_all_like(right(query, key, value))", "fails", ""),
    "of_words": ("return np.full(query.shape, 'nan')", "fails", "output: got dtype"),
    "of_complex_numbers": ("return right(query, key, value) * 1j", "fails", "output: got dtype complex128"),
    "a_function": ("return right", "fails", "output: expected an array of numpy, got function"),
    "a_generator": ("yield", "fails", "output: expected an array of numpy, got generator"),
    "a_coroutine": ("return promise()", "fails", "output: expected an array of numpy, got coroutine"),
    "leaving_a_process_with_its_pipes": (
        "os.fork() or time.sleep(987); os._exit(0)", "fails", "its process ended with status 0"),
    "walking_all_objects": ("[vars(x) for x in gc.get_objects() if isinstance(x, type)]", "good", ""),
    "emptying_the_frames_of_its_callers": ("empty_frames(sys._getframe(1))", "either", ""),
    "stopping_the_clock": ("stop_the_clock()", "good", ""),
    "stopping_the_clock_and_hanging": ("stop_the_clock(); signal.pause()", "fails", "did not end in 2 s"),
    "replacing_the_module": ("forget_modules()", "good", ""),
}  # fmt: skip
#: What other tests call.
OTHERS = {
    "interrupting_the_parent": "os.kill(os.getppid(), signal.SIGINT); time.sleep(60)",
    "ending_the_parent": "os.kill(os.getppid(), signal.SIGTERM); time.sleep(60)",
    # What stands for a fault of ours: a part of the judge raises, and the call itself does not.
    "breaking_the_judge": "if query.ndim == 2: judge.budgets_of = None",
}


def __getattr__(name):
    """Make the function of a row."""
    rows = {key: source for key, (source, *_) in CALLS.items()} | OTHERS
    if name not in rows:
        raise AttributeError(name)
    if name == "breaking_the_judge":
        from attnspec.conformance.judge import judge

        globals()["judge"] = judge
    lines = (f"def {name}(query, key, value):", rows[name] or "pass", "return right(query, key, value)")
    exec("\n    ".join(lines), globals())
    return globals()[name]
