"""ALiBi: the chapter `positions`."""

from typing import Any

from array_api_compat import device

from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import check_lse_dtype, need
from attnspec.reference.functions import public
from attnspec.reference.heads import check_heads
from attnspec.reference.masking import check_integers, position
from attnspec.reference.notation import Attention, check_axes, check_dtypes, narrow, stored


def alibi_bias_of(call: Call, query: Array, key: Array, *, query_offset: Any, slopes: Array) -> Array:
    """Return the bias of ALiBi, which decreases with the distance of query and key.

    Notes
    -----
    Rules POS-7, POS-8 and POS-26. Press, Smith and Lewis, "Train Short, Test Long", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import alibi_bias
    >>> alibi_bias(np.ones((1, 1, 2)), np.ones((1, 3, 2)), query_offset=1).tolist()
    [[[-0.00390625, -0.0, -0.00390625]]]
    """
    each = Attention(call.steps, call.xp, call.dtype, query, key, key, query_offset=query_offset)
    for check in (check_dtypes, check_axes, check_heads, check_integers):
        each = check(each)
    if slopes is not None:
        check_slopes(each, slopes)
    return _alibi_bias(each, slopes)


alibi_bias = public(alibi_bias_of)


@step
def check_slopes(call: Attention, given: Array) -> None:
    """Check that there is one slope for each query head (POS-26, ERR-16)."""
    check_lse_dtype(call, "slopes", given, call.query, "ERR-16")
    heads = (call.query.shape[-3] if call.query.ndim > 2 else 1,)
    need("slopes", tuple(given.shape) == heads, f"shape {heads}", tuple(given.shape), "ERR-16")


@part
def _alibi_bias(call: Attention, given: Array) -> Array:
    xp, shape = call.xp, call.shape
    slope = each_slope(call, shape[-3] if len(shape) > 2 else 1, given)[:, None, None]
    bias = distant(call, slope, position(call), call.j)  # (*B, Hq, L, S)
    bias = xp.broadcast_to(bias if len(shape) > 2 else bias[0, ...], shape)
    return narrow(call, bias, stored(call, call.query))


@step
def each_slope(call: Attention, heads: int, given: Array) -> Array:
    """Return the slope of each head in float64, those of the sequence if none are given (POS-7, POS-26)."""
    xp = call.xp
    if given is not None:
        return xp.astype(given, xp.float64)
    return xp.asarray(slopes(call, heads), dtype=xp.float64, device=device(call.query))


@step
def distant(call: Call, slopes: Array, p: Array, j: Array) -> Array:
    """Return minus slope times distance (POS-8)."""
    return -slopes * call.xp.astype(call.xp.abs(p - j), slopes.dtype)


@step
def slopes(_call: Call, heads: int) -> list[float]:
    """Return the slope of each head (POS-7).

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import alibi_bias
    >>> alibi_bias(np.ones((3, 2, 1)), np.ones((3, 1, 1)))[:, 1].ravel().tolist()
    [-0.0625, -0.00390625, -0.25]
    """
    power = 1 << (heads.bit_length() - 1)  # the largest power of two up to `heads`
    few = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    twice = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(2 * power)]
    return few + twice[::2][: heads - power]
