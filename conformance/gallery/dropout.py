"""Wrong about dropout, by a mask and by a seed."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import After, Array, alter, base, first, rows, wrong
from attnspec.reference.call import Steps
from attnspec.reference.dropout import Seeded
from attnspec.reference.notation import Attention

ENTRIES = rows(
    ("kept_and_dropped_exchanged", "drop", "DROP-1", "J",
     lambda call, p: base.drop(alter(call, dropout_mask=np.logical_not), p),
     "Drop where the mask is True."),
    ("dropout_of_the_first_head", "drop", "DROP-1", "H",
     lambda call, p: base.drop(alter(call, dropout_mask=lambda mask: first(mask, -3)), p),
     "Let all heads have the dropout mask of the first."),
    ("kept_weights_left_as_they_are", "drop", "DROP-2", "J",
     lambda call, p: base.drop(call.but(dropout_rate=0.0), p),
     "Forget to raise the kept weights."),
    ("rate_without_a_mask_ignored", "check_rate", "DROP-4", "J",
     lambda call: base.check_rate(call if call.dropout_mask is not None else call.but(dropout_rate=0.0)),
     "Drop nothing if only a rate is given.", "pytorch/pytorch#124464"),
    ("seeded_weights_left_as_they_are", "with_mask", "DROP-5", "J",
     lambda call: base.with_mask(call).but(dropout_rate=0.0),
     "Drop weights, and forget to divide the others."),
    ("a_tenth_more_is_dropped", "mask_of_seed", "DROP-7", "J",
     lambda call: base.mask_of_seed(call.but(dropout_p=min(1.1 * call.dropout_p, 1.0))),
     "Drop a tenth more weights than asked."),
    ("kept_with_the_probability", "mask_of_seed", "DROP-7", "J",
     lambda call: base.mask_of_seed(call.but(dropout_p=1 - call.dropout_p)),
     "Keep weights with the probability with which they are to be dropped."),
    ("probability_in_sixteenths", "mask_of_seed", "DROP-7", "J",
     lambda call: base.mask_of_seed(call.but(dropout_p=np.round(16 * call.dropout_p) / 16)),
     "Compare four random bits with the probability."),
    ("one_seeded_mask_for_all_heads", "mask_of_seed", "DROP-8", "J",
     lambda call: _repeat(base.mask_of_seed(call), -3, 1),
     "Start the generator again for each head."),
    ("one_seeded_mask_for_all_entries", "mask_of_seed", "DROP-8", "J",
     lambda call: _repeat(base.mask_of_seed(call), -4, 1),
     "Start the generator again for each batch entry."),
    ("one_seeded_mask_for_all_queries", "mask_of_seed", "DROP-8", "J",
     lambda call: _repeat(base.mask_of_seed(call), -2, 1),
     "Draw one mask for each head, and broadcast it along the queries.", "NVIDIA/TransformerEngine#227"),
    ("seeded_mask_repeated_every_64_keys", "mask_of_seed", "DROP-8", "G",
     lambda call: _repeat(base.mask_of_seed(call), -1, 64),
     "Start the generator again for each tile of 64 keys."),
    ("seeded_mask_repeated_every_64_queries", "mask_of_seed", "DROP-8", "G",
     lambda call: _repeat(base.mask_of_seed(call), -2, 64),
     "Start the generator again for each tile of 64 queries."),
    ("seed_without_effect", "mask_of_seed", "DROP-9", "J", lambda call: base.mask_of_seed(call.but(seed=0)),
     "Draw the same mask for every seed."),
    ("seed_in_sixteen_bits", "mask_of_seed", "DROP-9", "N",
     lambda call: base.mask_of_seed(call.but(seed=call.seed % 2**16)),
     "Keep the lower sixteen bits of the seed."),
    ("another_mask_for_the_gradients", "with_mask_again", "DROP-11", "W",
     lambda call: base.with_mask_again(call.but(seed=call.seed + 1)),
     "Draw another mask for the backward pass.", "Dao-AILab/flash-attention#1251"),
    ("gradients_without_seeded_dropout", "with_mask_again", "DROP-11", "W",
     lambda call: base.with_mask_again(call.but(dropout_p=0.0)),
     "Forget dropout in the backward pass."),
    ("seed_cut_to_an_integer", "check_seed", "DROP-12", "U",
     lambda call: base.check_seed(call.but(seed=int(call.seed)) if isinstance(call.seed, float) else call),
     "Drop the fraction of a seed."),
    ("rate_counted_in_the_mask", "drop", "DROP-2", "J",
     lambda call, p: base.drop(call, p) if call.dropout_mask is None or not call.dropout_mask.any()
         else base.drop(call.but(dropout_rate=1 - call.dropout_mask.mean()), p),
     "Divide by the share that the mask keeps."),
    ("rate_of_one_taken", "check_rate", "DROP-4", "U",
     lambda call: base.check_rate(call) if call.dropout_rate != 1 or call.dropout_mask is None
         else call.but(dropout_mask=np.zeros_like(call.dropout_mask), dropout_rate=0.0),
     "Keep nothing at a rate of 1, and divide by 0."),
    ("dropped_before_the_softmax", "allowed_pairs", "DROP-1", "J",
     After(lambda seen, call: seen if call.dropout_mask is None else seen & call.dropout_mask),
     "Take the dropout mask for a mask, so that the other weights grow."),
    ("lse_after_dropout", "attend", "DROP-3", "J",
     After(lambda output, lse, p, call: (output, lse if call.dropout_mask is None
         else lse + np.log(p.sum(axis=-1)), p)),
     "Add the logarithm of what is kept to the lse."),
    ("lse_of_the_rate", "attend", "DROP-3", "J",
     After(lambda output, lse, p, call: (output, lse + np.log(1 - call.dropout_rate).astype(lse.dtype), p)),
     "Divide the denominator by the rate of keeping, and not the weights."),
    ("seeded_weights_divided_by_the_share_kept", "with_mask", "DROP-5", "J",
     After(lambda made, _call: made if made.dropout_mask is None or not 0 < np.mean(made.dropout_mask) < 1
         else made.but(dropout_rate=1 - float(np.mean(made.dropout_mask)))),
     "Divide by the share of the weights that the mask keeps."),
    ("seeded_keys_dropped_before_the_softmax", "with_mask", "DROP-5", "J",
     After(lambda made, _call: made if made.dropout_mask is None
         else made.but(mask=made.dropout_mask if made.mask is None
         else made.dropout_mask & made.mask, dropout_mask=None, dropout_rate=0.0)),
     "Drop scores before the softmax, so that the other weights grow."),
    ("neighbouring_keys_share_a_draw", "mask_of_seed", "DROP-8", "J",
     After(lambda kept, _call: kept.take(np.arange(kept.shape[-1]) // 2, -1)),
     "Use one random number for two neighbouring keys."),
    ("nothing_divided_by_nothing", "with_mask", "DROP-10", "J",
     After(lambda made, call: made if call.dropout_p != 1
         else made.but(steps=Steps({**made.steps.replaced, "drop": lambda _call, p: p * np.nan}))),
     "Divide 0 by 0 at a probability of 1."),
)  # fmt: skip


@wrong("drop", "DROP-1", "J")
def dropped_weights_shared_out(call: Attention, p: Array) -> Any:
    """Normalise again after dropping."""
    kept = base.drop(call, p)
    total = kept.sum(axis=-1, keepdims=True)
    return kept if call.dropout_mask is None else kept / np.where(total == 0, 1, total)


@wrong("drop", "DROP-2", "J", "NVIDIA/apex#816")
def kept_weights_divided_by_the_rate(call: Attention, p: Array) -> Any:
    """Divide by the rate of dropping."""
    return base.drop(call.but(dropout_rate=1 - call.dropout_rate if call.dropout_rate else 0.0), p)


@wrong("drop", "DROP-2", "J")
def raised_by_the_share_that_was_kept(call: Attention, p: Array) -> Any:
    """Divide by how much of the mask is True, not by one minus the rate."""
    if call.dropout_mask is None or not 0 < call.dropout_mask.mean() < 1:
        return base.drop(call, p)
    return base.drop(call.but(dropout_rate=1 - call.dropout_mask.mean()), p)


def _repeat(kept: Array, axis: int, size: int) -> Array:
    """Repeat the first entries of an axis along it."""
    return kept.take(np.arange(kept.shape[axis]) % size, axis) if kept.ndim >= -axis else kept


@wrong("mask_of_seed", "DROP-6", "T")
def seed_moves_with_each_call(call: Seeded) -> Any:
    """Advance the generator from call to call."""
    made = call.steps.memory[call.seed] = call.steps.memory.get(call.seed, 0) + 1
    return base.mask_of_seed(call.but(seed=call.seed + 1000 * made))


@wrong("mask_of_seed", "DROP-9", "J")
def index_of_a_head_added_to_the_seed(call: Seeded) -> Any:
    """Seed each head with the sum of the seed and its index, so that seeds share most of their masks."""
    heads = call.shape[-3] if len(call.shape) > 2 else 1
    kept = [base.mask_of_seed(call.but(seed=call.seed + head)) for head in range(heads)]
    return np.stack([own[..., 0, :, :] for own in kept], axis=-3) if len(call.shape) > 2 else kept[0]


@wrong("check_seed", "DROP-12", "U")
def probability_not_checked(call: Seeded) -> Any:
    """Take any probability, and use the nearest one from 0 to 1."""
    p = call.dropout_p
    real = isinstance(p, float | int) and not np.isnan(p)
    return base.check_seed(call.but(dropout_p=min(max(p, 0.0), 1.0)) if real else call)
