"""Describes a function as an ``attnspec.toml``, for ``attnspec init``."""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.check import check_device
from attnspec.backends.errors import BackendError
from attnspec.backends.library import LIBRARIES, imported_by, library_of, load_library
from attnspec.backends.user.companion_probe import infer_companion
from attnspec.backends.user.companion_trials import name_parameters
from attnspec.backends.user.configuration import FILE
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.description import Inference, Known
from attnspec.backends.user.dropout import (
    DROPOUT,
    dropout_names,
    is_seeded,
    without_dropout,
    without_names,
)
from attnspec.backends.user.few_calls import has_names, takes_a_call
from attnspec.backends.user.flags import flags_of_causality
from attnspec.backends.user.function import as_function, attribute_of
from attnspec.backends.user.own_values import with_own_values
from attnspec.backends.user.place import find
from attnspec.backends.user.progress import NoCallReturns, count_calls
from attnspec.backends.user.readings import infer_readings
from attnspec.backends.user.search import probe
from attnspec.backends.user.settings import settings_of_table
from attnspec.backends.user.signature import (
    check_pages,
    form_of,
    form_of_codes,
    operation_by_aliases,
    required_parameters,
    without_ignored,
)
from attnspec.backends.user.trials import Guess
from attnspec.backends.user.wrappers import check_wrapped
from attnspec.operations.aliases import meant

#: The reason beside a key that was there before.
AS_GIVEN = "as it was given"
#: The reasons beside keys that follow from no call.
_NOTES = {
    "device": "the calls were made with arrays on it",
    "library": "the installed package whose version applies",
    "guesses": "the report says so; remove what you know is right, ignore what has another meaning",
}
#: The keys whose values are tables that are merged, and those that are written as sections.
_TABLES = ("names", "sizes", "dialect")
_SECTIONS = ("names", "dialect")


