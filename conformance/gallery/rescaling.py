"""Wrong about a running maximum: sums are not rescaled when it rises in a later tile."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, family
from attnspec.conformance.gallery.splits import SIZES, Named, is_plain, parts
from attnspec.reference.notation import Attention


def _sink(call: Attention) -> tuple[Array, Array]:
    shape = (*call.shape[:-1], 1)
    if call.sinks is None:
        return np.full(shape, -np.inf), np.zeros(shape)
    top = np.broadcast_to(call.sink, shape)
    return top, np.where(top == -np.inf, 0.0, 1.0)


def _divided(call: Attention, top: Array, total: Array, summed: Array) -> Any:
    """Divide, and compute the logarithm. The weights are right."""
    dtype = call.query.dtype
    lse = (np.where(top == -np.inf, 0, top) + np.log(total))[..., 0]
    output = summed / np.where(total == 0, 1, total)
    return output.astype(dtype), lse.astype(dtype), base.attend(call)[2]


def _not_rescaled(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, size, rescales_sum=False, rescales_values=False)

    name = f"nothing_rescaled_past_tiles_of_{size}"
    return (
        name,
        f"Rescale neither sum nor values where the maximum rises in a later tile of {size} keys.",
        attend,
    )


def _values_not_rescaled(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, size, rescales_sum=True, rescales_values=False)

    name = f"values_not_rescaled_past_tiles_of_{size}"
    return name, f"Rescale only the sum where the maximum rises in a later tile of {size} keys.", attend


def _sum_not_rescaled(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, size, rescales_sum=False, rescales_values=True)

    name = f"sum_not_rescaled_past_tiles_of_{size}"
    return name, f"Rescale only the values where the maximum rises in a later tile of {size} keys.", attend


def _rescaled_lazily(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, size, rescales_sum=True, rescales_values=True, slack=8.0)

    name = f"small_rise_past_tiles_of_{size}_forgotten"
    sentence = f"Rescale where the maximum rises by more than 8 in a tile of {size} keys, and move it anyhow."
    return name, sentence, attend


def _running(
    call: Attention, size: int, *, rescales_sum: bool, rescales_values: bool, slack: float = 0.0
) -> Any:
    """Process the tiles with a running maximum. A rise after the first tile does not always rescale."""
    if not is_plain(call):
        return base.attend(call)
    top, total = _sink(call)
    summed: Any = 0.0
    for number, (most, count, values) in enumerate(parts(call, size)):
        new = np.maximum(top, most)
        shift = np.where(new == -np.inf, 0, new)
        right = np.exp(top - shift)
        old = np.where((slack > 0) & (shift - top <= slack), 1.0, right) if number else right
        here = np.exp(most - shift)
        total = total * (old if rescales_sum or not number else 1.0) + count * here
        summed = summed * (old if rescales_values else 1.0) + values * here
        top = new
    return _divided(call, top, total, summed)


NOT_RESCALED = family(_not_rescaled, "attend", "NUM-3", "G", *SIZES)
VALUES_NOT_RESCALED = family(_values_not_rescaled, "attend", "NUM-3", "G", *SIZES)
SUM_NOT_RESCALED = family(_sum_not_rescaled, "attend", "NUM-3", "G", *SIZES)
RESCALED_LAZILY = family(_rescaled_lazily, "attend", "NUM-3", "G", *SIZES)
