"""Error budgets: the largest error of a correct implementation, element by element.

The chapter `numerics` (NUM-3) derives the formulas and their constants. Budgets are
computed in float64 from the inputs of a case.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.dtypes import FORMATS
from attnspec.operations import OPERATIONS, Argument
from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import (
    EXPONENTIAL,
    attention_budget,
    scores_and_errors,
)
from attnspec.reference.budget.formats import Accuracy, Budget, rounded
from attnspec.reference.budget.gradients import gradient_budget
from attnspec.reference.budget.merging import merge_budget, merge_gradient_budget
from attnspec.reference.budget.profile import PLAIN, PROFILES
from attnspec.reference.budget.rotary import rotary_budget, rotary_gradient_budget
from attnspec.reference.heads import merge_heads, split_heads
from attnspec.reference.positions import alibi_bias

__all__ = ["Accuracy", "Budget", "budget"]

#: The options that multi-head attention passes on to attention.
_PASSED_ON = tuple(
    name for name in OPERATIONS["multi_head_attention"].options if name in OPERATIONS["attention"].options
)


def budget(
    operation: str,
    arguments: Mapping[str, Any],
    dtype: str,
    *,
    accuracy: Accuracy = "full",
    working: str | None = None,
    profile: str = "",
    uniform_rows: bool = False,
) -> dict[str, Budget]:
    """Compute the budget of every element of every output.

    Parameters
    ----------
    operation : str
        A name in `attnspec.OPERATIONS`.
    arguments : mapping
        The arguments of the call, by canonical name. Non-finite numbers count as 0,
        because no numbers are compared in the elements that they reach.
    dtype : str
        The dtype of the inputs and the result, a name in `attnspec.dtypes.FORMATS`.
    accuracy : {"full", "cast", "storage"}
        ``full`` computes in the working precision and rounds only the result. ``cast``
        also rounds the weights to `dtype` before the second product. ``storage``
        computes everything in `dtype`.
    working : str, optional
        A working precision other than that of NUM-2 for `dtype`.
    profile : str, optional
        A name in `PROFILES`: how matrix products are computed, if not in the working
        precision.
    uniform_rows : bool, optional
        Whether a row with no allowed key is the mean of all values (the variant
        ``uniform`` of MASK-6) instead of 0.

    Returns
    -------
    dict of str to float64 array
        The budgets, by output name. Zero in elements that are not rounded.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.budget.budget import budget
    >>> one = np.ones((1, 1))
    >>> allowed = budget("projection", {"tokens": one, "weight": one}, "float32")["projected"]
    >>> round(float(allowed[0, 0]) * 2**24, 3)  # in units: one for the product, one for the result
    2.0
    """
    storage = FORMATS[dtype]
    work = storage if accuracy == "storage" else FORMATS[working or storage.working]
    given: dict[str, Any] = {"uniform_rows": uniform_rows}
    known = OPERATIONS[operation].arguments
    given |= {name: _wide(known[name], x) for name, x in arguments.items() if x is not None}
    products = PROFILES[profile].get(dtype, PLAIN) if profile else PLAIN
    arithmetic = Arithmetic(storage, work, FORMATS[storage.lse], accuracy, products)
    if given.get("convention") == "linear":  # each weight is the transpose of that in the row convention
        given = {name: x.T if name.endswith("weight") else x for name, x in given.items()}
        given["convention"] = "row"
    if operation == "attention":
        return attention_budget((given["query"], given["key"], given["value"]), given, arithmetic)
    if operation == "attention_vjp":
        dtypes = {str(name): str(arguments[name].dtype) for name in ("bias", "sinks") if name in given}
        return gradient_budget(given, dtypes, arithmetic)
    if operation == "self_attention":
        return _self_attention(given, arithmetic)
    if operation == "multi_head_attention":
        return _multi_head_attention(given, arithmetic)
    return _COMPANIONS[operation](given, arithmetic)


def _wide(argument: Argument, thing: Any) -> Any:
    if not isinstance(thing, np.ndarray) or thing.dtype.kind in "biu":
        return thing
    wide = thing.astype(np.float64)
    keeps = (wide == -np.inf) & argument.minus_infinity
    return np.where(np.isfinite(wide) | keeps, wide, 0)


def _projection(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    value, error = _projected(given["tokens"], given["weight"], given.get("bias"), given, arithmetic)
    return {"projected": rounded(value, error, arithmetic.storage)}


def _scores(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    value, error = scores_and_errors(given["query"], given["key"], given, arithmetic)
    return {"scores": rounded(value, error, arithmetic.storage)}


def _copied(output: str, shape: Callable[[Mapping[str, Any]], tuple[int, ...]]) -> Any:
    """Return a budget of 0, for an operation that copies numbers."""

    def run(given: Mapping[str, Any], _: Arithmetic) -> dict[str, Budget]:
        return {output: np.zeros(shape(given))}

    return run


def _paged(given: Mapping[str, Any]) -> tuple[int, ...]:
    _, heads, size, depth = given["pages"].shape
    *batch, count = given["block_table"].shape
    return (*batch, heads, count * size, depth)


def _alibi_bias(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    storage, work = arithmetic.storage, arithmetic.work
    value = alibi_bias(given["query"], given["key"], query_offset=given.get("query_offset", 0))
    heads = value.shape[-3] if value.ndim > 2 else 1
    # A slope by repeated multiplication is rounded once for each head before it.
    return {"bias": rounded(value, (heads + 2) * EXPONENTIAL * work.unit * np.abs(value), storage)}


def _projected(
    tokens: Budget, weight: Budget, bias: Budget | None, given: Mapping[str, Any], arithmetic: Arithmetic
) -> tuple[Budget, Budget]:
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


def _projections(
    given: Mapping[str, Any], arithmetic: Arithmetic, heads: Mapping[str, int | None]
) -> tuple[tuple[Budget, Budget, Budget], tuple[Budget, Budget, Budget]]:
    """Project to queries, keys and values, split into heads if there are any, and return their errors."""
    values, errors = [], []
    for name in ("query", "key", "value"):
        source = given["tokens"] if name == "query" else given.get("memory", given["tokens"])
        value, error = _projected(
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


def _self_attention(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    # An explicit axis of one head lets tokens have batch axes.
    values, errors = _projections(given, arithmetic, {"query": 1, "key": 1, "value": 1})
    mask = given.get("mask")
    if mask is not None and np.ndim(mask) > 2:
        given = {**given, "mask": np.asarray(mask)[..., None, :, :]}
    output = attention_budget(values, given, arithmetic, errors)["output"][..., 0, :, :]
    columns = given.get("convention", "row") == "column"
    return {"output": np.swapaxes(output, -1, -2) if columns else output}


def _multi_head_attention(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    from attnspec.reference.attention import attention

    count = given["heads"]
    key_count = given.get("key_heads") or count
    values, errors = _projections(given, arithmetic, {"query": count, "key": key_count, "value": key_count})
    attended = attention_budget(values, given, arithmetic, errors)["output"]
    options = {name: given[name] for name in _PASSED_ON if name in given}
    output = merge_heads(attention(*values, **options))  # (*B, L, heads * Dv)
    weight = given["output_weight"]
    value, error = _projected(output, weight, given.get("output_bias"), {}, arithmetic)
    error = error + merge_heads(attended) @ np.abs(weight)
    return {"output": rounded(value, error, arithmetic.storage)}


_COMPANIONS: Mapping[str, Callable[[Mapping[str, Any], Arithmetic], dict[str, Budget]]] = MappingProxyType(
    {
        "projection": _projection,
        "scores": _scores,
        "split_heads": _copied("split", lambda g: split_heads(g["features"], heads=g["heads"]).shape),
        "merge_heads": _copied("merged", lambda g: merge_heads(g["split"]).shape),
        "append_cache": _copied("appended", lambda g: g["cache"].shape),
        "gather_pages": _copied("gathered", _paged),
        "merge_partials": merge_budget,
        "merge_partials_vjp": merge_gradient_budget,
        "rotary": rotary_budget,
        "rotary_vjp": rotary_gradient_budget,
        "alibi_bias": _alibi_bias,
    }
)
