"""Answers calls of one function over standard input and output. It runs from its text, not from a file.

It imports the standard library, NumPy, and the library of the function. The messages are those of
``conformance/protocol.md``, with the function's own names for the arguments. The function runs in this
process and may change what it reaches: so what is needed after a call is in no class, in no module and in
no frame below the call.
"""

import builtins
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
import sysconfig
import warnings
from _thread import allocate_lock, start_new_thread
from json.encoder import encode_basestring_ascii as _quoted
from math import nan, prod
from mmap import mmap
from pathlib import Path
from types import FunctionType
from typing import Any

from numpy import asarray, dtype, empty, generic, int16, may_share_memory, ndarray

# The function may change modules, so no attribute of one is looked up after a call.
_write, _close, _create, _parsed = os.write, os.close, os.open, json.JSONDecoder().decode
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
#: The package of each library with a conversion of its own.
_LIBRARIES = ("torch", "jax")


def import_function(place: str) -> tuple[Any, Any]:
    """Import a function, and return it with its module."""
    module, _, attribute = place.rpartition(":")
    folder = str(Path.cwd())
    if module.endswith(".py"):
        path = Path(module).resolve()
        parts, home = [path.stem], path.parent
        while (home / "__init__.py").is_file():
            home, parts = home.parent, [home.name, *parts]
        folder, module = str(home), ".".join(parts)
        if len(parts) == 1 and (module in sys.stdlib_module_names or module in sys.modules):
            module = f"_file_{module}"
        if len(parts) == 1:
            spec = importlib.util.spec_from_file_location(module, path)
            assert spec is not None  # noqa: S101 - for the type checker: the name ends with .py
            assert spec.loader is not None  # noqa: S101
            _put_on_path(folder)
            sys.modules[module] = imported = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(imported)
    _put_on_path(folder)
    target: Any = importlib.import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    return target, sys.modules[module]


def _put_on_path(folder: str) -> None:
    """Insert a folder after the standard library."""
    own = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
    places = [
        n for n, entry in enumerate(sys.path) if entry.startswith(own) and not entry.endswith("-packages")
    ]
    if folder not in sys.path:
        sys.path.insert(max(places, default=-1) + 1, folder)


def library_of(module: Any, named: str) -> str:
    """Return the library of a module: the one that is named, or that it imports."""
    things = vars(module).values()
    names = [getattr(value, "__name__", "") for value in things]
    names += [getattr(value, "__module__", "") for value in things if callable(value)]
    used = {str(name).partition(".")[0] for name in names}
    return named or next((name for name in _LIBRARIES if name in used), "numpy")


def _hello(message: dict[str, Any], function: Any, module: Any) -> dict[str, Any]:
    library = library_of(module, message["array"])
    package = importlib.import_module(library)
    if library == "jax":
        package.config.update("jax_enable_x64", True)
    called = function
    if not inspect.isroutine(function) and hasattr(function, "forward"):
        called = function.forward
    bound = getattr(function, "keywords", {})  # of functools.partial
    listed = inspect.signature(called).parameters.values()
    parameters = [parameter for parameter in listed if parameter.name not in bound]
    return {
        "protocol": 1,
        "name": message["place"],
        "library": library,
        "version": str(getattr(package, "__version__", "")),
        "parameters": [
            [parameter.name, parameter.kind.name, parameter.default is not parameter.empty]
            for parameter in parameters
        ],
    }


def _mapped(path: str, tensor: dict[str, Any]) -> Any:
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


def _of_library(array: Any, library: str, device: str, *, brief: bool) -> Any:
    if library == "torch":
        import torch

        placed = torch.from_numpy(array.view(int16) if brief else array)
        placed = placed.view(torch.bfloat16) if brief else placed
        return placed.to(device) if device else placed
    if brief:
        array = array.view(importlib.import_module("ml_dtypes").bfloat16)
    if library == "jax":
        import jax

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
        part = part.detach().cpu().contiguous()
        if part.dtype == torch.bfloat16:
            return part.view(torch.int16).numpy(), "bfloat16"
        return part.numpy(), str(part.dtype).rpartition(".")[2]
    if library == "numpy" and not issubclass(type(part), ndarray | generic):
        raise TypeError("no array")
    array = asarray(part)
    return array, array.dtype.name


