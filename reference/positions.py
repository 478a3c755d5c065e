"""Rotary embedding and ALiBi: the chapter positions."""

from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from attnspec.operations import OPERATIONS
from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import (
    array,
    check_lse_dtype,
    dtype_name,
    flag,
    integers,
    is_integer,
    need,
    number,
    real,
    same_dtype,
    within,
)
from attnspec.reference.functions import public
from attnspec.reference.heads import check_heads
from attnspec.reference.masking import check_integers, check_query_and_key_positions, key_position, position
from attnspec.reference.notation import (
    Attention,
    check_axes,
    check_dtypes,
    count,
    narrow,
    out_dtype,
    reshape,
    wide,
)


@dataclass(frozen=True)
class Rotary(Call):
    """One call of rotary embedding: its arguments by their canonical names."""

    features: Array  # (*B, H, N, D)
    positions: Array = None  # (*B, N)
    offset: Any = 0  # one integer, or (*B)
    base: Any = 10000.0
    inverse_frequencies: Array = None  # (R / 2,)
    attention_factor: Any = 1.0
    cosines: Array = None  # (C, R / 2), as the sines
    sines: Array = None
    axis_positions: Array = None  # (A, *B, N)
    sections: Array = None  # (A,)
    interleaved: bool = False
    rotary_depth: Any = None

    @property
    def depth(self) -> int:
        """Number of features that are rotated, ``R``."""
        return int(self.features.shape[-1] if self.rotary_depth is None else self.rotary_depth)

    @property
    def rows(self) -> tuple[int, ...]:
        """Sizes of batch and positions, ``(*B, N)``."""
        return (*self.features.shape[:-3], self.features.shape[-2])


def rotary_of(call: Call, features: Array, **options: Any) -> Array:
    """Rotate pairs of features by angles that are proportional to their position.

    Notes
    -----
    Rules POS-1 to POS-6 and POS-9 to POS-17. Su et al., "RoFormer", 2021.

    Examples
    --------
    >>> from attnspec.reference import rotary
    >>> rotary([[1.0, 2.0, 3.0, 4.0]], offset=0).tolist()  # position 0 is not rotated
    [[1.0, 2.0, 3.0, 4.0]]
    >>> rotary([[1.0, 0.0]] * 3, positions=[2, 0, 2]).round(4).tolist()
    [[-0.4161, 0.9093], [1.0, 0.0], [-0.4161, 0.9093]]
    """
    checked = check_rotary(Rotary(call.steps, call.xp, call.dtype, features, **options))
    return rotate(checked, checked.features)


rotary = public(rotary_of)


@step
def check_rotary(call: Rotary) -> Rotary:
    """Check each argument (POS-6, POS-9, ERR-16), and which are given together (POS-17)."""
    shape = tuple(real(call, "features", call.features, "ERR-2").shape)
    need("features", len(shape) >= 2, "two axes or more", f"shape {shape}", "ERR-16")
    call = call.but(rotary_depth=check_depth(call.features, call.rotary_depth), base=check_base(call.base))
    offset = integers(call, "offset", call.offset, shape[:-3], "ERR-16")
    factor = number("attention_factor", call.attention_factor, "ERR-16")
    checked = call.but(
        offset=offset, attention_factor=factor, interleaved=flag("interleaved", call.interleaved)
    )
    return check_table(check_frequencies(check_positions(check_together(checked))))


def check_depth(features: Array, depth: Any) -> int:
    """Check that the rotary depth is even and from 2 to D (POS-6)."""
    most = features.shape[-1]
    depth = most if depth is None else depth
    expected = f"an even number from 2 to {most}"
    need("rotary_depth", is_integer(depth), expected, repr(depth), "ERR-16")
    need("rotary_depth", depth % 2 == 0 and 2 <= depth <= most, expected, depth, "POS-6")
    return int(depth)


def check_base(base: Any) -> float:
    """Check that the base is a positive finite number (POS-9)."""
    need("base", number("base", base, "POS-9") > 0, "a positive number", base, "POS-9")
    return float(base)


@step
def check_together(call: Rotary) -> Rotary:
    """Check that what belongs together is given together, and nothing twice (POS-17)."""
    arguments = {
        argument.name: getattr(call, argument.name) is not None for argument in OPERATIONS["rotary"].named
    }
    for argument in OPERATIONS["rotary"].named:
        name = argument.name
        for other in argument.needs:
            need(other, arguments[other] or not arguments[name], f"an array beside {name}", None, "POS-17")
        for other in argument.excludes:
            need(name, not (arguments[name] and arguments[other]), f"None beside {other}", "both", "POS-17")
    return call


