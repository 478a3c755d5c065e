"""The entries of `edges` that the ordinary run does not kill under their rule, with a call that shows each.

They stand in ``needs.json``: ``sizes`` has calls, the smallest first, each with the entries that give a wrong
result for it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attnspec.conformance.gallery.edges.calls import Sized
from attnspec.conformance.suite.problem import Shape

FILE = Path(__file__).with_name("needs.json")
_READ: dict[str, list[Any]] = json.loads(FILE.read_text(encoding="utf-8"))


def _sized(outer: list[int], *sizes: int, options: str) -> Sized:
    return Sized(Shape(tuple(outer), *sizes), options)


#: Calls, and the names of the entries that have a wrong result for each.
CALLS: Mapping[Sized, tuple[str, ...]] = MappingProxyType(
    {_sized(*one["shape"], options=one["options"]): tuple(one["shows"]) for one in _READ["sizes"]}
)

#: The call for each of these entries.
SHOWN: Mapping[str, Sized] = MappingProxyType({name: call for call, names in CALLS.items() for name in names})

#: By the names of entries: a word of `NEEDS` of `gallery.entry`.
NEEDED: Mapping[str, str] = MappingProxyType(dict.fromkeys(SHOWN, "sizes"))
