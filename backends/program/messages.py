"""The messages of the protocol: calls and answers as lines of JSON, and their arrays as files.

``conformance/protocol.md`` describes them.
"""

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.errors import Broken, Unsupported
from attnspec.backends.program.handshake import PROTOCOL, parsed, short
from attnspec.case_json import decode
from attnspec.spelling import spell

HELLO = json.dumps({"do": "hello", "protocol": PROTOCOL})
STOP = json.dumps({"do": "stop"})


def write_call(number: int, operation: str, arguments: Mapping[str, Any], folder: Path, said: str) -> str:
    """Write the arrays of a call to a folder, and return the call as a line."""
    tensors, options = {}, {}
    for name, thing in arguments.items():
        if isinstance(thing, np.ndarray):
            tensors[name] = {"dtype": thing.dtype.name, "shape": list(thing.shape)}
            little = thing if thing.dtype.byteorder != ">" else thing.astype(thing.dtype.newbyteorder("<"))
            (folder / f"{name}.bin").write_bytes(np.ascontiguousarray(little).tobytes())
        else:
            options[name] = _plain(name, thing)
    want = list(OPERATIONS[operation].wanted(arguments))
    call = {"do": "run", "id": number, "operation": operation, "folder": said, "want": want}
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
    answer = parsed(line)
    if not isinstance(answer, dict):
        raise Broken(
            f"answered with invalid JSON: got {short(line)} (only answers may go to standard output)"
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
            f"got {short(line)}"
        )
    missing = [name for name in want if name not in tensors]
    if missing:
        raise Broken(f"gave an incomplete answer: expected {', '.join(want)}, got no {', '.join(missing)}")
    return tuple(read_array(folder / f"{name}.bin", tensors[name]) for name in want)


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
        raise Broken(f"{path.name}: expected a dtype and a shape, got {short(json.dumps(tensor))}")
    try:
        got = path.stat().st_size
        if got != size:
            raise Broken(
                f"{path.name}: expected {size} bytes for {tensor['dtype']} of shape {shape}, got {got}"
            )
        return np.frombuffer(path.read_bytes(), dtype).reshape(shape)
    except OSError as error:
        raise Broken(f"{path.name}: expected a readable file, got {error}") from error


def as_function(
    operation: str, options: Sequence[str], run: Callable[[str, Mapping[str, Any]], Any]
) -> Callable[..., Any]:
    """Make a function with the canonical names of an operation, and only the given options.

    Examples
    --------
    >>> import inspect
    >>> from attnspec.backends.program.messages import as_function
    >>> inspect.signature(as_function("attention", ["scale"], lambda name, given: given))
    <Signature (query, key, value, *, scale=None)>
    """
    kind = inspect.Parameter
    parameters = [kind(name, kind.POSITIONAL_OR_KEYWORD) for name in OPERATIONS[operation].arrays]
    parameters += [kind(name, kind.KEYWORD_ONLY, default=None) for name in options]
    signature = inspect.Signature(parameters)

    def function(*arrays: Any, **given: Any) -> Any:
        return run(operation, signature.bind(*arrays, **given).arguments)

    function.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    function.__name__ = operation
    return function


def _plain(name: str, thing: Any) -> Any:
    """Encode an option as in the golden vectors: names for non-finite numbers, lists for pairs."""
    if isinstance(thing, tuple | list):
        return [_plain(name, part) for part in thing]
    if isinstance(thing, np.generic):
        thing = thing.item()
    if isinstance(thing, float):
        return spell(thing)
    if thing is None or isinstance(thing, bool | int | str):
        return thing
    raise Unsupported(f"{name}: expected a value that JSON can represent, got {type(thing).__name__}")
