"""Sums over intervals of keys: those of rows, and those by words."""

import numpy as np
import pytest

from attnspec.conformance.sizes.codebook.exponentials import Split
from attnspec.conformance.sizes.codebook.sums import Rows, keys_of, over
from attnspec.conformance.sizes.codebook.words import Sources, Targets, by_word


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


WORDS = 3
#: Intervals of single targets, and of many that share their tiles: within a tile, at its edges, over tiles.
INTERVALS = (
    *(((129,), (600,)), ((128,), (600,)), ((127,), (129,)), ((0,), (0,)), ((600,), (600,)), ((1,), (257,))),
    (tuple(range(300)), tuple(range(300, 600))),
    ((0,) * 600, tuple(range(1, 601))),
    (tuple(range(600)), (600,) * 600),
)


@pytest.mark.parametrize("bounds", INTERVALS, ids=lambda one: f"{one[0][0]}-{one[1][-1]}")
def test_each_sum_is_that_of_its_pairs(bounds: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """The sums of products, of counts and of columns are equal; that of absolute values is a bound."""
    random = np.random.default_rng(3)
    low, high = (np.array(bound, dtype=np.int64) for bound in bounds)
    count, targets = 600, len(low)
    words = random.integers(WORDS, size=count).astype(np.uint8)
    vectors, weights = random.normal(size=(count, 5)), random.random((count, 2))
    dotted, columns = random.random((count, 4)), random.normal(size=(count, 6))
    x, sizes, mixed = (
        random.normal(size=(targets, 5)),
        random.random((targets, 4)),
        random.random((targets, WORDS)),
    )
    seen = []
    for rows, found in by_word(
        Sources(words, WORDS, vectors, weights, dotted, columns), Targets(x, sizes, mixed, low, high)
    ):
        seen += rows.tolist()
        for place, row in enumerate(rows):
            own = slice(low[row], high[row])
            for word in range(WORDS):
                one = (words[own] == word).astype(float)
                products = vectors[own] @ x[row]
                want = (one * weights[own, 0]) @ products
                assert found.products[place, word] == pytest.approx(want, abs=1e-11)
                assert found.counts[place, word] == one.sum()
                assert found.dotted[place, word] == pytest.approx(one @ (dotted[own] @ sizes[row]), abs=1e-11)
                for k in range(2):
                    least = (one * weights[own, k]) @ np.abs(products)
                    assert least - 1e-11 <= found.absolute[k, place, word] <= 1.5 * least + 1
            want = (mixed[row][words[own]][:, None] * columns[own]).sum(axis=0)
            np.testing.assert_allclose(found.columns[place], want, atol=1e-11)
    assert sorted(seen) == list(range(targets))
