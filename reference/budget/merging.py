"""Error budgets of the merging of partial results and of its gradients."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import EXPONENTIAL, LOGARITHM, NORMALISING, SHIFTING
from attnspec.reference.budget.formats import Budget, rounded
from attnspec.reference.budget.gradients import CONVERTING, DIFFERENCE, DIVIDING, LARGEST


def merge_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of the merged output and lse."""
    storage, work, of_lse = arithmetic.storage, arithmetic.work, arithmetic.lse
    outputs, lses = given["outputs"], given["lses"]
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
    moved = (p * np.abs(outputs) * np.expm1(exponent)[..., None]).sum(axis=0)
    error = several * (2 * moved + 2 * (parts + NORMALISING) * work.unit * size + parts * work.normal)
    # A single part is multiplied by a quotient that differs from 1 only by its roundings.
    error = np.where(
        several, error, (2 * EXPONENTIAL * work.unit + np.abs(lse)[..., None] * work.unit) * size
    )
    lse_error = work.unit * (
        merges * (np.abs(lse) + EXPONENTIAL + 1)
        + EXPONENTIAL * (1 + np.log(max(parts, 1)))
        + LOGARITHM * (np.abs(lse) + np.abs(shift))
    )
    return {
        "output": rounded(value, error, storage),
        "lse": np.where(finite, rounded(lse, lse_error, of_lse), 0),
    }


def merge_gradient_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of the gradients of parts, with shares from an lse and pairwise merges (GRAD-21).

    The chain rule is applied to the merges of two parts in reverse. Each merge has a difference between
    a part and the merged result. None of these is larger than the largest one of the parts.
    """
    work, profile = arithmetic.work, arithmetic.profile
    outputs, lses, g = given["outputs"], given["lses"], given["d_output"]
    h = given.get("d_lse", np.zeros(g.shape[:-1]))
    depth, merges = g.shape[-1], max(len(lses) - 1, 1)
    there = lses > -np.inf  # (M, *B, H, L)
    outputs = np.where(there[..., None], outputs, 0)
    forward = merge_budget({**given, "outputs": outputs}, arithmetic)
    p, lse = _shares(lses)
    below = np.where(there, np.abs(np.where(there, lses, 0) - lse), 0)
    # The shares of a chain of merges are multiplied. Errors of the lses in between cancel: each comes twice.
    chain = merges * (CONVERTING * np.abs(lse) + EXPONENTIAL)
    exponent = forward["lse"] + work.unit * (SHIFTING * below + chain)
    share_error = there * (p * np.expm1(np.minimum(exponent, LARGEST)) + work.normal)

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
    by_output = (np.abs(g) * (forward["output"] + sums * np.abs((p[..., None] * outputs).sum(axis=0)))).sum(
        axis=-1
    )
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
    where = there[..., None] & (g != 0)
    d_outputs = np.where(where, p[..., None] * g, 0)
    of_outputs = share_error[..., None] * np.abs(g) * (1 + work.unit) + merges * work.unit * np.abs(d_outputs)
    return {
        "d_outputs": rounded(d_outputs, np.where(where, of_outputs + work.normal, 0), arithmetic.storage),
        "d_lses": rounded(d_lses, error, arithmetic.lse),
    }


def _shares(lses: Budget) -> tuple[Budget, Budget]:
    """Return the share of each part, and the merged lse, or 0 if all parts are empty."""
    top = lses.max(axis=0, initial=-np.inf)
    shift = np.where(top == -np.inf, 0, top)
    rates = np.exp(lses - shift)
    total = rates.sum(axis=0)
    some = np.where(total == 0, 1, total)
    return rates / some, shift + np.log(some)
