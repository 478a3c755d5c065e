"""Import a user's code from ``module:attribute`` or ``./file.py:attribute``.

This module imports no array library, so that the user's module is the first to import one.
"""

import ast
import importlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from attnspec.backends.errors import BackendError
from attnspec.reading import read_text

#: The ends of the names of compiled libraries, and of their sources.
_COMPILED = (".so", ".dylib", ".dll", ".c", ".cpp", ".cu", ".rs")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def find(name: str, place: str) -> tuple[ModuleType, Any]:
    """Import a module and return an attribute of it.

    Parameters
    ----------
    name : str
        The requested name of the backend.
    place : str
        ``module:attribute``, or ``./file.py:attribute``.

    Raises
    ------
    BackendError
        If the module or the attribute does not exist, or the import fails.
    """
    module, _, attribute = place.rpartition(":")
    if not _DOTTED.fullmatch(attribute) or not (is_file(module) or _DOTTED.fullmatch(module)):
        compiled = (
            "; of a compiled library, judge a file that loads it by ctypes and has a function of arrays "
            "(Compiled kernels, in conformance/configuration.md), or a program (conformance/protocol.md)"
        )
        there = compiled if Path(module).suffix in _COMPILED else ""
        raise BackendError(f"backend: expected module:function or ./file.py:function, got {place!r}{there}")
    put_on_path(Path.cwd())
    imported = _import(name, module)
    target: Any = imported
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise BackendError(
                f"backend {name}: expected {module} to have {attribute}, got no such attribute"
                + _instead(imported, module, part)
            )
        target = getattr(target, part)
    return imported, target


def is_file(module: str) -> bool:
    """Whether a module is given by the path of its file."""
    return module.endswith(".py")


def put_on_path(folder: Path) -> None:
    """Insert a folder into `sys.path`, after the standard library and before installed packages.

    A file `types.py` or `json.py` in the folder then does not hide the standard module.
    """
    here = str(folder.resolve())
    if here not in sys.path:
        own = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
        places = [
            index
            for index, entry in enumerate(sys.path)
            if entry.startswith(own) and not entry.endswith("-packages")
        ]
        sys.path.insert(max(places, default=-1) + 1, here)


def functions_in(module: str) -> tuple[str, ...]:
    """List the functions that a module in this folder defines, without importing it."""
    path = Path(module if is_file(module) else module.replace(".", "/") + ".py")
    try:
        tree = ast.parse(read_text(path))
    except (OSError, SyntaxError, ValueError):
        return ()
    # Functions with three arguments first: they may be attention.
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    return tuple(node.name for node in sorted(functions, key=lambda node: len(_arguments(node)) < 3))


def near(word: str, known: Iterable[str]) -> str:
    """Return the nearest known word as a suggestion in brackets; empty if none is near."""
    words = get_close_matches(word, list(known), 1)
    return f" ({words[0]}?)" if words else ""


def with_colon(place: str) -> str:
    """Replace the last dot of a place with a colon; empty if there is no such module.

    The module is not imported.
    """
    module, _, attribute = place.rpartition(".")
    if not module or not _DOTTED.fullmatch(place):
        return ""
    functions = functions_in(module)
    if functions:
        return f"{module}:{next(iter(get_close_matches(attribute, functions, 1)), attribute)}"
    top = module.partition(".")[0]
    there = top in sys.modules or Path(top).is_dir() or importlib.util.find_spec(top) is not None
    return f"{module}:{attribute}" if there else ""


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _import(name: str, module: str) -> ModuleType:
    try:
        return _import_file(name, Path(module)) if is_file(module) else importlib.import_module(module)
    except (KeyboardInterrupt, BackendError):
        raise
    except ModuleNotFoundError as error:
        missing = str(error.name)
        if f"{module}.".startswith(f"{missing}.") and not is_file(module):
            raise BackendError(
                f"backend {name}: expected a module {module}, got none in this folder or installed"
            ) from error
        raise BackendError(
            f"backend {name}: {module} imports {missing}, which is not installed; "
            f"pip install {missing.partition('.')[0]}"
        ) from error
    except BaseException as error:  # a user's module may raise anything, such as SystemExit
        kind = type(error).__name__
        raise BackendError(f"backend {name}: importing {module} raised {kind}: {error}") from error


def _import_file(name: str, path: Path) -> ModuleType:
    """Import a file, as part of its package if it is in one."""
    if not path.is_file():
        raise BackendError(f"backend {name}: expected a file {path}, got none")
    folder, parts = path.resolve().parent, [path.stem]
    while (folder / "__init__.py").is_file():
        folder, parts = folder.parent, [folder.name, *parts]
    put_on_path(folder)
    if len(parts) > 1:
        return importlib.import_module(".".join(parts))
    known = sys.modules.get(path.stem)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == path.resolve():
        return known
    taken = path.stem in sys.stdlib_module_names or known is not None or not path.stem.isidentifier()
    own = "_file_" + re.sub(r"\W", "_", str(path.resolve())) if taken else path.stem
    spec = importlib.util.spec_from_file_location(own, path)
    assert spec is not None  # noqa: S101 - for the type checker: the name ends with .py
    assert spec.loader is not None  # noqa: S101
    sys.modules[own] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module


def _instead(imported: ModuleType, module: str, absent: str) -> str:
    """Suggest what to write instead of an absent attribute."""
    if module in sys.stdlib_module_names and Path(f"{module}.py").is_file():
        return (
            f": {module} is a module of the standard library; to name the file, write ./{module}.py:FUNCTION"
        )
    names = [
        name
        for name, value in vars(imported).items()
        if callable(value) and name[0] != "_" and getattr(value, "__module__", "") == imported.__name__
    ]
    return f"{near(absent, names)}; it has {', '.join(names[:8])}" if names else ""
