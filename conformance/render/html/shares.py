"""Sums up which share of its error budget a backend uses, by dtype and by the size of the calls."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite, log2
from statistics import median

from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import DTYPES

#: Calls are of one size if the numbers in their arrays, rounded down to a power of this, are the same.
STEP = 4


@dataclass(frozen=True)
class Shares:
    """The used shares of the calls of one dtype and one size.

    Attributes
    ----------
    dtype : str
    size : int
        The calls have at least ``STEP**size`` numbers, and fewer than ``STEP**(size + 1)``.
    calls : int
        How many calls there are.
    middle, most : float
        The median and the largest share. `most` is infinite if an error has no budget.
    over : int
        The number of calls that exceed their budget.
    case : str
        A call with the largest share.
    """

    dtype: str
    size: int
    calls: int
    middle: float
    most: float
    over: int
    case: str


def shares_of(verdicts: Iterable[Verdict]) -> tuple[Shares, ...]:
    """Sum up the shares of all calls whose values were compared.

    Examples
    --------
    >>> from attnspec.conformance.render.html.shares import shares_of
    >>> from attnspec.conformance.verdict import Verdict
    >>> told = {"dtype": "float32", "accuracy": "full", "numbers": 20}
    >>> shares = (0.25, 0.75)
    >>> shares_of([Verdict("b", f"c{one}", "", ("MASK-1",), "pass", share=one, **told) for one in shares])
    (Shares(dtype='float32', size=2, calls=2, middle=0.5, most=0.75, over=0, case='c0.75'),)
    """
    groups: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for one in verdicts:
        share = _share(one)
        if share is not None and one.numbers > 0 and one.dtype in DTYPES:
            groups.setdefault((one.dtype, int(log2(one.numbers) / log2(STEP))), []).append((share, one.case))
    return tuple(
        _sum(dtype, size, groups[dtype, size])
        for dtype, size in sorted(groups, key=lambda key: (DTYPES.index(key[0]), key[1]))
    )


def _share(verdict: Verdict) -> float | None:
    """Return the share that a call used. None if no values of it were compared with a budget."""
    difference = verdict.difference
    if verdict.status in ("fail", "error", "deviation", "should not met") and difference is not None:
        return difference.share if difference.kind == "value" else None
    return verdict.share if verdict.accuracy else None


def _sum(dtype: str, size: int, found: list[tuple[float, str]]) -> Shares:
    most, case = max(found)
    over = sum(not isfinite(share) or share > 1 for share, _ in found)
    return Shares(dtype, size, len(found), median(share for share, _ in found), most, over, case)
