"""Error budgets of forms and their stacks: those of attention over what the forms stand for."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import Arithmetic, Budget, finite_part
from attnspec.reference.budget.attention import MASKING, attention_budget
from attnspec.reference.budget.forms import decoding_error, latent_budgets
from attnspec.reference.budget.gradients import gradient_budget
from attnspec.reference.call import Call, Steps
from attnspec.reference.masking import allowed_pairs
from attnspec.reference.numpy_namespace import xp
from attnspec.reference.packing import packed_call, same_sequence, within_sequences
from attnspec.reference.sharding import without_shards
from attnspec.reference.stacks import reduce_forms, rows_of_entries

_CALL = Call(Steps(), xp, np.dtype(np.float64))
_WORDS = ("uniform_rows", "capped_bias", "capped_infinity")


def stacked_budget(operation: str, arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of all outputs. Codes have the errors of decoding (QUANT-8)."""
    form = OPERATIONS[operation]
    whole = {name: argument.default for name, argument in form.arguments.items()} | dict(arguments)
    plain = reduce_forms(_CALL, operation, whole)
    latent = "latent" in form.layers
    held = ("latent",) if latent else ("key", "value")
    coded = "quantized" in form.layers
    errors = {name: decoding_error(finite_part(plain[name]), arithmetic) for name in held if coded}
    if coded:
        plain |= {"latent": finite_part(plain["latent"])} if latent else {}
    packed, paged = ("packed" in form.layers, "paged" in form.layers)
    if packed and not paged:
        plain = _within_sequences(plain, arguments.get("uniform_rows", False))
    given = {name: x for name, x in plain.items() if x is not None}
    given |= {name: arguments[name] for name in _WORDS if name in arguments and name not in given}
    if latent:
        results = latent_budgets(given, arithmetic, errors.get("latent"))
    else:
        query = given["query"]
        inherited = (np.zeros(query.shape), errors["key"], errors["value"]) if coded else None
        results = attention_budget((query, given["key"], given["value"]), given, arithmetic, inherited)
    return _in_rows(whole, results, packed=packed, paged=paged)


def sharded_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of all outputs, with a merge for each shard (SHARD-9)."""
    plain = _in_parts(arguments)
    return attention_budget((plain["query"], plain["key"], plain["value"]), plain, arithmetic)


def sharded_gradient_budget(
    arguments: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Return the budgets of the gradients, which ranks return in parts (SHARD-10)."""
    return gradient_budget(_in_parts(arguments), dtypes, arithmetic)


def _in_parts(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call of attention with the numbers of its parts of keys and of its ranks."""
    shards, heads = len(arguments["query_shards"]) - 1, len(arguments.get("head_shards", "--")) - 1
    parts = shards + ("sinks" in arguments)  # a sink may be merged as one more part
    return without_shards(dict(arguments)) | {"shards": max(parts, 1), "ranks": max(shards * heads, 1)}


def packed_gradient_budget(
    arguments: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Return the budgets of the gradients of packed rows."""
    known = OPERATIONS["packed_attention_vjp"].arguments
    whole = {name: argument.default for name, argument in known.items()} | dict(arguments)
    inside = np.arange(whole["query"].shape[-2]) < whole["query_starts"][-1]
    plain = _within_sequences(whole, arguments["uniform_rows"])
    if whole["d_lse"] is not None:
        plain["d_lse"] = np.where(inside, whole["d_lse"], 0)
    return gradient_budget({name: x for name, x in plain.items() if x is not None}, dtypes, arithmetic)


def _within_sequences(plain: Mapping[str, Any], uniform: Any) -> dict[str, Any]:
    """Rewrite packed rows as a call with a mask of the pairs that they allow, ``(Hq, L, S)``.

    In the variant `uniform`, a row is the mean over the keys of its sequence.
    """
    arrays = {"query": plain["query"], "key": plain.get("key"), "value": plain.get("value")}
    if "latent" in plain:  # only the numbers of heads and of keys matter
        heads, keys = plain["query"].shape[0], plain["latent"].shape[-2]
        arrays |= dict.fromkeys(("key", "value"), np.zeros((heads, keys, plain["query"].shape[-1])))
    names = (*MASKING, "query_starts", "key_starts")
    call = packed_call(_CALL, arrays | {name: plain[name] for name in names})
    kept = {name: x for name, x in plain.items() if name not in (*MASKING, "query_starts", "key_starts")}
    pairs = {
        "mask": allowed_pairs(within_sequences(call)),
        "uniform_rows": np.any(uniform) & same_sequence(call),
    }
    return kept | pairs | {"bias": plain.get("bias")}


def _in_rows(
    whole: dict[str, Any], results: dict[str, Budget], *, packed: bool, paged: bool
) -> dict[str, Budget]:
    """Return the budgets in the shape of the outputs. Those of rows of no sequence are 0."""
    if not packed:
        return results
    if paged:
        results = rows_of_entries(_CALL, whole, results)
    inside = np.arange(whole["query"].shape[-2]) < whole["query_starts"][-1]
    return {
        name: np.where(inside if budget.ndim == 2 else inside[:, None], budget, 0)
        for name, budget in results.items()
    }
