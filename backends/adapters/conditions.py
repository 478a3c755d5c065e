"""What calls have in common that a deviation is said of, told by their arguments."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Arguments = Mapping[str, Any]


def has_nan_query(arguments: Arguments) -> bool:
    """Tell whether a query has a NaN."""
    return bool(np.isnan(arguments["query"]).any())


def has_mask_or_bias(arguments: Arguments) -> bool:
    """Tell whether a call has what PyTorch calls its mask."""
    return "mask" in arguments or "bias" in arguments


def is_masked(arguments: Arguments) -> bool:
    """Tell whether a call has something that disallows keys, of what PyTorch has."""
    return has_mask_or_bias(arguments) or bool(arguments.get("is_causal"))


def has_other_heads_of_value(arguments: Arguments) -> bool:
    """Tell whether values and keys differ in their number of heads."""
    return bool(arguments["key"].shape[-3] != arguments["value"].shape[-3])


def has_other_length_of_value(arguments: Arguments) -> bool:
    """Tell whether there are more or fewer values than keys."""
    return bool(arguments["key"].shape[-2] != arguments["value"].shape[-2])


def has_overflowing_score(arguments: Arguments, working: str = "float32") -> bool:
    """Tell whether queries and keys are finite, and a product of theirs may be infinite all the same.

    Parameters
    ----------
    arguments : mapping
    working : str, optional
        The dtype that half precision is computed in; the others are computed in their own.

    Examples
    --------
    >>> from attnspec.backends.adapters.conditions import has_overflowing_score
    >>> one, large = np.ones((1, 1), np.float16), np.full((1, 1), 60000, np.float16)
    >>> has_overflowing_score({"query": one + one, "key": large})
    False
    >>> has_overflowing_score({"query": one + one, "key": large}, "float16")
    True
    """
    query, key = (arguments[name] for name in ("query", "key"))
    if not query.size or not key.size or not np.isfinite(query).all() or not np.isfinite(key).all():
        return False
    dtype = np.dtype(working) if query.dtype.itemsize == 2 else query.dtype
    # As logarithms: a product of float64 has no wider type to be told in.
    with np.errstate(divide="ignore"):
        top = sum(float(np.log2(np.abs(array.astype(np.float64)).max())) for array in (query, key))
    return bool(top + np.log2(query.shape[-1]) > np.log2(float(np.finfo(dtype).max)))


def has_bias_beyond_differences(arguments: Arguments, largest: float) -> bool:
    """Tell whether a finite number of the bias is so large that a dtype has none but large steps there."""
    bias = arguments.get("bias")
    if bias is None:
        return False
    finite = bias[np.isfinite(bias)]
    return bool(finite.size and np.abs(finite.astype(np.float64)).max() >= largest)
