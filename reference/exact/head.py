"""One head for the exact oracle: allowed pairs by integers, scores in rationals, weights in balls."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpq, fmpq_mat
from numpy.typing import NDArray

from attnspec.reference.exact.balls import OracleError


def allowed_pairs(
    arguments: Mapping[str, Any],
    shape: tuple[int, ...],
    index: tuple[int, ...],
    variant: str | None = None,
    *,
    biased: bool = True,
) -> NDArray[np.bool_]:
    """Return for each query and key of one head whether the query may attend to the key."""
    queries, keys = shape[-2:]
    mask = _head_rows(arguments.get("mask"), shape, index)
    bias = _head_rows(arguments.get("bias"), shape, index) if biased else None
    ask = _Question(arguments, index[:-1], queries, keys, variant)
    allowed = np.zeros((queries, keys), dtype=bool)
    for i in range(queries):
        for j in range(keys):
            allowed[i, j] = (
                ask.positions_allow(i, j)
                and (mask is None or mask[i][j])
                and (bias is None or bias[i][j] != -np.inf)
            )
    return allowed


def past_the_length(
    arguments: Mapping[str, Any], shape: tuple[int, ...], index: tuple[int, ...]
) -> list[bool]:
    """Return for each query of one head whether it is past the length of its batch entry (MASK-10)."""
    length = _entry_number(arguments.get("query_lengths", shape[-2]), index[:-1])
    return [i >= length for i in range(shape[-2])]


class _Question:
    """The masking of one batch entry by positions."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        batch: tuple[int, ...],
        queries: int,
        keys: int,
        variant: str | None,
    ) -> None:
        self.offset = _entry_number(arguments.get("query_offset", 0), batch)
        self.is_causal = bool(arguments.get("is_causal", False))
        # A given offset of 0 cannot be distinguished from the default.
        alone = np.ndim(arguments.get("query_offset", 0)) == 0
        if variant == "bottom-right" and alone and self.offset == 0:
            self.offset = keys - queries
        places = arguments.get("query_positions")
        self.standing = None if places is None else np.asarray(places)[batch].tolist()
        places = arguments.get("key_positions")
        self.stored = range(keys) if places is None else np.asarray(places)[batch].tolist()
        self.window = arguments.get("window") or (None, None)
        self.exclusive = variant == "exclusive-left"
        self.query_length = _entry_number(arguments.get("query_lengths", queries), batch)
        self.key_length = _entry_number(arguments.get("key_lengths", keys), batch)
        own, other = arguments.get("query_segment_ids"), arguments.get("key_segment_ids")
        self.segments = None if own is None else (np.asarray(own)[batch], np.asarray(other)[batch])

    def positions_allow(self, i: int, j: int) -> bool:
        if i >= self.query_length or j >= self.key_length:
            return False
        at = self.stored[j]
        if at < 0:
            return False
        ahead = at - (i + self.offset if self.standing is None else self.standing[i])
        if self.is_causal and ahead > 0:
            return False
        left, right = self.window
        if left is not None and (ahead <= -left if self.exclusive else ahead < -left):
            return False
        if right is not None and ahead > right:
            return False
        return self.segments is None or bool(self.segments[0][i] == self.segments[1][j])


def _entry_number(given: Any, batch: tuple[int, ...]) -> int:
    array = np.asarray(given)
    return int(array) if array.ndim == 0 else int(array[batch])


def _head_rows(array: Any, shape: tuple[int, ...], index: tuple[int, ...]) -> list[list[Any]] | None:
    if array is None:
        return None
    rows: list[list[Any]] = np.broadcast_to(np.asarray(array), shape)[index].tolist()
    return rows


@dataclass(frozen=True)
class Scale:
    """A factor ``rational / sqrt(radicand)``. The radicand is 1 unless the root is irrational."""

    rational: fmpq
    radicand: int = 1


def scale_of(given: Any, depth: int, variant: str | None = None) -> Scale:
    """Return the given scale, or the default for a depth (SCORE-2, SCORE-3)."""
    if given is not None:
        return Scale(rational(given))
    if variant == "one":
        return Scale(fmpq(1))
    root = isqrt(depth)
    return Scale(fmpq(1, root)) if root * root == depth else Scale(fmpq(1), depth)


