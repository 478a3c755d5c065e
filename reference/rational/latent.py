"""Latent attention for the second oracle: its absorbed form, with the values projected at the end."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import head, indices
from attnspec.reference.rational.numbers import Matrix, combined, dot, exact, rounded

Arguments = Mapping[str, Any]


def latent_attention(arguments: Arguments, dialect: Mapping[str, str]) -> dict[str, NDArray[np.float64]]:
    """Multiply queries by the key weight, attend over the latent, and project what is attended to."""
    query, latent = np.asarray(arguments["query"]), np.asarray(arguments["latent"])
    rotary, weight = np.asarray(arguments["query_rotary"]), np.asarray(arguments["value_weight"])
    shape = (*query.shape[:-1], latent.shape[-2])
    result = {"output": np.zeros((*query.shape[:-1], weight.shape[-1])), "lse": np.zeros(shape[:-1])}
    depth = query.shape[-1] + rotary.shape[-1]
    given = {name: thing for name, thing in arguments.items() if name in _OPTIONS}
    for index in indices(shape):
        *batch, h = index
        shared = exact(latent[tuple(batch)])
        absorbed = _product(exact(query[index]), exact(np.asarray(arguments["key_weight"])[h].T))
        q = _joined(absorbed, exact(rotary[index]))
        key = _joined(shared, exact(np.asarray(arguments["key_rotary"])[tuple(batch)]))
        q = replace(q, depth=depth)  # the scale is that of the other form (LATENT-2)
        _, rows = head(q, key, shared, given, dialect, shape, index)
        columns = exact(weight[h])
        for i, row in enumerate(rows):
            result["lse"][(*index, i)] = rounded(row.lse)
            result["output"][(*index, i)] = [
                rounded(combined(row.output, column, columns.exponent, 0.0))
                for column in zip(*columns.rows, strict=True)
            ]
    return result


_OPTIONS = ("scale", "softcap", "mask", "is_causal", "query_offset", "window", "key_lengths", "sinks")


def _product(left: Matrix, right: Matrix) -> Matrix:
    columns = list(zip(*right.rows, strict=True))
    rows = [[dot(row, column, finite=True) for column in columns] for row in left.rows]
    return Matrix(rows, right.depth, left.exponent + right.exponent, True)


def _joined(left: Matrix, right: Matrix) -> Matrix:
    """Put two matrices side by side, with the finer unit of the two."""
    exponent = max(left.exponent, right.exponent)
    one, other = 1 << (exponent - left.exponent), 1 << (exponent - right.exponent)
    rows = [
        [one * x for x in own] + [other * x for x in beside]
        for own, beside in zip(left.rows, right.rows, strict=True)
    ]
    return Matrix(rows, left.depth + right.depth, exponent, True)
