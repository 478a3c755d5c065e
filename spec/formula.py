"""Problems by formula: every number of a call of attention follows from its sizes and a seed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS

_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 8  # octets


def octets(seed: int, stream: int, count: int, start: int = 0) -> NDArray[np.uint8]:
    """Return the octets of a stream from position `start` on."""
    for name, number in (("seed", seed), ("stream", stream)):
        if not 0 <= number < 2**32:
            raise ValueError(f"{name}: expected 0 to {2**32 - 1}, got {number}")
    first, last = start // _WORD, -(-(start + count) // _WORD)
    key = _mixed(np.array([(seed << 32 | stream) + _STEP & _MASK], dtype=np.uint64))
    steps = np.arange(first + 1, last + 1, dtype=np.uint64) * np.uint64(_STEP)
    results = _mixed(steps + key).astype("<u8", copy=False).view(np.uint8)
    return results[start - first * _WORD :][:count]


def numbers(seed: int, stream: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array of multiples of 1/64 from -2 to 127/64: the octets of a stream as signed integers.

    Every dtype of the standard holds these numbers exactly.
    """
    result = octets(seed, stream, int(np.prod(shape, dtype=np.int64))).view(np.int8)
    return np.multiply(result, np.float32(1 / 64), dtype=np.float32).reshape(shape)


def short_numbers(seed: int, stream: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array of multiples of 1/2 from -3/2 to 3/2: octets modulo 7, less 3, times 1/2.

    Codes of 4 bits hold these numbers exactly, with scales that may differ.
    """
    result = octets(seed, stream, int(np.prod(shape, dtype=np.int64))) % np.uint8(7)
    return ((result.astype(np.float32) - np.float32(3)) / np.float32(2)).reshape(shape)


_MASK = 2**64 - 1


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the last function of SplitMix64 (Steele, Lea and Flood, 2014), in place."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(31)
    return x


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
    """A call of attention whose numbers follow from a formula."""

    queries: int  # L
    keys: int  # S
    depth: int  # D
    value_depth: int  # Dv
    batch: tuple[int, ...] = (1,)  # the batch axes
    heads: int = 1  # Hq
    key_heads: int = 1  # Hkv
    #: The number of different rows of queries and of keys, a power of 2 up to 256. 0 if all are different.
    words: int = 16
    seed: int = 0
    short: bool = False  # whether queries, keys and values are multiples of 1/4 and 1/2, which codes hold
    #: The options of the call. `is_causal`, `query_offset`, `window`, `query_lengths`, `key_lengths`,
    #: `scale`, `softcap` and `dropout_rate` have their values; a tuple gives one number for each batch
    #: entry. `mask`, `bias` and `dropout_mask` have the letters of their axes, such as ``("L", "S")``.
    #: `sinks` and `d_lse` are True. `segments` is the number of positions in each segment.
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def codes(self) -> NDArray[np.float32]:
        """The different rows of keys, ``(words, D)``. Those of queries are half of them."""
        return self._numbers("codes", (self.words, self.depth))

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
        return self._numbers("value", (*self.batch, self.key_heads, self.keys, self.value_depth))

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
        results: dict[str, Any] = {
            "query": query.astype(dtype, copy=False),
            "key": key.astype(dtype, copy=False),
            "value": self.value.astype(dtype, copy=False),
        }
        return results | self.given(dtype)

    def arguments_of_gradients(self, dtype: str) -> dict[str, Any]:
        """Return the arguments of the call of its gradients, by canonical name."""
        return self.arguments(dtype) | {"d_output": self.d_output.astype(dtype, copy=False)}

    def given(self, dtype: str) -> dict[str, Any]:
        """Return the options of the call, by canonical name."""
        results: dict[str, Any] = {}
        for name, thing in self.options.items():
            if name in _DISALLOWED:
                results[name] = self._drawn(name, thing, dtype)
            elif name == "sinks":
                results[name] = numbers(self.seed, STREAMS[name], (self.heads,)).astype(dtype)
            elif name == "d_lse":
                results[name] = self.d_lse.astype(FORMATS[dtype].lse)
            elif name == "segments":
                results["query_segment_ids"] = self._segments(self.queries, self.keys - self.queries)
                results["key_segment_ids"] = self._segments(self.keys, 0)
            elif isinstance(thing, tuple) and name != "window":
                results[name] = np.array(thing, dtype=np.int64).reshape(self.batch)
            else:
                results[name] = thing
        return results

    def _rows(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return queries and keys."""
        if self.words:
            halves = self.codes * np.float32(0.5)
            return halves[self.query_words], self.codes[self.key_words]
        query = self._numbers("query", (*self.batch, self.heads, self.queries, self.depth))
        key = self._numbers("key", (*self.batch, self.key_heads, self.keys, self.depth))
        return query * np.float32(0.5), key

    def _numbers(self, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return (short_numbers if self.short else numbers)(self.seed, STREAMS[name], shape)

    def _words(self, name: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        result = octets(self.seed, STREAMS[name], int(np.prod(shape, dtype=np.int64)))
        return (result % np.uint8(self.words) if self.words < 256 else result).reshape(shape)

    def _drawn(self, name: str, axes: tuple[str, ...], dtype: str) -> NDArray[Any]:
        """Draw a mask or a bias. An axis without a letter has the size 1."""
        sizes = {"H": self.heads, "L": self.queries, "S": self.keys}
        outer = tuple(size if "B" in axes else 1 for size in self.batch)
        inner = tuple(size if letter in axes else 1 for letter, size in sizes.items())
        shape = (*outer, *inner) if {"B", "H"} & set(axes) else inner[1:]
        result = octets(self.seed, STREAMS[name], int(np.prod(shape, dtype=np.int64))).reshape(shape)
        allowed = result >= _DISALLOWED[name]
        if name != "bias":
            return allowed
        return np.where(allowed, (result % _BIASES).astype(np.float64) / 4 - 1, -np.inf).astype(dtype)

    def _segments(self, count: int, offset: int) -> NDArray[np.int32]:
        ids = (np.arange(count) + offset) // self.options["segments"]
        return np.broadcast_to(ids.astype(np.int32), (*self.batch, count)).copy()
