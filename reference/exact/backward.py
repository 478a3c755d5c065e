"""The backward pass of one head for the exact oracle: rational parts exactly, and the rest in balls."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpq, fmpq_mat

from attnspec.reference.exact.attention import head_of
from attnspec.reference.exact.head import Head, allowed_pairs, key_head, matrix, rational
from attnspec.reference.exact.quotients import ONE, SINK, Row, Term, row_of, slope_symbol

Index = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One query head of one batch entry, with its cotangents."""

    head: Head
    index: Index  # the place of the head
    other: Index  # the place of the key head that it reads (HEAD-1)
    query: fmpq_mat  # (L, D)
    key: fmpq_mat  # (S, D)
    cotangent: fmpq_mat  # (L, Dv) rationals: `d_output`
    of_lse: list[fmpq]  # (L,) rationals: `d_lse`, or 0 if it is not given
    #: (L, S) rationals: the gradients with respect to the weights, `r` of the chapter.
    rated: list[list[fmpq]]

    @cached_property
    def rows(self) -> list[Row]:
        """The keys of each query, by equal score."""
        return [row_of(self.head, i, rated) for i, rated in enumerate(self.rated)]


@dataclass(frozen=True)
class Balls:
    """The terms of the gradients of a part, at the current precision."""

    scores: arb_mat  # (L, S): gradients with respect to the scores, `t` of the chapter
    products: arb_mat  # (L, S): gradients with respect to the scaled dot products, `u` of the chapter
    weights: arb_mat  # (L, S): weights after dropout
    sink: list[arb]  # (L,): the part of each row in the gradient of the sink


def parts_of(arguments: Mapping[str, Any], variant: str | None) -> list[Part]:
    """Collect the data of each query head."""
    arguments = clean(arguments, variant)
    query, key, value = (np.asarray(arguments[name]) for name in ("query", "key", "value"))
    shape = (*query.shape[:-1], key.shape[-2])
    d_output, d_lse = np.asarray(arguments["d_output"]), np.asarray(arguments.get("d_lse", 0.0))
    if variant == "ignored":
        d_lse = np.zeros(())
    d_lse = np.broadcast_to(d_lse, shape[:-1])
    parts = []
    for index in np.ndindex(*shape[:-2]):
        other = key_head(index, query.shape, key.shape, variant)
        q, k, v, g = (matrix(x) for x in (query[index], key[other], value[other], d_output[index]))
        head = head_of(q, k, arguments, index, shape, variant, None)
        parts.append(part_of(head, (index, other), (q, k, v), g, [rational(h) for h in d_lse[index]]))
    return parts


def part_of(
    head: Head,
    places: tuple[Index, Index],
    arrays: tuple[fmpq_mat, fmpq_mat, fmpq_mat],
    cotangent: fmpq_mat,
    of_lse: list[fmpq],
) -> Part:
    """Collect the data of one query head: its place, that of its key head, its arrays and cotangents."""
    query, key, value = arrays
    products = cotangent * value.transpose()
    rated = [[kept * products[i, j] for j, kept in enumerate(row)] for i, row in enumerate(head.kept)]
    return Part(head, *places, query, key, cotangent, of_lse, rated)


def balls_of(part: Part, variant: str | None) -> Balls:
    """Enclose the backward pass of a part, at the current precision."""
    head = part.head
    queries, keys = head.shape
    scores, products, weights = ([[arb(0)] * keys for _ in range(queries)] for _ in range(3))
    sinks = [arb(0)] * queries
    lse_unit = 1 / arb(2).log() if variant == "base-2" else arb(1)  # SOFT-6
    for i in range(queries):
        row = head.keys(i)
        shares, sink = _shares(head, i, row)
        of_lse = arb(part.of_lse[i]) * lse_unit
        rated = part.rated[i]
        for j, share in zip(row, shares, strict=True):
            # r - delta is a sum of differences, so nothing cancels if one key has nearly all of the weight.
            pull = of_lse + sink * arb(rated[j])
            for k, weight in zip(row, shares, strict=True):
                if rated[k] != rated[j]:
                    pull += weight * arb(rated[j] - rated[k])
            scores[i][j] = share * pull
            slope = _slope(head, i, j)
            products[i][j] = scores[i][j] * slope
            if head.capped_bias:
                scores[i][j] = products[i][j]
            weights[i][j] = share * arb(head.kept[i][j])
        delta = sum((share * arb(rated[j]) for j, share in zip(row, shares, strict=True)), arb(0))
        sinks[i] = sink * (of_lse - delta)
        if not row and head.keys_of_mean(i, variant):
            weights[i] = [arb(kept / keys) for kept in head.kept[i]]
    made = [arb_mat(queries, keys, [x for row in rows for x in row]) for rows in (scores, products, weights)]
    return Balls(made[0], made[1], made[2], sinks)


