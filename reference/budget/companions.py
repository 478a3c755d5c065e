"""Error budgets of projections, multi-head attention and the merging of partial results."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import (
    LARGEST,
    Arithmetic,
    Budget,
    add_rounding,
    exponential_error,
    finite_part,
)
from attnspec.reference.budget.attention import (
    EXPONENTIAL,
    LOGARITHM,
    NORMALISING,
    SHIFTING,
    attention_budget,
)
from attnspec.reference.budget.gradients import CONVERTING, DIFFERENCE, DIVIDING
from attnspec.reference.heads import merge_heads, split_heads
from attnspec.reference.masking import allowed_keys


def projected_budget(
    tokens: Budget, weight: Budget, bias: Budget | None, arguments: Mapping[str, Any], arithmetic: Arithmetic
) -> tuple[Budget, Budget]:
    """Return the projection, and its error before it is rounded."""
    columns = arguments.get("convention", "row") == "column"
    left, right = (weight, tokens) if columns else (tokens, weight)
    value, size = left @ right, np.abs(left) @ np.abs(right)
    work, profile = arithmetic.work, arithmetic.profile
    depth = left.shape[-1]
    relative = profile.summing(depth, work.unit) + profile.product
    if bias is not None:
        added = bias[:, None] if columns else bias
        value, size, relative = value + added, size + np.abs(added), relative + work.unit
    error = relative * size + (depth + 1) * work.normal * (size > 0)
    return value, arithmetic.unbounded(error + arithmetic.subnormal_loss(left, right), size)


def projections(
    arguments: Mapping[str, Any], arithmetic: Arithmetic, heads: Mapping[str, int | None]
) -> tuple[tuple[Budget, Budget, Budget], tuple[Budget, Budget, Budget]]:
    """Project to queries, keys and values, split into heads if there are any, and return their errors."""
    values, errors = [], []
    for name in ("query", "key", "value"):
        source = arguments["tokens"] if name == "query" else arguments.get("memory", arguments["tokens"])
        value, error = projected_budget(
            source, arguments[f"{name}_weight"], arguments.get(f"{name}_bias"), arguments, arithmetic
        )
        # A projection may be stored, and so rounded, in the storage dtype.
        pair = [value, add_rounding(value, error, arithmetic.storage)]
        if arguments.get("convention", "row") == "column":
            pair = [np.swapaxes(array, -1, -2) for array in pair]
        count = heads.get(name)
        if count is not None:
            pair = [split_heads(array, heads=count) for array in pair]
        values.append(pair[0])
        errors.append(pair[1])
    return (values[0], values[1], values[2]), (errors[0], errors[1], errors[2])


def self_attention_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the output of self-attention."""
    # An explicit axis of one head lets tokens have batch axes.
    values, errors = projections(arguments, arithmetic, {"query": 1, "key": 1, "value": 1})
    mask = arguments.get("mask")
    if mask is not None and np.ndim(mask) > 2:
        arguments = {**arguments, "mask": np.asarray(mask)[..., None, :, :]}
    output = attention_budget(values, arguments, arithmetic, errors)["output"][..., 0, :, :]
    columns = arguments.get("convention", "row") == "column"
    return {"output": np.swapaxes(output, -1, -2) if columns else output}


#: The options that multi-head attention passes on to attention.
PASSED_ON = tuple(
    name for name in OPERATIONS["multi_head_attention"].options if name in OPERATIONS["attention"].options
)


