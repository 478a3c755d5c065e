"""Each option in each size: lengths, depths, numbers of heads and batch entries, dtypes."""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any

from attnspec.conformance.suite.sizes.problem import NAMES, Asked, value_of
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
        *((32, 4), (64, 8), (128, 8), (17, 17), (33, 33)),
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
#: The most multiplications of one problem.
_MOST = 2**28


def covering() -> Iterator[Asked]:
    """Each option in each length, depth, number of heads and batch entries, and dtype."""
    left = {
        (option, factor): list(values)
        for option in chain.from_iterable(NAMES)
        for factor, values in _FACTORS.items()
    }
    number = 0
    while any(left.values()):
        options = [
            max(line, key=lambda one: sum(len(left[one, factor]) for factor in _FACTORS)) for line in NAMES
        ]
        # Two masks of pairs at a time, and every option alone in some problems.
        options = options[number % 2 :: 2] if number % 3 else options[number % len(options) :][:1]
        options = [one for one in options if any(left[one, factor] for factor in _FACTORS)]
        if not options:
            number += 1
            continue
        yield _asked(options, left, number)
        number += 1


def _asked(options: list[str], left: dict[tuple[str, str], list[Any]], number: int) -> Asked:
    """Take the values that most of some options lack, as long as the problem is small enough."""
    chosen = dict(_SMALL)
    # Another factor comes first in each problem, so that no large value is left out for ever.
    factors = list(_FACTORS)
    factors = factors[number % len(factors) :] + factors[: number % len(factors)]
    for factor in factors:
        wanted = [value for one in options for value in left[one, factor]]
        for value in dict.fromkeys(sorted(wanted, key=lambda one: -wanted.count(one))):
            if _work({**chosen, factor: value}) <= _MOST:
                chosen[factor] = value
                break
    for one in options:
        for factor in _FACTORS:
            if chosen[factor] in left[one, factor]:
                left[one, factor].remove(chosen[factor])
    heads, key_heads = chosen["heads"]
    sizes = {name: chosen[name] for name in ("queries", "keys", "depth", "value_depth", "batch")}
    given: dict[str, Any] = {}
    for one in options:
        given |= value_of(one, number, sizes["batch"], sizes["queries"], sizes["keys"])
    formula = Formula(**sizes, heads=heads, key_heads=key_heads, seed=number, options=given)
    return Asked(formula, chosen["dtype"])


def _work(chosen: dict[str, Any]) -> int:
    pairs = chosen["queries"] * chosen["keys"] * chosen["heads"][0] * prod(chosen["batch"])
    found: int = pairs * (chosen["depth"] + chosen["value_depth"])
    return found
