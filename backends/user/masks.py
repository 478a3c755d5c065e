"""Masks as a function takes them: inverted, in one argument with a bias, or of keys alone."""

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from attnspec.backends.errors import Unsupported
from attnspec.backends.user.convention import Convention


def _inverted(mask: Any) -> Any:
    """Invert a mask; one of integers too, which the function must reject."""
    if not any(kind in str(mask.dtype) for kind in ("bool", "int")):
        raise Unsupported(f"the function takes an inverted mask, and {mask.dtype} cannot be inverted")
    return ~mask


def merge_mask_and_bias(call: dict[str, Any], xp: Any) -> dict[str, Any]:
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


def with_own_mask(
    call: dict[str, Any], convention: Convention, taken: Container[str], xp: Any
) -> dict[str, Any]:
    """Write the mask as the function reads it. `taken` has the options that it takes."""
    call = _with_mask_of_keys(call, taken, xp) if convention.mask_of_keys else call
    if convention.mask == "ignore" and call.get("mask") is not None:
        return call | {"mask": _inverted(call["mask"])}
    return call


def _with_mask_of_keys(call: Mapping[str, Any], taken: Container[str], xp: Any) -> dict[str, Any]:
    """Write a mask, and lengths that the function does not take, as one boolean for each key, ``(*B, S)``."""
    call = dict(call)
    mask = call.pop("mask", None)
    lengths = None if "key_lengths" in taken else call.pop("key_lengths", None)
    if mask is None and lengths is None:
        return call
    keys = call["key"].shape[-2]
    allowed = np.ones((*call["query"].shape[:-3], keys), dtype=bool)
    try:
        allowed &= True if mask is None else _of_keys(mask)
    except ValueError:
        raise Unsupported(f"the function takes a mask of keys, got the shape {tuple(mask.shape)}") from None
    if lengths is not None:
        numbers = np.asarray(lengths.tolist() if hasattr(lengths, "tolist") else lengths)
        if numbers.dtype.kind not in "iu" or numbers.min(initial=0) < 0 or numbers.max(initial=0) > keys:
            raise Unsupported("the function takes lengths as a mask, got none from 0 to the number of keys")
        allowed &= np.arange(keys) < numbers[..., None]
    device = getattr(call["query"], "device", "cpu")
    there = {} if device == "cpu" else {"device": device}
    return call | {"mask": xp.asarray(allowed, **there)}


def _of_keys(mask: Any) -> Any:
    """Return the row of a mask that is the same for all queries and heads, ``(*B, S)`` or fewer axes."""
    rows = np.atleast_2d(mask if isinstance(mask, np.ndarray) else mask.tolist())
    if rows.dtype != bool:
        raise Unsupported(f"the function takes a mask of keys, got one of {mask.dtype}")
    first = rows[..., :1, :1, :] if rows.ndim > 2 else rows[..., :1, :]
    if not np.array_equal(np.broadcast_to(first, rows.shape), rows):
        raise Unsupported("the function takes a mask of keys, got one that differs between queries or heads")
    return first[..., 0, 0, :] if rows.ndim > 2 else first[..., 0, :]
