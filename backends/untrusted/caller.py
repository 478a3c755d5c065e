"""Imports one function and makes its calls, in a thread of its own. It runs from its text, not from a file.

The function can walk up to the frames of this thread, also later to those that imported it, and from them to
this file. So nothing here holds what is needed after a call.
"""

import importlib
import importlib.util
import inspect
import sys
import sysconfig
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from contextlib import nullcontext
from math import nan, prod
from pathlib import Path
from typing import Any

from numpy import empty

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


def describe(message: dict[str, Any], function: Any, module: Any) -> dict[str, Any]:
    """Describe an imported function for the greeting."""
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


def _width(library: str, *, wide: bool) -> Any:
    """Return the context of a call: JAX has 64-bit numbers only if the call has."""
    if library != "jax":
        return nullcontext()
    import jax

    return jax.enable_x64(wide)


def start_thread(message: dict[str, Any]) -> Callable[..., Any]:
    """Start a thread, and return a function that asks it for the greeting first, then for calls."""
    asked, done = allocate_lock(), allocate_lock()
    asked.acquire()
    done.acquire()
    box: list[Any] = []

    def run() -> None:
        function: Any = None
        while True:
            asked.acquire()
            request = box.pop()
            try:
                if function is None:
                    function, module = import_function(message["place"])
                    box.append(("ok", describe(message, function, module)))
                else:
                    first, given, tensors, library, wide = request
                    poison(tensors, library)  # of this thread, which has memory of its own
                    with _width(library, wide=wide):
                        returned = function(*first, **given)
                    many = isinstance(returned, tuple | list)
                    box.append(("ok", many, [*returned] if many else [returned]))
            except BaseException as error:  # noqa: BLE001 - whatever it raises is a refusal
                status = "unsupported" if isinstance(error, NotImplementedError) else "refused"
                try:
                    box.append((status, type(error).__name__, str(error)[:4000]))
                except BaseException:  # noqa: BLE001 - an error that cannot be printed
                    box.append((status, type(error).__name__, ""))
            request = first = given = returned = None
            done.release()

    def ask(*request: Any) -> Any:
        box.append(request)
        asked.release()
        done.acquire()
        return box.pop()

    poison = _poison
    start_new_thread(run, ())
    return ask
