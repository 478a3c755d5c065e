"""Error budgets of projections, and of self-attention over them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.formats import Budget, rounded
from attnspec.reference.heads import split_heads


def projected_budget(
    tokens: Budget, weight: Budget, bias: Budget | None, given: Mapping[str, Any], arithmetic: Arithmetic
) -> tuple[Budget, Budget]:
    """Return the projection, and its error before it is rounded."""
    columns = given.get("convention", "row") == "column"
    left, right = (weight, tokens) if columns else (tokens, weight)
    value, size = left @ right, np.abs(left) @ np.abs(right)
    work, profile = arithmetic.work, arithmetic.profile
    depth = left.shape[-1]
    relative = profile.summing(depth, work.unit) + profile.product
    if bias is not None:
        added = bias[:, None] if columns else bias
        value, size, relative = value + added, size + np.abs(added), relative + work.unit
    return value, relative * size + (depth + 1) * work.normal * (size > 0)


def projections(
    given: Mapping[str, Any], arithmetic: Arithmetic, heads: Mapping[str, int | None]
) -> tuple[tuple[Budget, Budget, Budget], tuple[Budget, Budget, Budget]]:
    """Project to queries, keys and values, split into heads if there are any, and return their errors."""
    values, errors = [], []
    for name in ("query", "key", "value"):
        source = given["tokens"] if name == "query" else given.get("memory", given["tokens"])
        value, error = projected_budget(
            source, given[f"{name}_weight"], given.get(f"{name}_bias"), given, arithmetic
        )
        # A projection may be stored, and so rounded, in the storage dtype.
        pair = [value, rounded(value, error, arithmetic.storage)]
        if given.get("convention", "row") == "column":
            pair = [np.swapaxes(array, -1, -2) for array in pair]
        count = heads.get(name)
        if count is not None:
            pair = [split_heads(array, heads=count) for array in pair]
        values.append(pair[0])
        errors.append(pair[1])
    return (values[0], values[1], values[2]), (errors[0], errors[1], errors[2])


def self_attention_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the output of self-attention."""
    # An explicit axis of one head lets tokens have batch axes.
    values, errors = projections(given, arithmetic, {"query": 1, "key": 1, "value": 1})
    mask = given.get("mask")
    if mask is not None and np.ndim(mask) > 2:
        given = {**given, "mask": np.asarray(mask)[..., None, :, :]}
    output = attention_budget(values, given, arithmetic, errors)["output"][..., 0, :, :]
    columns = given.get("convention", "row") == "column"
    return {"output": np.swapaxes(output, -1, -2) if columns else output}
