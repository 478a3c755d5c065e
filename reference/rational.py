"""The second oracle: rationals around one exponential, in the standard library alone.

It shares no code with the reference, the first oracle or NumPy's arithmetic, and
proves nothing: it works to 60 digits of the largest value, where float64 has 16. The suite takes the
expected values of generated problems from here.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Digits worked with. Exponents are unbounded for all practical purposes.
_CONTEXT = Context(prec=60, Emin=-(10**15), Emax=10**15)
_LOWEST = float("-inf")

Matrix = list[list[Fraction]]


def evaluate(operation: str, arguments: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Compute the values of a call, rounded to float64.

    Parameters
    ----------
    operation : str
        A name in `attnspec.OPERATIONS`.
    arguments : mapping
        The arguments of the call, by canonical name; numbers are finite, but for
        minus infinity in a bias.

    Returns
    -------
    dict of str to float64 array
        By output name.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.rational import evaluate
    >>> query, key = np.zeros((1, 2)), np.ones((3, 2))
    >>> evaluate("attention", {"query": query, "key": key, "value": key})["weights"].tolist()
    [[0.3333333333333333, 0.3333333333333333, 0.3333333333333333]]
    """
    with localcontext(_CONTEXT):
        if operation == "attention":
            return _heads(arguments)
        if operation == "scores":
            return {"scores": _heads(arguments)["scores"]}
        if operation == "projection":
            projected = _projected(arguments, "weight", "bias")
            if arguments.get("convention") == "column":
                projected = _transposed(projected)
            return {"projected": np.array([[float(x) for x in row] for row in projected])}
        return {"output": _self_attention(arguments)}


def _heads(arguments: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Scores, and with a value weights and output, of every head of every batch entry."""
    query, key = arguments["query"], arguments["key"]
    value = arguments.get("value", np.ones((*key.shape[:-1], 1)))
    shape = (*query.shape[:-1], key.shape[-2])
    scores, weights, output = np.zeros(shape), np.zeros(shape), np.zeros((*query.shape[:-1], value.shape[-1]))
    for index in itertools.product(*map(range, query.shape[:-2])):
        bias = _piece(arguments.get("bias"), shape, index)
        mask = _piece(arguments.get("mask"), shape, index)
        rows = _rows(_exact(query[index]), _exact(key[index]), query.shape[-1], arguments.get("scale"), bias)
        for i, row in enumerate(rows):
            scores[(*index, i)] = [float(s.factor * _decimal(s.product) + _decimal(s.bias)) for s in row]
            allowed = [
                j
                for j in range(shape[-1])
                if (mask is None or mask[i][j])
                and (bias is None or bias[i][j] != _LOWEST)
                and (not arguments.get("is_causal") or j <= i)
            ]
            mean = _means(row, allowed, _exact(value[index]), value.shape[-1])
            output[(*index, i)], weights[(*index, i)] = mean
    return {"output": output, "weights": weights, "scores": scores}


@dataclass(frozen=True)
class _Score:
    """``factor * product + bias``, all exact but a factor that is an irrational root."""

    product: Fraction
    bias: Fraction
    factor: Decimal

    def above(self, other: "_Score") -> Decimal:
        """By how much it is above another score; subtracted first, so that large scores lose nothing."""
        return self.factor * _decimal(self.product - other.product) + _decimal(self.bias - other.bias)

    @property
    def same(self) -> tuple[Fraction, Fraction]:
        """Equal for equal scores of a row, whose factor is one."""
        return (self.product if self.factor else Fraction(0), self.bias)


def _rows(query: Matrix, key: Matrix, depth: int, scale: float | None, bias: Any) -> list[list[_Score]]:
    factor = 1 / Decimal(depth).sqrt() if scale is None else Decimal(float(scale))
    rows = []
    for i, q in enumerate(query):
        row: list[_Score] = []
        for j, k in enumerate(key):
            product = sum((x * y for x, y in zip(q, k, strict=True)), Fraction(0))
            added = 0.0 if bias is None or bias[i][j] == _LOWEST else float(bias[i][j])
            row.append(_Score(product, Fraction(added), factor))
        rows.append(row)
    return rows


def _means(
    row: Sequence[_Score], allowed: Sequence[int], value: Matrix, depth: int
) -> tuple[list[float], list[float]]:
    """Compute weighted means of the values' columns, and weights; keys of equal score are summed first."""
    weights = [0.0] * len(row)
    if not allowed:
        return [0.0] * depth, weights
    top = row[allowed[0]]
    for j in allowed:
        top = row[j] if row[j].above(top) > 0 else top
    groups: dict[Any, list[int]] = {}
    for j in allowed:
        groups.setdefault(row[j].same, []).append(j)
    rates = {same: row[keys[0]].above(top).exp() for same, keys in groups.items()}
    total = sum((rate * len(groups[same]) for same, rate in rates.items()), Decimal(0))
    for same, keys in groups.items():
        for j in keys:
            weights[j] = float(rates[same] / total)
    output = []
    for column in range(depth):
        sums = {same: sum((value[j][column] for j in keys), Fraction(0)) for same, keys in groups.items()}
        output.append(float(sum((rates[same] * _decimal(x) for same, x in sums.items()), Decimal(0)) / total))
    return output, weights


def _projected(arguments: Mapping[str, Any], weight: str, bias: str) -> Matrix:
    """Tokens as rows times the weight, whatever the convention they are given in."""
    columns = arguments.get("convention") == "column"
    tokens, matrix = _exact(arguments["tokens"]), _exact(arguments[weight])
    if columns:
        tokens, matrix = _transposed(tokens), _transposed(matrix)
    added = arguments.get(bias)
    shift = [Fraction(0)] * len(matrix[0]) if added is None else [Fraction(float(x)) for x in added]
    return [
        [
            sum((t * m for t, m in zip(token, feature, strict=True)), b)
            for feature, b in zip(zip(*matrix, strict=True), shift, strict=True)
        ]
        for token in tokens
    ]


def _self_attention(arguments: Mapping[str, Any]) -> NDArray[np.float64]:
    query, key, value = (
        _projected(arguments, f"{name}_weight", f"{name}_bias") for name in ("query", "key", "value")
    )
    mask = _piece(arguments.get("mask"), (len(query), len(key)), ())
    causal = arguments.get("is_causal")
    output = []
    for i, row in enumerate(_rows(query, key, len(query[0]), arguments.get("scale"), None)):
        allowed = [j for j in range(len(key)) if (mask is None or mask[i][j]) and (not causal or j <= i)]
        output.append(_means(row, allowed, value, len(value[0]))[0])
    result = np.array(output)
    return result.T if arguments.get("convention") == "column" else result


def _exact(array: NDArray[Any]) -> Matrix:
    return [[Fraction(float(x)) for x in row] for row in array]


def _transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def _decimal(rational: Fraction) -> Decimal:
    return Decimal(rational.numerator) / Decimal(rational.denominator)


def _piece(array: Any, shape: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """Take what of a mask or bias belongs to one head, as nested lists."""
    return None if array is None else np.broadcast_to(array, shape)[index].tolist()
