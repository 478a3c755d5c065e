"""Finds the rational ones among sums of quotients of exponential sums, for the exact oracle.

The keys of a row form groups ``g`` of equal score, and the sink is one more key. A linear functional
of the gradients with respect to the scores of the row (GRAD-1) is ``N / Z ** 2``. Both ``N`` and
``Z ** 2`` are sums of exponentials of sums of two scores, with rational coefficients. Without a
softcap, exponentials of distinct algebraic numbers are linearly independent over the algebraic
numbers (Lindemann and Weierstrass). The quotient is then rational if and only if the coefficients of
``N`` are a common multiple of those of ``Z ** 2``. With a softcap this condition is sufficient.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flint import fmpq

from attnspec.reference.exact.head import Head

#: Coefficients of independent numbers, by their symbols. Exponents are equal if and only if the sums are.
Exponent = frozenset[tuple[Any, fmpq]]
#: Coefficients, by group.
Groups = Mapping[int, fmpq]

#: The symbol of 1, the factor of terms that are multiplied only by rationals.
ONE = ""
#: The key that stands for the sink of a row.
SINK = -1


@dataclass(frozen=True)
class Row:
    """The keys of one query by groups of equal score."""

    exponents: list[Exponent]  # the exponent of each group
    counts: list[int]  # the number of keys in each group, a sink included
    #: The sum of the gradients with respect to the weights (`r` of the chapter) of each group.
    totals: list[fmpq]
    group: Mapping[int, int]  # the group of each allowed key, and of `SINK`

    @cached_property
    def signature(self) -> frozenset[tuple[Exponent, int]]:
        """The parts of the denominator. Rows with equal signatures have equal denominators."""
        return frozenset(zip(self.exponents, self.counts, strict=True))

    @cached_property
    def sums(self) -> list[list[Exponent]]:
        """Sums of two exponents."""
        return [[_sum(one, other) for other in self.exponents] for one in self.exponents]

    @cached_property
    def square(self) -> Mapping[Exponent, fmpq]:
        """The square of the denominator: coefficients by exponent."""
        return self.over_square(dict(enumerate(map(fmpq, self.counts))), {})

    def over_square(self, first: Groups, second: Groups) -> Mapping[Exponent, fmpq]:
        """Expand ``sum(e[g] * first[g]) * Z - sum(e[g] * second[g]) * sum(e[g] * totals[g])``."""
        results: defaultdict[Exponent, fmpq] = defaultdict(fmpq)
        for g in {*first, *second}:
            one, two = first.get(g, fmpq(0)), second.get(g, fmpq(0))
            for other, count in enumerate(self.counts):
                coefficient = one * count - two * self.totals[other]
                if coefficient != 0:
                    results[self.sums[g][other]] += coefficient
        return {exponent: coefficient for exponent, coefficient in results.items() if coefficient != 0}


@dataclass(frozen=True)
class Term:
    """One quotient: `Row.over_square` of two lists of coefficients, times the number of `factor`."""

    row: Row
    first: Groups  # coefficients by group
    second: Groups  # coefficients by group
    factor: Any = ONE  # `ONE`, or a symbol of a transcendental number

    def times(self, number: fmpq) -> "Term":
        """Multiply by a rational."""
        first, second = ({g: x * number for g, x in groups.items()} for groups in (self.first, self.second))
        return Term(self.row, first, second, self.factor)


def total(terms: Iterable[Term]) -> fmpq | None:
    """Add up quotients if the sum over each denominator is rational, else return None.

    Quotients of one denominator and one factor are added first. For example, two rows that differ only
    in the sign of their cotangents add up to 0. A sum over different denominators is assumed to be
    irrational if one of its parts is. If this is wrong, a ball does not settle and ends in an error.
    """
    rows: dict[Any, Row] = {}
    results: dict[Any, defaultdict[Exponent, fmpq]] = {}
    for term in terms:
        kind = (term.factor, term.row.signature)
        rows[kind] = term.row
        sums = results.setdefault(kind, defaultdict(fmpq))
        for exponent, coefficient in term.row.over_square(term.first, term.second).items():
            sums[exponent] += coefficient
    result = fmpq(0)
    for kind, sums in results.items():
        numerator = {exponent: coefficient for exponent, coefficient in sums.items() if coefficient != 0}
        if not numerator:
            continue
        square = rows[kind].square
        ratios = {numerator.get(exponent, fmpq(0)) / square[exponent] for exponent in square}
        if len(ratios) > 1 or kind[0] != ONE:
            return None
        result += ratios.pop()
    return result


def row_of(head: Head, i: int, rated: list[fmpq]) -> Row:
    """Group the keys of query i. `rated` holds the gradients with respect to their weights."""
    scores = {j: _exponent(head, i, j) for j in head.keys(i)}
    if head.sink is not None:
        scores[SINK] = {ONE: head.sink}
    if head.softcap is None:  # the quotient does not change if all exponents are shifted
        origin = min(((x.get(ONE, fmpq(0)), x.get("root", fmpq(0))) for x in scores.values()), default=None)
        for score in scores.values():
            for symbol, moved in zip((ONE, "root"), origin or (), strict=True):
                score[symbol] = score.get(symbol, fmpq(0)) - moved
    exponents: dict[Exponent, int] = {}
    group = {j: exponents.setdefault(_frozen(score), len(exponents)) for j, score in scores.items()}
    counts, totals = [0] * len(exponents), [fmpq(0)] * len(exponents)
    for j, g in group.items():
        counts[g] += 1
        totals[g] += rated[j] if j != SINK else 0
    return Row(list(exponents), counts, totals, group)


def slope_symbol(head: Head, i: int, j: int) -> Any:
    """Return the symbol of the slope of the softcap at a pair. It is transcendental, or 1 at 0 (GRAD-5)."""
    if head.softcap is None:
        return ONE
    inside, _ = _inside(head, i, j)
    return inside if any(inside) else ONE


def _inside(head: Head, i: int, j: int) -> tuple[tuple[fmpq, fmpq], int]:
    """Return the argument of the cap without its sign, and the sign."""
    whole, root, _ = head.parts(i, j)
    sign = -1 if (whole, root) < (0, 0) else 1
    return (sign * whole, sign * root), sign


def _exponent(head: Head, i: int, j: int) -> dict[Any, fmpq]:
    whole, root, outside = head.parts(i, j)
    if head.softcap is None:
        return {ONE: whole, "root": root}
    inside, sign = _inside(head, i, j)
    return {ONE: outside} | ({inside: fmpq(sign)} if any(inside) else {})  # tanh is odd


def _sum(one: Exponent, other: Exponent) -> Exponent:
    results = dict(one)
    for symbol, coefficient in other:
        results[symbol] = results.get(symbol, fmpq(0)) + coefficient
    return _frozen(results)


def _frozen(coefficients: Mapping[Any, fmpq]) -> Exponent:
    return frozenset((symbol, x) for symbol, x in coefficients.items() if x != 0)
