"""Wrong about rotary embedding and ALiBi."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.call import Call
from attnspec.reference.notation import Attention
from attnspec.reference.positions import Rotary


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
def angles_of_the_half_depth(call: Rotary) -> Any:
    """Divide the exponent by the number of features instead of pairs."""
    return base.angles(call.but(base=call.base**0.5))


@wrong("angles", "POS-1", "Q")
def base_always_ten_thousand(call: Rotary) -> Any:
    """Take the base for granted."""
    return base.angles(call.but(base=10000.0))


@wrong("pairs", "POS-2", "Q")
def pairs_always_neighbours(call: Call, depth: int, *, interleaved: bool) -> Any:  # noqa: ARG001 - the argument is the bug
    """Turn neighbours in either layout."""
    return base.pairs(call, depth, interleaved=True)


@wrong("pairs", "POS-3", "Q")
def pairs_never_neighbours(call: Call, depth: int, *, interleaved: bool) -> Any:  # noqa: ARG001 - the argument is the bug
    """Turn features half the depth apart in either layout."""
    return base.pairs(call, depth, interleaved=False)


@wrong("angles", "POS-4", "Q")
def angles_of_the_whole_depth(call: Rotary) -> Any:
    """Take the angles of the whole depth where part of it is turned."""
    whole = base.angles(call.but(rotary_depth=None, inverse_frequencies=None, axis_positions=None))
    other = call.inverse_frequencies is not None or call.axis_positions is not None
    return base.angles(call) if other else whole[..., : call.depth // 2]


@wrong("rotated", "POS-4", "Q")
def rest_of_the_features_dropped(call: Rotary, features: Array, **options: Any) -> Any:
    """Leave features past the rotary depth 0."""
    found = base.rotated(call, features, **options)
    return np.where(np.arange(features.shape[-1]) < call.depth, found, 0)


@wrong("places", "POS-5", "Q")
def rotary_offset_of_the_first_entry(call: Rotary) -> Any:
    """Turn all batch entries by the offset of the first."""
    return base.places(call.but(offset=int(np.asarray(call.offset).ravel()[:1].sum())))


@wrong("places", "POS-5", "Q")
def positions_from_one(call: Rotary) -> Any:
    """Count positions from 1."""
    counted = call.positions is None and call.axis_positions is None
    return base.places(call) + (counted and call.cosines is None)


@wrong("angles", "NUM-5", "C")
def angles_in_half(call: Rotary) -> Any:
    """Hold positions in half precision, which has no odd numbers past 2048 and few in bfloat16 past 256."""
    angle = base.angles(call)
    return angle if call.features.dtype.itemsize > 2 else angle.astype(call.features.dtype).astype(np.float64)


@wrong("check_rotary", "POS-6", "U")
def odd_rotary_depth_cut(call: Rotary) -> Any:
    """Leave the last feature of an odd number as it is."""
    depth = call.features.shape[-1] if call.rotary_depth is None else call.rotary_depth
    return base.check_rotary(call.but(rotary_depth=depth // 2 * 2))


@wrong("check_rotary", "POS-6", "U")
def rotary_depth_clipped(call: Rotary) -> Any:
    """Turn all features where more are asked for."""
    depth = None if call.rotary_depth is None else min(call.rotary_depth, call.features.shape[-1])
    return base.check_rotary(call.but(rotary_depth=depth))


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
def base_made_positive(call: Rotary) -> Any:
    """Take 1 for a base that is not positive."""
    return base.check_rotary(call.but(base=call.base if call.base > 0 else 1.0))


@wrong("check_rotary", "ERR-16", "U")
def offset_cut_to_an_integer(call: Rotary) -> Any:
    """Take the whole part of an offset."""
    whole = int(call.offset) if isinstance(call.offset, float) else call.offset
    return base.check_rotary(call.but(offset=whole))


@wrong("each_slope", "POS-26", "Q")
def given_slopes_ignored(call: Attention, heads: int, _given: Array) -> Any:
    """Compute the slopes of the number of heads, whatever slopes are given."""
    return base.each_slope(call, heads, None)


@wrong("each_slope", "NUM-5", "C")
def given_slopes_in_half(call: Attention, heads: int, given: Array) -> Any:
    """Round given slopes to the dtype of the query."""
    return base.each_slope(call, heads, given if given is None else given.astype(call.query.dtype))
