"""Groups of many heads, and arguments with more than a million elements."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from attnspec.conformance.suite.sizes.problem import Asked
from attnspec.formula import Formula

#: Query heads and key heads. Models have groups of 71 and of 128 heads.
_HEADS = ((34, 2), (71, 1), (128, 1), (96, 6))
#: Queries and keys beside these heads: prefill, and decoding past two lengths of splits.
_LENGTHS = ((33, 65), (1, 300), (1, 1100))
#: Axes of masks with 2^20 elements and more, in problems with these batch entries and heads.
_AXES = ((("L", "S"), (1,), 2), (("B", "H", "L", "S"), (2,), 2), (("H", "L", "S"), (3,), 3))
_SIDE = 1025


def addresses() -> Iterator[Asked]:
    """Groups of many heads, and arguments with more than a million elements."""
    for number, ((heads, key_heads), (queries, keys)) in enumerate(product(_HEADS, _LENGTHS)):
        options: dict[str, Any] = {"is_causal": True, "query_offset": keys - queries} if number % 2 else {}
        sizes = (queries, keys, 64, 32, (2,), heads, key_heads)
        yield Asked(Formula(*sizes, seed=number, options=options))
    names = ("mask", "bias", "dropout_mask")
    for number, (name, (axes, batch, heads)) in enumerate(product(names, _AXES)):
        options = {name: axes} | ({"dropout_rate": 0.5} if name == "dropout_mask" else {})
        sizes = (_SIDE, _SIDE + number, 16, 8, batch, heads, heads)
        yield Asked(Formula(*sizes, seed=number, options=options))
    # Many elements in the queries, the keys, and the values and the output.
    for number, (queries, keys, depth, value_depth) in enumerate(
        ((4100, 5, 256, 8), (3, 4100, 256, 8), (5, 4100, 8, 256), (4100, 5, 8, 256))
    ):
        yield Asked(Formula(queries, keys, depth, value_depth, (1,), 2, 2, seed=number))
