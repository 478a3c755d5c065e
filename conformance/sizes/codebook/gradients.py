"""The gradients of attention for problems by formula, at any length.

All keys with one word have the same score for a query, so the gradient of the query sums over words, and
that of a key sums over the words of queries. The sums allow causal masks, offsets, windows, lengths,
segments, sinks, a scale, a softcap, shared heads and cotangents of the lse. Masks, biases and dropout differ
from pair to pair, so they are not summed here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.sizes.codebook import budget as budgets
from attnspec.conformance.sizes.codebook.budget import Rows, Slopes
from attnspec.conformance.sizes.codebook.exponentials import Numbers, table
from attnspec.conformance.sizes.codebook.rows import Block, arithmetic_of
from attnspec.conformance.sizes.codebook.rows import tasks as forward_tasks
from attnspec.conformance.sizes.codebook.sums import TILE
from attnspec.conformance.sizes.codebook.words import Sources, Targets, by_word, intervals, intervals_of_keys
from attnspec.formula import Formula
from attnspec.reference.budget.arithmetic import Accuracy, Arithmetic, Budget, add_rounding
from attnspec.reference.budget.attention import scores_and_errors
from attnspec.reference.budget.gradients import slope_and_error

#: The options that the sums do not allow.
PAIRED = ("mask", "bias", "dropout_mask", "dropout_rate")


@dataclass(frozen=True)
class Part:
    """One gradient of one head."""

    name: str
    #: The index of the part in the gradient: batch entry and head, or the head of a sink.
    head: tuple[int, ...]
    values: Numbers
    budget: Budget


@dataclass(frozen=True)
class _Problem:
    """What all heads of a problem share."""

    formula: Formula
    arithmetic: Arithmetic
    codes: Numbers  # (C, D)
    scores: Numbers  # (Q, C)
    errors: Numbers  # (Q, C)
    exponentials: Numbers  # (Q, C)
    sinks: Numbers  # (Hq,)
    shares: Numbers  # (Hq, Q): the exponentials of the sinks
    slopes: Slopes
    forward: dict[tuple[int, ...], Block]  # by query head


@dataclass(frozen=True)
class _Sink:
    """The gradient of the sink of a head, from one batch entry: sums over queries."""

    value: float
    error: float
    size: float
    count: float


@dataclass(frozen=True)
class _Found:
    """The gradients of a key head and of its query heads in one batch entry."""

    parts: list[Part]
    sinks: dict[int, _Sink]


def gradients(
    formula: Formula,
    dtype: str,
    *,
    accuracy: Accuracy = "full",
    working: str | None = None,
    profile: str = "",
    run: Callable[[Iterable[Callable[[], Any]]], Iterable[Any]] | None = None,
) -> Iterator[Part]:
    """Yield the gradients of a problem, head by head, with the budgets of a dtype."""
    paired = [name for name in PAIRED if name in formula.options]
    if paired:
        raise ValueError(f"options: expected no {', '.join(paired)}, which cannot be summed by words")
    run = run or (lambda calls: (call() for call in calls))
    arithmetic = arithmetic_of(dtype, accuracy, working, profile)
    forward = _forward(
        formula, run(forward_tasks(formula, dtype, accuracy=accuracy, working=working, profile=profile))
    )
    problem = _problem(formula, arithmetic, forward)
    sinks: dict[int, list[_Sink]] = {}
    calls = (
        partial(_key_head_gradients, problem, head) for head in np.ndindex(*formula.batch, formula.key_heads)
    )
    for found in run(calls):
        yield from found.parts
        for head, sink in found.sinks.items():
            sinks.setdefault(head, []).append(sink)
    for head, several in sinks.items():
        value, error, size, count = (
            sum(getattr(sink, name) for sink in several) for name in ("value", "error", "size", "count")
        )
        error = error + max(count - 1, 0) * arithmetic.work.unit * (size + error)
        values = np.array(value)
        yield Part("d_sinks", (head,), values, add_rounding(values, np.array(error), arithmetic.storage))


def _forward(formula: Formula, blocks: Iterable[Block]) -> dict[tuple[int, ...], Block]:
    """Join the blocks of each query head."""
    rows, depth = formula.queries, formula.value_depth
    found: dict[tuple[int, ...], Block] = {}
    for block in blocks:
        if block.head not in found:
            zeros = (np.zeros(shape) for shape in ((rows, depth), rows, (rows, depth), rows))
            found[block.head] = Block(block.head, np.arange(rows), *zeros)
        whole = found[block.head]
        for name in ("output", "lse", "output_budget", "lse_budget"):
            getattr(whole, name)[block.rows] = getattr(block, name)
    return found


def _problem(formula: Formula, arithmetic: Arithmetic, forward: dict[tuple[int, ...], Block]) -> _Problem:
    codes = formula.codes.astype(np.float64)
    options = formula.options
    plain: dict[str, Any] = {name: options[name] for name in ("scale", "softcap") if name in options}
    found = table(codes, plain, np.zeros(1))
    _, errors = scores_and_errors(codes / 2, codes, plain, arithmetic)
    sinks, shares = np.full(formula.heads, -np.inf), np.zeros((formula.heads, len(codes)))
    if "sinks" in options:
        sinks = formula.given("float64")["sinks"]
        shares = found.sink_exponentials(sinks).whole
    return _Problem(
        formula,
        arithmetic,
        codes,
        found.scores[:, :, 0],
        errors.astype(np.float64),
        found.exponentials.whole[:, :, 0],
        sinks,
        shares,
        _slopes(codes, plain, arithmetic),
        forward,
    )


def _slopes(codes: Numbers, plain: dict[str, Any], arithmetic: Arithmetic) -> Slopes:
    scale = plain.get("scale")
    scale = 1 / np.sqrt(codes.shape[1]) if scale is None else float(scale)
    ones = np.ones((len(codes), len(codes)))
    if "softcap" not in plain:
        return Slopes(ones, ones, 0 * ones, scale)
    unit = arithmetic.work.unit
    x, x_error = scores_and_errors(codes / 2, codes, {"scale": scale}, arithmetic)
    slope, error = slope_and_error(x, x_error, plain["softcap"], arithmetic)
    if arithmetic.storage.name == "float64":
        error = 2 * error  # the slopes of this module may be as far off
    rest = error + unit * (slope + error)
    # For the type checker, which does not know that these are in float64.
    factor, of_errors, of_sizes = (part.astype(np.float64) for part in (slope, slope + rest, rest))
    return Slopes(factor, of_errors, of_sizes, scale)


def _own(problem: _Problem, counts: Any) -> Any:
    """Return the relative errors of the sums of this module, where a result could be as exact.

    A sum of some terms is made of sums of tiles, which are added one by one.
    """
    formula = problem.formula
    if problem.arithmetic.storage.name != "float64":
        return np.zeros(np.shape(counts))
    tiles = -(-max(formula.queries, formula.keys) // TILE)
    terms = np.minimum(counts, TILE + tiles) + formula.value_depth + 2 * formula.words + 8
    return terms * 2.0**-53


def _key_head_gradients(problem: _Problem, head: tuple[int, ...]) -> _Found:
    """Compute the gradients of a key head and of its query heads."""
    formula = problem.formula
    *entry, shared = head
    group = formula.heads // formula.key_heads
    number = int(np.ravel_multi_index(entry, formula.batch)) if formula.batch else 0
    bounds = intervals(formula.options, formula.queries, formula.keys, number)
    of_keys = intervals_of_keys(formula.options, formula.queries, formula.keys, number)
    own = _own(problem, bounds[1] - bounds[0]), float(_own(problem, (of_keys[1] - of_keys[0]).max(initial=0)))
    words, value = formula.key_words[head], formula.value[head].astype(np.float64)
    keys = np.concatenate([value, np.ones((len(value), 1))], axis=-1)
    parts: list[Part] = []
    sinks: dict[int, _Sink] = {}
    n = of_keys[1] - of_keys[0]
    down = problem.arithmetic.profile.summing(n, problem.arithmetic.work.unit) * group
    down = down + problem.arithmetic.work.unit * group * (group > 1) + own[1]
    total = [np.zeros((len(value), width)) for width in (formula.depth, formula.value_depth)]
    errors = [np.zeros(array.shape) for array in total]
    for query_head in range(shared * group, (shared + 1) * group):
        gradients = _Head(problem, (*entry, query_head), words, keys, own, *bounds)
        d_query, error, rows, there = gradients.query_gradients()
        storage = problem.arithmetic.storage
        parts.append(Part("d_query", gradients.head, d_query, add_rounding(d_query, error, storage)))
        if "sinks" in formula.options:
            sinks[query_head] = gradients.sink_gradient(rows)
        for sums, more in zip(
            (*total, *errors), gradients.key_gradients(rows, there, *of_keys, down), strict=True
        ):
            np.add(sums, more, out=sums)
    for name, array, error in zip(("d_key", "d_value"), total, errors, strict=True):
        parts.append(Part(name, head, array, add_rounding(array, error, problem.arithmetic.storage)))
    return _Found(parts, sinks)


class _Head:
    """One query head."""

    def __init__(
        self,
        problem: _Problem,
        head: tuple[int, ...],
        words: NDArray[np.uint8],
        keys: Numbers,
        own: tuple[Numbers, float],
        low: NDArray[np.int64],
        high: NDArray[np.int64],
    ) -> None:
        formula = problem.formula
        self.problem, self.head, self.words, self.keys = problem, head, words, keys
        self.low, self.high, self.own = low, high, own
        self.queries = formula.query_words[head]
        self.g = formula.d_output[head].astype(np.float64)
        self.h = formula.d_lse[head].astype(np.float64)
        self.forward = problem.forward[head]
        self.delta = (self.g * self.forward.output).sum(axis=-1) - self.h
        self.active = ((self.g != 0).any(axis=-1) | (self.h != 0)).astype(np.float64)

    def query_gradients(self) -> tuple[Numbers, Numbers, Rows, NDArray[np.bool_]]:
        """Return the gradients of the queries, their errors, and what those of the keys depend on."""
        problem, arithmetic = self.problem, self.problem.arithmetic
        count, words, depth = len(self.queries), len(problem.codes), self.g.shape[-1]
        d_query, error = (np.zeros((count, problem.codes.shape[1])) for _ in range(2))
        every, there = budgets.no_rows(count, words), np.zeros((count, words), dtype=bool)
        ones = np.ones((len(self.words), 1))
        value = np.abs(self.keys[:, :-1])
        sources = Sources(self.words, words, self.keys, ones, value, np.zeros((len(self.words), 0)))
        vectors = np.concatenate([self.g, -self.delta[:, None]], axis=-1)
        targets = Targets(vectors, np.abs(self.g), np.zeros((count, words)), self.low, self.high)
        for rows, sums in by_word(sources, targets):
            found = self._rows(rows, sums.counts)
            given = (self.g[rows], self.h[rows], self.forward.output[rows], self.forward.output_budget[rows])
            found.difference[:] = found.active * budgets.difference_of(
                sums, found, *given, self.own[0][rows], arithmetic
            )
            slopes = problem.slopes.at(self.queries[rows])
            d_query[rows] = slopes.scale * (slopes.slope * found.weights * sums.products) @ problem.codes
            factors = budgets.query_error(sums, found, slopes, depth, self.own[0][rows], arithmetic)
            error[rows] = budgets.matrix_error(factors, problem.codes, sums.counts.sum(axis=-1), arithmetic)
            every.put(rows, found)
            there[rows] = sums.counts > 0
        return d_query, error, every, there

    def _rows(self, rows: NDArray[np.int64], counts: Numbers) -> Rows:
        """Return the weights of some rows and their errors."""
        problem, words = self.problem, self.queries[rows]
        exponentials = problem.exponentials[words]
        whole = (counts * exponentials).sum(axis=-1) + problem.shares[self.head[-1]][words]
        shares = np.divide(1, whole, where=whole > 0, out=np.zeros(len(rows)))
        forward = self.forward
        errors = budgets.exponentials_of(
            problem.scores[words],
            problem.errors[words],
            forward.lse[rows],
            forward.lse_budget[rows],
            problem.arithmetic,
        )
        weights = exponentials * shares[:, None]
        return Rows(weights, errors, shares, self.delta[rows], np.zeros(len(rows)), self.active[rows])

    def key_gradients(
        self,
        rows: Rows,
        there: NDArray[np.bool_],
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        down: Numbers,
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return the parts of the gradients of keys and values of this head, and their errors."""
        problem, arithmetic = self.problem, self.problem.arithmetic
        words, depth, own = len(problem.codes), self.g.shape[-1], self.own[1]
        columns = budgets.columns_of(rows, self.g, there, own, arithmetic)
        of_value = np.concatenate([rows.shares[:, None] * self.g, columns.of_value], axis=-1)
        # The constants of a row are the last number of a vector, whose partner is 1.
        dotted = np.concatenate([columns.dotted, columns.constant[:, None]], axis=-1)
        vectors = np.concatenate([self.g, -self.delta[:, None]], axis=-1)
        sources = Sources(self.queries, words, vectors, columns.weights, dotted, of_value)
        exponentials = problem.exponentials.T[self.words]  # (S, Q)
        targets = Targets(self.keys, np.abs(self.keys), exponentials, low, high)
        d_key, key_error = (np.zeros((len(self.words), problem.codes.shape[1])) for _ in range(2))
        d_value, value_error = (np.zeros((len(self.words), depth)) for _ in range(2))
        most = 4.0 * depth + float(np.abs(self.delta).max(initial=0))
        for keys, sums in by_word(sources, targets):
            slopes = problem.slopes.at(self.words[keys], keys=True)
            own_part = exponentials[keys]
            d_key[keys] = slopes.scale * (slopes.slope * own_part * sums.products) @ (problem.codes / 2)
            factors = budgets.key_error(sums, own_part, most, slopes, down[keys], arithmetic)
            n = sums.counts.sum(axis=-1)
            key_error[keys] = budgets.matrix_error(factors, problem.codes / 2, n, arithmetic)
            value, size, error = np.split(sums.columns, 3, axis=-1)
            d_value[keys] = value
            value_error[keys] = budgets.value_error(size, error, n, down[keys], 2.0, arithmetic)
        return d_key, d_value, key_error, value_error

    def sink_gradient(self, rows: Rows) -> _Sink:
        """Return the part of the gradient of the sink."""
        problem, forward = self.problem, self.forward
        head = self.head[-1]
        share = problem.shares[head][self.queries] * rows.shares
        error, size, count = budgets.sink_error(
            share, problem.sinks[head], forward.lse, forward.lse_budget, rows, self.own[1], problem.arithmetic
        )
        return _Sink(-float((share * self.delta).sum()), error, size, count)
