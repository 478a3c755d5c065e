"""Calls of attention with cotangents that show the rounding errors of gradients, in every dtype."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np

from attnspec.conformance.suite.options import normal_option
from attnspec.dtypes import FORMATS, numpy_dtype

#: Arguments of a call, before they are rounded to a dtype.
Drawn = dict[str, Any]

#: (B, Hq, Hkv, L, S, D, Dv): rows of one key, shared heads, long rows, and long columns.
SIZES: tuple[tuple[int, ...], ...] = (
    (1, 1, 1, 1, 1, 1, 1),
    (2, 1, 1, 4, 7, 4, 3),
    (1, 4, 2, 7, 16, 16, 16),
    (1, 2, 1, 16, 17, 64, 32),
    (1, 4, 1, 64, 16, 8, 8),
    (1, 1, 1, 3, 257, 64, 64),
    (1, 2, 1, 8, 512, 64, 64),
    (1, 1, 1, 128, 64, 32, 32),
)
AMPLITUDES = (0.1, 4.0, 16.0)


@dataclass(frozen=True)
class Problem:
    """A call to differentiate.

    Attributes
    ----------
    dataset : str
        A name in `DATASETS`.
    size : tuple of int
        As in `SIZES`.
    seed : int
    arguments : mapping
        The arguments of `attention_vjp`, with arrays in their dtypes.
    """

    dataset: str
    size: tuple[int, ...]
    seed: int
    arguments: Mapping[str, Any]

    @property
    def dtype(self) -> str:
        """The dtype of query, key, value and their gradients."""
        return str(self.arguments["query"].dtype)


def problem(dataset: str, size: tuple[int, ...], dtype: str, seed: int) -> Problem:
    """Draw a problem. The same arguments give the same problem on every machine.

    Examples
    --------
    >>> from tools.gradient_problems import problem
    >>> given = problem("sinks", (1, 4, 2, 3, 5, 8, 6), "float16", 0).arguments
    >>> {name: x.shape for name, x in given.items() if name in ("key", "d_output", "sinks")}
    {'key': (1, 2, 5, 8), 'd_output': (1, 4, 3, 6), 'sinks': (4,)}
    """
    drawn = DATASETS[dataset](np.random.default_rng([seed, crc32(dataset.encode()), *size]), *size)
    of_lse = numpy_dtype(FORMATS[dtype].lse)
    dtypes = {"d_lse": of_lse, "sinks": of_lse}
    arguments = {
        name: x.astype(dtypes.get(name, numpy_dtype(dtype)))
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else x
        for name, x in drawn.items()
    }
    return Problem(dataset, size, seed, arguments)


def problems(dtype: str, *, seeds: range, sizes: tuple[tuple[int, ...], ...] = SIZES) -> Iterator[Problem]:
    """Yield every data set in every size, once for each seed."""
    for dataset in DATASETS:
        for size in sizes:
            for seed in seeds:
                yield problem(dataset, size, dtype, seed)


def plain(random: np.random.Generator, *size: int) -> Drawn:
    """Draw all arrays from the normal distribution. The other data sets change one property."""
    batch, heads, shared, queries, keys, depth, depth_of_values = size
    shapes = {
        "query": (batch, heads, queries, depth),
        "key": (batch, shared, keys, depth),
        "value": (batch, shared, keys, depth_of_values),
        "d_output": (batch, heads, queries, depth_of_values),
    }
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


def flat(*draw: Any) -> Drawn:
    """Draw queries near 0: all weights are about the same, and sums are long."""
    drawn = plain(*draw)
    return drawn | {"query": drawn["query"] * 2**-10}


def peaked(random: np.random.Generator, *size: int) -> Drawn:
    """Draw each query as a multiple of one key, which gets most of the weight of its row."""
    drawn = plain(random, *size)
    key = np.repeat(drawn["key"], size[1] // size[2], axis=1)  # (B, Hq, S, D)
    return drawn | {"query": 2 * key[:, :, np.arange(size[3]) * 5 % size[4]]}


def similar_values(*draw: Any) -> Drawn:
    """Draw values that are nearly the same, so that `r - delta` cancels."""
    drawn = plain(*draw)
    return drawn | {"value": 4 + drawn["value"] / 64}


def positive(*draw: Any) -> Drawn:
    """Draw values and cotangents above 0, so that `r - delta` cancels and the sums do not."""
    drawn = plain(*draw)
    return drawn | {name: 1 + np.abs(drawn[name]) for name in ("value", "d_output")}


def rising_keys(*draw: Any) -> Drawn:
    """Draw keys with a common part, so that an error of `delta` moves a whole row in one direction."""
    drawn = plain(*draw)
    return drawn | {"key": 8 + drawn["key"]}


def common_shift(random: np.random.Generator, *size: int) -> Drawn:
    """Draw scores of about 500 that differ little, so that the lse is rounded at that size."""
    drawn, depth = plain(random, *size), size[5]
    direction = random.choice([-1.0, 1.0], size=depth)
    query = drawn["query"] / 8 + 16 * direction
    return drawn | {"query": query, "key": drawn["key"] / 16 + 32 / np.sqrt(depth) * direction}


def scaled(*draw: Any, amplitude: float) -> Drawn:
    """Multiply all inputs by an amplitude. From 4 on, a few keys get all of the weight of a row."""
    return {name: x * amplitude for name, x in plain(*draw).items()}


def tiny_cotangents(*draw: Any) -> Drawn:
    """Draw cotangents near the smallest normal number of float16, as for a loss that is a mean."""
    drawn = plain(*draw)
    return drawn | {"d_output": drawn["d_output"] * 2**-14}


def with_options(random: np.random.Generator, *size: int, of: tuple[str, ...]) -> Drawn:
    """Draw the options of these names in addition to the arrays."""
    drawn = plain(random, *size)
    batch, heads, _, queries, keys, _, _ = size
    for name in of:
        drawn |= normal_option(name, random, batch, heads, queries, keys)
        if name == "softcap":
            drawn["query"] = 4 * drawn["query"]
        if name == "lse alone":
            drawn["d_output"] = 0 * drawn["d_output"]
    return drawn


_ALL = ("causal", "softcap", "bias", "sinks", "lse", "dropout")

#: By name.
DATASETS: Mapping[str, Callable[..., Drawn]] = MappingProxyType(
    {
        "plain": plain,
        "flat": flat,
        "peaked": peaked,
        "similar-values": similar_values,
        "positive": positive,
        "rising-keys": rising_keys,
        "common-shift": common_shift,
        "tiny-cotangents": tiny_cotangents,
    }
    | {f"amplitude-{amplitude:g}": partial(scaled, amplitude=amplitude) for amplitude in AMPLITUDES}
    | {
        name.replace(" ", "-"): partial(with_options, of=(name,))
        for name in (*_ALL, "window", "empty rows", "full bias", "lse alone")
    }
    | {"all-options": partial(with_options, of=_ALL)}
)
