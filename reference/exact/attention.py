"""Attention for the exact oracle: all heads of a call, and the outputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpq, fmpq_mat
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.balls import OracleError, Settled, settle
from attnspec.reference.exact.head import (
    Head,
    allowed_pairs,
    exact_lse,
    exact_mean,
    key_head,
    matrix,
    past_the_length,
    rational,
    scale_of,
    weights_and_lse,
)
from attnspec.reference.exact.non_finite import Special, clean, special_of


def evaluate_attention(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute output, lse and weights of a call, by output name."""
    query, key, value = (np.asarray(arguments[name], np.float64) for name in ("query", "key", "value"))
    shape = (*query.shape[:-1], key.shape[-2])
    special = special_of(query, key, value, arguments, variant)
    heads = []
    for index in np.ndindex(*query.shape[:-2]):
        other = key_head(index, query.shape, key.shape, variant)
        q, k, v = (matrix(clean(x)) for x in (query[index], key[other], value[other]))
        heads.append((head_of(q, k, arguments, index, shape, variant, special), v))
    maxima = bool(arguments.get("return_max", False))
    rows = (*query.shape[:-1],)
    return attend(heads, rows, shape[-1], value.shape[-1], variant, dtype, special, maxima=maxima)


def evaluate_scores(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> Settled:
    """Compute the scores of a call. They are minus infinity where the bias is."""
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    shape = (*query.shape[:-1], key.shape[-2])
    heads = [
        head_of(
            matrix(query[index]),
            matrix(key[key_head(index, query.shape, key.shape, variant)]),
            arguments,
            index,
            shape,
            variant,
            None,
        )
        for index in np.ndindex(*query.shape[:-2])
    ]
    queries, keys = shape[-2:]

    def place(flat: int) -> tuple[Head, int, int]:
        head, rest = divmod(flat, queries * keys)
        return heads[head], *divmod(rest, keys)

    count = len(heads) * queries * keys
    minus_infinity = [head.bias[i, j] == -np.inf for head, i, j in map(place, range(count))]

    def balls() -> list[arb]:
        return [
            arb(0) if minus_infinity[flat] else head.ball(i, j)
            for flat, (head, i, j) in enumerate(map(place, range(count)))
        ]

    def exactly(flat: int) -> fmpq | None:
        head, i, j = place(flat)
        return head.exact_score(i, j)

    settled = settle(shape, balls, exactly, dtype)
    settled.values.reshape(-1)[minus_infinity] = -np.inf
    return settled


def attend(
    heads: list[tuple[Head, fmpq_mat]],
    rows: tuple[int, ...],
    keys: int,
    depth: int,
    variant: str | None,
    dtype: str,
    special: Special | None = None,
    *,
    maxima: bool = False,
) -> dict[str, Settled]:
    """Return output, lse and weights, of shapes ``(*rows, depth)``, ``rows`` and ``(*rows, keys)``."""
    queries = rows[-1]

    def weight_balls() -> list[arb]:
        return [ball for head, _ in heads for ball in weights_and_lse(head, variant)[0].entries()]

    def lse_balls() -> list[arb]:
        return [ball for head, _ in heads for ball in weights_and_lse(head, variant)[1]]

    def output_balls() -> list[arb]:
        return [
            ball for head, v in heads for ball in (weights_and_lse(head, variant)[0] * arb_mat(v)).entries()
        ]

    def exact_weight(flat: int) -> fmpq | None:
        index, rest = divmod(flat, queries * keys)
        i, j = divmod(rest, keys)
        unit = fmpq_mat(keys, 1, [int(other == j) for other in range(keys)])
        return exact_mean(heads[index][0], unit, i, 0, variant)

    def exact_output(flat: int) -> fmpq | None:
        index, rest = divmod(flat, queries * depth)
        return exact_mean(*heads[index], *divmod(rest, depth), variant)

    results = {
        "output": settle((*rows, depth), output_balls, exact_output, dtype),
        "lse": settle(
            rows,
            lse_balls,
            lambda flat: exact_lse(heads[flat // queries][0], flat % queries, variant),
            FORMATS[dtype].lse,
        ),
        "weights": settle((*rows, keys), weight_balls, exact_weight, dtype),
    }
    if maxima:
        results["max"] = _maxima([head for head, _ in heads], rows, FORMATS[dtype].lse)
    _put_empty_rows(results, [head for head, _ in heads], rows, variant)
    if special is not None:
        special.put_into({name: settled.values for name, settled in results.items()})
    return results


def _maxima(heads: list[Head], rows: tuple[int, ...], dtype: str) -> Settled:
    """Compute the largest score of each row, and minus infinity where no key is allowed (SOFT-8, SOFT-9)."""
    places = [(head, i) for head in heads for i in range(rows[-1])]

    def ball(head: Head, i: int) -> arb:
        results = [head.ball(i, j) for j in head.keys(i)]
        most = results[0] if results else arb(0)
        for other in results[1:]:
            most = most.max(other)
        return most

    def exactly(flat: int) -> fmpq | None:
        head, i = places[flat]
        scores = [(head.exact_score(i, j), head.ball(i, j)) for j in head.keys(i)]
        most = max((score for score, _ in scores if score is not None), default=None)
        if most is None:
            return None if scores else fmpq(0)
        return most if all(score is not None or other < arb(most) for score, other in scores) else None

    settled = settle(rows, lambda: [ball(head, i) for head, i in places], exactly, dtype)
    for flat, (head, i) in enumerate(places):
        if not head.keys(i):
            settled.values.reshape(-1)[flat] = -np.inf
    return settled


def _put_empty_rows(
    results: Mapping[str, Settled], heads: list[Head], rows: tuple[int, ...], variant: str | None
) -> None:
    """Fill in rows without an allowed key: minus infinity (SOFT-7), or the values of a variant."""

    def each_row(of: list[Any]) -> NDArray[np.bool_]:
        return np.array(of, dtype=bool).reshape(rows)

    empty = each_row([~head.allowed.any(axis=-1) for head in heads])
    sunk = each_row([[head.sink is not None] * rows[-1] for head in heads])
    results["lse"].values[empty & ~sunk] = -np.inf
    if variant == "plus-infinity":
        results["lse"].values[empty] = np.inf
    if variant == "nan" and results["weights"].values.shape[-1]:
        for name in ("output", "weights"):
            results[name].values[empty & ~sunk] = np.nan
    if variant == "added":
        # This variant is about rows that only the bias leaves empty and that have no sink.
        open_to_others = each_row([head.unmasked.any(axis=-1) for head in heads])
        for name in ("output", "weights"):
            results[name].values[empty & open_to_others & ~sunk] = np.nan


def head_of(
    query: fmpq_mat,
    key: fmpq_mat,
    arguments: Mapping[str, Any],
    index: tuple[int, ...],
    shape: tuple[int, ...],
    variant: str | None,
    special: Special | None,
) -> Head:
    """Collect the data of one head. `shape` is that of the scores, `index` the place in its outer axes."""
    bias = np.broadcast_to(np.asarray(arguments.get("bias", 0.0), dtype=np.float64), shape)
    if special is None and not np.all(np.isfinite(bias) | (bias == -np.inf)):
        raise OracleError("bias: expected finite numbers or -inf, got others")
    allowed = allowed_pairs(arguments, shape, index, variant)
    if special is not None:
        allowed &= ~special.dropped[index]
    softcap, sinks = arguments.get("softcap"), arguments.get("sinks")
    sink = None if sinks is None else float(np.asarray(sinks)[index[-1] if index else 0])
    return Head(
        products=query * key.transpose(),
        scale=scale_of(arguments.get("scale"), query.ncols(), variant),
        softcap=None if softcap is None else rational(softcap),
        capped_bias=variant == "after-bias",
        bias=bias[index],
        allowed=allowed,
        unmasked=allowed_pairs(arguments, shape, index, variant, biased=False),
        past=past_the_length(arguments, shape, index),
        sink=None if sink in (None, -np.inf) else rational(sink),
        kept=_kept_weights(arguments, shape, index),
    )


def _kept_weights(
    arguments: Mapping[str, Any], shape: tuple[int, ...], index: tuple[int, ...]
) -> list[list[fmpq]]:
    factor = 1 / (1 - rational(arguments.get("dropout_rate", 0.0)))
    mask = np.broadcast_to(np.asarray(arguments.get("dropout_mask", True)), shape)[index]
    return [[factor if kept else fmpq(0) for kept in row] for row in mask]
