"""Dropout by a seed in the second oracle: attention that drops nothing, or everything."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import attention
from attnspec.reference.rational.gradients import attention_vjp

Arguments = Mapping[str, Any]
Arrays = dict[str, NDArray[np.float64]]
Dialect = Mapping[str, str]


def seeded_dropout_attention(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute output and lse of a call."""
    found = attention(_without_chance(arguments), dialect)
    return {"output": found["output"], "lse": found["lse"]}


def seeded_dropout_attention_vjp(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Compute the gradients of a call."""
    return attention_vjp(_without_chance(arguments), dialect)


def _without_chance(arguments: Arguments) -> dict[str, Any]:
    call = dict(arguments)
    del call["seed"]
    chance = call.pop("dropout_p")
    if 0 < chance < 1:
        raise ValueError(f"dropout_p: expected 0 or 1, because other results are not defined, got {chance}")
    pairs = (np.shape(call["query"])[-2], np.shape(call["key"])[-2])
    call["dropout_mask"] = np.full(pairs, chance < 1)
    return call
