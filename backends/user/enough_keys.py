"""Infers whether a function needs enough keys for its queries, and whether a length ends its causality."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from attnspec.backends.user.calls import LENGTHS, Calls
from attnspec.backends.user.convention import Convention
from attnspec.sizes import bound

_RAISES = "it raised an error with more queries than keys"
_NO_TOKENS = (
    "; with more queries than keys the first ones give 0: if they stand for no token, "
    'write lengths = "enough"'
)


class Companion(Protocol):
    """Calls of one function of an operation, compared with the reference."""

    def agrees(
        self, convention: Convention, call: Mapping[str, Any], meaning: Mapping[str, Any] | None = None
    ) -> bool | None:
        """Whether a call has the results of the reference; None if it raises an error."""


def infer_enough_keys(calls: Calls, convention: Convention, why: dict[str, str]) -> dict[str, str]:
    """Infer it from a call of attention with fewer keys; other results are for the suite to judge."""
    if calls.lengths not in LENGTHS[:2] or calls.by_distance or convention.past:
        return {}
    queries = calls.arrays["query"].shape[-2]
    keys = queries - 2
    arrays = {name: x if name == "query" else x[..., :keys, :] for name, x in calls.arrays.items()}
    arrays = calls.drop_batch(convention, arrays)
    got = calls.run(convention, arrays)
    tokens = {"mask": _tokens(queries, np.array(keys))}
    zeros = got is not None and not calls.base and calls.agrees(got, arrays, tokens)
    return _limit(raises=got is None, zeros=zeros, why=why)


def infer_enough_of_lengths(
    calls: Companion, convention: Convention, call: Mapping[str, Any], why: dict[str, str]
) -> dict[str, str]:
    """Infer it from a call of a form in which one length is less than the number of queries."""
    several = isinstance(call.get("key_lengths"), np.ndarray) and "query" in call
    packed, queries = "query_starts" in call, call["query"].shape[-2] if several else 1
    if queries < 2 or convention.one_query:
        return {}
    lengths = call["key_lengths"].copy()
    lengths[0] = 1
    short = {**call, "key_lengths": lengths}
    agrees, zeros = calls.agrees(convention, short), False
    if agrees is False and not packed:
        tokens = _tokens(queries, lengths)[:, None]
        zeros = bool(calls.agrees(convention, short, {**short, "mask": tokens}))
    return _limit(raises=agrees is None, zeros=zeros, why=why)


def infer_end_at_length(
    calls: Companion, operation: str, convention: Convention, call: Mapping[str, Any], why: dict[str, str]
) -> Convention:
    """Find out whether the last query of a causal call of a form is at the last key of the length."""
    known = {**convention.names, **convention.always, **call}
    letters = bound(operation, call)[0].letters
    if not {"key_lengths", "is_causal"} <= {*known} or not {"L", "S"} <= {*letters}:
        return convention
    lengths = letters["S"] - 1 + np.arange(call["query"].shape[0]) % 2
    placed = {**call, "is_causal": True, "key_lengths": lengths, "query_offset": lengths - letters["L"]}
    trial = replace(convention, at_length=True)
    if convention.one_query or not calls.agrees(trial, placed):
        return convention
    why["at_length"] = "its causal mask ends at the last key of the length"
    return trial


def _limit(*, raises: bool, zeros: bool, why: dict[str, str]) -> dict[str, str]:
    """Write the limit of a function that raises. A function that gives 0 may be wrong, and has a hint."""
    if zeros:
        why["layout"] = why.get("layout", "the results are correct") + _NO_TOKENS
    if raises:
        why["lengths"] = _RAISES
    return {"lengths": "enough"} if raises else {}


def _tokens(queries: int, keys: Any) -> Any:
    """Return which queries are tokens if the last one is at the last key, for each key, ``(..., L, 1)``."""
    return (np.arange(queries) >= queries - keys[..., None])[..., None]