def _poison(tensors: dict[str, Any], library: str) -> None:
    """Fill memory of the sizes of likely results with NaN, and free it, so that no result is read from it."""
    shapes = [tuple(tensor["shape"]) for tensor in tensors.values()]
    rows = max((prod(shape[:-1]) for shape in shapes if shape), default=1)
    widths = {1, *(size for shape in shapes for size in shape[-2:])}
    for count in {*map(prod, shapes), *(rows * width for width in widths)}:
        for kind in ("float16", "float32", "float64"):
            held = [empty(count, kind) for _ in range(3)]
            for array in held:
                array[...] = nan
            if library == "torch":
                import torch

                held.append(torch.full((count,), nan, dtype=getattr(torch, kind)))
            del held


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(part) for part in value)
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def _thread(function: Any) -> Any:
    """Start a thread that makes the calls, and return a function that asks it for one.

    The frames that the function can walk up to are those of this thread, which hold the call alone.
    """
    asked, done = allocate_lock(), allocate_lock()
    asked.acquire()
    done.acquire()
    box: list[Any] = []

    def run() -> None:
        while True:
            asked.acquire()
            first, given, tensors, library = box.pop()
            try:
                poison(tensors, library)  # of this thread, which has memory of its own
                returned = function(*first, **given)
                many = isinstance(returned, tuple | list)
                box.append(("ok", many, [*returned] if many else [returned]))
            except BaseException as error:  # noqa: BLE001 - whatever it raises is a refusal
                status = "unsupported" if isinstance(error, NotImplementedError) else "refused"
                try:
                    box.append((status, type(error).__name__, str(error)[:4000]))
                except BaseException:  # noqa: BLE001 - an error that cannot be printed
                    box.append((status, type(error).__name__, ""))
            first = given = returned = None
            done.release()

    def call(*request: Any) -> Any:
        box.append(request)
        asked.release()
        done.acquire()
        return box.pop()

    poison = _alone(_poison, empty=empty, nan=nan, prod=prod)
    start_new_thread(_alone(run), ())
    return call


def _alone(function: Any, **names: Any) -> Any:
    """Give a function globals of its own, through which nothing of this file is reached."""
    space = {"__builtins__": builtins, **names}
    return FunctionType(function.__code__, space, function.__name__, None, function.__closure__)


def _write_file(path: str, octets: bytes) -> None:
    file = _create(path, _FLAGS, 0o600)
    _write_all(file, octets)
    _close(file)


def _write_all(file: int, octets: bytes) -> None:
    left = memoryview(octets)
    while left:
        left = left[_write(file, left) :]


def _answer(message: dict[str, Any], call: Any, library: str, device: str, last: list[Any]) -> dict[str, Any]:
    """Make one call. `last` is what the call before returned, which the caller compares with what it was."""
    folder, answer, tensors = message["folder"], {"id": message["id"]}, message["tensors"]
    mapped = {name: _mapped(f"{folder}/{name}.bin", tensor) for name, tensor in tensors.items()}
    made = {
        name: _of_library(array, library, device, brief=tensors[name]["dtype"] == "bfloat16")
        for name, array in mapped.items()
    }
    given = {name: _decode(value) for name, value in message["options"].items()} | made
    first = [given.pop(name) for name in message["positional"]]
    status, *returned = call(first, given, tensors, library)
    for name in made if library == "torch" and device else ():
        mapped[name][...] = _back(made[name], library, device)[0].view(mapped[name].dtype)
    if status != "ok":
        return {**answer, "status": status, "kind": returned[0], "message": returned[1]}
    for number, part in enumerate(last):
        _write_file(f"{folder}/kept-{number}.bin", _back(part, library, device)[0].tobytes())
    last.clear()
    results: list[Any] = []
    for part in returned[1]:
        try:
            array, kind = _back(part, library, device)
        except Exception:  # noqa: BLE001 - it is no array of the library
            results.append(None)
            continue
        _write_file(f"{folder}/result-{len(results)}.bin", array.tobytes())
        last.append(part)
        alias = next((name for name, argument in mapped.items() if may_share_memory(array, argument)), "")
        results.append({"dtype": kind, "shape": array.shape, "aliases": alias})
    return {**answer, "status": "ok", "many": returned[0], "tensors": results}


def _encoded(thing: Any) -> str:
    """Write JSON. The function could replace parts of the module that does."""
    if isinstance(thing, dict):
        return "{" + ",".join([f"{_quoted(name)}:{_encoded(part)}" for name, part in thing.items()]) + "}"
    if isinstance(thing, list | tuple):
        return "[" + ",".join([_encoded(part) for part in thing]) + "]"
    if thing is None or isinstance(thing, bool):
        return {None: "null", True: "true", False: "false"}[thing]
    return str(thing) if isinstance(thing, int) else _quoted(str(thing))


def main(lines: Any, confined: list[str]) -> None:
    """Greet, then answer calls until the lines end. This process is confined by some means."""
    answers = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what the function prints is no answer
    os.close(nothing)
    message = json.loads(lines.readline())

    def say(answer: dict[str, Any]) -> None:
        _write_all(answers, f"{_encoded(answer)}\n".encode())

    try:
        function, module = import_function(message["place"])
        greeting = _hello(message, function, module)
    except BaseException as error:  # noqa: BLE001 - whatever the import raises
        say({"problem": f"{type(error).__name__}: {error}"[:4000], "missing": getattr(error, "name", None)})
        return
    say({**greeting, "confined": confined})
    library, device = greeting["library"], message["device"]
    warnings.simplefilter("ignore")
    last: list[Any] = []
    call = _thread(function)
    for line in lines:
        say(_answer(_parsed(line), call, library, device, last))
