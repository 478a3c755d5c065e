"""Numbers by formula: every octet of an input follows from a seed, a stream and a position.

The document `generator.md` defines the formula, with a program in C. A device can make its inputs
itself, and no file has to be shipped.
"""

import numpy as np
from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 8  # octets


def octets(seed: int, stream: int, count: int, start: int = 0) -> NDArray[np.uint8]:
    """Return the octets of a stream from position `start` on.

    Examples
    --------
    >>> from attnspec.generator import octets
    >>> octets(0, 0, 4).tolist(), octets(0, 0, 2, start=2).tolist()
    ([111, 126, 25, 77], [25, 77])
    """
    for name, number in (("seed", seed), ("stream", stream)):
        if not 0 <= number < 2**32:
            raise ValueError(f"{name}: expected 0 to {2**32 - 1}, got {number}")
    first, last = start // _WORD, -(-(start + count) // _WORD)
    key = _mixed(np.array([(seed << 32 | stream) + _STEP & _MASK], dtype=np.uint64))
    steps = np.arange(first + 1, last + 1, dtype=np.uint64) * np.uint64(_STEP)
    found = _mixed(steps + key).astype("<u8", copy=False).view(np.uint8)
    return found[start - first * _WORD :][:count]


def numbers(seed: int, stream: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return an array of multiples of 1/64 from -2 to 127/64: the octets of a stream as signed integers.

    Every dtype of the standard holds these numbers exactly.

    Examples
    --------
    >>> from attnspec.generator import numbers
    >>> (64 * numbers(0, 0, (2, 2))).tolist()
    [[111.0, 126.0], [25.0, 77.0]]
    """
    found = octets(seed, stream, int(np.prod(shape, dtype=np.int64))).view(np.int8)
    return np.multiply(found, np.float32(1 / 64), dtype=np.float32).reshape(shape)


_MASK = 2**64 - 1


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the last function of SplitMix64 (Steele, Lea and Flood, 2014), in place."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(31)
    return x
