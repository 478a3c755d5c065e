"""A call to differentiate, converted to a working precision; its forward pass and exact gradients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.dtypes import FORMATS, numpy_dtype
from attnspec.operations import OPERATIONS
from attnspec.reference.masking import allowed_keys
from tools.algorithms import Array, Function, Mask, divided, rounded

#: A product of two matrices, or of stacks of them.
Product = Callable[[Array, Array], Array]
_MASKING = OPERATIONS["attention"].names("masks")


@dataclass(frozen=True)
class Call:
    """A call in a working precision, a key head for each query head.

    Attributes
    ----------
    query, key, value, g : (B, Hq, L, D), (B, Hq, S, D), (B, Hq, S, Dv), (B, Hq, L, Dv)
    h : (B, Hq, L, 1)
        The cotangents of the lse, or zeros.
    sink : (Hq, 1, 1)
        Minus infinity if there is none.
    bias : array or None
        Broadcasts to (B, Hq, L, S).
    kept : (B, Hq, L, S)
        The factors of the weights by dropout.
    allowed : (B, Hq, L, S)
    scale : float
    softcap : float or None
    dtype : str
        The dtype of the inputs.
    given : mapping
        The given arguments.
    """

    query: Array
    key: Array
    value: Array
    g: Array
    h: Array
    sink: Array
    bias: Array | None
    kept: Array
    allowed: Mask
    scale: float
    softcap: float | None
    dtype: str
    given: Mapping[str, Any]

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


def prepared(arguments: Mapping[str, Any], dtype: str, working: Any) -> Call:
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
    weights = divided(weights, total)
    dropped = rounded(weights * call.kept, call.storage) if cast else weights * call.kept
    output = rounded(product(dropped, call.value), call.storage)
    return Forward(weights, output, rounded(np.log(total) + top, call.lse))


def finished(call: Call, found: Mapping[str, Array], *, narrow: bool = True) -> dict[str, Array]:
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
    """Compute the gradients in the longest format that NumPy has, straight from the formulas.

    Examples
    --------
    >>> import numpy as np
    >>> from tools.gradient_call import exact
    >>> one = np.ones((1, 1, 1, 1))
    >>> {name: float(x[0, 0, 0, 0]) for name, x in exact(dict.fromkeys(
    ...     ("query", "key", "value", "d_output"), one), "float64").items()}
    {'d_query': 0.0, 'd_key': 0.0, 'd_value': 1.0}
    """
    call = prepared(arguments, dtype, np.longdouble)
    s, slope = scores(call, call.query, call.key)
    s = np.where(call.allowed, s, -np.inf)
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), call.sink)
    top = np.where(np.isfinite(top), top, 0)
    total = np.exp(s - top).sum(axis=-1, keepdims=True) + np.exp(call.sink - top)
    p = divided(np.exp(s - top), total)
    r = call.kept * (call.g @ np.swapaxes(call.value, -1, -2))
    delta = (p * r).sum(axis=-1, keepdims=True)
    t = p * (r - delta + call.h)
    u = np.longdouble(call.scale) * t * slope
    found = {
        "d_query": u @ call.key,
        "d_key": np.swapaxes(u, -1, -2) @ call.query,
        "d_value": np.swapaxes(call.kept * p, -1, -2) @ call.g,
        "d_scores": t,
        "d_sinks": divided(np.exp(call.sink - top), total) * (call.h - delta),
    }
    return finished(call, found, narrow=False)