def infer_configuration(
    place: str,
    array: str = "",
    keys: Mapping[str, Any] = MappingProxyType({}),
    device: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """Infer how a function is called, and return the text of an ``attnspec.toml``.

    The keys that are known already are tried as they are, and written with those that are inferred. Without
    a device, the accelerator is tried first if no plain call on the default device returns, and last if no
    call there shows anything. What takes long is said.
    """
    try:
        return _infer_configuration(place, array, keys, device, say)
    except NoCallReturns as late:
        advice = (
            "write what you know under [backend] in attnspec.toml, and run this again, or judge a wrapper"
        )
        raise BackendError(f"backend {place}: {late}; {advice} (spec/calls.md)") from late


def _infer_configuration(
    place: str, array: str, keys: Mapping[str, Any], device: str, say: Callable[[str], None]
) -> str:
    module, target = find(place, place)
    if isinstance(target, Backend):
        raise BackendError(
            f"backend {place}: expected a function, got a Backend, which needs no attnspec.toml"
        )
    settings = settings_of_table(f"backend {place}: {FILE}", place, keys)
    keys = {key: x for key, x in keys.items() if key != "guesses"}  # these are made anew
    convention = settings.convention or Convention()
    function = without_ignored(as_function(place, target), keys.get("ignore", ()))
    function = count_calls(with_own_values(place, function, convention.inverse, convention.fixed), say)
    library = load_library(array or settings.array or library_of(module))
    device = device or settings.device
    head = {"function": place, "array": library.name} | ({"device": device} if device else {})
    package = package_of(module, library.name)
    head |= {"library": package} if package else {}
    named = "" if keys else operation_by_aliases(attribute_of(place), function)
    backend = Backend(place, library, function, settings.dtypes or library.default_dtypes, device=device)
    check_device(backend)
    check_pages(backend.name, function)
    known = Known(convention, frozenset(keys), tuple(keys.get("depths", ())))
    operation = settings.operation or named or form_of(function)[0]
    mapped = convention.names.values()
    needed = [own for own in required_parameters(function) if own not in mapped]
    check_wrapped(place, function, operation, needed)
    accelerator, there = "" if device else library.accelerator(), ""
    likelier = bool(accelerator) and not takes_a_call(backend, operation, function, known)
    if likelier:
        try:
            return _infer_configuration(place, array, keys, accelerator, say)
        except BackendError as error:
            there = f"; with arrays on {accelerator}: {_seen(error, place)}"
    try:
        operation, inference = infer_readings(_infer, backend, operation, function, known)
    except Exception as error:
        if accelerator and not likelier:
            with suppress(BackendError):
                return _infer_configuration(place, array, keys, accelerator, say)
        if named:  # a call of it may need what no small call has
            seen = f"it has the name and the arguments; {_seen(error, place)}"
            names, _ = name_parameters(named, inspect.signature(function).parameters, known)
            differ = {ours: own for ours, own in names.items() if ours != own}
            table = {"operation": named, "names": differ, "guesses": ["operation"]}
            return _text(head | table, {"operation": seen})
        if not isinstance(error, BackendError):
            raise
        plain = BackendError(f"{error}{there}") if there else error
        operation, inference = _infer_other(backend, operation, function, known, plain)
    table = head | _table(inference, operation)
    if guesses := [key for key, why in inference.why.items() if isinstance(why, Guess)]:
        table["guesses"] = guesses
    return _text(
        _merge(table, keys),
        {**inference.why, **_NOTES} | dict.fromkeys(keys, AS_GIVEN),
    )


def _infer_other(
    backend: Backend, operation: str, function: Callable[..., Any], known: Known, error: BackendError
) -> tuple[str, Inference]:
    """Return the form that calls show of a function of which no plain call does, or raise the error of these.

    Pages or boundaries may be optional by the signature, and needed by this function.
    """
    other = "" if operation else form_of(function, optional=True)[0]
    if not other or not has_names(backend, other, function, known):
        raise error from None
    try:
        return _infer(backend, other, function, known)
    except BackendError:
        raise error from None


def _seen(error: Exception, place: str) -> str:
    """Return what calls showed of a function that none of them described, without the advice."""
    if not isinstance(error, BackendError):
        return "it was not called"
    return " ".join(str(error).removeprefix(f"backend {place}: ").partition("; if it takes only")[0].split())


def _infer(
    backend: Backend, operation: str, function: Callable[..., Any], known: Known
) -> tuple[str, Inference]:
    """Return the operation and what was found, with causality in each call if none returns without it."""
    try:
        return _infer_as_known(backend, operation, function, known)
    except BackendError:
        if known.keys & {"always"} or takes_a_call(backend, operation, function, known):
            raise
        for own in flags_of_causality(function):
            names = {**known.convention.names, "is_causal": own}
            convention = replace(known.convention, names=names, always={"is_causal": True})
            causal = replace(known, convention=convention, keys=known.keys | {"always"})
            if takes_a_call(backend, operation, function, causal):
                with suppress(BackendError):
                    operation, found = _infer_as_known(backend, operation, function, causal)
                    if isinstance(found.why.get("layout"), Guess) and "is_causal" not in meant(own):
                        continue  # neither its name nor a result says what it is
                    why = {**found.why, "always": f"by calls: each one without {own} raised an error"}
                    return operation, replace(found, why=why)
        raise


def _infer_as_known(
    backend: Backend, operation: str, function: Callable[..., Any], known: Known
) -> tuple[str, Inference]:
    """Return the operation, one over codes or with dropout if calls confirm it, and what was found."""
    asked = operation == DROPOUT
    own = dropout_names(backend.name, function, known.convention) if asked or not operation else {}
    if own:
        plain = replace(known, convention=without_names(known.convention))
        found = probe(backend, without_dropout(function, own), plain)
        dtype = found.limits.get("dtypes", ["float32"])[0]
        differ = {ours: theirs for ours, theirs in own.items() if ours != theirs}
        convention = replace(found.convention, names={**found.convention.names, **differ})
        if asked or is_seeded(backend, function, convention, dtype):
            why = f"{' and '.join(own.values())} choose what is left out; with 0 it is attention"
            return DROPOUT, replace(found, convention=convention, why={**found.why, "operation": why})
    if operation in ("", "attention"):
        return operation, probe(backend, function, known)
    codes, scale = ("", "") if "operation" in known.keys else form_of_codes(operation, function)
    with suppress(BackendError):
        inference = infer_companion(backend, codes, function, known) if codes else None
        guessed = inference and isinstance(inference.why.get("key_scales"), Guess)
        if inference and scale not in inference.ignore and not guessed:
            return codes, inference
    return operation, infer_companion(backend, operation, function, known)


def package_of(module: ModuleType, array: str) -> str:
    """Return the installed package whose version applies to a module; empty if that of its arrays does.

    This is the package of the module. If it is in none, and takes NumPy arrays, it is the one package that
    the module imports.
    """
    from importlib import metadata  # it takes long to import

    packages = metadata.packages_distributions()
    known = {"attnspec", "ml_dtypes", *LIBRARIES.values()}
    own = module.__name__.partition(".")[0]
    if own in packages:
        return "" if own in known else packages[own][0]
    imported = sorted({name for name in imported_by(module) if name in packages} - known)
    return packages[imported[0]][0] if array == "numpy" and len(imported) == 1 else ""


def _table(inference: Inference, operation: str) -> dict[str, Any]:
    """Return the keys that describe a function, in the order of a file."""
    convention, why = inference.convention, inference.why
    table: dict[str, Any] = {
        "operation": operation,
        "layout": convention.layout,
        "output_layout": convention.output_layout,
        "lse_layout": convention.lse_layout,
        "axes": convention.axes,
        "depths": inference.depths,
        **inference.limits,
        "always": convention.always,
        "mask": convention.mask if "mask" in why else "",
        "mask_of_keys": convention.mask_of_keys,
        "mask_axes": convention.mask_axes,
        "least_mask_axes": convention.least_mask_axes,
        "mask_of_entries": convention.mask_of_entries,
        "mask_pairs": convention.mask_pairs,
        "per_entry": convention.per_entry,
        "inverse": convention.inverse,
        "fixed": convention.fixed,
        "one_query": convention.one_query,
        "at_length": convention.at_length,
        "writes": convention.writes,
        "past": convention.past,
        "module": convention.module,
        "takes_none": convention.takes_none,
        "causal_in_mask": convention.causal_in_mask,
        "slopes": convention.slopes,
        "signed_slopes": convention.signed_slopes,
        "scales": convention.scales,
        "encoding": convention.encoding,
        "codes": convention.codes,
        "integers": convention.integers,
        "shapes": convention.shapes,
        "lists": convention.lists,
        "open_side": convention.open_side,
        "window": "" if convention.window == "sides" else convention.window,
        "sizes": convention.sizes,
        "returns": convention.returns,
        "given": convention.given,
        "ignore": inference.ignore,
        "names": convention.names,
        "dialect": inference.dialect,
        "deviations": inference.deviations,
    }
    return {
        key: value
        for key, value in table.items()
        if not (value is None or value is False or value in ("", (), {}))
    }


def _merge(inferred: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Let known keys take precedence over inferred ones; tables of names are merged."""
    merged = {**inferred, **keys}
    for key in (key for key in _TABLES if key in keys and key in inferred):
        merged[key] = {**inferred[key], **keys[key]}
    used = {*merged.get("names", {}).values(), *merged.get("sizes", {}).values()}
    if "ignore" not in keys and "ignore" in merged:
        merged["ignore"] = [own for own in merged["ignore"] if own not in used]
    return {"function": merged["function"], **merged}


def _text(table: Mapping[str, Any], why: Mapping[str, str]) -> str:
    """Return the text of a configuration, with a reason for each key."""
    lines = ["# Inferred by calling the function; `attnspec check` reads this file.", "[backend]"]
    sections = [key for key in _SECTIONS if table.get(key)]
    for key, value in table.items():
        if key not in sections and not (key == "deviations" and value):
            of = "window" if key == "open_side" else key
            lines.append(f"{key} = {_value(value)}{_because(why, of)}")
    for section in sections:
        lines.append(f"\n[backend.{section}]")
        for key, value in table[section].items():
            because = _because(why, key) if key != "mask" else ""
            lines.append(f"{_key(key)} = {_value(value)}{because}")
    for deviation in table.get("deviations", ()):
        lines.append(f"\n[[backend.deviations]]{_because(why, 'deviations')}")
        lines += [f"{key} = {_value(value)}" for key, value in deviation.items()]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _value(value: Any) -> str:
    """Write a value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool | int | float) else str(value)
    )


def _because(why: Mapping[str, str], key: str) -> str:
    return f"  # {why[key]}" if key in why else ""
