"""Latent attention for the exact oracle: its projected form, with projections in rationals."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import fmpq_mat

from attnspec.reference.exact.attention import attend, head_of
from attnspec.reference.exact.balls import Settled
from attnspec.reference.exact.head import matrix


def evaluate_latent(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute output and lse. Keys and values are not rounded (LATENT-1)."""
    query, latent = np.asarray(arguments["query"]), np.asarray(arguments["latent"])
    shape = (*query.shape[:-1], latent.shape[-2])  # (*B, Hq, L, S)
    heads = []
    for index in np.ndindex(*query.shape[:-2]):
        *batch, h = index
        shared = matrix(latent[tuple(batch)])
        own = shared * matrix(arguments["key_weight"][h])
        key = _joined(own, matrix(arguments["key_rotary"][tuple(batch)]))
        q = _joined(matrix(query[index]), matrix(arguments["query_rotary"][index]))
        head = head_of(q, key, arguments, index, shape, variant, None)
        heads.append((head, shared * matrix(arguments["value_weight"][h])))
    depth = np.asarray(arguments["value_weight"]).shape[-1]
    found = attend(heads, query.shape[:-1], shape[-1], depth, variant, dtype)
    return {name: found[name] for name in ("output", "lse")}


def _joined(left: fmpq_mat, right: fmpq_mat) -> fmpq_mat:
    """Put two matrices side by side."""
    rows = range(left.nrows())
    entries = [side[row, column] for row in rows for side in (left, right) for column in range(side.ncols())]
    return fmpq_mat(left.nrows(), left.ncols() + right.ncols(), entries)
