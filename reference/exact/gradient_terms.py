"""The terms of the gradients of the exact oracle, as quotients of exponential sums."""

from collections.abc import Iterator

from flint import fmpq

from attnspec.reference.exact.backward import Part
from attnspec.reference.exact.quotients import ONE, SINK, Term, slope_symbol


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


def scaled(part: Part, number: fmpq | None) -> fmpq | None:
    """Multiply by the scale. Return None if the result is irrational."""
    scale = part.head.scale
    if number is None or (scale.radicand != 1 and number != 0):
        return None
    return number * scale.rational
