"""Dropout by a seed for the exact oracle: only where nothing is left to chance."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.reference.exact.attention import evaluate_attention
from attnspec.reference.exact.balls import OracleError, Settled
from attnspec.reference.exact.gradients import evaluate_gradients


def evaluate_seeded(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute output and lse of a call."""
    found = evaluate_attention(_plain(arguments), variant, dtype)
    return {name: found[name] for name in ("output", "lse")}


def evaluate_seeded_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call."""
    return evaluate_gradients(_plain(arguments), variant, dtype)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call of attention that keeps every weight, or none."""
    p = arguments["dropout_p"]
    if p not in (0, 1):
        raise OracleError(f"dropout_p: expected 0 or 1, which leave nothing to chance, got {p!r}")
    plain = {name: thing for name, thing in arguments.items() if name not in ("dropout_p", "seed")}
    return plain if p == 0 else plain | {"dropout_mask": np.zeros((1, 1), dtype=bool)}
