"""Projections and their heads for the exact oracle, in rationals."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flint import fmpq_mat
from numpy.typing import NDArray

from attnspec.reference.exact.head import matrix, rational


def block(features: fmpq_mat, head: int, count: int) -> fmpq_mat:
    """Return the columns of one head."""
    depth = features.ncols() // count
    rows = range(features.nrows())
    return fmpq_mat(
        features.nrows(), depth, [features[n, head * depth + d] for n in rows for d in range(depth)]
    )


def projected(arguments: Mapping[str, Any], tokens: NDArray[Any], name: str = "") -> fmpq_mat:
    """Project by the weight and bias of a name."""
    prefix = f"{name}_" if name else ""
    given, weight = matrix(tokens), matrix(arguments[f"{prefix}weight"])
    convention = arguments.get("convention", "row")
    columns = convention == "column"
    if convention == "linear":
        weight = weight.transpose()
    projected = weight * given if columns else given * weight
    bias = arguments.get(f"{prefix}bias")
    if bias is not None:
        for i in range(projected.nrows()):
            for j in range(projected.ncols()):
                projected[i, j] = projected[i, j] + rational(np.asarray(bias)[i if columns else j])
    return projected
