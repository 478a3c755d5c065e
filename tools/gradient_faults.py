"""Backward passes with one numerical fault each, which must exceed the budget of a gradient."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from attnspec.dtypes import SHORT
from tools import units
from tools.algorithms import Array, round_to, sequential
from tools.faults import truncate
from tools.gradient_algorithms import Backward, backward, multiply_on_units
from tools.gradient_calls import Call, forward, prepare_call, round_gradients, scores

#: The steps of a backward pass that a fault changes, by name.
Steps = Mapping[str, Callable[..., Array]]


def stepwise(call: Call, steps: Steps) -> dict[str, Array]:
    """Compute all gradients at once, with some steps replaced."""
    left = forward(call)
    s, slope = scores(call, call.query, call.key)
    s = steps.get("scores", _as_it_is)(s)
    lse = steps.get("lse", _as_it_is)(np.where(np.isfinite(left.lse), left.lse, 0).astype(s.dtype))
    p = np.where(call.allowed, steps.get("weights", _exponentials)(s, lse), np.zeros_like(s))
    r = call.kept * (call.g @ np.swapaxes(call.value, -1, -2))
    row_sums = (call.g * left.output).sum(axis=-1, keepdims=True)
    delta = steps.get("delta", _as_it_is)(row_sums, p, r)
    t = steps.get("cotangents", _difference)(p, r, delta - call.h)
    u = t * (slope if call.softcap is None else steps.get("slope", _as_it_is)(slope))
    across, down = (steps.get(name, np.matmul) for name in ("across", "down"))
    scale = call.query.dtype.type(call.scale)
    found = {
        "d_query": across(u, call.key) * scale,
        "d_key": down(np.swapaxes(u, -1, -2), call.query) * scale,
        "d_value": down(np.swapaxes(p * call.kept, -1, -2), call.g),
        "d_scores": t,
        "d_sinks": np.exp(call.sink - lse) * (call.h - delta),
    }
    if "heads" in steps:
        found |= {name: _first_of_group(call, found[name], steps["heads"]) for name in ("d_key", "d_value")}
    gradients = round_gradients(call, found, narrow=False)
    if "result" in steps:
        gradients |= {name: steps["result"](gradients[name]) for name in ("d_query", "d_key", "d_value")}
    return {name: x.astype(call.given[name[2:]].dtype) for name, x in gradients.items()}


def _as_it_is(thing: Array, *_: Array) -> Array:
    return thing


def _exponentials(s: Array, lse: Array) -> Array:
    exponentials: Array = np.exp(s - lse)
    return exponentials


def _first_of_group(call: Call, parts: Array, total: Callable[[Array], Array]) -> Array:
    """Assign the sum over the heads of a group to the first head, and 0 to the others."""
    batch, heads, *rest = parts.shape
    shared = call.given["key"].shape[1]
    groups = parts.reshape(batch, shared, heads // shared, *rest)
    summed = np.zeros_like(groups)
    summed[:, :, 0] = total(np.moveaxis(groups, 2, -1))
    return summed.reshape(parts.shape)


def _sum(terms: Array, storage: Any) -> Array:
    """Add over the last axis in a shorter dtype, one after the other."""
    total: Array = sequential(terms.astype(storage)).astype(terms.dtype)
    return total


def _product(left: Array, right: Array, storage: Any) -> Array:
    """Multiply matrices, and accumulate in a shorter dtype."""
    return _sum(left[..., :, None, :] * np.swapaxes(right, -1, -2)[..., None, :, :], storage)


def _means(_: Array, p: Array, r: Array, storage: Any) -> Array:
    return _sum(round_to(p, storage) * round_to(r, storage), storage)[..., None]


def _softmax_backward(p: Array, r: Array, delta: Array, storage: Any) -> Array:
    short = (x.astype(storage) for x in (p, r, delta))
    return _difference(*short).astype(p.dtype)


def _difference(p: Array, r: Array, delta: Array) -> Array:
    cotangents: Array = p * (r - delta)
    return cotangents


def _slope(slope: Array, storage: Any) -> Array:
    """Compute the slope of the softcap again, from a tanh that was kept in a shorter dtype."""
    tanh = round_to(np.sqrt(1 - slope), storage)
    again: Array = 1 - tanh * tanh
    return again


def _rough(s: Array, lse: Array) -> Array:
    rough: Array = _exponentials(s, lse) * (1 + 1e-3 * np.sin(40 * (s - lse)))
    return rough


def _in_float32(call: Call) -> dict[str, Array]:
    found = backward(prepare_call(call.given, call.dtype, np.float32))
    return {name: x.astype(call.given[name[2:]].dtype) for name, x in found.items()}


def _without_last_query(call: Call) -> dict[str, Array]:
    """Leave the last query out of the sums over queries, if there are several."""
    count = max(call.query.shape[-2] - 1, 1)
    return stepwise(call, {"down": lambda left, right: left[..., :count] @ right[..., :count, :]})


def _round_parts(parts: Array, storage: Any) -> Array:
    total: Array = round_to(parts, storage).sum(axis=-1)
    return total


def _in_blocks(left: Array, right: Array, storage: Any, rows: int) -> Array:
    """Multiply matrices, and round the sum after each block of terms."""
    total = np.zeros((*left.shape[:-1], right.shape[-1]), left.dtype)
    for start in range(0, left.shape[-1], rows):
        part = slice(start, start + rows)
        total = round_to(total + round_to(left[..., part], storage) @ right[..., part, :], storage)
    return total


_TF32 = partial(multiply_on_units, split=partial(units.cut_off, digits=11))


def _short(
    step: str, fault: Callable[..., Array], products: int = Backward.products, **given: int
) -> Backward:
    """Replace one step by one that is given the storage dtype of the call."""
    return Backward(
        lambda call: stepwise(call, {step: partial(fault, storage=call.storage, **given)}),
        None,
        SHORT,
        products=products,
    )


#: By name.
GRADIENT_FAULTS: Mapping[str, Backward] = {
    "delta in half": _short("delta", _means),
    "softmax backward in half": _short("cotangents", _softmax_backward),
    "weights of scores in half": _short("scores", round_to),
    "lse in half": _short("lse", round_to),
    "tanh in half": _short("slope", _slope),
    "sums over queries in half": _short("down", _product, 2**21),
    "sums over keys in half": _short("across", _product, 2**21),
    "group summed in half": _short("heads", _sum),
    "results truncated": _short("result", truncate),
    "exponentials off by 1e-3": Backward(partial(stepwise, steps={"weights": _rough}), None),
    "last query missing": Backward(_without_last_query, None),
    "tf32 undeclared": Backward(partial(backward, product=_TF32), None, ("float32",), products=2**17),
    "float64 in float32": Backward(_in_float32, None, ("float64",)),
}

#: These are in use. They round partial sums to the storage dtype before they add them up.
IN_USE: Mapping[str, Backward] = {
    "parts of a group rounded": _short("heads", _round_parts),
    "sums over queries rounded after each 32": _short("down", _in_blocks, rows=32),
}
