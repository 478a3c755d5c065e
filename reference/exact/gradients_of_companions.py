"""The gradients of companions for the exact oracle: merging (GRAD-21) and multi-head attention (GRAD-23)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq, fmpq_mat

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.attention import head_of
from attnspec.reference.exact.backward import (
    Balls,
    Part,
    balls_of,
    factor,
    multiply_by_scale,
    part_of,
    parts_of,
    terms,
)
from attnspec.reference.exact.balls import Settled, settle
from attnspec.reference.exact.companions import block, project
from attnspec.reference.exact.gradients import settle_gradients
from attnspec.reference.exact.head import matrix
from attnspec.reference.exact.quotients import Term, total


def evaluate_merge_gradients(
    arguments: Mapping[str, Any], _variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of parts. Each merged row is a query of 0, and its bias holds the lses."""
    outputs, lses = (np.asarray(arguments[name], np.float64) for name in ("outputs", "lses"))
    parts, *rows, depth = outputs.shape
    count = int(np.prod(rows))
    columns = outputs.reshape(parts, count, 1, depth)
    attention = {
        "query": np.zeros((count, 1, 1, 1)),
        "key": np.zeros((count, 1, parts, 1)),
        "value": np.moveaxis(columns, 0, 2),
        "bias": np.moveaxis(lses.reshape(parts, count, 1, 1), 0, 3),
        "d_output": np.asarray(arguments["d_output"], np.float64).reshape(count, 1, 1, depth),
        "d_lse": np.asarray(arguments.get("d_lse", np.zeros(rows)), np.float64).reshape(count, 1, 1),
    }
    shapes = {"d_value": attention["value"].shape, "d_bias": attention["bias"].shape}
    dtypes = {"d_value": dtype, "d_bias": FORMATS[dtype].lse}
    results = settle_gradients(parts_of(attention, None), shapes, None, dtypes)
    of_outputs, of_lses = results["d_value"], results["d_bias"]
    d_outputs = np.moveaxis(of_outputs.values, 2, 0).reshape(outputs.shape)
    d_lses = np.moveaxis(of_lses.values, 3, 0).reshape(lses.shape)
    return {
        "d_outputs": Settled(d_outputs, of_outputs.bits, of_outputs.radius),
        "d_lses": Settled(d_lses, of_lses.bits, of_lses.radius),
    }


_NAMES = ("query", "key", "value")
#: Variants that define the values of an empty row. They change none of these gradients (GRAD-10).
_OF_EMPTY_ROWS = ("nan", "uniform")
#: For each query head, the factors of the gradients of its products and of its weights.
_Factors = list[tuple[Part, fmpq_mat | None, fmpq_mat | None]]


@dataclass(frozen=True)
class _Entry:
    """One batch entry: its tokens, those of its keys, its query heads, and their values and cotangents."""

    tokens: fmpq_mat
    source: fmpq_mat
    parts: list[Part]
    values: list[fmpq_mat]
    cotangent: fmpq_mat
    cross: bool