@step
def check_positions(call: Rotary) -> Rotary:
    """Check the dtypes and shapes of positions, and that the sections have all pairs (POS-16, ERR-16)."""
    changes = {}
    if call.positions is not None:
        changes["positions"] = _whole(call, "positions", call.rows)
    if call.axis_positions is not None:
        axes = int(array(call, "axis_positions", call.axis_positions, "ERR-16").shape[0])
        changes["axis_positions"] = _whole(call, "axis_positions", (axes, *call.rows))
        changes["sections"] = _whole(call, "sections", (axes,))
        check_sections(call, changes["sections"])
    return call.but(**changes)


@step
def check_sections(call: Rotary, sections: Array) -> None:
    """Check that no section is negative and that they have all pairs (POS-16)."""
    within(call, "sections", sections, 0, call.depth // 2, "POS-16")
    total = int(call.xp.sum(sections))
    need("sections", total == call.depth // 2, f"a sum of {call.depth // 2}", total, "POS-16")


def _whole(call: Rotary, name: str, shape: tuple[int, ...]) -> Array:
    """Return an array of integers of a shape."""
    given = array(call, name, getattr(call, name), "ERR-16")
    need(name, dtype_name(given).startswith(("int", "uint")), "integers", given.dtype, "ERR-16")
    need(name, tuple(given.shape) == shape, f"shape {shape}", tuple(given.shape), "ERR-16")
    return call.xp.astype(given, call.xp.int64)


@step
def check_frequencies(call: Rotary) -> Rotary:
    """Check that there is one frequency for each pair (ERR-16)."""
    if call.inverse_frequencies is not None:
        check_of_pairs(call, "inverse_frequencies", call.inverse_frequencies, call.features, call.depth)
    return call


def check_of_pairs(call: Call, name: str, given: Array, features: Array, depth: int) -> None:
    """Check that an array has one number for each pair, in the dtype of an lse (ERR-16)."""
    check_lse_dtype(call, name, given, features, "ERR-16")
    need(name, tuple(given.shape) == (depth // 2,), f"shape {(depth // 2,)}", tuple(given.shape), "ERR-16")


@step
def check_table(call: Rotary) -> Rotary:
    """Check the shapes of the table, and that it has all positions (POS-13, ERR-16)."""
    if call.cosines is None:
        return call
    same_dtype(call, features=call.features, cosines=call.cosines, sines=call.sines)
    size = int(call.cosines.shape[0]) if call.cosines.ndim else 0
    for name in ("cosines", "sines"):
        shape = tuple(getattr(call, name).shape)
        need(name, shape == (size, call.depth // 2), f"shape {(size, call.depth // 2)}", shape, "ERR-16")
    check_within_table(call, size)
    return call


@step
def check_within_table(call: Rotary, size: int) -> None:
    """Check that the table has a row for each position (POS-13)."""
    name = next(
        (name for name in ("axis_positions", "positions") if getattr(call, name) is not None), "offset"
    )
    within(call, name, places(call), 0, size - 1, "POS-13")


@step
@part
def rotate(call: Rotary, features: Array, *, back: bool = False) -> Array:
    """Rotate each pair by its angle, or back. Features past the rotary depth do not change (POS-1, POS-4)."""
    xp, storage, depth = call.xp, out_dtype(call, features), call.depth
    first, second = pairs(call, depth, interleaved=call.interleaved)
    given = wide(call, features)
    cosine, sine = (apply_factor(call, xp.astype(each, given.dtype)) for each in cosines_and_sines(call))
    a, b = turn(call, given[..., first], given[..., second], cosine, -sine if back else sine)
    # Concatenate the pairs, then take each feature from its place in the concatenation.
    origin = [*range(depth)[first], *range(depth)[second]]
    order = xp.asarray(sorted(range(depth), key=origin.__getitem__), device=device(features))
    together = xp.take(xp.concat([a, b], axis=-1), order, axis=-1)
    return xp.concat([narrow(call, x, storage) for x in (together, features[..., depth:])], axis=-1)


@step
def cosines_and_sines(call: Rotary) -> tuple[Array, Array]:
    """Return the cosine and the sine of each row and pair, ``(*B, 1, N, R / 2)`` (POS-1, POS-12)."""
    if call.cosines is None:
        angle = angles(call)
        return call.xp.cos(angle), call.xp.sin(angle)
    place = places(call)
    return look_up(call, call.cosines, place), look_up(call, call.sines, place)


@step
def look_up(call: Rotary, table: Array, place: Array) -> Array:
    """Take the row of each position from a table, and of each pair if each has its own position (POS-12)."""
    xp, half = call.xp, call.depth // 2
    shape = (*place.shape[:-1], half)
    if 0 in shape:
        return xp.zeros(shape, dtype=table.dtype, device=device(table))
    flat = reshape(xp, xp.broadcast_to(place * half, shape) + count(xp, half, table), (-1,))
    return reshape(xp, xp.take(reshape(xp, table, (-1,)), flat, axis=0), shape)


@step
def apply_factor(call: Rotary, cosine_or_sine: Array) -> Array:
    """Multiply cosines or sines by the attention factor (POS-14)."""
    return cosine_or_sine * call.attention_factor


@step
def angles(call: Rotary) -> Array:
    """Position times frequency, ``(*B, 1, N, R / 2)``, in float64 (POS-1, POS-11)."""
    # In float32 the angle of a late position has few digits left after the decimal point.
    xp = call.xp
    return xp.astype(places(call), xp.float64) * frequencies(call)


@step
def frequencies(call: Rotary) -> Array:
    """Return the angle of each pair at position 1, ``(R / 2,)`` (POS-1, POS-11)."""
    xp = call.xp
    if call.inverse_frequencies is not None:
        return xp.astype(call.inverse_frequencies, xp.float64)
    pair = xp.astype(count(xp, call.depth // 2, call.features), xp.float64)
    return call.base ** (-2 * pair / call.depth)


@step
def places(call: Rotary) -> Array:
    """Return the position of each row, ``(*B, 1, N, 1)``, or of each pair too (POS-5, POS-10)."""
    offset = call.offset
    if call.features.ndim > 2 and not isinstance(offset, int):
        offset = offset[..., None, None, None]
    if call.axis_positions is not None:
        own = axis_positions(call)
    elif call.positions is not None:
        own = call.positions[..., None]
    else:
        return count(call.xp, call.features.shape[-2], call.features)[:, None] + offset
    return (own[..., None, :, :] if call.features.ndim > 2 else own) + offset


@step
def axis_positions(call: Rotary) -> Array:
    """Return the position of each row and pair, ``(*B, N, R / 2)`` (POS-15)."""
    xp, own = call.xp, axis_of_pairs(call)
    result = xp.zeros((*call.rows, call.depth // 2), dtype=xp.int64, device=device(call.features))
    for axis in range(call.axis_positions.shape[0]):
        result = xp.where(own == axis, call.axis_positions[axis, ...][..., None], result)
    return result


@step
def axis_of_pairs(call: Rotary) -> Array:
    """Return the axis from which each pair takes its position, ``(R / 2,)`` (POS-15)."""
    xp, pair = call.xp, count(call.xp, call.depth // 2, call.features)
    axis = xp.zeros_like(pair)
    for last in range(1, call.sections.shape[0]):
        axis = axis + xp.astype(pair >= xp.sum(call.sections[:last]), xp.int64)
    return axis


@step
def pairs(_call: Call, depth: int, *, interleaved: bool) -> tuple[slice, slice]:
    """Return the two features of each pair, adjacent or half the rotary depth apart (POS-2, POS-3)."""
    if interleaved:
        return slice(0, depth, 2), slice(1, depth, 2)
    return slice(0, depth // 2), slice(depth // 2, depth)


@step
def turn(_call: Call, a: Array, b: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    """Rotate a pair counterclockwise (POS-1)."""
    return a * cosine - b * sine, a * sine + b * cosine


def alibi_bias_of(call: Call, query: Array, key: Array, *, slopes: Array, **positions: Any) -> Array:
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
    each = Attention(call.steps, call.xp, call.dtype, query, key, key, **positions)
    return _alibi_bias(check_alibi(each, slopes), slopes)


alibi_bias = public(alibi_bias_of)


def check_alibi(call: Attention, slopes: Array) -> Attention:
    """Check the arguments of ALiBi."""
    for check in (check_dtypes, check_axes, check_heads, check_query_and_key_positions, check_integers):
        call = check(call)
    if slopes is not None:
        check_slopes(call, slopes)
    return call


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
    bias = penalty(call, slope, position(call), key_position(call))  # (*B, Hq, L, S)
    bias = xp.broadcast_to(bias if len(shape) > 2 else bias[0, ...], shape)
    return narrow(call, bias, out_dtype(call, call.query))


@step
def each_slope(call: Attention, heads: int, given: Array) -> Array:
    """Return the slope of each head in float64, those of the sequence if none are given (POS-7, POS-26)."""
    xp = call.xp
    if given is not None:
        return xp.astype(given, xp.float64)
    return xp.asarray(slopes(call, heads), dtype=xp.float64, device=device(call.query))


@step
def penalty(call: Call, slopes: Array, p: Array, j: Array) -> Array:
    """Return minus slope times distance (POS-8)."""
    return -slopes * call.xp.astype(call.xp.abs(p - j), slopes.dtype)


@step
def slopes(_call: Call, heads: int) -> list[float]:
    """Return the slope of each head (POS-7)."""
    power = 1 << (heads.bit_length() - 1)  # the largest power of two up to `heads`
    few = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    twice = [2.0 ** (-8 * (h + 1) / (2 * power)) for h in range(2 * power)]
    return few + twice[::2][: heads - power]
