"""Error budgets of attention over pages: those of attention over the gathered positions."""

from collections.abc import Mapping
from typing import Any

import array_api_compat.numpy as xp
import numpy as np

from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.formats import Budget
from attnspec.reference.call import Call, Steps

_NAMES = {"key_pages": "key", "value_pages": "value"}


def paged_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of output and lse."""
    from attnspec.reference.paging import as_attention

    whole = {name: one.default for name, one in OPERATIONS["paged_attention"].arguments.items()} | dict(given)
    renamed = {_NAMES.get(name, name): thing for name, thing in whole.items()}
    plain = as_attention(Call(Steps(), xp, np.dtype(np.float64)), renamed)
    asked = {name: thing for name, thing in plain.items() if thing is not None}
    words = {name: given[name] for name in ("uniform_rows", "capped_bias")}
    found = attention_budget((plain["query"], plain["key"], plain["value"]), {**asked, **words}, arithmetic)
    return {name: found[name] for name in ("output", "lse")}
