"""Export the calls of the suite as files, for a device without Python or a network."""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, SpecError, __version__
from attnspec.backends import DTYPES, Backend, Unsupported
from attnspec.backends.library.library import array_api_library
from attnspec.backends.program.answers import CALLS, MANIFEST
from attnspec.backends.program.protocol import (
    HELLO,
    STOP,
    Handshake,
    Refused,
    as_function,
    fingerprint,
    parse_handshake,
    write_call,
)
from attnspec.conformance.judge.call import call, observe
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.refusal import fitting_call
from attnspec.conformance.suite.group import Item
from attnspec.reading import read_text
from attnspec.reference.numpy_namespace import xp
from attnspec.sizes import output_shapes

#: The handshake that is assumed if none is given.
EVERYTHING = Handshake("", "", DTYPES, {name: operation.offers for name, operation in OPERATIONS.items()})


def hello_of(path: Path) -> Handshake:
    """Read the answer of a program to hello from a file."""
    return parse_handshake(str(path), read_text(path).strip())


@dataclass(frozen=True)
class Export:
    """The counts of an export."""

    calls: int
    cases: int  # the cases and relations that the calls judge
    left_out: int  # cases and relations that files cannot show


def export_calls(
    found: Iterable[Item],
    folder: Path,
    hello: Handshake = EVERYTHING,
    dtypes: Sequence[str] = (),
    part: str = "chosen",
) -> Export:
    """Write the calls of cases and relations to a folder, each call once."""
    dtypes = [dtype for dtype in hello.dtypes if not dtypes or dtype in dtypes]
    recorder = _Recorder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    backends = [_backend(recorder, hello, dtypes, ())]
    if "return_weights" in hello.operations["attention"] and hello is EVERYTHING:
        # Also for an implementation that returns no weights, which is observed by other calls.
        backends.append(_backend(recorder, hello, dtypes, ("return_weights",)))
    asked, left_out = [], 0
    for item in found:
        if item.dtype in DTYPES and item.dtype not in dtypes:
            continue
        if item.live:
            left_out += 1
            continue
        asked.append(item.name)
        for backend in backends:
            recorder.ask(backend, item)
    lines = [HELLO, *recorder.lines, STOP]
    (folder / CALLS).write_text("".join(f"{line}\n" for line in lines), encoding="ascii", newline="\n")
    manifest = {
        "attnspec": __version__,
        "part": part,
        "dtypes": dtypes,
        "operations": {name: list(options) for name, options in hello.operations.items()},
        "cases": asked,
        "calls": recorder.calls,
    }
    text = json.dumps(manifest, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="ascii", newline="\n")
    return Export(len(recorder.lines), len(asked), left_out)


def dump_case(item: Item, folder: Path, backend: Backend | None = None) -> int:
    """Write the calls of one case or relation to a folder, as messages of the protocol."""
    hello = EVERYTHING
    if backend is not None:
        offered = {
            name: tuple(option for option in operation.offers if backend.has(name, option))
            for name, operation in OPERATIONS.items()
            if backend.function(name) is not None
        }
        hello = Handshake("", "", backend.dtypes, offered)
    recorder = _Recorder(folder)
    asked = _backend(recorder, hello, hello.dtypes, ())
    for case in item.calls:
        with suppress(Unsupported, Raised, Failure):
            call(asked, case.operation, case.arguments)
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in (HELLO, *recorder.lines, STOP))
    (folder / CALLS).write_text(text, encoding="ascii", newline="\n")
    return len(recorder.lines)


class _Recorder:
    """A stand-in for an implementation that records its calls."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[Hashable] = set()
        self._for = ""
        self.lines: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def ask(self, backend: Backend, item: Item) -> None:
        """Make the calls of a case or a relation."""
        self._for = item.name
        for case in item.calls:
            computed = case.misuse is None or case.misuse.allowed
            with suppress(Unsupported, Raised, Failure):
                observe(backend, case) if computed else call(
                    backend, case.operation, case.arguments, outputs=case.outputs
                )
            if case.misuse is not None:
                # After a refusal, the judge makes a valid call, to see whether the function computes.
                for dtype in backend.dtypes:
                    with suppress(Unsupported, Raised, Failure):
                        call(
                            backend,
                            case.operation,
                            in_dtype(fitting_call(backend, case.operation, case), dtype),
                        )

    def run(self, operation: str, arguments: Mapping[str, Any]) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Record a call once, and return an array with the shape of the result."""
        key = _key(operation, arguments)
        if key not in self._known:
            self._known.add(key)
            self._write(operation, arguments)
        return _blank(operation, arguments)

    def _write(self, operation: str, arguments: Mapping[str, Any]) -> None:
        number = len(self.lines) + 1
        place = f"calls/{number:04}"
        path = self._folder / place
        path.mkdir(parents=True, exist_ok=True)
        self.lines.append(write_call(number, operation, arguments, path, place))
        message = json.loads(self.lines[-1])
        self.calls.append(
            {"id": number, "case": self._for, "folder": place}
            | {"fingerprint": fingerprint(self.lines[-1], path)}
            | {"call": {name: message[name] for name in ("operation", "options", "tensors")}}
        )


def _key(operation: str, arguments: Mapping[str, Any]) -> Hashable:
    """Return a key that ignores which outputs a call requests."""
    parts = [
        (name, str(x.dtype), x.shape, x.tobytes()) if isinstance(x, np.ndarray) else (name, repr(x))
        for name, x in sorted(arguments.items())
        if not name.startswith("return_")
    ]
    return operation, *parts


def _blank(operation: str, arguments: Mapping[str, Any]) -> NDArray[Any] | tuple[NDArray[Any], ...]:
    """Return zeros in the shapes of the outputs. Refuse a call whose outputs have no shape."""
    want = OPERATIONS[operation].wanted(arguments)
    try:
        shapes = output_shapes(operation, arguments)
    except SpecError as error:
        raise Refused(str(error)) from error
    parts = tuple(np.zeros(shapes[name]) for name in want)
    return parts if len(parts) > 1 else parts[0]


def _backend(recorder: _Recorder, hello: Handshake, dtypes: Sequence[str], hidden: Sequence[str]) -> Backend:
    functions = {
        operation: as_function(operation, [name for name in options if name not in hidden], recorder.run)
        for operation, options in hello.operations.items()
    }
    attention = functions.pop("attention")
    return Backend("recorder", array_api_library("offline", "", xp), attention, tuple(dtypes), functions)
