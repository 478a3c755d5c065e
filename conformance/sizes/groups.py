"""The groups of sized cases: problems at the sizes at which kernels take other paths."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from math import prod
from typing import Any

from attnspec.conformance.judge.layout import OF_ANY_NUMBERS
from attnspec.conformance.suite.options import NAMES, edge, formula_option
from attnspec.formula import Formula


@dataclass(frozen=True)
class Problem:
    """A problem that a group asks for. Its id ends with `name`, or with a number."""

    formula: Formula
    dtype: str = "float32"
    name: str = ""
    layout: Mapping[str, str] = field(default_factory=dict)
    operation: str = "attention"


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


def covering() -> Iterator[Problem]:
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
            yield _problem((option,), left, number)
            number += 1
    # Each pair of options once, at sizes that change from pair to pair.
    left = {factor: list(values) for factor, values in _FACTORS.items()}
    for line, other in combinations(NAMES, 2):
        for pair in product(line, other):
            if "plain" in pair:
                continue
            for factor, values in _FACTORS.items():
                left[factor] = left[factor] or list(values)
            yield _problem(pair, left, number)
            number += 1


def _problem(options: tuple[str, ...], left: dict[str, list[Any]], number: int) -> Problem:
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
    for option in options:
        given |= formula_option(option, number, batch, queries, keys)
    sizes = (queries, keys, chosen["depth"], chosen["value_depth"], batch, heads, key_heads)
    return Problem(Formula(*sizes, seed=number, options=given), chosen["dtype"])


def _work(chosen: dict[str, Any]) -> int:
    pairs = chosen["queries"] * chosen["keys"] * chosen["heads"][0] * prod(chosen["batch"])
    found: int = pairs * (chosen["depth"] + chosen["value_depth"])
    return found


_LENGTHS = (128, 255, 257, 512, 1000, 1025, 2048, 4097, 8192, 16385, 32768, 65537, 131072)
_HEADS = ((8, 8), (8, 1), (16, 2), (5, 1), (64, 4), (12, 4))
_OPTIONS = ("plain", "lengths", "window", "sinks", "softcap", "mask", "bias", "causal", "left")


def decode() -> Iterator[Problem]:
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
        yield Problem(Formula(1, keys, seed=number, options=given[option], **sizes), dtype)


#: Query heads and key heads. Models have groups of 71 and of 128 heads.
_MANY_HEADS = ((34, 2), (71, 1), (128, 1), (96, 6))
#: Queries and keys beside these heads: prefill, and decoding past two lengths of splits.
_LENGTHS_OF_MANY_HEADS = ((33, 65), (1, 300), (1, 1100))


def heads() -> Iterator[Problem]:
    """Many query heads share a key head, in prefill and in decoding."""
    for number, ((query_heads, key_heads), (queries, keys)) in enumerate(
        product(_MANY_HEADS, _LENGTHS_OF_MANY_HEADS)
    ):
        options: dict[str, Any] = {"is_causal": True, "query_offset": keys - queries} if number % 2 else {}
        sizes = (queries, keys, 64, 32, (2,), query_heads, key_heads)
        yield Problem(Formula(*sizes, seed=number, options=options))


#: Axes of masks with 2^20 elements and more, in problems with these batch entries and heads.
_AXES = ((("L", "S"), (1,), 2), (("B", "H", "L", "S"), (2,), 2), (("H", "L", "S"), (3,), 3))
_SIDE = 1025
#: L, S, D and Dv with 2^20 elements and more in the query, in the key, in the value, in the output.
_SIZES = ((4100, 5, 256, 8), (3, 4100, 256, 8), (5, 4100, 8, 256), (4100, 5, 8, 256))


def addresses() -> Iterator[Problem]:
    """A mask, a bias, a dropout mask or another array has more than a million elements."""
    names = ("mask", "bias", "dropout_mask")
    for number, (name, (axes, batch, heads)) in enumerate(product(names, _AXES)):
        options = {name: axes} | ({"dropout_rate": 0.5} if name == "dropout_mask" else {})
        sizes = (_SIDE, _SIDE + number, 16, 8, batch, heads, heads)
        yield Problem(Formula(*sizes, seed=number, options=options))
    for number, sizes_of_one in enumerate(_SIZES):
        yield Problem(Formula(*sizes_of_one, (1,), 2, 2, seed=number))


def views() -> Iterator[Problem]:
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
        yield Problem(formula, ("float32", "bfloat16")[number % 2], layout=dict.fromkeys(names, kind))


#: The number of words. More words need more memory for the sums before each tile.
_WORDS = 8
_OPTIONS_OF_LONG: dict[str, dict[str, Any]] = {
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": (1023, None)},
    "segments": {"segments": 1000},
    "packed": {"segments": 1000, "is_causal": True},
    "whole": {},
}


def long() -> Iterator[Problem]:
    """Long sequences, each row of which is compared."""
    for power in (12, 13, 14, 15, 16, 17, 18, 20):
        for name, options in _OPTIONS_OF_LONG.items():
            # Every key has an influence that float32 shows if a row has few keys, float64 if it has many.
            few = name in ("window", "segments", "packed")
            for dtype in ("float32",) if few else ("float32", "float64"):
                size = 2**power
                formula = Formula(size, size, 64, 64, words=_WORDS, options=options)
                yield Problem(formula, dtype, f"{name}-{size}")
    for dtype in ("float16", "bfloat16"):
        size = 2**25 + 1
        formula = Formula(
            1, size, 64, 64, words=_WORDS, options={"window": (1023, 0), "query_offset": size - 1}
        )
        yield Problem(formula, dtype, f"elements-{size}")


#: L and S.
_LENGTHS_OF_ARBITRARY = ((300, 300), (129, 1025), (1, 4097))


def samples() -> Iterator[Problem]:
    """Arbitrary numbers with any mask; the judged rows are chosen after the result is delivered."""
    names = [name for line in NAMES for name in line]
    for number, (name, (queries, keys)) in enumerate(product(names, _LENGTHS_OF_ARBITRARY)):
        if name == "query_lengths" and queries == 1:
            continue
        heads, depth = ((4, 2), (3, 3), (8, 1))[number % 3], (64, 128, 80)[number // 3 % 3]
        given = {"scale": (1.0, 0.125)[number % 2]} | formula_option(name, number, (2,), queries, keys)
        sizes = (queries, keys, depth, depth, (2,), *heads)
        dtype = ("float32", "bfloat16", "float32", "float16")[number % 4]
        yield Problem(Formula(*sizes, words=0, seed=number, options=given), dtype)


_VJP = "attention_vjp"
#: Option, L and S, D, Hq and Hkv, dtype. Each length is beside a tile or a power of two. Most calls have no
#: option but a causal mask, because many implementations have no other.
_CALLS: Sequence[tuple[str, tuple[int, int], int, tuple[int, int], str]] = (
    ("plain", (255, 255), 64, (1, 1), "float32"),
    ("is_causal", (257, 257), 128, (12, 4), "bfloat16"),
    ("plain", (513, 513), 40, (2, 2), "float16"),
    ("is_causal", (1025, 1025), 96, (1, 1), "float32"),
    ("window", (2047, 2047), 64, (1, 1), "float64"),
    ("plain", (127, 513), 80, (9, 9), "float32"),
    ("is_causal", (511, 511), 256, (2, 1), "float32"),
    ("segments", (65, 2049), 64, (2, 2), "float16"),
    ("plain", (129, 257), 128, (17, 1), "float32"),
    ("is_causal", (513, 129), 40, (16, 8), "float64"),
    ("key_lengths", (257, 1023), 96, (9, 3), "float32"),
    ("left", (1025, 1025), 160, (2, 1), "bfloat16"),
    ("plain", (255, 257), 256, (4, 2), "float16"),
    ("is_causal", (769, 769), 192, (3, 3), "float32"),
    ("sinks", (513, 513), 64, (4, 2), "float64"),
    ("query_lengths", (513, 257), 128, (2, 2), "float32"),
    ("plain", (2047, 2049), 40, (1, 1), "bfloat16"),
    ("is_causal", (127, 513), 96, (33, 33), "float16"),
    ("softcap", (257, 513), 64, (8, 1), "float32"),
    ("query_offset", (65, 2049), 80, (4, 2), "float64"),
    ("plain", (1025, 257), 192, (8, 1), "float32"),
    ("is_causal", (2049, 2049), 64, (2, 1), "float32"),
    ("d_lse", (1023, 129), 128, (12, 4), "float32"),
    ("scale", (385, 511), 72, (10, 5), "float16"),
)
#: Option, L and S, D, Hq and Hkv.
_OF_SOME: Sequence[tuple[str, tuple[int, int], int, tuple[int, int]]] = (
    ("mask", (257, 257), 64, (4, 2)),
    ("bias", (129, 513), 40, (3, 3)),
    ("dropout", (300, 129), 128, (6, 2)),
    ("mask", (129, 513), 128, (3, 1)),
    ("bias", (300, 129), 64, (4, 4)),
    ("dropout", (257, 257), 40, (6, 2)),
    ("is_causal", (300, 300), 64, (4, 2)),
    ("plain", (129, 513), 64, (2, 2)),
)


def backward() -> Iterator[Problem]:
    """Gradients at the sizes at which kernels take other paths, each element of which is compared."""
    for number, (option, (queries, keys), depth, heads, dtype) in enumerate(_CALLS):
        batch = (1 + number % 2,)
        given = {"d_lse": True} if option == "d_lse" else formula_option(option, number, batch, queries, keys)
        formula = Formula(queries, keys, depth, depth, batch, *heads, seed=number, options=given)
        yield Problem(formula, dtype, operation=_VJP)
    for number, (keys, short) in enumerate(product((1025, 4097, 16385), (False, True))):
        given = {"key_lengths": (keys - edge(number, keys),)} if short else {}
        formula = Formula(1, keys, 128, 128, heads=8, key_heads=2, seed=number, options=given)
        yield Problem(formula, ("float32", "bfloat16")[number // 2 % 2], operation=_VJP)
    # Float64 shows each key and each query of a long row, and float32 shows them where a row has few keys.
    options: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "causal": ({"is_causal": True}, ("float32", "float64")),
        "whole": ({}, ("float64",)),
        "window": ({"is_causal": True, "window": (255, None)}, ("float32",)),
        "segments": ({"segments": 300}, ("float32",)),
    }
    for size, (name, (given, dtypes)) in product((4096, 8193, 16384), options.items()):
        for dtype in dtypes:
            formula = Formula(size, size, 64, 64, words=_WORDS, options=given)
            yield Problem(formula, dtype, f"{name}-{size}", operation=_VJP)


def backward_of_some() -> Iterator[Problem]:
    """Gradients for arbitrary numbers with any mask; the judged heads are chosen after the result came."""
    for number, (option, (queries, keys), depth, heads) in enumerate(_OF_SOME):
        given = formula_option(option, number, (2,), queries, keys)
        formula = Formula(queries, keys, depth, depth, (2,), *heads, words=0, seed=number, options=given)
        yield Problem(formula, ("float32", "bfloat16", "float32", "float16")[number % 4], operation=_VJP)


#: L, and S past tiles, blocks of scales and lengths of lists.
_LENGTHS_OF_SHORT = ((1, 257), (17, 513), (129, 640), (1, 1025), (65, 2048), (1, 4097))
_OPTIONS_OF_SHORT = ("plain", "is_causal", "key_lengths", "left", "sinks", "softcap", "mask", "bias", "scale")


def codes() -> Iterator[Problem]:
    """Numbers that codes of 4 and 8 bits hold with scales of several sizes, past tiles and splits."""
    for (line, option), (place, (queries, keys)) in product(
        enumerate(_OPTIONS_OF_SHORT), enumerate(_LENGTHS_OF_SHORT)
    ):
        number = len(_LENGTHS_OF_SHORT) * line + place
        batch, heads = (
            ((2,), (1,), (3,))[number // 2 % 3],
            ((4, 2), (8, 1), (3, 3), (8, 2))[(line + place) % 4],
        )
        depth = (64, 128, 96, 40)[(line + place // 2) % 4]
        options = formula_option(option, number, batch, queries, keys)
        sizes = (queries, keys, depth, (depth, 64)[line % 2], batch, *heads)
        dtype = ("bfloat16", "float32", "float16", "float32")[(line + place // 3) % 4]
        yield Problem(Formula(*sizes, seed=number, short=True, options=options), dtype)
