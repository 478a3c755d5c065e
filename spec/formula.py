"""Problems by formula: every number of a call of attention follows from its sizes and a seed.

The document `generator.md` defines them. Queries and keys repeat a few rows, so that the exact
result of every row can be computed at any length.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.generator import numbers, octets

#: The streams of the arrays of a problem.
STREAMS: Mapping[str, int] = MappingProxyType(
    {
        "codes": 0,
        "query": 1,
        "key": 2,
        "value": 3,
        "mask": 4,
        "bias": 5,
        "dropout_mask": 6,
        "sinks": 7,
        "d_output": 8,
        "d_lse": 9,
    }
)
#: An octet below this disallows a pair, has a bias of minus infinity, drops a weight.
_DISALLOWED = {"mask": 64, "bias": 16, "dropout_mask": 64}
#: The number of different finite biases.
_BIASES = 8


@dataclass(frozen=True)
class Formula:
    """A call of attention whose numbers follow from a formula.

    Attributes
    ----------
    queries, keys, depth, value_depth : int
        L, S, D and Dv.
    batch : tuple of int
        The batch axes.
    heads, key_heads : int
        Hq and Hkv.
    words : int
        The number of different rows of queries and of keys, a power of 2 up to 256. 0 if all are different.
    seed : int
    options : mapping
        The options of the call. `is_causal`, `query_offset`, `window`, `query_lengths`, `key_lengths`,
        `scale`, `softcap` and `dropout_rate` have their values; a tuple gives one number for each
        batch entry. `mask`, `bias` and `dropout_mask` have the letters of their axes, such as
        ``("L", "S")``. `sinks` and `d_lse` are True. `segments` is the number of positions in each segment.

    Examples
    --------
    >>> from attnspec.formula import Formula
    >>> problem = Formula(queries=2, keys=3, depth=4, value_depth=4, options={"is_causal": True})
    >>> sorted(problem.arguments("float32"))
    ['is_causal', 'key', 'query', 'value']
    """

    queries: int
    keys: int
    depth: int
    value_depth: int
    batch: tuple[int, ...] = (1,)
    heads: int = 1
    key_heads: int = 1
    words: int = 16
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def codes(self) -> NDArray[np.float32]:
        """The different rows of keys, ``(words, D)``. Those of queries are half of them."""
        return numbers(self.seed, STREAMS["codes"], (self.words, self.depth))

    @property
    def query_words(self) -> NDArray[np.uint8]:
        """The word of each query, ``(*B, Hq, L)``."""
        return self._words("query", (*self.batch, self.heads, self.queries))

    @property
    def key_words(self) -> NDArray[np.uint8]:
        """The word of each key, ``(*B, Hkv, S)``."""
        return self._words("key", (*self.batch, self.key_heads, self.keys))

    @property
    def value(self) -> NDArray[np.float32]:
        """The values, ``(*B, Hkv, S, Dv)``."""
        return numbers(
            self.seed, STREAMS["value"], (*self.batch, self.key_heads, self.keys, self.value_depth)
        )

    @property
    def d_output(self) -> NDArray[np.float32]:
        """The cotangents of the output, ``(*B, Hq, L, Dv)``."""
        shape = (*self.batch, self.heads, self.queries, self.value_depth)
        return numbers(self.seed, STREAMS["d_output"], shape)

    @property
    def d_lse(self) -> NDArray[np.float32]:
        """The cotangents of the lse, ``(*B, Hq, L)``; 0 without this option."""
        shape = (*self.batch, self.heads, self.queries)
        if "d_lse" not in self.options:
            return np.zeros(shape, dtype=np.float32)
        return numbers(self.seed, STREAMS["d_lse"], shape)

    def arguments(self, dtype: str) -> dict[str, Any]:
        """Return the arguments of the call, by canonical name."""
        query, key = self._rows()
        found: dict[str, Any] = {
            "query": query.astype(dtype, copy=False),
            "key": key.astype(dtype, copy=False),
            "value": self.value.astype(dtype, copy=False),
        }
        return found | self.given(dtype)

    def arguments_of_gradients(self, dtype: str) -> dict[str, Any]:
        """Return the arguments of the call of its gradients, by canonical name."""
        return self.arguments(dtype) | {"d_output": self.d_output.astype(dtype, copy=False)}

    def given(self, dtype: str) -> dict[str, Any]:
        """Return the options of the call, by canonical name."""
        found: dict[str, Any] = {}
        for name, thing in self.options.items():
            if name in _DISALLOWED:
                found[name] = self._drawn(name, thing, dtype)
            elif name == "sinks":
                found[name] = numbers(self.seed, STREAMS[name], (self.heads,)).astype(dtype)
            elif name == "d_lse":
                found[name] = self.d_lse.astype(FORMATS[dtype].lse)
            elif name == "segments":
                found["query_segment_ids"] = self._segments(self.queries, self.keys - self.queries)
                found["key_segment_ids"] = self._segments(self.keys, 0)
            elif isinstance(thing, tuple) and name != "window":
                found[name] = np.array(thing, dtype=np.int64).reshape(self.batch)
            else:
                found[name] = thing
        return found

    def _rows(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return queries and keys."""
        if self.words:
            halves = self.codes * np.float32(0.5)
            return halves[self.query_words], self.codes[self.key_words]
        query = numbers(self.seed, STREAMS["query"], (*self.batch, self.heads, self.queries, self.depth))
        key = numbers(self.seed, STREAMS["key"], (*self.batch, self.key_heads, self.keys, self.depth))
        return query * np.float32(0.5), key

    def _words(self, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        found = octets(self.seed, STREAMS[name], int(np.prod(shape, dtype=np.int64)))
        return (found % np.uint8(self.words) if self.words < 256 else found).reshape(shape)

    def _drawn(self, name: str, axes: tuple[str, ...], dtype: str) -> NDArray[Any]:
        """Draw a mask or a bias. An axis without a letter has the size 1."""
        sizes = {"H": self.heads, "L": self.queries, "S": self.keys}
        outer = tuple(size if "B" in axes else 1 for size in self.batch)
        inner = tuple(size if letter in axes else 1 for letter, size in sizes.items())
        shape = (*outer, *inner) if {"B", "H"} & set(axes) else inner[1:]
        found = octets(self.seed, STREAMS[name], int(np.prod(shape, dtype=np.int64))).reshape(shape)
        allowed = found >= _DISALLOWED[name]
        if name != "bias":
            return allowed
        return np.where(allowed, (found % _BIASES).astype(np.float64) / 4 - 1, -np.inf).astype(dtype)

    def _segments(self, count: int, offset: int) -> NDArray[np.int32]:
        ids = (np.arange(count) + offset) // self.options["segments"]
        return np.broadcast_to(ids.astype(np.int32), (*self.batch, count)).copy()
