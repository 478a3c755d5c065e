"""The backends by name, and somebody's own: ``module:function``, ``program:COMMAND``."""

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from attnspec.backends.backend import Backend, BackendError, check_backend
from attnspec.backends.configuration import FILE, configured_backend
from attnspec.backends.own import check_device, load_own, wishes_of

#: Name to library, and to the module and function here that make the backend.
_KNOWN = {
    "numpy-portable": ("numpy", "numpy_backend:portable_backend"),
    "numpy-reference": ("numpy", "numpy_backend:reference_backend"),
    "strict-portable": ("strict", "strict_backend:portable_backend"),
    "torch-portable": ("torch", "torch_backend:portable_backend"),
    "torch-sdpa": ("torch", "torch_sdpa:default_backend"),
    "torch-math": ("torch", "torch_sdpa:math_backend"),
    "torch-flash": ("torch", "torch_sdpa:flash_backend"),
    "torch-mha": ("torch", "torch_mha:weights_backend"),
    "torch-mha-plain": ("torch", "torch_mha:plain_backend"),
    "torch-flex": ("torch", "torch_flex:eager_backend"),
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
    place, options = split_options(wanted)
    if place in _KNOWN or ":" in place or is_folder(place):
        return (wanted,)
    names = tuple(name for name, (library, _) in _KNOWN.items() if library == place)
    if not names:
        raise BackendError(
            f"backend: got {wanted!r}, expected a library ({', '.join(_LIBRARIES)}), "
            f"one of {', '.join(NAMES)}, module:function, or a folder with {FILE}"
        )
    return tuple(with_options(name, options) for name in names)


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
    place, options = split_options(name)
    wishes = wishes_of(name, options)
    if is_folder(place):
        return configured_backend(name, Path(place), seconds)
    if place in _KNOWN:
        known = _load_known(place)
        known = replace(known, dtypes=wishes.dtypes or known.dtypes, device=wishes.device, name=name)
        if wishes.device:
            check_device(known)
        return known
    (single,) = expand(place)
    return load_own(name, single, wishes, seconds)


def is_folder(name: str) -> bool:
    """Whether a name is that of a folder with an ``attnspec.toml``."""
    return not name.startswith((PROGRAM, OFFLINE)) and Path(name, FILE).is_file()


def _load_known(name: str) -> Backend:
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


def with_options(name: str, options: Mapping[str, str]) -> str:
    """Write options behind the name of a backend, as `split_options` reads them.

    Examples
    --------
    >>> from attnspec.backends.registry import with_options
    >>> with_options("my_module:attention", {"array": "torch"})
    'my_module:attention?array=torch'
    """
    return name + "?" * bool(options) + "&".join(f"{key}={thing}" for key, thing in options.items())


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
