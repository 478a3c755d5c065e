"""A tape: numbers that remember what they were computed from, and the chain rule run backwards along it.

Each number has a value and a size. The size is the value that it would have if nothing cancelled. If a sum
is exactly 0, its computed value is rounding noise far below its size, and is replaced by 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from attnspec.reference.rational.functions import tanh

_ZERO, _ONE = Decimal(0), Decimal(1)
#: The exponential of this, 1e-868, is so small that its products with numbers of float64 are 0 in float64.
_NOTHING = -2000


@dataclass(slots=True, eq=False)
class Node:
    """One number of a computation.

    Attributes
    ----------
    value, size : Decimal
    edges : list of (Node, Decimal, Decimal)
        The numbers that it was computed from, each with its partial derivative and the size of that.
    slope, slope_size : Decimal
        The derivative of the last number of the tape by this one, set by `run_back`.
    """

    value: Decimal
    size: Decimal
    edges: list[tuple["Node", Decimal, Decimal]] = field(default_factory=list)
    slope: Decimal = _ZERO
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


def scaled(tape: Tape, node: Node, factor: Decimal) -> Node:
    """Multiply by a constant."""
    return combination(tape, [node], [factor])


def added(tape: Tape, nodes: Sequence[Node]) -> Node:
    """Add up numbers."""
    return combination(tape, nodes, [_ONE] * len(nodes))


def dot(tape: Tape, left: Sequence[Node], right: Sequence[Node]) -> Node:
    """Add up products of numbers.

    Examples
    --------
    >>> from attnspec.reference.rational.tape import dot, leaf, run_back
    >>> x, y, tape = leaf(2.0), leaf(3.0), []
    >>> dot(tape, [x, x], [x, y]).value  # x * x + x * y
    Decimal('10')
    >>> run_back(tape, 0)
    >>> x.slope, y.slope
    (Decimal('7'), Decimal('2'))
    """
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
