"""The suite: chapters that yield cases and relations, in the order of the standard."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module

from attnspec import CHAPTERS, SpecError, cases
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.suite.group import Chapter, Group, Item

#: The files of groups, by chapter; a chapter with many has several.
FILES = {
    "notation": ("notation",),
    "projection": ("projection",),
    "scores": ("scores",),
    "masking": ("masking", "empty_rows", "integers"),
    "softmax": ("softmax", "denominator"),
    "heads": ("heads",),
    "caching": ("caching", "merging"),
    "positions": ("positions",),
    "dropout": ("dropout",),
    "numerics": ("numerics", "layouts", "special_numbers"),
    "errors": ("errors", "options"),
}


@cache
def groups() -> tuple[Group, ...]:
    """Every group of generated cases, chapter by chapter."""
    found: list[Group] = []
    for chapter in CHAPTERS:
        for file in FILES[chapter]:
            module = import_module(f"attnspec.conformance.suite.{file}")
            found += next(thing for thing in vars(module).values() if isinstance(thing, Chapter))
    return tuple(found)


def items(chapter: str, seed: int | None = None) -> Iterator[Item]:
    """Yield the golden vectors of a chapter in each dtype that holds them, then its generated cases."""
    for case in cases():
        if case.chapter == chapter:
            yield from in_each(case)
    for group in groups():
        if group.chapter == chapter:
            yield from group.items(seed)


def find(name: str, seed: int | None = None) -> Item:
    """Find a case or relation of the suite by its name.

    Raises
    ------
    SpecError
        When there is none.

    Examples
    --------
    >>> from attnspec.conformance.suite import find
    >>> find("masking-004-float32").rules
    ('MASK-2', 'MASK-1')
    """
    chapter = name.partition("-")[0]
    for item in items(chapter, seed) if chapter in CHAPTERS else ():
        if item.name == name:
            return item
    raise SpecError(f"case: got {name!r}, expected a name such as masking-004-float32")
