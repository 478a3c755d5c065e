"""The backends by name, and somebody's own: ``module:function``, ``program:COMMAND``."""

import importlib
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnspec.backends.backend import Backend, BackendError, check_backend, check_signature

#: Name to library, and to the module and function here that make the backend.
_KNOWN = {
    "numpy-portable": ("numpy", "numpy_backend:portable_backend"),
    "numpy-reference": ("numpy", "numpy_backend:reference_backend"),
    "strict-portable": ("strict", "strict_backend:portable_backend"),
    "torch-portable": ("torch", "torch_backend:portable_backend"),
    "torch-sdpa": ("torch", "torch_sdpa:default_backend"),
    "torch-math": ("torch", "torch_sdpa:math_backend"),
    "torch-flash": ("torch", "torch_sdpa:flash_backend"),
    "jax-portable": ("jax", "jax_backend:portable_backend"),
    "jax-nn": ("jax", "jax_nn:eager_backend"),
    "jax-nn-jit": ("jax", "jax_nn:jit_backend"),
    "dask-portable": ("dask", "dask_backend:portable_backend"),
}
NAMES = tuple(_KNOWN)
_LIBRARIES = tuple(dict.fromkeys(library for library, _ in _KNOWN.values()))

#: What stands before the command of a program.
PROGRAM = "program:"
#: And before a folder of answers.
OFFLINE = "offline:"

#: Seconds that the import of a module may take. PyTorch, cold, takes some ten here.
IMPORT_LIMIT = 120.0


def expand(wanted: str) -> tuple[str, ...]:
    """Turn what was asked for into names of backends.

    A library's name stands for all its backends. ``module:function`` stands for itself.

    Raises
    ------
    BackendError
        When nothing goes by that name.

    Examples
    --------
    >>> from attnspec.backends import expand
    >>> expand("jax")
    ('jax-portable', 'jax-nn', 'jax-nn-jit')
    >>> expand("torhc")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    attnspec.backends.backend.BackendError: backend: got 'torhc', expected a library (numpy, ...
    """
    if wanted in _KNOWN or ":" in wanted:
        return (wanted,)
    names = tuple(name for name, (library, _) in _KNOWN.items() if library == wanted)
    if not names:
        raise BackendError(
            f"backend: got {wanted!r}, expected a library ({', '.join(_LIBRARIES)}), "
            f"one of {', '.join(NAMES)}, or module:function"
        )
    return names


def load(name: str, *, seconds: float = IMPORT_LIMIT) -> Backend:
    """Load a backend: one of `NAMES`, or ``module:function``.

    Parameters
    ----------
    name : str
        The object behind ``module:function`` is a function with canonical names,
        or a `Backend`. The current folder is searched first.
    seconds : float, optional
        How long the import may take.

    Raises
    ------
    BackendError
        When the name is unknown, a library is missing, an import fails or does
        not end, or what is found cannot be called as attention.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> load("numpy-portable").library
    'numpy'
    """
    if name.startswith(PROGRAM):
        return _load_program(name)
    if name.startswith(OFFLINE):
        return _load_recorded(name)
    if name not in _KNOWN:
        return _load_own(name, seconds)
    library, place = _KNOWN[name]
    module, function = place.split(":")
    try:
        make: Callable[[], Backend] = getattr(
            importlib.import_module(f"attnspec.backends.{module}"), function
        )
        return make()
    except ModuleNotFoundError as error:
        raise BackendError(
            f"backend {name}: expected {error.name} to be installed, got none; "
            f"pip install 'attnspec[{library}]'"
        ) from error


def _load_program(name: str) -> Backend:
    from attnspec.backends.program import CALL_LIMIT, program_backend

    command, options = split_options(name.removeprefix(PROGRAM))
    limit = options.pop("call_limit", str(CALL_LIMIT))
    if options or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", limit):
        raise BackendError(f"backend {name}: expected no option but call_limit=SECONDS")
    backend = program_backend(name, command, seconds=float(limit))
    check_backend(name, backend)
    return backend


def _load_recorded(name: str) -> Backend:
    from attnspec.backends.recorded import recorded_backend

    backend = recorded_backend(name, Path(name.removeprefix(OFFLINE)))
    check_backend(name, backend)
    return backend


def name_program(command: str, call_limit: float | None = None) -> str:
    """Name the backend that a program is.

    Examples
    --------
    >>> from attnspec.backends.registry import name_program
    >>> name_program("./my_attention --fast", 5)
    'program:./my_attention --fast?call_limit=5'
    """
    return f"{PROGRAM}{command}" + (f"?call_limit={call_limit:g}" if call_limit is not None else "")


def split_options(name: str) -> tuple[str, dict[str, str]]:
    """Split what was asked for into a place and its options, written after it as in a URL.

    Examples
    --------
    >>> from attnspec.backends.registry import split_options
    >>> split_options("my_module:attention?array=torch&dtype=float16")
    ('my_module:attention', {'array': 'torch', 'dtype': 'float16'})
    """
    place, _, rest = name.rpartition("?")
    pairs = [pair.partition("=") for pair in rest.split("&")]
    if not place or not all(sign for _, sign, _ in pairs):
        return name, {}
    return place, {key: thing for key, _, thing in pairs}


def _load_own(name: str, seconds: float) -> Backend:
    (single,) = expand(name)
    module, _, attribute = single.partition(":")
    if not re.fullmatch(r"\w+(\.\w+)*", module) or not re.fullmatch(r"\w+(\.\w+)*", attribute):
        raise BackendError(f"backend: got {name!r}, expected module:function")
    found = _imported(name, module, seconds)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise BackendError(f"backend {name}: expected {attribute} in {module}, got no such name")
        found = getattr(found, part)
    if isinstance(found, Backend):
        check_backend(name, found)
        return replace(found, name=name)  # the name by which it was asked for stands in every result
    check_signature(name, found)
    return _wrap(name, sys.modules[module], found)


def _imported(name: str, module: str, seconds: float) -> Any:
    """Import a module in a thread of its own, so that an import that hangs can be left behind."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    outcome: list[Any] = []

    def attempt() -> None:
        try:
            outcome.append(importlib.import_module(module))
        except BaseException as error:  # noqa: BLE001 - whatever somebody's module raises, SystemExit too
            outcome.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise BackendError(f"backend {name}: expected {module} to be imported in {seconds:g} s, got no end")
    if isinstance(outcome[0], ModuleNotFoundError) and outcome[0].name == module.partition(".")[0]:
        raise BackendError(
            f"backend {name}: expected a module {module}, got none in this folder or installed"
        )
    if isinstance(outcome[0], BaseException):
        kind = type(outcome[0]).__name__
        raise BackendError(f"backend {name}: importing {module} raised {kind}: {outcome[0]}") from outcome[0]
    return outcome[0]


def _wrap(name: str, module: Any, function: Callable[..., Any]) -> Backend:
    """Make a backend of a plain function, for the array library that its module imports."""
    imported = {getattr(thing, "__name__", "").partition(".")[0] for thing in vars(module).values()}
    imported |= {
        getattr(thing, "__module__", "").partition(".")[0]
        for thing in vars(module).values()
        if callable(thing)
    }
    library = next((library for library in ("torch", "jax") if library in imported), "numpy")
    host = load(f"{library}-portable")
    # What a function takes besides cannot be seen; NumPy code is rarely written with half precision in mind.
    dtypes = ("float32", "float64") if library == "numpy" else host.dtypes
    return Backend(name, library, host.version, host.xp, function, dtypes)
