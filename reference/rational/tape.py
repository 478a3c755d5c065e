"""A tape for the second oracle: numbers that remember their origin, the chain rule, and attention on it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.numbers import tanh

_ZERO, _ONE = Decimal(0), Decimal(1)
#: The exponential of this, 1e-868, is so small that its products with numbers of float64 are 0 in float64.
_NOTHING = -2000


@dataclass(slots=True, eq=False)
class Node:
    """One number of a computation."""

    value: Decimal
    size: Decimal
    #: The numbers that it was computed from, each with its partial derivative and the size of that.
    edges: list[tuple["Node", Decimal, Decimal]] = field(default_factory=list)
    slope: Decimal = _ZERO  # the derivative of the last number of the tape by this one, set by `run_back`
    slope_size: Decimal = _ZERO


Tape = list[Node]


def leaf(number: float) -> Node:
    """Make a number that was not computed and is not on a tape."""
    value = Decimal(number)
    return Node(value, abs(value))


def combination(tape: Tape, nodes: Sequence[Node], factors: Sequence[Decimal]) -> Node:
    """Add up numbers times constants."""
    edges = [(node, factor, abs(factor)) for node, factor in zip(nodes, factors, strict=True)]
    value = sum((node.value * factor for node, factor, _ in edges), _ZERO)
    return _put(tape, Node(value, sum((node.size * size for node, _, size in edges), _ZERO), edges))


def multiply(tape: Tape, node: Node, factor: Decimal) -> Node:
    """Multiply by a constant."""
    return combination(tape, [node], [factor])


def add(tape: Tape, nodes: Sequence[Node]) -> Node:
    """Add up numbers."""
    return combination(tape, nodes, [_ONE] * len(nodes))


def dot(tape: Tape, left: Sequence[Node], right: Sequence[Node]) -> Node:
    """Add up products of numbers."""
    pairs = list(zip(left, right, strict=True))
    edges = [(x, y.value, y.size) for x, y in pairs] + [(y, x.value, x.size) for x, y in pairs]
    value = sum((x.value * y.value for x, y in pairs), _ZERO)
    return _put(tape, Node(value, sum((x.size * y.size for x, y in pairs), _ZERO), edges))


def quotient(tape: Tape, node: Node, divisor: Node) -> Node:
    """Divide by a positive number that is a sum of positive numbers."""
    inverse = 1 / divisor.value
    value, size = node.value * inverse, node.size * inverse
    return _put(
        tape,
        Node(value, size, [(node, inverse, inverse), (divisor, -value * inverse, size * inverse)]),
    )


def exponential(tape: Tape, node: Node, below: Decimal) -> Node:
    """Compute the exponential of a number less a constant."""
    above = node.value - below
    value = _ZERO if above < _NOTHING else above.exp()
    return _put(tape, Node(value, value, [(node, value, value)]))


def logarithm(tape: Tape, node: Node) -> Node:
    """Compute the natural logarithm."""
    value, inverse = node.value.ln(), 1 / node.value
    return _put(tape, Node(value, abs(value), [(node, inverse, inverse)]))


def hyperbolic_tangent(tape: Tape, node: Node) -> Node:
    """Compute the tanh. Its derivative is computed as ``1 / cosh(x) ** 2``, so that nothing cancels."""
    small = (-2 * abs(node.value)).exp()
    derivative = 4 * small / (1 + small) ** 2
    value = tanh(node.value)
    return _put(tape, Node(value, abs(value), [(node, derivative, derivative)]))


def run_back(tape: Tape, noise: Decimal | int) -> None:
    """Find the derivative of the last number of a tape by every other one."""
    if not tape:
        return
    tape[-1].slope = tape[-1].slope_size = _ONE
    for node in reversed(tape):
        settle(node, noise)
        slope, size = node.slope, node.slope_size
        if size:
            for source, partial, partial_size in node.edges:
                source.slope += slope * partial
                source.slope_size += size * partial_size


def settle(node: Node, noise: Decimal | int) -> None:
    """Replace a derivative that is rounding noise by 0."""
    if abs(node.slope) <= noise * node.slope_size:
        node.slope = node.slope_size = _ZERO


def _put(tape: Tape, node: Node) -> Node:
    tape.append(node)
    return node


@dataclass(frozen=True)
class Options:
    """The numbers of a call that are not arrays."""

    scale: Decimal
    softcap: Decimal | None
    inside: bool  # whether the bias is added before the cap (`after-bias` of SCORE-5)
    lse_unit: Decimal  # the factor of the lse: 1, or the one for base 2 (SOFT-6)
    kept: Decimal  # the factor of a weight that dropout keeps
    scale_node: Node | None  # the scale as a number that has a derivative, if that is asked for


def options_of(arguments: Mapping[str, Any], dialect: Mapping[str, str], depth: int) -> Options:
    """Read the options of a call, at the current precision."""
    scale, softcap = arguments.get("scale"), arguments.get("softcap")
    if scale is None:
        factor = Decimal(1) if dialect.get("SCORE-2") == "one" else 1 / Decimal(depth).sqrt()
    else:
        factor = Decimal(float(scale))
    return Options(
        scale=factor,
        softcap=None if softcap is None else Decimal(float(softcap)),
        inside=dialect.get("SCORE-5") == "after-bias",
        lse_unit=1 / Decimal(2).ln() if dialect.get("SOFT-6") == "base-2" else Decimal(1),
        kept=1 / (1 - Decimal(float(arguments.get("dropout_rate") or 0))),
        scale_node=Node(factor, abs(factor)) if arguments.get("return_d_scale") else None,
    )


@dataclass(frozen=True)
class Leaves:
    """The numbers of a call that are used, by array and place."""

    arrays: Mapping[str, NDArray[np.float64]]
    used: dict[tuple[str, int], Node] = field(default_factory=dict)

    def at(self, name: str, place: int) -> Node:
        """Return a number of an array."""
        node = self.used.get((name, place))
        if node is None:
            node = self.used[name, place] = leaf(float(_finite(name, self.arrays[name].flat[place])))
        return node

    def row(self, name: str, places: NDArray[np.intp]) -> list[Node]:
        """Return several numbers of an array."""
        return [self.at(name, place) for place in places.tolist()]

    def gradients(self, noise: Decimal) -> dict[str, NDArray[np.float64]]:
        """Return the derivatives with respect to the arrays, of which those that are noise are 0."""
        gradients = {f"d_{name}": np.zeros(array.shape) for name, array in self.arrays.items()}
        for (name, place), node in self.used.items():
            settle(node, noise)
            gradients[f"d_{name}"].flat[place] = float(node.slope) + 0.0
        return gradients


@dataclass(frozen=True)
class Head:
    """One query head of one batch entry."""

    places: Mapping[str, NDArray[np.intp]]  # the flat indices of its numbers in each array
    rows: list[list[int]]  # the keys that each query may attend to
    filled: set[int]  # queries whose output is the mean of all values (`uniform` of GRAD-10)
    kept: list[list[bool]]  # the pairs that dropout keeps
    d_output: NDArray[np.float64]  # (L, Dv)
    d_lse: NDArray[np.float64]  # (L,)


@dataclass(frozen=True)
class Rows:
    """The rows of queries, keys and values of a head, as they are given."""

    tape: Tape
    leaves: Leaves
    head: Head

    def at(self, name: str, i: int) -> list[Node]:
        """Return one row."""
        return self.leaves.row(name, self.head.places[name][i])

    def project(self, output: list[Node]) -> list[Node]:
        """Return a row of the output for the mean of rows of values."""
        return output


class Absorbed(Rows):
    """Queries that are multiplied by the key weight of latent vectors, which are keys and values."""

    def at(self, name: str, i: int) -> list[Node]:
        """Return one row, with its rotary part."""
        if name == "query":
            columns = [super(Absorbed, self).at("key_weight", c) for c in range(self._depth)]
            own = [dot(self.tape, super(Absorbed, self).at("query", i), column) for column in columns]
            return [*own, *super().at("query_rotary", i)]
        own = super().at("latent", i)
        return own if name == "value" else [*own, *super().at("key_rotary", i)]

    @property
    def _depth(self) -> int:
        return len(self.head.places["key_weight"])

    def project(self, output: list[Node]) -> list[Node]:
        """Project the mean of latent vectors."""
        columns = self.head.places["value_weight"].T
        return [dot(self.tape, output, self.leaves.row("value_weight", column)) for column in columns]


def results(rows: Rows, options: Options) -> list[tuple[Node, Decimal]]:
    """Compute all elements of output and lse that depend on a number, with their cotangents."""
    results: list[tuple[Node, float]] = []
    tape, leaves, head = rows.tape, rows.leaves, rows.head
    sink = _sink(leaves, head)
    for i, row in enumerate(head.rows):
        used = list(range(len(head.kept[i]))) if i in head.filled else row
        values = [rows.at("value", j) for j in used]
        kept = [options.kept if head.kept[i][j] else Decimal(0) for j in used]
        if i in head.filled:
            mean = rows.project(_mean(tape, values, kept))
            results += zip(mean, head.d_output[i].tolist(), strict=True)
        if not row and sink is None:
            continue  # the lse is not finite
        query = rows.at("query", i) if row else []
        scores = []
        for j in row:
            key = rows.at("key", j)
            if options.inside and options.softcap is not None and _is_minus_infinity(leaves, head, i, j):
                scores.append(leaf(-float(options.softcap)))  # tanh of minus infinity, which has no slope
                continue
            bias = leaves.at("bias", int(head.places["bias"][i, j])) if "bias" in head.places else None
            scores.append(score(tape, query, key, bias, options))
        weights, lse = softmax(tape, scores, sink, options.lse_unit)
        results.append((lse, float(head.d_lse[i])))
        if row:
            mean = rows.project(average(tape, weights, values, kept))
            results += zip(mean, head.d_output[i].tolist(), strict=True)
    return [(node, Decimal(_finite("cotangent", number))) for node, number in results]


def _is_minus_infinity(leaves: Leaves, head: Head, i: int, j: int) -> bool:
    """Whether the bias of a pair is minus infinity."""
    return "bias" in head.places and bool(leaves.arrays["bias"].flat[head.places["bias"][i, j]] == -math.inf)


def _sink(leaves: Leaves, head: Head) -> Node | None:
    """Return the sink of a head, or None if it is minus infinity."""
    if "sinks" not in head.places:
        return None
    place = int(head.places["sinks"][0])
    return None if leaves.arrays["sinks"].flat[place] == -math.inf else leaves.at("sinks", place)


def _finite(name: str, number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{name}: expected finite numbers, got {number} [unspecified]")
    return number


def score(
    tape: Tape, query: Sequence[Node], key: Sequence[Node], bias: Node | None, options: Options
) -> Node:
    """Compute one score: scaled, capped, and with its bias."""
    result = dot(tape, query, key)
    if options.scale_node is None:
        result = multiply(tape, result, options.scale)
    else:
        result = dot(tape, [result], [options.scale_node])
    if bias is not None and options.inside:
        result = add(tape, [result, bias])
    if options.softcap is not None:
        result = multiply(
            tape, hyperbolic_tangent(tape, multiply(tape, result, 1 / options.softcap)), options.softcap
        )
    return result if bias is None or options.inside else add(tape, [result, bias])


def softmax(
    tape: Tape, scores: Sequence[Node], sink: Node | None, lse_unit: Decimal
) -> tuple[list[Node], Node]:
    """Compute the weights, and the lse except for a constant."""
    levels = [*scores] if sink is None else [*scores, sink]
    top = max(level.value for level in levels)  # it cancels and depends on no number of the call
    rates = [exponential(tape, level, top) for level in levels]
    whole = add(tape, rates)
    lse = multiply(tape, logarithm(tape, whole), lse_unit)
    return [quotient(tape, rate, whole) for rate in rates[: len(scores)]], lse


def average(
    tape: Tape, weights: Sequence[Node], values: Sequence[Sequence[Node]], kept: Sequence[Decimal]
) -> list[Node]:
    """Compute the weighted mean of each column of the values, after dropout."""
    left = [multiply(tape, weight, factor) for weight, factor in zip(weights, kept, strict=True)]
    return [dot(tape, left, column) for column in zip(*values, strict=True)]


def _mean(tape: Tape, values: Sequence[Sequence[Node]], kept: Sequence[Decimal]) -> list[Node]:
    """Compute the mean of each column of the values, after dropout (`uniform` of GRAD-10)."""
    factors = [factor / len(kept) for factor in kept]
    return [combination(tape, column, factors) for column in zip(*values, strict=True)]


def reach(
    queries: Sequence[Sequence[float]],
    keys: Sequence[Sequence[float]],
    added_on: Sequence[float],
    options: Options,
) -> tuple[Decimal, Decimal]:
    """Bound the argument of the cap and the scores after the cap from above."""
    lengths = [max((_length(row) for row in rows), default=Decimal(0)) for rows in (queries, keys)]
    extra = max((abs(Decimal(x)) for x in added_on if math.isfinite(x)), default=Decimal(0))
    inside = abs(options.scale) * lengths[0] * lengths[1] + extra
    return inside, inside if options.softcap is None else min(inside, options.softcap) + extra


def _length(row: Sequence[float]) -> Decimal:
    return sum((Decimal(x) ** 2 for x in row if math.isfinite(x)), Decimal(0)).sqrt()
