"""Dropout by a probability and a seed: the chapter `dropout`."""

from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from array_api_compat import device

from attnspec.reference.attention import attention_part, check_arguments
from attnspec.reference.call import Array, Call, Mask, step
from attnspec.reference.errors import is_integer, need, need_kind, number
from attnspec.reference.functions import public
from attnspec.reference.gradients import Gradients, attention_vjp_part, check_cotangents
from attnspec.reference.notation import Attention


@dataclass(frozen=True)
class Seeded(Attention):
    """A call of attention whose dropout mask follows from a seed."""

    dropout_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class SeededGradients(Seeded, Gradients):
    """A call of attention with dropout by a seed, with the cotangents of its outputs."""


S = TypeVar("S", bound=Seeded)


def seeded_dropout_attention_of(call: Call, query: Array, key: Array, value: Array, **options: Any) -> Any:
    """Attention that drops weights at random, with a given seed.

    Notes
    -----
    Rules DROP-5 to DROP-12. The choice is that of NumPy's default generator. The standard does not
    define which choice a seed gives.

    Examples
    --------
    >>> from attnspec.reference import seeded_dropout_attention
    >>> zeros, value = [[0.0]] * 4, [[1.0], [2.0], [4.0], [8.0]]
    >>> seeded_dropout_attention(zeros[:1], zeros, value, dropout_p=0.0, seed=7).tolist()
    [[3.75]]
    >>> seeded_dropout_attention(zeros[:1], zeros, value, dropout_p=1.0, seed=7).tolist()
    [[0.0]]
    """
    given = Seeded(call.steps, call.xp, call.dtype, query, key, value, **options)
    return attention_part(with_mask(cast("Seeded", check_arguments(check_seed(given)))))


seeded_dropout_attention = public(seeded_dropout_attention_of)


def seeded_dropout_attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, **options: Any
) -> tuple[Array, ...]:
    """Gradients of attention with dropout by a seed, for given cotangents.

    Notes
    -----
    Rule DROP-11.

    Examples
    --------
    >>> from attnspec.reference import seeded_dropout_attention_vjp
    >>> one = [[1.0]]
    >>> seeded_dropout_attention_vjp(one, one, one, one, dropout_p=0.0, seed=7)[2].tolist()
    [[1.0]]
    """
    given = SeededGradients(call.steps, call.xp, call.dtype, query, key, value, d_output=d_output, **options)
    good = check_cotangents(cast("Gradients", check_arguments(check_seed(given))))
    return attention_vjp_part(with_mask_again(cast("SeededGradients", good)))


seeded_dropout_attention_vjp = public(seeded_dropout_attention_vjp_of)


@step
def check_seed(call: S) -> S:
    """Check that the probability is a number from 0 to 1, and that the seed is an integer (DROP-12)."""
    p = number("dropout_p", call.dropout_p, "DROP-12")
    need("dropout_p", 0 <= p <= 1, "0 to 1", p, "DROP-12")
    whole = is_integer(call.seed)
    need_kind("seed", whole, "an integer", call.seed, "DROP-12")
    need("seed", call.seed >= 0, "0 or above", call.seed, "DROP-12")
    return call.but(dropout_p=p, seed=int(call.seed))


@step
def with_mask(call: S) -> S:
    """Turn probability and seed into a mask and a rate (DROP-5)."""
    if call.dropout_p == 0:  # no dropout (DROP-10)
        return call.but(seed=0)  # a part is compiled once for all seeds
    everything = call.dropout_p == 1
    kept = np.zeros((1, 1), np.bool_) if everything else mask_of_seed(call)
    mask = call.xp.asarray(kept, device=device(call.query))
    rate = 0.0 if everything else call.dropout_p  # nothing is left to be divided by 0 (DROP-10)
    return call.but(dropout_mask=mask, dropout_rate=rate, seed=0)


@step
def with_mask_again(call: SeededGradients) -> SeededGradients:
    """Draw the mask of the forward pass again for the gradients (DROP-11)."""
    return with_mask(call)


@step
def mask_of_seed(call: Seeded) -> Mask:
    """Draw which weights are kept, ``(*B, Hq, L, S)`` or ``(L, S)`` (DROP-7, DROP-8)."""
    shape = call.shape  # of the scores
    return np.random.default_rng(call.seed).random(shape) >= call.dropout_p
