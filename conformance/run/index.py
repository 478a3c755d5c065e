"""Writes the index of the fixed suite, which `attnspec.conformance.run.plan` reads."""

import json
import lzma
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from attnspec import OPERATIONS, Case
from attnspec.conformance.judge.dtypes import LSES, is_real
from attnspec.conformance.judge.traits import describe
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.run.plan import CallOutline, Outline
from attnspec.conformance.run.smallest import calls_of_arguments
from attnspec.conformance.suite import items
from attnspec.conformance.suite.group import Item
from attnspec.dtypes import DTYPES, SHORT


def write(path: Path, *, only_check: bool) -> bool:
    """Write the index if it has changed, and return whether it has."""
    text = encode()
    # Not the bytes, because another version of zlib may compress otherwise.
    changed = not path.exists() or lzma.decompress(path.read_bytes()).decode() != text
    if changed and not only_check:
        path.write_bytes(lzma.compress(text.encode(), preset=9))
    return changed


def encode() -> str:
    """Make the index again, from the cases.

    Each case is a list: its number in its group, or the id of a golden vector; its dtype; its rules, calls,
    dtypes, traits and sizes by their places in lists that all cases share; how many numbers it has; letters
    for the quick part (two if it comes later there), a relation and values of variants; and the argument at
    fault, if there is one.
    """
    place = {item.name: number for number, item in enumerate(items(quick=True))}
    shared: dict[str, dict[Any, int]] = {name: {} for name in ("rules", "calls", "dtypes", "traits", "sizes")}
    by_group = groupby(items(), lambda item: (item.chapter, item.group))
    outlined = [(group, [outline_of(item) for item in own]) for (_, group), own in by_group]
    needed = calls_of_arguments([outline for _, outlines in outlined for outline in outlines], {*place})
    chosen, groups = {*place, *needed}, []
    for group, outlines in outlined:
        later = _later([outline.name for outline in outlines], place) if group else set()
        begin, cases = "", []
        for outline in outlines:
            begin, _, number = outline.id.rpartition("-") if group else ("", "", outline.id)
            places = [table.setdefault(getattr(outline, name), len(table)) for name, table in shared.items()]
            quick = (outline.name in chosen) + (outline.name in later)
            flags = "q" * quick + "r" * outline.related + "v" * outline.variants
            fault = [outline.fault] if outline.refusal else []
            key = int(number) if group else number
            cases.append([key, outline.dtype, *places, outline.numbers, flags, *fault])
        groups.append({"group": group, "id": f"{begin}-" if group else "", "cases": cases})
    tables = ",\n".join(f"{json.dumps(name)}: {_lines(table)}" for name, table in shared.items())
    return f'{{"shared": {{\n{tables}\n}},\n"groups": {_lines(groups)}}}\n'


def outline_of(item: Item) -> Outline:
    """Make the outline of a case. Whether it is in the quick part, only all cases of its group tell."""
    misuse = None if isinstance(item, Relation) else item.misuse
    return Outline(
        item.name,
        item.group,
        item.rules,
        item.dtype,
        misuse is not None,
        tuple(CallOutline(call.operation, _stated_arguments(call)) for call in item.calls),
        isinstance(item, Relation),
        _dtypes(item),
        misuse.argument if misuse else "",
        not isinstance(item, Relation) and bool(item.alternatives),
        *describe(item),
    )


def _stated_arguments(call: Case) -> tuple[str, ...]:
    return tuple(OPERATIONS[call.operation].stated(call.arguments))


def _later(names: list[str], place: Mapping[str, int]) -> set[str]:
    """Return the cases of a group that come after the others in the quick part, but not in the whole."""
    quick = [name for name in names if name in place]
    return {
        name
        for number, name in enumerate(quick)
        if any(place[name] > place[other] for other in quick[number + 1 :])
    }


def _dtypes(item: Item) -> tuple[str, ...]:
    """Return the dtypes that a backend needs: for a golden vector, that of its first array."""
    arrays = [
        pair for call in item.calls if call.group for pair in call.arguments.items() if is_real(pair[1])
    ]
    # An lse has a dtype that any backend takes, unless its half precision is the fault of the call.
    own = {str(x.dtype) for name, x in arrays if name not in LSES or str(x.dtype) in SHORT}
    return tuple(sorted(own | ({item.dtype} & {*DTYPES})))


def _lines(entries: Iterable[Any]) -> str:
    """Write a list with an entry on each line, so that a change of the suite changes few lines."""
    return "[\n" + ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in entries) + "\n]"
