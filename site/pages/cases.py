"""The cases of each chapter: golden vectors and groups of generated cases."""

from pages.known import Count, Known
from pages.page import Name, Part, make_page

from attnspec import CHAPTERS


def cases(known: Known) -> Part:
    """Return a page for each chapter, and their list."""
    chapters = [
        (
            chapter,
            [case for case in known.cases if case.chapter == chapter],
            [count for count in known.counts if count.group.chapter == chapter],
        )
        for chapter in CHAPTERS
    ]
    pages = [make_page("cases/index", "cases.md", chapters=chapters)]
    names = []
    for chapter, vectors, counts in chapters:
        address = f"cases/{chapter}.html"
        pages.append(
            make_page(
                address.removesuffix(".html"),
                "cases_of_chapter.md",
                chapter=chapter,
                vectors=vectors,
                rows=_rows(counts),
            )
        )
        names += [Name("case", case.id, f"{address}#{case.id}", case.title) for case in vectors]
        # The anchor of a group is how the ids of its cases begin. It ends with a hyphen, because a golden
        # vector may have the rest as its id.
        names += [
            Name("case", id_, f"{address}#{id_}", f"group of cases: {count.group.title}")
            for count in counts
            for id_ in (count.group.id,)
        ]
    files = {
        f"files/spec/vectors/{path.name}": path
        for path in sorted((known.root / "spec" / "vectors").glob("*.json"))
    }
    return Part(tuple(pages), tuple(names), dict(files))


def _rows(counts: list[Count]) -> list[tuple[str, list[str], int, list[str]]]:
    """Return title, ids of groups, number and rules. Groups that state the same are one row."""
    by_title: dict[str, list[Count]] = {}
    for count in counts:
        by_title.setdefault(count.group.title, []).append(count)
    return [
        (
            title,
            [count.group.id for count in same],
            sum(count.number for count in same),
            [*dict.fromkeys(rule for count in same for rule in count.rules)],
        )
        for title, same in by_title.items()
    ]
