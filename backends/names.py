"""The names of backends: which there are, and how somebody's own are called."""

from collections.abc import Mapping
from pathlib import Path

from attnspec.backends.errors import BackendError

#: Name to library, and to the module and function here that make the backend.
KNOWN = {
    "numpy-portable": ("numpy", "library.numpy:portable_backend"),
    "strict-portable": ("strict", "library.strict:portable_backend"),
    "torch-portable": ("torch", "library.torch:portable_backend"),
    "torch-sdpa": ("torch", "adapters.torch.sdpa:default_backend"),
    "torch-math": ("torch", "adapters.torch.sdpa:math_backend"),
    "torch-flash": ("torch", "adapters.torch.sdpa:flash_backend"),
    "torch-mha": ("torch", "adapters.torch.mha:weights_backend"),
    "torch-mha-plain": ("torch", "adapters.torch.mha:plain_backend"),
    "torch-flex": ("torch", "adapters.torch.flex:eager_backend"),
    "jax-portable": ("jax", "library.jax:portable_backend"),
    "jax-nn": ("jax", "adapters.jax.nn:eager_backend"),
    "jax-nn-jit": ("jax", "adapters.jax.nn:jit_backend"),
    "dask-portable": ("dask", "library.dask:portable_backend"),
}
NAMES = tuple(KNOWN)
_LIBRARIES = tuple(dict.fromkeys(library for library, _ in KNOWN.values()))
#: Judged by their own names alone and not by their library's: another name for the portable source on NumPy,
#: which is the reference, and what needs more than its library, here a C++ compiler.
APART = {
    "numpy-reference": ("numpy", "library.numpy:portable_backend"),
    "torch-flex-compiled": ("torch", "adapters.torch.flex_compiled:compiled_backend"),
}

#: What stands before the command of a program.
PROGRAM = "program:"
#: And before a folder of answers.
OFFLINE = "offline:"

#: The file that makes a folder a backend.
FILE = "attnspec.toml"


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
    attnspec.backends.errors.BackendError: backend: got 'torhc', expected a library (numpy, ...
    """
    place, options = split_options(wanted)
    if place in KNOWN or place in APART or ":" in place or is_folder(place):
        return (wanted,)
    names = tuple(name for name, (library, _) in KNOWN.items() if library == place)
    if not names:
        raise BackendError(
            f"backend: got {wanted!r}, expected a library ({', '.join(_LIBRARIES)}), "
            f"one of {', '.join((*NAMES, *APART))}, module:function, or a folder with {FILE}"
        )
    return tuple(with_options(name, options) for name in names)


def is_folder(name: str) -> bool:
    """Whether a name is that of a folder with an ``attnspec.toml``."""
    return not name.startswith((PROGRAM, OFFLINE)) and Path(name, FILE).is_file()


def name_program(command: str, call_limit: float | None = None) -> str:
    """Name the backend that a program is.

    Examples
    --------
    >>> from attnspec.backends.names import name_program
    >>> name_program("./my_attention --fast", 5)
    'program:./my_attention --fast?call_limit=5'
    """
    return f"{PROGRAM}{command}" + (f"?call_limit={call_limit:g}" if call_limit is not None else "")


def with_options(name: str, options: Mapping[str, str]) -> str:
    """Write options behind the name of a backend, as `split_options` reads them.

    Examples
    --------
    >>> from attnspec.backends.names import with_options
    >>> with_options("my_module:attention", {"array": "torch"})
    'my_module:attention?array=torch'
    """
    return name + "?" * bool(options) + "&".join(f"{key}={thing}" for key, thing in options.items())


def split_options(name: str) -> tuple[str, dict[str, str]]:
    """Split what was asked for into a place and its options, written after it as in a URL.

    Examples
    --------
    >>> from attnspec.backends.names import split_options
    >>> split_options("my_module:attention?array=torch&dtype=float16")
    ('my_module:attention', {'array': 'torch', 'dtype': 'float16'})
    """
    place, _, rest = name.rpartition("?")
    pairs = [pair.partition("=") for pair in rest.split("&")]
    if not place or not all(sign for _, sign, _ in pairs):
        return name, {}
    return place, {key: thing for key, _, thing in pairs}
