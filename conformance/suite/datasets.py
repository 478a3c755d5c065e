"""Named data sets on which rounding errors show: seeded problems in every dtype."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import partial
from operator import mul
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import numpy_dtype

Array = NDArray[Any]
#: Query, key, value in float64 and the allowed keys, before they are rounded to a dtype.
Drawn = tuple[Array, Array, Array, NDArray[np.bool_]]

#: (L, S, D): sizes around the edges of tiles.
SIZES: tuple[tuple[int, int, int], ...] = (
    (1, 1, 1),
    (3, 7, 4),
    (7, 16, 16),
    (5, 17, 64),
    (4, 31, 8),
    (8, 32, 3),
    (16, 64, 64),
    (64, 16, 32),
    (6, 65, 16),
    (4, 128, 128),
    (3, 257, 64),
    (2, 1024, 256),
    (4, 1024, 1),
)

AMPLITUDES = (0.01, 0.1, 4.0, 20.0, 50.0)

#: Data sets whose results and weights have independent fractional parts. On other data, rounding to nearest
#: may be biased: a weight of nearly 1 is always rounded up.
INDEPENDENT = ("plain", "positive-value")


@dataclass(frozen=True)
class Problem:
    """One head to attend with."""

    dataset: str  # a name in `DATASETS`
    query: Array  # (L, D)
    key: Array  # (S, D)
    value: Array  # (S, Dv)
    allowed: NDArray[np.bool_]  # (L, S)
    seed: int

    @property
    def scale(self) -> float:
        """The default one."""
        return float(1 / np.sqrt(self.query.shape[-1]))

    @property
    def dtype(self) -> str:
        """The dtype of the inputs and the result."""
        return str(self.query.dtype)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the call. The mask is left out if it allows everything."""
        arrays: dict[str, Any] = {"query": self.query, "key": self.key, "value": self.value}
        return arrays if self.allowed.all() else arrays | {"mask": self.allowed}


def problem(dataset: str, size: tuple[int, int, int], dtype: str, seed: int) -> Problem:
    """Draw a problem. The same arguments give the same problem on every machine."""
    random = np.random.default_rng([seed, crc32(dataset.encode()), *size])
    query, key, value, allowed = DATASETS[dataset](random, *size)
    storage = numpy_dtype(dtype)
    query, key = query.astype(storage), key.astype(storage)
    if dataset == "cancelling":
        value = _cancel_first_row(query, key, value, storage)
    return Problem(dataset, query, key, value.astype(storage), allowed, seed)


def problems(
    dtype: str, *, seeds: range, sizes: tuple[tuple[int, int, int], ...] = SIZES
) -> Iterator[Problem]:
    """Yield every data set in every size, once for each seed."""
    for dataset in DATASETS:
        for size in sizes:
            for seed in seeds:
                yield problem(dataset, size, dtype, seed)


def plain(random: np.random.Generator, queries: int, keys: int, depth: int) -> Drawn:
    """Draw everything from the normal distribution; the other data sets change one thing."""
    query, key, value = (random.normal(size=(n, depth)) for n in (queries, keys, keys))
    return query, key, value, np.ones((queries, keys), bool)


def flat(*draw: Any) -> Drawn:
    """Draw queries near 0: all weights are about the same, so each key counts, and sums are long."""
    query, key, value, allowed = plain(*draw)
    return query * 2**-10, key, value, allowed


def constant_value(*draw: Any) -> Drawn:
    """Flat, and the values of a column all the same: every rounding of a running sum goes the same way."""
    query, key, value, allowed = flat(*draw)
    return query, key, np.broadcast_to(value[:1], value.shape), allowed


def positive_value(*draw: Any) -> Drawn:
    """Nothing cancels in the second product, so a bias of the weights is a bias of the result."""
    query, key, value, allowed = plain(*draw)
    return query, key, 1 + np.abs(value), allowed


def peaked(*draw: Any) -> Drawn:
    """Each query a multiple of one key, which takes most of its row."""
    _, key, value, allowed = plain(*draw)
    queries, keys = allowed.shape
    return 2 * key[np.arange(queries) * 5 % keys], key, value, allowed


def scaled(*draw: Any, amplitude: float) -> Drawn:
    """All three inputs of some amplitude; from 4 on, a few keys take all of a row."""
    query, key, value, allowed = plain(*draw)
    return query * amplitude, key * amplitude, value * amplitude, allowed


