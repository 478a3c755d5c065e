"""The forward pass on a tape, for the gradients of the second oracle."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.tape import (
    Node,
    Tape,
    added,
    combination,
    dot,
    exponential,
    hyperbolic_tangent,
    leaf,
    logarithm,
    quotient,
    scaled,
)


@dataclass(frozen=True)
class Options:
    """The numbers of a call that are not arrays.

    Attributes
    ----------
    scale : Decimal
    softcap : Decimal or None
    inside : bool
        Whether the bias is added before the cap (`after-bias` of SCORE-5).
    lse_unit : Decimal
        The factor of the lse: 1, or the one for base 2 (SOFT-6).
    kept : Decimal
        The factor of a weight that dropout keeps.
    """

    scale: Decimal
    softcap: Decimal | None
    inside: bool
    lse_unit: Decimal
    kept: Decimal


def options_of(arguments: Mapping[str, Any], dialect: Mapping[str, str], depth: int) -> Options:
    """Read the options of a call, at the current precision.

    Examples
    --------
    >>> from attnspec.reference.rational.taped import options_of
    >>> options_of({"dropout_rate": 0.5}, {}, 4)
    Options(scale=Decimal('0.5'), softcap=None, inside=False, lse_unit=Decimal('1'), kept=Decimal('2'))
    """
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


@dataclass(frozen=True)
class Head:
    """One query head of one batch entry.

    Attributes
    ----------
    places : mapping
        The flat indices of its numbers in each array.
    rows : list of list of int
        The keys that each query may attend to.
    filled : set of int
        Queries whose output is the mean of all values (`uniform` of GRAD-10).
    kept : (L, S) of bool
        The pairs that dropout keeps.
    d_output, d_lse : (L, Dv) and (L,)
    """

    places: Mapping[str, NDArray[np.intp]]
    rows: list[list[int]]
    filled: set[int]
    kept: list[list[bool]]
    d_output: NDArray[np.float64]
    d_lse: NDArray[np.float64]


def results(tape: Tape, leaves: Leaves, head: Head, options: Options) -> list[tuple[Node, Decimal]]:
    """Compute all elements of output and lse that depend on a number, with their cotangents."""
    found: list[tuple[Node, float]] = []
    sink = _sink(leaves, head)
    for i, row in enumerate(head.rows):
        used = list(range(len(head.kept[i]))) if i in head.filled else row
        values = [leaves.row("value", head.places["value"][j]) for j in used]
        kept = [options.kept if head.kept[i][j] else Decimal(0) for j in used]
        if i in head.filled:
            found += zip(_mean(tape, values, kept), head.d_output[i].tolist(), strict=True)
        if not row and sink is None:
            continue  # the lse is not finite
        query = leaves.row("query", head.places["query"][i]) if row else []
        scores = []
        for j in row:
            key = leaves.row("key", head.places["key"][j])
            if options.inside and options.softcap is not None and _is_minus_infinity(leaves, head, i, j):
                scores.append(leaf(-float(options.softcap)))  # tanh of minus infinity, which has no slope
                continue
            bias = leaves.at("bias", int(head.places["bias"][i, j])) if "bias" in head.places else None
            scores.append(score(tape, query, key, bias, options))
        weights, lse = softmax(tape, scores, sink, options.lse_unit)
        found.append((lse, float(head.d_lse[i])))
        if row:
            found += zip(averaged(tape, weights, values, kept), head.d_output[i].tolist(), strict=True)
    return [(node, Decimal(_finite("cotangent", number))) for node, number in found]


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
    found = scaled(tape, dot(tape, query, key), options.scale)
    if bias is not None and options.inside:
        found = added(tape, [found, bias])
    if options.softcap is not None:
        found = scaled(
            tape, hyperbolic_tangent(tape, scaled(tape, found, 1 / options.softcap)), options.softcap
        )
    return found if bias is None or options.inside else added(tape, [found, bias])


def softmax(
    tape: Tape, scores: Sequence[Node], sink: Node | None, lse_unit: Decimal
) -> tuple[list[Node], Node]:
    """Compute the weights, and the lse except for a constant."""
    levels = [*scores] if sink is None else [*scores, sink]
    top = max(level.value for level in levels)  # it cancels and depends on no number of the call
    rates = [exponential(tape, level, top) for level in levels]
    whole = added(tape, rates)
    lse = scaled(tape, logarithm(tape, whole), lse_unit)
    return [quotient(tape, rate, whole) for rate in rates[: len(scores)]], lse


def averaged(
    tape: Tape, weights: Sequence[Node], values: Sequence[Sequence[Node]], kept: Sequence[Decimal]
) -> list[Node]:
    """Compute the weighted mean of each column of the values, after dropout."""
    left = [scaled(tape, weight, factor) for weight, factor in zip(weights, kept, strict=True)]
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
