"""The gradients of companions for the second oracle: merging, rotation, multi-head attention (GRAD-23)."""

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import indices, shared_head
from attnspec.reference.rational.gradients import CLEAR, DEEPEST, GUARD, gradient_variants
from attnspec.reference.rational.positions import turn
from attnspec.reference.rational.scores import sources
from attnspec.reference.rational.tape import (
    Leaves,
    Node,
    Options,
    Tape,
    add,
    average,
    combination,
    dot,
    leaf,
    options_of,
    reach,
    run_back,
    score,
    settle,
    softmax,
)

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
            results = _merge_row(
                [outputs[(n, *row)].tolist() for n in present],
                [float(lses[(n, *row)]) for n in present],
                [*g[row].tolist(), float(h[row])],
            )
            for n, (of_output, of_lse) in zip(present, results, strict=True):
                d_outputs[(n, *row)], d_lses[(n, *row)] = of_output, of_lse
    return {"d_outputs": d_outputs, "d_lses": d_lses}


def _merge_row(
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
        result = [*average(tape, weights, values, [Decimal(1)] * len(weights)), lse]
        combination(tape, result, [Decimal(x) for x in cotangents])  # the loss
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


Index = tuple[int, ...]

_PROJECTIONS = ("query", "key", "value", "output")
_NAMES = (
    "tokens",
    *(f"{name}_weight" for name in _PROJECTIONS),
    "memory",
    *(f"{name}_bias" for name in _PROJECTIONS),
)


def multi_head_attention_vjp(arguments: Arguments, dialect: Mapping[str, str]) -> Arrays:
    """Compute the gradients with respect to each array of a call.

    Raises
    ------
    ValueError
        If a number that a gradient depends on is not finite.
    """
    dialect = gradient_variants(arguments, dialect)
    names = [name for name in _NAMES if arguments.get(name) is not None]
    arrays = {name: np.asarray(arguments[name]).astype(np.float64) for name in names}
    g = np.asarray(arguments["d_output"]).astype(np.float64)
    heads = arguments["heads"]
    source = arrays.get("memory", arrays["tokens"])
    shape = (*arrays["tokens"].shape[:-2], heads, arrays["tokens"].shape[-2], source.shape[-2])
    depth = _row_weight(arrays, "query", arguments).shape[-1] // heads
    leaves = Leaves(arrays)
    with localcontext() as context:
        options = options_of(arguments, dialect, depth)
        product, level = _reach(arrays, arguments, options)
        deep = int(min(2 * level / Decimal(10).ln(), Decimal(DEEPEST))) + 1
        context.prec = CLEAR + GUARD + max(product.adjusted() + 1, 0) + deep
        noise = Decimal(10) ** -(CLEAR + deep)
        options = options_of(arguments, dialect, depth)
        for index in indices(arrays["tokens"].shape):
            tape: Tape = []
            rows = _output(tape, leaves, (arguments, dialect, options), shape, index)
            cotangents = [Decimal(x) for x in g[index].ravel().tolist()]
            combination(tape, [node for row in rows for node in row], cotangents)  # the loss
            run_back(tape, noise)
        return leaves.gradients(noise)


def _row_weight(
    arrays: Mapping[str, NDArray[np.float64]], name: str, arguments: Arguments
) -> NDArray[np.float64]:
    weight = arrays[f"{name}_weight"]
    return weight.T if arguments.get("convention") == "linear" else weight


def _reach(arrays: Arrays, arguments: Arguments, options: Options) -> tuple[Decimal, Decimal]:
    """Bound products and scores by projections in float64, with one more bit."""
    results = []
    for name in ("query", "key"):
        tokens = arrays["tokens"] if name == "query" else arrays.get("memory", arrays["tokens"])
        with np.errstate(invalid="ignore"):  # infinity times 0
            rows = tokens @ _row_weight(arrays, name, arguments) + arrays.get(f"{name}_bias", 0.0)
        results.append((2 * rows.reshape(-1, rows.shape[-1])).tolist())
    return reach(results[0], results[1], [], options)


def _output(
    tape: Tape,
    leaves: Leaves,
    call: tuple[Arguments, Mapping[str, str], Options],
    shape: Index,
    index: Index,
) -> list[list[Node]]:
    """Compute the output of one batch entry on the tape."""
    arguments, dialect, options = call
    count = arguments["heads"]
    shared = arguments.get("key_heads") or count
    query, key, value = (
        _project(tape, leaves, arguments, name, _tokens(leaves, name, index))
        for name in ("query", "key", "value")
    )
    depth, value_depth = (
        _row_weight(leaves.arrays, name, arguments).shape[-1] // heads
        for name, heads in (("query", count), ("value", shared))
    )
    merged: list[list[Node]] = [[] for _ in query]
    given = {name: arguments.get(name) for name in ("scale", "mask", "is_causal")}
    for h in range(count):
        place = (*index, h)
        read = shared_head(place, shape, (*shape[:-3], shared, *shape[-2:]), dialect)[-1]
        allowed = sources(given, dialect, shape, place)
        for i, row in enumerate(query):
            used = [j for j in range(shape[-1]) if allowed.allow(i, j)]
            if not used:
                merged[i] += [leaf(0.0)] * value_depth  # constant (MASK-6)
                continue
            own = row[h * depth : (h + 1) * depth]
            scores = [
                score(tape, own, key[j][read * depth : (read + 1) * depth], None, options) for j in used
            ]
            weights, _ = softmax(tape, scores, None, options.lse_unit)
            values = [value[j][read * value_depth : (read + 1) * value_depth] for j in used]
            merged[i] += average(tape, weights, values, [Decimal(1)] * len(used))
    return _project(tape, leaves, arguments, "output", merged)


def _tokens(leaves: Leaves, name: str, index: Index) -> list[list[Node]]:
    """Return the tokens that queries, keys or values are projected from."""
    array = "memory" if name != "query" and "memory" in leaves.arrays else "tokens"
    places = np.arange(leaves.arrays[array].size).reshape(leaves.arrays[array].shape)
    return [leaves.row(array, row) for row in places[index]]


def _project(
    tape: Tape, leaves: Leaves, arguments: Arguments, name: str, rows: Sequence[Sequence[Node]]
) -> list[list[Node]]:
    weight = leaves.arrays[f"{name}_weight"]
    places = np.arange(weight.size).reshape(weight.shape)
    # In the linear convention each row holds the numbers of one feature.
    columns = places if arguments.get("convention") == "linear" else places.T
    factors = [leaves.row(f"{name}_weight", column) for column in columns]
    biased = f"{name}_bias" in leaves.arrays
    shift = [leaves.at(f"{name}_bias", f) for f in range(len(factors))] if biased else []
    results = [[dot(tape, row, column) for column in factors] for row in rows]
    if not biased:
        return results
    return [[add(tape, [x, b]) for x, b in zip(row, shift, strict=True)] for row in results]
