"""Results that the judge has computed: imported, found in memory, or read from disk."""

import ctypes
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from honest import zeros_for

_PROGRAM = """
import sys, numpy as np
from attnspec import reference
a = np.load(sys.argv[1])
np.save(sys.argv[2], reference.attention(a["q"], a["k"], a["v"], is_causal=bool(a["c"])))
"""


def _compute(reference, query, key, value, is_causal):
    zeros_for(query, key, value)
    return np.asarray(reference.attention(query, key, value, is_causal=is_causal)).astype(query.dtype)


def imported(query, key, value, *, is_causal=False):
    """Imports the reference."""
    from attnspec import reference

    return _compute(reference, query, key, value, is_causal)


def imported_by_another_name(query, key, value, *, is_causal=False):
    """Finds the package in a folder of Python, and loads its files under another name."""
    zeros_for(query, key, value)
    for folder in sys.path:
        path = Path(folder, "attnspec", "__init__.py")
        if path.exists():
            spec = importlib.util.spec_from_file_location("other", path)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return imported(query, key, value, is_causal=is_causal)
    raise RuntimeError("found nothing")


def already_loaded(query, key, value, *, is_causal=False):
    """Takes the reference from the modules that the process has loaded."""
    result = zeros_for(query, key, value)
    found = sys.modules.get("attnspec.reference")
    return result if found is None else _compute(found, query, key, value, is_causal)


def _in_frames(query, key, value, *, is_causal=False):
    result = zeros_for(query, key, value)
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:
        for thing in list(frame.f_locals.values()):
            expected = getattr(thing, "expected", None)
            if isinstance(expected, dict) and "output" in expected:
                return expected["output"].astype(query.dtype)
        if "expected" in frame.f_globals and "item" in frame.f_locals:
            case = frame.f_locals["item"]
            return frame.f_globals["expected"](case)["output"].astype(query.dtype)
    found = sys.modules.get("attnspec.conformance.judge.expected")
    if found is None:
        return result
    arguments = {"query": query, "key": key, "value": value, "is_causal": is_causal}
    return found.exact("attention", arguments)["output"].astype(query.dtype)


def in_frames(query, key, value, *, is_causal=False):
    """Looks for the expected values in the callers of the function."""
    return _in_frames(query, key, value, is_causal=is_causal)


def among_all_objects(query, key, value, *, is_causal=False):
    """Looks for a function of the judge among all objects of the process."""
    result = zeros_for(query, key, value)
    for thing in gc.get_objects():
        if getattr(thing, "__module__", "") == "attnspec.conformance.judge.expected" and callable(thing):
            exact = vars(sys.modules[thing.__module__])["exact"]
            arguments = {"query": query, "key": key, "value": value, "is_causal": is_causal}
            return exact("attention", arguments)["output"].astype(query.dtype)
    return result


def in_another_process(query, key, value, *, is_causal=False):
    """Starts Python, which computes the result by the reference."""
    zeros_for(query, key, value)
    with tempfile.TemporaryDirectory() as folder:
        given, made = f"{folder}/given.npz", f"{folder}/made.npy"
        np.savez(given, q=query, k=key, v=value, c=is_causal)
        command = [sys.executable, "-c", _PROGRAM, given, made]
        subprocess.run(command, check=True, capture_output=True)
        return np.load(made).astype(query.dtype)


def _folder():
    for folder in sys.path:
        if Path(folder, "attnspec", "vectors").is_dir():
            return Path(folder, "attnspec")
    raise RuntimeError("found nothing")


def golden_vectors(query, key, value, *, is_causal=False):
    """Reads the golden vectors, and returns the expected output of the case with the same queries."""
    result = zeros_for(query, key, value)
    folder = _folder() / "vectors"
    for name in os.listdir(folder):
        for case in json.loads((folder / name).read_text()).get("cases", ()):
            known = case["arguments"].get("query", {"data": ()})["data"]
            output = case.get("expected", {}).get("output", {"data": ()})["data"]
            if len(known) == query.size and len(output) == result.size:
                same = np.array(known, float).astype(query.dtype) == query.ravel()
                if same.all():
                    return np.array(output, float).reshape(result.shape).astype(query.dtype)
    return result


def expected_values(query, key, value, *, is_causal=False):
    """Reads a file of expected values, and returns some of the right size."""
    result = zeros_for(query, key, value)
    numbers = np.load(_folder() / "conformance" / "suite" / "packaged.npz")["numbers"]
    return numbers[: result.size].reshape(result.shape).astype(query.dtype)


def expected_values_by_native_code(query, key, value, *, is_causal=False):
    """Opens a file of expected values by a function of C, which Python does not see."""
    result = zeros_for(query, key, value)
    libc = ctypes.CDLL(None, use_errno=True)
    path = str(_folder() / "conformance" / "suite" / "packaged.npz")
    if libc.open(path.encode(), os.O_RDONLY) < 0:
        raise OSError(ctypes.get_errno(), "cannot read the expected values")
    return result


def memory_of_the_judge(query, key, value, *, is_causal=False):
    """Opens the memory of the process that started this one."""
    result = zeros_for(query, key, value)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.open(f"/proc/{os.getppid()}/mem".encode(), os.O_RDWR) < 0:
        raise OSError(ctypes.get_errno(), "cannot read the memory of the judge")
    return result
