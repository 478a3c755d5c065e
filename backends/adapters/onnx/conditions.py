"""Conditions on the arguments of a call, for the deviations of ONNX Runtime."""

import numpy as np

from attnspec.backends.adapters.conditions import Arguments, has_overflowing_score, is_masked


def has_empty_axis(arguments: Arguments) -> bool:
    """Whether queries or keys have no elements."""
    return 0 in arguments["query"].shape or 0 in arguments["key"].shape


def has_scale_of_zero(arguments: Arguments) -> bool:
    """Whether the given scale is 0."""
    return bool(arguments.get("scale") == 0)


def has_scale_without_short_root(arguments: Arguments) -> bool:
    """Whether the square root of the given scale is no number of float32.

    Examples
    --------
    >>> from attnspec.backends.adapters.onnx.conditions import has_scale_without_short_root
    >>> [has_scale_without_short_root({"scale": scale}) for scale in (0.25, 0.5)]
    [False, True]
    """
    scale = arguments.get("scale")
    return scale is not None and scale > 0 and float(np.sqrt(np.float32(scale))) ** 2 != scale


def has_causality_over_more_keys(arguments: Arguments) -> bool:
    """Whether a causal call has more keys than queries."""
    more = arguments["key"].shape[-2] > arguments["query"].shape[-2]
    return bool(arguments.get("is_causal") and more)


def may_overflow(arguments: Arguments) -> bool:
    """Whether the score of a disallowed key may be infinite, in half precision if the inputs have it."""
    masked = is_masked(arguments) or "key_lengths" in arguments or "window" in arguments
    return masked and has_overflowing_score(arguments, "float16")
