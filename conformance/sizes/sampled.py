"""Arbitrary numbers: every row of queries and keys differs from the others."""

from collections.abc import Iterator
from itertools import product

from attnspec.conformance.sizes.problem import Asked
from attnspec.conformance.suite.options import NAMES, formula_option
from attnspec.formula import Formula

#: L and S.
_LENGTHS = ((300, 300), (129, 1025), (1, 4097))


def sampled() -> Iterator[Asked]:
    """Arbitrary numbers with any mask; the judged rows are chosen after the result is delivered."""
    names = [name for line in NAMES for name in line]
    for number, (name, (queries, keys)) in enumerate(product(names, _LENGTHS)):
        if name == "query_lengths" and queries == 1:
            continue
        heads, depth = ((4, 2), (3, 3), (8, 1))[number % 3], (64, 128, 80)[number // 3 % 3]
        given = {"scale": (1.0, 0.125)[number % 2]} | formula_option(name, number, (2,), queries, keys)
        sizes = (queries, keys, depth, depth, (2,), *heads)
        dtype = ("float32", "bfloat16", "float32", "float16")[number % 4]
        yield Asked(Formula(*sizes, words=0, seed=number, options=given), dtype)