def late_peak(random: np.random.Generator, queries: int, keys: int, depth: int) -> Drawn:
    """Scores that rise along the row, by about 12: the maximum comes last, each tile rescales."""
    query, key, value, allowed = plain(random, queries, keys, depth)
    direction = random.choice([-1.0, 1.0], size=depth)
    rising = 12 / np.sqrt(depth) * np.linspace(0, 1, keys)[:, None] * direction
    return direction + query / 8, rising + key / 8, value, allowed


def common_shift(random: np.random.Generator, queries: int, keys: int, depth: int) -> Drawn:
    """Scores of about 500, differing by a few: the shift cancels in the weights, its rounding does not."""
    query, key, value, allowed = plain(random, queries, keys, depth)
    direction = random.choice([-1.0, 1.0], size=depth)
    return query / 8 + 16 * direction, key / 16 + 32 / np.sqrt(depth) * direction, value, allowed


def identity_value(*draw: Any) -> Drawn:
    """Make the output the weights."""
    query, key, _, allowed = plain(*draw)
    return query, key, np.eye(len(key)), allowed


def flat_identity(*draw: Any) -> Drawn:
    """Make the output the weights, nearly equal ones: a missing key is one that reads 0."""
    query, key, _, allowed = flat(*draw)
    return query, key, np.eye(len(key)), allowed


def peaked_identity(*draw: Any) -> Drawn:
    """Make the output the weights, from nearly 1 down to the smallest."""
    query, key, _, allowed = plain(*draw)
    return 4 * query, key, np.eye(len(key)), allowed


def tiny_value(*draw: Any) -> Drawn:
    """Values about the smallest normal number of float16: products with weights are subnormal."""
    query, key, value, allowed = plain(*draw)
    return query, key, value * 2**-14, allowed


def causal(*draw: Any) -> Drawn:
    """Rows of every length, from one key on."""
    query, key, value, allowed = plain(*draw)
    return query, key, value, np.tri(*allowed.shape, dtype=np.bool_)


def masked(random: np.random.Generator, queries: int, keys: int, depth: int) -> Drawn:
    """Half of the keys, the first always: no row is empty."""
    query, key, value, allowed = plain(random, queries, keys, depth)
    allowed = random.random(allowed.shape) < 0.5
    allowed[:, 0] = True
    return query, key, value, allowed


def _cancel_first_row(query: Array, key: Array, value: Array, dtype: np.dtype[Any]) -> Array:
    """Choose the values of two keys so that the first row of the output is nearly 0.

    The last rounding is tiny there, so earlier errors become visible. The second key
    compensates the rounding of the first.
    """
    value = value.astype(dtype).astype(np.float64)
    # Decimal numbers, because products and exponentials of NumPy differ between machines in the last digit.
    with localcontext() as context:
        context.prec = 40
        row = _weights(query[0].tolist(), key.tolist())
        chosen = sorted(range(len(row)), key=lambda place: row[place], reverse=True)[:2]
        value[chosen] = 0
        for heavy in chosen:
            sums = [sum(map(mul, row, map(Decimal, column))) for column in value.T.tolist()]
            value[heavy] = np.array([float(-total / row[heavy]) for total in sums], dtype)
    return value


def _weights(query: list[float], keys: list[list[float]]) -> list[Decimal]:
    """Weigh the keys for one query."""
    root = Decimal(len(query)).sqrt()
    given = [*map(Decimal, query)]
    scores = [sum(map(mul, given, map(Decimal, key)), Decimal()) / root for key in keys]
    largest = max(scores)
    exponentials = [(score - largest).exp() for score in scores]
    total = sum(exponentials)
    return [each / total for each in exponentials]


#: By name.
DATASETS: Mapping[str, Callable[..., Drawn]] = {
    "plain": plain,
    "flat": flat,
    "constant-value": constant_value,
    "positive-value": positive_value,
    "peaked": peaked,
    "late-peak": late_peak,
    "common-shift": common_shift,
    "identity-value": identity_value,
    "flat-identity": flat_identity,
    "peaked-identity": peaked_identity,
    "cancelling": plain,  # the values depend on the rounded query and key: see `problem`
    "tiny-value": tiny_value,
    "causal": causal,
    "masked": masked,
} | {f"amplitude-{amplitude:g}": partial(scaled, amplitude=amplitude) for amplitude in AMPLITUDES}
