"""Answers calls of one function over standard input and output. It runs from its text, not from a file.

It imports the standard library, NumPy, and the library of the function. The messages are those of
``conformance/protocol.md``, with the function's own names for the arguments. The function runs in another
thread of this process (`caller.py`) and may change what it reaches. So what a verdict rests on lies with the
judge: it maps the files of arguments, and reads the memory of results.
"""

import importlib
import json
import math
import os
import warnings
from json.encoder import encode_basestring_ascii as _quoted
from math import prod
from mmap import mmap
from typing import Any

from numpy import asarray, dtype, empty, generic, int16, ndarray

# The function may change modules, so no attribute of one is looked up after a call.
_write, _close, _create, _parsed = os.write, os.close, os.open, json.JSONDecoder().decode
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _map(path: str, tensor: dict[str, Any]) -> Any:
    """Map an array of a call from a file that the caller reads again."""
    kind = "uint16" if tensor["dtype"] == "bfloat16" else tensor["dtype"]
    shape = tuple(tensor["shape"])
    if prod(shape) == 0:
        return empty(shape, kind)
    with open(path, "r+b") as file:  # noqa: PTH123 - a path of pathlib is made by functions that can be replaced
        memory = mmap(file.fileno(), 0)
    strides, offset = tensor.get("strides"), tensor.get("offset", 0)
    size = dtype(kind).itemsize
    steps = None if strides is None else tuple(step * size for step in strides)
    return ndarray(shape, kind, memory, offset * size, steps)


def _library_array(array: Any, library: str, device: str, *, brief: bool, wide: bool) -> Any:
    if library == "torch":
        import torch

        placed = torch.from_numpy(array.view(int16) if brief else array)
        placed = placed.view(torch.bfloat16) if brief else placed
        return placed.to(device) if device else placed
    if brief:
        array = array.view(importlib.import_module("ml_dtypes").bfloat16)
    if library == "jax":
        import jax

        with jax.enable_x64(wide):
            return jax.device_put(array, jax.devices(device)[0] if device else None)
    return array if library == "numpy" else importlib.import_module(library).asarray(array)


def _back(part: Any, library: str, device: str) -> tuple[Any, str]:
    """Return a result as an array of NumPy, and the name of its dtype. No method of a subclass is called."""
    if library == "torch":
        import torch

        if type(part) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError("no tensor")
        if part.device.type != (device.partition(":")[0] or "cpu"):
            raise TypeError("device")
        part = part.detach().cpu()
        if part.dtype == torch.bfloat16:
            return part.view(torch.int16).numpy(), "bfloat16"
        return part.numpy(), str(part.dtype).rpartition(".")[2]
    if library == "numpy" and not issubclass(type(part), ndarray | generic):
        raise TypeError("no array")
    array = asarray(part)
    return array, array.dtype.name


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(part) for part in value)
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _write_file(path: str, octets: bytes) -> None:
    file = _create(path, _FLAGS, 0o600)
    _write_all(file, octets)
    _close(file)


def _write_all(file: int, octets: bytes) -> None:
    left = memoryview(octets)
    while left:
        left = left[_write(file, left) :]


def _answer(
    message: dict[str, Any], call: Any, library: str, device: str, last: list[list[Any]]
) -> dict[str, Any]:
    """Make one call. `last` holds what the last two calls returned, which the judge reads again."""
    folder, answer, tensors = message["folder"], {"id": message["id"]}, message["tensors"]
    mapped = {name: _map(f"{folder}/{name}.bin", tensor) for name, tensor in tensors.items()}
    made = {
        name: _library_array(
            array, library, device, brief=tensors[name]["dtype"] == "bfloat16", wide=message["wide"]
        )
        for name, array in mapped.items()
    }
    given = {name: _decode(value) for name, value in message["options"].items()} | made
    first = [given.pop(name) for name in message["positional"]]
    status, *returned = call(first, given, tensors, library, message["wide"])
    for name in made if library == "torch" and device else ():
        mapped[name][...] = _back(made[name], library, device)[0].view(mapped[name].dtype)
    if status != "ok":
        return {**answer, "status": status, "kind": returned[0], "message": returned[1]}
    for number in message["kept"]:
        part = _back(last[-1][number][0], library, device)[0]
        _write_file(f"{folder}/kept-{number}.bin", part.tobytes())
    results: list[Any] = []
    last[:] = [*last[-1:], []]
    for part in returned[1]:
        try:
            array, kind = _back(part, library, device)
        except Exception:  # noqa: BLE001 - it is no array of the library
            results.append(None)
            continue
        _write_file(f"{folder}/result-{len(results)}.bin", array.tobytes())
        last[-1].append((part, array))
        result = {"dtype": kind, "shape": array.shape}
        if library == "numpy" or (library == "torch" and part.device.type == "cpu"):
            result |= {"address": array.__array_interface__["data"][0], "strides": array.strides}
        results.append(result)
    return {**answer, "status": "ok", "many": returned[0], "tensors": results}


def _encode(thing: Any) -> str:
    """Write JSON. The function could replace parts of the module that does."""
    if isinstance(thing, dict):
        return "{" + ",".join([f"{_quoted(name)}:{_encode(part)}" for name, part in thing.items()]) + "}"
    if isinstance(thing, list | tuple):
        return "[" + ",".join([_encode(part) for part in thing]) + "]"
    if thing is None or isinstance(thing, bool):
        return {None: "null", True: "true", False: "false"}[thing]
    return str(thing) if isinstance(thing, int) else _quoted(str(thing))


def main(lines: Any, confined: list[str], start_thread: Any) -> None:
    """Greet, then answer calls until the lines end. This process is confined by some means."""
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what the function prints is no answer
    os.close(nothing)

    def say(answer: dict[str, Any]) -> None:
        _write_all(answers, f"{_encode(answer)}\n".encode())

    say({"confined": confined})  # the judge opens the memory of this process before the import
    message = json.loads(lines.readline())
    call = start_thread(message)
    status, *said = call()
    if status != "ok":
        say({"problem": f"{said[0]}: {said[1]}"})
        return
    say(said[0])
    library, device = said[0]["library"], message["device"]
    warnings.simplefilter("ignore")
    last: list[list[Any]] = [[]]
    for line in lines:
        say(_answer(_parsed(line), call, library, device, last))
