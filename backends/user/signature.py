"""The signature of a user's function: which canonical argument each parameter is, and which are unknown.

No case passes a parameter that is not understood. A function with only such parameters would
pass without being tested, so the run must not ignore them silently.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.backends.captured import pass_on
from attnspec.backends.errors import BackendError
from attnspec.backends.user.rotation import wrapper_of_angles
from attnspec.backends.user.wrappers import check_wrapped
from attnspec.operations import REQUIRED
from attnspec.operations.aliases import (
    ALIASES,
    ANGLES,
    LISTS_OF_PAGES,
    NO_COUNTERPART,
    OF_COMPANIONS,
    SLOPES,
    meant,
    meant_in,
)
from attnspec.operations.operation import name_of

_OPERATION = OPERATIONS["attention"]
_STARS: dict[Any, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}


def signature_of(name: str, function: Any) -> inspect.Signature:
    """Return the signature of a function, which functions of compiled code may lack."""
    if not callable(function):
        raise BackendError(f"backend {name}: expected a function or a Backend, got {type(function).__name__}")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BackendError(
            f"backend {name}: expected a function with a signature, got one of compiled code without it; "
            "wrap it: def attention(query, key, value, *, scale=None): return NAME(query, key, value, ...)"
        ) from error


def without_ignored(function: Callable[..., Any], ignored: Collection[str]) -> Callable[..., Any]:
    """Return a function without those of its parameters that are ignored and have a default."""
    signature = inspect.signature(function)
    bound = function.keywords if isinstance(function, functools.partial) else {}
    left = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name not in ignored or parameter.default is parameter.empty
    ]
    if len(left) == len(signature.parameters):
        return function

    def run(*arrays: Any, **options: Any) -> Any:
        return function(*arrays, **options)

    left = [parameter for parameter in left if parameter.name not in bound]
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined] # read by inspect
    pass_on(run, function, lambda fresh: without_ignored(fresh, ignored))
    return run


def check_signature(name: str, function: Any) -> None:
    """Check that the signature of a function is one of attention."""
    parameters = signature_of(name, function).parameters
    arrays, known = _OPERATION.arrays, (*_OPERATION.arrays, *_OPERATION.options)
    required = required_parameters(function)
    if not set(arrays) <= set(parameters):
        got = ", ".join(required) or "none"
        raise BackendError(
            f"backend {name}: expected {', '.join(arrays)}, got {got}"
            + suggest_configuration(name, list(parameters))
        )
    if more := [parameter for parameter in required if parameter not in known]:
        raise BackendError(
            f"backend {name}: expected {', '.join(arrays)}, got {', '.join(required)}; "
            f"give {', '.join(more)} a default, or name the arguments that they are under [backend.names] in "
            "attnspec.toml"
        )


def required_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters without a default."""
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in _STARS
    ]


