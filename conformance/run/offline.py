"""Calls as files, for a device that cannot talk: exported here, computed there, judged here."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case, __version__
from attnspec.backends import DTYPES, Backend, Unsupported
from attnspec.backends.library.library import array_api_library
from attnspec.backends.program.answers import CALLS, MANIFEST, fingerprint
from attnspec.backends.program.handshake import Handshake, parse_handshake
from attnspec.backends.program.messages import HELLO, STOP, Refused, as_function, write_call
from attnspec.conformance.judge.call import call, observe
from attnspec.conformance.judge.dtypes import arguments_of, dtypes_of, in_dtype
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.refusal import FITTING

#: What is exported for somebody of whom nothing is known.
EVERYTHING = Handshake("", "", DTYPES, {name: operation.options for name, operation in OPERATIONS.items()})


def hello_of(path: Path) -> Handshake:
    """Read what a program says of itself, as it answered to hello.

    Raises
    ------
    BackendError
        When it is no answer to hello.
    """
    return parse_handshake(str(path), path.read_text(encoding="utf-8").strip())


def export_calls(
    found: Sequence[Case], folder: Path, hello: Handshake = EVERYTHING, dtypes: Sequence[str] = ()
) -> int:
    """Write all calls by which the golden vectors are judged to a folder.

    Parameters
    ----------
    found : sequence of Case
    folder : Path
        Made when it is not there.
    hello : Handshake, optional
        What the implementation offers; by default everything.
    dtypes : sequence of str, optional
        Those to export, by default all that it takes.

    Returns
    -------
    int
        The number of calls.
    """
    dtypes = [dtype for dtype in hello.dtypes if not dtypes or dtype in dtypes]
    recorder = _Recorder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    backends = [_backend(recorder, hello, dtypes, ())]
    if "return_weights" in hello.operations["attention"] and hello is EVERYTHING:
        # For somebody who returns no weights too: they are seen otherwise then.
        backends.append(_backend(recorder, hello, dtypes, ("return_weights",)))
    for case in found:
        for dtype in (dtype for dtype in dtypes_of(case) if dtype in dtypes):
            for backend in backends:
                recorder.ask(backend, case, dtype)
    lines = [HELLO, *recorder.lines, STOP]
    (folder / CALLS).write_text("".join(f"{line}\n" for line in lines), encoding="ascii", newline="\n")
    manifest = {
        "attnspec": __version__,
        "dtypes": dtypes,
        "operations": {name: list(options) for name, options in hello.operations.items()},
        "calls": recorder.calls,
    }
    text = json.dumps(manifest, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="ascii", newline="\n")
    return len(recorder.lines)


class _Recorder:
    """Stands in for an implementation, and writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        self._for: tuple[str, str] = ("", "")
        self.lines: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def ask(self, backend: Backend, case: Case, dtype: str) -> None:
        """Make the calls by which a case is judged in a dtype."""
        self._for = case.id, dtype
        asked = [arguments_of(case, dtype)]
        if (
            case.misuse is not None
        ):  # what refuses it is asked for a call that fits, to see whether it returns
            asked += [in_dtype(FITTING[case.operation], other) for other in backend.dtypes]
        for arguments in asked:
            with contextlib.suppress(Unsupported, Raised, Failure):
                (observe if case.misuse is None else call)(backend, case.operation, arguments)

    def run(self, operation: str, arguments: Mapping[str, Any]) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Write a call, unless it is there already; what is returned has the shape of an answer."""
        number = len(self.lines) + 1
        place = f"calls/{number:04}"
        path = self._folder / place
        path.mkdir(parents=True, exist_ok=True)
        line = write_call(number, operation, arguments, path, place)
        print_ = fingerprint(line, path)
        if print_ in self._known:
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
        else:
            self._known.add(print_)
            self.lines.append(line)
            message = {name: json.loads(line)[name] for name in ("operation", "options", "tensors")}
            case, dtype = self._for
            self.calls.append(
                {"id": number, "case": case, "dtype": dtype, "folder": place}
                | {"fingerprint": print_, "call": message}
            )
        return _blank(operation, arguments)


def _blank(operation: str, arguments: Mapping[str, Any]) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """Give zeros of the shape of the output, or refuse what has none."""
    outputs = OPERATIONS[operation].outputs
    want = [name for name in outputs if name == outputs[0] or arguments.get(f"return_{name}") is True]
    if operation == "attention":
        query, value = (np.asarray(arguments[name]) for name in ("query", "value"))
        if query.ndim < 2 or value.ndim < 2:
            raise Refused("no such call")
        output = np.zeros((*query.shape[:-1], value.shape[-1]))
    else:
        output = np.zeros(1)
    return (output,) * len(want) if len(want) > 1 else output


def _backend(recorder: _Recorder, hello: Handshake, dtypes: Sequence[str], hidden: Sequence[str]) -> Backend:
    functions = {
        operation: as_function(operation, [name for name in options if name not in hidden], recorder.run)
        for operation, options in hello.operations.items()
    }
    attention = functions.pop("attention")
    return Backend("recorder", array_api_library("offline", "", xp), attention, tuple(dtypes), functions)
