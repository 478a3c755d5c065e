"""The messages of the protocol: lines of JSON, and arrays as files.

``conformance/protocol.md`` describes them.
"""

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, claimable
from attnspec.backends.errors import BackendError, Broken, Unsupported
from attnspec.dtypes import DTYPES
from attnspec.golden import decode
from attnspec.reading import read_bytes
from attnspec.schema import spell

#: The version of the protocol.
PROTOCOL = 1


@dataclass(frozen=True)
class Handshake:
    """The declarations of an implementation."""

    name: str
    version: str
    dtypes: tuple[str, ...]
    operations: Mapping[str, tuple[str, ...]]
    dialect: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()  # the operations whose calls it captures and replays
    described: Mapping[str, Any] = field(default_factory=dict)  # what is said of a function in Python
    notes: tuple[str, ...] = ()  # the names that this version does not have


def parse_handshake(name: str, line: str) -> Handshake:
    """Read the answer to hello."""
    said = parse_json(line)
    if not isinstance(said, dict):
        raise BackendError(f"backend {name}: hello: expected a JSON object, got {quote_start(line)}")
    if said.get("protocol") != PROTOCOL:
        raise BackendError(
            f"backend {name}: hello: protocol: expected {PROTOCOL}, got {said.get('protocol')!r}"
        )
    dtypes, operations = said.get("dtypes"), said.get("operations")
    if not isinstance(dtypes, list) or not dtypes or not set(map(str, dtypes)) <= set(DTYPES):
        raise BackendError(
            f"backend {name}: hello: dtypes: expected some of {', '.join(DTYPES)}, got {dtypes!r}"
        )
    if not isinstance(operations, dict) or not operations:
        raise BackendError(
            f"backend {name}: hello: operations: expected an object with attention or other operations, "
            f"got {operations!r}"
        )
    for operation, options in operations.items():
        if operation not in OPERATIONS:
            raise BackendError(
                f"backend {name}: hello: operations: expected some of {', '.join(OPERATIONS)}, "
                f"got {operation!r}"
            )
        if not isinstance(options, list):
            known = ", ".join(OPERATIONS[operation].offers)
            raise BackendError(
                f"backend {name}: hello: {operation}: expected a list of some of {known}, got {options!r}"
            )
    offered = {
        operation: tuple(option for option in options if option in OPERATIONS[operation].offers)
        for operation, options in operations.items()
    }
    unknown = [
        f"{option} of {operation}"
        for operation, options in operations.items()
        for option in map(str, options)
        if option not in offered[operation]
    ]
    dialect = said.get("dialect", {})
    if not isinstance(dialect, dict):
        raise BackendError(f"backend {name}: hello: dialect: expected an object, got {dialect!r}")
    return Handshake(
        str(said.get("name", "")),
        str(said.get("version", "")),
        tuple(dtypes),
        offered,
        dialect,
        _some_of(name, said, "claims", claimable()),
        _some_of(name, said, "captures", operations),
        described if isinstance(described := said.get("described"), dict) else {},
        (f"ignored, unknown in this version: {', '.join(unknown)}",) if unknown else (),
    )


def _some_of(name: str, said: Mapping[str, Any], key: str, known: Collection[str]) -> tuple[str, ...]:
    """Read a list that may be left out, and that has some of the known words."""
    words = said.get(key, [])
    if not isinstance(words, list) or not set(map(str, words)) <= set(known):
        raise BackendError(
            f"backend {name}: hello: {key}: expected some of {', '.join(known)}, got {words!r}"
        )
    return tuple(words)


