"""Adapt a function with other names and another layout to the canonical signature."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.axes import (
    check_packed,
    laid_back,
    laid_out,
    of_axes,
    with_mask_axes,
    without_axes,
)
from attnspec.backends.user.convention import PACKED, SIZES, Convention, check_convention
from attnspec.backends.user.entries import for_each_entry
from attnspec.backends.user.native import given_by_default, native_names
from attnspec.backends.user.past import with_past

_OPERATION = OPERATIONS["attention"]


def adapted(name: str, function: Callable[..., Any], convention: Convention, xp: Any) -> Callable[..., Any]:
    """Wrap a function with another convention in one with the canonical signature.

    Examples
    --------
    >>> import inspect
    >>> import numpy as np
    >>> from attnspec.backends.user.adapted import adapted
    >>> from attnspec.backends.user.convention import Convention
    >>> def kernel(q, k, v, causal=False):
    ...     return q
    >>> names = {"query": "q", "key": "k", "value": "v", "is_causal": "causal"}
    >>> inspect.signature(adapted("m:kernel", kernel, Convention(names), np))
    <Signature (query, key, value, *, is_causal=None)>
    """
    check_convention(name, convention)
    native = native_names(name, function, convention.names, others_of(convention))
    options = [canonical for canonical in native if canonical not in _OPERATION.arrays]
    options += ["query_offset"] if convention.past else []
    returned_always = [f"return_{output}" for output in convention.returns[1:]]
    given_always = given_by_default(function, native, convention.given)
    kind = inspect.Parameter
    signature = inspect.Signature(
        [kind(array, kind.POSITIONAL_OR_KEYWORD) for array in _OPERATION.arrays]
        + [
            kind(option, kind.KEYWORD_ONLY, default=None)
            for option in _OPERATION.options
            if option in options or option in returned_always or option in convention.always
        ]
    )

    def of_one(call: dict[str, Any], wanted: Sequence[str]) -> list[Any]:
        for option in given_always:
            call.setdefault(option, _default(option, call["query"]))
        outer = call["query"].shape[:-2]
        call = of_axes(call, axes)
        if packed:
            check_packed(call)
        sizes = {own: sizes_of(call)[size] for size, own in convention.sizes.items()}
        call = with_past(call, convention.past)
        if "mask" in native and native["mask"] == native.get("bias"):
            call = _in_one(call, xp)
        if convention.mask == "ignore" and call.get("mask") is not None:
            call["mask"] = _inverted(call["mask"])
        call = with_mask_axes(call, convention.mask_axes)
        heads = (1, *call["query"].shape)[-3]
        for array in (*_OPERATION.arrays, *([] if packed else convention.past)):
            if array in call:
                call[array] = laid_out(call[array], convention.layout, xp)
        # Options that the call does not have are not passed: the function uses its default.
        returned = function(**{native.get(name, name): thing for name, thing in call.items()}, **sizes)
        given_names = convention.returns or ("output", *wanted)
        parts = dict(zip(given_names, [returned] if len(given_names) == 1 else list(returned), strict=True))
        parts["output"] = laid_back(parts["output"], convention.layout, heads, xp)
        return [without_axes(parts[output], outer, axes) for output in ("output", *wanted)]

    packed = convention.layout == PACKED
    axes = 4 if packed else convention.axes

    def run(*arrays: Any, **given: Any) -> Any:
        call = signature.bind(*arrays, **given).arguments
        wanted = [output for output in _OPERATION.outputs[1:] if call.get(f"return_{output}") is True]
        call = {option: thing for option, thing in call.items() if option not in returned_always}
        call = _without_always(call, convention.always, native)
        if convention.loop and axes is not None:
            kept = for_each_entry(lambda one: of_one(one, wanted), call, axes, xp)
        else:
            kept = of_one(call, wanted)
        return kept[0] if len(kept) == 1 else tuple(kept)

    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    run.convention = convention  # type: ignore[attr-defined] # marks it as adapted
    return run


def always_given(name: str, function: Callable[..., Any], convention: Convention) -> tuple[str, ...]:
    """Name the options that a function is given in each call of it by `adapted`.

    Examples
    --------
    >>> from attnspec.backends.user.adapted import always_given
    >>> from attnspec.backends.user.convention import Convention
    >>> def kernel(query, key, value, *, scale, is_causal=False):
    ...     return query
    >>> always_given("m:kernel", kernel, Convention())
    ('scale',)
    """
    native = native_names(name, function, convention.names, others_of(convention))
    return given_by_default(function, native, convention.given)


def others_of(convention: Convention) -> tuple[str, ...]:
    """Return the parameters that a function is passed beside those in `names`."""
    return (*convention.sizes.values(), *convention.past)


def sizes_of(call: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of a call, by their names in `SIZES`.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.backends.user.adapted import sizes_of
    >>> sizes_of(dict.fromkeys(("query", "key", "value"), np.ones((2, 3, 4))))["query_heads"]
    2
    """
    query, key, value = (call[array].shape for array in _OPERATION.arrays)
    found = (prod(query[:-3]), (1, *query)[-3], (1, *key)[-3], query[-2], key[-2], query[-1], value[-1])
    return dict(zip(SIZES, map(int, found), strict=True))


def _without_always(
    call: dict[str, Any], always: Mapping[str, Any], native: Mapping[str, str]
) -> dict[str, Any]:
    """Decline a call without the options that are always applied; drop those without a parameter."""
    for option, value in always.items():
        if call.get(option, _OPERATION.arguments[option].default) != value:
            raise Unsupported(f"the function always applies {option} = {value}")
    return {option: thing for option, thing in call.items() if option not in always or option in native}


def _inverted(mask: Any) -> Any:
    """Invert a mask; one of integers too, which the function must refuse."""
    if not any(kind in str(mask.dtype) for kind in ("bool", "int")):
        raise Unsupported(f"the function takes an inverted mask, and {mask.dtype} cannot be inverted")
    return ~mask


def _in_one(call: dict[str, Any], xp: Any) -> dict[str, Any]:
    """Combine mask and bias into one argument, for a function that tells them apart by the dtype."""
    mask, bias = call.pop("mask", None), call.pop("bias", None)
    for name, array, kind in (("mask", mask, "bool"), ("bias", bias, "float")):
        if array is not None and kind not in str(array.dtype):
            raise Unsupported(
                f"the function tells mask and bias apart by the dtype: a {name} of {array.dtype} "
                "cannot be passed"
            )
    if mask is not None and bias is not None:  # a mask is a bias of minus infinity (MASK-2)
        mask, bias = None, xp.where(mask, bias, -float("inf"))
    return call | {name: x for name, x in (("mask", mask), ("bias", bias)) if x is not None}


def _default(option: str, query: Any) -> Any:
    """Return the specified default of an option.

    A depth of 0 has no default scale. With a scale of 1 the function itself has to refuse it (ERR-5).
    """
    return max(query.shape[-1], 1) ** -0.5 if option == "scale" else _OPERATION.arguments[option].default
