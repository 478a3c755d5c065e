"""Which share of its error budget a backend uses, by dtype and by the size of the calls, as charts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, log2
from statistics import median

from markupsafe import Markup

from attnspec.conformance.render.html.page import render
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import DTYPES

#: Calls are of one size if the numbers in their arrays, rounded down to a power of this, are the same.
STEP = 4
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 300, 190, 34, 34, 26
_FLOOR = _HEIGHT - _BOTTOM
#: The largest share that is drawn to scale. A larger one is a triangle at the top.
_CEILING = 1.25


@dataclass(frozen=True)
class Shares:
    """The used shares of the calls of one dtype and one size, from ``STEP**size`` numbers on.

    `most` is infinite if an error has no budget. `over` counts the calls that exceed theirs, and `case` is
    a call with the largest share.
    """

    dtype: str
    size: int
    calls: int
    middle: float
    most: float
    over: int
    case: str

    @property
    def sizes(self) -> str:
        """The numbers in the calls."""
        return f"{STEP**self.size} to {STEP ** (self.size + 1) - 1}"

    @property
    def text(self) -> str:
        """All of it in words."""
        over = f", {self.over} over the allowed error" if self.over else ""
        return (
            f"{self.dtype}, {self.sizes} numbers: {self.calls} call{'s' * (self.calls != 1)}, "
            f"median {in_words(self.middle)}, largest {in_words(self.most)} in {self.case}{over}"
        )


def shares_of(verdicts: Iterable[Verdict]) -> tuple[Shares, ...]:
    """Sum up the shares of all calls whose values were compared."""
    groups: dict[tuple[str, int], list[tuple[float, str]]] = {}
    for verdict in verdicts:
        share = _share(verdict)
        if share is not None and verdict.numbers > 0 and verdict.dtype in DTYPES:
            size = int(log2(verdict.numbers) / log2(STEP))
            groups.setdefault((verdict.dtype, size), []).append((share, verdict.case))
    return tuple(
        _sum(dtype, size, groups[dtype, size])
        for dtype, size in sorted(groups, key=lambda key: (DTYPES.index(key[0]), key[1]))
    )


def charts(shares: Sequence[Shares]) -> Markup:
    """Return a picture for each dtype, and a table with the numbers of all."""
    sizes = range(min(each.size for each in shares), max(each.size for each in shares) + 1) if shares else ()
    by_dtype = [[each for each in shares if each.dtype == dtype] for dtype in DTYPES]
    return render(
        "charts.html",
        charts=[_chart(those, sizes) for those in by_dtype if those],
        shares=shares,
        in_words=in_words,
        lines=[(share, _y(share)) for share in (0.0, 0.5, 1.0)],
        ticks=[
            (round(_x(size, sizes) + _wide(sizes) / 2, 1), _number(STEP**size))
            for size in sizes[:: 1 if len(sizes) < 7 else 2]
        ],
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        top=_TOP,
        floor=_FLOOR,
    )


def in_words(share: float) -> str:
    """Write a share."""
    return f"{share:.2g}" if isfinite(share) else "without bound"


def _chart(shares: Sequence[Shares], sizes: Sequence[int]) -> dict[str, object]:
    width = round(_wide(sizes) - 4, 1)
    bars = []
    for each in shares:
        x, y = round(_x(each.size, sizes) + 2, 1), _y(each.most)
        over = round(x + width / 2, 1) - 5 if each.most > _CEILING else 0
        height, middle = round(_FLOOR - y, 1), _y(each.middle)
        bar = {"x": x, "top": y, "width": width, "height": height, "middle": middle, "over": over}
        bars.append({**bar, "text": each.text})
    dtype, most = shares[0].dtype, max(shares, key=lambda each: each.most)
    label = f"Used share of the allowed error in {dtype}; the most: {most.text}"
    return {"dtype": dtype, "label": label, "bars": bars}


def _x(size: int, sizes: Sequence[int]) -> float:
    return _LEFT + _wide(sizes) * (size - sizes[0])


def _wide(sizes: Sequence[int]) -> float:
    return (_WIDTH - _LEFT - 8) / len(sizes)


def _y(share: float) -> float:
    return round(_FLOOR - (_FLOOR - _TOP) * min(share, _CEILING) / _CEILING, 1)


def _number(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 else str(number)


def _share(verdict: Verdict) -> float | None:
    """Return the share that a call used. None if no values of it were compared with a budget."""
    difference = verdict.difference
    if verdict.status in ("fail", "error", "deviation", "should not met") and difference is not None:
        return difference.share if difference.kind == "value" else None
    return verdict.share if verdict.accuracy else None


def _sum(dtype: str, size: int, calls: list[tuple[float, str]]) -> Shares:
    most, case = max(calls)
    over = sum(not isfinite(share) or share > 1 for share, _ in calls)
    return Shares(dtype, size, len(calls), median(share for share, _ in calls), most, over, case)
