"""Describes a function as an ``attnspec.toml``, for ``attnspec init``."""

import json
from collections.abc import Iterator, Mapping
from importlib import metadata
from types import ModuleType

from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, imported_by, library_of, load_library
from attnspec.backends.user.companion import infer_companion
from attnspec.backends.user.function import as_function, attribute_of
from attnspec.backends.user.place import find
from attnspec.backends.user.probe import Inference, probe
from attnspec.backends.user.signature import form_of, operation_by_name


def infer_configuration(place: str, array: str = "") -> str:
    """Infer how a function is called, and return the text of an ``attnspec.toml``."""
    module, target = find(place, place)
    if isinstance(target, Backend):
        raise BackendError(
            f"backend {place}: expected a function, got a Backend, which needs no attnspec.toml"
        )
    function = as_function(place, target)
    library = load_library(array or library_of(module))
    if operation := operation_by_name(attribute_of(place), function):
        head = _head(place, library.name, package_of(module, library.name))
        return "\n".join((*head, f'operation = "{operation}"  # it has the name and the arguments', ""))
    backend = Backend(place, library, function, library.default_dtypes)
    operation = form_of(function)[0]
    try:
        inference = infer_companion(backend, operation, function) if operation else probe(backend, function)
    except BackendError:
        # Pages or boundaries may be optional by the signature, and needed by this function.
        other = "" if operation else form_of(function, optional=True)[0]
        if not other:
            raise
        operation, inference = other, infer_companion(backend, other, function)
    return configuration_text(place, library.name, inference, package_of(module, library.name), operation)


def package_of(module: ModuleType, array: str) -> str:
    """Return the installed package whose version applies to a module; empty if that of its arrays does.

    This is the package of the module. If it is in none, and takes NumPy arrays, it is the one package that
    the module imports.
    """
    packages = metadata.packages_distributions()
    known = {"attnspec", "ml_dtypes", *LIBRARIES.values()}
    own = module.__name__.partition(".")[0]
    if own in packages:
        return "" if own in known else packages[own][0]
    imported = sorted({name for name in imported_by(module) if name in packages} - known)
    return packages[imported[0]][0] if array == "numpy" and len(imported) == 1 else ""


def configuration_text(
    place: str, array: str, inference: Inference, library: str = "", operation: str = ""
) -> str:
    """Return the text of a configuration, with a reason for each key."""
    return "\n".join(_lines(place, array, inference, library, operation)) + "\n"


def _lines(place: str, array: str, inference: Inference, library: str, operation: str) -> Iterator[str]:
    convention, why = inference.convention, inference.why
    yield from _head(place, array, library)
    if operation:
        yield f'operation = "{operation}"'
    yield f'layout = "{convention.layout}"' + _because(why, "layout")
    if convention.axes is not None:
        yield f"axes = {convention.axes}" + _because(why, "axes")
    yield from _limits(inference)
    yield from _passing(inference)
    for key, words in (
        ("returns", convention.returns),
        ("given", convention.given),
        ("ignore", inference.ignore),
    ):
        if words:
            quoted = ", ".join(f'"{word}"' for word in words)
            yield f"{key} = [{quoted}]{_because(why, key)}"
    if convention.names:
        yield "\n[backend.names]"
        for ours, own in convention.names.items():
            yield f'{ours} = "{own}"' + (_because(why, ours) if ours != "mask" else "")
    if inference.dialect:
        yield "\n[backend.dialect]"
        for rule, variant in inference.dialect.items():
            yield f'{rule} = "{variant}"{_because(why, rule)}'


def _limits(inference: Inference) -> Iterator[str]:
    """Yield the keys about what a function takes."""
    if inference.depths:
        yield f"depths = [{', '.join(map(str, inference.depths))}]{_because(inference.why, 'depths')}"
    for key, value in inference.limits.items():
        yield f"{key} = {json.dumps(value)}{_because(inference.why, key)}"


def _passing(inference: Inference) -> Iterator[str]:
    """Yield the keys about how arguments are passed."""
    convention, why = inference.convention, inference.why
    if "mask" in why:
        yield f'mask = "{convention.mask}"' + _because(why, "mask")
    for key in ("per_entry", "one_query"):
        if getattr(convention, key):
            yield f"{key} = true" + _because(why, key)
    if convention.slopes:
        yield f'slopes = "{convention.slopes}"' + _because(why, "slopes")
    if convention.open_side is not None:
        yield f"open_side = {convention.open_side}" + _because(why, "window")
    if convention.sizes:
        sizes = ", ".join(f'{ours} = "{own}"' for ours, own in convention.sizes.items())
        yield f"sizes = {{ {sizes} }}"


def _head(place: str, array: str, library: str) -> Iterator[str]:
    yield "# Inferred by calling the function; `attnspec check` reads this file."
    yield "[backend]"
    yield f'function = "{place}"'
    yield f'array = "{array}"'
    if library:
        yield f'library = "{library}"  # the installed package whose version applies'


def _because(why: Mapping[str, str], key: str) -> str:
    return f"  # {why[key]}" if key in why else ""
