"""Error budget of latent attention: the larger of those of its two forms (LATENT-4)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.formats import Budget, rounded
from attnspec.reference.budget.projection import projected_budget

#: The options that latent attention passes on to attention.
PASSED_ON = tuple(
    name for name in OPERATIONS["latent_attention"].options if name in OPERATIONS["attention"].options
)


def latent_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of output and lse."""
    depth = given["query"].shape[-1] + given["query_rotary"].shape[-1]
    scale = given.get("scale")
    given = {**given, "scale": 1 / np.sqrt(depth) if scale is None else scale}
    projected, absorbed = _projected(given, arithmetic), _absorbed(given, arithmetic)
    return {name: np.maximum(projected[name], absorbed[name]) for name in ("output", "lse")}


def _joined(own: Budget, rotary: Budget) -> Budget:
    """Join the rotary part, which all heads share if it has no axis of heads."""
    rotary = np.broadcast_to(rotary, (*own.shape[:-1], rotary.shape[-1]))
    return np.concatenate([own, rotary], axis=-1)


def _product(tokens: Budget, weight: Budget, arithmetic: Arithmetic) -> tuple[Budget, Budget]:
    """Return a product with a weight, and its error. It may be rounded to storage."""
    value, error = projected_budget(tokens, weight, None, {}, arithmetic)
    return value, rounded(value, error, arithmetic.storage)


def _projected(given: Mapping[str, Any], arithmetic: Arithmetic) -> Mapping[str, Budget]:
    """Attend over keys and values that are projected for each head."""
    latent, rotary = (given[name][..., None, :, :] for name in ("latent", "key_rotary"))  # (*B, 1, S, D)
    query = _joined(given["query"], given["query_rotary"])
    key, of_key = _product(latent, given["key_weight"], arithmetic)
    value, of_value = _product(latent, given["value_weight"], arithmetic)
    errors = (np.zeros(query.shape), _joined(of_key, 0 * rotary), of_value)
    return attention_budget((query, _joined(key, rotary), value), given, arithmetic, errors)


def _absorbed(given: Mapping[str, Any], arithmetic: Arithmetic) -> Mapping[str, Budget]:
    """Attend over the latent with queries that have taken in the key weight, and project the result."""
    from attnspec.reference.attention import attention

    latent, rotary = (given[name][..., None, :, :] for name in ("latent", "key_rotary"))
    own, of_own = _product(given["query"], np.swapaxes(given["key_weight"], -1, -2), arithmetic)
    query, key = _joined(own, given["query_rotary"]), _joined(latent, rotary)
    errors = (_joined(of_own, 0 * given["query_rotary"]), np.zeros(key.shape), np.zeros(latent.shape))
    found = attention_budget((query, key, latent), given, arithmetic, errors)
    options = {name: given[name] for name in PASSED_ON if name in given}
    context = attention(query, key, latent, **options)  # (*B, Hq, L, Dc)
    value, error = projected_budget(context, given["value_weight"], None, {}, arithmetic)
    error = error + found["output"] @ np.abs(given["value_weight"])
    return {"output": rounded(value, error, arithmetic.storage), "lse": found["lse"]}
