"""Adapts a function of another operation than attention, and finds out how it is called."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Operation
from attnspec.backends.backend import Backend
from attnspec.backends.captured import pass_on
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.user.adapter import with_own_meaning, without_always
from attnspec.backends.user.convention import OTHER, Convention, check_convention
from attnspec.backends.user.probe import Inference
from attnspec.backends.user.signature import native_names, required_parameters
from attnspec.operations import Argument, Output
from attnspec.operations.aliases import SIZES, meant_in
from attnspec.operations.letters import HEADS
from attnspec.reference import function as reference
from attnspec.sizes import sizes as sizes_of

#: The letters of positions, which a layout exchanges with heads.
_POSITIONS = frozenset(("L", "S", "K", "N"))
_LETTERS = {
    "query_heads": "Hq",
    "key_heads": "Hkv",
    "queries": "L",
    "keys": "S",
    "depth": "D",
    "value_depth": "Dv",
}


def adapt_companion(
    name: str, operation: str, function: Callable[..., Any], convention: Convention
) -> Callable[..., Any]:
    """Wrap a function of an operation with other names or another layout in one with its signature."""
    check_convention(name, convention, operation)
    form = OPERATIONS[operation]
    native = native_names(name, function, convention.names, convention.others, operation)
    returned = {
        output.option for output in form.results if output.option and output.name in convention.returns
    }
    required = required_parameters(function)
    always = [x for x in form.options if x in native and (x in convention.given or native[x] in required)]
    declared: tuple[Argument | Output, ...] = (*form.arguments.values(), *form.results)
    turned = {x.name for x in declared if convention.layout == "BSHD" and _has_heads(x)}
    kind = inspect.Parameter
    signature = inspect.Signature(
        [kind(array, kind.POSITIONAL_OR_KEYWORD) for array in form.arrays]
        + [
            kind(argument.name, kind.KEYWORD_ONLY, **({} if argument.required else {"default": None}))
            for argument in form.named
            if argument.name in {*native, *returned, *convention.always}
        ]
    )

    def run(*arrays: Any, **given: Any) -> Any:
        call = dict(signature.bind(*arrays, **given).arguments)
        axes = getattr(call[form.arrays[0]], "ndim", None)
        if convention.axes not in (None, axes):
            raise Unsupported(f"the function takes only arrays of {convention.axes} axes, got {axes}")
        wanted = form.wanted(call)
        call = {argument: x for argument, x in call.items() if argument not in returned}
        call = without_always(call, convention.always, native, form)
        call = {option: _default(option, form, call) for option in always} | call
        sizes = {own: _size(size, operation, call) for size, own in convention.sizes.items()}
        call = with_own_meaning(call, convention)
        call = {argument: _turned(x) if argument in turned else x for argument, x in call.items()}
        result = function(**{native.get(argument, argument): x for argument, x in call.items()}, **sizes)
        names = convention.returns or wanted
        parts = dict(zip(names, [result] if len(names) == 1 else list(result), strict=True))
        results = [_turned(parts[output]) if output in turned else parts[output] for output in wanted]
        return results[0] if len(results) == 1 else tuple(results)

    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    pass_on(run, function, lambda fresh: adapt_companion(name, operation, fresh, convention))
    return run


def _default(option: str, form: Operation, call: Mapping[str, Any]) -> Any:
    """Return the specified default of an option. That of a scale is a number (SCORE-2, LATENT-2)."""
    if option != "scale":
        return form.arguments[option].default
    queries = (call[name] for name in ("query", "query_codes", "query_rotary") if name in call)
    return sum(query.shape[-1] for query in queries) ** -0.5


def _has_heads(array: Argument | Output) -> bool:
    """Whether an array has axes of heads, positions and features, and is no array of pairs."""
    heads, positions, features = array.shape[-3:] if len(array.shape) > 2 else ("", "", "")
    return heads in HEADS and positions in _POSITIONS and features.startswith("D")


def _turned(array: Any) -> Any:
    """Exchange the axes of heads and positions of an array that has both."""
    if getattr(array, "ndim", 0) < 3:
        return array
    return array.swapaxes(-3, -2)


def _size(size: str, operation: str, call: Mapping[str, Any]) -> int:
    """Return a size of a call."""
    if size.startswith("longest"):
        starts = call.get("query_starts" if size.endswith("queries") else "key_starts")
        if starts is None:
            return int(max(np.asarray(call["key_lengths"].tolist()).ravel(), default=0))
        return int(max(np.diff(starts.tolist()), default=0))
    known = sizes_of(operation, call)
    if size == "batch":
        return known.letters.get("G", prod(known.batch or ()))
    if size == "page":
        return known.letters["K"]
    if size == "keys" and "S" not in known.letters:
        return known.letters["T"] * known.letters["K"]
    return known.letters[_LETTERS[size]]


# What `attnspec init` finds out.


def infer_companion(backend: Backend, operation: str, function: Callable[..., Any]) -> Inference:
    """Guess what parameters are by their names, and keep guesses that give the results of the reference."""
    parameters = list(inspect.signature(function).parameters)
    names, sizes = _named(operation, parameters)
    required = {argument.name for argument in OPERATIONS[operation].arguments.values() if argument.required}
    if missing := required - names.keys():
        raise BackendError(
            f"backend {backend.name}: expected a parameter for each required argument of {operation}, "
            f"got none for {', '.join(sorted(missing))}; name it under [backend.names] in attnspec.toml"
        )
    first = Convention({ours: names[ours] for ours in names if ours in required}, sizes=sizes)
    call = _small_call(operation)
    layouts: tuple[Literal["BHSD", "BSHD"], ...] = ("BSHD", "BHSD")
    fitting = [replace(first, layout=layout, given=()) for layout in layouts]
    convention = next((each for each in fitting if _agrees(backend, operation, function, each, call)), None)
    if convention is None:
        raise BackendError(
            f"backend {backend.name}: expected some call to compute {operation}, got none: tried "
            f"{', '.join(f'{ours} = {own}' for ours, own in first.names.items())}, both layouts"
        )
    dialect: dict[str, str] = {}
    why: dict[str, str] = {}
    if "packed" not in OPERATIONS[operation].layers:
        alone = {"block_table": call["block_table"][0], "key_lengths": int(call["key_lengths"][0])}
        if not _agrees(backend, operation, function, convention, call | {"query": call["query"][0]} | alone):
            convention = replace(convention, axes=4)
            why["axes"] = "without an axis of batch entries it did not compute attention"
    for option in (name for name in names if name not in required):
        for trial, options, meaning, variants in _trials(convention, option, names[option], call):
            if _agrees(backend, operation, function, trial, call | options, call | meaning):
                convention, dialect = trial, dialect | variants
                break
    known = {*convention.names.values(), *sizes.values()}
    ignore = tuple(own for own in parameters if own not in known and not own.startswith("_"))
    why |= {"ignore": "no case tests it"} if ignore else {}
    return Inference(convention, dialect, ignore, why)


def _named(operation: str, parameters: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what parameters are by their names: arguments of an operation, and sizes."""
    names: dict[str, str] = {}
    sizes: dict[str, str] = {}
    for own in parameters:
        size = next((ours for ours, theirs in SIZES.items() if own.lower() in theirs), "")
        meanings = [own] if own in OPERATIONS[operation].arguments else meant_in(operation, own)
        argument = next((ours for ours in meanings if ours not in names), "")
        if size:
            sizes[size] = own
        elif argument:
            names[argument] = own
    return names, sizes


