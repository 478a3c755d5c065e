"""Adapts a function of another operation than attention to its signature."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Operation
from attnspec.backends.backend import results_of
from attnspec.backends.captured import pass_on
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.adapter import (
    for_each_entry,
    passed_always,
    without_always,
)
from attnspec.backends.user.convention import Convention, check_convention, mark_adapted
from attnspec.backends.user.defaults import with_defaults
from attnspec.backends.user.lists import masks_in_lists, with_own_lists
from attnspec.backends.user.masks import with_own_mask
from attnspec.backends.user.new_keys import with_own_new_keys
from attnspec.backends.user.scales import (
    FLAT,
    GROUP,
    SCALES,
    codes_of,
    in_integers,
    with_own_codes,
    with_scales,
    without_ones,
)
from attnspec.backends.user.shapes import in_shape
from attnspec.backends.user.signature import native_names, required_parameters
from attnspec.backends.user.slopes import with_slopes
from attnspec.backends.user.windows import with_own_places
from attnspec.operations import Argument, Output
from attnspec.operations.letters import BATCH, HEADS
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
    native = native_names(
        name,
        function,
        convention.names,
        convention.others,
        operation,
        ("query_block",) if convention.lists else (),
    )
    returned = {
        output.option
        for output in form.results
        if output.option and output.name in convention.returns and output.option not in convention.flags
    }
    always = passed_always(name, function, convention, native, operation)
    always += tuple(x for x in form.options if x.endswith(SCALES) and x in native and convention.scales)
    declared: tuple[Argument | Output, ...] = (*form.parameters.values(), *form.results)
    single = _axes_of_one_query(declared) if convention.one_query is True else {}
    turned = {x.name for x in declared if convention.layout == "BSHD" and _has_heads(x)}
    turned -= single.keys() | convention.shapes.keys()
    taken = {*native, *returned, *convention.applied, *convention.expressed, *masks_in_lists(form, native)}
    needed, kind = required_parameters(function), inspect.Parameter
    signature = inspect.Signature(
        [kind(array, kind.POSITIONAL_OR_KEYWORD) for array in form.arrays]
        + [
            kind(argument.name, kind.KEYWORD_ONLY, **({} if argument.required else {"default": None}))
            for argument in (*form.named, *form.forward)
            if argument.name in taken
        ]
    )

    def run(*arrays: Any, **given: Any) -> Any:
        call = dict(signature.bind(*arrays, **given).arguments)
        axes = getattr(call[form.arrays[0]], "ndim", None)
        alone = _lacks_batch(axes, convention, form)
        if not alone and convention.axes not in (None, axes):
            raise Unsupported(f"the function takes only arrays of {convention.axes} axes, got {axes}")
        call = _with_batch(call, form) if alone else call
        if len(entries := _entries(call, form, convention.mask_axes)) > 1:
            return _stack([results_of(run(**entry), len(form.wanted(call))) for entry in entries], xp)
        wanted = form.wanted(call)
        call = {argument: x for argument, x in call.items() if argument not in returned}
        call = with_own_places(call, convention, {*native, *convention.always}, operation)
        encoding = call.get("encoding", "int8")
        call = without_always(call, convention.applied, native, form)
        call = with_own_new_keys(call, xp, needed="new_key" in always, writes=convention.writes)
        call = with_defaults(call, always, convention, xp, form)
        call = with_scales(call, convention.scales, xp, grouped=GROUP in convention.sizes)
        call = for_each_entry(call, xp, form) if convention.per_entry else call
        call = in_integers(with_own_lists(call, convention.lists, native, xp), convention.integers, form, xp)
        call = with_slopes(call, convention, xp, needed) if convention.slopes else call
        sizes = {own: _size(size, operation, call) for size, own in convention.sizes.items()}
        call = with_own_mask(call, convention, native, xp)
        call = {argument: _turned(x) if argument in turned else x for argument, x in call.items()}
        call = without_ones(call, convention.scales) if convention.scales in FLAT else call
        call |= {
            argument: _without_query(call[argument], at)
            for argument, at in single.items()
            if argument in call
        }
        call |= {
            x: in_shape(call[x], form.arguments[x].shape, shape, xp)
            for x, shape in convention.shapes.items()
            if x in call
        }
        call = with_own_codes(call, form, convention.codes, encoding, xp) if convention.codes else call
        result = function(**{native.get(argument, argument): x for argument, x in call.items()}, **sizes)
        names = convention.returned(wanted)
        parts = dict(zip(names, results_of(result, len(names)), strict=True))
        parts |= {output: _with_query(parts[output], at) for output, at in single.items() if output in parts}
        results = [_exchanged(parts[x], x, convention) if x in {*turned, "lse"} else parts[x] for x in wanted]
        results = [result[0] if alone else result for result in results]
        return results[0] if len(results) == 1 else tuple(results)

    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    mark_adapted(run, convention)
    pass_on(run, function, lambda fresh: adapt_companion(name, operation, fresh, convention, xp))
    return run


def _has_heads(array: Argument | Output) -> bool:
    """Whether an array has axes of heads, positions and features, and is no array of pairs."""
    heads, positions, features = array.shape[-3:] if len(array.shape) > 2 else ("", "", "")
    return heads in HEADS and positions in _POSITIONS and features.startswith("D")


def _lacks_batch(axes: int | None, convention: Convention, form: Operation) -> bool:
    """Whether a call lacks the batch axis that a function needs; a call that lacks heads too is declined."""
    whole = len(form.arguments[form.arrays[0]].shape)
    return axes is not None and convention.axes == axes + 1 and axes > whole - 2


def _with_batch(call: Mapping[str, Any], form: Operation) -> dict[str, Any]:
    """Add a batch axis of one entry to the arrays that have one."""
    shapes = {name: form.parameters[name].shape for name in call}
    whole = {
        x for x in call if BATCH in shapes[x] and len(getattr(call[x], "shape", ())) == len(shapes[x]) - 1
    }
    return {name: x[None] if name in whole and hasattr(x, "shape") else x for name, x in call.items()}


def _stack(results: Sequence[Sequence[Any]], xp: Any) -> Any:
    """Put the results of calls with one batch entry into those of one call."""
    stacked = tuple(xp.stack([x[0] for x in outputs]) for outputs in zip(*results, strict=True))
    return stacked[0] if len(stacked) == 1 else stacked


def _entries(call: Mapping[str, Any], form: Operation, axes: int | None) -> list[dict[str, Any]]:
    """Return a call for each batch entry, if the mask of blocks has an axis more than the function takes."""
    blocks: Any = getattr(call.get("block_mask"), "shape", ())
    if axes is None or len(blocks) != axes + 1:
        return []
    whole = {x for x, y in call.items() if len(getattr(y, "shape", ())) == len(form.parameters[x].shape)}
    split = {x for x in whole if BATCH in form.parameters[x].shape}
    return [
        {x: y[place : place + 1] if x in split and y.shape[0] > 1 else y for x, y in call.items()}
        for place in range(blocks[0])
    ]


def _axes_of_one_query(declared: Sequence[Argument | Output]) -> dict[str, int]:
    """Return the axis of queries, or of new positions, of each array that has one."""
    letters = ((x, {"L", "N"} & {*x.shape}) for x in declared)
    return {x.name: x.shape.index(own) - len(x.shape) for x, its in letters for own in its}


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


def _exchanged(array: Any, output: str, convention: Convention) -> Any:
    """Exchange the axes of heads and positions of a result; an lse has no features after them."""
    if output != "lse":
        return _turned(array)
    return array.swapaxes(-2, -1) if convention.lse_layout else array


def _size(size: str, operation: str, call: Mapping[str, Any]) -> int:
    """Return a size of a call."""
    if size.startswith("longest"):
        starts = call.get("query_starts" if size.endswith("queries") else "key_starts")
        if starts is None:
            return int(max(np.asarray(call["key_lengths"].tolist()).ravel(), default=0))
        return int(max(np.diff(starts.tolist()), default=0))
    if size == GROUP:
        codes, scales = call[codes_of("key_scales", call)], call["key_scales"]
        return int(codes.shape[-2] // max(scales.shape[-2], 1)) or 1
    known = sizes_of(operation, call)
    if size == "batch":
        return known.letters.get("G", prod(known.batch or ()))
    if size == "page":
        return known.letters["K"]
    if size == "keys" and "S" not in known.letters:
        return known.letters["T"] * known.letters["K"]
    if size == "shared_heads":
        return known.letters["Hq"] != known.letters["Hkv"]
    return known.letters[_LETTERS[size]]
