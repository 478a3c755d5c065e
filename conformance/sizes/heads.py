"""Groups of many heads."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from attnspec.conformance.sizes.problem import Asked
from attnspec.formula import Formula

#: Query heads and key heads. Models have groups of 71 and of 128 heads.
_HEADS = ((34, 2), (71, 1), (128, 1), (96, 6))
#: Queries and keys beside these heads: prefill, and decoding past two lengths of splits.
_LENGTHS = ((33, 65), (1, 300), (1, 1100))


def heads() -> Iterator[Asked]:
    """Many query heads share a key head, in prefill and in decoding."""
    for number, ((query_heads, key_heads), (queries, keys)) in enumerate(product(_HEADS, _LENGTHS)):
        options: dict[str, Any] = {"is_causal": True, "query_offset": keys - queries} if number % 2 else {}
        sizes = (queries, keys, 64, 32, (2,), query_heads, key_heads)
        yield Asked(Formula(*sizes, seed=number, options=options))
