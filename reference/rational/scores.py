"""Scores and allowed pairs of the second oracle: scores are integers, so that equal ones compare equal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.dialect import of_routes
from attnspec.reference.rational.numbers import Entry, Matrix, Number, dot, exact, quotient, sign, tanh

#: Variants that change values, by rule.
SHOWN = MappingProxyType(
    {
        "SCORE-2": ("one",),
        "SCORE-5": ("after-bias",),
        "MASK-2": ("added",),
        "MASK-3": ("bottom-right",),
        "MASK-6": ("nan", "uniform"),
        "MASK-8": ("exclusive-left",),
        "SOFT-6": ("base-2",),
        "SOFT-7": ("plus-infinity", "finite"),
        "HEAD-1": ("tiled",),
        "PACK-5": ("bottom-right",),
        "POS-8": ("signed", "key-position"),
        "POS-15": ("alternating",),
        "POS-21": ("by-rotations",),
        "POS-22": ("both-or-none",),
        "GRAD-6": ("ignored",),
        "GRAD-10": ("nan", "uniform"),
    }
)


def check_dialect(dialect: Mapping[str, str] | None) -> Mapping[str, str]:
    """Refuse unknown variants, and drop those that change only rounding or refusals."""
    kept = {}
    for rule, variant in (dialect or {}).items():
        if rule == "SHAPE-6" or rule.startswith("NUM-"):
            continue
        if not set(of_routes(variant).values()) <= set(SHOWN.get(rule, ())):
            known = ", ".join(SHOWN.get(rule, ())) or "no variant"
            raise ValueError(f"dialect: expected {known} for {rule}, got {variant!r}")
        kept[rule] = variant
    return kept


@dataclass(frozen=True)
class Sources:
    """The sources of masking of one head of one batch entry. None means not given."""

    mask: list[list[bool]] | None
    bias: list[list[float]] | None
    offset: int
    is_causal: bool
    left: int | None
    right: int | None
    query_length: int | None
    key_length: int | None
    query_ids: list[int] | None
    key_ids: list[int] | None
    query_places: list[int] | None
    key_places: list[int] | None

    def allow(self, i: int, j: int, *, biased: bool = True) -> bool:
        """Return whether query i may attend to key j, or whether all arguments but the bias allow it."""
        p = i + self.offset if self.query_places is None else self.query_places[i]
        place = j if self.key_places is None else self.key_places[j]
        if self.mask is not None and not self.mask[i][j]:
            return False
        if biased and self.bias is not None and self.bias[i][j] == float("-inf"):
            return False
        if place < 0 or (self.is_causal and place > p):
            return False
        if self.left is not None and place < p - self.left:
            return False
        if self.right is not None and place > p + self.right:
            return False
        if self.query_length is not None and i >= self.query_length:
            return False
        if self.key_length is not None and j >= self.key_length:
            return False
        if self.query_ids is None or self.key_ids is None:
            return True
        return self.query_ids[i] == self.key_ids[j]


def sources(
    arguments: Mapping[str, Any], dialect: Mapping[str, str], shape: tuple[int, ...], index: tuple[int, ...]
) -> Sources:
    """Select the sources of masking of one head."""
    queries, keys = shape[-2:]
    batch = shape[:-3]
    given = arguments.get("query_offset", 0)
    offset = entry_number(given, batch, index) or 0
    # A given offset of 0 cannot be distinguished from the default of 0.
    absent = given is None or (isinstance(given, int | np.integer) and given == 0)
    if dialect.get("MASK-3") == "bottom-right" and absent:
        offset = keys - queries
    left, right = arguments.get("window") or (None, None)
    if left is not None and dialect.get("MASK-8") == "exclusive-left":
        left -= 1
    added = dialect.get("MASK-2") == "added"
    return Sources(
        mask=head_rows(arguments.get("mask"), shape, index),
        bias=None if added else head_rows(arguments.get("bias"), shape, index),
        offset=offset,
        is_causal=bool(arguments.get("is_causal")),
        left=left,
        right=right,
        query_length=entry_number(arguments.get("query_lengths"), batch, index),
        key_length=entry_number(arguments.get("key_lengths"), batch, index),
        query_ids=_ids(arguments.get("query_segment_ids"), index),
        key_ids=_ids(arguments.get("key_segment_ids"), index),
        query_places=_ids(arguments.get("query_positions"), index),
        key_places=_ids(arguments.get("key_positions"), index),
    )


def head_rows(array: Any, shape: tuple[int, ...], index: tuple[int, ...]) -> Any:
    """Return the part of a mask or bias for one head, as nested lists."""
    return None if array is None else np.broadcast_to(array, shape)[index].tolist()


def entry_number(number: Any, batch: tuple[int, ...], index: tuple[int, ...]) -> int | None:
    """Return the integer for the batch entry of an index."""
    return None if number is None else int(np.broadcast_to(number, batch)[index[: len(batch)]])


def _ids(array: Any, index: tuple[int, ...]) -> list[int] | None:
    return None if array is None else [int(x) for x in np.asarray(array)[index[:-1]]]


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
        result = self.levels.get(key)
        if result is None:
            result = self.levels[key] = self._level(key)
        return result

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
        products = [_scale(dot(q, k, finite=finite), numerator) for k in key.rows]
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


def _scale(product: Entry, numerator: int) -> Entry:
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
