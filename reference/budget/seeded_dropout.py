"""Error budgets of dropout by a seed where nothing is left to chance: those of attention with a mask."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.formats import Budget
from attnspec.reference.budget.gradients import gradient_budget


def seeded_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of output and lse."""
    found = attention_budget((given["query"], given["key"], given["value"]), _plain(given), arithmetic)
    return {name: found[name] for name in ("output", "lse")}


def seeded_gradient_budget(
    given: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Return the budgets of the gradients."""
    return gradient_budget(_plain(given), dtypes, arithmetic)


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a call as one of attention: at a probability of 1 nothing is kept, below it everything."""
    plain = {name: thing for name, thing in given.items() if name not in ("dropout_p", "seed")}
    return plain | {"dropout_mask": np.full((1, 1), given["dropout_p"] < 1)}
