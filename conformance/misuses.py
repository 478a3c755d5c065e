"""Calls that must be refused, by name: a call that fits, changed in one place."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.judge.refusal import FITTING


@dataclass(frozen=True)
class Wrong:
    """One call that must be refused.

    Attributes
    ----------
    rule : str
        That asks for it.
    argument : str
        The one at fault.
    changes : mapping
        What is other than in a call that fits.
    operation : str
    """

    rule: str
    argument: str
    changes: Mapping[str, Any]
    operation: str = "attention"

    @property
    def at_fault(self) -> tuple[str, ...]:
        """What an error may name: the argument at fault, or an array that was changed along with it."""
        arrays = OPERATIONS[self.operation].arrays
        return tuple(dict.fromkeys((self.argument, *(name for name in self.changes if name in arrays))))

    def arguments(self, dtype: str) -> dict[str, Any]:
        """Make the call in a dtype."""
        fitting = _ARRAYS if self.operation == "attention" else FITTING[self.operation]
        return in_dtype({**fitting, **self.changes}, dtype)


#: Two batch entries of two heads, three queries and five keys of depth 4.
_ARRAYS = {"query": np.ones((2, 2, 3, 4)), "key": np.ones((2, 2, 5, 4)), "value": np.ones((2, 2, 5, 4))}
_IDS = {"query_segment_ids": np.zeros((2, 3), np.int64), "key_segment_ids": np.zeros((2, 5), np.int64)}


def _wrong(rule: str, argument: str, thing: Any, **beside: Any) -> Wrong:
    return Wrong(rule, argument, {argument: thing, **beside})


def _of(operation: str, rule: str, argument: str, thing: Any, **beside: Any) -> Wrong:
    return Wrong(rule, argument, {argument: thing, **beside}, operation)


def _depth(name: str, depth: int) -> Any:
    return np.ones((*_ARRAYS[name].shape[:-1], depth))


#: By a few words each. Dtypes that differ or are no floating-point numbers are a matter of their own.
MISUSES: Mapping[str, Wrong] = MappingProxyType(
    {
        "mask that does not broadcast": _wrong("MASK-1", "mask", np.ones((5, 3), bool)),
        "mask of too many axes": _wrong("MASK-1", "mask", np.ones((1, 2, 2, 3, 5), bool)),
        "bias that does not broadcast": _wrong("SCORE-4", "bias", np.ones((2, 4, 5))),
        "bias of integers": _wrong("ERR-2", "bias", np.ones((3, 5), np.int32)),
        "bias of booleans": _wrong("ERR-2", "bias", np.ones((3, 5), bool)),
        "softcap of 0": _wrong("SCORE-6", "softcap", 0.0),
        "softcap below 0": _wrong("SCORE-6", "softcap", -2.0),
        "softcap of NaN": _wrong("SCORE-6", "softcap", float("nan")),
        "softcap of infinity": _wrong("SCORE-6", "softcap", float("inf")),
        "more key heads than query heads": _wrong(
            "HEAD-2", "key", np.ones((2, 4, 5, 4)), value=np.ones((2, 4, 5, 4))
        ),
        "key heads that do not divide": _wrong(
            "HEAD-2",
            "key",
            np.ones((2, 2, 5, 4)),
            query=np.ones((2, 3, 3, 4)),
        ),
        "other heads of value than of key": _wrong("HEAD-2", "value", np.ones((2, 1, 5, 4))),
        "heads of value missing": _wrong("HEAD-2", "value", np.ones((2, 4, 5, 4))),
        "rate without a mask": _wrong("DROP-4", "dropout_rate", 0.5),
        "rate of 1": _wrong("DROP-4", "dropout_rate", 1.0, dropout_mask=np.ones((3, 5), bool)),
        "rate below 0": _wrong("DROP-4", "dropout_rate", -0.1, dropout_mask=np.ones((3, 5), bool)),
        "rate of NaN": _wrong("DROP-4", "dropout_rate", float("nan"), dropout_mask=np.ones((3, 5), bool)),
        "mask of integers": _wrong("ERR-4", "mask", np.ones((3, 5), np.int32)),
        "mask of bytes": _wrong("ERR-4", "mask", np.ones((3, 5), np.uint8)),
        "mask of real numbers": _wrong("ERR-4", "mask", np.ones((3, 5))),
        "dropout mask of integers": _wrong("ERR-4", "dropout_mask", np.ones((3, 5), np.int32)),
        "depth of 0": _wrong("ERR-5", "query", _depth("query", 0), key=_depth("key", 0)),
        "depth of 0 throughout": _wrong(
            "ERR-5", "query", _depth("query", 0), key=_depth("key", 0), value=_depth("value", 0)
        ),
        "depth of 0 of the values": _wrong("ERR-5", "value", _depth("value", 0)),
        "scale of NaN": _wrong("ERR-6", "scale", float("nan")),
        "scale of infinity": _wrong("ERR-6", "scale", float("inf")),
        "scale of minus infinity": _wrong("ERR-6", "scale", float("-inf")),
        "window of one bound": _wrong("ERR-7", "window", (1,)),
        "window of three bounds": _wrong("ERR-7", "window", (1, 1, 1)),
        "window as a number": _wrong("ERR-7", "window", 2),
        "window below 0": _wrong("ERR-7", "window", (-1, 0)),
        "window below 0 on the right": _wrong("ERR-7", "window", (0, -1)),
        "window of fractions": _wrong("ERR-7", "window", (1.5, 0)),
        "offset of a fraction": _wrong("ERR-8", "query_offset", 1.5, is_causal=True),
        "offsets of real numbers": _wrong("ERR-8", "query_offset", np.ones(2), is_causal=True),
        "offsets for too many entries": _wrong("ERR-8", "query_offset", np.ones(3, int), is_causal=True),
        "offsets for each query": _wrong("ERR-8", "query_offset", np.ones((2, 3), int), is_causal=True),
        "one offset in an axis": _wrong("ERR-8", "query_offset", np.ones(1, int), is_causal=True),
        "key length of a fraction": _wrong("ERR-8", "key_lengths", 2.5),
        "key lengths of real numbers": _wrong("ERR-8", "key_lengths", np.ones(2)),
        "key lengths for too many entries": _wrong("ERR-8", "key_lengths", np.ones(3, int)),
        "query lengths of real numbers": _wrong("ERR-8", "query_lengths", np.ones(2)),
        "query lengths for too few entries": _wrong("ERR-8", "query_lengths", np.ones(1, int)),
        "key length past the keys": _wrong("ERR-9", "key_lengths", 6),
        "key length below 0": _wrong("ERR-9", "key_lengths", np.array([2, -1])),
        "query length past the queries": _wrong("ERR-9", "query_lengths", np.array([3, 4])),
        "query length below 0": _wrong("ERR-9", "query_lengths", -1),
        "ids of keys alone": Wrong(
            "ERR-10", "query_segment_ids", {"key_segment_ids": _IDS["key_segment_ids"]}
        ),
        "ids of queries alone": Wrong(
            "ERR-10", "key_segment_ids", {"query_segment_ids": _IDS["query_segment_ids"]}
        ),
        "ids that are real numbers": Wrong(
            "ERR-10", "key_segment_ids", _IDS | {"key_segment_ids": np.ones((2, 5))}
        ),
        "ids for too few keys": Wrong(
            "ERR-10", "key_segment_ids", _IDS | {"key_segment_ids": np.ones((2, 4), int)}
        ),
        "ids without the batch": Wrong(
            "ERR-10", "query_segment_ids", _IDS | {"query_segment_ids": np.ones(3, int)}
        ),
        "sinks for too many heads": _wrong("ERR-11", "sinks", np.ones(3)),
        "sinks for each entry": _wrong("ERR-11", "sinks", np.ones((2, 2))),
        "sinks for key heads": _wrong(
            "ERR-11", "sinks", np.ones(1), key=np.ones((2, 1, 5, 4)), value=np.ones((2, 1, 5, 4))
        ),
        "heads that do not divide": _of("split_heads", "HEAD-5", "heads", 3),
        "weight that would fit transposed": _of(
            "projection", "PROJ-4", "weight", np.ones((3, 2)), tokens=np.ones((4, 2))
        ),
        "cache that is full": _of("append_cache", "CACHE-2", "lengths", 4),
        "length below 0": _of("append_cache", "CACHE-2", "lengths", -1),
        "page that does not exist": _of("gather_pages", "CACHE-5", "block_table", np.array([0, 2])),
        "page below 0": _of("gather_pages", "CACHE-5", "block_table", np.array([0, -1])),
        "rotary depth that is odd": _of("rotary", "POS-6", "rotary_depth", 3),
        "rotary depth of 0": _of("rotary", "POS-6", "rotary_depth", 0),
        "rotary depth past the depth": _of("rotary", "POS-6", "rotary_depth", 6),
        "depth that is odd": Wrong("POS-6", "rotary_depth", {"features": np.ones((1, 3, 5))}, "rotary"),
    }
)
