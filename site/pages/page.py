"""Pages, names and files, and the few pieces of HTML of which the pages are made."""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

#: What has a permanent address.
Kind = Literal[
    "rule", "variant", "case", "operation", "argument", "entry", "finding", "library", "term", "page",
    "section", "question",
]  # fmt: skip

_CODE = re.compile(r"``(?P<long>.+?)``|`(?P<short>[^`]+)`")
_RULE = re.compile(r"\[?\b(?P<id>[A-Z]{2,}-[1-9][0-9]*)\b\]?")
_REFERENCE = re.compile(r"\[(?P<text>[^][`]+)\](?:\([^()\s]+\)|\[[a-z-]+\])")


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes
    ----------
    path : str
        Its path in the site, without a suffix.
    text : str
        Its text, in Markdown.
    """

    path: str
    text: str


@dataclass(frozen=True)
class Name:
    """Something with a permanent address.

    Attributes
    ----------
    kind : str
    name : str
        The name by which other projects cite it, unique within its kind.
    address : str
        The address from the root of the site.
    title : str
        A description of half a line.
    words : tuple of str
        Other names, each of which finds it as its own name does.
    text : str
        More text in which it is searched, which is not shown.
    """

    kind: Kind
    name: str
    address: str
    title: str
    words: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Part:
    """A part of the site: its pages, its names, and its other files by their path in the site."""

    pages: tuple[Page, ...] = ()
    names: tuple[Name, ...] = ()
    files: dict[str, str | Path] = field(default_factory=dict)


def joined(parts: Iterable[Part]) -> Part:
    """Join parts to one."""
    every = tuple(parts)
    return Part(
        tuple(page for part in every for page in part.pages),
        tuple(name for part in every for name in part.names),
        {path: thing for part in every for path, thing in part.files.items()},
    )


def escaped(text: str) -> str:
    """Escape a text for HTML."""
    return html.escape(text)


def inline(text: str, root: str = "../", known: frozenset[str] = frozenset()) -> str:
    """Convert a sentence with code and ids of rules to HTML."""
    parts = []
    last = 0
    for match in _CODE.finditer(text):
        parts.append(_linked(text[last : match.start()], root, known))
        parts.append(f"<code>{escaped(match['long'] or match['short'])}</code>")
        last = match.end()
    parts.append(_linked(text[last:], root, known))
    return "".join(parts)


def _linked(text: str, root: str, known: frozenset[str]) -> str:
    def link(match: re.Match[str]) -> str:
        return rule_link(match["id"], root) if match["id"] in known else match[0]

    return _RULE.sub(link, escaped(_REFERENCE.sub(r"\g<text>", text)))


def rule_link(rule_id: str, root: str = "../") -> str:
    """Link a rule."""
    return f'<a href="{root}rules/{rule_id}.html">{rule_id}</a>'


def link(address: str, text: str) -> str:
    """Link an address. The text is HTML."""
    return f'<a href="{escaped(address)}">{text}</a>'


def code(text: str) -> str:
    """Set a text as code."""
    return f"<code>{escaped(text)}</code>"


def raw(*parts: str) -> str:
    """Put HTML into a page of Markdown."""
    # Without empty lines, the block ends only at its fence.
    return "\n".join(["``````{raw} html", *parts, "``````", ""])


def table(head: Iterable[str], rows: Iterable[Iterable[str]], *, label: str, kind: str = "") -> str:
    """Make a table. Cells are HTML. A row may begin with the id of the row, ``{id}``.

    Examples
    --------
    >>> print(table(("rule",), [("{MASK-6}", "zero")], label="Rules"))
    <div class="wide" tabindex="0" role="region" aria-label="Rules"><table class="data">
    <thead><tr><th scope="col">rule</th></tr></thead><tbody>
    <tr id="MASK-6"><td>zero</td></tr>
    </tbody></table></div>
    """
    classes = f"data {kind}".strip()
    names = list(head)
    # On a narrow screen these stand below each other, each with the name of its column.
    stacked = "stack" in kind.split()
    lines = [
        (
            f'<div class="wide" tabindex="0" role="region" aria-label="{escaped(label)}">'
            f'<table class="{classes}">'
        ),
        "<thead><tr>" + "".join(f'<th scope="col">{cell}</th>' for cell in names) + "</tr></thead><tbody>",
    ]
    for row in rows:
        cells = list(row)
        own = ""
        if cells and cells[0].startswith("{"):
            own = f' id="{escaped(cells.pop(0)[1:-1])}"'
        labels = [
            f' data-label="{escaped(name)}"' if stacked and place else "" for place, name in enumerate(names)
        ]
        inner = "".join(f"<td{label}>{cell}</td>" for label, cell in zip(labels, cells, strict=True))
        lines.append(f"<tr{own}>{inner}</tr>")
    lines.append("</tbody></table></div>")
    return "\n".join(lines)


def filter_of(kind: str, what: str, example: str, choices: Iterable[str] = ()) -> str:
    """Make a field that filters the tables of a kind, with the number of rows that it shows."""
    listed = "".join(f"<option>{escaped(choice)}</option>" for choice in choices)
    select = (
        f'<label for="choice">of</label> <select id="choice" data-choice="{kind}">'
        f'<option value="">all libraries</option>{listed}</select>'
        if listed
        else ""
    )
    return (
        f'<p class="filter"><label for="filter">Show {what} with</label> <input id="filter" type="search" '
        f'data-filter="{kind}" placeholder="{escaped(example)}"> {select} '
        '<output for="filter" aria-live="polite"></output></p>'
    )


def crumbs(*steps: tuple[str, str]) -> str:
    """Say where a page is: addresses and texts, from the front page."""
    links = " <span aria-hidden=true>&rsaquo;</span> ".join(
        link(address, escaped(text)) for address, text in steps
    )
    return f'<nav class="crumbs" aria-label="Where this page is">{links}</nav>'


def plural(number: int, noun: str, many: str = "") -> str:
    """Count things."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


#: The first lines of a page that is in no table of contents.
ORPHAN = "---\norphan: true\n---\n\n"
