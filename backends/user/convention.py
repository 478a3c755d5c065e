"""Adapt a function with other names and another layout to the canonical signature."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attnspec import OPERATIONS
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.user.native import check_names, given_by_default, native_names
from attnspec.operations.letters import BATCH, HEADS

_OPERATION = OPERATIONS["attention"]
#: Arguments with batch axes but no heads axis: (*B, L), (*B, S), (*B).
_BY_ENTRY = tuple(
    one.name for one in _OPERATION.named if one.axis(BATCH) is not None and one.axis(*HEADS) is None
)


@dataclass(frozen=True)
class Convention:
    """How the interface of a function differs from the canonical one.

    Attributes
    ----------
    names : mapping of str to str
        Canonical name to the function's name, for arguments whose names differ. Mask and
        bias may share a name if the function tells them apart by their dtype.
    layout : {"BHSD", "BSHD"}
        Whether heads come before positions, as in the specification, or after them.
    mask : {"attend", "ignore"}
        What True in a mask means to the function.
    axes : int or None
        The number of axes that its arrays must have, if it takes only one number.
        Arrays with fewer get leading axes of length one; a call with more is unsupported.
    returns : tuple of str
        Its results, if they do not depend on ``return_lse`` and ``return_weights``.
    always : mapping
        Flags that it always applies. A call without such a flag is unsupported. A flag
        that the function has no parameter for is not passed.
    given : tuple of str
        Options to pass in every call, because the default of the function is not the
        specified one. A call without the option passes the specified default. Options
        that the function requires are always passed.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    layout: Literal["BHSD", "BSHD"] = "BHSD"
    mask: Literal["attend", "ignore"] = "attend"
    axes: int | None = None
    returns: tuple[str, ...] = ()
    always: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = ()


def check_convention(name: str, convention: Convention) -> None:
    """Check the fields of a convention.

    Raises
    ------
    BackendError
        If a field is invalid.
    """
    check_names(name, convention.names)
    for what, got, expected in (
        ("layout", convention.layout, ("BHSD", "BSHD")),
        ("mask", convention.mask, ("attend", "ignore")),
        ("axes", convention.axes, (None, 3, 4)),
    ):
        if got not in expected:
            choices = " or ".join(str(one) for one in expected if one is not None)
            raise BackendError(f"backend {name}: {what}: expected {choices}, got {got!r}")
    if convention.returns and (
        convention.returns[0] != "output" or not set(convention.returns) <= set(_OPERATION.outputs)
    ):
        raise BackendError(
            f"backend {name}: returns: expected output, then some of lse, weights, got {convention.returns!r}"
        )
    wrong = [option for option in convention.given if option not in _OPERATION.options]
    if wrong:
        raise BackendError(
            f"backend {name}: given: expected options of the specification, got {', '.join(map(str, wrong))}"
        )


def adapted(name: str, function: Callable[..., Any], convention: Convention, xp: Any) -> Callable[..., Any]:
    """Wrap a function with another convention in one with the canonical signature.

    Parameters
    ----------
    name : str
        For messages.
    function : callable
    convention : Convention
    xp : module
        The array namespace.

    Raises
    ------
    BackendError
        If the function has no parameter for an array or for a name of the convention, or
        requires an argument that is not in the specification.

    Examples
    --------
    >>> import inspect
    >>> import numpy as np
    >>> from attnspec.backends.user.convention import Convention, adapted
    >>> def kernel(q, k, v, causal=False):
    ...     return q
    >>> names = {"query": "q", "key": "k", "value": "v", "is_causal": "causal"}
    >>> inspect.signature(adapted("m:kernel", kernel, Convention(names), np))
    <Signature (query, key, value, *, is_causal=None)>
    """
    check_convention(name, convention)
    native = native_names(name, function, convention.names)
    options = [canonical for canonical in native if canonical not in _OPERATION.arrays]
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

    def run(*arrays: Any, **given: Any) -> Any:
        call = signature.bind(*arrays, **given).arguments
        wanted = [output for output in _OPERATION.outputs[1:] if call.get(f"return_{output}") is True]
        call = {option: thing for option, thing in call.items() if option not in returned_always}
        call = _without_always(call, convention.always, native)
        for option in given_always:
            call.setdefault(option, _default(option, call["query"]))
        outer = call["query"].shape[:-2]
        call = _of_axes(call, convention.axes)
        if convention.layout == "BSHD":
            call |= {array: _swapped(call[array], xp) for array in _OPERATION.arrays}
        if "mask" in native and native["mask"] == native.get("bias"):
            call = _in_one(call, xp)
        if convention.mask == "ignore" and call.get("mask") is not None:
            call["mask"] = ~call[
                "mask"
            ]  # raises no error for a mask of integers: the function must refuse it
        # Options that the call does not have are not passed: the function uses its default.
        returned = function(**{native[canonical]: thing for canonical, thing in call.items()})
        given_names = convention.returns or ("output", *wanted)
        parts = dict(zip(given_names, [returned] if len(given_names) == 1 else list(returned), strict=True))
        if convention.layout == "BSHD":
            parts["output"] = _swapped(parts["output"], xp)
        kept = [_without_axes(parts[output], outer, convention.axes) for output in ("output", *wanted)]
        return kept[0] if len(kept) == 1 else tuple(kept)

    run.__signature__ = signature  # type: ignore[attr-defined] # read by inspect
    run.__wrapped__ = function  # type: ignore[attr-defined] # reports show where it is defined
    run.convention = convention  # type: ignore[attr-defined] # marks it as adapted
    return run


