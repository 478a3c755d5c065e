"""Codes in the dtype, and their scales and zero points in the one shape, that a function takes."""

from collections.abc import Mapping, Sequence
from math import lcm
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import Operation
from attnspec.backends.errors import Unsupported
from attnspec.backends.library.library import device_of

#: What has a scale of its own, coarsest first: the whole tensor, each head of all batch entries, each head of
#: each entry, each token of each head.
GRANULARITIES = ("tensor", "shared", "head", "token")
#: The same without axes of 1.
FLAT: Mapping[str, str] = MappingProxyType(
    {"number": "tensor", "flat-shared": "shared", "flat-head": "head", "flat-token": "token"}
)
#: The end of the names of scales, and of all that codes are decoded with.
SCALES = "_scales"
_OF_CODES = (SCALES, "_zero_points")
#: The values of the key `codes`.
FLOAT8, INT8, UINT8 = "float8", "int8", "uint8"
#: The least and the largest code of the dtypes of bytes.
_RANGES = {INT8: (-128, 127), UINT8: (0, 255)}
#: The size that is the number of tokens of each scale.
GROUP = "group"
#: The encodings for which libraries have such a dtype.
ENCODINGS = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz")
#: The ends of the names of codes; pages may hold numbers.
CODES = ("codes", "_pages")
_OF_BYTES = (*CODES, "_zero_points", "packed")


def codes_of(option: str, call: Mapping[str, Any]) -> str:
    """Return the name of the codes that scales or zero points belong to."""
    base = option.removesuffix(SCALES).removesuffix("_zero_points")
    return f"{base}_codes" if f"{base}_codes" in call else f"{base}_pages"


