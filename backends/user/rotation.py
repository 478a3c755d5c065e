"""Kernels that rotate queries and keys themselves, which no key describes: by angles, or by their base."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from attnspec.backends.user.wrappers import fill_wrapper
from attnspec.operations.aliases import BASES, meant
from attnspec.reference import rotary

#: The wrapper. Quarter turns are exact in every dtype.
_WRAPPER = """
import numpy as np
import {package} as xp
from {module} import {first}


def attention({signature}):
    (L, D), S = query.shape[-2:], key.shape[-2]
    if L > S or D % 2 or xp.isinf(query).any() or xp.isinf(key).any():
        raise NotImplementedError("the last query is at the last key, pairs have two finite features")
    turns = np.random.default_rng(0).integers(0, 4, (S, D // 2))  # quarter turns
    like = {{"dtype": query.dtype, "device": query.device}}
    cos, sin = (xp.asarray(np.array(x)[turns], **like) for x in ([1, 0, -1, 0], [0, 1, 0, -1]))  # (S, D / 2)

    def back(x, cos, sin):
        a, b = x[..., ::2], x[..., 1::2]  # of halves: x[..., : D // 2], x[..., D // 2 :], joined so
        return xp.stack([a * cos + b * sin, b * cos - a * sin], -1).reshape(x.shape)

    query, key = back(query, cos[S - L :], sin[S - L :]), back(key, cos, sin)
    return {function}({arguments})
"""

#: The words of parameters that are about a rotation, and of those that say which part of a depth it turns.
_OF_ROTATIONS = {"rope", "rotary", "rot", "rotate"}
_PARTS = {"dim", "dims", "ndims", "size", "pct", "percent", "percentage", "fraction", "factor"}
#: What can be judged of a kernel that rotates and attends in one call, which no operation does.
_INSTEAD = (
    "no operation rotates and attends in one call: judge a function of it that takes rotated queries and "
    'keys, and the rotation of `features` alone, with operation = "rotary"'
)


def rotation_by_base(
    function: Callable[..., Any], arrays: Mapping[str, Any], agrees: Callable[[Mapping[str, Any]], bool]
) -> str:
    """Say of a function that computes no attention that it rotates queries and keys, by a base that it takes.

    `agrees` tells whether its results are those of the reference for other arrays.
    """
    parameters = inspect.signature(function).parameters
    own = next((name for name in parameters if name.lower() in BASES), "")
    if not own:
        return ""
    base, pairs = parameters[own].default, ("halves", "neighbours")
    queries, keys = (arrays[name].shape[-2] for name in ("query", "key"))
    places = {"the first query at the first key": 0, "the last query at the last key": keys - queries}
    for (place, first), kind in product(places.items(), pairs if isinstance(base, int | float) else ()):
        starts = {"query": first, "key": 0}
        turned = {
            name: rotary(arrays[name], offset=start, base=base, interleaved=kind == "neighbours")
            for name, start in starts.items()
        }
        if agrees({**arrays, **turned}):
            seen = f"it rotates queries and keys (pairs of {kind}, {place})"
            return f"; {own}: {seen}, and is right apart from this; {_INSTEAD}"
    positions = next((name for name in parameters if "query_positions" in meant(name)), "")
    beside = f"; or a wrapper that passes zeros as {positions}, by which nothing rotates" if positions else ""
    return f"; {own} promises a rotation of queries and keys, which no case expects; {_INSTEAD}{beside}"


def neutral_values(function: Callable[..., Any]) -> dict[str, tuple[Any, str]]:
    """Map the parameters that may turn a rotation off to the value that does so, and the reason to write."""
    neutral: dict[str, tuple[Any, str]] = {}
    for own, parameter in inspect.signature(function).parameters.items():
        words, default = {*own.lower().split("_")}, parameter.default
        if not words & _OF_ROTATIONS or default is parameter.empty or default in (0, False):
            continue
        if default is True or words & _PARTS:
            why = f"so that it does not rotate; {_INSTEAD}"
            neutral[own] = (False if default is True else type(default)(0) if default else 0, why)
    return neutral


def wrapper_of_angles(
    name: str, function: Callable[..., Any], native: Mapping[str, str], angles: Sequence[str]
) -> str:
    """Return a wrapper that rotates queries and keys backwards before a function rotates them."""
    parameters = inspect.signature(function).parameters
    given = {own: ours for ours, own in native.items()}
    guesses = {own: meant(own) for own in parameters if own not in (*given, *angles)}
    given |= {own: ours[0] for own, ours in guesses.items() if ours and ours[0] not in native}
    given |= {own: "sin" if "sin" in own and "cos" not in own else "cos" for own in angles}
    given |= {own: "(cos, sin)" for own in angles if not {"cos", "sin"} & {*own.split("_")}}
    return fill_wrapper(_WRAPPER, name, function, given, without=angles)
