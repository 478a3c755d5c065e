"""A call to differentiate, converted to a working precision; its forward pass and exact gradients."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from attnspec.conformance.suite.options import normal_option
from attnspec.dtypes import FORMATS, numpy_dtype
from attnspec.operations import OPERATIONS
from attnspec.reference.masking import allowed_keys
from tools.algorithms import Array, Function, Mask, divide, round_to

#: A product of two matrices, or of stacks of them.
Product = Callable[[Array, Array], Array]
_MASKING = OPERATIONS["attention"].names("masks")


@dataclass(frozen=True)
class Call:
    """A call in a working precision, a key head for each query head."""

    query: Array  # (B, Hq, L, D)
    key: Array  # (B, Hq, S, D)
    value: Array  # (B, Hq, S, Dv)
    g: Array  # (B, Hq, L, Dv)
    #: (B, Hq, L, 1). The cotangents of the lse, or zeros.
    h: Array
    #: (Hq, 1, 1). Minus infinity if there is none.
    sink: Array
    #: Broadcasts to (B, Hq, L, S).
    bias: Array | None
    #: (B, Hq, L, S). The factors of the weights by dropout.
    kept: Array
    allowed: Mask  # (B, Hq, L, S)
    scale: float
    softcap: float | None
    dtype: str  # the dtype of the inputs
    given: Mapping[str, Any]  # the given arguments

    @property
    def storage(self) -> Any:
        """The dtype of the inputs."""
        return numpy_dtype(self.dtype)

    @property
    def lse(self) -> Any:
        """The dtype of an lse."""
        return numpy_dtype(FORMATS[self.dtype].lse)


@dataclass(frozen=True)
class Forward:
    """The results of a forward pass: weights (B, Hq, L, S), output (B, Hq, L, Dv) and lse (B, Hq, L, 1)."""

    weights: Array
    output: Array
    lse: Array


def prepare_call(arguments: Mapping[str, Any], dtype: str, working: Any) -> Call:
    """Convert the arguments to a working precision."""
    query, key, value, g = (arguments[n].astype(working) for n in ("query", "key", "value", "d_output"))
    group = query.shape[1] // key.shape[1]
    shape = (*query.shape[:-1], key.shape[-2])
    masks = {name: arguments[name] for name in _MASKING if name in arguments and name != "bias"}
    bias = arguments.get("bias")
    kept = np.broadcast_to(arguments.get("dropout_mask", True), shape).astype(working)
    h = arguments.get("d_lse", np.zeros(shape[:-1], working))
    sinks = arguments.get("sinks", np.full(shape[1], -np.inf))
    return Call(
        query,
        np.repeat(key, group, axis=1),
        np.repeat(value, group, axis=1),
        g,
        h.astype(working)[..., None],
        sinks.astype(working)[:, None, None],
        None if bias is None else bias.astype(working),
        kept / (working(1) - working(arguments.get("dropout_rate", 0.0))),
        allowed_keys(shape, **masks),
        float(arguments.get("scale", query.shape[-1] ** -0.5)),
        arguments.get("softcap"),
        dtype,
        arguments,
    )


def scores(
    call: Call, query: Array, key: Array, places: Any = ..., *, product: Product = np.matmul
) -> tuple[Array, Array | float]:
    """Return the scores of some queries and keys, and the slope of the softcap."""
    x, slope = product(query, np.swapaxes(key, -1, -2)) * query.dtype.type(call.scale), 1.0
    if call.softcap is not None:
        tanh = np.tanh(x / query.dtype.type(call.softcap))
        x, slope = query.dtype.type(call.softcap) * tanh, 1 - tanh * tanh
    if call.bias is not None:
        x = x + np.broadcast_to(call.bias, call.allowed.shape)[places]
    return x, slope


def forward(
    call: Call, *, exponential: Function = np.exp, cast: bool = False, product: Product = np.matmul
) -> Forward:
    """Compute attention, and round the output and the lse to their dtypes."""
    s = np.where(call.allowed, scores(call, call.query, call.key, product=product)[0], -np.inf)
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), call.sink)
    top = np.where(np.isfinite(top), top, 0).astype(s.dtype)
    weights = exponential(s - top)
    total = weights.sum(axis=-1, keepdims=True) + np.exp(call.sink - top)
    weights = divide(weights, total)
    dropped = round_to(weights * call.kept, call.storage) if cast else weights * call.kept
    output = round_to(product(dropped, call.value), call.storage)
    return Forward(weights, output, round_to(np.log(total) + top, call.lse))


def round_gradients(call: Call, found: Mapping[str, Array], *, narrow: bool = True) -> dict[str, Array]:
    """Sum over the heads of a group and over the axes along which a bias was broadcast, and round once."""
    shared = call.given["key"].shape[1]
    gradients = {"d_query": found["d_query"]}
    for name in ("d_key", "d_value"):
        batch, heads, *rest = found[name].shape
        gradients[name] = found[name].reshape(batch, shared, heads // shared, *rest).sum(axis=2)
    if call.bias is not None:
        over = tuple(axis for axis, size in enumerate(call.bias.shape) if size == 1)
        gradients["d_bias"] = found["d_scores"].sum(axis=over, keepdims=True)
    if "sinks" in call.given:
        gradients["d_sinks"] = found["d_sinks"].sum(axis=(0, 2, 3))
    if not narrow:
        return gradients
    return {name: x.astype(call.given[name[2:]].dtype) for name, x in gradients.items()}


def exact(arguments: Mapping[str, Any], dtype: str) -> dict[str, Array]:
    """Compute the gradients in the longest format that NumPy has, straight from the formulas."""
    call = prepare_call(arguments, dtype, np.longdouble)
    s, slope = scores(call, call.query, call.key)
    s = np.where(call.allowed, s, -np.inf)
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), call.sink)
    top = np.where(np.isfinite(top), top, 0)
    total = np.exp(s - top).sum(axis=-1, keepdims=True) + np.exp(call.sink - top)
    p = divide(np.exp(s - top), total)
    r = call.kept * (call.g @ np.swapaxes(call.value, -1, -2))
    delta = (p * r).sum(axis=-1, keepdims=True)
    t = p * (r - delta + call.h)
    u = np.longdouble(call.scale) * t * slope
    found = {
        "d_query": u @ call.key,
        "d_key": np.swapaxes(u, -1, -2) @ call.query,
        "d_value": np.swapaxes(call.kept * p, -1, -2) @ call.g,
        "d_scores": t,
        "d_sinks": divide(np.exp(call.sink - top), total) * (call.h - delta),
    }
    return round_gradients(call, found, narrow=False)


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
    """A call to differentiate."""

    dataset: str  # a name in `DATASETS`
    size: tuple[int, ...]  # as in `SIZES`
    seed: int
    arguments: Mapping[str, Any]  # the arguments of `attention_vjp`, with arrays in their dtypes

    @property
    def dtype(self) -> str:
        """The dtype of query, key, value and their gradients."""
        return str(self.arguments["query"].dtype)


def problem(dataset: str, size: tuple[int, ...], dtype: str, seed: int) -> Problem:
    """Draw a problem. The same arguments give the same problem on every machine."""
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


def draw_peaks(random: np.random.Generator, *size: int) -> Drawn:
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


def scale_draw(*draw: Any, amplitude: float) -> Drawn:
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
DATASETS: Mapping[str, Callable[..., Drawn]] = (
    {
        "plain": plain,
        "flat": flat,
        "peaked": draw_peaks,
        "similar-values": similar_values,
        "positive": positive,
        "rising-keys": rising_keys,
        "common-shift": common_shift,
        "tiny-cotangents": tiny_cotangents,
    }
    | {f"amplitude-{amplitude:g}": partial(scale_draw, amplitude=amplitude) for amplitude in AMPLITUDES}
    | {
        name.replace(" ", "-"): partial(with_options, of=(name,))
        for name in (*_ALL, "window", "empty rows", "full bias", "lse alone")
    }
    | {"all-options": partial(with_options, of=_ALL)}
)
