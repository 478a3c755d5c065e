"""The names of backends, and the syntax of names of user backends.

This module imports little, because every command needs it at start.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, TABLE
from attnspec.backends.user.configuration import (
    FILE,
    VARIABLE,
    configuration_in,
    find_configuration,
    function_of_configuration,
    read_matrix,
)
from attnspec.backends.user.place import functions_in, with_colon

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Name to library, and to the module and function of `attnspec.backends.adapters` that make the backend.
ADAPTERS = MappingProxyType(
    {
        backend: (library, place)
        for library in LIBRARIES
        for backend, place in TABLE[library].get("backends", {}).items()
    }
)
#: The backends of other libraries, in the form of `ADAPTERS`. Most take NumPy arrays. Each library has an
#: environment of its own (`nox -s libraries`).
SEPARATE = MappingProxyType(
    {
        backend: (environment, place)
        for environment, library in TABLE.items()
        if environment not in LIBRARIES
        for backend, place in library.get("backends", {}).items()
    }
)
#: Aliases. On NumPy the portable backend is the reference itself.
ALIASES = MappingProxyType({"numpy-reference": "numpy-portable"})
#: Backends that the name of their library does not include.
APART = tuple(backend for library in TABLE.values() for backend in library.get("apart", ()))
#: The backends that run the reference through the Array API, one for each library.
PORTABLE = MappingProxyType({f"{library}-portable": library for library in LIBRARIES})
#: The backends that the name of a library includes.
_OF_LIBRARY = MappingProxyType(
    {
        library: (
            f"{library}-portable",
            *(name for name, (its, _) in ADAPTERS.items() if its == library and name not in APART),
        )
        for library in LIBRARIES
    }
)
_OF_SEPARATE = MappingProxyType(
    {
        library: tuple(name for name, (its, _) in SEPARATE.items() if its == library)
        for library, _ in SEPARATE.values()
    }
)
NAMES = tuple(name for names in _OF_LIBRARY.values() for name in names)

#: The libraries that have a backend, by the name that their projects write.
LIBRARY_NAMES = MappingProxyType({name: facts["title"] for name, facts in TABLE.items() if "title" in facts})
#: The library of each package.
_PACKAGES = MappingProxyType(
    {
        package: library
        for library, facts in TABLE.items()
        for package in (
            facts.get("package", library).replace("_", "-"),
            *(re.split(r"[=\[]", requirement)[0] for requirement in facts.get("requires", ())),
        )
        if "title" in facts
    }
)


def library_of(name: str) -> str:
    """Return the library of a backend, of a package, or of an environment."""
    prefixes = [library for library in LIBRARY_NAMES if f"{name}-".startswith(f"{library}-")]
    return _PACKAGES.get(name, max(prefixes, key=len, default=name.partition("-")[0]))


def backends_of(library: str) -> tuple[str, ...]:
    """Return the backends of a library, those that its name does not include last."""
    every = (*PORTABLE, *ADAPTERS, *SEPARATE)
    names = [name for name in every if library_of(name) == library]
    return (*(name for name in names if name not in APART), *(name for name in names if name in APART))


#: The entry point group of backends: a name, and a `Backend` or a function that returns one.
GROUP = "attnspec.backends"

#: The prefix of the command of a program.
PROGRAM = "program:"
#: The prefix of a folder of answers.
OFFLINE = "offline:"
#: The prefix of a function that is not trusted.
UNTRUSTED = "untrusted:"
#: The environment variable with the number of the process among those that judge one backend.
WORKER = "ATTNSPEC_WORKER"


def entry_points_of_packages() -> "dict[str, tuple[EntryPoint, ...]]":
    """Return the entry points of installed packages by name; `load` refuses a name with two.

    A package cannot replace a name of this project.
    """
    from importlib.metadata import entry_points

    entries: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        if entry.name not in (*LIBRARIES, *NAMES, *APART, *SEPARATE, *_OF_SEPARATE):
            entries[entry.name] = (*entries.get(entry.name, ()), entry)
    return entries


def expand(wanted: str) -> tuple[str, ...]:
    """Expand an argument of a command to names of backends.

    A library expands to all its backends, ``module:function`` to itself, and a folder to the
    function of its configuration, if `load` finds that configuration from the current folder, or to its
    matrix.

    Raises
    ------
    BackendError
        If there is no such backend.

    Examples
    --------
    >>> from attnspec.backends import expand
    >>> expand("jax")
    ('jax-portable', 'jax-nn', 'jax-nn-jit')
    >>> expand("torhc")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    attnspec.backends.errors.BackendError: backend: expected a library (numpy, ...
    """
    place, options = split_options(wanted)
    if wanted.startswith(UNTRUSTED + PROGRAM):
        return (wanted,)
    if wanted.startswith(UNTRUSTED):
        return tuple(UNTRUSTED + name for name in expand(wanted.removeprefix(UNTRUSTED)))
    if place in ALIASES:
        return (with_options(ALIASES[place], options),)
    if place in _OF_LIBRARY or place in _OF_SEPARATE:
        names = _OF_LIBRARY.get(place) or _OF_SEPARATE[place]
        return tuple(with_options(name, options) for name in names)
    if is_folder(place):
        return tuple(add_options(name, options) for name in _folder_backends(place))
    if place in NAMES or place in APART or place in SEPARATE or ":" in place:
        return (wanted,)
    if place in (others := entry_points_of_packages()):
        return (wanted,)
    functions = functions_in(place)
    if functions:
        said = " or ".join(f"{place}:{function}" for function in functions[:3])
        raise BackendError(f"backend: expected a function, such as {said}, got the module {wanted!r}")
    if meant := with_colon(place):
        raise BackendError(
            f"backend: expected a colon before the function, {with_options(meant, options)}, got {wanted!r}"
        )
    raise BackendError(
        f"backend: expected a library ({', '.join((*LIBRARIES, *_OF_SEPARATE))}), "
        f"one of {', '.join((*NAMES, *APART, *SEPARATE, *others))}, "
        f"module:function, or a folder with {FILE}, got {wanted!r}"
    )


def _folder_backends(name: str) -> tuple[str, ...]:
    """Return the backends of the matrix of a folder's configuration.

    Without a matrix it is the function of the configuration if `load` finds it from here, else the folder.
    """
    own, path = configuration_in(Path(name)), find_configuration(Path.cwd())
    here = path is not None and path.parent == Path(name).resolve()
    single = (function_of_configuration(Path(name)) if here else "") or name
    return expand_matrix(own, single) if own and read_matrix(own) else (single,)


def expand_matrix(path: Path, single: str = "") -> tuple[str, ...]:
    """Name each combination of the backends and the options in the matrix of a configuration.

    `single` is the backend that the configuration itself describes.
    """
    matrix = read_matrix(path) or {}
    backends = matrix.pop("backend", [single] if single else [])
    if not backends:
        raise BackendError(f"{path}: expected a table [matrix] with the key backend, got none")
    names = [
        name for x in backends for name in ((single,) if x == "." else expand(_from_here(x, path.parent)))
    ]
    combinations = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
    return tuple(add_options(name, options) for name in names for options in combinations)


def _from_here(name: str, folder: Path) -> str:
    """Name a file or a folder, which a configuration names from its own folder, from the current one."""
    return f"./{os.path.relpath(folder / name)}" if name.startswith(("./", "../")) else name


def add_options(name: str, options: Mapping[str, str]) -> str:
    """Add options to the name of a backend, which may have some."""
    place, own = split_options(name)
    return with_options(place, {**own, **options})


def is_folder(name: str) -> bool:
    """Whether a name is that of a folder with a configuration."""
    return not name.startswith((PROGRAM, OFFLINE, UNTRUSTED)) and configuration_in(Path(name)) is not None


def name_program(
    command: str, call_limit: float | None = None, dtypes: Sequence[str] = (), ranks: str | None = None
) -> str:
    """Return the name of the backend for a program."""
    limit = {"call_limit": f"{call_limit:g}"} if call_limit is not None else {}
    limit |= {"ranks": ranks} if ranks else {}
    return with_options(f"{PROGRAM}{command}", limit | ({"dtype": ",".join(dtypes)} if dtypes else {}))


def distrust(name: str, call_limit: float | None = None) -> str:
    """Return the name of a backend whose code is not trusted."""
    place, options = split_options(name.removeprefix(UNTRUSTED))
    limit = {"call_limit": f"{call_limit:g}"} if call_limit is not None else {}
    return with_options(UNTRUSTED + place, options | limit)


def with_options(name: str, options: Mapping[str, str]) -> str:
    """Append options to the name of a backend, in the syntax of `split_options`."""
    return name + "?" * bool(options) + "&".join(f"{key}={value}" for key, value in options.items())


def environment_of(name: str, worker: int | None = None) -> dict[str, str]:
    """Return the environment variables among the options of a name, as one of several processes has them.

    Each process takes one of the values between bars, by its number.

    Examples
    --------
    >>> from attnspec.backends.names import environment_of
    >>> environment_of("./kernels.py:flash?device=cuda&CUDA_VISIBLE_DEVICES=4|5", worker=3)
    {'CUDA_VISIBLE_DEVICES': '5'}
    """
    number = int(os.environ.get(WORKER, "0")) if worker is None else worker
    values = {key: x.split("|") for key, x in split_options(name)[1].items() if VARIABLE.fullmatch(key)}
    return {key: several[number % len(several)] for key, several in values.items()}


def own_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a name that are no environment variables."""
    return {key: value for key, value in options.items() if not VARIABLE.fullmatch(key)}


def check_options(names: Iterable[str]) -> None:
    """Check the options after the names of backends, before anything is loaded.

    A file of untrusted code must exist: it is loaded after the plan of its run is made.
    """
    for name in names:
        place, options = split_options(name)
        path = Path(place.removeprefix(UNTRUSTED).rpartition(":")[0])
        if name.startswith(UNTRUSTED) and path.suffix == ".py" and not path.is_file():
            raise BackendError(f"backend {name}: expected a file {path}, got none")
        if options and not name.startswith((PROGRAM, OFFLINE, UNTRUSTED)):  # these have other options
            from attnspec.backends.user.settings import settings_of_options  # imports NumPy

            of_ranks = ("ranks", "call_limit") if "ranks" in options else ()
            settings_of_options(name, {key: x for key, x in options.items() if key not in of_ranks})


def split_options(name: str) -> tuple[str, dict[str, str]]:
    """Split a name into a place and its options, written as in the query of a URL."""
    place, _, rest = name.rpartition("?")
    pairs = [pair.partition("=") for pair in rest.split("&")]
    if not place or not all(sign for _, sign, _ in pairs):
        return name, {}
    return place, {key: value for key, _, value in pairs}
