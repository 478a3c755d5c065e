"""Adapts a function of another operation than attention, and finds out how it is called."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Operation
from attnspec.backends.backend import Backend
from attnspec.backends.captured import pass_on
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.user.adapter import for_each_entry, with_own_meaning, without_always
from attnspec.backends.user.convention import OTHER, Convention, check_convention
from attnspec.backends.user.probe import Inference
from attnspec.backends.user.signature import native_names, required_parameters
from attnspec.backends.user.slopes import linear_bias, with_slopes
from attnspec.backends.user.trials import UNCONFIRMED, is_clear, reason_to_ignore
from attnspec.operations import Argument, Output
from attnspec.operations.aliases import SIZES, SLOPES, meant_in
from attnspec.operations.letters import BATCH, HEADS
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
    name: str, operation: str, function: Callable[..., Any], convention: Convention, xp: Any
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
    single = {x.name: x.shape.index("L") - len(x.shape) for x in declared if "L" in x.shape}
    single = single if convention.one_query else {}
    turned = {x.name for x in declared if convention.layout == "BSHD" and _has_heads(x)} - single.keys()
    taken = {*native, *returned, *convention.always, *(["bias"] if convention.slopes else [])}
    kind = inspect.Parameter
    signature = inspect.Signature(
        [kind(array, kind.POSITIONAL_OR_KEYWORD) for array in form.arrays]
        + [
            kind(argument.name, kind.KEYWORD_ONLY, **({} if argument.required else {"default": None}))
            for argument in form.named
            if argument.name in taken
        ]
    )

    def run(*arrays: Any, **given: Any) -> Any:
        call = dict(signature.bind(*arrays, **given).arguments)
        axes = getattr(call[form.arrays[0]], "ndim", None)
        alone = convention.axes is not None and axes == convention.axes - 1 and axes > 2
        if not alone and convention.axes not in (None, axes):
            raise Unsupported(f"the function takes only arrays of {convention.axes} axes, got {axes}")
        call = _with_batch(call, form) if alone else call
        call = for_each_entry(call, xp, form) if convention.per_entry else call
        wanted = form.wanted(call)
        call = {argument: x for argument, x in call.items() if argument not in returned}
        call = without_always(call, convention.always, native, form)
        call = {option: _default(option, form, call) for option in always} | call
        call = with_slopes(call, convention, xp) if convention.slopes else call
        sizes = {own: _size(size, operation, call) for size, own in convention.sizes.items()}
        call = with_own_meaning(call, convention)
        call = {argument: _turned(x) if argument in turned else x for argument, x in call.items()}
        call |= {
            argument: _without_query(call[argument], at)
            for argument, at in single.items()
            if argument in call
        }
        result = function(**{native.get(argument, argument): x for argument, x in call.items()}, **sizes)
        names = convention.returns or wanted
        parts = dict(zip(names, [result] if len(names) == 1 else list(result), strict=True))
        parts |= {output: _with_query(parts[output], at) for output, at in single.items() if output in parts}
        results = [_turned(parts[output]) if output in turned else parts[output] for output in wanted]
        results = [result[0] if alone else result for result in results]
        return results[0] if len(results) == 1 else tuple(results)

    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    pass_on(run, function, lambda fresh: adapt_companion(name, operation, fresh, convention, xp))
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


def _with_batch(call: Mapping[str, Any], form: Operation) -> dict[str, Any]:
    """Add a batch axis of one entry to the arrays that have one."""
    shapes = {name: form.arguments[name].shape for name in call}
    whole = {
        x for x in call if BATCH in shapes[x] and len(getattr(call[x], "shape", ())) == len(shapes[x]) - 1
    }
    return {name: x[None] if name in whole and hasattr(x, "shape") else x for name, x in call.items()}


def _without_query(array: Any, axis: int) -> Any:
    """Drop the axis of one query, if an array has it."""
    if getattr(array, "ndim", 0) < -axis:
        return array
    if array.shape[axis] != 1:
        raise Unsupported(f"the function takes one query of each sequence, got {array.shape[axis]}")
    return array[(..., 0, *[slice(None)] * (-axis - 1))]


def _with_query(array: Any, axis: int) -> Any:
    """Add the axis of one query."""
    return array[(..., None, *[slice(None)] * (-axis - 1))]


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
    parameters, form = list(inspect.signature(function).parameters), OPERATIONS[operation]
    names, sizes = _named(operation, parameters)
    required = {argument.name for argument in form.arguments.values() if argument.required}
    if missing := required - names.keys():
        raise BackendError(
            f"backend {backend.name}: expected a parameter for each required argument of {operation}, "
            f"got none for {', '.join(sorted(missing))}; name it under [backend.names] in attnspec.toml"
        )
    needed = {ours: own for ours, own in names.items() if own in required_parameters(function)}
    # A flag that is on by default is passed in each call.
    on = tuple(ours for ours, own in names.items() if _is_on(form, ours, function, own))
    first = {ours: own for ours, own in names.items() if ours in {*required, *needed, *on, "scale"}}
    call = _small_call(operation)
    call |= {ours: x for ours, x in _options(call).items() if ours in needed and isinstance(x, np.ndarray)}
    convention, call = _first_fit(
        backend, operation, function, Convention(first, sizes=sizes, given=on), call
    )
    dialect: dict[str, str] = {}
    why: dict[str, str] = {}
    alone = call if "packed" in form.layers else _first_entry(form, call)
    if not _agrees(backend, operation, function, convention, alone):
        convention = replace(convention, axes=4)
        why["axes"] = "without an axis of batch entries it did not compute attention"
    one = {name: 9 for name in call if name == "key_lengths"}
    if one and not _agrees(backend, operation, function, convention, call | one):
        convention = replace(convention, per_entry=True)
        why["per_entry"] = "with one length for all batch entries it did not compute attention"
    for option in (name for name in names if name not in first or name in on):
        taken = []
        partner = {other: names[other] for other in (_PARTNERS.get(option, ""),) if other in names}
        there = {**partner, option: names[option]}
        for trial, options, meaning, variants in _trials(convention, option, there, call):
            agrees = _agrees(backend, operation, function, trial, call | options, call | meaning)
            if agrees:
                convention, dialect = trial, dialect | variants
                break
            taken += [trial] if agrees is False else []
        else:
            if taken and is_clear(option, names[option]):
                convention, why[option] = taken[0], UNCONFIRMED
    own = next((own for own in parameters if own.lower() in SLOPES and "bias" in form.arguments), "")
    if own and "bias" not in convention.names:
        convention = replace(convention, slopes=own, from_end="bottom-right" in dialect.values())
        bias = {"bias": linear_bias(call, from_end=convention.from_end)}
        if not _agrees(backend, operation, function, convention, call | bias):
            why["slopes"] = UNCONFIRMED
    known = {*convention.names.values(), *sizes.values(), convention.slopes, *form.arguments}
    ignore = tuple(own for own in parameters if own not in known and not own.startswith("_"))
    why |= {"ignore": reason_to_ignore(ignore)} if ignore else {}
    why |= {"given": "True by default"} if on else {}
    differ = {ours: own for ours, own in convention.names.items() if ours != own}
    return Inference(replace(convention, names=differ), dialect, ignore, why)


def _is_on(form: Operation, ours: str, function: Callable[..., Any], own: str) -> bool:
    """Whether a parameter is a flag that is True by default, and False in the standard."""
    default = inspect.signature(function).parameters[own].default
    return default is True and form.arguments[ours].default is False


def _first_fit(
    backend: Backend,
    operation: str,
    function: Callable[..., Any],
    named: Convention,
    call: dict[str, NDArray[Any]],
) -> tuple[Convention, dict[str, NDArray[Any]]]:
    """Return the first convention in which the required arguments give the right results, and its call."""
    form = OPERATIONS[operation]
    layouts: tuple[Literal["BSHD", "BHSD"], ...] = ("BSHD", "BHSD")
    for one, layout in product((False,) if "packed" in form.layers else (False, True), layouts):
        single = {x.name for x in form.arguments.values() if one and "L" in x.shape and x.name in call}
        own = call | {name: call[name][..., :1, :] for name in single}
        convention = replace(named, layout=layout, one_query=one)
        # A default scale that is not the specified one is for the suite to find.
        for scale in ({}, {"scale": _options(call)["scale"]} if "scale" in named.names else {}):
            if _agrees(backend, operation, function, convention, own | scale):
                return convention, own | scale
    raise BackendError(
        f"backend {backend.name}: expected some call to compute {operation}, got none: tried "
        f"{', '.join(f'{ours} = {own}' for ours, own in named.names.items())}, both layouts"
    )


def _first_entry(form: Operation, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call without batch axes, of its first entry."""
    batched = {name for name in call if form.arguments[name].axis(BATCH) is not None}
    entry = {name: x[0] if name in batched else x for name, x in call.items()}
    return {name: int(x) if isinstance(x, np.integer) else x for name, x in entry.items()}


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
    convention: Convention, ours: str, own: Mapping[str, str], call: Mapping[str, Any]
) -> Iterator[tuple[Convention, dict[str, Any], dict[str, Any], dict[str, str]]]:
    """Yield guesses of what an option means: its call, the call of the reference, and the variants."""
    named = replace(convention, names={**convention.names, **own})
    options = _options(call)
    if ours not in options:
        return
    given = {name: options[name] for name in own}
    if ours == "return_lse":
        for returns in ((), ("output", "lse"), ("output", "lse", OTHER)):
            yield replace(named, returns=returns), given, given, {}
    elif ours in ("is_causal", "window"):
        for side in (None, -1) if ours == "window" else (None,):
            there = replace(named, open_side=side) if ours == "window" else named
            yield there, given, given, {}
            if "key_starts" in call:
                ends = np.diff(call["key_starts"]) - np.diff(call["query_starts"])
                yield there, given, given | {"query_offset": ends}, {"PACK-5": "bottom-right"}
            elif "block_table" not in call:
                yield there, given, given | {"query_offset": _KEYS - _QUERIES}, {"MASK-3": "bottom-right"}
    else:
        yield named, given, given, {}


