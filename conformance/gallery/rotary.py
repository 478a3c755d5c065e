"""Wrong about positions, frequencies and tables that are given to rotary embedding."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.positions import Rotary


@wrong("places", "POS-10", "Q", "NVIDIA/Megatron-LM#453")
def position_ids_ignored(call: Rotary) -> Any:
    """Count positions from 0, whatever positions are given."""
    return base.places(call.but(positions=None))


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


@wrong("places", "POS-10", "Q")
def offset_ignored_beside_positions(call: Rotary) -> Any:
    """Leave the offset out where positions are given."""
    return base.places(call if call.positions is None else call.but(offset=0))


@wrong("frequencies", "POS-11", "Q")
def given_frequencies_ignored(call: Rotary) -> Any:
    """Compute the frequencies from the base, whatever frequencies are given."""
    return base.frequencies(call.but(inverse_frequencies=None))


@wrong("frequencies", "POS-11", "Q")
def wavelengths_for_frequencies(call: Rotary) -> Any:
    """Divide by given frequencies, as if they were wavelengths."""
    given = call.inverse_frequencies
    return base.frequencies(call) if given is None else 1 / np.where(given == 0, 1, given)


@wrong("frequencies", "NUM-5", "C")
def given_frequencies_in_half(call: Rotary) -> Any:
    """Round given frequencies to the dtype of the features."""
    given = call.inverse_frequencies
    given = given if given is None else given.astype(call.features.dtype)
    return base.frequencies(call.but(inverse_frequencies=given))


@wrong("cosines_and_sines", "POS-12", "Q")
def table_ignored(call: Rotary) -> Any:
    """Compute the angles from the base, whatever table is given."""
    return base.cosines_and_sines(call.but(cosines=None, sines=None))


@wrong("looked_up", "POS-12", "Q", "NVIDIA-NeMo/Automodel#2377")
def first_rows_of_the_table(call: Rotary, table: Array, place: Array) -> Any:
    """Take as many rows of the table as there are, from the first on."""
    rows = np.arange(place.shape[-2])[:, None]
    return base.looked_up(call, table, np.broadcast_to(rows, place.shape))


@wrong("cosines_and_sines", "POS-12", "Q")
def cosines_and_sines_exchanged(call: Rotary) -> Any:
    """Take the columns of a table for sines and cosines."""
    cosine, sine = base.cosines_and_sines(call)
    return (cosine, sine) if call.cosines is None else (sine, cosine)


@wrong("looked_up", "POS-12", "G")
def rows_of_the_table_by_a_product(call: Rotary, table: Array, place: Array) -> Any:
    """Look rows up by a product with rows of the identity, into which NaN of other rows gets."""
    chosen = (place == np.arange(table.shape[0])).astype(table.dtype)  # (*B, 1, N, C)
    return chosen @ table if place.shape[-1] == 1 else base.looked_up(call, table, place)


@wrong("check_within_table", "POS-13", "U")
def positions_clipped_to_the_table(call: Rotary, size: int) -> None:
    """Check nothing, and take the last row for later positions."""


@wrong("multiplied", "POS-14", "Q", "vllm-project/vllm#46280")
def attention_factor_ignored(_call: Rotary, cosine_or_sine: Array) -> Any:
    """Leave the attention factor out."""
    return cosine_or_sine


@wrong("multiplied", "POS-14", "Q", "sgl-project/sglang#33558")
def attention_factor_twice(call: Rotary, cosine_or_sine: Array) -> Any:
    """Multiply by the attention factor twice."""
    return base.multiplied(call, base.multiplied(call, cosine_or_sine))


@wrong("rotated", "POS-14", "Q")
def attention_factor_for_every_feature(call: Rotary, features: Array, **options: Any) -> Any:
    """Multiply the features past the rotary depth too."""
    found = base.rotated(call, features, **options)
    past = np.arange(features.shape[-1]) >= call.depth
    return np.where(past, found * call.attention_factor, found).astype(found.dtype)


@wrong("axis_of_pairs", "POS-15", "Q", "Blaizzy/mlx-vlm#576")
def sections_in_turn(call: Rotary) -> Any:
    """Give pairs to the axes in turn, as models of the next generation do."""
    count = len(call.sections)
    axis = np.arange(call.depth // 2) % count
    return np.where(np.arange(call.depth // 2) < count * call.sections[axis], axis, 0)


@wrong("axis_of_pairs", "POS-15", "Q")
def sections_in_reverse(call: Rotary) -> Any:
    """Take width, height and time for time, height and width."""
    return len(call.sections) - 1 - base.axis_of_pairs(call)


@wrong("of_axes", "POS-15", "Q", "alibaba/MNN#3345")
def time_for_every_axis(call: Rotary) -> Any:
    """Take the positions of the first axis for all pairs."""
    return base.of_axes(
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


@wrong("check_together", "POS-17", "U")
def table_before_frequencies(call: Rotary) -> Any:
    """Use the table where frequencies are given too."""
    return call if call.cosines is not None and call.sines is not None else base.check_together(call)