def shape_of(granularity: str, codes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the scales of codes ``(.., S, D)``."""
    whole = tuple(codes)
    sizes = {"tensor": (), "shared": (*whole[-3:-2], 1), "head": (*whole[:-2], 1), "token": whole[:-1]}
    return (*sizes[granularity], 1)


def misfit_of(granularity: str, call: Mapping[str, Any]) -> str:
    """Return the reason that scales of a call do not have a granularity; empty if they have it."""
    for name in (name for name in call if name.endswith(_OF_CODES) and call[name] is not None):
        codes, scales = call.get(codes_of(name, call)), call[name]
        if codes is None:
            continue
        shape = shape_of(granularity, codes.shape)
        if len(scales.shape) > len(codes.shape) or not _can_repeat(scales.shape, shape):
            part = {"tensor": "the whole tensor", "shared": "each head of all batch entries"}.get(
                granularity, f"each {granularity}"
            )
            return f"takes one scale for {part}, got {name} of {tuple(scales.shape)}"
    return ""


def with_scales(call: Mapping[str, Any], kind: str, xp: Any, *, grouped: bool = False) -> dict[str, Any]:
    """Repeat scales and zero points to the shape that a function takes. Those that are finer are declined.

    Those of groups of tokens are repeated to the same groups of keys and values.
    """
    granularity = FLAT.get(kind, kind)
    if not granularity:
        return dict(call)
    if misfit := misfit_of(granularity, call):
        raise Unsupported(misfit)
    given = {name: x for name, x in call.items() if name.endswith(_OF_CODES) and x is not None}
    shapes = {
        name: shape_of(granularity, call[codes_of(name, call)].shape)
        for name in given
        if codes_of(name, call) in call
    }
    if grouped and granularity == "token":
        groups = lcm(*(_aligned(given[name].shape, shape)[-2] for name, shape in shapes.items()))
        shapes = {name: (*shape[:-2], groups, 1) for name, shape in shapes.items()}
    return dict(call) | {name: repeat(given[name], shape, xp) for name, shape in shapes.items()}


def without_ones(call: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Drop the axes of 1 that scales and zero points of a flat kind have, in either layout."""
    given = {name: x for name, x in call.items() if name.endswith(_OF_CODES) and x is not None}
    flat = {}
    for name, x in given.items():
        outer, inner = tuple(x.shape[:-3]), tuple(x.shape[-3:-1])
        if kind in ("flat-shared", "flat-head") and len(inner) < 2:
            raise Unsupported(f"takes one scale for each head, got {name} of a call without an axis of heads")
        shape = {"number": (), "flat-token": (*outer, *inner)}.get(kind, (*outer, max(inner, default=1)))
        flat[name] = x.reshape(shape)
    return dict(call) | flat


def repeat(array: Any, shape: Sequence[int], xp: Any) -> Any:
    """Repeat an array along its axes to a shape. An axis of blocks is repeated within each block."""
    sizes = _aligned(array.shape, shape)
    split = [
        number for size, whole in zip(sizes, shape, strict=True) for number in (size, whole // max(size, 1))
    ]
    parts = [number for size in sizes for number in (size, 1)]
    ones = xp.ones(split, dtype=array.dtype, **device_of(array))
    # A view of repeated elements could have strides that kernels do not read.
    return xp.reshape(xp.reshape(array, parts) * ones, tuple(shape))


def _can_repeat(own: Sequence[int], shape: Sequence[int]) -> bool:
    longer = len(own) - len(shape)
    if any(size != 1 for size in own[: max(longer, 0)]):
        return False
    sizes = _aligned(own, shape)
    return all(
        size == whole or (0 < size <= whole and whole % size == 0)
        for size, whole in zip(sizes, shape, strict=True)
    )


def _aligned(own: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return the sizes of axes that are aligned at the last axis of a shape."""
    last = list(own)[max(len(own) - len(shape), 0) :]
    return [1] * (len(shape) - len(last)) + last


def with_own_codes(
    call: Mapping[str, Any], form: Operation, kind: str, encoding: str, xp: Any
) -> dict[str, Any]:
    """Pass codes as numbers of 8 bits or as bytes of one dtype, in the same memory: a change is seen."""
    codes = {own for own in call if own.endswith(CODES) and form.arguments[own].numbers == "integer"}
    if kind in _RANGES:
        bits = kind == INT8 or encoding in ENCODINGS
        return {own: _as_bytes(x, kind, xp, bits=bits) if own in codes else x for own, x in call.items()}
    if encoding not in ENCODINGS:
        raise Unsupported(f"the function takes codes as numbers of 8 bits, got {encoding}")
    name = f"float8_{encoding}"
    dtype = getattr(xp, name, None) or np.dtype(name)
    return {own: x.view(dtype) if own in codes else x for own, x in call.items()}


def in_integers(call: Mapping[str, Any], kind: str, form: Operation, xp: Any) -> dict[str, Any]:
    """Pass integers that are no codes as int32, if asked, and decline those that it does not hold."""
    if not kind:
        return dict(call)
    integers = {
        name: x
        for name, x in call.items()
        if "int" in str(getattr(x, "dtype", ""))
        and not name.endswith(_OF_BYTES)
        and form.arguments[name].shape
    }
    if any(
        0 not in x.shape and not -(2**31) <= int(xp.min(x)) <= int(xp.max(x)) < 2**31
        for x in integers.values()
    ):
        raise Unsupported("the function takes integers as int32, got one that int32 does not hold")
    return {**call, **{name: xp.astype(x, xp.int32, copy=False) for name, x in integers.items()}}


def _as_bytes(codes: Any, kind: str, xp: Any, *, bits: bool) -> Any:
    """Return codes in a dtype of bytes, and what holds no integers as it is, which the function must reject.

    Those of a wider dtype are copied, so that a change of them is not seen. Those of bits may be negative.
    """
    name, dtype = str(codes.dtype).rpartition(".")[2], getattr(xp, kind)
    if name == kind or "int" not in name:
        return codes
    if kind == UINT8 and name == INT8 and bits:
        return codes.view(dtype)
    least, most = _RANGES[kind]
    if 0 not in codes.shape and not least <= int(xp.min(codes)) <= int(xp.max(codes)) <= most:
        raise Unsupported(
            f"the function takes codes as {kind}, got {name} with a code that {kind} does not hold"
        )
    return codes.view(dtype) if name in _RANGES else xp.astype(codes, dtype)
