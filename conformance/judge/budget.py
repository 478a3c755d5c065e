"""The budgets of the accuracy class that a backend must meet."""

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.backends.user.slopes import relative_positions_of
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.conformance.judge.expected import expected
from attnspec.dialect import ROUTES, of_routes
from attnspec.dtypes import SHORT
from attnspec.operations.operation import primal
from attnspec.reference.budget.attention import MASKING
from attnspec.reference.budget.budget import Accuracy, Budget, budget, plain
from attnspec.reference.budget.overflow import overflowing_rows
from attnspec.reference.masking import allowed_keys
from attnspec.sizes import bound

#: The latest budgets. A case is judged on several backends, and again when it failed.
_KNOWN: dict[Any, tuple[Mapping[str, Any], dict[str, Budget]]] = {}
_MOST_KNOWN = 64


def required_accuracy(backend: Backend, dtype: str) -> Accuracy:
    """Return the accuracy class that a backend must meet in a dtype (NUM-3, NUM-5)."""
    if dtype not in SHORT:
        return "full"  # the working precision is that of the inputs, so all classes are the same
    if backend.dialect.get("NUM-5") == "storage":
        return "storage"
    return "full" if backend.accuracy == "full" else "cast"


def budgets_of(backend: Backend, case: Case, accuracy: Accuracy | None = None) -> dict[str, Budget]:
    """Compute the budgets of a case, by output name."""
    if "ERR-17" in case.rules:  # without heads, results are empty or 0, and so are their budgets
        return {name: np.zeros(np.shape(x)) for name, x in expected(case).items()}
    chosen = accuracy or required_accuracy(backend, case.dtype)
    # Weights that are not returned and not judged need no budget of their own.
    judged = case.operation == "attention" and (not case.outputs or "weights" in case.outputs)
    probed = judged and not backend.has("attention", "return_weights")
    key = (id(case.arguments), chosen, backend.profile, probed, *sorted(backend.dialect.items()))
    if key not in _KNOWN:
        while len(_KNOWN) >= _MOST_KNOWN:
            del _KNOWN[next(iter(_KNOWN))]
        # The arguments are stored too: as long as they exist, no other object has their id.
        _KNOWN[key] = case.arguments, _compute(backend, case, chosen, probed=probed)
    return dict(_KNOWN[key][1])


def _compute(backend: Backend, case: Case, accuracy: Accuracy, *, probed: bool) -> dict[str, Budget]:
    (operation, arguments), dtype = plain(case.operation, case.arguments), case.dtype
    if backend.dialect.get("SCORE-2") == "one" and "scale" in OPERATIONS[operation].arguments:
        arguments = {"scale": 1.0, **{name: x for name, x in arguments.items() if x is not None}}
    options: dict[str, Any] = {
        "accuracy": accuracy,
        "profile": backend.profile,
        "working": backend.dialect.get("NUM-2") if dtype == "float64" else None,
        "uniform_rows": _means(operation, arguments, backend.dialect),
        "capped_bias": (capped := backend.dialect.get("SCORE-5") == "after-bias"),
        "capped_infinity": capped and backend.dialect.get("MASK-2") == "added",
    }
    if primal(operation) == "alibi_bias" and backend.dialect.get("POS-8") == "key-position":
        # Compute each row for a query at position 0, whose distance from key j is j.
        query = arguments["query"]
        first = np.zeros((*query.shape[:-3], query.shape[-2]), np.int64)
        return budget(operation, {**arguments, "query_offset": 0, "query_positions": first}, dtype, **options)
    if "axis_positions" in arguments and backend.dialect.get("POS-15") == "alternating":
        arguments = _with_alternating_axes(arguments)
    if primal(operation) != "attention":
        arguments = align(operation, arguments, backend.dialect)
        order = _order_of_heads(operation, arguments, backend.dialect)
        if order is None:
            return _in_base(budget(operation, arguments, dtype, **options), backend.dialect, operation)
        declared = OPERATIONS[operation].arguments
        arguments = {name: _with_heads(x, declared[name].shape, order) for name, x in arguments.items()}
        budgets, back = budget(operation, arguments, dtype, **options), np.argsort(order)
        for result in OPERATIONS[operation].results:
            if result.name in budgets:
                shape = declared[result.of].shape if result.of else result.shape
                budgets[result.name] = _with_heads(budgets[result.name], shape, back)
        return _in_base(budgets, backend.dialect, operation)
    arguments = in_plain_words(arguments, backend.dialect)
    budgets = budget(operation, arguments, dtype, **options)
    if operation != "attention":
        return {name: _fold(array, case, name) for name, array in budgets.items()}
    if probed:
        # Weights that are observed as the output for an identity value are rounded as an output is.
        keys = arguments["key"].shape[-2]
        identity = np.broadcast_to(np.eye(keys), (*arguments["value"].shape[:-1], keys))
        budgets["weights"] = budget(operation, {**arguments, "value": identity}, dtype, **options)["output"]
    return _in_base(budgets, backend.dialect, operation)


def _in_base(budgets: dict[str, Budget], dialect: Mapping[str, str], operation: str) -> dict[str, Budget]:
    """Return budgets with that of an lse in base 2, where an operation of attention has one in a dialect."""
    if dialect.get("SOFT-6") != "base-2" or "lse" not in budgets or operation == "merge_partials":
        return budgets
    return budgets | {"lse": budgets["lse"] / log(2)}


