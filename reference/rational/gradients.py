"""The gradients of attention for the second oracle: the forward pass on a tape, and the chain rule.

This does not use the formulas of the backward pass. For each head it computes the scores, the softmax, the
output and the lse on a tape (`attnspec.reference.rational.tape`). It then multiplies all results by their
cotangents, adds them up (GRAD-1), and applies the chain rule back to the numbers of the call.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import indices, shared_head
from attnspec.reference.rational.scores import head_rows, sources
from attnspec.reference.rational.tape import (
    Absorbed,
    Head,
    Leaves,
    Node,
    Options,
    Rows,
    combination,
    options_of,
    reach,
    results,
    run_back,
    settle,
)

Arguments = Mapping[str, Any]
Arrays = dict[str, NDArray[np.float64]]
Index = tuple[int, ...]

#: The number of digits of a derivative above the rounding noise, and of digits that noise may take.
CLEAR, GUARD = 80, 20
#: A weight that lies more digits than this below another does not affect a result in float64.
DEEPEST = 400
#: Rules whose variants define the values of an empty row. They change no gradient; GRAD-10 has its own
#: variants.
_FORWARD_ONLY = ("MASK-6", "SOFT-7")


def attention_vjp(arguments: Arguments, dialect: Mapping[str, str]) -> Arrays:
    """Compute the gradients with respect to each array of a call.

    Raises
    ------
    ValueError
        If a number that a gradient depends on is not finite.
    """
    return _gradients(arguments, dialect, ("query", "key", "value"))


#: The arrays of latent attention. The axes of batch entries and of heads are those before the last two.
_LATENT = ("query", "query_rotary", "latent", "key_rotary", "key_weight", "value_weight")


def latent_attention_vjp(arguments: Arguments, dialect: Mapping[str, str]) -> Arrays:
    """Compute the gradients with respect to each array of a call, in the absorbed form.

    Raises
    ------
    ValueError
        If a number that a gradient depends on is not finite.
    """
    return _gradients(arguments, dialect, _LATENT)


def _gradients(arguments: Arguments, dialect: Mapping[str, str], of: Sequence[str]) -> Arrays:
    dialect = gradient_variants(arguments, dialect)
    names = [name for name in (*of, "bias", "sinks") if arguments.get(name) is not None]
    arrays = {name: np.asarray(arguments[name]).astype(np.float64) for name in names}
    keys = arrays["latent" if "latent" in arrays else "key"]
    shape = (*arrays["query"].shape[:-1], keys.shape[-2])  # (*B, Hq, L, S)
    return run(arguments, dialect, arrays, heads_of(arguments, arrays, dialect, shape))


def gradient_variants(arguments: Arguments, dialect: Mapping[str, str]) -> dict[str, str]:
    """Select the variants that change gradients.

    The variant `added` of MASK-2 defines an empty row as well, unless a softcap follows the bias: then minus
    infinity is capped, and its key has a weight.
    """
    capped = arguments.get("softcap") is not None and dialect.get("SCORE-5") == "after-bias"
    without = _FORWARD_ONLY if capped else (*_FORWARD_ONLY, "MASK-2")
    return {rule: variant for rule, variant in dialect.items() if rule not in without}


def heads_of(arguments: Arguments, arrays: Arrays, dialect: Mapping[str, str], shape: Index) -> list[Head]:
    """Collect the data of each head of a call."""
    return [_head(arguments, arrays, dialect, shape, index) for index in indices(shape)]


def run(arguments: Arguments, dialect: Mapping[str, str], arrays: Arrays, heads: list[Head]) -> Arrays:
    """Compute the gradients of arrays by way of some heads, whose places are those of the arrays."""
    leaves = Leaves(arrays)
    rows = Absorbed if "latent" in arrays else Rows
    depth = arrays["query"].shape[-1]
    depth += arrays["query_rotary"].shape[-1] if "latent" in arrays else 0
    with localcontext() as context:
        far, deep = _digits(arrays, heads, options_of(arguments, dialect, depth))
        context.prec = CLEAR + GUARD + far + deep
        noise = Decimal(10) ** -(CLEAR + deep)
        options = options_of(arguments, dialect, depth)
        for head in heads:
            tape: list[Node] = []
            found = results(rows(tape, leaves, head), options)
            combination(tape, [node for node, _ in found], [cotangent for _, cotangent in found])  # the loss
            run_back(tape, noise)
        gradients = leaves.gradients(noise)
        if options.scale_node is not None:
            settle(options.scale_node, noise)
            gradients["d_scale"] = np.array(float(options.scale_node.slope) + 0.0)
    if dialect.get("GRAD-10") == "nan":
        for head in heads:
            _put_nan(gradients, head)
    return gradients


def _head(
    arguments: Arguments, arrays: Arrays, dialect: Mapping[str, str], shape: Index, index: Index
) -> Head:
    queries, keys = shape[-2:]
    latent = "latent" in arrays
    shared = index if latent else shared_head(index, shape, arrays["key"].shape, dialect)
    places = {}
    for name, array in arrays.items():
        numbers = np.arange(array.size).reshape(array.shape)
        if name == "sinks":
            places[name] = numbers[index[-1:] or (0,)].reshape(1)
        elif name == "bias":
            places[name] = np.broadcast_to(numbers, shape)[index]
        elif latent and not name.startswith("query"):
            places[name] = numbers[index[-1] if name.endswith("weight") else index[:-1]]
        else:
            places[name] = numbers[index if name.startswith("query") else shared]
    allowed = sources(arguments, dialect, shape, index)
    rows = [[j for j in range(keys) if allowed.allow(i, j)] for i in range(queries)]
    there = queries if allowed.query_length is None else allowed.query_length
    sunk = "sinks" in places and float(arguments["sinks"].flat[places["sinks"][0]]) > -math.inf
    uniform = dialect.get("GRAD-10") == "uniform" and keys > 0 and not sunk
    dropout = head_rows(arguments.get("dropout_mask"), shape, index)
    d_lse = None if dialect.get("GRAD-6") == "ignored" else arguments.get("d_lse")
    return Head(
        places=places,
        rows=rows,
        filled={i for i, row in enumerate(rows) if uniform and not row and i < there},
        kept=dropout or [[True] * keys] * queries,
        d_output=np.asarray(arguments["d_output"]).astype(np.float64)[index],
        d_lse=np.zeros(queries) if d_lse is None else np.asarray(d_lse).astype(np.float64)[index],
    )


def _digits(arrays: Arrays, heads: list[Head], options: Options) -> tuple[int, int]:
    """Bound the digits of the largest score before its point, and those between two weights of a row."""
    far, deep = 0, Decimal(0)
    for head in heads:
        there = {name: arrays[name].ravel()[places] for name, places in head.places.items()}
        if "latent" in there:  # projected in float64, with one more bit
            there["query"] = np.concatenate([there["query"], there["query_rotary"]], axis=-1)
            key = [there["latent"] @ there["key_weight"], there["key_rotary"]]
            there["key"] = 2 * np.concatenate(key, axis=-1)
        queries = [i for i, row in enumerate(head.rows) if row]
        keys = sorted({j for row in head.rows for j in row})
        others = there["sinks"].tolist() if "sinks" in there else []
        if "bias" in there:
            others += [float(there["bias"][i, j]) for i, row in enumerate(head.rows) for j in row]
        product, level = reach(there["query"][queries].tolist(), there["key"][keys].tolist(), others, options)
        far = max(far, product.adjusted() + 1)
        deep = max(deep, 2 * level / Decimal(10).ln())
    return far, int(min(deep, Decimal(DEEPEST))) + 1


def _put_nan(gradients: Arrays, head: Head) -> None:
    """Fill in the NaN of 0 / 0, which a row without an allowed key spreads over its head."""
    empty = [i for i, row in enumerate(head.rows) if not row]
    if not empty or not head.kept[0]:
        return
    if "d_scale" in gradients:
        gradients["d_scale"][...] = math.nan
    for name, places in head.places.items():
        reached = places[empty] if name in {"query", "query_rotary", "bias"} else places
        gradients[f"d_{name}"].flat[reached.ravel()] = math.nan