def always_given(name: str, function: Callable[..., Any], convention: Convention) -> tuple[str, ...]:
    """Name the options that a function is given in each call of it by `adapted`.

    Examples
    --------
    >>> from attnspec.backends.user.convention import Convention, always_given
    >>> def kernel(query, key, value, *, scale, is_causal=False):
    ...     return query
    >>> always_given("m:kernel", kernel, Convention())
    ('scale',)
    """
    return given_by_default(function, native_names(name, function, convention.names), convention.given)


def _without_always(
    call: dict[str, Any], always: Mapping[str, Any], native: Mapping[str, str]
) -> dict[str, Any]:
    """Decline a call without the options that are always applied; drop those without a parameter."""
    for option, value in always.items():
        if call.get(option, _OPERATION.arguments[option].default) != value:
            raise Unsupported(f"the function always applies {option} = {value}")
    return {option: thing for option, thing in call.items() if option not in always or option in native}


def _in_one(call: dict[str, Any], xp: Any) -> dict[str, Any]:
    """Combine mask and bias into one argument, for a function that tells them apart by the dtype."""
    mask, bias = call.pop("mask", None), call.pop("bias", None)
    if mask is not None and "bool" not in str(mask.dtype):
        raise TypeError(f"mask: expected booleans, got {mask.dtype}, which the function takes as a bias")
    if bias is not None and "float" not in str(bias.dtype):
        raise TypeError(f"bias: expected floating-point numbers, got {bias.dtype}")
    if mask is not None and bias is not None:  # a mask is a bias of minus infinity (MASK-2)
        mask, bias = None, xp.where(mask, bias, -float("inf"))
    return call | {name: x for name, x in (("mask", mask), ("bias", bias)) if x is not None}


def _default(option: str, query: Any) -> Any:
    """Return the specified default of an option."""
    return query.shape[-1] ** -0.5 if option == "scale" else _OPERATION.arguments[option].default


def _swapped(array: Any, xp: Any) -> Any:
    """Exchange the axes of heads and positions, if there are heads."""
    if array.ndim < 3:
        return array
    order = [*range(array.ndim - 3), array.ndim - 2, array.ndim - 3, array.ndim - 1]
    return xp.permute_dims(array, order) if hasattr(xp, "permute_dims") else array.transpose(order)


def _of_axes(call: dict[str, Any], axes: int | None) -> dict[str, Any]:
    """Add leading axes; arrays with different numbers of axes stay, for the function to refuse."""
    found = {call[array].ndim for array in _OPERATION.arrays}
    if axes is None or found == {axes} or len(found) > 1 or min(found) < 2:
        return dict(call)
    (got,) = found
    if got > axes:
        raise Unsupported(f"the function takes only arrays of {axes} axes, got {got}")
    call = dict(call)
    for array in _OPERATION.arrays:
        call[array] = call[array].reshape((1,) * (axes - got) + tuple(call[array].shape))
    if axes == 4:  # a batch axis may have been added
        for option in _BY_ENTRY:
            if getattr(call.get(option), "shape", None) is not None and call[option].ndim < 2:
                call[option] = call[option].reshape((1, *call[option].shape))
    return call


def _without_axes(array: Any, outer: tuple[int, ...], axes: int | None) -> Any:
    """Remove the leading axes that `_of_axes` added."""
    added = 0 if axes is None else axes - 2 - len(outer)
    if added <= 0 or tuple(array.shape[:added]) != (1,) * added:
        return array
    return array.reshape(tuple(array.shape[added:]))
