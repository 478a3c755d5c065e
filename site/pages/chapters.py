"""The chapters of the standard as pages, and the sections of rules that pages of rules repeat."""

import re
from collections.abc import Callable
from pathlib import Path

from attnspec import CHAPTERS
from pages.known import Known
from pages.links import GUIDES, relinked
from pages.page import Name, Page, Part

#: The pages beside the chapters, in the order of the table of contents.
BESIDE = (
    "scope",
    "levels",
    "glossary",
    "recipes",
    "calls",
    "dialects",
    "notebooks",
    "generator",
    "references",
)
_HEADING = re.compile(r"^### (?P<id>[A-Z]+-[1-9][0-9]*) .*$", re.MULTILINE)
_NEXT = re.compile(r"^#{1,3} |^<!-- rules -->$", re.MULTILINE)
_DEFINITION = re.compile(r"^\[(?P<name>[^][\n]+)\]: \S+$", re.MULTILINE)
_TERM = re.compile(r"^### (?P<term>[^\n]+)\n+(?P<text>.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)

Address = Callable[[str, str], str]


def chapters(known: Known, address: Address) -> Part:
    """Return the pages of the folder `spec`."""
    pages = []
    names = []
    for name in ("README", *CHAPTERS, *BESIDE):
        source = f"spec/{name}.md"
        page = "spec/index" if name == "README" else f"spec/{name}"
        text = (known.root / source).read_text(encoding="utf-8")
        text = _with_pages_of_rules(text) if name in CHAPTERS else text
        pages.append(Page(page, relinked(_COMMENT.sub("", text), source, page, address)))
        names.append(Name("page", name, f"{page}.html", text.splitlines()[0].lstrip("# ")))
    names += _terms((known.root / "spec" / "glossary.md").read_text(encoding="utf-8"))
    pictures: dict[str, str | Path] = {
        f"spec/pictures/{path.name}": path
        for path in sorted((known.root / "spec" / "pictures").glob("*.svg"))
    }
    return Part(tuple(pages), tuple(names), pictures)


def guides(known: Known, address: Address) -> Part:
    """Return the other pages of the repository."""
    pages = []
    names = []
    for source, page in GUIDES.items():
        text = (known.root / source).read_text(encoding="utf-8")
        if source == "README.md":
            text = text.replace("# attnspec\n", "# Test your implementation\n", 1)
            text = text.replace("## Test your implementation\n", "## With the function as it is\n", 1)
            text = re.sub(r"^!\[[^]]*\]\(site/pictures/[^)]*\)\n+", "", text, flags=re.MULTILINE)
        pages.append(Page(page, relinked(_COMMENT.sub("", text), source, page, address)))
        names.append(Name("page", source, f"{page}.html", text.splitlines()[0].lstrip("# ")))
    return Part(tuple(pages), tuple(names))


def section(known: Known, rule_id: str, chapter: str, address: Address) -> tuple[str, str]:
    """Return the sentence of a rule and the text under it, in Markdown, with links of its page."""
    source = f"spec/{chapter}.md"
    whole = (known.root / source).read_text(encoding="utf-8")
    start = next(match for match in _HEADING.finditer(whole) if match["id"] == rule_id).end()
    end = _NEXT.search(whole, start)
    text = whole[start : end.start() if end else len(whole)].strip().replace("](#", f"]({chapter}.md#")
    used = [
        match[0]
        for match in _DEFINITION.finditer(whole)
        if f"[{match['name']}]" in text or f"][{match['name']}]" in text
    ]
    links = relinked("\n".join(used), source, f"rules/{rule_id}", address)
    sentence, _, rest = relinked(text, source, f"rules/{rule_id}", address).partition("\n\n")
    return sentence, f"{rest}\n\n{links}\n"


def _terms(glossary: str) -> list[Name]:
    """Return the terms of the glossary, with what it says of each."""
    found = []
    for match in _TERM.finditer(glossary):
        place = re.sub(r"[^a-z0-9]+", "-", match["term"].lower()).strip("-")
        said = re.sub(r"[`*]|\]\([^)]*\)|[][]", "", " ".join(match["text"].split()))
        title = said.partition(". ")[0]
        found.append(Name("term", match["term"], f"spec/glossary.html#{place}", title, text=said))
    return found


def _with_pages_of_rules(text: str) -> str:
    """Add a link to its page under the sentence of each rule."""
    parts = []
    last = 0
    for match in _HEADING.finditer(text):
        end = text.index("\n\n", match.end() + 2)
        rule = match["id"]
        parts.append(text[last:end])
        parts.append(
            "\n\n{.more}\n"
            f"[{rule}: vectors, tests, findings, wrong implementations](page:../rules/{rule}.html)"
        )
        last = end
    return "".join([*parts, text[last:]])