def factor(head: Head) -> arb:
    """Enclose the scale."""
    return arb(head.scale.rational) / arb(head.scale.radicand).sqrt()


def _shares(head: Head, i: int, row: list[int]) -> tuple[list[arb], arb]:
    """Return the weights of the keys of a row before dropout, and the share of the sink."""
    levels = [head.ball(i, j) for j in row]
    if head.sink is not None:
        levels.append(arb(head.sink))
    top = max((level.mid() for level in levels), default=arb(0))  # any shift cancels
    rates = [(level - top).exp() for level in levels]
    whole = sum(rates, arb(0))
    shares = [rate / whole for rate in rates]
    return (shares, arb(0)) if head.sink is None else (shares[:-1], shares[-1])


def _slope(head: Head, i: int, j: int) -> arb:
    """Return the slope of the softcap (GRAD-5) as ``sech(x) ** 2``. In ``1 - tanh(x) ** 2`` digits cancel."""
    if head.softcap is None:
        return arb(1)
    whole, root, _ = head.parts(i, j)
    inside = (arb(whole) + arb(root) / arb(head.scale.radicand).sqrt()) / arb(head.softcap)
    small = (-2 * abs(inside)).exp()
    return 4 * small / (1 + small) ** 2


def clean(arguments: Mapping[str, Any], variant: str | None) -> dict[str, Any]:
    """Replace non-finite numbers by 0 if no gradient depends on them (GRAD-12)."""
    query, key, value = (np.asarray(arguments[name], np.float64) for name in ("query", "key", "value"))
    given = {name: np.asarray(arguments[name], np.float64) for name in ("bias", "d_output", "d_lse")
             if name in arguments}  # fmt: skip
    shape = (*query.shape[:-1], key.shape[-2])
    allowed = np.zeros(shape, dtype=bool)
    attended = np.zeros(key.shape[:-1], dtype=bool)
    for index in np.ndindex(*shape[:-2]):
        allowed[index] = allowed_pairs(arguments, shape, index, variant)
        attended[key_head(index, query.shape, key.shape, variant)] |= allowed[index].any(axis=0)
    if "bias" in given:
        bias = given["bias"]
        given["bias"] = np.where(np.isfinite(bias) | (bias == -np.inf) | allowed, bias, 0.0)
    cleaned = {
        "query": np.where(np.isfinite(query) | allowed.any(axis=-1, keepdims=True), query, 0.0),
        "key": np.where(np.isfinite(key) | attended[..., np.newaxis], key, 0.0),
        "value": np.where(np.isfinite(value) | attended[..., np.newaxis], value, 0.0),
    }
    return {**arguments, **given, **cleaned}


def terms(part: Part, i: int, j: int, times: fmpq, variant: str | None, *, inner: bool) -> Iterator[Term]:
    """Yield the terms of a multiple of the gradient with respect to a score."""
    if times == 0:
        return
    row = part.rows[i]
    g = row.group[j]
    slope = slope_symbol(part.head, i, j) if inner else ONE
    rated = fmpq(0) if j == SINK else part.rated[i][j]
    yield Term(row, {g: rated * times}, {g: times}, slope)
    yield Term(row, {g: part.of_lse[i] * times}, {}, ("log 2", slope) if variant == "base-2" else slope)


def pairs(parts: list[Part], j: int) -> Iterator[tuple[Part, int]]:
    """Iterate over the queries that may attend to key j."""
    return ((part, i) for part in parts for i in range(part.head.shape[0]) if part.head.allowed[i, j])


def multiply_by_scale(part: Part, number: fmpq | None) -> fmpq | None:
    """Multiply by the scale. Return None if the result is irrational."""
    scale = part.head.scale
    if number is None or (scale.radicand != 1 and number != 0):
        return None
    return number * scale.rational
