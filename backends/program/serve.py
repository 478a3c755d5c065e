"""Serve a Python backend over the protocol, as a program in another language would."""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend, results_of
from attnspec.backends.errors import Unsupported
from attnspec.backends.program.protocol import PROTOCOL, read_call

_Line = TypeVar("_Line", str, bytes)


def until_closed(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Yield the lines of a parent process; when it ends, end this process, even during a call."""
    waiting: queue.Queue[_Line] = queue.Queue()

    def read() -> None:
        for line in lines:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield waiting.get()


def serve(backend: Backend, lines: Iterable[str], write: Any) -> None:
    r"""Answer calls until told to stop."""
    for line in lines:
        match json.loads(line)["do"]:
            case "hello":
                write(json.dumps(_hello(backend)))
            case "run":
                write(json.dumps(_answer(backend, line)))
            case _:
                return


def _hello(backend: Backend) -> dict[str, Any]:
    functions = {name: backend.function(name) for name in OPERATIONS}
    operations = {
        name: [option for option in OPERATIONS[name].offers if backend.has(name, option)]
        for name, function in functions.items()
        if function is not None
    }
    said = {
        "protocol": PROTOCOL,
        "name": backend.name,
        "version": backend.version,
        "dtypes": list(backend.dtypes),
        "operations": operations,
        "dialect": dict(backend.dialect),
        "claims": list(backend.claims),
    }
    conventions = [x.convention for x in functions.values() if x is not None and hasattr(x, "convention")]
    names = {ours: own for convention in conventions for ours, own in convention.own_names.items()}
    described = {
        # The user's names of arguments, by ours. None if no function stands behind an adapter.
        "names": names if conventions else None,
        "fits": backend.constraints.suffix,
        "accuracy": backend.accuracy,
        "profile": backend.profile,
        "not_understood": list(backend.not_understood),
    }
    return said | {"described": described}


def _answer(backend: Backend, line: str) -> dict[str, Any]:
    number, operation, arguments, folder = read_call(line)
    function = backend.function(operation)
    fitting = backend.array_library.fit_integers(arguments)
    given = {name: backend.to_library(x) if isinstance(x, np.ndarray) else x for name, x in fitting.items()}
    follow = {argument.name for argument in OPERATIONS[operation].forward}
    for name in [name for name in given if not backend.has(operation, name)]:
        if function is not None and (name.startswith("return_") or name in follow):
            # Calls that are exported without a handshake request every output and hold all that may help.
            del given[name]
        else:
            return {"id": number, "status": "unsupported", "message": f"no {operation} with {name}"}
    assert function is not None  # noqa: S101 - for the type checker: it has its arrays
    want = OPERATIONS[operation].wanted(given)
    try:
        arrays = [given.pop(name) for name in OPERATIONS[operation].arrays]
        with backend.array_library.at_call((*arrays, *given.values())):
            returned = function(*arrays, **given)
    except (Unsupported, NotImplementedError) as unsupported:
        return {"id": number, "status": "unsupported", "message": str(unsupported)}
    except Exception as error:  # noqa: BLE001 - any exception is a refusal
        text = ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        return {"id": number, "status": "refused", "message": text}
    parts = list(results_of(returned, len(want)))
    missing = [name for name, part in zip(want, parts, strict=False) if part is None]
    if missing:
        return {"id": number, "status": "refused", "message": f"it returned None for {', '.join(missing)}"}
    tensors = {}
    for name, part in zip(want, map(backend.to_numpy, parts), strict=True):
        (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(part).tobytes())
        tensors[name] = {"dtype": part.dtype.name, "shape": list(part.shape)}
    return {"id": number, "status": "ok", "tensors": tensors}


def serve_here(make: Callable[[], Backend]) -> None:
    """Serve the backend that a function makes, on standard input and output."""
    lines, write = take_streams()
    serve(make(), lines, write)


def take_streams() -> tuple[Iterable[str], Callable[[str], None]]:
    """Return the lines of standard input, and a function that writes lines to standard output.

    All else that this process prints goes to standard error, and all else that reads finds nothing.
    """
    lines, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)

    def write(line: str) -> None:
        answers.write(line + "\n")
        answers.flush()

    return lines, write


if __name__ == "__main__":
    from attnspec.backends import load

    sys.path.insert(0, str(Path.cwd()))
    serve_here(lambda: load(sys.argv[1]))
