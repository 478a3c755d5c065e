"""Views of large buffers."""

from collections.abc import Iterator
from itertools import product

from attnspec.conformance.judge.layout import OF_ANY_NUMBERS
from attnspec.conformance.sizes.problem import Asked
from attnspec.formula import Formula


def views() -> Iterator[Asked]:
    """The arrays are views of larger buffers, in any layout."""
    for number, (kind, names) in enumerate(
        product(OF_ANY_NUMBERS, (("query",), ("key",), ("value",), ("query", "key", "value")))
    ):
        queries, keys = ((65, 257), (129, 513), (1, 1025), (513, 129))[number % 4]
        options = ({"is_causal": True, "query_offset": keys - queries}, {}, {"key_lengths": (keys - 1, 65)})[
            number % 3
        ]
        formula = Formula(
            queries,
            keys,
            64,
            64,
            batch=(2,),
            heads=8,
            key_heads=(8, 2)[number % 2],
            seed=number,
            options=options,
        )
        yield Asked(formula, ("float32", "bfloat16")[number % 2], layout=dict.fromkeys(names, kind))
