"""Adapts a function with other names and another layout to the canonical signature."""

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Operation
from attnspec.backends.backend import results_of
from attnspec.backends.captured import pass_on
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library.library import device_of, permute, reshape
from attnspec.backends.user.convention import (
    OF_FOUR_AXES,
    PACKED,
    POSITIONS_FIRST,
    SIZES,
    Convention,
    check_convention,
    mark_adapted,
)
from attnspec.backends.user.defaults import options_without_default, with_defaults, with_module
from attnspec.backends.user.joined import join
from attnspec.backends.user.masks import with_own_mask
from attnspec.backends.user.queries import call_each_query, with_axis, without_axis
from attnspec.backends.user.scales import in_integers
from attnspec.backends.user.signature import native_names, required_parameters
from attnspec.backends.user.slopes import with_slopes
from attnspec.backends.user.windows import with_own_places
from attnspec.operations.letters import BATCH, HEADS

_OPERATION = OPERATIONS["attention"]
#: Arguments with batch axes but no heads axis: (*B, L), (*B, S), (*B).
_BY_ENTRY = tuple(
    argument.name
    for argument in _OPERATION.named
    if argument.axis(BATCH) is not None and argument.axis(*HEADS) is None
)
#: Arguments that broadcast to (*B, Hq, L, S).
_OF_PAIRS = tuple(argument.name for argument in _OPERATION.named if argument.broadcasts)


def adapt(name: str, function: Callable[..., Any], convention: Convention, xp: Any) -> Callable[..., Any]:
    """Wrap a function with another convention in one with the canonical signature."""
    check_convention(name, convention)
    native = _native_names(name, function, convention)
    options = {*native, *convention.options} - {*_OPERATION.arrays}
    given_always, required = options_in_every_call(name, function, convention), required_parameters(function)
    positioned = "query_positions" in given_always and "query_offset" not in options
    options |= (
        {"query_offset"}
        if positioned or convention.past or (convention.at_length and not convention.one_query)
        else set()
    )
    returned_always = convention.returned_always
    kind = inspect.Parameter
    signature = inspect.Signature(
        [kind(array, kind.POSITIONAL_OR_KEYWORD) for array in _OPERATION.arrays]
        + [
            kind(option, kind.KEYWORD_ONLY, default=None)
            for option in _OPERATION.options
            if option in options or option in returned_always or option in convention.always
        ]
    )

    def call_entry(call: dict[str, Any], wanted: Sequence[str]) -> list[Any]:
        if positioned and {"query_offset", "query_positions"} <= call.keys():
            raise Unsupported("the function takes an offset as positions, got both")
        call = with_slopes(call, convention, xp, required) if convention.slopes else call
        outer = call["query"].shape[:-2]
        call = with_defaults(_add_axes(call, axes), given_always, convention, xp, _OPERATION)
        call = {name: x for name, x in call.items() if not (positioned and name == "query_offset")}
        _check_packed(call, convention.layout)
        known = _sizes(call) if convention.sizes or convention.module else {}
        sizes = {own: known[size] for size, own in convention.sizes.items()}
        call = for_each_entry(call, xp) if convention.per_entry else call
        call = _split_past(in_integers(call, convention.integers, _OPERATION, xp), convention.past, required)
        call = with_own_mask(call, convention, native, xp)
        call = _fit_masks(call, convention, xp)
        heads = (1, 1, *call["query"].shape)[-3]  # an array of one axis is for the function to refuse
        for array in (*_OPERATION.arrays, *([] if packed else convention.past)):
            if array in call:
                call[array] = _to_layout(call[array], convention.layout, xp)
        call = without_axis(call, convention)
        call = _join(call, native, convention.layout, xp)
        # Options that the call does not have are not passed: the function uses its default.
        named = {native.get(name, name): value for name, value in call.items()}
        call = with_module(named, convention.module, known)
        returned = function(**call, **sizes)
        results = convention.returned(("output", *wanted))
        parts = with_axis(dict(zip(results, results_of(returned, len(results)), strict=True)), convention)
        parts = _results_from_layouts(parts, convention, heads, xp)
        return [_remove_axes(parts[output], outer, axes) for output in ("output", *wanted)]

    packed = convention.layout == PACKED
    axes = 4 if convention.layout in OF_FOUR_AXES else convention.axes

    def run(*arrays: Any, **given: Any) -> Any:
        call = signature.bind(*arrays, **given).arguments
        wanted = [output for output in _OPERATION.outputs[1:] if call.get(f"return_{output}") is True]
        call = {option: value for option, value in call.items() if option not in returned_always}
        call = with_own_places(call, convention, {*native, *convention.always})
        call = without_always(call, convention.always, native)

        def call_query(call: dict[str, Any]) -> Sequence[Any]:
            if convention.loop and axes is not None:
                return call_each_entry(lambda entry: call_entry(entry, wanted), call, axes, xp)
            return call_entry(call, wanted)

        results = call_each_query(call_query, call, wanted, convention, xp)
        return results[0] if len(results) == 1 else tuple(results)

    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    mark_adapted(run, convention, joined_arrays(native))
    pass_on(run, function, lambda fresh: adapt(name, fresh, convention, xp))
    return run


