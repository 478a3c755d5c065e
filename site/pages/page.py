"""Pages, names and files, and the templates from which the pages are made."""

import base64
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jinja2
from markupsafe import Markup, escape

import attnspec
from attnspec.conformance.render.html.page import environment

#: What has a permanent address.
Kind = Literal[
    "rule", "variant", "case", "operation", "argument", "entry", "finding", "library", "term", "page",
    "section", "question", "symptom",
]  # fmt: skip

_CODE = re.compile(r"``(?P<long>.+?)``|`(?P<short>[^`]+)`")
_RULE = re.compile(r"\[?\b(?P<id>[A-Z]{2,}-[1-9][0-9]*)\b\]?")
_REFERENCE = re.compile(r"\[(?P<text>[^][`]+)\](?:\([^()\s]+\)|\[[a-z-]+\])")


@dataclass(frozen=True)
class Page:
    """A page in Markdown, at its path in the site without a suffix."""

    path: str
    text: str


@dataclass(frozen=True)
class Name:
    """Something with a permanent address, under the name by which other projects cite it.

    `title` describes it in half a line. `words` are other names, each of which finds it as its own name does.
    `text` is searched and not shown.
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


def join(parts: Iterable[Part]) -> Part:
    """Join parts to one."""
    every = tuple(parts)
    return Part(
        tuple(page for part in every for page in part.pages),
        tuple(name for part in every for name in part.names),
        {path: file for part in every for path, file in part.files.items()},
    )


def make_page(path: str, template: str, **values: Any) -> Page:
    """Make a page from a template. Its `root` is the way to the front page."""
    root = "../" * path.count("/")
    return Page(path, _templates().get_template(template).render(values, root=root))


@cache
def _templates() -> jinja2.Environment:
    templates = environment(Path(__file__).parents[1] / "templates")
    templates.filters |= {
        "answer": _answer,
        "inline": _inline,
        "linked": _linked,
        "md": Markup,
        "plural": plural,
    }
    return templates


@jinja2.pass_context
def _inline(context: jinja2.runtime.Context, text: str) -> Markup:
    """Convert a sentence with code to HTML."""
    return sentence(text, context["root"])


@jinja2.pass_context
def _answer(context: jinja2.runtime.Context, text: str) -> Markup:
    """Convert sentences with code, ids of rules and links to pages of the site to HTML."""
    # Every third part is the text of a link, followed by its address.
    parts = re.split(r"\[([^][]+)\]\(([^()\s]+)\)", text)
    made = [sentence(part, context["root"], _ids()) for part in parts[::3]]
    links = [
        Markup('<a href="{}">{}</a>').format(context["root"] + address, words)
        for words, address in zip(parts[1::3], parts[2::3], strict=True)
    ]
    return Markup("").join(part for pair in zip(made, [*links, Markup("")], strict=True) for part in pair)


@jinja2.pass_context
def _linked(context: jinja2.runtime.Context, text: str) -> Markup:
    """Convert a sentence with code and ids of rules to HTML."""
    return sentence(text, context["root"], _ids())


@cache
def _ids() -> frozenset[str]:
    return frozenset(rule.id for rule in attnspec.rules())


def sentence(text: str, root: str, ids: frozenset[str] = frozenset()) -> Markup:
    """Convert a sentence with code, and links of some rules, to HTML."""

    def link(match: re.Match[str]) -> str:
        id_ = match["id"]
        return f'<a href="{root}rules/{id_}.html">{id_}</a>' if id_ in ids else match[0]

    def prose(part: str) -> str:
        return _RULE.sub(link, str(escape(_REFERENCE.sub(r"\g<text>", part))))

    parts = []
    last = 0
    for match in _CODE.finditer(text):
        parts.append(prose(text[last : match.start()]))
        parts.append(f"<code>{escape(match['long'] or match['short'])}</code>")
        last = match.end()
    return Markup("".join([*parts, prose(text[last:])]))  # noqa: S704 - it is escaped


def packed(value: Any) -> str:
    """Return data as a text that the scripts unpack: JSON, compressed by zlib, in base64."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def anchor(text: str) -> str:
    """Return the anchor of a row that has this text."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def plural(number: int, noun: str, many: str = "") -> str:
    """Count things."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
