"""An Atom feed of changes: what each run of a backend shows that the run before it did not."""

from collections.abc import Iterator, Sequence
from html import escape
from uuid import NAMESPACE_URL, uuid5

from attnspec import levels, rules
from attnspec.conformance.render.html.column import Column
from attnspec.conformance.render.html.folder import newest, run_page, runs_of_backend
from attnspec.conformance.render.html.marks import MARKS

#: The largest number of entries.
_MOST = 200
_NAMES = {mark.letter: mark.name for mark in MARKS}


def feed(columns: Sequence[Column]) -> str:
    """Return the feed, the newest run first.

    Examples
    --------
    >>> from attnspec.conformance.render.html.feed import feed
    >>> "<entry>" in feed([])
    False
    """
    pairs = [
        (before, after)
        for last in newest(columns)
        for before, after in _pairs(runs_of_backend(last.backend, columns))
    ]
    pairs.sort(key=lambda pair: pair[1].date, reverse=True)
    updated = pairs[0][1].date if pairs else "1970-01-01"
    return "\n".join(
        (
            '<?xml version="1.0" encoding="utf-8"?>',
            '<feed xmlns="http://www.w3.org/2005/Atom">',
            "<title>attnspec: changes in results</title>",
            f"<id>{_id('feed')}</id>",
            f"<updated>{updated}T00:00:00Z</updated>",
            "<author><name>attnspec</name></author>",
            '<link rel="self" href="feed.xml"/>',
            *(_entry(before, after) for before, after in pairs[:_MOST]),
            "</feed>\n",
        )
    )


def changes(before: Column, after: Column) -> Iterator[str]:
    """Yield what changed between two runs of a backend, by level and then by rule."""
    for level in levels():
        was, now = before.letter_of_level(level.name), after.letter_of_level(level.name)
        if (was == "p") != (now == "p"):
            yield f"level {level.name}: {'reached' if now == 'p' else 'no longer reached'}"
    for rule in rules():
        was, now = before.letters[rule.id], after.letters[rule.id]
        if was != now:
            yield f"{rule.id} {rule.title}: {_NAMES[was]} \u2192 {_NAMES[now]}"


def _pairs(runs: Sequence[Column]) -> Iterator[tuple[Column | None, Column]]:
    yield from zip((None, *runs), runs, strict=False)


def _entry(before: Column | None, after: Column) -> str:
    if before is None:
        title, lines = f"{after.title}: first results", [after.headline]
    else:
        lines = [*changes(before, after)] or ["no rule has another result"]
        title = f"{after.title}: compared with {before.version} of {before.date}"
    content = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f"<entry><title>{escape(title)}</title><id>{_id(after.slug)}</id>"
        f"<updated>{after.date}T00:00:00Z</updated>"
        f'<link href="{run_page(after)}"/>'
        f'<content type="html">{escape(f"<ul>{content}</ul>")}</content></entry>'
    )


def _id(name: str) -> str:
    """Return an id that is the same in every build."""
    return f"urn:uuid:{uuid5(NAMESPACE_URL, f'attnspec/results/{name}')}"