def _trials(
    convention: Convention, ours: str, own: str, call: Mapping[str, Any]
) -> Iterator[tuple[Convention, dict[str, Any], dict[str, Any], dict[str, str]]]:
    """Yield guesses of what an option means: its call, the call of the reference, and the variants."""
    named = replace(convention, names={**convention.names, ours: own})
    options: dict[str, Any] = {
        "scale": 0.3,
        "softcap": 1.5,
        "window": (None, 1),  # which shows how a side is opened
        "sinks": np.array([0.5, -0.5, 1.0, 0.0], np.float32),
        "is_causal": True,
        "return_lse": True,
    }
    if ours not in options:
        return
    given = {ours: options[ours]}
    if ours == "return_lse":
        for returns in ((), ("output", "lse"), ("output", "lse", OTHER)):
            yield replace(named, returns=returns), given, given, {}
    elif ours in ("is_causal", "window"):
        for side in (None, -1) if ours == "window" else (None,):
            there = replace(named, open_side=side) if ours == "window" else named
            if "key_starts" not in call:
                yield there, given, given, {}
                continue
            yield there, given, given, {}
            ends = {"query_offset": np.diff(call["key_starts"]) - np.diff(call["query_starts"])}
            yield there, given, given | ends, {"PACK-5": "bottom-right"}
    else:
        yield named, given, given, {}


def _agrees(
    backend: Backend,
    operation: str,
    function: Callable[..., Any],
    convention: Convention,
    call: Mapping[str, Any],
    meaning: Mapping[str, Any] | None = None,
) -> bool:
    """Whether a function gives what the reference does, with a large tolerance."""
    form = OPERATIONS[operation]
    run = adapt_companion(backend.name, operation, function, convention)
    given = {name: backend.to_library(x) if isinstance(x, np.ndarray) else x for name, x in call.items()}
    arrays = [given.pop(name) for name in form.arrays]
    try:
        results = run(*arrays, **given)
    except Exception:  # noqa: BLE001 - a wrong guess may raise anything
        return False
    expected = reference(operation)(**(call if meaning is None else meaning))
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (results, expected)), strict=False)
    numbers = ((np.asarray(backend.to_numpy(own), np.float64), its) for own, its in pairs)
    return all(own.shape == its.shape and np.allclose(own, its, atol=2e-2) for own, its in numbers)


def _small_call(operation: str) -> dict[str, NDArray[Any]]:
    """Draw a call of packed rows, of pages, or of both."""
    random, form = np.random.default_rng(0), OPERATIONS[operation]
    rows = (4, 5) if "packed" in form.layers else (2, 4, 3)
    shapes = {"query": (*rows, 16), "key": (2, 8, 16), "value": (2, 8, 16)}
    shapes |= {"key_pages": (3, 2, 16, 16), "value_pages": (3, 2, 16, 16)}
    call = {name: random.normal(size=shapes[name]).astype(np.float32) for name in form.arrays}
    if "packed" in form.layers:
        call["query_starts"] = np.array([0, 2, 5], np.int32)
    if "paged" in form.layers:
        call["block_table"], call["key_lengths"] = (
            np.array([[2, 0], [1, 1]], np.int32),
            np.array([20, 9], np.int32),
        )
    else:
        call["key_starts"] = np.array([0, 3, 8], np.int32)
    return call
