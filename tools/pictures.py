"""The pictures of the standard, drawn from the reference: `spec/pictures`.

A grid shows which keys each query may attend to, as `allowed_keys` gives them.
The figure of the operator lists its steps in their order. Both colours are
readable on a light and on a dark page. An allowed key is filled, so that a
grid is readable without colour.

``python -m tools.pictures`` writes them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

import attnspec
from attnspec.reference import allowed_keys

#: The folder of the pictures.
FOLDER = Path(attnspec.__file__).resolve().parent / "pictures"
#: The colour of lines and letters, and that of filled areas. Both are readable on white and on dark pages.
INK, FILL = "#777777", "#2878d0"

_CELL, _MARGIN, _LINE, _GAP = 20, 34, 15, 28
_STEP, _BETWEEN, _LEFT, _MIDDLE, _RIGHT = 44, 22, 268, 290, 110


@dataclass(frozen=True)
class Panel:
    """One grid: the lines of its caption, and the allowed keys."""

    caption: tuple[str, ...]
    allowed: NDArray[np.bool_]


@dataclass(frozen=True)
class Masks:
    """One picture of grids side by side."""

    title: str
    about: str
    panels: tuple[Panel, ...]
    columns: int


@dataclass(frozen=True)
class Step:
    """One step of the operator: its text, its rules, its arguments, and its output."""

    name: str
    rules: str
    inputs: tuple[str, ...]
    output: str = ""


def panel(*caption: str, shape: tuple[int, int], **options: Any) -> Panel:
    """Compute the allowed keys of one grid with the reference."""
    return Panel(caption, allowed_keys(shape, **options))


def _together() -> Masks:
    """Draw each source separately, and all of them together."""
    mask = np.arange(7) != 2
    ids = {"query_segment_ids": np.repeat([0, 1], [3, 2]), "key_segment_ids": np.repeat([0, 1], [5, 2])}
    sources: dict[str, dict[str, Any]] = {
        "mask": {"mask": mask},
        "is_causal": {"is_causal": True, "query_offset": 2},
        "window=(3, None)": {"window": (3, None), "query_offset": 2},
        "key_lengths=6": {"key_lengths": 6},
        "query_lengths=4": {"query_lengths": 4},
        "segment ids": ids,
    }
    panels = [
        panel(name, *(["query_offset=2"] if "query_offset" in options else []), shape=(5, 7), **options)
        for name, options in sources.items()
    ]
    every = {name: value for options in sources.values() for name, value in options.items()}
    return Masks(
        "Every source must allow",
        "Seven grids of 5 queries and 7 keys, one for each of six sources of masking, causality and window "
        "at an offset of 2; in the last grid a key is allowed where it is allowed in all of them. Its last "
        "row is empty.",
        (*panels, panel("all of them", shape=(5, 7), **every)),
        4,
    )


def _ids(*ids: int) -> dict[str, NDArray[np.int_]]:
    """Use the same ids for queries and for keys."""
    return {"query_segment_ids": np.array(ids), "key_segment_ids": np.array(ids)}


#: The pictures of masks, by file name.
MASKS = {
    "causal": Masks(
        "Causal masking at three query offsets",
        "With 4 queries, 6 keys and an offset of 0 the triangle begins at the top left corner; with an "
        "offset of 2 it ends at the bottom right corner. With 6 queries, 4 keys and an offset of -2 the "
        "first two queries have no key.",
        (
            panel("query_offset=0", "top left", shape=(4, 6), is_causal=True),
            panel("query_offset=2", "S - L: bottom right", shape=(4, 6), is_causal=True, query_offset=2),
            panel("query_offset=-2", "S - L, below 0", shape=(6, 4), is_causal=True, query_offset=-2),
        ),
        3,
    ),
    "windows": Masks(
        "Windows include both their bounds",
        "Four grids of 6 queries and 6 keys: the query's own position alone; the position and the two before "
        "it; one to each side; and an open left side with one to the right. A fifth grid of 3 queries and 6 "
        "keys has its window moved by a query offset of 3.",
        (
            panel("window=(0, 0)", shape=(6, 6), window=(0, 0)),
            panel("window=(2, 0)", shape=(6, 6), window=(2, 0)),
            panel("window=(1, 1)", shape=(6, 6), window=(1, 1)),
            panel("window=(None, 1)", shape=(6, 6), window=(None, 1)),
            panel("window=(1, 0)", "query_offset=3", shape=(3, 6), window=(1, 0), query_offset=3),
        ),
        5,
    ),
    "lengths": Masks(
        "Lengths of keys and of queries",
        "Three grids of 5 queries and 6 keys: a key length of 4 leaves out the last two columns, a query "
        "length of 3 leaves the last two rows empty, and both together leave 3 rows of 4 keys.",
        (
            panel("key_lengths=4", shape=(5, 6), key_lengths=4),
            panel("query_lengths=3", shape=(5, 6), query_lengths=3),
            panel("key_lengths=4,", "query_lengths=3", shape=(5, 6), key_lengths=4, query_lengths=3),
        ),
        3,
    ),
    "segments": Masks(
        "Attention stays within a segment",
        "Three grids of 6 queries and 6 keys: segments of 3, 2 and 1 positions give blocks on the diagonal; "
        "with causal masking, triangles; ids that are not in order give blocks that are not contiguous.",
        (
            panel("ids 0 0 0 1 1 2", shape=(6, 6), **_ids(0, 0, 0, 1, 1, 2)),
            panel("the same,", "is_causal", shape=(6, 6), is_causal=True, **_ids(0, 0, 0, 1, 1, 2)),
            panel("ids 0 1 0 1 0 1", shape=(6, 6), **_ids(0, 1, 0, 1, 0, 1)),
        ),
        3,
    ),
    "together": _together(),
}

#: The steps of the operator, in their order.
STEPS = (
    Step("query · key", "SCORE-1", ("query", "key")),
    Step("times scale", "SCORE-2, SCORE-3", ("scale",)),
    Step("softcap · tanh(score / softcap)", "SCORE-5", ("softcap",)),
    Step("plus bias", "SCORE-4", ("bias",)),
    Step(
        "disallowed keys are left out",
        "MASK-4, MASK-5, SOFT-8",
        (
            "mask, is_causal, window,",
            "query_offset, query_lengths,",
            "key_lengths, query_segment_ids,",
            "key_segment_ids, bias,",
            "query_positions, key_positions",
        ),
        "max",
    ),
    Step("softmax over the keys that are left", "SOFT-1, SOFT-5", ("sinks",), "lse"),
    Step("dropped or rescaled", "DROP-1, DROP-2", ("dropout_mask, dropout_rate",), "weights"),
    Step("weighted sum of the values", "SOFT-3", ("value",), "output"),
)


def masks(picture: Masks) -> str:
    """Draw grids side by side, in rows with a number of columns."""
    parts, x, y, width = [], 0, 0, 0
    for first in range(0, len(picture.panels), picture.columns):
        row = picture.panels[first : first + picture.columns]
        lines = max(len(panel.caption) for panel in row)
        x = 0
        for panel in row:
            parts += _grid(panel, x, y + _LINE * lines)
            x += (
                _MARGIN
                + _GAP
                + max(_CELL * panel.allowed.shape[1], 8 * max(map(len, panel.caption)) - _MARGIN)
            )
        width = max(width, x)
        y += _LINE * lines + _MARGIN + _CELL * max(panel.allowed.shape[0] for panel in row) + _GAP
    return _svg(picture.title, picture.about, width, y - _GAP + 6, parts)


def _grid(panel: Panel, x: int, y: int) -> list[str]:
    """Draw one grid below its caption, with a row for each query and a column for each key."""
    rows, columns = panel.allowed.shape
    left, top = x + _MARGIN, y + _MARGIN
    parts = [
        _text(x + 4, y - _LINE * (len(panel.caption) - 1 - i), line, "start", bold=True)
        for i, line in enumerate(panel.caption)
    ]
    parts.append(_text(x + 4, top - 6, "q \\ k", "start"))
    parts += [_text(left + _CELL * j + _CELL // 2, top - 6, str(j)) for j in range(columns)]
    parts += [_text(left - 10, top + _CELL * i + 14, str(i)) for i in range(rows)]
    filled = "".join(
        f"M{left + _CELL * j + 2} {top + _CELL * i + 2}h16v16h-16z" for i, j in np.argwhere(panel.allowed)
    )
    lines = "".join(f"M{left} {top + _CELL * i}h{_CELL * columns}" for i in range(rows + 1))
    lines += "".join(f"M{left + _CELL * j} {top}v{_CELL * rows}" for j in range(columns + 1))
    return [*parts, f'<path class="f" d="{filled}"/>', f'<path class="l" d="{lines}"/>']


def operator() -> str:
    """Draw the steps of the operator from top to bottom, arguments to the left, outputs to the right."""
    parts = []
    for index, step in enumerate(STEPS):
        y = 8 + index * (_STEP + _BETWEEN)
        middle = y + _STEP // 2
        parts.append(f'<rect class="l" x="{_LEFT}" y="{y}" width="{_MIDDLE}" height="{_STEP}" rx="5"/>')
        parts.append(_text(_LEFT + _MIDDLE // 2, middle - 3, step.name, bold=True))
        parts.append(_text(_LEFT + _MIDDLE // 2, middle + 14, step.rules))
        first = middle + 4 - _LINE * (len(step.inputs) - 1) // 2
        parts += [_text(_LEFT - 28, first + _LINE * i, line, "end") for i, line in enumerate(step.inputs)]
        parts.append(_arrow(f"M{_LEFT - 24} {middle}h18"))
        if index + 1 < len(STEPS):
            parts.append(_arrow(f"M{_LEFT + _MIDDLE // 2} {y + _STEP}v{_BETWEEN - 6}"))
        if step.output:
            parts.append(_arrow(f"M{_LEFT + _MIDDLE} {middle}h18"))
            parts.append(_text(_LEFT + _MIDDLE + 30, middle + 4, step.output, "start", bold=True))
    about = "; ".join(f"{step.name} ({step.rules})" for step in STEPS)
    height = 16 + len(STEPS) * (_STEP + _BETWEEN) - _BETWEEN
    return _svg(
        "The operator, step by step", f"From top to bottom: {about}.", _LEFT + _MIDDLE + _RIGHT, height, parts
    )


def pictures() -> dict[str, str]:
    """Draw all pictures, and return them by file name."""
    drawn = {f"{name}.svg": masks(picture) for name, picture in MASKS.items()}
    return drawn | {"operator.svg": operator()}


def _text(x: int, y: int, text: str, anchor: str = "middle", *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _arrow(path: str) -> str:
    return f'<path class="l" marker-end="url(#a)" d="{path}"/>'


def _svg(title: str, about: str, width: int, height: int, parts: list[str]) -> str:
    """Combine parts into a file with a description in words."""
    style = f"text{{fill:{INK};font-family:sans-serif;font-size:12px}}"
    style += f".f{{fill:{FILL}}}.l{{fill:none;stroke:{INK}}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">'
    )
    marker = (
        '<defs><marker id="a" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" '
        'orient="auto">'
        f'<path fill="{INK}" d="M0 0l6 3l-6 3z"/></marker></defs>'
    )
    lines = [
        head,
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(about)}</desc>',
        f"<style>{style}</style>",
        *([marker] if any("#a" in part for part in parts) else []),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
