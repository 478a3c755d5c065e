"""Wrong about rotary embedding and ALiBi: positions, tables, frequencies and slopes."""

import math
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, base, rows, wrong
from attnspec.reference.call import Call
from attnspec.reference.frequencies import Frequencies
from attnspec.reference.positions import Rotary

ENTRIES = rows(
    ("turned_backwards", "turn", "POS-1", "Q",
     lambda call, a, b, cosine, sine: base.turn(call, a, b, cosine, -sine),
     "Turn with the clock."),
    ("angles_of_the_half_depth", "angles", "POS-1", "Q",
     lambda call: base.angles(call.but(base=call.base**0.5)),
     "Divide the exponent by the number of features instead of pairs."),
    ("base_always_ten_thousand", "angles", "POS-1", "Q", lambda call: base.angles(call.but(base=10000.0)),
     "Take the base for granted."),
    ("rotary_offset_of_the_first_entry", "places", "POS-5", "Q",
     lambda call: base.places(call.but(offset=int(np.asarray(call.offset).ravel()[:1].sum()))),
     "Turn all batch entries by the offset of the first."),
    ("one_sequence_of_slopes", "slopes", "POS-7", "Q",
     lambda _call, heads: [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)],
     "Use the formula for powers of two for every number of heads.", "ml-explore/mlx#343"),
    ("distance_with_its_sign", "penalty", "POS-8", "Q", lambda _call, slopes, p, j: slopes * (j - p),
     "Give keys after the query a positive bias."),
    ("nearer_keys_taken_from", "penalty", "POS-8", "Q", lambda _call, slopes, p, j: slopes * np.abs(p - j),
     "Lose the minus."),
    ("distance_of_indices", "penalty", "POS-8", "A",
     lambda call, slopes, p, j: base.penalty(call, slopes, np.arange(p.shape[-2])[:, None] + 0 * p, j),
     "Count distances from the index of the query and not from its position."),
    ("base_made_positive", "check_rotary", "POS-9", "K",
     lambda call: base.check_rotary(call.but(base=call.base if call.base > 0 else 1.0)),
     "Take 1 for a base that is not positive."),
    ("given_slopes_ignored", "each_slope", "POS-26", "Q",
     lambda call, heads, _given: base.each_slope(call, heads, None),
     "Compute the slopes of the number of heads, whatever slopes are given."),
    ("position_ids_ignored", "places", "POS-10", "Q", lambda call: base.places(call.but(positions=None)),
     "Count positions from 0, whatever positions are given.", "NVIDIA/Megatron-LM#453"),
    ("offset_ignored_beside_positions", "places", "POS-10", "Q",
     lambda call: base.places(call if call.positions is None else call.but(offset=0)),
     "Leave the offset out where positions are given."),
    ("given_frequencies_ignored", "frequencies", "POS-11", "Q",
     lambda call: base.frequencies(call.but(inverse_frequencies=None)),
     "Compute the frequencies from the base, whatever frequencies are given."),
    ("table_ignored", "cosines_and_sines", "POS-12", "Q",
     lambda call: base.cosines_and_sines(call.but(cosines=None, sines=None)),
     "Compute the angles from the base, whatever table is given."),
    ("attention_factor_ignored", "apply_factor", "POS-14", "Q", lambda _call, cosine_or_sine: cosine_or_sine,
     "Leave the attention factor out.", "vllm-project/vllm#46280"),
    ("attention_factor_ignored_beside_frequencies", "apply_factor", "POS-14", "Q",
     lambda call, cosine_or_sine: base.apply_factor(
         call if call.inverse_frequencies is None else call.but(attention_factor=1.0), cosine_or_sine),
     "Leave the attention factor out where frequencies are given."),
    ("attention_factor_twice", "apply_factor", "POS-14", "Q",
     lambda call, cosine_or_sine: base.apply_factor(call, base.apply_factor(call, cosine_or_sine)),
     "Multiply by the attention factor twice.", "sgl-project/sglang#33558"),
    ("sections_in_reverse", "axis_of_pairs", "POS-15", "Q",
     lambda call: len(call.sections) - 1 - base.axis_of_pairs(call),
     "Take width, height and time for time, height and width."),
    ("table_before_frequencies", "check_together", "POS-17", "U",
     lambda call: call if call.cosines is not None and call.sines is not None else base.check_together(call),
     "Use the table where frequencies are given too."),
    ("exponents_of_the_whole_depth", "base_frequencies", "POS-18", "Q",
     lambda call: call.base ** (-2 * call.pair / call.features.shape[-1]),
     "Divide exponents by the depth, and not by the rotary depth."),
    ("frequencies_multiplied", "linear", "POS-19", "Q",
     lambda call: base.base_frequencies(call) * call.factor,
     "Multiply by the factor, which makes sequences shorter."),
    ("factor_always_two", "scaled_frequencies", "POS-19", "Q",
     lambda call: base.scaled_frequencies(call if call.factor is None else call.but(factor=2.0)),
     "Divide by 2, whatever the factor.", "ml-explore/mlx-lm#1545"),
    ("base_for_the_longest", "dynamic", "POS-20", "Q",
     lambda call: base.dynamic(call.but(length=int(call.factor * call.original_length))),
     "Compute the base for the longest sequence, whatever the length.", "vllm-project/vllm#41236"),
    ("range_never_rounded", "yarn_range", "POS-21", "Q",
     lambda call: base.yarn_range(call.but(truncate=False)),
     "Round neither end of the ramp."),
    ("range_always_rounded", "yarn_range", "POS-21", "Q",
     lambda call: base.yarn_range(call.but(truncate=True)),
     "Round both ends of the ramp, whatever is asked for."),
    ("range_ends_at_the_last_pair", "yarn_range", "POS-21", "Q",
     lambda call: tuple(np.minimum(base.yarn_range(call), (np.inf, call.rotary_depth // 2 - 1))),
     "Cut the ramp off at the last pair, and not at the rotary depth."),
    ("fast_and_slow_by_default", "yarn_range", "POS-21", "Q",
     lambda call: base.yarn_range(call.but(beta_fast=32.0, beta_slow=1.0)),
     "Take 32 and 1 rotations for granted."),
    ("fast_rotations_by_default", "yarn_range", "POS-21", "Q",
     lambda call: base.yarn_range(call.but(beta_fast=32.0)), "Take 32 rotations for the fast end."),
    ("first_mscale_ignored", "attention_factor", "POS-22", "Q",
     lambda call: base.attention_factor(call.but(mscale=1.0)),
     "Take 1 for `mscale`, and divide by the factor of `mscale_all_depth`."),
    ("mscale_ignored", "attention_factor", "POS-22", "Q",
     lambda call: base.attention_factor(call.but(mscale=1.0, mscale_all_depth=0.0)),
     "Compute the attention factor from the factor alone.", "vllm-project/vllm#48623"),
    ("attention_factor_of_yarn_one", "attention_factor", "POS-22", "Q",
     lambda call: 1.0 if call.scaling == "yarn" else base.attention_factor(call),
     "Leave the attention factor of YaRN out."),
    ("logarithm_of_a_factor_below_one", "yarn_growth", "POS-22", "Q",
     lambda call, mscale: 0.1 * mscale * math.log(call.factor) + 1,
     "Lower the attention factor where sequences become shorter."),
    ("long_factors_always", "longrope_factors", "POS-23", "Q", lambda call: call.long_factors,
     "Use the long factors for every length.", "ml-explore/mlx-lm#660"),
    ("long_factors_from_the_original_length", "longrope_factors", "POS-23", "Q",
     lambda call: base.longrope_factors(call.but(length=call.length + 1)),
     "Use the long factors for a sequence of exactly the original length.", "unslothai/unsloth#10681"),
    ("growth_where_nothing_grows", "attention_factor", "POS-23", "Q",
     lambda call: base.attention_factor(call) if call.scaling != "longrope" else _of_longrope(call),
     "Use another attention factor than 1 where the factor is 1.", "ml-explore/mlx-lm#660"),
    ("given_slopes_in_half", "each_slope", "NUM-5", "C",
     lambda call, heads, given: base.each_slope(call, heads, given
         if given is None else given.astype(call.query.dtype)),
     "Round given slopes to the dtype of the query."),
    ("angles_in_half", "angles", "NUM-5", "C",
     After(lambda angle, call: angle if call.features.dtype.itemsize > 2
         else angle.astype(call.features.dtype).astype(np.float64)),
     "Hold positions in half precision, which has no odd numbers past 2048 and few in bfloat16 past 256."),
    ("odd_rotary_depth_cut", "check_rotary", "POS-6", "U",
     lambda call: base.check_rotary(call.but(rotary_depth=(call.features.shape[-1]
         if call.rotary_depth is None else call.rotary_depth) // 2 * 2)),
     "Leave the last feature of an odd number as it is."),
    ("rotary_depth_clipped", "check_rotary", "POS-6", "U",
     lambda call: base.check_rotary(call.but(rotary_depth=None if call.rotary_depth is None
         else min(call.rotary_depth, call.features.shape[-1]))),
     "Turn all features where more are asked for."),
    ("offset_cut_to_an_integer", "check_rotary", "ERR-16", "U",
     lambda call: base.check_rotary(call.but(offset=int(call.offset)
         if isinstance(call.offset, float) else call.offset)),
     "Take the whole part of an offset."),
    ("wavelengths_for_frequencies", "frequencies", "POS-11", "Q",
     lambda call: base.frequencies(call) if call.inverse_frequencies is None
         else 1 / np.where(call.inverse_frequencies == 0, 1, call.inverse_frequencies),
     "Divide by given frequencies, as if they were wavelengths."),
)  # fmt: skip


@wrong("turn", "POS-1", "Q")
def second_half_not_turned(_call: Call, a: Array, b: Array, cosine: Array, sine: Array) -> Any:
    """Overwrite the first of a pair before the second is computed from it."""
    a = a * cosine - b * sine
    return a, a * sine + b * cosine


@wrong("pairs", "POS-2", "Q")
def pairs_always_neighbours(call: Call, depth: int, *, interleaved: bool) -> Any:  # noqa: ARG001 - the argument is the bug
    """Turn neighbours in either layout."""
    return base.pairs(call, depth, interleaved=True)


@wrong("pairs", "POS-3", "Q")
def pairs_never_neighbours(call: Call, depth: int, *, interleaved: bool) -> Any:  # noqa: ARG001 - the argument is the bug
    """Turn features half the depth apart in either layout."""
    return base.pairs(call, depth, interleaved=False)


@wrong("turn", "POS-2", "Q")
def angles_of_neighbours_for_halves(call: Rotary, a: Array, b: Array, cosine: Array, sine: Array) -> Any:
    """Repeat each angle for two neighbours, and turn features half the depth apart by these."""
    if call.interleaved:
        return base.turn(call, a, b, cosine, sine)
    (c, d), (s, t) = (np.split(np.repeat(x, 2, axis=-1), 2, axis=-1) for x in (cosine, sine))
    return a * c - b * s, a * t + b * d


@wrong("turn", "POS-3", "Q")
def angles_of_halves_for_neighbours(call: Rotary, a: Array, b: Array, cosine: Array, sine: Array) -> Any:
    """Repeat all angles for the second half of the features, and turn neighbours by these."""
    if not call.interleaved:
        return base.turn(call, a, b, cosine, sine)
    c, s = (np.concatenate([x, x], axis=-1) for x in (cosine, sine))
    return a * c[..., ::2] - b * s[..., ::2], a * s[..., 1::2] + b * c[..., 1::2]


@wrong("angles", "POS-4", "Q")
def angles_of_the_whole_depth(call: Rotary) -> Any:
    """Take the angles of the whole depth where part of it is turned."""
    whole = base.angles(call.but(rotary_depth=None, inverse_frequencies=None, axis_positions=None))
    other = call.inverse_frequencies is not None or call.axis_positions is not None
    return base.angles(call) if other else whole[..., : call.depth // 2]


@wrong("rotate", "POS-4", "Q")
def rest_of_the_features_dropped(call: Rotary, features: Array, **options: Any) -> Any:
    """Leave features past the rotary depth 0."""
    result = base.rotate(call, features, **options)
    return np.where(np.arange(features.shape[-1]) < call.depth, result, 0)


@wrong("places", "POS-5", "Q")
def positions_from_one(call: Rotary) -> Any:
    """Count positions from 1."""
    counted = call.positions is None and call.axis_positions is None
    return base.places(call) + (counted and call.cosines is None)


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


@wrong("places", "POS-10", "Q", "unslothai/unsloth#3803")
def position_ids_of_the_first_entry(call: Rotary) -> Any:
    """Take the positions of the first batch entry for all."""
    given = call.positions
    if given is not None and given.ndim > 1 and given.size:
        given = np.broadcast_to(given.reshape(-1, given.shape[-1])[0], given.shape)
    return base.places(call.but(positions=given))


@wrong("places", "POS-10", "Q")
def position_ids_counted_from_the_first(call: Rotary) -> Any:
    """Take the first position, and count from there."""
    given = call.positions
    if given is not None and given.size:
        given = given[..., :1] + np.arange(given.shape[-1])
    return base.places(call.but(positions=given if call.cosines is None else call.positions))


@wrong("frequencies", "NUM-5", "C")
def given_frequencies_in_half(call: Rotary) -> Any:
    """Round given frequencies to the dtype of the features."""
    given = call.inverse_frequencies
    given = given if given is None else given.astype(call.features.dtype)
    return base.frequencies(call.but(inverse_frequencies=given))


@wrong("look_up", "POS-12", "Q", "NVIDIA-NeMo/Automodel#2377")
def first_rows_of_the_table(call: Rotary, table: Array, place: Array) -> Any:
    """Take as many rows of the table as there are, from the first on."""
    rows = np.arange(place.shape[-2])[:, None]
    return base.look_up(call, table, np.broadcast_to(rows, place.shape))


@wrong("cosines_and_sines", "POS-12", "Q")
def cosines_and_sines_exchanged(call: Rotary) -> Any:
    """Take the columns of a table for sines and cosines."""
    cosine, sine = base.cosines_and_sines(call)
    return (cosine, sine) if call.cosines is None else (sine, cosine)


@wrong("look_up", "POS-12", "G")
def rows_of_the_table_by_a_product(call: Rotary, table: Array, place: Array) -> Any:
    """Look rows up by a product with rows of the identity, into which NaN of other rows gets."""
    chosen = (place == np.arange(table.shape[0])).astype(table.dtype)  # (*B, 1, N, C)
    return chosen @ table if place.shape[-1] == 1 else base.look_up(call, table, place)


@wrong("check_within_table", "POS-13", "U")
def positions_clipped_to_the_table(call: Rotary, size: int) -> None:
    """Check nothing, and take the last row for later positions."""


@wrong("rotate", "POS-14", "Q")
def attention_factor_for_every_feature(call: Rotary, features: Array, **options: Any) -> Any:
    """Multiply the features past the rotary depth too."""
    result = base.rotate(call, features, **options)
    past = np.arange(features.shape[-1]) >= call.depth
    return np.where(past, result * call.attention_factor, result).astype(result.dtype)


@wrong("axis_of_pairs", "POS-15", "Q", "Blaizzy/mlx-vlm#576")
def sections_in_turn(call: Rotary) -> Any:
    """Give pairs to the axes in turn, as models of the next generation do."""
    count = len(call.sections)
    axis = np.arange(call.depth // 2) % count
    return np.where(np.arange(call.depth // 2) < count * call.sections[axis], axis, 0)


@wrong("axis_positions", "POS-15", "Q", "alibaba/MNN#3345")
def time_for_every_axis(call: Rotary) -> Any:
    """Take the positions of the first axis for all pairs."""
    return base.axis_positions(
        call.but(axis_positions=np.broadcast_to(call.axis_positions[:1], call.axis_positions.shape))
    )


@wrong("axis_of_pairs", "POS-15", "Q", "xLLM-AI/xllm#746")
def sections_of_features(call: Rotary) -> Any:
    """Count sections in features, so that the last pairs get the first axes again."""
    axis = np.repeat(np.arange(len(call.sections)), call.sections)
    return np.concatenate([axis, axis])[::2]


@wrong("check_sections", "POS-16", "U")
def sections_not_counted(call: Rotary, sections: Array) -> None:
    """Give pairs past the last section to the last axis."""


@wrong("dynamic", "POS-20", "Q", "vllm-project/vllm#52665")
def base_for_short_sequences_too(call: Frequencies) -> Any:
    """Lower the base for sequences that are shorter than those of the training."""
    ratio = call.factor * call.length / call.original_length - (call.factor - 1)
    return base.base_frequencies(call) * np.maximum(ratio, 0.01) ** (-2 * call.pair / (call.rotary_depth - 2))


@wrong("dynamic", "POS-20", "Q")
def exponent_of_the_base_left_out(call: Frequencies) -> Any:
    """Multiply the base by the ratio of lengths, without the exponent R / (R - 2)."""
    ratio = call.factor * max(call.length / call.original_length, 1) - (call.factor - 1)
    return base.base_frequencies(call.but(base=call.base * ratio))


@wrong("yarn", "POS-21", "Q")
def ramp_the_other_way(call: Frequencies) -> Any:
    """Stretch fast pairs, and keep slow ones."""
    plain = base.base_frequencies(call)
    return plain + plain / call.factor - base.yarn(call)


def _of_longrope(call: Frequencies) -> float:
    return math.sqrt(1 + math.log(max(call.factor, 1.5)) / math.log(call.original_length))


@wrong("llama3", "POS-24", "Q", "ml-explore/mlx-swift-examples#152")
def low_and_high_exchanged(call: Frequencies) -> Any:
    """Stretch high frequencies and keep low ones."""
    plain = base.base_frequencies(call)
    return plain + plain / call.factor - base.llama3(call)


@wrong("llama3", "POS-24", "Q")
def no_smoothing(call: Frequencies) -> Any:
    """Stretch every pair below the high frequencies by the whole factor."""
    plain = base.base_frequencies(call)
    rotations = call.original_length * plain / (2 * math.pi)
    return np.where(rotations < call.high_frequency_factor, plain / call.factor, plain)


@wrong("check_range", "POS-25", "U")
def range_of_a_scaling_not_checked(call: Frequencies) -> Any:
    """Compute where the formula has no value, and return what comes out."""
    if call.scaling == "yarn" and call.base <= 1:
        return call.but(base=1.5)
    high = max(call.high_frequency_factor, call.low_frequency_factor + 1)
    return call.but(original_length=max(call.original_length or 2, 2), high_frequency_factor=high)
