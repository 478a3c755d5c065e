"""Infers which axes, heads, depths of values and dtypes a function of attention takes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.user.calls import LENGTHS, B, Calls
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.description import infer_dtypes
from attnspec.backends.user.enough_keys import infer_enough_keys
from attnspec.operations.aliases import SIZES

#: The depth of calls that show whether values may have another one.
_PLAINEST = 4
#: Depths that show a function which takes even ones only, and those that are then tried.
_ODD, _EVEN = (3, 5), (2, 4, 6, 8, 16, 32, 64)


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
        if got is None or not (calls.by_distance or calls.agrees(got, arrays)):
            why["axes"] = f"with {4 - fewer} axes it raised an error or did not compute attention"
            return replace(convention, axes=4)
    return replace(convention, axes=None)


def infer_shared_heads(calls: Calls, convention: Convention, why: dict[str, str]) -> Convention:
    """Pass whether query heads share key heads, if the function takes such a call with a flag for it."""
    flags = (own for own in calls.guesses if own.lower() in SIZES["shared_heads"])
    own = next(flags, "") if "sizes" not in calls.known.keys else ""
    arrays = {"query": calls.arrays["query"], **{x: calls.arrays[x][:, :1] for x in ("key", "value")}}
    named = replace(convention, sizes={**convention.sizes, "shared_heads": own})
    if not own or convention.axes == 3 or calls.run(named, arrays) is None:
        return convention
    why["sizes"] = "with it the function takes shared key heads"
    return named


def infer_limits(calls: Calls, convention: Convention, why: dict[str, str]) -> Mapping[str, Any]:
    """Infer from calls that raise which heads, depths of values and dtypes it takes."""
    random = np.random.default_rng(1)
    dtype, depth, heads = str(calls.arrays["query"].dtype), calls.depth, calls.heads

    def misfit(heads: int, key_heads: int, value_depth: int, dtype: str, depth: int = depth) -> str:
        """Return what a call shows that the function does not take; empty if it takes the call."""
        queries, keys = calls.lengths
        shapes = ((heads, queries, depth), (key_heads, keys, depth), (key_heads, keys, value_depth))
        arrays = {
            name: random.normal(size=(B, *shape)).astype(dtype)
            for name, shape in zip(OPERATIONS["attention"].arrays, shapes, strict=True)
        }
        arrays = calls.drop_batch(convention, arrays)
        if (got := calls.run(convention, arrays)) is None:
            return "raised an error"
        output = got["output"]
        if output.shape != (*arrays["query"].shape[:-1], value_depth):
            return "returned an output of another shape"
        if output.dtype == np.float32 and dtype == "float64":
            return "returned float32"
        calls.beyond = 1.0
        again, calls.beyond = calls.run(convention, arrays), np.nan
        same = again is not None and np.array_equal(output, again["output"], equal_nan=True)
        return "" if same else "read past the end of an array"

    def takes(dtype: str, *, right: bool = False) -> bool:
        if not right:
            return not misfit(heads, heads, depth, dtype)
        arrays = {x: y.astype(dtype) for x, y in calls.drop_batch(convention, calls.arrays).items()}
        got = calls.run(convention, arrays)
        return got is not None and got["output"].dtype == np.dtype(dtype) and calls.agrees(got, arrays)

    limits: dict[str, Any] = {}
    if shown := misfit(4, 2, depth, dtype):
        limits["heads"] = "equal"
        why["heads"] = f"it {shown} with two key heads for four query heads"
    others = (depth + 2, depth - 2) if depth == _PLAINEST else (2 * depth,)
    if shown := next(filter(None, (misfit(heads, heads, other, dtype) for other in others)), ""):
        limits["value_depth"] = "key"
        why["value_depth"] = f"it {shown} with values of another depth"
    limits |= _infer_depths(calls, lambda each: misfit(heads, heads, each, dtype, each), why)
    lengths = _infer_lengths(calls, convention, lambda: misfit(heads, heads, depth, dtype), why)
    limits |= lengths or infer_enough_keys(calls, convention, why)
    if calls.lengths[1] == LENGTHS[-1][1]:
        limits |= _infer_multiple(calls, lambda: bool(misfit(heads, heads, depth, dtype)), why)
    limits |= infer_dtypes(calls.backend, dtype, takes, why)
    return limits


def _infer_depths(calls: Calls, misfit: Callable[[int], str], why: dict[str, str]) -> dict[str, Any]:
    """Infer whether it takes even depths only, as functions that rotate pairs do."""
    tried = calls.depth == _PLAINEST and "depths" not in calls.known.keys
    if not tried or any(misfit(depth) != "raised an error" for depth in _ODD):
        return {}
    why["depths"] = f"it raised an error with {' and '.join(map(str, _ODD))}"
    return {"depths": [depth for depth in _EVEN if not misfit(depth)]}


def _infer_lengths(
    calls: Calls, convention: Convention, misfit: Callable[[], str], why: dict[str, str]
) -> dict[str, Any]:
    """Infer whether it needs as many keys as queries, where no call with other numbers was right."""
    whole = calls.lengths
    if whole[0] != whole[1] or convention.names["query"] == convention.names["key"]:
        return {}
    calls.lengths = (whole[0] - 2 if whole[0] % 2 else whole[0] // 2, whole[1])
    shown, calls.lengths = misfit(), whole
    if not shown:  # wrong results are for the suite to find
        why["layout"] += (
            '; with more keys than queries no call was: if it takes none, write lengths = "equal"'
        )
        return {}
    why["lengths"] = f"it {shown} with more keys than queries"
    return {"lengths": "equal"}


def _infer_multiple(calls: Calls, refuses: Callable[[], bool], why: dict[str, str]) -> dict[str, Any]:
    """Infer of what the numbers of queries and of keys must be multiples."""
    whole, found = calls.lengths, []
    for at in (0, 1):
        for multiple in (1, 2, 4, 8, 16, 32, 64, 128):
            keys = 3 * multiple
            other = (whole[0], keys) if at else (keys, whole[1])
            calls.lengths = (keys, keys) if whole[0] == whole[1] else other
            if not refuses():
                break
        found.append(multiple)
    calls.lengths = whole
    if found == [1, 1]:
        return {}
    why["multiple"] = "it raised an error with other numbers of queries and keys"
    return {"multiple": found}


def note_empty_axes(calls: Calls, convention: Convention, limits: Mapping[str, Any]) -> Mapping[str, Any]:
    """Record that a function raises an error without queries, keys or batch entries, if it is never wrong."""
    if {"requires", "axes"} & calls.known.keys or calls.by_distance:
        return limits
    lengths, raises = limits.get("lengths"), False
    tried: list[tuple[int, tuple[str, ...]]] = [(-2, ("query", "key", "value"))] if lengths == "equal" else []
    tried += [] if lengths == "equal" or convention.one_query else [(-2, ("query",))]
    tried += [] if lengths else [(-2, ("key", "value"))]
    tried += [] if convention.axes == 3 else [(0, ("query", "key", "value"))]
    for axis, names in tried:
        none = {name: x.take([], axis) if name in names else x for name, x in calls.arrays.items()}
        arrays = calls.drop_batch(convention, none)
        got = calls.run(convention, arrays)
        raises |= got is None
        if got is not None and not calls.agrees(got, arrays):
            return limits
    if not raises:
        return limits
    calls.why["requires"] = "; ".join(
        filter(None, (calls.why.get("requires"), "it raised an error without queries, keys or batch entries"))
    )
    return {**limits, "requires": [*limits.get("requires", ()), "nonempty"]}
