"""Exact rows of attention for problems by formula, block by block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.sizes.codebook.budget import Moments, Terms, budgets_of_rows
from attnspec.conformance.sizes.codebook.exponentials import Numbers, Split, Table, table
from attnspec.conformance.sizes.codebook.sums import TILE, Keys, Rows, Sums, keys_of, over, quotient, sizes_of
from attnspec.conformance.sizes.codebook.words import intervals
from attnspec.dtypes import FORMATS
from attnspec.formula import Formula
from attnspec.reference.budget.arithmetic import PLAIN, PROFILES, Accuracy, Arithmetic, Budget
from attnspec.reference.budget.attention import scores_and_errors

#: The most rows of a block, and the most pairs of a row and a key.
_ROWS, _PAIRS = 1024, 2**20
_PAIRED = ("mask", "bias", "dropout_mask")


@dataclass(frozen=True)
class Block:
    """Some rows of one head, with the budgets of a dtype."""

    head: tuple[int, ...]  # batch entry and query head
    rows: NDArray[np.int64]  # (m,): which rows
    output: Numbers  # (m, Dv)
    lse: Numbers  # (m,)
    output_budget: Budget  # (m, Dv)
    lse_budget: Budget  # (m,)


@dataclass(frozen=True)
class _Problem:
    """What all heads of a problem share."""

    formula: Formula
    given: dict[str, Any]
    arithmetic: Arithmetic
    table: Table
    biases: Numbers
    errors: Numbers  # (Q, C, A)
    sinks: Split | None  # (Hq, Q)


@dataclass(frozen=True)
class _Part:
    """Some rows of one head."""

    problem: _Problem
    head: tuple[int, ...]
    rows: NDArray[np.int64]  # which rows
    given: Rows
    keys: Keys

    def of(self, part: slice | NDArray[np.int64]) -> "_Part":
        """Return some of them."""
        return replace(self, rows=self.rows[part], given=self.given.of(part))


def tasks(
    formula: Formula,
    dtype: str,
    *,
    accuracy: Accuracy = "full",
    working: str | None = None,
    profile: str = "",
    part: range | None = None,
) -> Iterator[Callable[[], Block]]:
    """Yield a function for each block of rows of a problem, or of a part. Threads may call them at once."""
    problem = _problem(formula, arithmetic_of(dtype, accuracy, working, profile))
    make = _pair_blocks if set(_PAIRED) & set(formula.options) else _interval_blocks
    key, value = formula.key_words, formula.value
    group = formula.heads // formula.key_heads
    keys: tuple[tuple[int, ...], Keys] | None = None
    for head in np.ndindex(*formula.batch, formula.heads):
        shared = (*head[:-1], head[-1] // group)
        if keys is None or keys[0] != shared:
            keys = shared, keys_of(key[shared], value[shared], formula.words)
        entry = int(np.ravel_multi_index(head[:-1], formula.batch)) if formula.batch else 0
        bounds = intervals(formula.options, formula.queries, formula.keys, entry)
        every = np.arange(formula.queries)
        whole = _Part(problem, head, every, Rows(formula.query_words[head], *bounds), keys[1])
        yield from make(whole if part is None else whole.of(slice(part.start, part.stop)))


def arithmetic_of(dtype: str, accuracy: Accuracy, working: str | None, profile: str) -> Arithmetic:
    """Return the arithmetic of a class or a profile."""
    storage = FORMATS[dtype]
    work = storage if accuracy == "storage" else FORMATS[working or storage.working]
    products = PROFILES[profile].get(dtype, PLAIN) if profile else PLAIN
    return Arithmetic(storage, work, FORMATS[storage.lse], accuracy, products)


def _problem(formula: Formula, arithmetic: Arithmetic) -> _Problem:
    given = formula.given("float64")
    codes = formula.codes.astype(np.float64)
    bias = given.get("bias")
    biases = np.unique(bias[np.isfinite(bias)]) if bias is not None else np.zeros(1)
    plain: dict[str, Any] = {name: given[name] for name in given if name in ("scale", "softcap")}
    found = table(codes, plain, biases)
    if arithmetic.storage.name != "float64":
        found = replace(found, exponentials=found.exponentials.without_rest)
    _, errors = scores_and_errors(codes / 2, codes, plain, arithmetic)
    of_scores = errors[:, :, None].astype(np.float64)
    if bias is not None:
        of_scores = of_scores + arithmetic.work.unit * (np.abs(found.scores) + of_scores)
    sinks = found.sink_exponentials(given["sinks"]) if "sinks" in given else None
    return _Problem(formula, given, arithmetic, found, biases, of_scores, sinks)


def _interval_blocks(whole: _Part) -> Iterator[Callable[[], Block]]:
    """Group the rows whose bounds lie in the same tiles, and take several groups for a block."""
    tiles = whole.given.low // TILE, whole.given.high // TILE
    order = np.lexsort(tiles)
    changes = (np.diff(tiles[0][order]) != 0) | (np.diff(tiles[1][order]) != 0)
    ends = np.append(np.flatnonzero(changes) + 1, len(order))
    for first in range(0, len(order), _ROWS):
        rows = order[first : first + _ROWS]
        inside = ends[(ends > first) & (ends < first + len(rows))] - first
        yield partial(_intervals_block, whole.of(rows), inside.tolist())


def _intervals_block(part: _Part, ends: list[int]) -> Block:
    problem, keys, given = part.problem, part.keys, part.given
    split = problem.table.exponentials
    weights = Split(split.first[:, :, 0], split.rest[:, :, 0])
    parts = [slice(*pair) for pair in pairwise([0, *ends, len(part.rows)])]
    terms = _Weighed(
        problem.table.scores[:, :, 0][given.words],
        problem.errors[:, :, 0][given.words],
        (keys.counts[given.high] - keys.counts[given.low]).astype(np.float64),
        weights.first[given.words],
        weights.rest[given.words],
    )
    return _block(part, terms, over(keys, weights, given, parts))


def _pair_blocks(whole: _Part) -> Iterator[Callable[[], Block]]:
    """Group rows, each of which is held against every key."""
    count = max(1, min(_ROWS, _PAIRS // max(1, whole.problem.formula.keys)))
    for first in range(0, len(whole.rows), count):
        yield partial(_pairs_block, whole.of(slice(first, first + count)))


def _pairs_block(part: _Part) -> Block:
    problem, formula, keys, given = part.problem, part.problem.formula, part.keys, part.problem.given
    shape = (*formula.batch, formula.heads, formula.queries, formula.keys)
    paired = {
        name: np.broadcast_to(given[name], shape)[part.head][part.rows] for name in _PAIRED if name in given
    }  # (m, S)
    j = np.arange(formula.keys)
    allowed = (j >= part.given.low[:, None]) & (j < part.given.high[:, None]) & paired.get("mask", True)
    place = np.zeros(allowed.shape, dtype=np.int64)
    if "bias" in paired:
        allowed &= paired["bias"] > -np.inf
        place = np.minimum(np.searchsorted(problem.biases, paired["bias"]), len(problem.biases) - 1)
    index = part.given.words[:, None], keys.words[None, :], place
    split = problem.table.exponentials
    terms = _Weighed(
        problem.table.scores[index],
        problem.errors[index],
        allowed.astype(np.float64),
        split.first[index],
        split.rest[index],
    )
    kept = allowed & paired.get("dropout_mask", True)
    units = keys.units(slice(None))
    sums = Sums(
        (terms.first * kept) @ units,
        (terms.rest * kept) @ units,
        ((terms.first + terms.rest) * kept) @ sizes_of(units),
    )
    return _block(part, terms, sums)


@dataclass(frozen=True)
class _Weighed:
    """The terms of the denominators of some rows, ``(m, K)`` each. Each weight is the sum of two."""

    scores: Numbers
    errors: Numbers
    counts: Numbers
    first: Numbers
    rest: Numbers

    def with_sink(self, sink: float, first: Numbers, rest: Numbers) -> "_Weighed":
        """Return the terms and one more."""
        ones = np.ones((len(self.counts), 1))
        more = (sink * ones, 0 * ones, ones, first[:, None], rest[:, None])
        parts = (self.scores, self.errors, self.counts, self.first, self.rest)
        return _Weighed(*(np.concatenate(pair, axis=-1) for pair in zip(parts, more, strict=True)))


def _block(part: _Part, terms: _Weighed, sums: Sums) -> Block:
    """Divide the sums of some rows by their denominators."""
    problem, head, query = part.problem, part.head, part.given.words
    if problem.sinks is not None:
        sink = float(problem.given["sinks"][head[-1]])
        first, rest = (each[head[-1]][query] for each in (problem.sinks.first, problem.sinks.rest))
        terms = terms.with_sink(sink, first, rest)
    keeping = 1 - problem.given.get("dropout_rate", 0.0)
    # The products are integers in units of 2^-22, so their sums are exact.
    first = (terms.counts * terms.first).sum(axis=-1, keepdims=True)
    rest = (terms.counts * terms.rest).sum(axis=-1, keepdims=True)
    empty = first + rest == 0
    first = np.where(empty, 1, first)
    if problem.arithmetic.storage.name == "float64":
        of_rests = sums.rest if sums.rest.size else np.zeros_like(sums.first)
        output = quotient(sums.first, of_rests, first, rest)
    else:  # the exponentials have no rests, and two roundings do not matter
        output = sums.first / (first + rest)
    output /= 64 * keeping
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.where(empty, 0, first + rest))[:, 0]
    # The lse of one key is its score. The sum of shift and logarithm would have a rounding error.
    alone = terms.counts.sum(axis=-1) == 1
    score = (terms.counts * terms.scores).sum(axis=-1)
    lse = np.where(alone, score, problem.table.shift[query] + logarithm)
    depth, share = output.shape[-1], 1 / ((first + rest) * 64 * keeping)
    moments = Moments(
        sums.sizes[:, :depth] * share,
        sums.sizes[:, depth:] * (share / (64 * keeping)),
        2 * terms.counts.sum(axis=-1, keepdims=True),
    )
    plain = Terms(terms.scores, terms.errors, terms.counts, (terms.first + terms.rest) / (first + rest))
    dropped = "dropout_mask" in problem.given
    found = budgets_of_rows(plain, moments, output, lse, problem.arithmetic, dropped=dropped)
    return Block(head, part.rows, output, lse, *found)
