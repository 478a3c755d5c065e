"""Scores and attention of the second oracle, computed for each head of each batch entry separately."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.dialect import of_routes
from attnspec.reference.rational.numbers import Matrix, exact, to_float
from attnspec.reference.rational.scores import Key, Scores, head_rows, head_scores, sources
from attnspec.reference.rational.softmax import Kept, Row, attend

Arguments = Mapping[str, Any]
Dialect = Mapping[str, str]
Index = tuple[int, ...]


def attention(arguments: Arguments, dialect: Dialect) -> dict[str, NDArray[np.float64]]:
    """Compute output, lse and weights, and the largest scores if they are asked for."""
    query, key, value = (np.asarray(arguments[name]) for name in ("query", "key", "value"))
    shape = (*query.shape[:-1], key.shape[-2])  # (*B, Hq, L, S)
    result = {
        "output": np.zeros((*query.shape[:-1], value.shape[-1])),
        "lse": np.zeros(shape[:-1]),
        "weights": np.zeros(shape),
    }
    if arguments.get("return_max"):
        result["max"] = np.zeros(shape[:-1])
    keys, values = _matrices(key), _matrices(value)
    for index in indices(shape):
        shared = shared_head(index, shape, key.shape, dialect)
        results, rows = head(
            exact(query[index]), keys[shared], values[shared], arguments, dialect, shape, index
        )
        for i, row in enumerate(rows):
            result["output"][(*index, i)] = [to_float(x) for x in row.output]
            result["lse"][(*index, i)] = to_float(row.lse)
            result["weights"][(*index, i)] = row.weights
            if "max" in result:
                result["max"][(*index, i)] = maximum(results, arguments, dialect, shape, (*index, i))
    return result


def maximum(result: Scores, arguments: Arguments, dialect: Dialect, shape: Index, place: Index) -> float:
    """Return the largest score that the query at a place may attend to (SOFT-8)."""
    *index, i = place
    seen = sources(arguments, dialect, shape, tuple(index))
    return _largest(result, [result.rows[i][j] for j in range(shape[-1]) if seen.allow(i, j)])


def _largest(result: Scores, row: Sequence[Key | float]) -> float:
    """Round the largest of some scores. NaN is the largest of all."""
    special = [x for x in row if isinstance(x, float) and x != -math.inf]
    if special:
        return sum(special)
    finite = [x for x in row if not isinstance(x, float)]
    return result.scale.nearest(max(finite, key=result.scale.level)) if finite else -math.inf


def scores(arguments: Arguments, dialect: Dialect) -> dict[str, NDArray[np.float64]]:
    """Compute the scores."""
    query, key = (np.asarray(arguments[name]) for name in ("query", "key"))
    shape = (*query.shape[:-1], key.shape[-2])  # (*B, Hq, L, S)
    result = np.zeros(shape)
    keys = _matrices(key)
    for index in indices(shape):
        shared = shared_head(index, shape, key.shape, dialect)
        found = _scores(exact(query[index]), keys[shared], arguments, dialect, shape, index)
        for i, row in enumerate(found.rows):
            result[(*index, i)] = [found.scale.nearest(x) for x in row]
    return {"scores": result}


def head(
    query: Matrix,
    key: Matrix,
    value: Matrix,
    arguments: Arguments,
    dialect: Dialect,
    shape: Index,
    index: Index,
) -> tuple[Scores, list[Row]]:
    """Compute scores and rows of one head from its matrices and the other arguments of `attention`."""
    results = _scores(query, key, arguments, dialect, shape, index)
    allowed = sources(arguments, dialect, shape, index)
    dropout = head_rows(arguments.get("dropout_mask"), shape, index)
    rate = 1 - Fraction(float(arguments.get("dropout_rate") or 0))
    rows = []
    for i in range(shape[-2]):
        keys = [j for j in range(shape[-1]) if allowed.allow(i, j)]
        kept = Kept(None if dropout is None else dropout[i], rate)
        # A row past its length is 0 with the variant `uniform` too (MASK-6).
        past = allowed.query_length is not None and i >= allowed.query_length
        shown = {rule: variant for rule, variant in dialect.items() if not past or not _is_mean(variant)}
        closed = [] if keys else [j for j in range(shape[-1]) if not allowed.allow(i, j, biased=False)]
        rows.append(attend(results, i, keys, value, kept, shown, closed))
    return results, rows


def _is_mean(variant: str) -> bool:
    """Whether rows that a mask or a length leaves empty are means."""
    return of_routes(variant).get("mask") == "uniform"


def indices(shape: Index) -> Iterator[Index]:
    """Iterate over batch entries and heads."""
    return itertools.product(*map(range, shape[:-2]))


def _scores(
    query: Matrix, key: Matrix, arguments: Arguments, dialect: Dialect, shape: Index, index: Index
) -> Scores:
    bias, sinks = arguments.get("bias"), arguments.get("sinks")
    added = None if bias is None else exact(np.broadcast_to(bias, shape)[index])
    sink = None if sinks is None else float(sinks[index[-1] if index else 0])
    return head_scores(query, key, arguments, dialect, bias=added, sink=sink)


def _matrices(array: NDArray[Any]) -> dict[Index, Matrix]:
    return {index: exact(array[index]) for index in indices(array.shape)}


def shared_head(index: Index, shape: Index, key_shape: Index, dialect: Dialect) -> Index:
    """Find the key head that a query head reads."""
    if not index:
        return index
    queries, keys = shape[-3], key_shape[-3]
    if dialect.get("HEAD-1") == "tiled":
        return (*index[:-1], index[-1] % keys)
    return (*index[:-1], index[-1] // (queries // keys))
