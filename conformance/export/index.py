"""The index of exported cases: what is known about each case, for every format."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec import __version__, find_rule, levels
from attnspec.citations import anchor
from attnspec.conformance.export.judged import Judged

VERSION = 1


@dataclass(frozen=True)
class Cited:
    """A rule as files cite it.

    Attributes
    ----------
    id, level, link : str
        The link is relative to the repository.
    levels : tuple of str
        The levels of the standard that list the rule.
    """

    id: str
    level: str
    link: str
    levels: tuple[str, ...]


def cited(rule: str) -> Cited:
    """Return how files cite a rule.

    Examples
    --------
    >>> from attnspec.conformance.export.index import cited
    >>> cited("MASK-6").level, cited("MASK-6").levels
    ('MUST', ('masked',))
    """
    found = find_rule(rule)
    own = tuple(level.name for level in levels() if rule in (*level.rules, *level.where_offered))
    return Cited(found.id, found.level, f"spec/{found.chapter}.md#{anchor(found)}", own)


def options(one: Judged) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, the kind and the value of each argument that is no array and not None.

    The kinds are ``flag``, ``integer``, ``number``, ``word`` and ``pair``.
    """
    for name, given in one.arguments.items():
        if isinstance(given, np.ndarray) or given is None:
            continue
        thing = given.item() if isinstance(given, np.generic) else given
        kind = next(
            word
            for kinds, word in (
                (bool, "flag"),
                (int, "integer"),
                (float, "number"),
                (str, "word"),
                (tuple | list, "pair"),
            )
            if isinstance(thing, kinds)
        )
        yield name, kind, thing


def arrays(one: Judged) -> Mapping[str, np.ndarray[Any, Any]]:
    """Return the arguments that are arrays."""
    return {name: thing for name, thing in one.arguments.items() if isinstance(thing, np.ndarray)}


def head() -> Mapping[str, Any]:
    """Return what an index says about the export."""
    return {"format": VERSION, "attnspec": __version__}
