"""Packed attention of the second oracle: rows and keys by the number of their sequence."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import attention
from attnspec.reference.rational.gradients import heads_of, of_gradients, run
from attnspec.reference.rational.taped import Head

Arguments = Mapping[str, Any]
Dialect = Mapping[str, str]
Arrays = dict[str, NDArray[np.float64]]
#: The arguments that have an axis of queries, and those that have one of keys.
_SIDES = {"query": ("query", "d_output", "d_lse"), "key": ("key", "value")}


@dataclass(frozen=True)
class _Sequence:
    """One sequence: its rows of queries and of keys, and its offset."""

    rows: list[int]
    keys: list[int]
    offset: int

    def of(self, arguments: Arguments) -> dict[str, Any]:
        """Return the call of attention for this sequence alone."""
        whole = {name: x for name, x in arguments.items() if not name.endswith("_starts") and x is not None}
        for side, places in (("query", self.rows), ("key", self.keys)):
            for name in _SIDES[side]:
                if name in whole:
                    whole[name] = np.asarray(whole[name]).take(np.array(places, dtype=int), axis=1)
        return {**whole, "query_offset": self.offset}


def packed_attention(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute output and lse."""
    queries, values = np.shape(arguments["query"]), np.shape(arguments["value"])
    output, lse = np.zeros((*queries[:2], values[-1])), np.full(queries[:2], -math.inf)
    for one in _sequences(arguments, dialect):
        found = attention(one.of(arguments), _within(dialect))
        for place, row in enumerate(one.rows):
            output[:, row], lse[:, row] = found["output"][:, place], found["lse"][:, place]
    return {"output": output, "lse": lse}


def packed_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of all arrays, with one tape for each head of each sequence."""
    shown = of_gradients(arguments, _within(dialect))
    names = [name for name in ("query", "key", "value", "sinks") if arguments.get(name) is not None]
    arrays = {name: np.asarray(arguments[name]).astype(np.float64) for name in names}
    numbers = {name: np.arange(array.size).reshape(array.shape) for name, array in arrays.items()}
    heads: list[Head] = []
    for one in _sequences(arguments, dialect):
        own = one.of(arguments)
        cut = {name: np.asarray(own[name]).astype(np.float64) for name in names}
        shape = (cut["query"].shape[0], len(one.rows), len(one.keys))
        # The numbers of the whole row that the numbers of the sequence are.
        placed = one.of(numbers)
        for head in heads_of(own, cut, shown, shape):
            places = {name: placed[name].ravel()[its] for name, its in head.places.items()}
            heads.append(replace(head, places=places))
    return run(arguments, shown, arrays, heads)


def _sequences(arguments: Arguments, dialect: Dialect) -> list[_Sequence]:
    """Assign each row of queries and of keys to the sequence that begins last at or before it."""
    count = len(arguments["query_starts"]) - 1
    rows: dict[str, list[list[int]]] = {}
    for side in _SIDES:
        starts = [int(x) for x in arguments[f"{side}_starts"]]
        rows[side] = [[] for _ in range(count)]
        for row in range(np.shape(arguments[side])[1]):
            g = bisect_right(starts, row) - 1
            if g < count:
                rows[side][g].append(row)
    given = arguments.get("query_offset")
    offsets = [0] * count if given is None else np.broadcast_to(given, (count,)).tolist()
    if dialect.get("PACK-5") == "bottom-right" and np.ndim(0 if given is None else given) == 0 and not given:
        offsets = [len(rows["key"][g]) - len(rows["query"][g]) for g in range(count)]
    return [_Sequence(rows["query"][g], rows["key"][g], offsets[g]) for g in range(count)]


def _within(dialect: Dialect) -> dict[str, str]:
    """Return the variants of attention within a sequence. PACK-5 alone aligns it."""
    return {rule: variant for rule, variant in dialect.items() if rule not in ("PACK-5", "MASK-3")}
