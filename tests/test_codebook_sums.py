"""Sums over intervals of keys that begin and end inside tiles."""

import numpy as np
import pytest

from attnspec.conformance.sizes.codebook.exponentials import Split
from attnspec.conformance.sizes.codebook.sums import Rows, keys_of, over


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (3, 60),
        (0, 128),
        (100, 300),
        (128, 8192),
        (1, 8190),
        (127, 8449),
        (130, 9984),
        (0, 10000),
        (300, 9999),
    ],
)
@pytest.mark.parametrize("rest", [0.0, 2.0**-30])
def test_sums_are_those_over_the_keys_one_by_one(low: int, high: int, rest: float) -> None:
    """Numerators are exact. Sizes, which only budgets use, are at most a 32nd or so too large."""
    random = np.random.default_rng(high)
    words = random.integers(0, 3, 10000).astype(np.uint8)
    value = (random.integers(-64, 65, (10000, 5)) / 64).astype(np.float32)
    # Powers of two, so that sums in any order are exact.
    first = 2.0 ** random.integers(-6, 0, (2, 3))
    weights = Split(first, first * rest)
    rows = Rows(np.array([1, 0], np.uint8), np.array([low, low]), np.array([high, high]))
    found = over(keys_of(words, value, 3), weights, rows, [slice(0, 2)])
    for place, word in enumerate((1, 0)):
        by_key = first[word][words[low:high]]
        units = value[low:high].astype(np.float64) * 64
        assert found.first[place].tolist() == (by_key @ units).tolist()
        if rest:
            assert found.rest[place].tolist() == (by_key * rest @ units).tolist()
        sizes = by_key @ np.concatenate([np.abs(units), units**2], axis=1)
        most = 1 / 32 if high - low >= 64 * 128 else 0
        assert (found.sizes[place] >= sizes * (1 - 1e-6)).all()
        assert (found.sizes[place] <= sizes * (1 + most + 1e-6)).all()