def native_names(
    name: str,
    function: Callable[..., Any],
    names: Mapping[str, str],
    others: Sequence[str] = (),
    operation: str = "attention",
    without: Collection[str] = (),
) -> dict[str, str]:
    """Map each canonical argument that a function has to the function's name for it.

    It may be without some required arguments.
    """
    parameters = inspect.signature(function).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    form = OPERATIONS[operation]
    native = {argument: names.get(argument, argument) for argument in form.parameters}
    absent = (
        []
        if takes_any
        else [own for own in (*names.values(), *others) if own.partition(".")[0] not in parameters]
    )
    absent += [
        native[argument.name]
        for argument in form.arguments.values()
        if argument.required and native[argument.name] not in parameters
        if argument.name not in (*names, *without)
    ]
    if absent:
        wanted, got = ", ".join(dict.fromkeys(absent)), ", ".join(parameters) or "no arguments"
        raise BackendError(
            f"backend {name}: expected a function with {wanted}, got {got}"
            + (suggest_configuration(name, list(parameters), names) if operation == "attention" else "")
        )
    native = {argument: own for argument, own in native.items() if own in parameters or argument in names}
    if "mask" not in names and names.get("bias") == "mask":  # a mask of numbers alone
        native.pop("mask", None)
    for argument, own in native.items():
        other = next(key for key, value in native.items() if value == own)
        arrays = {*_OPERATION.arrays} if operation == "attention" else set()
        shared = ({"mask", "bias"}, {"query_block", "key_block"}, {"query_starts", "key_starts"}, arrays)
        if other != argument and not any({other, argument} <= pair for pair in shared):
            raise BackendError(
                f"backend {name}: names: expected a different parameter for each argument, "
                f"got {own} for {other} and {argument}"
            )
    required = [own for own in required_parameters(function) if own not in (*native.values(), *others)]
    if required:
        if angles := [own for own in required if own.lower() in ANGLES]:
            error = BackendError(
                f"backend {name}: {' and '.join(angles)}: no key describes a rotation of queries and keys; "
                "judge a wrapper that rotates them backwards first: "
                f"`attnspec init {name.partition('?')[0]}` prints one. Save it as wrap.py, change what is "
                "different in your function, such as pairs, axes or the shape of angles, and run "
                "`attnspec init ./wrap.py:attention`"
            )
            error.add_note(wrapper_of_angles(name, function, native, angles))
            raise error
        guesses = ((ours, own) for own in required for ours in meant_in(operation, own.strip("_")))
        guess = next((pair for pair in guesses if pair[0] not in native), None)
        ours, own = guess or ("ARGUMENT", required[0])
        options = ", ".join(x for x in form.options if x not in native and not x.startswith("return_"))
        among = "" if guess else f", where ARGUMENT is one of the arguments of {operation}: {options}"
        naming = (
            f'name the argument that it is in attnspec.toml, as in names = {{ {ours} = "{own}" }}{among}; '
            f"then run `attnspec init {name.partition('?')[0]}`, or give it a default"
        )
        wrapper = f"judge a wrapper with the arguments of {operation}, which calls it (spec/calls.md)"
        first, last = (naming, wrapper) if guess else (wrapper, naming)
        otherwise = "If it is none of them" if guess else "If it is one of them"
        raise BackendError(
            f"backend {name}: expected only canonical arguments to be required, got {', '.join(required)}; "
            f"{first}. {otherwise}, {last}"
        )
    return native


def suggest_configuration(
    name: str, parameters: Sequence[str], names: Mapping[str, str] | None = None
) -> str:
    """Suggest an ``attnspec.toml`` for arrays with other names; empty if they cannot be guessed."""
    names = dict(names or {})
    left = [own for own in parameters if own not in _OPERATION.arguments and own not in names.values()]
    for array in (array for array in _OPERATION.arrays if array not in parameters and array not in names):
        own = next((own for own in left if array in meant(own)), left[0] if left else "")
        if not own:
            return ""
        left.remove(own)
        names[array] = own
    lines = [f'{canonical} = "{own}"' for canonical, own in names.items()]
    place = name.partition("?")[0]
    head = f"; write this in attnspec.toml, or run `attnspec init {place}`:"
    return "\n".join((head, "[backend]", f'function = "{place}"', "[backend.names]", *lines))


def operation_by_name(attribute: str, function: Callable[..., Any]) -> str:
    """Return the operation whose name and required arguments a function has, or an empty string."""
    if attribute not in OPERATIONS or attribute == "attention":
        return ""
    return "" if _missing(attribute, function) else attribute


def operation_by_aliases(attribute: str, function: Callable[..., Any]) -> str:
    """Return the operation whose name a function has, if its parameters may be all that this needs."""
    form, names = OPERATIONS.get(attribute), inspect.signature(function).parameters
    found = {ours for own in names for ours in (own, *meant_in(attribute, own))} if form else set()
    needed = {x.name for x in form.arguments.values() if x.required} if form else {""}
    return attribute if attribute != "attention" and needed <= found else ""


