"""Conditions on the arguments of a call, for the field `when` of a deviation, and common deviations."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attnspec.backends.deviation import Deviation

Arguments = Mapping[str, Any]


def has_nan_query(arguments: Arguments) -> bool:
    """Whether a query has a NaN."""
    return bool(np.isnan(arguments["query"]).any())


def has_infinity(arguments: Arguments) -> bool:
    """Whether a query or a key has an infinity."""
    return bool(np.isinf(arguments["query"]).any() or np.isinf(arguments["key"]).any())


def has_mask_or_bias(arguments: Arguments) -> bool:
    """Whether a call has an `attn_mask` in PyTorch."""
    return "mask" in arguments or "bias" in arguments


def is_masked(arguments: Arguments) -> bool:
    """Whether a call in PyTorch may disallow keys."""
    return has_mask_or_bias(arguments) or bool(arguments.get("is_causal"))


def has_no_keys(arguments: Arguments) -> bool:
    """Whether there are no keys."""
    return bool(arguments["key"].shape[-2] == 0)


def has_scale_of_zero(arguments: Arguments) -> bool:
    """Whether the given scale is 0."""
    return bool(arguments.get("scale") == 0)


def has_empty_axis(arguments: Arguments) -> bool:
    """Whether queries or keys have no elements."""
    return 0 in arguments["query"].shape or 0 in arguments["key"].shape


def has_several_dtypes(arguments: Arguments) -> bool:
    """Whether queries, keys and values differ in their dtypes."""
    return len({arguments[name].dtype for name in ("query", "key", "value")}) > 1


def may_disallow(arguments: Arguments) -> bool:
    """Whether a call may disallow keys."""
    return is_masked(arguments) or "key_lengths" in arguments or "window" in arguments


def has_other_heads_of_value(arguments: Arguments) -> bool:
    """Whether values and keys differ in their number of heads."""
    return bool(arguments["key"].shape[-3] != arguments["value"].shape[-3])


def has_other_length_of_value(arguments: Arguments) -> bool:
    """Whether values and keys differ in number."""
    return bool(arguments["key"].shape[-2] != arguments["value"].shape[-2])


def has_repeated_batch_entry(arguments: Arguments) -> bool:
    """Whether queries and keys have batch axes of other sizes, one of which is 1."""
    query, key = (arguments[name].shape[:-3] for name in ("query", "key"))
    return query != key and all(
        one == other or 1 in (one, other) for one, other in zip(query, key, strict=False)
    )


def has_overflowing_score(arguments: Arguments, working: str = "float32") -> bool:
    """Whether queries and keys are finite and a score may overflow."""
    query, key = (arguments[name] for name in ("query", "key"))
    if not query.size or not key.size or not np.isfinite(query).all() or not np.isfinite(key).all():
        return False
    dtype = np.dtype(working) if query.dtype.itemsize == 2 else query.dtype
    # Logarithms, because a product of float64 may overflow.
    with np.errstate(divide="ignore"):
        top = sum(float(np.log2(np.abs(array.astype(np.float64)).max())) for array in (query, key))
    return bool(top + np.log2(query.shape[-1]) > np.log2(float(np.finfo(dtype).max)))


def has_bias_beyond_differences(arguments: Arguments, largest: float) -> bool:
    """Whether the bias has a finite number of at least the given magnitude."""
    bias = arguments.get("bias")
    if bias is None:
        return False
    finite = bias[np.isfinite(bias)]
    return bool(finite.size and np.abs(finite.astype(np.float64)).max() >= largest)


def has_row_below(arguments: Arguments, largest: float) -> bool:
    """Whether the bias of all keys of a query is finite and below minus a number."""
    bias = arguments.get("bias")
    if bias is None:
        return False
    low = np.isfinite(bias) & (bias.astype(np.float64) < -largest)
    return bool(low.all(axis=-1).any())


def has_empty_row_of_mask(arguments: Arguments) -> bool:
    """Whether a mask is given and a query has no key that it, the bias and causality allow."""
    if "mask" not in arguments:
        return False
    allowed = arguments["mask"]
    if "bias" in arguments:
        allowed = allowed & ~np.isneginf(arguments["bias"].astype(np.float64))
    if arguments.get("is_causal"):
        pairs = arguments["query"].shape[-2], arguments["key"].shape[-2]
        allowed = allowed & np.tri(*pairs, dtype=bool)
    return not allowed.any(axis=-1).all()


def has_row_of_minus_infinity(arguments: Arguments) -> bool:
    """Whether the bias disallows all keys of a query."""
    bias = arguments.get("bias")
    return bias is not None and bool(np.isneginf(bias.astype(np.float64)).all(axis=-1).any())


def has_queries_without_keys(arguments: Arguments) -> bool:
    """Whether a packed call has a sequence with queries and no keys."""
    queries, keys = (np.diff(arguments[f"{of}_starts"]) for of in ("query", "key"))
    return bool(((queries > 0) & (keys == 0)).any())


def bias_overflow(source: str, working: str = "float32", rules: tuple[str, ...] = ("MASK-12",)) -> Deviation:
    """Declare that a bias of minus infinity is added to scores that may be infinite."""
    return Deviation(
        rules,
        "a bias of minus infinity is added, and the score of a finite key may be infinite: the row is NaN",
        source,
        when=lambda arguments: "bias" in arguments and has_overflowing_score(arguments, working),
    )


def mask_overflow(
    source: str,
    masked: Callable[[Arguments], bool],
    working: str = "float32",
    rules: tuple[str, ...] = ("MASK-12",),
) -> Deviation:
    """Declare that a mask is added to scores that may be infinite."""
    return Deviation(
        rules,
        "a mask is added, and the score of a finite key may be infinite: the row is NaN",
        source,
        when=lambda arguments: masked(arguments) and has_overflowing_score(arguments, working),
    )


def repeated_batch(source: str) -> Deviation:
    """Declare that one batch entry of keys and values is repeated."""
    reason = "keys and values of one batch entry are repeated"
    return Deviation(("SHAPE-6",), reason, source, when=has_repeated_batch_entry)


def empty_row_gradient(source: str) -> Deviation:
    """Declare that a row of biases of minus infinity spoils the gradients of its head."""
    reason = "if all keys of a query have a bias of minus infinity, gradients of its head are NaN"
    return Deviation(("GRAD-10",), reason, source, when=has_row_of_minus_infinity)
