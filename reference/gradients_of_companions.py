"""The gradients of the merging of partial results."""

import math

from attnspec.reference.caching import check_partials
from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import Shape, check_lse_dtype, dtype_name, need, real
from attnspec.reference.functions import public
from attnspec.reference.notation import largest, narrow, stored, wide


def merge_partials_vjp_of(
    call: Call, outputs: Array, lses: Array, d_output: Array, *, d_lse: Array
) -> tuple[Array, Array]:
    """Gradients of the merging of partial results, for given cotangents.

    Notes
    -----
    Rule GRAD-21. A part relates to the merged row as a key to a query: its lse is the score, and its
    output is the value.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import merge_partials_vjp
    >>> found = merge_partials_vjp([[[1.0]], [[5.0]]], np.log([[3.0], [1.0]]), [[2.0]])
    >>> [d.round(9).tolist() for d in found]
    [[[[1.5]], [[0.5]]], [[-1.5], [1.5]]]
    """
    check_partials(call, outputs, lses)
    shape = tuple(outputs.shape[1:])
    check_cotangent(call, "d_output", d_output, outputs, shape)
    if d_lse is not None:
        check_lse_dtype(call, "d_lse", d_lse, outputs)
        need("d_lse", tuple(d_lse.shape) == shape[:-1], f"shape {shape[:-1]}", tuple(d_lse.shape), "GRAD-16")
    return _parted(call, outputs, lses, d_output, d_lse)


merge_partials_vjp = public(merge_partials_vjp_of)


@step
def check_cotangent(call: Call, name: str, given: Array, like: Array, shape: Shape) -> None:
    """Check that a cotangent has the shape of the output and the dtype of its array (GRAD-16)."""
    own = tuple(real(call, name, given, "ERR-2").shape)
    need(name, own == shape, f"shape {shape}", own, "GRAD-16")
    expected = f"dtype {dtype_name(like)} as in the first array"
    need(name, given.dtype == like.dtype, expected, dtype_name(given), "ERR-1")


@part
def _parted(call: Call, outputs: Array, lses: Array, g: Array, h: Array) -> tuple[Array, Array]:
    xp, levels = call.xp, wide(call, lses)
    h = xp.zeros_like(wide(call, g)[..., 0]) if h is None else wide(call, h)
    d_outputs, d_lses = parted(call, wide(call, outputs), levels, wide(call, g), h)
    return narrow(call, d_outputs, stored(call, outputs)), narrow(call, d_lses, stored(call, lses))


@step
def parted(call: Call, outputs: Array, lses: Array, g: Array, h: Array) -> tuple[Array, Array]:
    """Pass the cotangents of a merged row on to its parts, and nothing to empty parts (GRAD-21)."""
    xp, empty = call.xp, lses == -math.inf
    w = shares(call, lses)  # (M, *B, H, L)
    kept = xp.where(empty[..., None], 0.0, outputs)  # 0 * NaN is NaN
    r = xp.sum(g * kept, axis=-1)  # (M, *B, H, L)
    delta = xp.sum(w * r, axis=0)  # (*B, H, L)
    return xp.where(empty[..., None], 0.0, w[..., None] * g), xp.where(
        empty, 0.0, d_levels(call, w, r, delta, h)
    )


@step
def shares(call: Call, lses: Array) -> Array:
    """Return the share of each part in the denominator of its row, 0 for empty parts (CACHE-7)."""
    xp = call.xp
    top = largest(xp, lses, axis=0)
    rates = xp.exp(lses - xp.where(top == -math.inf, 0.0, top))
    total = xp.sum(rates, axis=0, keepdims=True)
    return rates / xp.where(total == 0, 1.0, total)


@step
def d_levels(_call: Call, w: Array, r: Array, delta: Array, h: Array) -> Array:
    """Return the gradient with respect to each lse, through the shares and the merged lse (GRAD-21)."""
    return w * (r - delta + h)
