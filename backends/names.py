"""The names of backends: which there are, and how those of users are written.

Light on purpose: the command line needs names before anything else.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES
from attnspec.backends.user import configuration
from attnspec.backends.user.place import functions_in, with_colon

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Name to library, and to the module and function of `attnspec.backends.adapters` that make the backend.
ADAPTERS = MappingProxyType(
    {
        "torch-sdpa": ("torch", "torch.sdpa:default_backend"),
        "torch-math": ("torch", "torch.sdpa:math_backend"),
        "torch-flash": ("torch", "torch.sdpa:flash_backend"),
        "torch-mha": ("torch", "torch.mha:weights_backend"),
        "torch-mha-plain": ("torch", "torch.mha:plain_backend"),
        "torch-flex": ("torch", "torch.flex:eager_backend"),
        "torch-flex-compiled": ("torch", "torch.flex_compiled:compiled_backend"),
        "jax-nn": ("jax", "jax.nn:eager_backend"),
        "jax-nn-jit": ("jax", "jax.nn:jit_backend"),
    }
)
#: Other names that a backend goes by: on NumPy the portable source is the reference itself.
ALIASES = MappingProxyType({"numpy-reference": "numpy-portable"})
#: Judged by their own names alone and not by their library's: these need more than it, here a C++ compiler.
APART = ("torch-flex-compiled",)
#: The backends that run the one source in Array API calls, one for each library.
PORTABLE = MappingProxyType({f"{library}-portable": library for library in LIBRARIES})
#: What a library's name stands for.
_OF_LIBRARY = MappingProxyType(
    {
        library: (
            f"{library}-portable",
            *(name for name, (its, _) in ADAPTERS.items() if its == library and name not in APART),
        )
        for library in LIBRARIES
    }
)
NAMES = tuple(name for names in _OF_LIBRARY.values() for name in names)

#: Where other packages register backends of their own: a name each, and a `Backend` or what returns one.
GROUP = "attnspec.backends"

#: The file that makes a folder a backend.
FILE = configuration.FILE

#: What stands before the command of a program.
PROGRAM = "program:"
#: And before a folder of answers.
OFFLINE = "offline:"


def registered() -> "dict[str, tuple[EntryPoint, ...]]":
    """Find the backends that installed packages register, by name; more than one of a name is a mistake.

    A name of ours is not theirs to take.
    """
    from importlib.metadata import entry_points

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        if entry.name not in (*LIBRARIES, *NAMES, *APART):
            found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def expand(wanted: str) -> tuple[str, ...]:
    """Turn what was asked for into names of backends.

    A library's name stands for all its backends. ``module:function`` stands for itself. A folder
    stands for the function that its configuration is of, where that is found from here.

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
    if place in ALIASES:
        return (with_options(ALIASES[place], options),)
    if place in _OF_LIBRARY:
        return tuple(with_options(name, options) for name in _OF_LIBRARY[place])
    if is_folder(place):
        return (with_options(_of_folder(place), options),)
    if place in NAMES or place in APART or ":" in place or place in (others := registered()):
        return (wanted,)
    functions = functions_in(place)
    if functions:
        said = " or ".join(f"{place}:{function}" for function in functions[:3])
        raise BackendError(f"backend: got {wanted!r}, a module; expected a function of it, such as {said}")
    if meant := with_colon(place):
        raise BackendError(
            f"backend: got {wanted!r}, expected a colon before the function: {with_options(meant, options)}?"
        )
    raise BackendError(
        f"backend: got {wanted!r}, expected a library ({', '.join(LIBRARIES)}), "
        f"one of {', '.join((*NAMES, *APART, *others))}, module:function, or a folder with {FILE}"
    )


def _of_folder(name: str) -> str:
    """Name the backend of a folder: by its function, where `load` finds the folder from here."""
    found = configuration.find_configuration(Path.cwd())
    here = found is not None and found.parent == Path(name).resolve()
    return (configuration.configured_function(Path(name)) if here else "") or name


def is_folder(name: str) -> bool:
    """Whether a name is that of a folder with an ``attnspec.toml``, or with a part of ``pyproject.toml``."""
    return not name.startswith((PROGRAM, OFFLINE)) and configuration.configuration_in(Path(name)) is not None


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
