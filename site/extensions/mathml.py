"""Formulas as MathML: no script, no font, and a screen reader reads them."""

import re
from typing import Any

from latex2mathml.converter import convert

_LETTERS = re.compile(r'(?:<mi mathvariant="normal">[^<]+</mi>){2,}')
_EDGE = re.compile(r"\\(?P<edge>begin|end)\{(?P<name>aligned|cases)\}")
_MATH = re.compile(r"^<math[^>]*>(.*)</math>$", re.DOTALL)


def mathml(latex: str, *, block: bool) -> str:
    r"""Convert a formula."""
    # Brackets of MathML grow by themselves.
    latex = re.sub(r"\\[Bb]igg?(?![a-z])", "", latex.strip())
    inner = _whole(latex, block=block)
    display = "block" if block else "inline"
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="{display}">{inner}</math>'


def _whole(latex: str, *, block: bool) -> str:
    """Convert a formula with environments, which may hold others."""
    parts = []
    depth = last = start = 0
    for edge in _EDGE.finditer(latex):
        depth += 1 if edge["edge"] == "begin" else -1
        if depth == 1 and edge["edge"] == "begin":
            parts.append(latex[last : edge.start()])
            start = edge.end()
        elif depth == 0:
            parts.append((edge["name"], latex[start : edge.start()]))
            last = edge.end()
    parts.append(latex[last:])
    formulas = [
        _table(*part, block=block) if isinstance(part, tuple) else _inner(part, block=block)
        for part in parts
        if isinstance(part, tuple) or part.strip()
    ]
    return formulas[0] if len(formulas) == 1 else f"<mrow>{''.join(formulas)}</mrow>"


def _inner(latex: str, *, block: bool) -> str:
    whole = convert(latex, display="block" if block else "inline")
    match = _MATH.match(whole)
    if match is None or "\\" in whole or "<mi>&</mi>" in whole:
        raise ValueError(f"formula: expected LaTeX that latex2mathml knows, got {latex!r}")
    # A word is one identifier, not a product of letters.
    return _LETTERS.sub(lambda run: f"<mi>{re.sub('<[^>]+>', '', run[0])}</mi>", match[1])


def _table(kind: str, body: str, *, block: bool) -> str:
    """Set the rows and columns of an environment as a table."""
    lines = []
    for row in _split(body, r"\\\\(?:\[[^]]*\])?"):
        cells = [
            f"<mtd>{_whole(cell.strip(), block=block) if cell.strip() else ''}</mtd>"
            for cell in _split(row, r"(?<!\\)&")
        ]
        if row.strip():
            lines.append(f"<mtr>{''.join(cells)}</mtr>")
    inner = f'<mtable class="{kind}" displaystyle="true">{"".join(lines)}</mtable>'
    return f"<mo>{{</mo>{inner}" if kind == "cases" else inner


def _split(latex: str, separator: str) -> list[str]:
    """Split at a separator, but not inside of another environment."""
    parts = [""]
    depth = 0
    for piece in re.split(rf"({separator}|{_EDGE.pattern})", latex):
        if piece is None or piece in ("begin", "end", "aligned", "cases"):
            continue  # the groups of the pattern
        edge = _EDGE.fullmatch(piece)
        if edge:
            depth += 1 if edge["edge"] == "begin" else -1
        if depth == 0 and not edge and re.fullmatch(separator, piece):
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def setup(app: Any) -> dict[str, Any]:
    """Register the renderer with Sphinx."""

    def inline(self: Any, node: Any) -> None:
        from docutils import nodes

        self.body.append(mathml(node.astext(), block=False))
        raise nodes.SkipNode

    def block(self: Any, node: Any) -> None:
        from docutils import nodes

        formula = mathml(node.astext(), block=True)
        self.body.append(
            f'<div class="formula" tabindex="0" role="region" aria-label="formula">{formula}</div>'
        )
        raise nodes.SkipNode

    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
