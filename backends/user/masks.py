"""Masks as a function takes them: inverted, in one argument with a bias, or of keys alone."""

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from attnspec.backends.errors import Unsupported
from attnspec.backends.library.library import device_of, reshape
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.slopes import relative_positions_of


def _inverted(mask: Any) -> Any:
    """Invert a mask; one of integers too, which the function must reject."""
    if not any(kind in str(mask.dtype) for kind in ("bool", "int")):
        raise Unsupported(f"the function takes an inverted mask, and {mask.dtype} cannot be inverted")
    return ~mask


def _merge_mask_and_bias(call: dict[str, Any], xp: Any) -> dict[str, Any]:
    """Combine mask and bias into one argument, for a function that tells them apart by the dtype."""
    none = {"mask": None} if "mask" in call else {}
    mask, bias = call.pop("mask", None), call.pop("bias", None)
    for name, array, kind in (("mask", mask, "bool"), ("bias", bias, "float")):
        if array is not None and kind not in str(array.dtype):
            raise Unsupported(
                f"the function tells mask and bias apart by the dtype: a {name} of {array.dtype} "
                "cannot be passed"
            )
    if mask is not None and bias is not None:  # a mask is a bias of minus infinity (MASK-2)
        mask, bias = None, xp.where(mask, bias, -float("inf"))
    return call | ({name: x for name, x in (("mask", mask), ("bias", bias)) if x is not None} or none)


def with_own_mask(
    call: dict[str, Any], convention: Convention, taken: Mapping[str, str], xp: Any
) -> dict[str, Any]:
    """Write the mask as the function reads it. `taken` has its names of the options that it takes."""
    if "mask" in taken and taken["mask"] == taken.get("bias"):
        call = _merge_mask_and_bias(call, xp)
    blocks = call.get("block_mask")
    if convention.mask_axes and blocks is not None:
        call = call | {"block_mask": _of_all_entries(call, convention.mask_axes, xp)}
    elif blocks is not None:
        blocks = _of_all_blocks(call, xp) if convention.mask_pairs else blocks
        ones = (1,) * ((convention.axes or 0) - blocks.ndim)
        call = call | {"block_mask": reshape(blocks, (*ones, *blocks.shape)) if ones else blocks}
    call = _with_causality(call, convention, xp) if convention.causal_in_mask else call
    if convention.mask_of_keys:
        call = _with_mask_of_keys(call, taken, xp, whole=convention.mask_of_keys == "also")
    if convention.mask != "attend" and call.get("mask") is not None:
        add = convention.mask == "add"
        return call | {"mask": _as_bias(call, xp) if add else _inverted(call["mask"])}
    return call


def _of_all_entries(call: Mapping[str, Any], axes: int, xp: Any) -> Any:
    """Return a mask of whole blocks with a number of axes, if those before them are axes of 1."""
    shape, query = tuple(call["block_mask"].shape), call["query"]
    blocks = np.asarray(call["block_mask"].tolist(), dtype=None if 0 not in shape else bool).reshape(shape)
    if max(shape[:-axes], default=1) > 1:
        raise Unsupported(f"the function takes a mask of blocks of {axes} axes, got {shape}")
    sized = (*query.shape[:-2], *_numbers_of_blocks(call))[-axes:]
    try:
        of_one = np.ones(sized, bool) if 0 in shape[:-axes] else blocks.reshape(shape[-axes:])
        whole = np.broadcast_to(of_one, sized)
    except ValueError:
        return call["block_mask"]  # for the function to refuse
    return xp.asarray(np.ascontiguousarray(whole), **device_of(query))


def _numbers_of_blocks(call: Mapping[str, Any]) -> tuple[int, int]:
    """Return the numbers of blocks of queries and of keys."""
    queries, keys = (-(-call[x].shape[-2] // call[f"{x}_block"]) for x in ("query", "key"))
    return queries, keys


def _of_all_blocks(call: Mapping[str, Any], xp: Any) -> Any:
    """Return a mask of blocks with copies for each pair of blocks; for the function to refuse if none fit."""
    blocks = call["block_mask"]
    try:
        # A sum, because a view has no memory of its own for the copies.
        return blocks | xp.zeros(_numbers_of_blocks(call), dtype=blocks.dtype, **device_of(blocks))
    except (RuntimeError, TypeError, ValueError):
        return blocks


def _as_bias(call: Mapping[str, Any], xp: Any) -> Any:
    """Write a mask as numbers that are added to the scores (MASK-2)."""
    if "bool" not in str(call["mask"].dtype):
        raise Unsupported(f"the function adds a mask to the scores, and {call['mask'].dtype} is no mask")
    of_query = {"dtype": call["query"].dtype, **device_of(call["query"])}
    return xp.where(call["mask"], *(xp.asarray(x, **of_query) for x in (0.0, -float("inf"))))


def _with_causality(call: dict[str, Any], convention: Convention, xp: Any) -> dict[str, Any]:
    """Write causality into the mask and the bias of a call that has one."""
    there = [name for name in ("mask", "bias") if call.get(name) is not None]
    if not there or call.get("is_causal") is not True:
        return call
    pairs = relative_positions_of(call, from_end=convention.from_end) <= 0  # (*B, L, S)
    pairs = pairs[..., None, :, :] if pairs.ndim > 2 else pairs
    earlier = xp.asarray(pairs, **device_of(call["query"]))
    low = {"mask": False, "bias": -float("inf")}
    written = {name: xp.where(earlier, call[name], low[name]) for name in there}
    return call | written | {"is_causal": False}


def _with_mask_of_keys(
    call: Mapping[str, Any], taken: Container[str], xp: Any, *, whole: bool
) -> dict[str, Any]:
    """Write a mask, and lengths that the function does not take, as one boolean for each key, ``(*B, S)``.

    If the function takes whole masks also, another mask has four axes.
    """
    separate = "key_lengths" in taken or "key_lengths" not in call
    if whole and separate and call.get("mask") is not None:
        try:
            _of_keys(call["mask"])
        except Unsupported:
            mask = call["mask"]
            return {**call, "mask": reshape(mask, (1,) * (4 - mask.ndim) + tuple(mask.shape))}
    call = dict(call)
    absent = {"mask": None} if "mask" in call else {}
    mask = call.pop("mask", None)
    lengths = None if "key_lengths" in taken else call.pop("key_lengths", None)
    if mask is None and lengths is None:
        return call | absent
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
    return call | {"mask": xp.asarray(allowed, **device_of(call["query"]))}


def _of_keys(mask: Any) -> Any:
    """Return the row of a mask that is the same for all queries and heads, ``(*B, S)`` or fewer axes."""
    rows = np.atleast_2d(mask if isinstance(mask, np.ndarray) else mask.tolist())
    if rows.dtype != bool:
        raise Unsupported(f"the function takes a mask of keys, got one of {mask.dtype}")
    first = rows[..., :1, :1, :] if rows.ndim > 2 else rows[..., :1, :]
    if not np.array_equal(np.broadcast_to(first, rows.shape), rows):
        raise Unsupported("the function takes a mask of keys, got one that differs between queries or heads")
    return first[..., 0, 0, :] if rows.ndim > 2 else first[..., 0, :]
