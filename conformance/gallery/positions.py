"""Wrong about rotary embedding and ALiBi."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Call


@wrong("turned", "POS-1", "Q")
def turned_backwards(call: Call, a: Array, b: Array, cosine: Array, sine: Array) -> Any:
    """Turn with the clock."""
    return base.turned(call, a, b, cosine, -sine)


@wrong("turned", "POS-1", "Q")
def second_half_not_turned(_call: Call, a: Array, b: Array, cosine: Array, sine: Array) -> Any:
    """Overwrite the first of a pair before the second is computed from it."""
    a = a * cosine - b * sine
    return a, a * sine + b * cosine


@wrong("angles", "POS-1", "Q")
def angles_of_the_half_depth(call: Call, features: Array, offset: Any, radix: float, depth: int) -> Any:
    """Divide the exponent by the number of features instead of pairs."""
    return base.angles(call, features, offset, radix**0.5, depth)


@wrong("angles", "POS-1", "Q")
def base_always_ten_thousand(call: Call, features: Array, offset: Any, _radix: float, depth: int) -> Any:
    """Take the base for granted."""
    return base.angles(call, features, offset, 10000.0, depth)


@wrong("pairs", "POS-2", "Q")
def pairs_always_neighbours(call: Call, depth: int, *, interleaved: bool) -> Any:  # noqa: ARG001 - the argument is the bug
    """Turn neighbours in either layout."""
    return base.pairs(call, depth, interleaved=True)


@wrong("pairs", "POS-3", "Q")
def pairs_never_neighbours(call: Call, depth: int, *, interleaved: bool) -> Any:  # noqa: ARG001 - the argument is the bug
    """Turn features half the depth apart in either layout."""
    return base.pairs(call, depth, interleaved=False)


@wrong("angles", "POS-4", "Q")
def angles_of_the_whole_depth(call: Call, features: Array, offset: Any, radix: float, depth: int) -> Any:
    """Take the angles of the whole depth where part of it is turned."""
    return base.angles(call, features, offset, radix, features.shape[-1])[..., : depth // 2]


@wrong("rotated", "POS-4", "Q")
def rest_of_the_features_dropped(call: Call, features: Array, *rest: Any, **options: Any) -> Any:
    """Leave features past the rotary depth 0."""
    _, _, depth = rest
    found = base.rotated(call, features, *rest, **options)
    return np.where(np.arange(features.shape[-1]) < depth, found, 0)


@wrong("angles", "POS-5", "Q")
def rotary_offset_of_the_first_entry(
    call: Call, features: Array, offset: Any, radix: float, depth: int
) -> Any:
    """Turn all batch entries by the offset of the first."""
    return base.angles(call, features, np.asarray(offset).ravel()[:1].sum(), radix, depth)


@wrong("angles", "POS-5", "Q")
def positions_from_one(call: Call, features: Array, offset: Any, radix: float, depth: int) -> Any:
    """Count positions from 1."""
    return base.angles(call, features, np.asarray(offset) + 1, radix, depth)


@wrong("angles", "NUM-5", "C")
def angles_in_half(call: Call, features: Array, offset: Any, radix: float, depth: int) -> Any:
    """Hold positions in half precision, which has no odd numbers past 2048 and few in bfloat16 past 256."""
    angle = base.angles(call, features, offset, radix, depth)
    return angle if features.dtype.itemsize > 2 else angle.astype(features.dtype).astype(np.float64)


@wrong("check_rotary", "POS-6", "U")
def odd_rotary_depth_cut(
    call: Call, features: Array, offset: Any, radix: float, rotary_depth: int | None
) -> Any:
    """Leave the last feature of an odd number as it is."""
    depth = features.shape[-1] if rotary_depth is None else rotary_depth
    return base.check_rotary(call, features, offset, radix, depth // 2 * 2)


@wrong("check_rotary", "POS-6", "U")
def rotary_depth_clipped(
    call: Call, features: Array, offset: Any, radix: float, rotary_depth: int | None
) -> Any:
    """Turn all features where more are asked for."""
    fitting = None if rotary_depth is None else min(rotary_depth, features.shape[-1])
    return base.check_rotary(call, features, offset, radix, fitting)


@wrong("slopes", "POS-7", "Q", "ml-explore/mlx#343")
def one_sequence_of_slopes(_call: Call, heads: int) -> Any:
    """Use the formula for powers of two for every number of heads."""
    return [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]


@wrong("slopes", "POS-7", "Q", "huggingface/transformers#28380")
def further_slopes_from_the_second(call: Call, heads: int) -> Any:
    """Begin with the second of the slopes that lie between the others."""
    lower = 2 ** (heads.bit_length() - 1)
    return base.slopes(call, lower) + base.slopes(call, 2 * lower)[1::2][: heads - lower]


@wrong("slopes", "POS-7", "Q", "paiml/aprender#2143")
def slopes_from_one(call: Call, heads: int) -> Any:
    """Begin the sequence with 1."""
    ratio = 2.0 ** (-8 / 2 ** (heads.bit_length() - 1))
    return [slope / ratio for slope in base.slopes(call, heads)]


@wrong("distant", "POS-8", "Q")
def distance_with_its_sign(_call: Call, slopes: Array, p: Array, j: Array) -> Any:
    """Give keys after the query a positive bias."""
    return slopes * (j - p)


@wrong("distant", "POS-8", "Q")
def nearer_keys_taken_from(_call: Call, slopes: Array, p: Array, j: Array) -> Any:
    """Lose the minus."""
    return slopes * np.abs(p - j)


@wrong("distant", "POS-8", "A")
def distance_of_indices(call: Call, slopes: Array, p: Array, j: Array) -> Any:
    """Count distances from the index of the query and not from its position."""
    return base.distant(call, slopes, np.arange(p.shape[-2])[:, None] + 0 * p, j)


@wrong("check_rotary", "POS-9", "K")
def base_made_positive(
    call: Call, features: Array, offset: Any, base_of_angles: float, rotary_depth: int | None
) -> Any:
    """Take 1 for a base that is not positive."""
    good = base_of_angles if base_of_angles > 0 else 1.0
    return base.check_rotary(call, features, offset, good, rotary_depth)


@wrong("check_rotary", "ERR-16", "U")
def offset_cut_to_an_integer(
    call: Call, features: Array, offset: Any, base_of_angles: float, rotary_depth: int | None
) -> Any:
    """Take the whole part of an offset."""
    whole = int(offset) if isinstance(offset, float) else offset
    return base.check_rotary(call, features, whole, base_of_angles, rotary_depth)
