"""Plan a run: select outlines of cases, which say what a backend must offer, and hold no arrays.

The outlines of the fixed suite are stored in ``suite/index.json.gz``. `attnspec vectors expected` writes it
beside the expected values. `attnspec.conformance.run.cases` makes the cases of all other plans.
"""

import gzip
import json
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Protocol

from attnspec import SpecError, find_rule
from attnspec.conformance.run.selection import Selection

PATH = Path(__file__).parents[1] / "suite" / "index.json.gz"


class CallOutline(NamedTuple):
    """A call without its numbers."""

    operation: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """A case without its arrays.

    `calls` is empty if more than the first line is not known before the case is made. `dtypes` are those that
    a backend needs. `fault` is the argument at fault, `variants` whether the case has values of variants.
    """

    name: str
    group: str
    rules: tuple[str, ...]
    dtype: str
    refusal: bool = False

    calls: tuple[CallOutline, ...] = ()
    related: bool = False
    dtypes: tuple[str, ...] = ()
    fault: str = ""
    variants: bool = False
    traits: tuple[str, ...] = ()
    numbers: int = 0
    #: Whether it is in the quick part: 1, or 2 after the other cases of its group.
    quick: int = 0

    @property
    def id(self) -> str:
        """The name without the dtype."""
        return self.name.removesuffix(f"-{self.dtype}")


class Named(Protocol):
    """A case or an outline."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def rules(self) -> tuple[str, ...]: ...  # noqa: D102


def is_indexed(selection: Selection) -> bool:
    """Whether the index has the cases of a selection: fixed cases, which fit no constraints."""
    other = selection.fits or selection.sizes or selection.untrusted or selection.files
    return selection.seed is None and not other and not any("+" in name for name in selection.names)


def plan_of(selection: Selection) -> tuple[Outline, ...]:
    """Select outlines of the index."""
    for rule in selection.rules:
        find_rule(rule)
    rules, names = set(selection.rules), set(selection.names)
    plan = [
        outline
        for outline in index()
        if (not selection.quick or outline.quick)
        and (not rules or not rules.isdisjoint(outline.rules))
        and (not names or outline.name in names or outline.id in names)
    ]
    if selection.quick:
        plan = [case for _, own in groupby(plan, attrgetter("group")) for case in sorted(own, key=_quick)]
    require(selection, {name for outline in plan for name in (outline.name, outline.id)})
    return tuple(outline for outline in plan if matches(outline, selection.match))


def require(selection: Selection, names: Collection[str]) -> None:
    """Refuse a selected name that is neither an id nor a name of a case."""
    for name in selection.names:
        if name not in names and not selection.rules:
            raise SpecError(f"case: expected an id such as masking-empty-last, got {name!r}")


def matches(case: Named, texts: Collection[str]) -> bool:
    """Whether the name of a case, its group or one of its rules contains a text, or fits one as a pattern."""
    wanted = [text.lower() for text in texts]
    return not wanted or any(
        text in name or fnmatchcase(name, text)
        for name in map(str.lower, (case.name, case.group, *case.rules))
        for text in wanted
    )


_quick = attrgetter("quick")


@cache
def index() -> tuple[Outline, ...]:
    """Read the outlines of the cases of the fixed suite, in their order."""
    document = json.loads(gzip.decompress(PATH.read_bytes()))
    shared = {name: [tuple(each) for each in entries] for name, entries in document["shared"].items()}
    calls = [
        tuple(CallOutline(operation, tuple(names)) for operation, names in each) for each in shared["calls"]
    ]
    return tuple(
        Outline(
            f"{group['id']}{number}-{dtype}",
            group["group"],
            shared["rules"][rules],
            dtype,
            bool(fault),
            calls[call],
            "r" in flags,
            shared["dtypes"][dtypes],
            "".join(fault),
            "v" in flags,
            shared["traits"][traits],
            size,
            flags.count("q"),
        )
        for group in document["groups"]
        for number, dtype, rules, call, dtypes, traits, size, flags, *fault in group["cases"]
    )
