"""Error budgets of the gradients of multi-head attention (GRAD-23)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.dtypes import FORMATS
from attnspec.reference.budget.arithmetic import Arithmetic, Budget, Pair, add_rounding, transpose
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.companions import PASSED_ON, projected_budget, projections
from attnspec.reference.budget.gradients import gradient_budget
from attnspec.reference.heads import merge_heads, split_heads

_NAMES = ("query", "key", "value")


def multi_head_gradient_budget(
    arguments: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Return the budgets of the gradients of tokens, weights, memory and biases, in the row convention.

    The gradients of attention inherit the errors of the projections of queries, keys, values and the
    cotangent. Each of these, and each product of the backward pass, may be stored, and so rounded, in the
    storage dtype.
    """
    from attnspec.reference.attention import attention
    from attnspec.reference.gradients import attention_vjp

    count = arguments["heads"]
    key_count = arguments.get("key_heads") or count
    heads = {"query": count, "key": key_count, "value": key_count}
    values, errors = projections(arguments, arithmetic, heads)
    g = arguments["d_output"]
    weight = arguments["output_weight"]
    back, back_error = projected_budget(g, weight.T, None, {}, arithmetic)
    cotangent, cotangent_error = (
        split_heads(x, heads=count) for x in (back, add_rounding(back, back_error, arithmetic.storage))
    )
    options = {name: arguments[name] for name in PASSED_ON if name in arguments}
    call = {**dict(zip(_NAMES, values, strict=True)), "d_output": cotangent, **options}
    call |= {name: arguments[name] for name in ("uniform_rows", "capped_bias", "capped_infinity")}
    budgets = gradient_budget(call, {}, arithmetic, (*errors, cotangent_error))
    exact = attention_vjp(*values, cotangent, **options)
    ds = {
        name: (merge_heads(value), merge_heads(budgets[f"d_{name}"]))
        for name, value in zip(_NAMES, exact, strict=True)
    }
    ds["output"] = g, np.zeros(g.shape)
    merged = merge_heads(attention(*values, **options))
    merged_error = merge_heads(attention_budget(values, call, arithmetic, errors)["output"])

    tokens, source = arguments["tokens"], arguments.get("memory", arguments["tokens"])
    inputs: dict[str, Pair] = {
        "query": (tokens, np.zeros(tokens.shape)),
        "key": (source, np.zeros(source.shape)),
        "value": (source, np.zeros(source.shape)),
        "output": (merged, merged_error),
    }
    results: dict[str, Pair] = {}
    for name, d in ds.items():
        results[f"{name}_weight"] = multiply(transpose(_rows(inputs[name])), _rows(d), arithmetic)
        ones = np.ones((1, _rows(d)[0].shape[0]))
        shift = multiply((ones, np.zeros(ones.shape)), _rows(d), arithmetic)
        results[f"{name}_bias"] = shift[0][0], shift[1][0]
    parts = []
    for name in _NAMES:
        matrix = arguments[f"{name}_weight"].T
        part = multiply(ds[name], (matrix, np.zeros(matrix.shape)), arithmetic)
        parts.append((part[0], add_rounding(*part, arithmetic.storage)))
    if "memory" in arguments:
        results["tokens"], results["memory"] = parts[0], add_gradients(parts[1:], arithmetic)
    else:
        results["tokens"] = add_gradients(parts, arithmetic)
    return {
        f"d_{name}": add_rounding(*results[name], FORMATS[dtypes[name]])
        for name in results
        if arguments.get(name) is not None
    }


def _rows(pair: Pair) -> Pair:
    """Concatenate the positions of all batch entries."""
    width = pair[0].shape[-1]
    return pair[0].reshape(-1, width), pair[1].reshape(-1, width)


def multiply(left: Pair, right: Pair, arithmetic: Arithmetic) -> Pair:
    """Multiply two matrices with errors."""
    work, profile, depth = arithmetic.work, arithmetic.profile, left[0].shape[-1]
    with np.errstate(over="ignore", invalid="ignore"):
        size = (np.abs(left[0]) + left[1]) @ (np.abs(right[0]) + right[1])
        error = left[1] @ (np.abs(right[0]) + right[1]) + np.abs(left[0]) @ right[1]
        error = error + (profile.summing(depth, work.unit) + profile.product) * size
        error = error + arithmetic.subnormal_loss(left[0], right[0]) + (depth + 1) * work.normal * (size > 0)
        return left[0] @ right[0], arithmetic.unbounded(error, np.abs(left[0]) @ np.abs(right[0]))


def add_gradients(parts: list[Pair], arithmetic: Arithmetic) -> Pair:
    """Add up gradients. Each sum of two is stored."""
    value = sum((part[0] for part in parts), np.zeros(()))
    size = sum((np.abs(part[0]) + part[1] for part in parts), np.zeros(()))
    error = sum((part[1] for part in parts), np.zeros(()))
    return value, error + (len(parts) - 1) * arithmetic.storage.unit * size