def _order_of_heads(
    operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str]
) -> NDArray[np.int64] | None:
    """Return an order of the query heads in which those of each key head in a dialect are consecutive.

    None if they are so already. Lists belong to consecutive groups in each dialect (SPARSE-9), and heads of
    layers have no axis.
    """
    ordered = any("Hkv" in argument.shape for argument in OPERATIONS[operation].arguments.values())
    if dialect.get("HEAD-1") != "tiled" or not ordered or "key_indices" in arguments:
        return None
    letters = bound(operation, arguments)[0].letters
    return np.arange(letters.get("Hq", 1)).reshape(-1, letters.get("Hkv", 1)).T.ravel()


def _with_heads(array: Any, shape: tuple[str, ...], order: NDArray[np.int64]) -> Any:
    """Take the query heads of an array in an order. An array that all heads share stays as it is."""
    axis = shape.index("Hq") - len(shape) if "Hq" in shape else 0
    if not axis or np.ndim(array) < -axis or array.shape[axis] != len(order):
        return array
    return np.take(array, order, axis)


def _with_alternating_axes(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite sections whose pairs alternate as a section of its own for each pair."""
    counts = np.asarray(arguments["sections"])
    axis = np.zeros(counts.sum(), int)
    for number in range(1, len(counts)):
        axis[number : number + len(counts) * counts[number] : len(counts)] = number
    positions = np.asarray(arguments["axis_positions"])[axis]
    return {**arguments, "axis_positions": positions, "sections": np.ones_like(axis)}


def align(operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str]) -> dict[str, Any]:
    """Rewrite the alignment of a dialect as an offset, or as a mask, and a bound that it excludes as a mask.

    PACK-5 aligns packed sequences, and MASK-3 other calls. Pages are aligned at their end without a variant.
    """
    plain = dict(arguments)
    causal, window = plain.get("is_causal"), plain.get("window")
    if not causal and window is None:
        return plain
    offset = plain.get("query_offset", 0)
    unplaced = np.ndim(offset) == 0 and not offset and "query_positions" not in plain
    rule = "PACK-5" if "key_starts" in plain else "MASK-3"
    if dialect.get(rule) == "bottom-right" and unplaced and "block_table" not in plain:
        letters = bound(operation, plain)[0].letters
        queries, keys = (
            np.diff(plain[starts]) if starts in plain else letters.get(letter, letters["L"])
            for starts, letter in (("query_starts", "L"), ("key_starts", "S"))
        )
        if "query_offset" in OPERATIONS[operation].arguments:
            plain["query_offset"] = keys - queries
        else:
            plain |= {"is_causal": False, "mask": _also(plain, np.tri(queries, keys, keys - queries) > 0)}
    if dialect.get("MASK-8") == "exclusive-left" and window is not None and window[0] is not None:
        allowed = relative_positions_of(plain) > -window[0]
        plain["mask"] = _also(plain, allowed if allowed.ndim == 2 else allowed[..., None, :, :])
    return plain


def _means(
    operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str]
) -> bool | NDArray[np.bool_]:
    """Whether a row without an allowed key is a mean, or the keys whose mean it is if the routes differ."""
    rule = "GRAD-10" if OPERATIONS[operation].differentiates else "MASK-6"
    variants = of_routes(dialect[rule]) if rule in dialect else {}
    by_mask, by_bias = (variants.get(route) == "uniform" for route in ROUTES)
    # Of a form, the route of a row is that of masks, which alone empty it where the bias is finite.
    if by_mask == by_bias or operation != "attention":
        return by_mask
    plain = align(operation, arguments, dialect)
    shape = (*plain["query"].shape[:-1], plain["key"].shape[-2])
    others = {name: plain[name] for name in MASKING if name in plain and name != "bias"}
    open_keys = allowed_keys(shape, **others)
    return open_keys if by_bias else ~open_keys


def _fold(allowed: Budget, case: Case, name: str) -> Budget:
    """Add up the budgets of a gradient over the copies of a key head, where `in_plain_words` made copies."""
    of = next(result.of for result in OPERATIONS[case.operation].results if result.name == name)
    shape = case.arguments[of].shape if of else ()  # the scale is a number
    if allowed.shape == shape:
        return allowed
    folded: Budget = allowed.reshape((*shape[:-3], -1, *shape[-3:])).sum(axis=-4)
    return folded


def in_plain_words(arguments: Mapping[str, Any], dialect: Mapping[str, str]) -> dict[str, Any]:
    """Rewrite a call in a dialect as a call that gives the same keys a weight without the dialect.

    The rewriting covers only what changes a budget: the keys that have a weight.
    """
    plain = align("attention", arguments, dialect)
    heads, shared = (plain[name].shape[:-2][-1:] for name in ("query", "key"))
    if dialect.get("HEAD-1") == "tiled" and heads and shared and heads != shared:
        for name in ("key", "value"):
            plain[name] = np.concatenate([plain[name]] * (heads[0] // shared[0]), axis=-3)
    return plain


def _also(arguments: Mapping[str, Any], allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    mask = arguments.get("mask")
    return allowed if mask is None else allowed & mask


def without_overflow(
    backend: Backend, case: Case, values: Mapping[str, Any], outputs: Outputs
) -> Mapping[str, Any]:
    """Replace the expected values of rows that overflow in the storage dtype by the returned ones."""
    if case.operation != "attention" or required_accuracy(backend, case.dtype) != "storage":
        return values
    arguments = in_plain_words(case.arguments, backend.dialect)
    capped = backend.dialect.get("SCORE-5") == "after-bias"
    rows = overflowing_rows(arguments, case.dtype, capped_bias=capped)  # (*B, Hq, L)
    if not rows.any():
        return values
    found = dict(values)
    for name, got in outputs.items():
        if got.shape == values[name].shape:
            where = rows if name == "lse" else rows[..., None]
            found[name] = np.where(where, got.astype(np.float64), values[name])
    return found