@dataclass(frozen=True)
class Head:
    """One head of one batch entry."""

    products: fmpq_mat  # (L, S) rationals: dot products, before the scale
    scale: Scale
    softcap: fmpq | None
    capped_bias: bool  # whether the cap is applied to the sum with the bias (`after-bias` of SCORE-5)
    bias: NDArray[np.float64]  # (L, S): if it is not finite, the score is not used
    allowed: NDArray[np.bool_]  # (L, S): keys with a weight
    unmasked: NDArray[np.bool_]  # (L, S): pairs that all sources other than the bias allow
    past: list[bool]  # (L,): queries past their length
    sink: fmpq | None
    kept: list[list[fmpq]]  # (L, S) rationals: the factor of each weight after the softmax

    @property
    def shape(self) -> tuple[int, int]:
        """L and S."""
        return self.products.nrows(), self.products.ncols()

    def keys(self, i: int) -> list[int]:
        """Return the keys that query i may attend to."""
        return [j for j in range(self.shape[1]) if self.allowed[i, j]]

    def keys_of_mean(self, i: int, variant: str | None) -> list[int]:
        """Return the keys whose mean a row without an allowed key has in the variant `uniform`."""
        mean = variant == "uniform" and not self.past[i] and self.sink is None
        return list(range(self.shape[1])) if mean else []

    def _bias_term(self, i: int, j: int) -> fmpq:
        return rational(self.bias[i, j]) if np.isfinite(self.bias[i, j]) else fmpq(0)

    def parts(self, i: int, j: int) -> tuple[fmpq, fmpq, fmpq]:
        """Return a, b, c of the score ``cap(a + b / sqrt(radicand)) + c``. Equal parts give equal scores.

        Without a cap, c is 0. The root is irrational, so unequal parts give unequal scores.
        """
        scaled, added = self.products[i, j] * self.scale.rational, self._bias_term(i, j)
        within = added if self.softcap is None or self.capped_bias else fmpq(0)
        outside = added - within
        return (scaled + within, fmpq(0), outside) if self.scale.radicand == 1 else (within, scaled, outside)

    def ball(self, i: int, j: int) -> arb:
        """Return a ball around the score, at the current precision."""
        whole, root, outside = self.parts(i, j)
        score = arb(whole) + arb(root) / arb(self.scale.radicand).sqrt()
        if self.softcap is not None:
            score = arb(self.softcap) * (score / arb(self.softcap)).tanh()
        return score + arb(outside)

    def exact_score(self, i: int, j: int) -> fmpq | None:
        """Return the score if it is rational, else None. With a cap only a score of 0 is, before the bias."""
        whole, root, outside = self.parts(i, j)
        if root != 0 or (self.softcap is not None and whole != 0):
            return None
        return whole + outside


def weights_and_lse(head: Head, variant: str | None) -> tuple[arb_mat, list[arb]]:
    """Return balls around the weights and the lses of one head.

    The weights of rows without an allowed key are 0, or those of the variant `uniform`. Their
    lse is 0 here; `attnspec.reference.exact.attention` fills in minus infinity.
    """
    queries, keys = head.shape
    weights = [[arb(0)] * keys for _ in range(queries)]
    rows = [head.keys(i) for i in range(queries)]
    balls = [[head.ball(i, j) for j in row] for i, row in enumerate(rows)]
    sinks = [] if head.sink is None else [arb(head.sink)]
    # Any shift cancels. This one keeps the exponentials in range.
    tops = [max((ball.mid() for ball in [*row, *sinks]), default=arb(0)) for row in balls]
    if variant == "matrix":
        tops = [max(tops)] * queries
    rated = [[(ball - top).exp() for ball in row] for row, top in zip(balls, tops, strict=True)]
    totals = [
        sum([*row, *((sink - top).exp() for sink in sinks)], arb(0))
        for row, top in zip(rated, tops, strict=True)
    ]
    lses = [
        top + total.log() if row or sinks else arb(0)
        for row, top, total in zip(rows, tops, totals, strict=True)
    ]
    if variant == "base-2":
        lses = [lse / arb(2).log() for lse in lses]
    if variant == "matrix":
        totals = [sum(totals, arb(0))] * queries
    if variant == "sum":
        rated, totals = balls, [sum(row, arb(0)) for row in balls]
    for i, row in enumerate(rows):
        for j, rating in zip(row, rated[i], strict=True):
            weights[i][j] = rating / totals[i] * arb(head.kept[i][j])
        if not row and head.keys_of_mean(i, variant):
            weights[i] = [arb(kept / keys) for kept in head.kept[i]]
    return arb_mat(queries, keys, [ball for row in weights for ball in row]), lses


