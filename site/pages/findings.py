"""The findings: what released libraries do that a rule does not allow."""

import re
from dataclasses import dataclass
from typing import Any

from pages.known import Known
from pages.page import Name, Page, Part, make_page

from attnspec.backends.library import TABLE
from attnspec.backends.names import LIBRARY_NAMES
from tools.findings import FIELDS, RANKS, Family, Finding, report, text_of

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
    rank: str


def findings(known: Known) -> Part:
    """Return a page for each library that has findings, one for each family, and the table of all."""
    pages = [_index(known), *(_family_page(family) for family in known.families)]
    for library in sorted({finding.library for finding in known.findings}):
        own = [finding for finding in known.findings if finding.library == library]
        name = LIBRARY_NAMES.get(library, library)
        pages.append(
            make_page(
                f"findings/{library}",
                "findings_of_library.md",
                library=library,
                name=name,
                number=len({finding.name for finding in own}),
                findings=[_facts(finding, known) for finding in own if not finding.family],
                rows=_in_families(library, known),
            )
        )
    names = {finding.name: finding for finding in reversed(known.findings)}
    texts = {
        f"files/reports/{finding.name}.txt": report(finding, known.seen.get(finding.name))
        for finding in known.findings
        if not finding.family
    }
    listed = [Name("finding", name, _address(finding), finding.title) for name, finding in names.items()]
    return Part(tuple(pages), tuple(listed), dict(texts))


def _family_page(family: Family) -> Page:
    rows = [_row_of(family, place) for place in range(len(family.rows))]
    return make_page(
        f"findings/families/{family.name}", "family.md", title=family.title, text=family.text, rows=rows
    )


def _row_of(family: Family, place: int) -> dict[str, Any]:
    """Return a row of a family: `place` is the place in a page, for the first row of a finding."""
    row, finding = family.rows[place], family.findings[place]
    return {
        "library": row.library,
        "name": LIBRARY_NAMES.get(row.library, row.library),
        "place": row.finding.partition("/")[2],
        "call": row.call,
        "got": text_of(row.got),
        "right": text_of(row.right),
        "rules": finding.rules,
        "rank": RANKS[row.rank],
        "facts": [_parts(finding.fields[key]) for key in ("Promise", "Known") if key in finding.fields],
        "family": family.name,
        "family_title": family.title,
    }


def _in_families(library: str, known: Known) -> list[dict[str, Any]]:
    """Return the rows of a library. Only the first of a finding has its anchor."""
    rows = []
    anchors = set()
    for family in known.families:
        for place, row in enumerate(family.rows):
            if row.library == library:
                facts = _row_of(family, place)
                rows.append(facts | {"place": "" if facts["place"] in anchors else facts["place"]})
                anchors.add(facts["place"])
    return rows


def row(finding: Finding, known: Known) -> Row:
    """Return a finding as a row of a table."""
    seen = known.seen.get(finding.name)
    version = seen.version if seen else _version(finding.library)
    return Row(
        _subject(finding),
        _address(finding),
        f"{LIBRARY_NAMES.get(finding.library, finding.library)} {version}",
        finding.rules,
        finding.status,
        finding.status if seen is None or seen.shows else "no longer shown",
        RANKS[finding.rank],
    )


def _version(library: str) -> str:
    """Return the release that our own runs of a library pin."""
    return str(TABLE[library]["requires"][0]).partition("==")[2]


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
        "rank": RANKS[finding.rank],
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
    order = list(RANKS)
    alone = [finding for finding in known.findings if not finding.family]
    libraries = {LIBRARY_NAMES.get(finding.library, finding.library) for finding in known.findings}
    alone.sort(key=lambda finding: order.index(finding.rank))
    ranks = [
        (
            meaning,
            sum(finding.rank == rank for finding in alone),
            sum(finding.rank == rank for finding in known.findings if finding.family),
        )
        for rank, meaning in RANKS.items()
    ]
    return make_page(
        "findings/index",
        "findings.md",
        number=len({finding.name for finding in known.findings}),
        rows=[row(finding, known) for finding in alone],
        ranks=ranks,
        families=[
            (family, len({row.library for row in family.rows}), len(family.rows)) for family in known.families
        ],
        libraries=sorted(libraries, key=str.lower),
        new=sum(finding.status == "new" for finding in alone),
    )
