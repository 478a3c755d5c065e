"""What the parameters of a form may be by their names, and the calls that would confirm it."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Operation
from attnspec.backends.user.convention import OTHER, Convention
from attnspec.backends.user.description import Known
from attnspec.backends.user.scales import SCALES
from attnspec.backends.user.small_calls import KEYS, QUERIES, option_values, scales_of
from attnspec.backends.user.trials import NUMBERS, right_side
from attnspec.operations.aliases import SIZES, meant_in
from attnspec.operations.letters import BATCH


def is_on(form: Operation, ours: str, function: Callable[..., Any], own: str) -> bool:
    """Whether a parameter is a flag that is True by default, and False in the standard."""
    default = inspect.signature(function).parameters[own].default
    return default is True and form.parameters[ours].default is False


def first_entry(form: Operation, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call without batch axes, of its first entry."""
    batched = {name for name in call if form.arguments[name].axis(BATCH) is not None}
    entry = {name: x[0] if name in batched else x for name, x in call.items()}
    return {name: int(x) if isinstance(x, np.integer) else x for name, x in entry.items()}


def name_parameters(
    operation: str, parameters: Iterable[str], known: Known
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what parameters are by their names: arguments of an operation, and sizes."""
    names, sizes = dict(known.convention.names), dict(known.convention.sizes)
    used = {*names.values(), *known.convention.others}
    for own in (own for own in parameters if own not in used):
        size = next((ours for ours, theirs in SIZES.items() if own.lower() in theirs), "")
        meanings = [own] if own in OPERATIONS[operation].parameters else meant_in(operation, own)
        argument = next((ours for ours in meanings if ours not in names), "")
        if argument:
            names[argument] = own
        elif size:
            sizes[size] = own
    return names, sizes


def trials_of_form(
    convention: Convention, ours: str, own: Mapping[str, str], call: Mapping[str, Any], opens: int | None
) -> Iterator[tuple[Convention, dict[str, Any], dict[str, Any], dict[str, str]]]:
    """Yield guesses of what an option means: its call, the call of the reference, and the variants."""
    named = replace(convention, names={**convention.names, **own})
    options = option_values(call)
    if ours not in options:
        return
    given = {name: options[name] for name in own}
    if ours == "return_lse":
        for returns in ((), ("output", "lse"), ("output", "lse", OTHER)):
            yield replace(named, returns=returns), given, given, {}
    elif ours in ("is_causal", "window"):
        for there, shown in windows(named, given, opens) if ours == "window" else ((named, given),):
            yield there, shown, shown, {}
            if "key_starts" in call:
                ends = np.diff(call["key_starts"]) - np.diff(call["query_starts"])
                yield there, shown, shown | {"query_offset": ends}, {"PACK-5": "bottom-right"}
            elif "block_table" not in call:
                yield there, shown, shown | {"query_offset": KEYS - QUERIES}, {"MASK-3": "bottom-right"}
    elif ours.endswith(SCALES):
        for kind in ("head", "token", "tensor"):
            scales = {ours: scales_of(call, kind)[ours]}
            yield named, scales, scales, {}
    else:
        yield named, given, given, {}


def widen(array: Any) -> Any:
    """Return values with two more features."""
    return np.concatenate([array, array[..., :2]], axis=-1)


def windows(
    named: Convention, given: dict[str, Any], opens: int | None
) -> Iterator[tuple[Convention, dict[str, Any]]]:
    """Yield the ways in which a function may take a window, each with a window to try."""
    for side in (None, -1):
        yield replace(named, window="sides", open_side=side), given
    for kind in NUMBERS:
        yield replace(named, window=kind, open_side=opens), {"window": (1, right_side(kind, 1))}


#: Options that need each other.
PARTNERS = {"new_key": "new_value", "block_counts": "block_indices"}
PARTNERS |= {other: name for name, other in PARTNERS.items()}
