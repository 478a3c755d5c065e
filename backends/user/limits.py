"""Infers which axes, heads, depths of values and dtypes a function of attention takes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.user.calls import B, Calls, H, L, S
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.description import infer_dtypes

#: The depth of calls that show whether values may have another one.
_PLAINEST = 4


def infer_axes(calls: Calls, convention: Convention, why: dict[str, str]) -> Convention:
    """Infer the numbers of axes that it takes."""
    if "axes" in calls.known.keys:
        return convention
    if convention.axes == 3:
        why["axes"] = "it raised an error with four axes, and not with three"
        return convention
    for fewer in (1, 2):
        arrays = {name: x[(0,) * fewer] for name, x in calls.arrays.items()}
        got = calls.run(convention, arrays)
        if got is None or not calls.agrees(got, arrays):
            why["axes"] = f"with {4 - fewer} axes it raised an error or did not compute attention"
            return replace(convention, axes=4)
    return replace(convention, axes=None)


def infer_limits(calls: Calls, convention: Convention, why: dict[str, str]) -> Mapping[str, Any]:
    """Infer from calls that raise which heads, depths of values and dtypes it takes."""
    random = np.random.default_rng(1)
    dtype, depth = str(calls.arrays["query"].dtype), calls.depth

    def raises(heads: int, key_heads: int, value_depth: int, dtype: str) -> bool:
        shapes = ((heads, L, depth), (key_heads, S, depth), (key_heads, S, value_depth))
        arrays = {
            name: random.normal(size=(B, *shape)).astype(dtype)
            for name, shape in zip(OPERATIONS["attention"].arrays, shapes, strict=True)
        }
        return calls.run(convention, calls.drop_batch(convention, arrays)) is None

    limits: dict[str, Any] = {}
    if raises(4, 2, depth, dtype):
        limits["heads"] = "equal"
        why["heads"] = "it raised an error with two key heads for four query heads"
    if depth == _PLAINEST and raises(H, H, depth + 2, dtype):
        limits["value_depth"] = "key"
        why["value_depth"] = "it raised an error with values of another depth"
    limits |= infer_dtypes(calls.backend, dtype, lambda name: not raises(H, H, depth, name), why)
    return limits
