"""One query on long caches."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from attnspec.conformance.sizes.problem import Asked
from attnspec.conformance.suite.options import edge
from attnspec.formula import Formula

_LENGTHS = (128, 255, 257, 512, 1000, 1025, 2048, 4097, 8192, 16385, 32768, 65537, 131072)
_HEADS = ((8, 8), (8, 1), (16, 2), (5, 1), (64, 4), (12, 4))
_OPTIONS = ("plain", "lengths", "window", "sinks", "softcap", "mask", "bias", "causal", "left")


def decode() -> Iterator[Asked]:
    """One query attends to a long cache, with each option."""
    for number, (option, keys) in enumerate(product(_OPTIONS, _LENGTHS)):
        batch = (1 + number % 3,) if keys < 2**15 else (1,)
        heads, key_heads = _HEADS[number % len(_HEADS)]
        depth = (64, 128, 80, 96, 192)[number % 5]
        given: dict[str, dict[str, Any]] = {
            "plain": {},
            "lengths": {"key_lengths": tuple(keys - edge(number + entry, keys) for entry in range(*batch))},
            "window": {"window": (edge(number, keys), 0), "query_offset": keys - 1},
            "sinks": {"sinks": True, "key_lengths": (keys - number,) * batch[0]},
            "softcap": {"softcap": 2.0},
            "mask": {"mask": (("S",), ("B", "S"), ("H", "L", "S"))[number % 3]},
            "bias": {"bias": (("H", "L", "S"), ("S",), ("B", "H", "L", "S"))[number % 3]},
            "causal": {"is_causal": True, "query_offset": keys - 1 - number % 3},
            "left": {"is_causal": True, "query_offset": keys - 1, "window": (edge(number, keys), None)},
        }
        dtype = ("float32", "bfloat16", "float32", "float16")[number % 4]
        sizes: dict[str, Any] = {
            "depth": depth,
            "value_depth": depth,
            "batch": batch,
            "heads": heads,
            "key_heads": key_heads,
        }
        yield Asked(Formula(1, keys, seed=number, options=given[option], **sizes), dtype)