def multi_head_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the output of multi-head attention."""
    from attnspec.reference.attention import attention

    count = arguments["heads"]
    key_count = arguments.get("key_heads") or count
    values, errors = projections(
        arguments, arithmetic, {"query": count, "key": key_count, "value": key_count}
    )
    attended = attention_budget(values, arguments, arithmetic, errors)["output"]
    options = {name: arguments[name] for name in PASSED_ON if name in arguments}
    output = merge_heads(attention(*values, **options))  # (*B, L, heads * Dv)
    weight = arguments["output_weight"]
    value, error = projected_budget(output, weight, arguments.get("output_bias"), {}, arithmetic)
    with np.errstate(invalid="ignore"):
        error = error + merge_heads(attended) @ np.abs(weight)
    return {"output": add_rounding(value, arithmetic.unbounded(error, 0), arithmetic.storage)}


def merge_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of the merged output and lse."""
    storage, work, of_lse = arithmetic.storage, arithmetic.work, arithmetic.lse
    outputs, lses = arguments["outputs"], arguments["lses"]
    parts = len(lses)
    top = lses.max(axis=0, initial=-np.inf)
    shift = np.where(top == -np.inf, 0, top)
    rates = np.exp(lses - shift)  # (N, *B, H, L)
    total = rates.sum(axis=0)
    p = (rates / np.where(total == 0, 1, total))[..., None]
    size = (p * np.abs(outputs)).sum(axis=0)
    value = (p * outputs).sum(axis=0)
    with np.errstate(divide="ignore"):
        lse = shift + np.log(total)
    finite = np.isfinite(lse)
    lse = np.where(finite, lse, 0)
    # exp(e[n] - lse): the difference, its constant and its base are rounded once each. Each merge of two
    # parts rounds the lse at its size, which lies between that of the part and that of the whole.
    below = np.where(np.isfinite(lses), np.abs(lses - lse), 0)
    merges = max(parts - 1, 1)
    exponent = work.unit * (LOGARITHM * below + merges * (np.abs(lse) + below + 2 * EXPONENTIAL))
    several = ((rates > 0).sum(axis=0) > 1)[..., None]
    moved = exponential_error(np.where(np.isfinite(lses), lses - lse, -np.inf), exponent)[..., None] * np.abs(
        outputs
    )
    moved = moved.sum(axis=0)
    error = several * (2 * moved + 2 * (parts + NORMALISING) * work.unit * size + parts * work.normal)
    # A single part is multiplied by a quotient that differs from 1 only by its roundings.
    error = np.where(
        several, error, (2 * EXPONENTIAL * work.unit + np.abs(lse)[..., None] * work.unit) * size
    )
    error = arithmetic.unbounded(error, ((rates > 0)[..., None] * np.abs(outputs)).sum(axis=0))
    lse_error = work.unit * (
        merges * (np.abs(lse) + EXPONENTIAL + 1)
        + EXPONENTIAL * (1 + np.log(max(parts, 1)))
        + LOGARITHM * (np.abs(lse) + np.abs(shift))
    )
    return {
        "output": add_rounding(value, error, storage),
        "lse": np.where(finite, add_rounding(lse, lse_error, of_lse), 0),
    }


