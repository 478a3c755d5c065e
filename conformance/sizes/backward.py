"""Gradients: beside the edges of tiles, for long sequences, and for one query on a long cache."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from attnspec.conformance.sizes.problem import Asked
from attnspec.conformance.suite.options import edge, formula_option
from attnspec.formula import Formula

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
#: The number of words of long sequences.
_WORDS = 8
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


def backward() -> Iterator[Asked]:
    """Gradients at the sizes at which kernels take other paths, each element of which is compared."""
    for number, (option, (queries, keys), depth, heads, dtype) in enumerate(_CALLS):
        batch = (1 + number % 2,)
        given = {"d_lse": True} if option == "d_lse" else formula_option(option, number, batch, queries, keys)
        formula = Formula(queries, keys, depth, depth, batch, *heads, seed=number, options=given)
        yield Asked(formula, dtype, operation=_VJP)
    for number, (keys, short) in enumerate(product((1025, 4097, 16385), (False, True))):
        given = {"key_lengths": (keys - edge(number, keys),)} if short else {}
        formula = Formula(1, keys, 128, 128, heads=8, key_heads=2, seed=number, options=given)
        yield Asked(formula, ("float32", "bfloat16")[number // 2 % 2], operation=_VJP)
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
            yield Asked(formula, dtype, f"{name}-{size}", operation=_VJP)


def backward_of_some() -> Iterator[Asked]:
    """Gradients for arbitrary numbers with any mask; the judged heads are chosen after the result came."""
    for number, (option, (queries, keys), depth, heads) in enumerate(_OF_SOME):
        given = formula_option(option, number, (2,), queries, keys)
        formula = Formula(queries, keys, depth, depth, (2,), *heads, words=0, seed=number, options=given)
        yield Asked(formula, ("float32", "bfloat16", "float32", "float16")[number % 4], operation=_VJP)
