"""The gradients of attention for the exact oracle: the backward formulas, in rationals and balls.

The exact values follow the formulas of the chapter, which the second oracle does not use. A variant of the
forward pass changes gradients if it changes scores, allowed pairs, the base of the lse or the assignment of
heads. The variants of MASK-2, MASK-6 and SOFT-7 define the values of an empty row and change no gradient.
Here, `nan` and `uniform` are the variants of GRAD-10.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.backward import (
    Balls,
    Index,
    Part,
    balls_of,
    factor,
    multiply_by_scale,
    pairs,
    parts_of,
    terms,
)
from attnspec.reference.exact.balls import Settled, settle
from attnspec.reference.exact.quotients import SINK, Term, total

#: The shape, a ball for each element, and each element as a rational if it is one.
_Gradient = tuple[tuple[int, ...], Callable[[], list[arb]], Callable[[int], fmpq | None]]


def evaluate_gradients(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute the gradients of a call, by output name."""
    parts = parts_of(arguments, variant)
    of = [
        name for name in _MAKERS if name != "d_scale" and arguments.get(name.removeprefix("d_")) is not None
    ]
    shapes = {name: np.shape(arguments[name.removeprefix("d_")]) for name in of}
    shapes |= {"d_scale": ()} if arguments.get("return_d_scale") else {}
    results = settle_gradients(parts, shapes, variant, dict.fromkeys(shapes, dtype))
    if variant == "nan":
        _put_nan(results, parts, arguments)
    return results


def settle_gradients(
    parts: list[Part],
    shapes: Mapping[str, tuple[int, ...]],
    variant: str | None,
    dtypes: Mapping[str, str],
) -> dict[str, Settled]:
    """Compute some gradients, by output name, each in its format."""

    @cache
    def balls(_bits: int) -> list[Balls]:
        return [balls_of(part, variant) for part in parts]

    def terms() -> list[tuple[Part, Balls]]:
        return list(zip(parts, balls(ctx.prec), strict=True))

    return {
        name: settle(
            *_MAKERS[name](shape, parts, terms, variant),
            FORMATS[dtypes[name]].lse if name == "d_scale" else dtypes[name],
        )
        for name, shape in shapes.items()
    }


def _d_query(shape: tuple[int, ...], parts: list[Part], results: Any, variant: str | None) -> _Gradient:
    queries, depth = shape[-2:]

    def enclose() -> list[arb]:
        return [
            ball
            for part, balls in results()
            for ball in (balls.products * arb_mat(part.key) * factor(part.head)).entries()
        ]

    def exactly(flat: int) -> fmpq | None:
        place, rest = divmod(flat, queries * depth)
        i, d = divmod(rest, depth)
        part = parts[place]
        summands = (
            term for j in part.head.keys(i) for term in terms(part, i, j, part.key[j, d], variant, inner=True)
        )
        return multiply_by_scale(part, total(summands))

    return shape, enclose, exactly


def _d_key(shape: tuple[int, ...], parts: list[Part], results: Any, variant: str | None) -> _Gradient:
    keys, depth = shape[-2:]
    places = list(np.ndindex(*shape[:-2]))

    def enclose() -> list[arb]:
        made = (
            (part.other, balls.products.transpose() * arb_mat(part.query) * factor(part.head))
            for part, balls in results()
        )
        return _sum_heads(shape, made)

    def exactly(flat: int) -> fmpq | None:
        place, rest = divmod(flat, keys * depth)
        j, d = divmod(rest, depth)
        sharing = [part for part in parts if part.other == places[place]]
        summands = (
            term
            for part, i in pairs(sharing, j)
            for term in terms(part, i, j, part.query[i, d], variant, inner=True)
        )
        return multiply_by_scale(sharing[0], total(summands))

    return shape, enclose, exactly


def _d_value(shape: tuple[int, ...], parts: list[Part], results: Any, variant: str | None) -> _Gradient:
    keys, depth = shape[-2:]
    places = list(np.ndindex(*shape[:-2]))

    def enclose() -> list[arb]:
        made = (
            (part.other, balls.weights.transpose() * arb_mat(part.cotangent)) for part, balls in results()
        )
        return _sum_heads(shape, made)

    def exactly(flat: int) -> fmpq | None:
        place, rest = divmod(flat, keys * depth)
        j, c = divmod(rest, depth)
        sharing = [part for part in parts if part.other == places[place]]
        summands = (
            Term(part.rows[i], {part.rows[i].group[j]: part.head.kept[i][j] * part.cotangent[i, c]}, {})
            for part, i in pairs(sharing, j)
        )
        filled = sum(
            (
                part.head.kept[i][j] * part.cotangent[i, c] / keys
                for part in sharing
                for i in range(part.head.shape[0])
                if not part.head.keys(i) and part.head.keys_of_mean(i, variant)
            ),
            fmpq(0),
        )
        mean = total(summands)
        return None if mean is None else mean + filled

    return shape, enclose, exactly


