"""The exact oracle: any case in ball arithmetic, each element rounded once, with a proof.

Inputs are dyadic rationals, so dot products and projections are computed exactly.
What is left (roots, exponentials, quotients) is enclosed in balls (Arb, by
python-flint), at growing precision until both ends of each ball round to the same
number. This ends: see `attnspec.reference.balls.settle`.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpq, fmpq_mat
from numpy.typing import NDArray

from attnspec.reference.balls import OracleError, Settled, nearest, settle
from attnspec.reference.masking import allowed_keys

#: The variants whose values the oracle knows.
VARIANTS = ("matrix", "sum", "nan", "uniform", "added")


def evaluate(
    operation: str, arguments: Mapping[str, Any], variant: str | None = None, dtype: str = "float64"
) -> dict[str, Settled]:
    """Compute the exact values of a case, each rounded once.

    Parameters
    ----------
    operation : str
        A name in `attnspec.OPERATIONS`.
    arguments : mapping
        The arguments of the call, by canonical name.
    variant : str, optional
        A variant whose values are wanted instead: ``matrix`` or ``sum`` of SOFT-1,
        ``nan`` or ``uniform`` of MASK-6, ``added`` of MASK-2.
    dtype : str, optional
        The format to round to: ``float64``, ``float32``, ``float16``, ``bfloat16``.

    Returns
    -------
    dict of str to Settled
        By output name.

    Raises
    ------
    OracleError
        When an input is not finite, or an element does not settle.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.exact import evaluate
    >>> query, key = np.zeros((1, 2)), np.ones((3, 2))
    >>> value = np.array([[1.0], [-2.0], [1.0]])
    >>> evaluate("attention", {"query": query, "key": key, "value": value})["output"].values.tolist()
    [[0.0]]
    """
    if variant not in (None, *VARIANTS):
        raise OracleError(f"variant: expected one of {', '.join(VARIANTS)}, got {variant!r}")
    if operation == "attention":
        return _attention(arguments, variant, dtype)
    if operation == "self_attention":
        return _self_attention(arguments, variant, dtype)
    if operation == "scores":
        return {"scores": _scores(arguments, dtype)}
    if operation == "projection":
        exact = _projected(arguments)
        return {"projected": _settle_rational(exact, dtype)}
    raise OracleError(f"operation: expected one of attnspec.OPERATIONS, got {operation!r}")


@dataclass(frozen=True)
class _Scale:
    """A factor ``rational / sqrt(radicand)``, radicand 1 unless the root is irrational."""

    rational: fmpq
    radicand: int = 1

    def ball(self) -> arb:
        return arb(self.rational) / arb(self.radicand).sqrt()


@dataclass(frozen=True)
class _Head:
    """One head of one batch entry, in rationals."""

    products: fmpq_mat  # (L, S), before the scale
    scale: _Scale
    bias: NDArray[np.float64]  # (L, S)
    allowed: NDArray[np.bool_]  # (L, S)
    unmasked: NDArray[np.bool_]  # (L, S), what all sources but the bias allow

    @property
    def shape(self) -> tuple[int, int]:
        return self.products.nrows(), self.products.ncols()

    def parts(self, i: int, j: int) -> tuple[fmpq, fmpq]:
        """Score as ``a + b / sqrt(radicand)``: equal scores have equal parts, as the root is irrational."""
        bias = self.bias[i, j]
        # Where it is -inf the key is disallowed, and its score never looked at.
        scaled = self.products[i, j] * self.scale.rational
        added = fmpq(0) if bias == -np.inf else _rational(bias)
        return (scaled + added, fmpq(0)) if self.scale.radicand == 1 else (added, scaled)

    def ball(self, i: int, j: int) -> arb:
        whole, root = self.parts(i, j)
        return arb(whole) + arb(root) / arb(self.scale.radicand).sqrt()


def _attention(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    query, key, value = (np.asarray(arguments[name]) for name in ("query", "key", "value"))
    heads = [
        (_head(_matrix(q), _matrix(k), arguments, index, query.shape[:-1]), _matrix(v))
        for index, q, k, v in _each_head(query, key, value)
    ]
    return _attend(heads, query.shape[:-1], key.shape[-2], value.shape[-1], variant, dtype)


def _self_attention(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    if np.asarray(arguments["tokens"]).ndim != 2:
        raise OracleError("tokens: expected two axes, got more")
    columns = arguments.get("convention", "row") == "column"
    projected = []
    for name in ("query", "key", "value"):
        given = {
            "tokens": arguments["tokens"],
            "weight": arguments[f"{name}_weight"],
            "bias": arguments.get(f"{name}_bias"),
            "convention": arguments.get("convention", "row"),
        }
        exact = _projected(given)
        projected.append(exact.transpose() if columns else exact)
    query, key, value = projected  # not rounded in between: the composition has one exact value
    head = _head(query, key, arguments, (), (query.nrows(),))
    settled = _attend([(head, value)], (query.nrows(),), key.nrows(), value.ncols(), variant, dtype)["output"]
    values = settled.values.T if columns else settled.values
    return {"output": Settled(values, settled.bits, settled.radius)}


def _scores(arguments: Mapping[str, Any], dtype: str) -> Settled:
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    pairs = [(i, q, k) for i, q, k, _ in _each_head(query, key, key)]
    heads = [_head(_matrix(q), _matrix(k), arguments, index, query.shape[:-1]) for index, q, k in pairs]
    queries, keys = query.shape[-2], key.shape[-2]

    def place(flat: int) -> tuple[_Head, int, int]:
        head, rest = divmod(flat, queries * keys)
        return heads[head], *divmod(rest, keys)

    count = len(heads) * queries * keys
    minus_infinity = [head.bias[i, j] == -np.inf for head, i, j in map(place, range(count))]

    def balls() -> list[arb]:
        return [
            arb(0) if minus_infinity[flat] else head.ball(i, j)
            for flat, (head, i, j) in enumerate(map(place, range(count)))
        ]

    def exactly(flat: int) -> fmpq | None:
        head, i, j = place(flat)
        whole, root = head.parts(i, j)
        return whole if root == 0 else None

    settled = settle((*query.shape[:-1], keys), balls, exactly, dtype)
    settled.values.reshape(-1)[minus_infinity] = -np.inf
    return settled


def _attend(
    heads: list[tuple[_Head, fmpq_mat]],
    rows: tuple[int, ...],
    keys: int,
    depth: int,
    variant: str | None,
    dtype: str,
) -> dict[str, Settled]:
    """Weights and output of all heads, as shapes ``(*rows, keys)`` and ``(*rows, depth)``."""
    queries = rows[-1]

    def weight_balls() -> list[arb]:
        return [ball for head, _ in heads for ball in _weights(head, variant).entries()]

    def output_balls() -> list[arb]:
        return [ball for head, v in heads for ball in (_weights(head, variant) * arb_mat(v)).entries()]

    def exact_weight(flat: int) -> fmpq | None:
        index, rest = divmod(flat, queries * keys)
        i, j = divmod(rest, keys)
        unit = fmpq_mat(keys, 1, [int(other == j) for other in range(keys)])
        return _exact_mean(heads[index][0], unit, i, 0, variant)

    def exact_output(flat: int) -> fmpq | None:
        index, rest = divmod(flat, queries * depth)
        return _exact_mean(*heads[index], *divmod(rest, depth), variant)

    results = {
        "output": settle((*rows, depth), output_balls, exact_output, dtype),
        "weights": settle((*rows, keys), weight_balls, exact_weight, dtype),
    }
    if variant in ("nan", "added"):
        # `added` is about rows that only the bias leaves empty, `nan` about all.
        empty = np.array([~head.allowed.any(axis=-1) for head, _ in heads])
        if variant == "added":
            empty &= np.array([head.unmasked.any(axis=-1) for head, _ in heads])
        for settled in results.values():
            settled.values[empty.reshape(rows)] = np.nan
    return results


def _weights(head: _Head, variant: str | None) -> arb_mat:
    """Balls around the weights of one head, rows without an allowed key by MASK-6 or its variant."""
    queries, keys = head.shape
    weights = [[arb(0)] * keys for _ in range(queries)]
    rows = [[j for j in range(keys) if head.allowed[i, j]] for i in range(queries)]
    balls = [[head.ball(i, j) for j in row] for i, row in enumerate(rows)]
    if variant == "sum":
        rated = balls
    else:
        # Any shift cancels; this one keeps the exponentials in range.
        tops = [max((ball.mid() for ball in row), default=arb(0)) for row in balls]
        if variant == "matrix":
            tops = [max(tops)] * queries
        rated = [[(ball - top).exp() for ball in row] for row, top in zip(balls, tops, strict=True)]
    totals = [sum(row, arb(0)) for row in rated]
    if variant == "matrix":
        totals = [sum(totals, arb(0))] * queries
    for i, row in enumerate(rows):
        for j, rating in zip(row, rated[i], strict=True):
            weights[i][j] = rating / totals[i]
        if not row and variant == "uniform":
            weights[i] = [arb(1) / keys] * keys
    return arb_mat(queries, keys, [ball for row in weights for ball in row])


def _exact_mean(head: _Head, value: fmpq_mat, i: int, c: int, variant: str | None) -> fmpq | None:
    """Compute the weighted mean of a column of values in row i where it is rational, else None.

    Collect the allowed keys by equal score: the mean is the quotient of a sum of
    ``exp(score) * total`` and one of ``exp(score) * count`` over these groups.
    Exponentials of distinct algebraic numbers are linearly independent over the
    algebraic numbers (Lindemann and Weierstrass), so the quotient is algebraic
    only if total / count is the same for every group, and then it is that.
    """
    keys = [j for j in range(head.shape[1]) if head.allowed[i, j]]
    if not keys:
        keys = list(range(head.shape[1])) if variant == "uniform" else []
        return sum((value[j, c] for j in keys), fmpq(0)) / max(len(keys), 1)
    if variant == "sum":
        parts = [head.parts(i, j) for j in keys]
        if head.scale.radicand != 1 and any(whole != 0 for whole, _ in parts):
            return None
        # Without a bias a root is a common factor, and cancels.
        rated = [whole + root for whole, root in parts]
        total = sum(rated, fmpq(0))
        if total == 0:
            raise OracleError("scores: expected a sum that is not 0 for the variant sum, got 0")
        return sum((score * value[j, c] for score, j in zip(rated, keys, strict=True)), fmpq(0)) / total
    totals: dict[tuple[fmpq, fmpq], fmpq] = defaultdict(fmpq)
    counts: Counter[tuple[fmpq, fmpq]] = Counter()
    for j in keys:
        totals[head.parts(i, j)] += value[j, c]
    for row in range(head.shape[0]) if variant == "matrix" else [i]:
        counts.update(head.parts(row, j) for j in range(head.shape[1]) if head.allowed[row, j])
    means = {totals[score] / count for score, count in counts.items()}
    return means.pop() if len(means) == 1 else None


def _projected(arguments: Mapping[str, Any]) -> fmpq_mat:
    tokens, weight = _matrix(arguments["tokens"]), _matrix(arguments["weight"])
    columns = arguments.get("convention", "row") == "column"
    projected = weight * tokens if columns else tokens * weight
    bias = arguments.get("bias")
    if bias is not None:
        for i in range(projected.nrows()):
            for j in range(projected.ncols()):
                projected[i, j] = projected[i, j] + _rational(np.asarray(bias)[i if columns else j])
    return projected


def _settle_rational(exact: fmpq_mat, dtype: str) -> Settled:
    values = [nearest(Fraction(int(x.p), int(x.q)), dtype) for x in exact.entries()]
    return Settled(np.array(values, dtype=np.float64).reshape(exact.nrows(), exact.ncols()), 53, None)


def _head(
    query: fmpq_mat,
    key: fmpq_mat,
    arguments: Mapping[str, Any],
    index: tuple[int, ...],
    rows: tuple[int, ...],
) -> _Head:
    shape = (*rows, key.nrows())  # of the scores, batch and head axes included
    bias = np.broadcast_to(np.asarray(arguments.get("bias", 0.0), dtype=np.float64), shape)
    if not np.all(np.isfinite(bias) | (bias == -np.inf)):
        raise OracleError("bias: expected finite numbers or -inf, got others")
    allowed = allowed_keys(
        shape,
        mask=arguments.get("mask"),
        is_causal=arguments.get("is_causal", False),
        bias=arguments.get("bias"),
    )
    given = arguments.get("scale")
    scale = _default_scale(query.ncols()) if given is None else _Scale(_rational(given))
    unmasked = allowed_keys(shape, mask=arguments.get("mask"), is_causal=arguments.get("is_causal", False))
    return _Head(query * key.transpose(), scale, bias[index], allowed[index], unmasked[index])


def _default_scale(depth: int) -> _Scale:
    root = isqrt(depth)
    return _Scale(fmpq(1, root)) if root * root == depth else _Scale(fmpq(1), depth)


def _each_head(*arrays: NDArray[Any]) -> list[tuple[Any, ...]]:
    batch = arrays[0].shape[:-2]
    return [(index, *(array[index] for array in arrays)) for index in np.ndindex(*batch)]


def _matrix(array: NDArray[Any]) -> fmpq_mat:
    array = np.asarray(array)
    if array.ndim != 2:
        raise OracleError(f"input: expected two axes, got shape {array.shape}")
    return fmpq_mat(*array.shape, [_rational(x) for x in array.ravel()])


def _rational(number: Any) -> fmpq:
    number = float(number)
    if not np.isfinite(number):
        raise OracleError(f"input: expected finite numbers, got {number}")
    return fmpq(*number.as_integer_ratio())
