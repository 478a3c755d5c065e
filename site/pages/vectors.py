"""Golden vectors as HTML: inputs and proven values, and buttons that copy them as code."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from pages.allowed import in_dtypes, preferred
from pages.page import code, escaped, inline, plural, raw, rule_link
from pages.snippets import FORMATS

#: An array with more elements is shown folded.
_MOST = 160


def shown(case: Case, known: frozenset[str]) -> str:
    """Return a golden vector as a section of the page of its first rule."""
    others = [rule for rule in case.rules[1:] if rule in known]
    about = [f"<code>{case.id}</code>", f'<a href="../operations/{case.operation}.html">{case.operation}</a>']
    if others:
        about.append(f"also tests {', '.join(rule_link(rule) for rule in others)}")
    buttons = "".join(
        f'<button type="button" data-case="{case.id}" data-format="{name}">{label}</button>'
        for name, (label, _) in FORMATS.items()
    )
    parts = [
        f'<p class="about">{" · ".join(about)}</p>',
        (
            f'<p class="copy" role="group" aria-label="Copy {case.id} as code"><span>Copy as</span>{buttons}'
            f"{_choice(case)}</p>"
        ),
        _values("Arguments", case.arguments),
    ]
    if case.expected:
        parts += [_values("Proven values", case.expected, "proven"), _allowed(case)]
    if case.misuse:
        names = " or ".join(code(name) for name in (case.misuse.argument, *case.misuse.named))
        may = "may" if case.misuse.allowed else "must"
        parts.append(f'<p class="refused">The call {may} be refused. The error names {names}.</p>')
    for other in case.alternatives:
        title = (
            f'Variant <a href="{other.rule}.html#{other.variant}"><code>{other.variant}</code></a>'
            f" of {other.rule}, which a conforming implementation does not give"
        )
        parts.append(_values(title, other.expected, "variant"))
    parts.append(
        f'<p class="about">Source: {inline(case.provenance.source)}. '
        f"Inputs: {inline(case.provenance.inputs)}.</p>"
    )
    about, *inner = parts
    given = ", ".join(code(name) for name in case.arguments)
    folded = f'<details class="vector"><summary>Numbers of {given}, and code to copy</summary>'
    head = f"({case.id})=\n### {case.title[:1].upper()}{case.title[1:]}\n"
    return f"{head}\n{raw(about, folded, *inner, '</details>')}"


def script(case: Case) -> str:
    """Return the script with the code of a case in each dtype, loaded when a button is pressed."""
    texts = {
        dtype: {name: write(one, allowed) for name, (_, write) in FORMATS.items()}
        | {"allowed": "\n\n".join(f"{name}\n{_grid(_rounded(x))}" for name, x in allowed.items())}
        for dtype, (one, allowed) in in_dtypes(case.id).items()
    }
    return f"attnspecCase({json.dumps(case.id)}, {json.dumps(texts)});\n"


def _choice(case: Case) -> str:
    """Offer the dtypes in which a case is copied, and in which its allowed errors are shown."""
    first = preferred(case.id)
    options = "".join(
        f"<option{' selected' if dtype == first else ''}>{dtype}</option>" for dtype in in_dtypes(case.id)
    )
    return f'<label>in <select data-dtype="{case.id}">{options}</select></label>'


def _allowed(case: Case) -> str:
    """Say the largest allowed error of each dtype, and fold those of the elements, which a script brings."""
    most = {}
    for dtype, (_, allowed) in in_dtypes(case.id).items():
        finite = [x[np.isfinite(x)].max(initial=0) for x in allowed.values() if x.size]
        if finite:
            most[dtype] = f"{dtype} {_up(float(max(finite)))}"
    if not most:
        return ""
    return (
        f'<details class="allowed" data-allowed="{case.id}"><summary>Allowed error, at most: '
        f"{', '.join(most.values())}. Of each element</summary><pre></pre></details>"
    )


def _rounded(array: NDArray[np.float64]) -> NDArray[np.float64]:
    plain = [float(_up(x)) if math.isfinite(x) else x for x in array.ravel().tolist()]
    return np.array(plain, dtype=np.float64).reshape(array.shape)


def _up(x: float) -> str:
    """Write a number with three digits that is not below it."""
    text = f"{x:.2e}"
    if float(text) < x:
        text = f"{x + 10.0 ** (math.floor(math.log10(x)) - 2) / 2:.2e}"
    return f"{float(text):g}"


def _values(title: str, group: Mapping[str, Any], kind: str = "") -> str:
    rows = []
    for name, thing in group.items():
        if isinstance(thing, np.ndarray):
            what = f"{thing.dtype} ({', '.join(map(str, thing.shape))})"
            said = f"<pre>{escaped(_grid(thing))}</pre>"
            if thing.size > _MOST:
                said = f"<details><summary>{plural(thing.size, 'number')}</summary>{said}</details>"
        else:
            what, said = "", code(repr(thing))
        rows.append(f'<tr><th scope="row"><code>{name}</code></th><td>{what}</td><td>{said}</td></tr>')
    own = f" {kind}" if kind else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="values"><table class="values{own}">'
        f"<caption>{title}</caption>{''.join(rows)}</table></div>"
    )


def _grid(array: NDArray[Any]) -> str:
    """Write an array with aligned columns, one line a row, and an empty line between matrices."""
    if array.size == 0:
        return "no element"
    plain = array if array.dtype.kind in "biu" else array.astype(np.float64)
    texts = [_short(x, str(array.dtype)) for x in plain.ravel().tolist()]
    columns = array.shape[-1] if array.ndim else 1
    widths = [max(map(len, texts[column::columns])) for column in range(columns)]
    rows = [
        "  ".join(text.rjust(width) for text, width in zip(texts[at : at + columns], widths, strict=True))
        for at in range(0, len(texts), columns)
    ]
    height = array.shape[-2] if array.ndim > 1 else 1
    return "\n\n".join("\n".join(rows[at : at + height]) for at in range(0, len(rows), height))


def _short(x: Any, dtype: str) -> str:
    if isinstance(x, bool):
        return "T" if x else "·"
    if isinstance(x, int):
        return str(x)
    if not math.isfinite(x):
        return {"inf": "inf", "-inf": "-inf"}.get(str(x), "nan")
    text = repr(float(np.float32(x))) if dtype == "float32" and len(repr(x)) > 12 else repr(x)
    if dtype == "float32" and float(np.float32(text)) == x:
        text = str(np.float32(x))
    return text.removesuffix(".0")
