"""Long sequences, up to a million rows, and arrays of more than 2^31 elements."""

from collections.abc import Iterator
from typing import Any

from attnspec.conformance.sizes.problem import Asked
from attnspec.formula import Formula

#: The number of words. More words need more memory for the sums before each tile.
_WORDS = 8
_OPTIONS: dict[str, dict[str, Any]] = {
    "causal": {"is_causal": True},
    "window": {"is_causal": True, "window": (1023, None)},
    "segments": {"segments": 1000},
    "packed": {"segments": 1000, "is_causal": True},
    "whole": {},
}


def long() -> Iterator[Asked]:
    """Long sequences, each row of which is compared."""
    for power in (12, 13, 14, 15, 16, 17, 18, 20):
        for name, options in _OPTIONS.items():
            # Every key has an influence that float32 shows if a row has few keys, float64 if it has many.
            few = name in ("window", "segments", "packed")
            for dtype in ("float32",) if few else ("float32", "float64"):
                size = 2**power
                formula = Formula(size, size, 64, 64, words=_WORDS, options=options)
                yield Asked(formula, dtype, f"{name}-{size}")
    for dtype in ("float16", "bfloat16"):
        size = 2**25 + 1
        formula = Formula(
            1, size, 64, 64, words=_WORDS, options={"window": (1023, 0), "query_offset": size - 1}
        )
        yield Asked(formula, dtype, f"elements-{size}")