def _options(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each option that changes the result."""
    scales = np.array([0.5, 1.5], np.float32).reshape(2, 1, 1)
    scales = scales if "query_starts" in call else np.stack([scales, scales[::-1]])
    return {
        "scale": 0.3,
        "softcap": 1.5,
        "window": (None, 0),  # which shows how a side is opened, and where the queries are
        "sinks": np.array([0.5, -0.5, 1.0, 0.0], np.float32),
        "is_causal": True,
        "return_lse": True,
        "key_scales": scales,
        "value_scales": scales[::-1] + 1,
        "new_key": np.linspace(-1, 1, 64, dtype="f4").reshape(2, 2, 1, 16),
        "new_value": np.linspace(3, 1, 64, dtype="f4").reshape(2, 2, 1, 16),
    }


def _agrees(
    backend: Backend,
    operation: str,
    function: Callable[..., Any],
    convention: Convention,
    call: Mapping[str, Any],
    meaning: Mapping[str, Any] | None = None,
) -> bool | None:
    """Whether a function gives what the reference does, with a large tolerance; None if it raises."""
    form = OPERATIONS[operation]
    run = adapt_companion(backend.name, operation, function, convention, backend.xp)
    given = {name: backend.to_library(x) if isinstance(x, np.ndarray) else x for name, x in call.items()}
    arrays = [given.pop(name) for name in form.arrays]
    try:
        results = run(*arrays, **given)
    except Exception:  # noqa: BLE001 - a wrong guess may raise anything
        return None
    expected = reference(operation)(**(call if meaning is None else meaning))
    pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (results, expected)), strict=False)
    numbers = ((np.asarray(backend.to_numpy(own), np.float64), its) for own, its in pairs)
    return all(own.shape == its.shape and np.allclose(own, its, atol=2e-2) for own, its in numbers)


#: Options that need each other.
_PARTNERS = {"new_key": "new_value", "new_value": "new_key"}
#: The sizes of the call by letter, and those of packed rows.
_QUERIES, _KEYS = 3, 8
_SIZES = {"Hq": 4, "Hkv": 2, "L": _QUERIES, "S": _KEYS, "D": 16, "Dv": 16, "Dr": 8, "Dc": 12, "W": 4}
_SIZES |= {"P": 3, "K": 16, "T": 2, BATCH: 2}
_OF_ROWS = {"L": 5, "S": 12}


def _small_call(operation: str) -> dict[str, Any]:
    """Draw a call of a form."""
    random, form = np.random.default_rng(0), OPERATIONS[operation]
    sizes = _SIZES | (_OF_ROWS if "packed" in form.layers else {})
    call: dict[str, Any] = {}
    for name in form.arrays:
        argument = form.arguments[name]
        shape = [sizes[letter] for letter in argument.shape]
        codes = random.integers(-3, 4, shape).astype(np.int8)
        call[name] = codes if argument.numbers == "integer" else random.normal(0, 0.7, shape).astype("f4")
    drawn = {
        "query_starts": np.array([0, 2, 5], np.int32),
        "key_starts": np.array([0, 4, 12], np.int32),  # other differences than between the longest ones
        "block_table": np.array([[2, 0], [1, 1]], np.int32),
        "key_lengths": np.array([20, 9], np.int32),
    }
    call |= {name: x for name, x in drawn.items() if name in form.arguments and form.arguments[name].required}
    if "key_indices" in form.arguments:
        call["key_indices"] = np.argsort(random.random((2, 2, _QUERIES, _KEYS)))[..., :4].astype(np.int32)
    return call
