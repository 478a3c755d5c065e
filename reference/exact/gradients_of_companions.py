"""The gradients of merging for the exact oracle, computed as those of attention of one query (GRAD-21)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.backward import parts_of
from attnspec.reference.exact.balls import Settled
from attnspec.reference.exact.gradients import settled


def evaluate_merge_gradients(
    arguments: Mapping[str, Any], _variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of parts. Each merged row is a query of 0, and its bias holds the lses.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.exact.gradients_of_companions import evaluate_merge_gradients
    >>> parts = {"outputs": np.array([[[1.0]], [[5.0]]]), "lses": np.zeros((2, 1))}
    >>> found = evaluate_merge_gradients(parts | {"d_output": np.array([[2.0]])}, None, "float64")
    >>> {name: x.values.tolist() for name, x in found.items()}
    {'d_outputs': [[[1.0]], [[1.0]]], 'd_lses': [[-2.0], [2.0]]}
    """
    outputs, lses = (np.asarray(arguments[name], np.float64) for name in ("outputs", "lses"))
    parts, *rows, depth = outputs.shape
    count = int(np.prod(rows))
    columns = outputs.reshape(parts, count, 1, depth)
    attention = {
        "query": np.zeros((count, 1, 1, 1)),
        "key": np.zeros((count, 1, parts, 1)),
        "value": np.moveaxis(columns, 0, 2),
        "bias": np.moveaxis(lses.reshape(parts, count, 1, 1), 0, 3),
        "d_output": np.asarray(arguments["d_output"], np.float64).reshape(count, 1, 1, depth),
        "d_lse": np.asarray(arguments.get("d_lse", np.zeros(rows)), np.float64).reshape(count, 1, 1),
    }
    shapes = {"d_value": attention["value"].shape, "d_bias": attention["bias"].shape}
    dtypes = {"d_value": dtype, "d_bias": FORMATS[dtype].lse}
    found = settled(parts_of(attention, None), shapes, None, dtypes)
    of_outputs, of_lses = found["d_value"], found["d_bias"]
    d_outputs = np.moveaxis(of_outputs.values, 2, 0).reshape(outputs.shape)
    d_lses = np.moveaxis(of_lses.values, 3, 0).reshape(lses.shape)
    return {
        "d_outputs": Settled(d_outputs, of_outputs.bits, of_outputs.radius),
        "d_lses": Settled(d_lses, of_lses.bits, of_lses.radius),
    }
