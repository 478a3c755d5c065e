"""The gradients of companions for the second oracle: merging on a tape, and rotation as a matrix."""

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.gradients import CLEAR, DEEPEST, GUARD
from attnspec.reference.rational.positions import turn
from attnspec.reference.rational.tape import (
    Node,
    Tape,
    combination,
    leaf,
    run_back,
    settle,
)
from attnspec.reference.rational.taped import averaged, softmax

Arguments = Mapping[str, Any]
Arrays = dict[str, NDArray[np.float64]]


def merge_partials_vjp(arguments: Arguments) -> Arrays:
    """Compute the gradients of the outputs and the lses of parts.

    Raises
    ------
    ValueError
        If a number that a gradient depends on is not finite.
    """
    outputs, lses, g = (_read(arguments[name]) for name in ("outputs", "lses", "d_output"))
    h = np.zeros(g.shape[:-1]) if arguments.get("d_lse") is None else _read(arguments["d_lse"])
    d_outputs, d_lses = np.zeros(outputs.shape), np.zeros(lses.shape)
    for row in np.ndindex(h.shape):
        present = [n for n in range(len(lses)) if lses[(n, *row)] != -math.inf]
        if present:
            found = _merged_row(
                [outputs[(n, *row)].tolist() for n in present],
                [float(lses[(n, *row)]) for n in present],
                [*g[row].tolist(), float(h[row])],
            )
            for n, (of_output, of_lse) in zip(present, found, strict=True):
                d_outputs[(n, *row)], d_lses[(n, *row)] = of_output, of_lse
    return {"d_outputs": d_outputs, "d_lses": d_lses}


def _merged_row(
    outputs: Sequence[Sequence[float]], lses: Sequence[float], cotangents: Sequence[float]
) -> list[tuple[list[float], float]]:
    """Compute the gradients of one row, part by part."""
    for number in itertools.chain(lses, cotangents, *outputs):
        if not math.isfinite(number):
            raise ValueError(f"parts: expected finite numbers, got {number} [unspecified]")
    with localcontext() as context:
        apart = Decimal(max(lses)) - Decimal(min(lses))
        far = max(Decimal(x).adjusted() + 1 for x in lses)
        deep = int(min(2 * apart / Decimal(10).ln(), Decimal(DEEPEST))) + 1
        context.prec = CLEAR + GUARD + max(far, 0) + deep
        noise = Decimal(10) ** -(CLEAR + deep)
        levels = [leaf(x) for x in lses]
        values = [[leaf(x) for x in row] for row in outputs]
        tape: Tape = []
        weights, lse = softmax(tape, levels, None, Decimal(1))
        found = [*averaged(tape, weights, values, [Decimal(1)] * len(weights)), lse]
        combination(tape, found, [Decimal(x) for x in cotangents])  # the loss
        run_back(tape, noise)
        return [
            ([_slope(node, noise) for node in row], _slope(level, noise))
            for row, level in zip(values, levels, strict=True)
        ]


def _slope(node: Node, noise: Decimal) -> float:
    settle(node, noise)
    return float(node.slope) + 0.0


def rotary_vjp(arguments: Arguments, dialect: Mapping[str, str]) -> Arrays:
    """Add up, for each feature, the cotangents of the two rotated features that depend on it.

    Raises
    ------
    ValueError
        If a cotangent is not finite.
    """
    g = _read(arguments["d_rotated"])
    if not np.isfinite(g).all():
        raise ValueError("d_rotated: expected finite numbers, got others [unspecified]")
    depth = arguments.get("rotary_depth")
    depth = g.shape[-1] if depth is None else int(depth)
    result = g + 0.0
    for index in itertools.product(*map(range, g.shape[:-1])):
        for k in range(depth // 2):
            pair = (2 * k, 2 * k + 1) if arguments.get("interleaved") else (k, k + depth // 2)
            cosine, sine = turn(arguments, g.ndim, index, k, depth, dialect)
            rows = ((cosine, -sine), (sine, cosine))  # the matrix that rotates the pair
            given = [Decimal(float(g[(*index, d)])) for d in pair]
            for column, d in enumerate(pair):
                result[(*index, d)] = float(sum(x * row[column] for x, row in zip(given, rows, strict=True)))
    return {"d_features": result}


def _read(array: Any) -> NDArray[np.float64]:
    return np.asarray(array).astype(np.float64)
