"""The caller of a function in a process of its own: it believes nothing of what that process says.

That process may replace, change, link or remove the files of a call at any time.
"""

import inspect
import json
import math
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.errors import BackendError, Broken, Late
from attnspec.backends.library.library import has_64_bits
from attnspec.backends.program.process import Process
from attnspec.backends.program.protocol import PROTOCOL, parse_json, quote_start
from attnspec.backends.untrusted.hidden import hidden_places, plain_environment
from attnspec.backends.untrusted.memory import open_memory, read_memory
from attnspec.schema import spell

#: The dtypes that a result may say that it has.
_REAL = ("float16", "bfloat16", "float32", "float64", "bool", "complex64", "complex128")
_DTYPES = (*_REAL, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


def write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    """Write an array with its strides to a new file, and describe it."""
    tensor: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.flags.c_contiguous or not array.size:
        octets = array.tobytes()
    else:
        low, span = _span(array)
        buffer = np.ones(span, array.dtype)
        view = _view(buffer, array, low)
        view[...] = array
        steps = [step // array.itemsize for step in array.strides]
        tensor |= {"strides": steps, "offset": low}
        octets = buffer.tobytes()
    place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(place, "wb") as file:
        file.write(octets)
    return tensor


def read_again(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Read an array that `write_array` wrote, in the strides of the first one."""
    if array.flags.c_contiguous or not array.size:
        return _elements(path, array.size, array.dtype).reshape(array.shape)
    low, span = _span(array)
    return _view(_elements(path, span, array.dtype), array, low)


def read_result(path: Path, tensor: Any, most: int) -> NDArray[Any]:
    """Read a result once into memory, after its dtype, shape and size are checked."""
    shape = tensor.get("shape") if isinstance(tensor, dict) else None
    sound = isinstance(shape, list) and len(shape) <= 32 and all(type(x) is int and x >= 0 for x in shape)
    if not isinstance(shape, list) or not sound or tensor.get("dtype") not in _DTYPES:
        raise Broken(f"{path.name}: expected a dtype and a shape, got {quote_start(repr(tensor))}")
    dtype, size = np.dtype(tensor["dtype"]), math.prod(shape)
    if size * dtype.itemsize > most:
        raise Broken(f"{path.name}: expected at most {most} bytes, got {size * dtype.itemsize}")
    return _elements(path, size, dtype).reshape(shape)


def _elements(path: Path, size: int, dtype: Any) -> NDArray[Any]:
    """Read the elements of an array from a plain file of exactly their size."""
    expected = size * dtype.itemsize
    try:
        # A link or a pipe in place of the file is not followed or waited for.
        place = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(place, "rb") as file:
            status = os.fstat(place)
            if not stat.S_ISREG(status.st_mode) or status.st_size != expected:
                raise Broken(f"{path.name}: expected a file of {expected} bytes, got {status.st_size}")
            octets = file.read(expected)
    except OSError as error:
        raise Broken(f"{path.name}: expected a readable file, got {error.strerror}") from error
    if len(octets) != expected:
        raise Broken(f"{path.name}: expected {expected} bytes, got {len(octets)}")
    return np.frombuffer(bytearray(octets), dtype)


def _span(array: NDArray[Any]) -> tuple[int, int]:
    """Return the index of the first element in the memory of an array, and the length of that memory."""
    sizes = zip(array.shape, array.strides, strict=True)
    steps = [(size - 1) * step // array.itemsize for size, step in sizes]
    low = sum(step for step in steps if step < 0)
    return -low, sum(map(abs, steps)) + 1


def _view(buffer: NDArray[Any], like: NDArray[Any], offset: int) -> NDArray[Any]:
    return np.ndarray(like.shape, like.dtype, buffer.data, offset * like.itemsize, like.strides)


#: Time limits in seconds of one call, and of the start with the import of a library.
CALL_LIMIT, START_LIMIT = 60.0, 120.0
#: Number of calls without an answer in time after which the function is not called again.
_MOST_HANGS = 5
#: What the other process runs, which imports nothing of this package. It is sent, and lies in no file that
#: another process could change, and in no module that the function could import. The built-in functions are
#: its own too.
_NAMES = ("confine", "server", "caller")
_SOURCES = [Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in _NAMES]
_START = """
def start():
    import builtins, json, os
    lines = os.fdopen(os.dup(0), "r", encoding="utf-8")
    sources, names, request = json.loads(lines.readline())
    spaces = [{"__name__": name, "__builtins__": dict(vars(builtins))} for name in names]
    exec(sources[0], spaces[0])
    confined = spaces[0]["confine"](request)  # before NumPy starts threads
    for source, space in zip(sources[1:], spaces[1:]):
        exec(source, space)
    spaces[1]["main"](lines, confined, spaces[2]["start_thread"])
globals().pop("start")()
"""
#: Variables that say where libraries keep what they have compiled.
_CACHES = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR")
#: Bytes of an element of the widest dtype.
_WIDEST = 16


class Refused(Exception):  # noqa: N818 - it represents what the function raised
    """The function raised for a call."""


class Remote:
    """A function in a process of its own, which is started again after an error."""

    def __init__(
        self,
        name: str,
        place: str,
        array: str,
        device: str,
        folder: Path,
        *,
        seconds: float = CALL_LIMIT,
        system: bool = True,
    ) -> None:
        self._name, self._seconds, self._place = name, seconds, folder
        folders, files = hidden_places()
        # It is made before the process is confined, which can write to no other folder.
        self._home = Path(tempfile.mkdtemp())
        confine = {"folders": folders, "files": files, "writable": [str(self._home)], "system": system}
        hello = {"do": "hello", "protocol": PROTOCOL, "place": place, "array": array, "device": device}
        self._begin, self._hello = json.dumps([_SOURCES, _NAMES, confine]), json.dumps(hello)
        self._process: Process | None = None
        self._memory: int | None = None
        self._hung = 0
        #: What the last call returned, which further calls leave unchanged, and where it lies.
        self._last: list[tuple[NDArray[Any], dict[str, Any]]] = []
        #: The folder of the last call, and its arguments with what they were, which stay unchanged as well.
        self._before: tuple[Path, dict[str, tuple[NDArray[Any], bytes]]] | None = None
        try:
            self._start()
        except Broken as broken:
            self.close()
            raise BackendError(
                f"backend {name}: expected {place} to be imported, but its process {broken}"
            ) from broken
        except BackendError:
            self.close()
            raise

    def function(self) -> Callable[..., Any]:
        """Return a function with the signature of the other one, which calls it."""

        def run(*arrays: Any, **options: Any) -> Any:
            names = [parameter.name for parameter in parameters if parameter.kind in _POSITIONAL][
                : len(arrays)
            ]
            if len(names) < len(arrays):
                raise TypeError(f"expected at most {len(names)} arrays, got {len(arrays)}")
            return self.run(dict(zip(names, arrays, strict=True)), options)

        parameters = self.parameters
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by inspect
        return run

    def run(self, first: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """Make one call."""
        if self._hung >= _MOST_HANGS:
            raise Broken(f"is not called again: {self._hung} calls had no answer in {self._seconds:g} s")
        try:
            folder = Path(tempfile.mkdtemp(dir=self._home))
        except OSError as error:
            raise Broken(f"removed the folder of its calls: {error.strerror}") from error
        try:
            return self._call(folder, first, options)
        except BackendError as error:
            raise Broken(f"could not be started again: {error}") from error
        except OSError as error:
            self._discard()
            raise Broken(f"left no folder to write a call to: {error.strerror}") from error
        except Broken as broken:
            self._hung += isinstance(broken, Late)
            self._discard()
            raise
        finally:
            if self._before is None or self._before[0] != folder:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the process."""
        self._discard()
        shutil.rmtree(self._home, ignore_errors=True)

    def _call(self, folder: Path, first: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        given = {**first, **options}
        arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
        tensors = {name: write_array(folder / f"{name}.bin", array) for name, array in arrays.items()}
        # Nothing in a call tells its case; an answer that was made before the call has another number.
        number = secrets.randbits(48)
        process = self._process or self._start()
        self._compare_arguments()
        kept = self._compare_last()
        message = {
            "do": "run",
            "id": number,
            "folder": str(folder),
            "positional": list(first),
            "options": {name: _plain(value) for name, value in given.items() if name not in arrays},
            "tensors": tensors,
            "kept": kept,
            "wide": has_64_bits(given.values()),
        }
        process.send(json.dumps(message))
        answer = parse_json(process.receive(self._seconds))
        if not isinstance(answer, dict) or answer.get("id") != number:
            raise Broken(f"answered to another call: got {quote_start(json.dumps(answer))}")
        for name, array in arrays.items():
            _write_back(name, array, read_again(folder / f"{name}.bin", array))
        said = str(answer.get("message", ""))
        if answer.get("status") == "unsupported":
            raise NotImplementedError(said)
        if answer.get("status") == "refused":
            kind = str(answer.get("kind", ""))[:100]
            raise _kind(kind)(said)
        results = answer.get("tensors")
        if answer.get("status") != "ok" or not isinstance(results, list) or len(results) > 100:
            raise Broken(f"gave an invalid answer: got {quote_start(json.dumps(answer))}")
        self._compare_last(folder)
        self._compare_arguments()
        self._forget_arguments()
        self._before = folder, {name: (array, array.tobytes()) for name, array in arrays.items()}
        most = _largest_result(arrays)
        parts = [
            None if tensor is None else self._result(folder / f"result-{place}.bin", tensor, most)
            for place, tensor in enumerate(results)
        ]
        self._last = [
            (part.copy(), tensor) for part, tensor in zip(parts, results, strict=True) if part is not None
        ]
        return tuple(parts) if answer.get("many") is True or len(parts) != 1 else parts[0]

    def _compare_last(self, folder: Path | None = None) -> list[int]:
        """Compare the results of the last call, which the function may keep, with what they were (ERR-13).

        Return the numbers of those whose memory cannot be read. The next call asks for them.
        """
        kept = []
        for number, (before, tensor) in enumerate(self._last):
            octets = read_memory(self._memory, tensor, before)
            if octets is None and folder is not None:
                octets = read_again(folder / f"kept-{number}.bin", before).tobytes()
            if octets is None:
                kept.append(number)
            elif octets != before.tobytes():
                raise Broken("changed the result of an earlier call, which its caller keeps")
        return kept

    def _compare_arguments(self) -> None:
        """Compare the arguments of the last call, whose memory the function may keep, with what they were."""
        folder, arrays = self._before or (Path(), {})
        for name, (array, octets) in arrays.items():
            if read_again(folder / f"{name}.bin", array).tobytes() != octets:
                raise Broken(f"changed {name} after an earlier call, which its caller keeps")

    def _forget_arguments(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            shutil.rmtree(before[0], ignore_errors=True)

    def _result(self, path: Path, tensor: Any, most: int) -> NDArray[Any]:
        array = read_result(path, tensor, most)
        if read_memory(self._memory, tensor, array) not in (None, array.tobytes()):
            raise Broken("says an address of its result where other numbers are")
        return array

    def _start(self) -> Process:
        caches = dict.fromkeys(_CACHES, str(self._home / "cache"))
        own = {"TMPDIR": str(self._home), "PYTHONDONTWRITEBYTECODE": "1", **caches}
        environment = plain_environment(os.environ) | own
        command = [sys.executable, "-P", "-s", "-c", _START]
        process = Process(command, self._place, environment=environment, leads=True, supervised=True)
        try:
            process.send(self._begin)
            # Before the import, all that it says is true.
            self.confined = tuple(json.loads(process.receive(START_LIMIT))["confined"])
            self._memory = open_memory(process.number)
            process.send(self._hello)
            self._read_greeting(parse_json(process.receive(START_LIMIT)))
        except BaseException:
            process.stop()
            raise
        self._process = process
        return process

    def _read_greeting(self, said: Any) -> None:
        """Read the greeting."""
        if isinstance(said, dict) and "problem" in said:
            raise BackendError(f"backend {self._name}: its import raised {str(said['problem'])[:1000]}")
        try:
            self.library, self.version = str(said["library"])[:60], str(said["version"])[:60]
            self.parameters = [_parameter(*fields) for fields in said["parameters"]]
            inspect.Signature(self.parameters)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise BackendError(
                f"backend {self._name}: expected a greeting with a signature, "
                f"got {quote_start(json.dumps(said))}"
            ) from error

    def _discard(self) -> None:
        process, self._process = self._process, None
        self._last, memory, self._memory = [], self._memory, None
        self._forget_arguments()
        if memory is not None:
            os.close(memory)
        if process is not None:
            process.stop()


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameter(name: str, kind: str, has_default: object) -> inspect.Parameter:
    """Make a parameter of the signature. A default is None here, and is not passed."""
    is_one = kind not in ("VAR_POSITIONAL", "VAR_KEYWORD")
    default = None if has_default and is_one else inspect.Parameter.empty
    return inspect.Parameter(name, getattr(inspect.Parameter, kind), default=default)


def _kind(name: str) -> type[Exception]:
    """Return an exception with the name of another one, for reports."""
    return type(name, (Refused,), {}) if name.isidentifier() else Refused


def _write_back(name: str, array: NDArray[Any], after: NDArray[Any]) -> None:
    """Write what the function made of an argument into the array of the caller, which compares it (NUM-4)."""
    if after.tobytes() == np.ascontiguousarray(array).tobytes():
        return
    with suppress(ValueError):  # not writable
        array[...] = after
        return
    raise Broken(f"changed its argument {name}")


def _largest_result(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the most bytes that a result may have: the rows of an argument, with all sizes as widths."""
    rows = max((array.size // max(1, array.shape[-1]) for array in arrays.values() if array.ndim), default=1)
    width = max((size for array in arrays.values() for size in array.shape), default=1)
    return _WIDEST * max(rows, 1) * max(width, 1) ** 2 + 4096


def _plain(value: Any) -> Any:
    """Encode an option as the protocol does."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    value = value.item() if isinstance(value, np.generic) else value
    return spell(value) if isinstance(value, float) else value
