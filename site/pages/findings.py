"""The findings: what released libraries do that a rule does not allow."""

import re
from dataclasses import dataclass
from typing import Any

from pages.known import Known
from pages.page import Name, Page, Part, make_page

from attnspec.backends.names import LIBRARY_NAMES
from tools.findings import FIELDS, Finding, report

_RULES = re.compile(r" ?\((?:[A-Z]+-\d+[^)]*)\)")
_ADDRESS = re.compile(r"(?P<address>https://\S*?)(?P<rest>[.,;:)]*)(?=\s|$)")


@dataclass(frozen=True)
class Row:
    """A finding in a table."""

    subject: str
    address: str
    version: str
    rules: tuple[str, ...]
    status: str
    state: str


def findings(known: Known) -> Part:
    """Return a page for each library that has findings, and the table of all."""
    pages = [_index(known)]
    for library in dict.fromkeys(finding.library for finding in known.findings):
        own = [_facts(finding, known) for finding in known.findings if finding.library == library]
        name = LIBRARY_NAMES.get(library, library)
        path = f"findings/{library}"
        pages.append(make_page(path, "findings_of_library.md", library=library, name=name, findings=own))
    names = [Name("finding", finding.name, _address(finding), finding.title) for finding in known.findings]
    texts = {
        f"files/reports/{finding.name}.txt": report(finding, known.seen.get(finding.name))
        for finding in known.findings
    }
    return Part(tuple(pages), tuple(names), dict(texts))


def row(finding: Finding, known: Known) -> Row:
    """Return a finding as a row of a table."""
    seen = known.seen.get(finding.name)
    return Row(
        _subject(finding),
        _address(finding),
        f"{LIBRARY_NAMES.get(finding.library, finding.library)} {seen.version if seen else ''}",
        finding.rules,
        finding.status,
        finding.status if seen is None or seen.shows else "no longer shown",
    )


def _subject(finding: Finding) -> str:
    """Return the title of a finding without the rules, which stand beside it."""
    return _RULES.sub("", finding.title)


def _address(finding: Finding) -> str:
    library, _, name = finding.name.partition("/")
    return f"findings/{library}.html#{name}"


def _facts(finding: Finding, known: Known) -> dict[str, Any]:
    title = _subject(finding).partition(": ")[2] or _subject(finding)
    return {
        "name": finding.name,
        "place": finding.name.partition("/")[2],
        "title": f"{title[:1].upper()}{title[1:]}",
        "rules": finding.rules,
        "text": finding.text,
        "code": finding.code,
        "seen": known.seen.get(finding.name),
        "facts": [(key.lower(), _parts(finding.fields[key])) for key in FIELDS if key in finding.fields],
    }


def _parts(text: str) -> list[tuple[str, str]]:
    """Split a text at the addresses in it: texts, each with an address or an empty one."""
    parts = []
    last = 0
    for match in _ADDRESS.finditer(text):
        address = match["address"]
        parts.append((text[last : match.start()], ""))
        parts.append((address.removeprefix("https://github.com/"), address))
        last = match.end("address")
    return [*(part for part in parts if part[0]), (text[last:], "")] if last < len(text) else parts


def _index(known: Known) -> Page:
    libraries = {LIBRARY_NAMES.get(finding.library, finding.library) for finding in known.findings}
    return make_page(
        "findings/index",
        "findings.md",
        rows=[row(finding, known) for finding in known.findings],
        libraries=sorted(libraries, key=str.lower),
        new=sum(finding.status == "new" for finding in known.findings),
    )