def options_in_every_call(name: str, function: Callable[..., Any], convention: Convention) -> tuple[str, ...]:
    """Name the options that are passed in every call: those in `given`, and those without a default."""
    native = _native_names(name, function, convention)
    return passed_always(name, function, convention, native, "attention")


def passed_always(
    name: str, function: Callable[..., Any], convention: Convention, native: Mapping[str, str], operation: str
) -> tuple[str, ...]:
    """Name the options of an operation that are passed in every call, and refuse those that cannot be."""
    required = required_parameters(function)
    options = OPERATIONS[operation].options
    always = tuple(x for x in options if x in native and (x in convention.given or native[x] in required))
    without = {*options_without_default(operation)} - {"new_key", "new_value"}  # rows of the pages are these
    if absent := [option for option in always if option in without]:
        raise BackendError(
            f"backend {name}: given: expected options with a value that stands for their absence, "
            f"got {', '.join(absent)}; write a function that leaves these out"
        )
    return always


def _native_names(name: str, function: Callable[..., Any], convention: Convention) -> dict[str, str]:
    return native_names(name, function, convention.names, convention.others)


def _sizes(call: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of a call, by their names in `SIZES`."""
    query, key, value = (call[array].shape for array in _OPERATION.arrays)
    if min(map(len, (query, key, value))) < 2:
        raise Unsupported("the function takes sizes, which arrays of one axis do not have")
    sizes = (prod(query[:-3]), (1, *query)[-3], (1, *key)[-3], query[-2], key[-2], query[-1], value[-1])
    return {**dict(zip(SIZES, map(int, sizes), strict=False)), "shared_heads": sizes[1] != sizes[2]}


def without_always(
    call: dict[str, Any], always: Mapping[str, Any], native: Mapping[str, str], form: Operation = _OPERATION
) -> dict[str, Any]:
    """Decline a call without the options that are always applied; drop those without a parameter."""
    for option, value in always.items():
        if call.get(option, form.arguments[option].default) != value:
            raise Unsupported(f"the function always applies {option} = {value}")
    return {option: value for option, value in call.items() if option not in always or option in native}


def _join(call: dict[str, Any], native: Mapping[str, str], layout: str, xp: Any) -> dict[str, Any]:
    """Join the arrays that a function takes in one parameter, on an axis before that of heads."""
    for names in joined_arrays(native):
        shapes = [tuple(call[name].shape) for name in names]
        if len({*shapes}) > 1 or len(shapes[0]) < 3:
            got = ", ".join(map(str, shapes))
            raise Unsupported(f"the function takes {' and '.join(names)} in one array, got shapes {got}")
        dtypes = [str(call[name].dtype) for name in names]
        if len({*dtypes}) > 1:
            got = ", ".join(dtypes)
            raise Unsupported(f"the function takes {' and '.join(names)} in one array, got dtypes {got}")
        axis = -3 if layout in ("BSHD", POSITIONS_FIRST) else -4
        call = call | dict.fromkeys(names, join([call[name] for name in names], axis, xp))
    return call


def joined_arrays(native: Mapping[str, str]) -> list[list[str]]:
    """Return the arrays that a function takes in one parameter, for each that has several."""
    joined: dict[str, list[str]] = {}
    for name in _OPERATION.arrays:
        joined.setdefault(native[name], []).append(name)
    return [names for names in joined.values() if len(names) > 1]


def _split_past(call: dict[str, Any], past: Sequence[str], needed: Container[str]) -> dict[str, Any]:
    """Split keys and values at the query offset, if a function takes those before it separately."""
    offset = call.get("query_offset")
    if past and past[0] in needed and offset is None:
        offset = 0
    if not past or offset is None or (isinstance(offset, int) and offset == 0 and past[0] not in needed):
        return {name: value for name, value in call.items() if name != "query_offset" or not past}
    before = call["key"].shape[-2] - call["query"].shape[-2]
    if not isinstance(offset, int) or (offset and offset != before) or offset < 0:
        raise Unsupported(
            f"the function takes an offset as past keys: expected {before} for these sizes, got {offset}"
        )
    call = {name: value for name, value in call.items() if name != "query_offset"}
    for name, own in zip(("key", "value"), past, strict=True):
        call[own] = call[name][..., :offset, :]
        call[name] = call[name][..., offset:, :]
    return call


def _add_axes(call: dict[str, Any], axes: int | None) -> dict[str, Any]:
    """Add leading axes; arrays with different numbers of axes stay, for the function to refuse."""
    numbers = {call[array].ndim for array in _OPERATION.arrays}
    if axes is None or numbers == {axes} or len(numbers) > 1 or min(numbers) < 2:
        return dict(call)
    (got,) = numbers
    if got > axes:
        raise Unsupported(f"the function takes only arrays of {axes} axes, got {got}")
    call = dict(call)
    for array in _OPERATION.arrays:
        call[array] = _with_leading(call[array], axes)
    if axes == 4:  # a batch axis may have been added
        for option in _BY_ENTRY:
            if getattr(call.get(option), "shape", None) is not None and call[option].ndim < 2:
                call[option] = reshape(call[option], (1, *call[option].shape))
    return call


def for_each_entry(call: dict[str, Any], xp: Any, form: Operation = _OPERATION) -> dict[str, Any]:
    """Write a number that is about all sequences as an array of one number for each."""
    queries = call[form.arrays[0]]
    packed = "query_starts" in call
    each = (len(call["query_starts"]) - 1,) if packed else tuple(queries.shape[:-3])
    declared = form.arguments
    alike = {x for x in call if type(call[x]) is int and declared[x].shape[:1] in (("G",), (BATCH,))}
    return call | {name: xp.full(each, call[name], **device_of(queries)) for name in alike if each}


def _remove_axes(array: Any, outer: tuple[int, ...], axes: int | None) -> Any:
    """Remove the leading axes that `_add_axes` added."""
    added = 0 if axes is None else axes - 2 - len(outer)
    if added <= 0 or tuple(array.shape[:added]) != (1,) * added:
        return array
    return reshape(array, tuple(array.shape[added:]))


def _fit_masks(call: dict[str, Any], convention: Convention, xp: Any) -> dict[str, Any]:
    """Add leading axes to the arrays of pairs of a query and a key, and copies for each pair."""
    but, axes = ("mask",) if convention.mask_of_keys else (), convention.mask_axes
    arrays = {name: call[name] for name in _OF_PAIRS if call.get(name) is not None and name not in but}
    shape = call["query"].shape[-2], call["key"].shape[-2]
    for name, array in arrays.items() if convention.mask_pairs else ():
        # A sum, because a view has no memory of its own for the copies.
        none = xp.zeros(shape, dtype=array.dtype, **device_of(array))
        arrays[name] = array | none if array.dtype == xp.bool else array + none
    most = max((array.ndim for array in arrays.values()), default=0)
    if axes is not None and most > axes:
        raise Unsupported(f"the function takes only masks of {axes} axes, got {most}")
    entries = (call["query"].shape[0], 1, *shape) if convention.mask_of_entries else None
    least = convention.least_mask_axes or 0
    return call | {
        name: array[:, 0]
        if tuple(array.shape) == entries
        else _with_leading(array, axes or max(array.ndim, least))
        for name, array in arrays.items()
    }


def _with_leading(array: Any, axes: int) -> Any:
    return reshape(array, (1,) * (axes - array.ndim) + tuple(array.shape))


def _check_packed(call: dict[str, Any], layout: str) -> None:
    """Decline a call that arrays without an axis of heads cannot express."""
    key, value = call["key"], call["value"]
    if layout == PACKED and min(key.ndim, value.ndim) > 2 and key.shape[-3] != value.shape[-3]:
        raise Unsupported(
            f"the layout {PACKED} has as many heads of values as of keys: "
            f"expected {key.shape[-3]}, got {value.shape[-3]}"
        )


def _to_layout(array: Any, layout: str, xp: Any) -> Any:
    """Bring an array of (*B, H, S, D) into a layout."""
    if layout == "BHSD" or array.ndim < (4 if layout in OF_FOUR_AXES else 3):
        return array
    if layout == POSITIONS_FIRST:
        return permute(array, (2, 0, 1, 3), xp)
    array = _swapped(array, xp)  # (*B, S, H, D)
    if layout == PACKED:
        return reshape(array, (*array.shape[:-2], array.shape[-2] * array.shape[-1]))
    return array


def _results_from_layouts(
    parts: Mapping[str, Any], convention: Convention, heads: int, xp: Any
) -> dict[str, Any]:
    layout = convention.output_layout or convention.layout
    own = {"output": _from_layout(parts["output"], layout, heads, xp)}
    if "lse" in parts and convention.lse_layout:
        own["lse"] = _swapped(parts["lse"][..., None], xp)[..., 0]
    return {**parts, **own}


def _from_layout(array: Any, layout: str, heads: int, xp: Any) -> Any:
    """Bring an output in a layout to (*B, Hq, L, Dv)."""
    if layout in OF_FOUR_AXES and array.ndim == 3 and heads and not array.shape[-1] % heads:
        array = reshape(array, (*array.shape[:-1], heads, array.shape[-1] // heads))
        layout = "BSHD" if layout == PACKED else layout
    if layout == POSITIONS_FIRST and array.ndim == 4:
        return permute(array, (1, 2, 0, 3), xp)
    if layout == "BSHD":
        return _swapped(array, xp)
    return array


def _swapped(array: Any, xp: Any) -> Any:
    """Exchange the axes of heads and positions, if there are heads."""
    if array.ndim < 3:
        return array
    order = [*range(array.ndim - 3), array.ndim - 2, array.ndim - 3, array.ndim - 1]
    return permute(array, order, xp)


def call_each_entry(
    function: Callable[[dict[str, Any]], Sequence[Any]], call: dict[str, Any], axes: int, xp: Any
) -> Sequence[Any]:
    """Call a function once for each index of the axes that it lacks, and stack the results."""
    query = call["query"]
    lost = query.ndim - axes
    lead = tuple(query.shape[: max(lost, 0)])
    if lost <= 0 or not _have_same_entries(call, axes):
        return function(call)  # it fits, or the function refuses arrays with so many axes
    if 0 in lead:
        raise Unsupported("the function is called once for each batch entry, got none")
    results = [function(_entry(call, index, lead, axes)) for index in np.ndindex(lead)]
    stacked = [xp.stack(list(parts)) for parts in zip(*results, strict=True)]
    return [reshape(array, (*lead, *array.shape[1:])) for array in stacked]


def _have_same_entries(call: Mapping[str, Any], axes: int) -> bool:
    """Whether the arrays have the same entries, and each query head has a key head."""
    query, key, value = (tuple(call[array].shape) for array in _OPERATION.arrays)
    if not len(query) == len(key) == len(value):
        return False
    if axes > 2:
        return query[:-axes] == key[:-axes] == value[:-axes]
    heads, shared = query[-3], key[-3]
    return query[:-3] == key[:-3] and key[:-2] == value[:-2] and shared > 0 and heads % shared == 0


def _entry(
    call: Mapping[str, Any], index: tuple[int, ...], lead: tuple[int, ...], axes: int
) -> dict[str, Any]:
    """Take the arguments of one entry."""
    batch = index if axes > 2 else index[:-1]
    shared = index if axes > 2 else (*batch, index[-1] // (lead[-1] // call["key"].shape[-3]))
    entry = dict(call)
    entry["query"] = call["query"][index]
    for name in ("key", "value"):
        entry[name] = call[name][shared]
    if axes == 2 and call.get("sinks") is not None:
        if tuple(call["sinks"].shape) != lead[-1:]:
            raise _misfit("sinks", f"an axis of {lead[-1]} heads", tuple(call["sinks"].shape))
        entry["sinks"] = call["sinks"][index[-1]]
    for name in _BY_ENTRY:
        if getattr(call.get(name), "shape", None) is not None and batch:
            if tuple(call[name].shape[: len(batch)]) != lead[: len(batch)]:
                raise _misfit(name, f"entries of {lead[: len(batch)]}", tuple(call[name].shape))
            entry[name] = call[name][batch]
    for name in _OF_PAIRS:
        if call.get(name) is not None:
            entry[name] = _pairs_of_entry(name, call[name], index, lead, axes)
    return entry


def _pairs_of_entry(name: str, array: Any, index: tuple[int, ...], lead: tuple[int, ...], axes: int) -> Any:
    """Take the pairs of one entry from an array that broadcasts."""
    outer = max(array.ndim - axes, 0)
    if outer > len(lead):
        raise _misfit(name, f"at most {len(lead) + axes} axes", array.ndim)
    own = []
    first = len(lead) - outer
    for size, at, whole in zip(array.shape[:outer], index[first:], lead[first:], strict=True):
        if size not in (1, whole):
            raise _misfit(name, f"axes of 1 or {whole} entries", size)
        own.append(at if size > 1 else 0)
    return array[tuple(own)]


def _misfit(name: str, expected: str, got: Any) -> Unsupported:
    return Unsupported(f"the function is called once for each entry: {name}: expected {expected}, got {got}")
