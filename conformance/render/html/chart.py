"""Draws which share of its error budget a backend uses, by dtype and size, as SVG within a page."""

from collections.abc import Sequence
from html import escape
from math import isfinite

from attnspec.conformance.render.html.shares import STEP, Shares
from attnspec.dtypes import DTYPES

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 300, 190, 34, 34, 26
#: The largest share that is drawn to scale. A larger one is a triangle at the top.
_CEILING = 1.25


def charts(shares: Sequence[Shares]) -> str:
    """Return a picture for each dtype, and a table with the numbers of all.

    Examples
    --------
    >>> from attnspec.conformance.render.html.chart import charts
    >>> from attnspec.conformance.render.html.shares import Shares
    >>> text = charts([Shares("float32", 3, 9, 0.2, 0.7, 0, "softmax-000-float32")])
    >>> text.count("<svg"), "softmax-000-float32" in text
    (1, True)
    """
    if not shares:
        return "<p>No values of these results were compared with an allowed error.</p>"
    sizes = range(min(one.size for one in shares), max(one.size for one in shares) + 1)
    pictures = [
        _chart(dtype, of_dtype, sizes)
        for dtype in DTYPES
        if (of_dtype := [one for one in shares if one.dtype == dtype])
    ]
    return f'<div class="charts">{"".join(pictures)}</div>\n{_table(shares)}'


def in_words(one: Shares) -> str:
    """Describe the shares of one dtype and size.

    Examples
    --------
    >>> from attnspec.conformance.render.html.chart import in_words
    >>> from attnspec.conformance.render.html.shares import Shares
    >>> in_words(Shares("float32", 2, 9, 0.2, 0.7, 0, "softmax-000-float32"))
    'float32, 16 to 63 numbers: 9 calls, median 0.2, largest 0.7 in softmax-000-float32'
    """
    over = f", {one.over} over the allowed error" if one.over else ""
    return (
        f"{one.dtype}, {_size(one.size)} numbers: {one.calls} call{'s' * (one.calls != 1)}, "
        f"median {_share(one.middle)}, largest {_share(one.most)} in {one.case}{over}"
    )


def _chart(dtype: str, shares: Sequence[Shares], sizes: range) -> str:
    high, wide = _HEIGHT - _BOTTOM - _TOP, (_WIDTH - _LEFT - 8) / len(sizes)
    floor = _HEIGHT - _BOTTOM

    def y(share: float) -> float:
        return round(floor - high * min(share, _CEILING) / _CEILING, 1)

    parts = [f'<text class="t" x="{_LEFT}" y="14">{escape(dtype)}</text>']
    for share in (0.0, 0.5, 1.0):
        kind = "budget" if share == 1 else "grid"
        parts.append(f'<path class="{kind}" d="M{_LEFT} {y(share)}H{_WIDTH - 8}"/>')
        parts.append(f'<text class="y" x="{_LEFT - 6}" y="{y(share) + 4}">{share:g}</text>')
    for one in shares:
        x = round(_LEFT + wide * (one.size - sizes[0]) + 2, 1)
        width = round(wide - 4, 1)
        middle = round(x + width / 2, 1)
        shape = [
            f'<rect x="{x}" y="{y(one.most)}" width="{width}" height="{round(floor - y(one.most), 1)}"/>',
            f'<path class="mid" d="M{x} {y(one.middle)}h{width}"/>',
        ]
        if one.most > _CEILING:
            shape.append(f'<path class="over" d="M{middle - 5} {_TOP - 2}h10l-5 -8z"/>')
        parts.append(f"<g><title>{escape(in_words(one))}</title>{''.join(shape)}</g>")
    for size in sizes[:: 1 if len(sizes) < 7 else 2]:
        x = round(_LEFT + wide * (size - sizes[0]) + wide / 2, 1)
        parts.append(f'<text class="x" x="{x}" y="{floor + 14}">{_number(STEP**size)}</text>')
    parts.append(
        f'<text class="x" x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 4}">numbers in the call, from</text>'
    )
    most = max(shares, key=lambda one: one.most)
    label = f"Used share of the allowed error in {dtype}; the most: {in_words(most)}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _table(shares: Sequence[Shares]) -> str:
    rows = "".join(
        f"<tr><td>{escape(one.dtype)}</td><td>{_size(one.size)}</td><td>{one.calls}</td>"
        f"<td>{_share(one.middle)}</td><td>{_share(one.most)}</td><td>{one.over}</td>"
        f"<td><code>{escape(one.case)}</code></td></tr>"
        for one in shares
    )
    heads = (
        "dtype",
        "numbers in the call",
        "calls",
        "median",
        "largest",
        "over the allowed error",
        "case of the largest",
    )
    head = "".join(f'<th scope="col">{one}</th>' for one in heads)
    return (
        "<details><summary>The numbers as a table</summary>"
        '<div class="wide" tabindex="0" role="region" aria-label="Shares of the allowed error">'
        f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>'
    )


def _size(size: int) -> str:
    return f"{STEP**size} to {STEP ** (size + 1) - 1}"


def _number(number: int) -> str:
    return f"{number // 1024}k" if number >= 1024 else str(number)


def _share(share: float) -> str:
    return f"{share:.2g}" if isfinite(share) else "without bound"
