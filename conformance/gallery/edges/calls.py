"""Calls past the sizes of the ordinary run, and the entries of `edges` that each of them shows.

The ordinary run does not kill these entries under their rule. They stand in ``needs.json``: ``sizes`` has
calls, the smallest first, each with the entries that give a wrong result for it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attnspec.conformance.suite.edges import AT_EDGES
from attnspec.conformance.suite.options import Options
from attnspec.conformance.suite.problem import Shape, problem_of


@dataclass(frozen=True)
class Sized:
    """A call: its sizes, and its options by a name in `AT_EDGES`."""

    shape: Shape
    options: str = "plain"

    @property
    def arguments(self) -> Options:
        """The arguments in float64, with all outputs requested."""
        problem = problem_of(self.shape, "float64", 1)
        # The options may change queries and keys too.
        arguments = problem.arguments | AT_EDGES[self.options](problem)
        return arguments | {"return_lse": True, "return_weights": True}


FILE = Path(__file__).with_name("needs.json")
_READ: dict[str, list[Any]] = json.loads(FILE.read_text(encoding="utf-8"))


def _sized(outer: list[int], *sizes: int, options: str) -> Sized:
    return Sized(Shape(tuple(outer), *sizes), options)


#: Calls, and the names of the entries that have a wrong result for each.
CALLS: Mapping[Sized, tuple[str, ...]] = MappingProxyType(
    {_sized(*call["shape"], options=call["options"]): tuple(call["shows"]) for call in _READ["sizes"]}
)

#: The call for each of these entries.
SHOWN: Mapping[str, Sized] = MappingProxyType({name: call for call, names in CALLS.items() for name in names})

#: By the names of entries: a word of `NEEDS` of `gallery.entry`.
NEEDED: Mapping[str, str] = MappingProxyType(dict.fromkeys(SHOWN, "sizes"))
