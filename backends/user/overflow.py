"""What a function gives where the score of a disallowed key is infinite, in the words of a deviation."""

import inspect
from typing import Any

import numpy as np

from attnspec.backends.user.calls import Calls
from attnspec.backends.user.convention import Convention

#: The function that finds the elements that may be NaN (`attnspec.backends.adapters.deviations`).
_ELEMENTS = "attnspec.backends.adapters.deviations:elements_with_overflow"
_REASON = "a {} of minus infinity is added, and the score of a finite key may be infinite: the row is NaN"


def deviations_of_overflow(calls: Calls, convention: Convention) -> tuple[dict[str, Any], ...]:
    """Return the deviation from MASK-12 that calls show: NaN if a disallowed key has the largest number."""
    arrays = calls.drop_batch(convention, calls.arrays)
    # Scores of half precision overflow in float32 only.
    if calls.by_distance or "deviations" in calls.known.keys or arrays["key"].dtype.itemsize < 4:
        return ()
    ones = {**arrays, "query": np.ones_like(arrays["query"])}
    ones["key"] = ones["key"].copy()
    ones["key"][..., 0, :] = 1
    large = {**ones, "key": ones["key"].copy()}
    large["key"][..., 0, :] = np.finfo(ones["key"].dtype).max
    mask = np.arange(calls.lengths[1]) > np.zeros((1, 1, calls.lengths[0], 1))
    bias = np.where(mask, 0, -np.inf).astype(ones["key"].dtype)
    taken = {*convention.names, *inspect.signature(calls.function).parameters}
    shown = [
        name
        for name, array in (("mask", mask), ("bias", bias))
        if name in taken
        and _is_nan(calls, convention, (ones, large), calls.drop_batch(convention, {name: array}))
    ]
    if not shown:
        return ()
    calls.why["deviations"] = f"a call with the largest number in a key that {' or '.join(shown)} disallows"
    reason = _REASON.format(" or ".join(shown))
    deviation = {"rules": ["MASK-12"], "reason": reason, "source": "attnspec init"}
    return (deviation | {"outcome": {"kind": "Special", "where": _ELEMENTS}},)


def _is_nan(calls: Calls, convention: Convention, pair: Any, options: dict[str, Any]) -> bool:
    """Whether the second call of a pair alone is NaN."""
    results = [calls.run(convention, arrays, options) for arrays in pair]
    outputs = [x["output"].astype(np.float64) for x in results if x is not None]
    return len(outputs) == 2 and bool(np.isfinite(outputs[0]).all() and np.isnan(outputs[1]).any())