def indexer_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the scores of an indexer: of its products, and of their weighted sum."""
    work, profile = arithmetic.work, arithmetic.profile
    query, key = arguments["index_query"], np.swapaxes(arguments["index_key"], -1, -2)[..., None, :, :]
    weights = arguments["index_weights"][..., None]
    heads, depth = query.shape[-3], query.shape[-1]
    kept, size = np.maximum(query @ key, 0), np.abs(query) @ np.abs(key)  # (*B, H, L, S)
    relative = profile.summing(depth, work.unit) + profile.product
    error = relative * size + (depth + 1) * work.normal * (size > 0) + arithmetic.subnormal_loss(query, key)
    # The products are weighted and added up, by a matrix product or one after the other.
    relative = profile.summing(heads, work.unit) + profile.product + work.unit
    terms = np.abs(weights) * (kept + error)
    lost = np.where(profile.flushed & (np.abs(weights) < arithmetic.storage.normal), terms, 0)
    total = (np.abs(weights) * error + relative * terms + work.normal * (terms > 0) + lost).sum(axis=-3)
    total = arithmetic.unbounded(total, np.maximum(size.max(axis=-3, initial=0.0), terms.sum(axis=-3)))
    return {"index_scores": add_rounding((weights * kept).sum(axis=-3), total, arithmetic.lse)}


def selection_budget(arguments: Mapping[str, Any]) -> dict[str, Budget]:
    """Return 0, and 1 for keys with the same score of which not all fit: they may be in a list or not."""
    scores, places = arguments["scores"].astype(np.float64), arguments["top_k"]
    given = {name: x for name, x in arguments.items() if name not in ("scores", "top_k")}
    *batch, queries, keys = scores.shape
    known = allowed_keys((*batch, 1, queries, keys), **given)[..., 0, :, :] & (scores > -np.inf)
    ranked = -np.sort(-np.where(known, scores, -np.inf), axis=-1)
    last = ranked[..., min(places, keys) - 1 :][..., :1] if keys else np.zeros((*scores.shape[:-1], 1))
    over = (known & (scores >= last)).sum(axis=-1, keepdims=True) > places
    open_keys = known & (scores == last) & over
    return {"key_indices": np.concatenate([open_keys, np.zeros_like(over)], axis=-1).astype(np.float64)}


def merge_gradient_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of the gradients of parts, with shares from an lse and pairwise merges (GRAD-21).

    The chain rule is applied to the merges of two parts in reverse. Each merge has a difference between
    a part and the merged result. None of these is larger than the largest one of the parts.
    """
    work, profile = arithmetic.work, arithmetic.profile
    outputs, lses, g = arguments["outputs"], arguments["lses"], arguments["d_output"]
    h = arguments.get("d_lse", np.zeros(g.shape[:-1]))
    depth, merges = g.shape[-1], max(len(lses) - 1, 1)
    there = lses > -np.inf  # (M, *B, H, L)
    outputs = np.where(there[..., None], outputs, 0)
    forward = merge_budget({**arguments, "outputs": outputs}, arithmetic)
    p, lse = _shares(lses)
    below = np.where(there, np.abs(np.where(there, lses, 0) - lse), 0)
    # The shares of a chain of merges are multiplied. Errors of the lses in between cancel: each comes twice.
    chain = merges * (CONVERTING * np.abs(lse) + EXPONENTIAL)
    exponent = forward["lse"] + work.unit * (SHIFTING * below + chain)
    share_error = there * (exponential_error(-below, exponent) + work.normal)

    sums = profile.summing(depth, work.unit) + profile.product + DIVIDING * work.unit
    r = (g * outputs).sum(axis=-1)  # (M, *B, H, L)
    size = (np.abs(g) * np.abs(outputs)).sum(axis=-1)
    some = np.abs(g).sum(axis=-1) > 0
    floor = some * (depth + 1) * work.normal
    r_error = sums * size + floor
    # The mean of `r`, from the shares or from the merged output, which the forward pass has rounded.
    delta = (p * r).sum(axis=0)
    moved = share_error * (np.abs(r) + r_error) + p * r_error
    adding = profile.summing(max(len(lses), 1), work.unit) * ((p + share_error) * (size + r_error))
    by_output = (
        np.abs(g) * (finite_part(forward["output"]) + sums * np.abs((p[..., None] * outputs).sum(axis=0)))
    ).sum(axis=-1)
    delta_error = np.maximum((moved + adding).sum(axis=0), by_output + sums * (p * size).sum(axis=0)) + floor
    terms = np.abs(r) + r_error + np.abs(delta) + delta_error + np.abs(h)
    pull, pull_error = r - delta + h, r_error + delta_error + DIFFERENCE * work.unit * terms
    if (
        merges > 1
    ):  # the intermediate merges, each with its output, its differences and its cotangent of an lse
        top = size.max(axis=0, initial=0.0)
        worst = np.expm1(np.minimum(exponent, LARGEST)).max(axis=0, initial=0.0, where=there)
        between = 2 * (sums + 2 * worst + 2 * (merges + NORMALISING) * work.unit) * top
        pull_error = pull_error + merges * (
            between + DIFFERENCE * work.unit * (2 * top + np.abs(h)) + 2 * floor
        )
    active = there & (some | (h != 0))
    d_lses = np.where(active, p * pull, 0)
    error = share_error * (np.abs(pull) + pull_error) + p * pull_error
    error = np.where(active, error + merges * work.unit * (np.abs(d_lses) + error) + work.normal, 0)
    error = arithmetic.unbounded(error, active * size.max(axis=0, initial=0.0))
    where = there[..., None] & (g != 0)
    d_outputs = np.where(where, p[..., None] * g, 0)
    of_outputs = share_error[..., None] * np.abs(g) * (1 + work.unit) + merges * work.unit * np.abs(d_outputs)
    return {
        "d_outputs": add_rounding(
            d_outputs, np.where(where, of_outputs + work.normal, 0), arithmetic.storage
        ),
        "d_lses": add_rounding(d_lses, error, arithmetic.lse),
    }


def _shares(lses: Budget) -> tuple[Budget, Budget]:
    """Return the share of each part, and the merged lse, or 0 if all parts are empty."""
    top = lses.max(axis=0, initial=-np.inf)
    shift = np.where(top == -np.inf, 0, top)
    rates = np.exp(lses - shift)
    total = rates.sum(axis=0)
    some = np.where(total == 0, 1, total)
    return rates / some, shift + np.log(some)