def parse_json(line: str) -> Any:
    """Parse a line of JSON; None if it is invalid."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def quote_start(text: str) -> str:
    """Quote the start of a text."""
    return repr(text if len(text) <= 120 else f"{text[:120]}...")


HELLO = json.dumps({"do": "hello", "protocol": PROTOCOL})
STOP = json.dumps({"do": "stop"})


def write_call(
    number: int, operation: str, arguments: Mapping[str, Any], folder: Path, said: str, captured: int = 0
) -> str:
    """Write the arrays of a call to a folder, and return the call as a line.

    Calls of the same number `captured` are one call that is captured and replayed. Other calls have 0.
    """
    tensors, options = {}, {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            tensors[name] = {"dtype": value.dtype.name, "shape": list(value.shape)}
            little = value if value.dtype.byteorder != ">" else value.astype(value.dtype.newbyteorder("<"))
            (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(little).tobytes())
        else:
            options[name] = _plain(name, value)
    want = list(OPERATIONS[operation].wanted(arguments))
    call = {"do": "run", "id": number, "operation": operation, "folder": said, "want": want}
    call |= {"captured": captured} if captured else {}
    # Names of folders are not escaped, so that a program can search the text.
    return json.dumps(call | {"options": options, "tensors": tensors}, allow_nan=False, ensure_ascii=False)


def read_call(line: str, folder: Path | None = None) -> tuple[int, str, dict[str, Any], Path]:
    """Read a call: its number, the operation, the arguments and the folder."""
    call = json.loads(line)
    place = (folder or Path()) / call["folder"]
    arguments = dict(decode(call["options"]))
    for name, tensor in call["tensors"].items():
        arguments[name] = read_array(place / f"{name}.bin", tensor)
    return call["id"], call["operation"], arguments, place


def read_answer(line: str, number: int, want: Sequence[str], folder: Path) -> tuple[NDArray[Any], ...]:
    """Read the answer to a call, with its arrays."""
    answer = parse_json(line)
    if not isinstance(answer, dict):
        raise Broken(
            f"answered with invalid JSON: got {quote_start(line)} (only answers may go to standard output)"
        )
    if answer.get("id") != number:
        raise Broken(f"answered out of order: expected an answer to call {number}, got {answer.get('id')!r}")
    status, message = answer.get("status"), str(answer.get("message", ""))
    if status == "refused":
        raise Refused(message)
    if status == "unsupported":
        raise Unsupported(message or "the program does not offer this call")
    tensors = answer.get("tensors")
    if status != "ok" or not isinstance(tensors, dict):
        raise Broken(
            "gave an invalid answer: expected status ok with tensors, refused or unsupported, "
            f"got {quote_start(line)}"
        )
    missing = [name for name in want if name not in tensors]
    if missing:
        raise Broken(f"gave an incomplete answer: expected {', '.join(want)}, got no {', '.join(missing)}")
    return tuple(read_array(folder / f"{name}.bin", tensors[name]) for name in want)


def fingerprint(line: str, folder: Path) -> str:
    """Hash the operation, the arguments and the bytes of the arrays of a call."""
    call = json.loads(line)
    options = {name: value for name, value in call["options"].items() if not name.startswith("return_")}
    # Results of the forward pass follow from the rest of the call.
    follow = {argument.name for argument in OPERATIONS[call["operation"]].forward}
    tensors = {name: tensor for name, tensor in call["tensors"].items() if name not in follow}
    digest = hashlib.sha256(json.dumps([call["operation"], options, tensors], sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(read_bytes(folder / f"{name}.bin"))
    return digest.hexdigest()


class Refused(Exception):  # noqa: N818 - it represents an error of the program
    """A program refused a call, as a function does by raising."""


def read_array(path: Path, tensor: Any) -> NDArray[Any]:
    """Read an array from a file of its elements."""
    try:
        dtype = np.dtype(tensor["dtype"]).newbyteorder("<")
        shape = tuple(tensor["shape"])
        size = math.prod(shape) * dtype.itemsize
        sound = all(type(length) is int and length >= 0 for length in shape) and not dtype.hasobject
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise Broken(f"{path.name}: expected a dtype and a shape, got {quote_start(json.dumps(tensor))}")
    try:
        got = path.stat().st_size
        if got != size:
            raise Broken(
                f"{path.name}: expected {size} bytes for {tensor['dtype']} of shape {shape}, got {got}"
            )
        return np.frombuffer(read_bytes(path, size), dtype).reshape(shape)
    except OSError as error:
        raise Broken(f"{path.name}: expected a readable file, got {error}") from error


def as_function(
    operation: str,
    options: Sequence[str],
    run: Callable[..., Any],
    captured: Iterator[int] | None = None,
) -> Callable[..., Any]:
    """Make a function with the canonical names of an operation, and only the given options.

    With numbers for captured calls, it offers them (`attnspec.backends.captured`).
    """
    kind = inspect.Parameter
    parameters = [kind(name, kind.POSITIONAL_OR_KEYWORD) for name in OPERATIONS[operation].arrays]
    parameters += [kind(name, kind.KEYWORD_ONLY, default=None) for name in options]
    signature = inspect.Signature(parameters)

    def function(*arrays: Any, **given: Any) -> Any:
        return run(operation, signature.bind(*arrays, **given).arguments)

    if captured is not None:
        function.captured = lambda: partial(_capture, next(captured))  # type: ignore[attr-defined] # read by `capture`

    def _capture(number: int, *arrays: Any, **given: Any) -> Any:
        return run(operation, signature.bind(*arrays, **given).arguments, number)

    function.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    function.__name__ = operation
    function.program = True  # type: ignore[attr-defined] # the class of the product in a claim
    return function


def _plain(name: str, value: Any) -> Any:
    """Encode an option as in the golden vectors: names for non-finite numbers, lists for pairs."""
    if isinstance(value, tuple | list):
        return [_plain(name, part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return spell(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise Unsupported(f"{name}: expected a value that JSON can represent, got {type(value).__name__}")
