"""Weights, output and lse of each row, for the second oracle."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from operator import mul

from attnspec.dialect import of_routes
from attnspec.reference.rational.numbers import Matrix, Number, decimal, to_float
from attnspec.reference.rational.scores import Key, Scores

#: If x has this many zeros after its decimal point, three terms of log(1 + x) give 60 digits.
_SMALL = 21


@dataclass(frozen=True)
class Row:
    """The outputs for one query of one head."""

    output: list[Number]
    lse: Number
    weights: list[float]


@dataclass(frozen=True)
class Kept:
    """The keys of a row that dropout keeps (None for all), and the rate."""

    keys: Sequence[bool] | None = None
    rate: Fraction = Fraction(1)


@dataclass(frozen=True)
class _Group:
    """Keys with the same score."""

    members: Sequence[int]
    count: int  # the members, and the sink if its score is the same
    exponential: Decimal


def attend(
    scores: Scores,
    i: int,
    allowed: Sequence[int],
    value: Matrix,
    kept: Kept,
    dialect: Mapping[str, str],
    closed: Sequence[int] = (),
) -> Row:
    """Compute one row."""
    row = scores.rows[i]
    if not allowed:
        return _empty(scores, len(row), value, kept, dialect, closed)
    added = dialect.get("MASK-2") == "added"
    members: dict[Key, list[int]] = {}
    for j in allowed:
        score = row[j]
        if not isinstance(score, float):
            members.setdefault(score, []).append(j)
    broken = [x for j in allowed if isinstance(x := row[j], float) and not x < 0]
    if broken:  # NaN or plus infinity
        return _nan_row(row, value, sum(broken))
    if not members and added and scores.sink is None:
        disallowed = [j for j in range(len(row)) if j not in set(allowed)]
        if disallowed and of_routes(dialect.get("MASK-6", "")).get("mask") == "uniform":
            return _uniform(disallowed, -math.inf, len(row), value, kept)
        return _nan_row(row, value, _lse_of_nothing(dialect))
    if scores.sink is not None:
        members.setdefault(scores.sink, [])
    if not members:
        raise ValueError(f"query: expected a finite score in row {i}, got -inf for every key [unspecified]")
    scale = scores.scale
    top = max(members, key=scale.level)
    groups = [
        _Group(results, len(results) + (key == scores.sink), scale.above(key, top).exp())
        for key, results in members.items()
    ]
    total = sum((group.exponential * group.count for group in groups), Decimal(0))
    lse = scale.number(top)
    if len(groups) > 1 or groups[0].count > 1:  # otherwise the logarithm is 0, and the score may be rational
        lse = decimal(lse) + _logarithm(groups, total)
    return Row(
        _means(groups, total, allowed, value, kept, added=added),
        _in_base(lse, dialect),
        _weights(groups, total, len(row), kept),
    )


def _logarithm(groups: Sequence[_Group], total: Decimal) -> Decimal:
    """Compute the logarithm of the sum of exponentials, which may be very close to 1."""
    top = max(groups, key=lambda group: group.exponential)
    rest = sum((group.exponential * group.count for group in groups if group is not top), Decimal(0))
    if top.count > 1 or rest.adjusted() > -_SMALL:
        return total.ln()
    return rest - rest * rest / 2 + rest * rest * rest / 3


def _nan_row(row: Sequence[Key | float], value: Matrix, lse: float) -> Row:
    return Row([math.nan] * value.depth, lse, [math.nan] * len(row))


def _empty(
    scores: Scores,
    keys: int,
    value: Matrix,
    kept: Kept,
    dialect: Mapping[str, str],
    closed: Sequence[int],
) -> Row:
    """Compute a row without an allowed key."""
    lse: Number = _lse_of_nothing(dialect)
    if scores.sink is not None and dialect.get("SOFT-7") != "plus-infinity":
        lse = _in_base(scores.scale.number(scores.sink), dialect)
    # A sink takes all of the weight, so that nothing is divided by 0 and no key is left a share.
    variants = of_routes(dialect.get("MASK-6", "")) if scores.sink is None else {}
    by_mask = set(closed)
    filled = [j for j in range(keys) if variants.get("mask" if j in by_mask else "bias") == "uniform"]
    if filled:
        return _uniform(filled, lse, keys, value, kept)
    if keys and variants.get("mask" if len(by_mask) == keys else "bias") == "nan":
        return Row([math.nan] * value.depth, lse, [math.nan] * keys)
    return Row([Fraction(0)] * value.depth, lse, [0.0] * keys)


def _lse_of_nothing(dialect: Mapping[str, str]) -> float:
    return math.inf if dialect.get("SOFT-7") == "plus-infinity" else -math.inf


def _uniform(filled: Sequence[int], lse: Number, keys: int, value: Matrix, kept: Kept) -> Row:
    """Compute a row in which some keys have the same weight, and the others have none."""
    groups = [_Group(filled, len(filled), Decimal(1))]
    total = Decimal(len(filled))
    output = _means(groups, total, filled, value, kept, added=False)
    return Row(output, lse, _weights(groups, total, keys, kept))


def _in_base(lse: Number, dialect: Mapping[str, str]) -> Number:
    if dialect.get("SOFT-6") != "base-2" or isinstance(lse, float):
        return lse
    return decimal(lse) / Decimal(2).ln()


def _weights(groups: Sequence[_Group], total: Decimal, keys: int, kept: Kept) -> list[float]:
    weights = [0.0] * keys
    for group in groups:
        if len(groups) == 1:
            weight = to_float(1 / (group.count * kept.rate))
        else:
            weight = float(group.exponential / (total * decimal(kept.rate)))
        for j in group.members:
            if kept.keys is None or kept.keys[j]:
                weights[j] = weight
    return weights


def _means(
    groups: Sequence[_Group],
    total: Decimal,
    allowed: Sequence[int],
    value: Matrix,
    kept: Kept,
    *,
    added: bool,
) -> list[Number]:
    """Compute the weighted mean of each column of the values."""
    counted = [[j for j in group.members if kept.keys is None or kept.keys[j]] for group in groups]
    weighed = {j for members in counted for j in members}
    divisor = total * (1 << value.exponent) * decimal(kept.rate)
    counts, exponentials = [group.count for group in groups], [group.exponential for group in groups]
    output: list[Number] = []
    for column, sums in enumerate(zip(*(_sums(value, members) for members in counted), strict=True)):
        special = None if value.finite else _special(value, column, allowed, weighed, added=added)
        if special is not None:
            output.append(special)
            continue
        # If each group has the same mean, the exponentials do not matter. Otherwise, without a cap, the
        # mean is irrational (Lindemann and Weierstrass) and lies between two floats.
        if all(x * counts[0] == sums[0] * count for x, count in zip(sums, counts, strict=True)):
            output.append(Fraction(sums[0], counts[0] << value.exponent) / kept.rate)
        else:
            output.append(sum(map(mul, exponentials, sums), Decimal(0)) / divisor)
    return output


def _sums(value: Matrix, members: Sequence[int]) -> list[int]:
    """Add rows of the values. NaN and infinity are left out; `_special` handles them."""
    rows = [value.rows[j] for j in members]
    if not value.finite:
        rows = [[0 if isinstance(x, float) else x for x in row] for row in rows]
    return [int(sum(column)) for column in zip(*rows, strict=True)] if rows else [0] * value.depth


def _special(
    value: Matrix, column: int, allowed: Sequence[int], weighed: set[int], *, added: bool
) -> float | None:
    """Return the mean of a column with NaN or infinity, or None if the column is finite."""
    results = {j: x for j in allowed if isinstance(x := value.rows[j][column], float)}
    if not results:
        return None
    if not any(math.isnan(x) for x in results.values()) and not weighed.issuperset(results):
        if not added:
            raise ValueError(f"value: expected finite numbers at weight 0, got {results} [unspecified]")
        return math.nan
    return sum(results.values())