def evaluate_multi_head_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call, by output name."""
    variant = None if variant in _OF_EMPTY_ROWS else variant
    weights = {name: _row_weight(arguments, name) for name in (*_NAMES, "output")}
    batch = np.shape(arguments["tokens"])[:-2]
    entries = {index: _entry(arguments, weights["output"], index, variant) for index in np.ndindex(*batch)}

    @cache
    def balls(_bits: int) -> dict[int, Balls]:
        return {id(part): balls_of(part, variant) for entry in entries.values() for part in entry.parts}

    names = [
        "tokens",
        *(f"{name}_weight" for name in weights),
        "memory",
        *(f"{name}_bias" for name in weights),
    ]
    results = {}
    for name in names:
        if arguments.get(name) is None:
            continue
        shape = np.shape(arguments[name])
        linear = name.endswith("weight") and arguments.get("convention") == "linear"
        places = [place[::-1] if linear else place for place in np.ndindex(*shape)]
        if name == "output_bias":
            result = [
                sum(
                    (entry.cotangent[i, place[0]] for entry in entries.values() for i in range(_rows(entry))),
                    fmpq(0),
                )
                for place in places
            ]
            results[f"d_{name}"] = settle(shape, partial(_all, result), result.__getitem__, dtype)
            continue
        factors = [_factors(name, place, entries, weights) for place in places]
        enclose = partial(_enclose, factors, balls)
        results[f"d_{name}"] = settle(shape, enclose, partial(_at, factors, variant), dtype)
    return results


def _all(numbers: list[fmpq]) -> list[arb]:
    return [arb(number) for number in numbers]


def _rows(entry: _Entry) -> int:
    return int(entry.tokens.nrows())


def _row_weight(arguments: Mapping[str, Any], name: str) -> fmpq_mat:
    result = matrix(arguments[f"{name}_weight"])
    return result.transpose() if arguments.get("convention") == "linear" else result


def _entry(
    arguments: Mapping[str, Any], weight: fmpq_mat, index: tuple[int, ...], variant: str | None
) -> _Entry:
    tokens = np.asarray(arguments["tokens"])
    source = np.asarray(arguments.get("memory", tokens))
    query = project(arguments, tokens[index], "query")
    key, value = (project(arguments, source[index], name) for name in ("key", "value"))
    cotangent = matrix(np.asarray(arguments["d_output"])[index])
    merged = cotangent * weight.transpose()
    count = arguments["heads"]
    key_count = arguments.get("key_heads", count)
    shape = (*tokens.shape[:-2], count, query.nrows(), key.nrows())
    parts, values = [], []
    for h in range(count):
        other = h % key_count if variant == "tiled" else h // (count // key_count)
        q, k, v = block(query, h, count), block(key, other, key_count), block(value, other, key_count)
        head = head_of(q, k, arguments, (*index, h), shape, variant, None)
        places = ((*index, h), (*index, other))
        parts.append(part_of(head, places, (q, k, v), block(merged, h, count), [fmpq(0)] * query.nrows()))
        values.append(v)
    return _Entry(
        matrix(tokens[index]), matrix(source[index]), parts, values, cotangent, "memory" in arguments
    )


def _factors(
    name: str,
    place: tuple[int, ...],
    entries: Mapping[tuple[int, ...], _Entry],
    weights: Mapping[str, fmpq_mat],
) -> _Factors:
    """Return the factors of the gradients of products and weights for one element of an array."""
    results: _Factors = []
    for index, entry in entries.items():
        if name in ("tokens", "memory") and place[:-2] != index:
            continue
        if name == "output_weight":
            depth = entry.values[0].ncols()
            h, c = divmod(place[0], depth)
            value, g = entry.values[h], entry.cotangent
            column = fmpq_mat(g.nrows(), 1, [g[i, place[1]] for i in range(g.nrows())])
            row = fmpq_mat(1, value.nrows(), [value[j, c] for j in range(value.nrows())])
            results.append((entry.parts[h], None, column * row))
            continue
        moved = {of: _derivative(name, place, of, entry, weights[of]) for of in _NAMES}
        results += [_head_derivative(part, moved, entry) for part in entry.parts]
    return [term for term in results if term[1] is not None or term[2] is not None]


def _head_derivative(part: Part, moved: Mapping[str, fmpq_mat | None], entry: _Entry) -> Any:
    heads = len(entry.parts)
    shared = 1 + max(part.other[-1] for part in entry.parts)
    products: fmpq_mat | None = None
    if moved["query"] is not None:
        products = block(moved["query"], part.index[-1], heads) * part.key.transpose()
    if moved["key"] is not None:
        by_key = part.query * block(moved["key"], part.other[-1], shared).transpose()
        products = by_key if products is None else products + by_key
    if moved["value"] is None:
        return part, products, None
    return part, products, part.cotangent * block(moved["value"], part.other[-1], shared).transpose()


def _derivative(
    name: str, place: tuple[int, ...], of: str, entry: _Entry, weight: fmpq_mat
) -> fmpq_mat | None:
    """Return how queries, keys or values move with one number of an array, or None if they do not."""
    inputs = entry.tokens if of == "query" else entry.source
    results = fmpq_mat(inputs.nrows(), weight.ncols())
    if name in ("tokens", "memory"):
        if entry.cross and (name == "tokens") != (of == "query"):
            return None
        n, e = place[-2:]
        for f in range(weight.ncols()):
            results[n, f] = weight[e, f]
        return results
    if not name.startswith(f"{of}_"):
        return None
    for n in range(inputs.nrows()):
        results[n, place[-1]] = inputs[n, place[0]] if name.endswith("weight") else fmpq(1)
    return results


def _enclose(factors: list[_Factors], balls: Callable[[int], dict[int, Balls]]) -> list[arb]:
    results = []
    known = balls(ctx.prec)
    for element in factors:
        ball = arb(0)
        for part, products, weights in element:
            its = known[id(part)]
            for numbers, sources, times in (
                (products, its.products, factor(part.head)),
                (weights, its.weights, arb(1)),
            ):
                if numbers is not None:
                    pairs = zip(numbers.entries(), sources.entries(), strict=True)
                    ball += times * sum((arb(x) * y for x, y in pairs if x != 0), arb(0))
        results.append(ball)
    return results


def _at(factors: list[_Factors], variant: str | None, flat: int) -> fmpq | None:
    return exactly(factors[flat], variant)


def exactly(factors: _Factors, variant: str | None) -> fmpq | None:
    """Return an element if it is rational, else None. An irrational scale multiplies only the products."""
    of_products: list[Term] = []
    of_weights: list[Term] = []
    part = None
    for part, products, weights in factors:
        for i, row in enumerate(part.rows):
            for j in part.head.keys(i):
                if products is not None:
                    of_products += terms(part, i, j, products[i, j], variant, inner=True)
                if weights is not None and weights[i, j] != 0:
                    of_weights.append(Term(row, {row.group[j]: weights[i, j]}, {}))
    if part is None:
        return fmpq(0)
    if part.head.scale.radicand == 1:
        times = part.head.scale.rational
        return total([*(term.times(times) for term in of_products), *of_weights])
    result, mean = multiply_by_scale(part, total(of_products)), total(of_weights)
    return None if result is None or mean is None else result + mean
