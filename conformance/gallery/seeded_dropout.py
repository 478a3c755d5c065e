"""Wrong about dropout by a seed."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, wrong
from attnspec.reference.seeded_dropout import Seeded, SeededGradients


def _repeated(kept: Array, axis: int, size: int) -> Array:
    """Repeat the first entries of an axis along it."""
    return kept.take(np.arange(kept.shape[axis]) % size, axis) if kept.ndim >= -axis else kept


@wrong("with_mask", "DROP-5", "J")
def seeded_weights_left_as_they_are(call: Seeded) -> Any:
    """Drop weights, and forget to divide the others."""
    return base.with_mask(call).but(dropout_rate=0.0)


@wrong("with_mask", "DROP-5", "J")
def seeded_weights_divided_by_the_share_kept(call: Seeded) -> Any:
    """Divide by the share of the weights that the mask keeps."""
    made = base.with_mask(call)
    if made.dropout_mask is None or not 0 < np.mean(made.dropout_mask) < 1:
        return made
    return made.but(dropout_rate=1 - float(np.mean(made.dropout_mask)))


@wrong("with_mask", "DROP-5", "J")
def seeded_keys_dropped_before_the_softmax(call: Seeded) -> Any:
    """Drop scores before the softmax, so that the other weights grow."""
    made = base.with_mask(call)
    if made.dropout_mask is None:
        return made
    kept = made.dropout_mask if made.mask is None else made.dropout_mask & made.mask
    return made.but(mask=kept, dropout_mask=None, dropout_rate=0.0)


@wrong("mask_of_seed", "DROP-6", "T")
def seed_moves_with_each_call(call: Seeded) -> Any:
    """Advance the generator from call to call."""
    made = call.steps.memory[call.seed] = call.steps.memory.get(call.seed, 0) + 1
    return base.mask_of_seed(call.but(seed=call.seed + 1000 * made))


@wrong("mask_of_seed", "DROP-7", "J")
def a_tenth_more_is_dropped(call: Seeded) -> Any:
    """Drop a tenth more weights than asked."""
    return base.mask_of_seed(call.but(dropout_p=min(1.1 * call.dropout_p, 1.0)))


@wrong("mask_of_seed", "DROP-7", "J")
def kept_with_the_probability(call: Seeded) -> Any:
    """Keep weights with the probability with which they are to be dropped."""
    return base.mask_of_seed(call.but(dropout_p=1 - call.dropout_p))


@wrong("mask_of_seed", "DROP-7", "J")
def probability_in_sixteenths(call: Seeded) -> Any:
    """Compare four random bits with the probability."""
    return base.mask_of_seed(call.but(dropout_p=np.round(16 * call.dropout_p) / 16))


@wrong("mask_of_seed", "DROP-8", "J")
def one_seeded_mask_for_all_heads(call: Seeded) -> Any:
    """Start the generator again for each head."""
    return _repeated(base.mask_of_seed(call), -3, 1)


@wrong("mask_of_seed", "DROP-8", "J")
def one_seeded_mask_for_all_entries(call: Seeded) -> Any:
    """Start the generator again for each batch entry."""
    return _repeated(base.mask_of_seed(call), -4, 1)


@wrong("mask_of_seed", "DROP-8", "J", "NVIDIA/TransformerEngine#227")
def one_seeded_mask_for_all_queries(call: Seeded) -> Any:
    """Draw one mask for each head, and broadcast it along the queries."""
    return _repeated(base.mask_of_seed(call), -2, 1)


@wrong("mask_of_seed", "DROP-8", "G")
def seeded_mask_repeated_every_64_keys(call: Seeded) -> Any:
    """Start the generator again for each tile of 64 keys."""
    return _repeated(base.mask_of_seed(call), -1, 64)


@wrong("mask_of_seed", "DROP-8", "G")
def seeded_mask_repeated_every_64_queries(call: Seeded) -> Any:
    """Start the generator again for each tile of 64 queries."""
    return _repeated(base.mask_of_seed(call), -2, 64)


@wrong("mask_of_seed", "DROP-8", "J")
def neighbouring_keys_share_a_draw(call: Seeded) -> Any:
    """Use one random number for two neighbouring keys."""
    kept = base.mask_of_seed(call)
    return kept.take(np.arange(kept.shape[-1]) // 2, -1)


@wrong("mask_of_seed", "DROP-9", "J")
def seed_without_effect(call: Seeded) -> Any:
    """Draw the same mask for every seed."""
    return base.mask_of_seed(call.but(seed=0))


@wrong("mask_of_seed", "DROP-9", "N")
def seed_in_sixteen_bits(call: Seeded) -> Any:
    """Keep the lower sixteen bits of the seed."""
    return base.mask_of_seed(call.but(seed=call.seed % 2**16))


@wrong("with_mask", "DROP-10", "J")
def nothing_divided_by_nothing(call: Seeded) -> Any:
    """Divide 0 by 0 at a probability of 1."""
    made = base.with_mask(call)
    return made.but(dropout_rate=1.0) if call.dropout_p == 1 else made


@wrong("with_mask_again", "DROP-11", "W", "Dao-AILab/flash-attention#1251")
def another_mask_for_the_gradients(call: SeededGradients) -> Any:
    """Draw another mask for the backward pass."""
    return base.with_mask_again(call.but(seed=call.seed + 1))


@wrong("with_mask_again", "DROP-11", "W")
def gradients_without_seeded_dropout(call: SeededGradients) -> Any:
    """Forget dropout in the backward pass."""
    return base.with_mask_again(call.but(dropout_p=0.0))


@wrong("check_seed", "DROP-12", "U")
def probability_not_checked(call: Seeded) -> Any:
    """Take any probability, and use the nearest one from 0 to 1."""
    p = call.dropout_p
    real = isinstance(p, float | int) and not np.isnan(p)
    return base.check_seed(call.but(dropout_p=min(max(p, 0.0), 1.0)) if real else call)


@wrong("check_seed", "DROP-12", "U")
def seed_cut_to_an_integer(call: Seeded) -> Any:
    """Drop the fraction of a seed."""
    return base.check_seed(call.but(seed=int(call.seed)) if isinstance(call.seed, float) else call)
