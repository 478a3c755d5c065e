"""The gradients of multi-head attention for the second oracle, computed on a tape (GRAD-23)."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import indices, shared_head
from attnspec.reference.rational.gradients import CLEAR, DEEPEST, GUARD, of_gradients
from attnspec.reference.rational.masking import sources
from attnspec.reference.rational.tape import Node, Tape, added, combination, dot, leaf, run_back, settle
from attnspec.reference.rational.taped import Leaves, Options, averaged, options_of, reach, score, softmax

Arguments = Mapping[str, Any]
Arrays = dict[str, NDArray[np.float64]]
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
    dialect = of_gradients(arguments, dialect)
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
        gradients = {f"d_{name}": np.zeros(array.shape) for name, array in arrays.items()}
        for (name, place), node in leaves.used.items():
            settle(node, noise)
            gradients[f"d_{name}"].flat[place] = float(node.slope) + 0.0
    return gradients


def _row_weight(
    arrays: Mapping[str, NDArray[np.float64]], name: str, arguments: Arguments
) -> NDArray[np.float64]:
    weight = arrays[f"{name}_weight"]
    return weight.T if arguments.get("convention") == "linear" else weight


def _reach(arrays: Arrays, arguments: Arguments, options: Options) -> tuple[Decimal, Decimal]:
    """Bound products and scores by projections in float64, with one more bit."""
    found = []
    for name in ("query", "key"):
        tokens = arrays["tokens"] if name == "query" else arrays.get("memory", arrays["tokens"])
        rows = tokens @ _row_weight(arrays, name, arguments) + arrays.get(f"{name}_bias", 0.0)
        found.append((2 * rows.reshape(-1, rows.shape[-1])).tolist())
    return reach(found[0], found[1], [], options)


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
        _projected(tape, leaves, arguments, name, _tokens(leaves, name, index))
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
            merged[i] += averaged(tape, weights, values, [Decimal(1)] * len(used))
    return _projected(tape, leaves, arguments, "output", merged)


def _tokens(leaves: Leaves, name: str, index: Index) -> list[list[Node]]:
    """Return the tokens that queries, keys or values are projected from."""
    array = "memory" if name != "query" and "memory" in leaves.arrays else "tokens"
    places = np.arange(leaves.arrays[array].size).reshape(leaves.arrays[array].shape)
    return [leaves.row(array, row) for row in places[index]]


def _projected(
    tape: Tape, leaves: Leaves, arguments: Arguments, name: str, rows: Sequence[Sequence[Node]]
) -> list[list[Node]]:
    weight = leaves.arrays[f"{name}_weight"]
    places = np.arange(weight.size).reshape(weight.shape)
    # In the linear convention each row holds the numbers of one feature.
    columns = places if arguments.get("convention") == "linear" else places.T
    factors = [leaves.row(f"{name}_weight", column) for column in columns]
    biased = f"{name}_bias" in leaves.arrays
    shift = [leaves.at(f"{name}_bias", f) for f in range(len(factors))] if biased else []
    found = [[dot(tape, row, column) for column in factors] for row in rows]
    if not biased:
        return found
    return [[added(tape, [x, b]) for x, b in zip(row, shift, strict=True)] for row in found]
