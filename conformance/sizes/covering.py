"""Each option in each size: lengths, depths, numbers of heads and batch entries, dtypes."""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product
from math import prod
from typing import Any

from attnspec.conformance.sizes.problem import Asked
from attnspec.conformance.suite.options import NAMES, formula_option
from attnspec.formula import Formula

_MULTIPLES = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
_BESIDE = (1, 2, 7, 15, 17, 31, 33, 63, 65, 95, 127, 129, 191, 193, 255, 257, 383, 511, 512, 513)
#: The values of each factor of the design, those that matter most first.
_FACTORS: dict[str, Sequence[Any]] = {
    "queries": (*_BESIDE, *_MULTIPLES, 1023, 1024, 1025),
    "keys": (*_BESIDE, *_MULTIPLES, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097),
    "depth": (64, 128, 40, 72, 80, 96, 112, 160, 192, 256, 512, 576, 1, 8, 16, 32, 65),
    "value_depth": (64, 128, 40, 72, 96, 192, 256, 512, 1, 16, 32, 65),
    "heads": (
        *((1, 1), (2, 2), (3, 1), (5, 1), (8, 8), (8, 2), (12, 4), (10, 2), (16, 1)),
        *((32, 4), (64, 8), (128, 8), (17, 17), (33, 33), (14, 2), (21, 7)),
    ),
    "batch": ((1,), (2,), (3,), (5,), (9,), (17,), (33,), (2, 3), (2, 1, 2)),
    "dtype": ("float32", "bfloat16", "float16", "float64"),
}
#: Values that make any problem small enough.
_SMALL: dict[str, Any] = {
    "queries": 17,
    "keys": 257,
    "depth": 16,
    "value_depth": 16,
    "heads": (2, 1),
    "batch": (1,),
    "dtype": "float32",
}
#: From option to option, the list of lengths of the keys is turned by this number.
_TURN = 8
#: Options that many kernels have for as many queries as keys only.
_OF_PLACES = ("is_causal", "window", "left")
#: The most multiplications of one problem.
_MOST = 2**28


def covering() -> Iterator[Asked]:
    """Each option in each length, depth, number of heads and of batch entries, and pairs of options."""
    number = 0
    # Masks of places come a second time, with most lengths of queries and keys the same.
    again = [(0, option) for option in _OF_PLACES]
    for place, option in [*enumerate(chain.from_iterable(NAMES), 1), *again]:
        left = {factor: list(values) for factor, values in _FACTORS.items()}
        # With each option, a length of the queries meets another length of the keys.
        turn = _TURN * place % len(left["keys"])
        left["keys"] = left["keys"][turn:] + left["keys"][:turn]
        while any(left.values()):
            yield _asked((option,), left, number)
            number += 1
    # Each pair of options once, at sizes that change from pair to pair.
    left = {factor: list(values) for factor, values in _FACTORS.items()}
    for line, other in combinations(NAMES, 2):
        for pair in product(line, other):
            if "plain" in pair:
                continue
            for factor, values in _FACTORS.items():
                left[factor] = left[factor] or list(values)
            yield _asked(pair, left, number)
            number += 1


def _asked(options: tuple[str, ...], left: dict[str, list[Any]], number: int) -> Asked:
    """Take a value of each factor that is left, as long as the problem is small enough."""
    chosen = dict(_SMALL)
    # Another factor comes first in each problem, so that no large value is left out for ever.
    factors = list(_FACTORS)
    for factor in factors[number % len(factors) :] + factors[: number % len(factors)]:
        for value in left[factor]:
            if _work({**chosen, factor: value}) <= _MOST:
                chosen[factor] = value
                left[factor].remove(value)
                break
    heads, key_heads = chosen["heads"]
    queries, keys, batch = chosen["queries"], chosen["keys"], chosen["batch"]
    given: dict[str, Any] = {}
    for one in options:
        given |= formula_option(one, number, batch, queries, keys)
    sizes = (queries, keys, chosen["depth"], chosen["value_depth"], batch, heads, key_heads)
    return Asked(Formula(*sizes, seed=number, options=given), chosen["dtype"])


def _work(chosen: dict[str, Any]) -> int:
    pairs = chosen["queries"] * chosen["keys"] * chosen["heads"][0] * prod(chosen["batch"])
    found: int = pairs * (chosen["depth"] + chosen["value_depth"])
    return found
