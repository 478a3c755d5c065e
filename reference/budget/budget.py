"""Error budgets: the largest error of a correct implementation, element by element.

The chapter `numerics` (NUM-3) derives the formulas and their constants. Budgets are
computed in float64 from the inputs of a case.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.operations import OPERATIONS, Argument
from attnspec.operations.operation import primal
from attnspec.reference.budget.arithmetic import (
    PLAIN,
    PROFILES,
    Accuracy,
    Arithmetic,
    Budget,
    add_rounding,
    finite_part,
)
from attnspec.reference.budget.attention import (
    EXPONENTIAL,
    attention_budget,
    scores_and_errors,
)
from attnspec.reference.budget.companions import (
    indexer_budget,
    merge_budget,
    merge_gradient_budget,
    multi_head_budget,
    projected_budget,
    selection_budget,
    self_attention_budget,
)
from attnspec.reference.budget.forms import (
    blocks_budget,
    dequantized_budget,
    low_precision_budget,
    once,
    seeded_budget,
    seeded_gradient_budget,
)
from attnspec.reference.budget.gradients import gradient_budget
from attnspec.reference.budget.gradients_of_companions import multi_head_gradient_budget
from attnspec.reference.budget.gradients_of_latent import latent_gradient_budget
from attnspec.reference.budget.overflow import sizes_of_scores
from attnspec.reference.budget.positions import frequencies_budget, rotary_budget, rotary_gradient_budget
from attnspec.reference.budget.stacks import (
    packed_gradient_budget,
    sharded_budget,
    sharded_gradient_budget,
    stacked_budget,
)
from attnspec.reference.caching import append_cache
from attnspec.reference.functions import function
from attnspec.reference.heads import merge_heads, split_heads
from attnspec.reference.positions import alibi_bias
from attnspec.reference.sparsity import as_attention

__all__ = ["Accuracy", "Budget", "budget"]


def budget(operation: str, arguments: Mapping[str, Any], dtype: str, **options: Any) -> dict[str, Budget]:
    """Compute the budget of every element of every output, infinite where NUM-3 does not apply.

    The options are those of `_budget_of_finite`.
    """
    budgets = _budget_of_finite(operation, arguments, dtype, **options)
    if operation not in _UNDEFINED:
        return budgets
    given = {name: x for name, x in arguments.items() if x is not None}
    real = {name: x.astype(np.float64) for name, x in given.items() if _is_real(x)}
    if not all(np.isfinite(x).all() for x in real.values()):
        value, name = function(operation)(**given | real), OPERATIONS[operation].outputs[0]
        value = value[0] if isinstance(value, tuple) else value
        defined = np.isfinite(value)
        if "lses" in real:
            defined |= ~(real["lses"] < np.inf).all(axis=0)[..., None]  # CACHE-9
        if "features" in real:
            depth = arguments.get("rotary_depth") or value.shape[-1]
            defined |= np.arange(value.shape[-1]) >= depth  # POS-4
        budgets[name] = np.where(defined, budgets[name], np.inf)
    return budgets


def _is_real(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind not in "biu"


#: The operations of which no rule defines a result that depends on NaN or infinity, but CACHE-9 and POS-4.
_UNDEFINED = (
    *("projection", "self_attention", "multi_head_attention", "indexer_scores"),
    *("rotary", "rotary_vjp", "merge_partials"),
)


def _budget_of_finite(
    operation: str,
    arguments: Mapping[str, Any],
    dtype: str,
    *,
    accuracy: Accuracy = "full",
    working: str | None = None,
    profile: str = "",
    uniform_rows: bool | NDArray[np.bool_] = False,
    capped_bias: bool = False,
    capped_infinity: bool = False,
) -> dict[str, Budget]:
    """Compute the budget of every element of every output, where numbers that are not finite count as 0."""
    operation, arguments = plain(operation, arguments)
    if operation == "select_keys":
        return selection_budget(arguments)
    storage = FORMATS[dtype]
    work = storage if accuracy == "storage" else FORMATS[working or storage.working]
    given: dict[str, Any] = {
        "uniform_rows": uniform_rows,
        "capped_bias": capped_bias,
        "capped_infinity": capped_infinity,
    }
    known = OPERATIONS[operation].arguments
    scored = () if "latent" in operation else _SCORED
    scored = scored if OPERATIONS[operation].differentiates else (*scored, *_VALUES)
    given |= {
        name: _wide(known[name], x, infinite=name in scored) for name, x in arguments.items() if x is not None
    }
    products = PROFILES[profile].get(dtype, PLAIN) if profile else PLAIN
    arithmetic = Arithmetic(storage, work, FORMATS[storage.lse], accuracy, products)
    if given.get("convention") == "linear":  # each weight is the transpose of that in the row convention
        given = {name: x.T if name.endswith("weight") else x for name, x in given.items()}
        given["convention"] = "row"
    if operation == "attention":
        return attention_budget((given["query"], given["key"], given["value"]), given, arithmetic)
    own = {name: x.dtype.name for name, x in arguments.items() if isinstance(x, np.ndarray)}
    first = next(own[name] for name in known if name in own)
    dtypes = {name: dtype if x == first else x for name, x in own.items() if x in FORMATS}
    if operation in _GRADIENTS:
        return _GRADIENTS[operation](given, dtypes, arithmetic)
    if operation == "self_attention":
        return self_attention_budget(given, arithmetic)
    if operation == "multi_head_attention":
        return multi_head_budget(given, arithmetic)
    if operation == "multi_head_attention_vjp":
        results = multi_head_gradient_budget(given, dtypes, arithmetic)
        linear = arguments.get("convention") == "linear"
        return {name: x.T if linear and name.endswith("weight") else x for name, x in results.items()}
    if operation == "sharded_attention":
        return sharded_budget(given, arithmetic)
    if OPERATIONS[operation].layers:
        return stacked_budget(operation, given, arithmetic)
    return _COMPANIONS[operation](given, arithmetic)


def plain(operation: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Rewrite a call of an operation that reduces to attention with a mask, and of its gradients.

    Packed rows, pages and stacks have budgets of their own.
    """
    whole = primal(operation)
    known = operation in {*_COMPANIONS, *_GRADIENTS}
    if OPERATIONS[whole].reduces != "attention" or known or OPERATIONS[operation].layers:
        return operation, arguments
    # An array of another dtype (ERR-1), which the reference refuses, is used at its values.
    real = {name: x for name, x in arguments.items() if isinstance(x, np.ndarray) and _is_real(x)}
    wide = {name: x.astype(np.float64) for name, x in real.items()}
    rewritten = as_attention(operation, {**arguments, **wide})
    return "attention" + operation.removeprefix(whole), {
        name: real.get(name, x) for name, x in rewritten.items()
    }


