"""Checks a built site: links and anchors lead somewhere, nothing comes from elsewhere, no page is large."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

#: The most bytes of a page.
LARGEST = 300_000
#: Attributes that load something when a page is opened.
_LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
#: Relations of links that load nothing.
_NAMED = {"search", "index", "next", "prev", "alternate", "canonical", "author"}


@dataclass
class _Reader(HTMLParser):
    """What a page links, loads and names."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses and the id of a tag."""
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        for name, value in values.items():
            if (tag, name) in _LOADS and not (tag == "link" and values.get("rel") in _NAMED):
                self.loads.append(value)


def problems(html: Path, addresses: Sequence[str] = (), absent: Collection[str] = ()) -> list[str]:
    """List what is wrong with a site, and the addresses of names that lead nowhere.

    `absent` are pages that a sample of the site leaves out, and to which links may lead.
    """
    pages = {}
    for path in sorted(html.rglob("*.html")):
        page = _Reader()
        page.feed(path.read_text(encoding="utf-8"))
        pages[path] = page
    # Any anchor may be on a page that is absent.
    ids: dict[Path, frozenset[str] | None] = dict.fromkeys(html / path for path in absent)
    ids |= {path: frozenset(page.ids) for path, page in pages.items()}
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(html)
        if path.stat().st_size > LARGEST:
            wrong.append(f"{name}: expected at most {LARGEST} bytes, got {path.stat().st_size}")
        wrong += [f"{name}: the id {id_} occurs twice" for id_ in _duplicates(page.ids)]
        wrong += [f"{name}: loads {address} from elsewhere" for address in page.loads if _outside(address)]
        wrong += [
            f"{name}: {address} leads nowhere"
            for address in dict.fromkeys([*page.links, *page.loads])
            if not _outside(address) and not address.startswith("data:") and not _leads(path, address, ids)
        ]
    start = html / "index.html"
    wrong += [f"names: {address} leads nowhere" for address in addresses if not _leads(start, address, ids)]
    for path in sorted(html.rglob("*.css")):
        for address in re.findall(r"url\(['\"]?([^'\")]+)", path.read_text(encoding="utf-8")):
            if _outside(address):
                wrong.append(f"{path.relative_to(html)}: loads {address} from elsewhere")
    return wrong


def summary(html: Path) -> str:
    """Say how many pages a site has, and how large the largest is."""
    sizes = {path: path.stat().st_size for path in html.rglob("*.html")}
    largest = max(sizes, key=lambda path: sizes[path])
    whole = sum(path.stat().st_size for path in html.rglob("*") if path.is_file())
    return (
        f"{len(sizes)} pages, the largest {largest.relative_to(html)} with {sizes[largest] // 1000} KB, "
        f"all files {whole // 1_000_000} MB"
    )


def _duplicates(ids: list[str]) -> list[str]:
    return sorted({id_ for id_ in ids if ids.count(id_) > 1}) if len(set(ids)) < len(ids) else []


def _outside(address: str) -> bool:
    return bool(re.match(r"(?!data:)[a-z]+:|//", address))


def _leads(path: Path, address: str, ids: dict[Path, frozenset[str] | None]) -> bool:
    where, _, place = address.partition("#")
    where = unquote(where.partition("?")[0])
    target = (path.parent / where).resolve() if where else path
    if target not in ids:
        return target.is_file()
    known = ids[target]
    # An address with a state, such as #q=MASK-6, is read by the script of its page.
    return known is None or not place or "=" in place or unquote(place) in known