def exact_mean(head: Head, value: fmpq_mat, i: int, c: int, variant: str | None) -> fmpq | None:
    """Compute the weighted mean of a column of values in row i if it is rational, else return None.

    Group the allowed keys by equal score, and treat a sink as a key of value 0. The
    mean is the sum of ``exp(score) * total`` over the groups divided by the sum of
    ``exp(score) * count``. If total / count is the same for every group, the mean equals
    it. Otherwise, without a softcap, the mean is irrational: exponentials of distinct
    algebraic numbers are linearly independent over the algebraic numbers (Lindemann and
    Weierstrass). With a softcap, a ball that does not settle ends in an error.
    """
    keys = head.keys(i)
    if not keys:
        keys = head.keys_of_mean(i, variant)
        return sum((value[j, c] * head.kept[i][j] for j in keys), fmpq(0)) / max(len(keys), 1)
    if variant == "sum":
        parts = [head.parts(i, j) for j in keys]
        if head.scale.radicand != 1 and any(whole != 0 for whole, _, _ in parts):
            return None
        # Without a bias the root is a common factor and cancels.
        rated = [whole + root for whole, root, _ in parts]
        total = sum(rated, fmpq(0))
        if total == 0:
            raise OracleError("scores: expected a sum that is not 0 for the variant sum, got 0")
        return sum((score * value[j, c] for score, j in zip(rated, keys, strict=True)), fmpq(0)) / total
    totals: dict[Any, fmpq] = defaultdict(fmpq)
    counts: Counter[Any] = Counter()
    for j in keys:
        totals[head.parts(i, j)] += value[j, c] * head.kept[i][j]
    for row in range(head.shape[0]) if variant == "matrix" else [i]:
        counts.update(head.parts(row, j) for j in head.keys(row))
        if head.sink is not None:
            # A score that does not have this form is irrational and differs from the sink.
            inside = fmpq(0) if head.softcap is not None else head.sink
            counts.update([(inside, fmpq(0), head.sink - inside)])
    means = {totals[score] / count for score, count in counts.items()}
    return means.pop() if len(means) == 1 else None


def exact_lse(head: Head, i: int, variant: str | None) -> fmpq | None:
    """Compute the lse of row i if it is rational, else return None.

    The logarithm of one exponential is its exponent. The logarithm of a sum of several is
    rational only to base 2, if the scores are 0 and their number is a power of 2.
    """
    scores = [head.exact_score(i, j) for j in head.keys(i)] + ([] if head.sink is None else [head.sink])
    count = len(scores)
    if count == 1 and (variant != "base-2" or scores[0] == 0):
        return scores[0]
    if variant == "base-2" and count & (count - 1) == 0 and all(score == 0 for score in scores):
        return fmpq(count.bit_length() - 1)
    return None if count else fmpq(0)


def key_head(
    index: tuple[int, ...], query: tuple[int, ...], key: tuple[int, ...], variant: str | None
) -> tuple[int, ...]:
    """Return the key head that a query head reads (HEAD-1)."""
    if not index:
        return index
    h, heads, key_heads = index[-1], query[-3], key[-3]
    return (*index[:-1], h % key_heads if variant == "tiled" else h // (heads // key_heads))


def rational(number: Any) -> fmpq:
    """Convert a finite number to a rational."""
    number = float(number)
    if not np.isfinite(number):
        raise OracleError(f"input: expected finite numbers, got {number}")
    return fmpq(*number.as_integer_ratio())


def matrix(array: Any) -> fmpq_mat:
    """Convert an array of two axes to rationals."""
    array = np.asarray(array)
    if array.ndim != 2:
        raise OracleError(f"input: expected two axes, got shape {array.shape}")
    return fmpq_mat(*array.shape, [rational(x) for x in array.ravel()])
