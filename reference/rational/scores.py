"""Scores of the second oracle, kept as integers so that equal scores compare equal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from attnspec.reference.rational.numbers import Entry, Matrix, Number, dot, exact, quotient, sign, tanh

#: The parts of a score: the product, the addend inside a cap, and the addend outside. Only the product
#: may be a float (an infinity), and only inside a cap.
Key = tuple[Entry, int, int]


@dataclass(frozen=True)
class Scale:
    """Converts the integers of a key to a score.

    If the scale is rational, all parts have one unit and are added as integers: the key is the
    exact score, or the exact score before its cap. If the scale is an irrational root, equal
    scores have equal parts. Capped scores have equal parts too: by the theorem of Lindemann and
    Weierstrass, the caps of two different numbers do not differ by a rational number.
    """

    denominator: int | None  # of the product; None if it is not rational
    divisor: Decimal  # of the product
    added_divisor: Decimal  # of what is added
    softcap: Decimal | None = None
    levels: dict[Key, Decimal] = field(default_factory=dict)

    def level(self, key: Key) -> Decimal:
        """Round a score to the precision of the context."""
        found = self.levels.get(key)
        if found is None:
            found = self.levels[key] = self._level(key)
        return found

    def _level(self, key: Key) -> Decimal:
        product, inside, outside = key
        if isinstance(product, float):
            inner = Decimal(math.copysign(1, product))
            inner *= self.softcap or 0
        else:
            inner = Decimal(product) / self.divisor
            if inside:
                inner += Decimal(inside) / self.added_divisor
            if self.softcap is not None:
                inner = self.softcap * tanh(inner / self.softcap)
        return inner + Decimal(outside) / self.added_divisor if outside else inner

    def above(self, key: Key, other: Key) -> Decimal:
        """Return the difference of two scores, subtracted exactly so that large scores lose no digits."""
        if self.softcap is not None:
            return self.level(key) - self.level(other)
        difference = Decimal(key[0] - other[0]) / self.divisor
        if key[2] != other[2]:
            difference += Decimal(key[2] - other[2]) / self.added_divisor
        return difference

    def number(self, key: Key) -> Number:
        """Return a score, exactly if it is rational."""
        if self.denominator is None or self.softcap is not None:
            return self.level(key)
        return Fraction(int(key[0]), self.denominator)

    def nearest(self, score: Key | float) -> float:
        """Round a score to float64."""
        if isinstance(score, float):
            return score
        if self.denominator is None or self.softcap is not None:
            return float(self.level(score))
        return quotient(int(score[0]), self.denominator)


@dataclass(frozen=True)
class Scores:
    """The scores of one head. A float stands for NaN or infinity."""

    scale: Scale
    rows: list[list[Key | float]]
    sink: Key | None  # None if there is no sink, or it is minus infinity


def head_scores(
    query: Matrix,
    key: Matrix,
    arguments: Mapping[str, Any],
    dialect: Mapping[str, str],
    *,
    bias: Matrix | None = None,
    sink: float | None = None,
) -> Scores:
    """Compute the scores of one head."""
    lone = None
    if sink is not None and sink != -math.inf:
        if not math.isfinite(sink):
            raise ValueError(f"sinks: expected finite numbers or -inf, got {sink} [unspecified]")
        lone = exact([[sink]])
    given_scale = arguments.get("scale")
    if given_scale is None and dialect.get("SCORE-2") == "one":
        given_scale = 1.0
    numerator, exponent, root, radicand = _factor(query.depth, given_scale)
    exponent += query.exponent + key.exponent
    common = max((x.exponent for x in (bias, lone) if x is not None), default=0)
    if radicand == 1:  # one unit for all
        common = max(common, exponent)
        numerator <<= common - exponent
        exponent = common
    divisor = Decimal(root << exponent)
    if radicand != 1:
        divisor *= Decimal(radicand).sqrt()
    given = arguments.get("softcap")
    scale = Scale(
        denominator=root << exponent if radicand == 1 else None,
        divisor=divisor,
        added_divisor=Decimal(root << common),
        softcap=None if given is None else Decimal(float(given)),
    )
    inside = given is not None and dialect.get("SCORE-5") == "after-bias"
    finite = query.finite and key.finite
    rows: list[list[Key | float]] = []
    for i, q in enumerate(query.rows):
        products = [_scaled(dot(q, k, finite=finite), numerator) for k in key.rows]
        if bias is None and finite:
            rows.append([(x, 0, 0) for x in products])
            continue
        added: list[Entry] = [0] * len(products)
        if bias is not None:
            unit = root << (common - bias.exponent)
            added = [x if isinstance(x, float) else unit * x for x in bias.rows[i]]
        rows.append([_score(x, y, scale, inside=inside) for x, y in zip(products, added, strict=True)])
    if lone is None:
        return Scores(scale, rows, None)
    alone = (root << (common - lone.exponent)) * int(lone.rows[0][0])
    folds = radicand == 1 and given is None
    return Scores(scale, rows, (alone, 0, 0) if folds else (0, 0, alone))


def _factor(depth: int, given: float | None) -> tuple[int, int, int, int]:
    """Return the scale as ``numerator * 2 ** -exponent / (root * sqrt(radicand))``."""
    if given is not None:
        numerator, denominator = float(given).as_integer_ratio()
        return numerator, denominator.bit_length() - 1, 1, 1
    root = math.isqrt(depth)
    return (1, 0, root, 1) if root * root == depth else (1, 0, 1, depth)


def _scaled(product: Entry, numerator: int) -> Entry:
    return product * sign(numerator) if isinstance(product, float) else product * numerator


def _score(product: Entry, added: Entry, scale: Scale, *, inside: bool) -> Key | float:
    """Make a key of a product and its addend, or return a float if the score is not finite."""
    capped = scale.softcap is not None
    if isinstance(product, float) or isinstance(added, float):
        if inside or not capped:
            total = sign(product) + sign(added)
            return total if math.isnan(total) or not capped else (total, 0, 0)
        if isinstance(added, float):  # added to a capped score, which is finite or NaN
            return added + (product if product != product else 0)  # noqa: PLR0124 - true of NaN alone
        return product if math.isnan(product) else (product, 0, added)
    if inside:
        return (product, added, 0) if scale.denominator is None else (product + added, 0, 0)
    if capped or scale.denominator is None:
        return (product, 0, added)
    return (product + added, 0, 0)