#: The arrays in which infinity may give a score of minus infinity.
_SCORED = ("query", "key", "key_pages")
#: The arrays in which infinity may meet a weight of 0.
_VALUES = ("value", "value_pages")


def _wide(argument: Argument, thing: Any, *, infinite: bool) -> Any:
    if not _is_real(thing):
        return thing
    wide = thing.astype(np.float64)
    if infinite or np.isfinite(wide).all():
        return wide
    keeps = (wide == -np.inf) & argument.minus_infinity
    return np.where(np.isfinite(wide) | keeps, wide, 0)


def _projection(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    value, error = projected_budget(
        arguments["tokens"], arguments["weight"], arguments.get("bias"), arguments, arithmetic
    )
    return {"projected": add_rounding(value, error, arithmetic.storage)}


def _scores(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    query, key = arguments["query"], arguments["key"]
    value, error = scores_and_errors(query, key, arguments, arithmetic)
    sizes = sizes_of_scores(finite_part(query), finite_part(key), arguments)
    error = arithmetic.unbounded(error, np.maximum.reduce(np.broadcast_arrays(*sizes)))
    return {"scores": add_rounding(value, error, arithmetic.storage)}


def _copy_budget(output: str, shape: Callable[[Mapping[str, Any]], tuple[int, ...]]) -> Any:
    """Return a budget of 0, for an operation that copies numbers."""

    def run(arguments: Mapping[str, Any], _: Arithmetic) -> dict[str, Budget]:
        return {output: np.zeros(shape(arguments))}

    return run


def _appended(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return a budget of 0, and one rounding for numbers that the dtype of the cache does not have."""
    value = append_cache(arguments["cache"], arguments["new"], lengths=arguments["lengths"])
    with np.errstate(over="ignore"):
        held = value.astype(arithmetic.storage.name).astype(np.float64) == value
    return {"appended": np.where(held | ~np.isfinite(value), 0, once(value, arithmetic.storage))}


def _gathered(arguments: Mapping[str, Any], _: Arithmetic) -> dict[str, Budget]:
    """Return a budget of 0, and infinity for the positions of an entry of -1, which are not defined."""
    (_, heads, size, depth), table = arguments["pages"].shape, arguments["block_table"]
    budgets = np.repeat(np.where(table < 0, np.inf, 0.0), size, axis=-1)[..., None, :, None]
    return {"gathered": np.broadcast_to(budgets, (*table.shape[:-1], heads, budgets.shape[-2], depth)).copy()}


def _alibi_bias(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    storage, work = arithmetic.storage, arithmetic.work
    own = {name: arguments[name] for name in OPERATIONS["alibi_bias"].options if name in arguments}
    value = alibi_bias(arguments["query"], arguments["key"], **own)
    heads = value.shape[-3] if value.ndim > 2 else 1
    # A slope by repeated multiplication is rounded once for each head before it. A given one is exact.
    roundings = 2 if "slopes" in own else (heads + 2) * EXPONENTIAL
    return {"bias": add_rounding(value, roundings * work.unit * np.abs(value), storage)}


def _alibi_gradient(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    work, g = arithmetic.work, arguments["d_bias"]
    own = {name: arguments[name] for name in OPERATIONS["alibi_bias"].options if name in arguments}
    # The bias of a slope of 1 is minus the distance.
    own["slopes"] = np.ones(arguments["slopes"].shape)
    terms = alibi_bias(arguments["query"], arguments["key"], **own) * g
    terms = np.moveaxis(terms[(*(None,) * (3 - terms.ndim), ...)], -3, 0).reshape(len(own["slopes"]), -1)
    # The distance and the product are rounded, and every term but one adds a rounding.
    roundings = arithmetic.profile.summing(terms.shape[-1], work.unit) + 2 * work.unit
    size = np.abs(terms).sum(axis=-1)
    error = arithmetic.unbounded(roundings * size + (terms != 0).sum(axis=-1) * work.normal, size)
    return {"d_slopes": add_rounding(terms.sum(axis=-1), error, arithmetic.lse)}


#: The gradients of attention, on its own arrays and on packed ones.
_GRADIENTS: Mapping[str, Callable[..., dict[str, Budget]]] = {
    "attention_vjp": gradient_budget,
    "packed_attention_vjp": packed_gradient_budget,
    "sharded_attention_vjp": sharded_gradient_budget,
    "latent_attention_vjp": latent_gradient_budget,
    "seeded_dropout_attention_vjp": seeded_gradient_budget,
}
_COMPANIONS: Mapping[str, Callable[[Mapping[str, Any], Arithmetic], dict[str, Budget]]] = {
    "projection": _projection,
    "scores": _scores,
    "split_heads": _copy_budget("split", lambda g: split_heads(g["features"], heads=g["heads"]).shape),
    "merge_heads": _copy_budget("merged", lambda g: merge_heads(g["split"]).shape),
    "append_cache": _appended,
    "gather_pages": _gathered,
    "indexer_scores": indexer_budget,
    "low_precision_attention": low_precision_budget,
    "dequantize": dequantized_budget,
    "dequantize_blocks": blocks_budget,
    "merge_partials": merge_budget,
    "merge_partials_vjp": merge_gradient_budget,
    "seeded_dropout_attention": seeded_budget,
    "rotary": rotary_budget,
    "rotary_vjp": rotary_gradient_budget,
    "rotary_frequencies": frequencies_budget,
    "alibi_bias": _alibi_bias,
    "alibi_bias_vjp": _alibi_gradient,
}