def _sum_heads(shape: tuple[int, ...], parts: Iterable[tuple[Index, arb_mat]]) -> list[arb]:
    """Add up the matrices of the query heads that read each key head (GRAD-3)."""
    sums = {place: arb_mat(*shape[-2:]) for place in np.ndindex(*shape[:-2])}
    for place, matrix in parts:
        sums[place] += matrix
    return [ball for matrix in sums.values() for ball in matrix.entries()]


def _d_bias(shape: tuple[int, ...], parts: list[Part], results: Any, variant: str | None) -> _Gradient:
    size = int(np.prod(shape))
    collected = _bias_elements(shape, parts)

    def enclose() -> list[arb]:
        sums = [arb(0)] * size
        for part, balls in results():
            for (i, j), flat in np.ndenumerate(collected[part.index]):
                sums[flat] += balls.scores[i, j]
        return sums

    def exactly(flat: int) -> fmpq | None:
        return total(
            term
            for part in parts
            for i, j in zip(*np.nonzero(part.head.allowed & (collected[part.index] == flat)), strict=True)
            for term in terms(part, int(i), int(j), fmpq(1), variant, inner=part.head.capped_bias)
        )

    return shape, enclose, exactly


def _d_sinks(shape: tuple[int, ...], parts: list[Part], results: Any, variant: str | None) -> _Gradient:
    def enclose() -> list[arb]:
        sums = [arb(0)] * shape[0]
        for part, balls in results():
            sums[_sink_of(part)] = sum(balls.sink, sums[_sink_of(part)])
        return sums

    def exactly(flat: int) -> fmpq | None:
        return total(
            term
            for part in parts
            if _sink_of(part) == flat and part.head.sink is not None
            for i in range(part.head.shape[0])
            for term in terms(part, i, SINK, fmpq(1), variant, inner=False)
        )

    return shape, enclose, exactly


def _d_scale(shape: tuple[int, ...], parts: list[Part], results: Any, variant: str | None) -> _Gradient:
    @cache
    def products() -> list[fmpq_mat]:
        return [part.query * part.key.transpose() for part in parts]

    def enclose() -> list[arb]:
        pairs = [
            arb(x) * y
            for own, (_, balls) in zip(products(), results(), strict=True)
            for x, y in zip(own.entries(), balls.products.entries(), strict=True)
        ]
        return [sum(pairs, arb(0))]

    def exactly(_flat: int) -> fmpq | None:
        return total(
            term
            for own, part in zip(products(), parts, strict=True)
            for i in range(part.head.shape[0])
            for j in part.head.keys(i)
            for term in terms(part, i, j, own[i, j], variant, inner=True)
        )

    return shape, enclose, exactly


def _sink_of(part: Part) -> int:
    return part.index[-1] if part.index else 0


def _bias_elements(shape: tuple[int, ...], parts: list[Part]) -> dict[Index, Any]:
    """Return the element of the bias that each pair of a head has (GRAD-4)."""
    if not parts:
        return {}
    outer = tuple(1 + max(part.index[axis] for part in parts) for axis in range(len(parts[0].index)))
    numbers = np.arange(int(np.prod(shape))).reshape(shape)
    places = np.broadcast_to(numbers, (*outer, *parts[0].head.shape))
    return {part.index: places[part.index] for part in parts}


def _put_nan(results: Mapping[str, Settled], parts: list[Part], arguments: Mapping[str, Any]) -> None:
    """Fill in the NaN that rows without an allowed key cause by 0 / 0 (`nan` of GRAD-10)."""
    for part in parts:
        empty = ~part.head.allowed.any(axis=-1)
        if not empty.any() or not part.head.shape[1]:
            continue
        results["d_query"].values[part.index][empty] = np.nan
        for name in ("d_key", "d_value"):
            results[name].values[part.other] = np.nan
        put_nan(results, part, parts, arguments.get("bias"), empty)


def put_nan(results: Mapping[str, Settled], part: Part, parts: list[Part], bias: Any, empty: Any) -> None:
    """Fill in the NaN of a head in the gradients of bias, sinks and scale."""
    if bias is not None:
        collected = _bias_elements(np.shape(bias), parts)
        results["d_bias"].values.reshape(-1)[collected[part.index][empty]] = np.nan
    if "d_sinks" in results:
        results["d_sinks"].values[_sink_of(part)] = np.nan
    if "d_scale" in results:
        results["d_scale"].values[...] = np.nan


_MAKERS: Mapping[str, Callable[..., _Gradient]] = {
    "d_query": _d_query,
    "d_key": _d_key,
    "d_value": _d_value,
    "d_bias": _d_bias,
    "d_sinks": _d_sinks,
    "d_scale": _d_scale,
}
