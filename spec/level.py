"""Levels of conformance, parsed from ``levels.md``, which defines them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from attnspec.errors import SpecError
from attnspec.rule import DEFINITIONS

_SECTION = re.compile(r"^## (?P<name>.+)$", re.MULTILINE)
_ID = re.compile(r"\b[A-Z]+-[1-9][0-9]*\b")


@dataclass(frozen=True)
class ConformanceLevel:
    """A named set of rules.

    Attributes
    ----------
    name : str
        Its name, such as ``core``.
    rules : tuple of str
        The ids of rules that must be judged and hold.
    where_offered : tuple of str
        The ids of rules that must hold if they are judged.
    builds_on : str
        Another level that must be reached, or empty.
    accuracy : str
        The class of NUM-3 that every element must meet, or empty.
    """

    name: str
    rules: tuple[str, ...]
    where_offered: tuple[str, ...] = ()
    builds_on: str = ""
    accuracy: str = ""


@cache
def levels() -> tuple[ConformanceLevel, ...]:
    """Return every level, in the order of the page.

    Raises
    ------
    SpecError
        If the page cannot be read or has another form.

    Examples
    --------
    >>> from attnspec import levels
    >>> [level.name for level in levels()][:5]
    ['core', 'strict', 'masked', 'grouped', 'cached']
    """
    found = [_level(name, text) for name, text in _sections() if name != "In no level"]
    names = [level.name for level in found]
    for level in found:
        if not level.rules or level.builds_on not in ("", *names[: names.index(level.name)]):
            raise SpecError(f"level {level.name}: expected rules, and a level before it to build on")
    return tuple(found)


def in_no_level() -> tuple[str, ...]:
    """List the rules that the page lists as being in no level."""
    return tuple(_ID.findall(dict(_sections()).get("In no level", "")))


def _sections() -> list[tuple[str, str]]:
    path = Path(__file__).parent / "levels.md"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(f"levels: expected the file {path.name} beside level.py ({error})") from error
    _, *parts = _SECTION.split(text.partition(DEFINITIONS)[0])
    return list(zip(parts[::2], parts[1::2], strict=True))


def _level(name: str, text: str) -> ConformanceLevel:
    said = {}
    for paragraph in text.split("\n\n"):
        key, colon, rest = " ".join(paragraph.split()).partition(": ")
        if colon and key in ("Rules", "Where offered", "Builds on", "Accuracy"):
            said[key] = rest.rstrip(".")
    return ConformanceLevel(
        name,
        tuple(_ID.findall(said.get("Rules", ""))),
        tuple(_ID.findall(said.get("Where offered", ""))),
        said.get("Builds on", ""),
        said.get("Accuracy", ""),
    )