def check_companion(name: str, operation: str, function: Callable[..., Any]) -> None:
    """Check a function that is another operation than attention."""
    if missing := _missing(operation, function):
        known = ", ".join(signature_of(name, function).parameters) or "no arguments"
        raise BackendError(
            f"backend {name}: operation: expected a function of {operation} with {', '.join(missing)}, "
            f"got {known}"
        )


def check_is_attention(name: str, function: Callable[..., Any]) -> None:
    """Refuse a function that has the arguments of another operation, and not those of attention."""
    if not _missing("attention", function):
        return
    fitting = [x for x in OPERATIONS if "attention" in x and not _missing(x, function)]
    if fitting:
        raise BackendError(
            f"backend {name}: expected attention, got the arguments of {fitting[0]}; name the function "
            f'{fitting[0]}, or write operation = "{fitting[0]}" in attnspec.toml'
        )


#: An argument that only the operations of a form have, by the word of the form.
_TELLS = {
    "packed": "query_starts",
    "paged": "block_table",
    "quantized": "key_codes",
    "block_sparse": "block_counts",
    "listed": "key_indices",
    "latent": "query_rotary",
}


def form_of(function: Callable[..., Any], *, optional: bool = False) -> tuple[str, str]:
    """Return the operation of a function that needs what only a form has, and that parameter.

    With `optional` a parameter that has a default counts too.
    """
    every = [parameter.lower() for parameter in inspect.signature(function).parameters]
    needed = every if optional else [parameter.lower() for parameter in required_parameters(function)]
    words = {
        word: {argument, *OF_COMPANIONS.get(argument, ())} - {"key", *ALIASES["key"]}
        for word, argument in _TELLS.items()
    }
    # Beside the size of a block, a mask of blocks is none of pairs.
    sized = {"key_block", *OF_COMPANIONS["key_block"]} & {*every}
    words["block_sparse"] |= {"block_mask", *({*OF_COMPANIONS["block_mask"]} & {*needed})} if sized else set()
    if words["block_sparse"] & {*every}:  # lists of blocks, not of pages
        words["paged"] -= {"block_indices", *OF_COMPANIONS["block_indices"]}
    # Keys of codes may have no name of their own, beside scales that the function needs.
    words["quantized"] |= {"key_scales", *ALIASES["key_scales"]} & {*needed}
    cotangent = next((x for x in needed if x in ("d_output", *OF_COMPANIONS["d_output"])), "")
    own = cotangent or next((name for names in words.values() for name in needed if name in names), "")
    operation = name_of(word for word, names in words.items() if names & {*every})
    operation += "_vjp" if cotangent else ""
    return (operation, own) if own and operation in OPERATIONS else ("", "")


def form_of_codes(operation: str, function: Callable[..., Any]) -> tuple[str, str]:
    """Return the operation over codes in the pages of another one, and the parameter for their scales."""
    layers, names = OPERATIONS[operation].layers, {"key_scales", *ALIASES["key_scales"]}
    own = next((own for own in inspect.signature(function).parameters if own.lower() in names), "")
    codes = name_of((*layers, "quantized")) if own and "paged" in layers else ""
    return (codes, own) if codes in OPERATIONS and codes != operation else ("", "")


def check_pages(name: str, function: Callable[..., Any]) -> None:
    """Refuse a function that needs lists of pages or blocks with their starts, which no key describes."""
    own = [x for x in required_parameters(function) if x.lower().endswith(LISTS_OF_PAGES)]
    if len({ending for ending in LISTS_OF_PAGES for x in own if x.lower().endswith(ending)}) > 1:
        raise BackendError(
            f"backend {name}: {', '.join(own)}: no key of attnspec.toml describes lists of pages with their "
            "starts; judge a wrapper that takes block_table and key_lengths and makes these of them "
            "(spec/calls.md, under FlashInfer, has the translation)"
        )


