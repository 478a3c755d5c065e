"""Attention with every sum in a given order, for the entries about invariance."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.notation import Attention


def in_splits(call: Attention, splits: int = 1) -> tuple[Array, Array, Array]:
    """Attend with the keys divided into a number of consecutive parts of one size.

    Within a part the keys are added one after the other, and then the parts are added. No sum uses a
    library function, because its order may depend on the shapes.
    """
    return in_tiles(call, -(-call.keys // max(splits, 1)))


def in_tiles(call: Attention, size: int) -> tuple[Array, Array, Array]:
    """Attend with the keys divided into consecutive parts of a size. The last part may be shorter."""
    s = base.biased(call, base.capped(call, _products(call) * base.factor(call)))  # (*B, Hq, L, S)
    allowed = np.broadcast_to(base.allowed(call), s.shape)
    top = base.top(call, s, allowed)
    e = base.exponentials(call, s, allowed, top)
    total = _added(e, size)[..., None]
    if call.sinks is not None:
        total = total + np.exp(call.sink - top)
    p = base.dropped(call, base.normalised(call, e, total))
    value = base.shared(call, call.value).astype(p.dtype, copy=False)
    output = np.zeros((*p.shape[:-1], value.shape[-1]), p.dtype)
    for start in range(0, call.keys, max(size, 1)):
        part = np.zeros_like(output)
        for j in range(start, min(start + size, call.keys)):
            term = p[..., j, None] * value[..., None, j, :]
            part += np.where(allowed[..., j, None], term, 0)
        output += part
    return output, base.lse(call, top, total), p


def _products(call: Attention) -> Any:
    """Add up the products of one feature after the other."""
    key = base.shared(call, call.key)
    x = np.zeros(call.shape, call.query.dtype)
    for feature in range(key.shape[-1]):
        x += call.query[..., :, None, feature] * key[..., None, :, feature]
    return x


def _added(e: Array, size: int) -> Any:
    """Add up the last axis, part by part."""
    total = np.zeros(e.shape[:-1], e.dtype)
    for start in range(0, e.shape[-1], max(size, 1)):
        part = np.zeros_like(total)
        for j in range(start, min(start + size, e.shape[-1])):
            part += e[..., j]
        total += part
    return total
