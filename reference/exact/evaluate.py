"""The exact oracle: any case in ball arithmetic, each element rounded once, with a proof.

Inputs are dyadic rationals, so dot products and projections are computed exactly. Roots,
exponentials and quotients are enclosed in balls (Arb, by python-flint). The precision
increases until both ends of each ball round to the same number. See
`attnspec.reference.exact.balls.settle` for why this ends.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpq, fmpq_mat

from attnspec.operations import OPERATIONS
from attnspec.reference.exact.attention import attend, evaluate_attention, evaluate_scores, head_of
from attnspec.reference.exact.balls import OracleError, Settled, nearest, settle
from attnspec.reference.exact.companions import COMPANIONS, Evaluate, block, project
from attnspec.reference.exact.forms import (
    dequantize,
    dequantize_blocks,
    evaluate_packed_gradients,
    evaluate_seeded,
    evaluate_seeded_gradients,
    evaluate_sharded,
    evaluate_sharded_gradients,
    evaluate_sparse_gradients,
    low_precision_attention,
)
from attnspec.reference.exact.gradients import evaluate_gradients
from attnspec.reference.exact.gradients_of_companions import (
    evaluate_merge_gradients,
    evaluate_multi_head_gradients,
)
from attnspec.reference.exact.head import Head, exact_mean, matrix, rational, weights_and_lse
from attnspec.reference.exact.latent import evaluate_latent_gradients
from attnspec.reference.exact.stacks import evaluate_stack

#: The variants whose values the oracle computes.
VARIANTS = (
    "one",  # SCORE-2
    "after-bias",  # SCORE-5
    "added",  # MASK-2
    "bottom-right",  # MASK-3, PACK-5
    "nan",  # MASK-6; of gradients GRAD-10
    "uniform",
    "exclusive-left",  # MASK-8
    "matrix",  # SOFT-1
    "sum",
    "base-2",  # SOFT-6
    "plus-infinity",  # SOFT-7
    "tiled",  # HEAD-1
    "signed",  # POS-8
    "key-position",
    "alternating",  # POS-15
    "by-rotations",  # POS-21
    "both-or-none",  # POS-22
    "ignored",  # GRAD-6
)


def evaluate(
    operation: str, arguments: Mapping[str, Any], variant: str | None = None, dtype: str = "float64"
) -> dict[str, Settled]:
    """Compute the exact values of a case, each rounded once."""
    if variant not in (None, *VARIANTS):
        raise OracleError(f"variant: expected one of {', '.join(VARIANTS)}, got {variant!r}")
    arguments = {name: thing for name, thing in arguments.items() if thing is not None}
    if operation in _OPERATIONS:
        return _OPERATIONS[operation](arguments, variant, dtype)
    if operation in OPERATIONS:
        return evaluate_stack(operation, arguments, variant, dtype)
    raise OracleError(f"operation: expected one of attnspec.OPERATIONS, got {operation!r}")


def _self_attention(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    columns = arguments.get("convention", "row") == "column"
    tokens = np.asarray(arguments["tokens"])
    if (mask := np.asarray(arguments.get("mask"))).ndim > 2:  # (*B, L, L), which has no axis of heads
        arguments = {**arguments, "mask": mask[..., None, :, :]}
    results = []
    for index in np.ndindex(*tokens.shape[:-2]):
        rows = []
        for name in ("query", "key", "value"):
            exact = project(arguments, tokens[index], name)
            rows.append(exact.transpose() if columns else exact)
        query, key, value = rows  # not rounded, because the composition has one exact value
        shape = (*tokens.shape[:-2], 1, query.nrows(), key.nrows())
        head = head_of(query, key, arguments, (*index, 0), shape, variant, None)
        settled = attend([(head, value)], (query.nrows(),), key.nrows(), value.ncols(), variant, dtype)
        output = settled["output"]
        results.append(replace(output, values=output.values.T) if columns else output)
    return {"output": _stack(results, arguments, "value_weight")}


def _multi_head_attention(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    tokens = np.asarray(arguments["tokens"])
    memory = np.asarray(arguments.get("memory", tokens))
    count = arguments["heads"]
    key_count = arguments.get("key_heads", count)
    results = []
    for index in np.ndindex(*tokens.shape[:-2]):
        query = project(arguments, tokens[index], "query")
        key, value = (project(arguments, memory[index], name) for name in ("key", "value"))
        shape = (*tokens.shape[:-2], count, query.nrows(), key.nrows())
        heads = []
        for h in range(count):
            other = h % key_count if variant == "tiled" else h // (count // key_count)
            q, k, v = block(query, h, count), block(key, other, key_count), block(value, other, key_count)
            heads.append((head_of(q, k, arguments, (*index, h), shape, variant, None), v))
        results.append(_project_heads(heads, arguments, variant, dtype))
    return {"output": _stack(results, arguments, "output_weight")}


def _project_heads(
    heads: list[tuple[Head, fmpq_mat]], arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> Settled:
    """Merge heads and apply the last projection, in balls."""
    weight = matrix(arguments["output_weight"])
    if arguments.get("convention") == "linear":
        weight = weight.transpose()
    bias = arguments.get("output_bias")
    added = [rational(x) for x in (np.zeros(weight.ncols()) if bias is None else bias)]
    queries, depth = heads[0][0].shape[0], heads[0][1].ncols()

    def balls() -> list[arb]:
        merged = [weights_and_lse(head, variant)[0] * arb_mat(v) for head, v in heads]
        return [
            sum(
                (
                    merged[h][i, c] * arb(weight[h * depth + c, f])
                    for h in range(len(heads))
                    for c in range(depth)
                ),
                arb(added[f]),
            )
            for i in range(queries)
            for f in range(weight.ncols())
        ]

    def exactly(flat: int) -> fmpq | None:
        i, f = divmod(flat, weight.ncols())
        total = added[f]
        for h, (head, v) in enumerate(heads):
            column = fmpq_mat(
                v.nrows(),
                1,
                [
                    sum((v[j, c] * weight[h * depth + c, f] for c in range(depth)), fmpq(0))
                    for j in range(v.nrows())
                ],
            )
            mean = exact_mean(head, column, i, 0, variant)
            if mean is None:
                return None
            total += mean
        return total

    return settle((queries, weight.ncols()), balls, exactly, dtype)


def _settle_batches(arguments: Mapping[str, Any], dtype: str) -> Settled:
    """Project each batch entry. All values are rational."""
    tokens = np.asarray(arguments["tokens"])
    results = []
    for index in np.ndindex(*tokens.shape[:-2]):
        exact = project(arguments, tokens[index])
        values = [nearest(Fraction(int(x.p), int(x.q)), dtype) for x in exact.entries()]
        results.append(Settled(np.array(values, dtype=np.float64), 53, None))
    return _stack(results, arguments, "weight")


def _stack(results: list[Settled], arguments: Mapping[str, Any], weight: str) -> Settled:
    """Put the results of the batch entries together, of which there may be none."""
    *batch, rows, columns = np.shape(arguments["tokens"])
    convention = arguments.get("convention", "row")
    features = np.shape(arguments[weight])[-1 if convention == "row" else 0]
    shape = (features, columns) if convention == "column" else (rows, features)
    values = np.array([proof.values for proof in results]).reshape(*batch, *shape)
    radii = [proof.radius for proof in results if proof.radius is not None]
    return Settled(values, max((proof.bits for proof in results), default=53), max(radii, default=None))


def _scores(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    return {"scores": evaluate_scores(arguments, variant, dtype)}


def _projection(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    return {"projected": _settle_batches(arguments, dtype)}


_OPERATIONS: Mapping[str, Evaluate] = {
    "attention": evaluate_attention,
    "attention_vjp": evaluate_gradients,
    "self_attention": _self_attention,
    "multi_head_attention": _multi_head_attention,
    "multi_head_attention_vjp": evaluate_multi_head_gradients,
    "scores": _scores,
    "projection": _projection,
    "packed_attention_vjp": evaluate_packed_gradients,
    "sharded_attention": evaluate_sharded,
    "sharded_attention_vjp": evaluate_sharded_gradients,
    "seeded_dropout_attention": evaluate_seeded,
    "seeded_dropout_attention_vjp": evaluate_seeded_gradients,
    "dequantize": dequantize,
    "dequantize_blocks": dequantize_blocks,
    "low_precision_attention": low_precision_attention,
    "merge_partials_vjp": evaluate_merge_gradients,
    "block_sparse_attention_vjp": evaluate_sparse_gradients,
    "listed_attention_vjp": evaluate_sparse_gradients,
    "latent_attention_vjp": evaluate_latent_gradients,
    **COMPANIONS,
}
