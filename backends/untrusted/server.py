"""Answers calls of one function over standard input and output. It is copied out of this package to run.

It imports the standard library, NumPy, and the library of the function. The messages are those of
``conformance/protocol.md``, with the function's own names for the arguments.
"""

import importlib
import importlib.util
import inspect
import json
import math
import mmap
import os
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any

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


class _Arrays:
    """The arrays of one call, mapped from files that the caller reads again after the call."""

    def __init__(self, folder: Path, tensors: dict[str, Any], library: str, device: str) -> None:
        self.library, self.device = library, device
        self.kept: dict[str, Any] = {}
        self.made = {name: self._made(folder / f"{name}.bin", name, one) for name, one in tensors.items()}

    def _made(self, path: Path, name: str, tensor: dict[str, Any]) -> Any:
        import numpy as np

        dtype = "uint16" if tensor["dtype"] == "bfloat16" else tensor["dtype"]
        shape = tuple(tensor["shape"])
        if math.prod(shape) == 0:
            array = np.empty(shape, dtype)
        else:
            with path.open("r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
            strides, offset = tensor.get("strides"), tensor.get("offset", 0)
            size = np.dtype(dtype).itemsize
            steps = None if strides is None else tuple(step * size for step in strides)
            array = np.ndarray(shape, dtype, memory, offset * size, steps)
            self.kept[name] = (array, len(memory))
        return self._of_library(array, brief=tensor["dtype"] == "bfloat16")

    def _of_library(self, array: Any, *, brief: bool) -> Any:
        import numpy as np

        if self.library == "torch":
            import torch

            placed = torch.from_numpy(array.view(np.int16) if brief else array)
            placed = placed.view(torch.bfloat16) if brief else placed
            return placed.to(self.device) if self.device else placed
        if brief:
            array = array.view(importlib.import_module("ml_dtypes").bfloat16)
        if self.library == "jax":
            import jax

            return jax.device_put(array, jax.devices(self.device)[0] if self.device else None)
        return array if self.library == "numpy" else importlib.import_module(self.library).asarray(array)

    def back(self, part: Any) -> tuple[Any, str]:
        """Return a result as an array of NumPy, and the name of its dtype."""
        import numpy as np

        if self.library == "torch":
            import torch

            if part.device.type != (self.device.partition(":")[0] or "cpu"):
                raise TypeError("device")
            part = part.detach().cpu().contiguous()
            if part.dtype == torch.bfloat16:
                return part.view(torch.int16).numpy(), "bfloat16"
            return part.numpy(), str(part.dtype).rpartition(".")[2]
        array = np.asarray(part)
        return array, array.dtype.name

    def aliases(self, array: Any) -> str:
        """Return the argument that an array shares memory with."""
        import numpy as np

        known = self.kept.items()
        return next((name for name, (one, _) in known if np.may_share_memory(array, one)), "")


def _poison(tensors: dict[str, Any], library: str) -> None:
    """Fill memory of the sizes of likely results with NaN, and free it, so that no result is read from it."""
    import numpy as np

    shapes = [tuple(tensor["shape"]) for tensor in tensors.values()]
    rows = max((math.prod(shape[:-1]) for shape in shapes if shape), default=1)
    widths = {1, *(size for shape in shapes for size in shape[-2:])}
    for count in {*map(math.prod, shapes), *(rows * width for width in widths)}:
        for dtype in ("float16", "float32", "float64"):
            held = [np.full(count, np.nan, dtype) for _ in range(3)]
            if library == "torch":
                import torch

                held.append(torch.full((count,), math.nan, dtype=getattr(torch, dtype)))
            del held


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(part) for part in value)
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


#: What the last call returned. The caller compares it after the next call with what it was.
_LAST: list[tuple[_Arrays, Any]] = []


def _answer(message: dict[str, Any], function: Any, library: str, device: str) -> dict[str, Any]:
    import numpy as np

    folder, answer = Path(message["folder"]), {"id": message["id"]}
    arrays = _Arrays(folder, message["tensors"], library, device)
    given = {name: _decode(value) for name, value in message["options"].items()} | arrays.made
    first = [given.pop(name) for name in message["positional"]]
    _poison(message["tensors"], library)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = function(*first, **given)
    except NotImplementedError as error:
        return {**answer, "status": "unsupported", "message": str(error)[:4000]}
    except BaseException as error:  # noqa: BLE001 - whatever it raises is a refusal
        return {**answer, "status": "refused", "kind": type(error).__name__, "message": str(error)[:4000]}
    for number, (made, part) in enumerate(_LAST):
        (folder / f"kept-{number}.bin").write_bytes(np.ascontiguousarray(made.back(part)[0]).tobytes())
    _LAST.clear()
    many = isinstance(returned, tuple | list)
    tensors: list[Any] = []
    for number, part in enumerate(returned if many else [returned]):
        try:
            array, dtype = arrays.back(part if hasattr(part, "shape") else None)
        except Exception:  # noqa: BLE001 - it is no array of the library
            tensors.append(None)
            continue
        (folder / f"result-{number}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        _LAST.append((arrays, part))
        tensors.append({"dtype": dtype, "shape": list(array.shape), "aliases": arrays.aliases(array)})
    return {**answer, "status": "ok", "many": many, "tensors": tensors}


def main() -> None:
    """Greet, then answer calls until standard input ends."""
    lines, answers = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what the function prints is no answer
    os.close(nothing)
    message = json.loads(lines.readline())
    home = str(Path(__file__).parent)
    sys.path.insert(0, home)
    confined = importlib.import_module("confine").confine(message.pop("confine"))
    sys.path.remove(home)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()

    try:
        function, module = import_function(message["place"])
        greeting = _hello(message, function, module)
    except BaseException as error:  # noqa: BLE001 - whatever the import raises
        say({"problem": f"{type(error).__name__}: {error}"[:4000], "missing": getattr(error, "name", None)})
        return
    say({**greeting, "confined": confined})
    library, device = greeting["library"], message["device"]
    for line in lines:
        say(_answer(json.loads(line), function, library, device))


if __name__ == "__main__":
    main()