def check_form(name: str, function: Callable[..., Any]) -> None:
    """Refuse a function of another operation as one of attention, and say what to write."""
    check_pages(name, function)
    operation, own = form_of(function)
    check_wrapped(name, function, operation, required_parameters(function))
    if operation:
        parameters = inspect.signature(function).parameters
        guesses = {
            own: meant_in(operation, own)[:1]
            for own in parameters
            if own not in OPERATIONS[operation].parameters
        }
        lines = [f'{ours[0]} = "{own}"' for own, ours in guesses.items() if ours]
        place = name.partition("?")[0]
        text = [f'function = "{place}"', f'operation = "{operation}"', "[backend.names]", *lines]
        raise BackendError(
            f"backend {name}: expected attention, got a function that needs {own}, as {operation} does; "
            f"run `attnspec init {place}`, or write this in attnspec.toml:\n"
            + "\n".join(("[backend]", *text))
        )


def _missing(operation: str, function: Callable[..., Any]) -> list[str]:
    """Return the required arguments of an operation that a function does not have."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return [*OPERATIONS[operation].arrays]
    arguments = OPERATIONS[operation].arguments.values()
    return [x.name for x in arguments if x.default is REQUIRED and x.name not in parameters]


def unknown_parameters(
    function: Callable[..., Any], operation: str = "attention", mapped: Collection[str] = ()
) -> tuple[str, ...]:
    """List the parameters that are not in the specification.

    Names that begin with an underscore and names that `functools.partial` has bound are left out.
    """
    known = {*OPERATIONS[operation].arrays, *OPERATIONS[operation].offers, *mapped}
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return tuple(
        _STARS.get(parameter.kind, "") + parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in (*known, *bound) and not parameter.name.startswith("_")
    )


def note_unknown_parameters(backend: Backend) -> Backend:
    """Record in a backend the parameters that are not understood, except those in `ignore`."""
    unknown = [*backend.not_understood, *unknown_parameters(backend.attention)]
    for operation, function in backend.companions.items():
        unknown += [f"{operation}: {name}" for name in unknown_parameters(function, operation)]
    ignored = {name.strip("*") for name in backend.ignore}
    left = [name for name in dict.fromkeys(unknown) if name.rpartition(" ")[2].strip("*") not in ignored]
    return replace(backend, not_understood=tuple(left))


def explain_unknown_parameters(backend: Backend) -> str:
    """Describe the parameters that are not understood and what to write; empty if there are none.

    If this is not empty, the run must fail.
    """
    names = backend.not_understood
    if not names:
        return ""
    guesses = {name: meant(name) for name in names}
    described = ", ".join(f"{name} ({_hint(name)})" if _hint(name) else name for name in names)
    example = next((f'{ours[0]} = "{name}"' for name, ours in guesses.items() if ours), 'ARGUMENT = "YOURS"')
    # Names describe attention only: the parameters of a companion have to be the canonical ones.
    of_attention = any(": " not in name for name in names)
    advice = f"Map each to a canonical name, such as {example} under [backend.names] in attnspec.toml"
    quoted = ", ".join(f'"{name.rpartition(" ")[2]}"' for name in names)
    return (
        f"not understood: {described}; no case tests this. "
        f"{advice if of_attention else 'Give each its canonical name'}, or ignore it: ignore = [{quoted}]"
    )


def _hint(name: str) -> str:
    """Suggest the meaning of a parameter."""
    if name.startswith("*"):
        return "the signature does not show what it takes: list it in names"
    if name.rpartition(" ")[2].lower() in SLOPES:
        return f'write slopes = "{name.rpartition(" ")[2]}" in attnspec.toml'
    guesses = meant_in(*name.split(": ")) if ": " in name else meant(name)  # with a colon, of a companion
    return f"{' or '.join(guesses)}?" if guesses else NO_COUNTERPART.get(name, "")
