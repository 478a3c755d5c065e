"""Error budget of multi-head attention."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.formats import Budget, rounded
from attnspec.reference.budget.projection import projected_budget, projections
from attnspec.reference.heads import merge_heads

#: The options that multi-head attention passes on to attention.
PASSED_ON = tuple(
    name for name in OPERATIONS["multi_head_attention"].options if name in OPERATIONS["attention"].options
)


def multi_head_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the output of multi-head attention."""
    from attnspec.reference.attention import attention

    count = given["heads"]
    key_count = given.get("key_heads") or count
    values, errors = projections(given, arithmetic, {"query": count, "key": key_count, "value": key_count})
    attended = attention_budget(values, given, arithmetic, errors)["output"]
    options = {name: given[name] for name in PASSED_ON if name in given}
    output = merge_heads(attention(*values, **options))  # (*B, L, heads * Dv)
    weight = given["output_weight"]
    value, error = projected_budget(output, weight, given.get("output_bias"), {}, arithmetic)
    error = error + merge_heads(attended) @ np.abs(weight)
    return {"output": rounded(value, error, arithmetic.storage)}
