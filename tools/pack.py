"""``python -m tools.pack``: chooses the cases of the pack by what they kill, and writes ``pack.json``.

The pack has all golden vectors. Other cases are added by what they kill, judged by the reader in Python that
the pack has, ``spec/pack/judge.py``: the cases that are stored as kills of the gallery, and, for entries that
none of these kills, the small cases of their rules.
"""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import click
import numpy as np

from attnspec import CHAPTERS, cases, find_rule
from attnspec.backends import Backend
from attnspec.conformance.export.calls import ExportedCall, exported_calls
from attnspec.conformance.export.formats import INDEX, write_raw
from attnspec.conformance.export.pack import (
    MOST_OCTETS,
    MOST_WEIGHTS,
    SELECTION,
    Selection,
    catches_of,
    pack_calls,
    read_selection,
)
from attnspec.conformance.export.write import elements
from attnspec.conformance.gallery import Entry, entry
from attnspec.conformance.gallery.kills import read_kills
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import find, items
from attnspec.dtypes import numpy_dtype

#: The parts into which the cases are divided for the processes.
_PARTS = 16
#: The most elements of a candidate that no stored kill names.
_SMALL = 2000
#: The most elements of any candidate.
_MOST = 150_000
#: A part of the octets that is kept for the page, the readers, and the list of bugs.
_OTHER_FILES = 340_000
#: A call with plain arguments, more keys than any tile, and an odd number of them.
_ALWAYS = "numerics-long-sums-in-half-precision-2049-1-bfloat16"
#: The file of the selection in the checkout; the package may be a copy.
PATH = Path(__file__).parents[1] / "conformance" / "export" / SELECTION.name


def reader() -> ModuleType:
    """Import the reader of the pack, which is no part of the package."""
    spec = spec_from_file_location("pack_judge", Path(__file__).parents[1] / "spec" / "pack" / "judge.py")
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 - for the type checker
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kills_of(case: Mapping[str, Any], entries: Iterable[Entry], judge: ModuleType) -> Iterator[str]:
    """Name the entries that a case kills, in float32, in float64, or in the shortest dtype of the call."""
    alive = list(entries)
    for dtype in dict.fromkeys(["float32", "float64", case["dtypes"][0]]):
        if dtype not in case["dtypes"]:
            continue
        accuracy = "cast" if dtype in judge.LSE else "full"
        noted = {wrong.name for wrong in alive if wrong.rule == "NUM-4"}
        groups: dict[tuple[str, ...], list[Entry]] = {}
        for wrong in alive:
            if wrong.name not in noted:
                groups.setdefault(wrong.lacks, []).append(wrong)
        for lacks, members in groups.items():
            plain = replace(entry("plain"), lacks=lacks)
            beside, different = plain.beside(members)
            if _problem(case, beside, dtype, accuracy, judge):
                # An entry changed what the others were given.
                different = {wrong.name for wrong in members}
                if said := _problem(case, plain.backend(), dtype, accuracy, judge):
                    raise AssertionError(
                        f"{case['name']}: expected the reference to pass in {dtype}, got {said}"
                    )
            noted |= different
        for wrong in [wrong for wrong in alive if wrong.name in noted]:
            if _problem(case, wrong.backend(), dtype, accuracy, judge):
                alive.remove(wrong)
                yield wrong.name


def _problem(case: Mapping[str, Any], backend: Backend, dtype: str, accuracy: str, judge: ModuleType) -> str:
    function = backend.function(case["operation"])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return judge.judge(case, function, dtype, accuracy) or "" if function else ""


def choose(octets: Mapping[str, int], kills: Mapping[str, set[str]], most: int) -> dict[str, tuple[str, ...]]:
    """Choose cases by the octets that each new kill costs, until all are killed or the octets are spent."""
    chosen: dict[str, tuple[str, ...]] = {}
    left, spent = set().union(*kills.values()), 0
    while left:
        best = min(
            (name for name in kills if kills[name] & left),
            key=lambda name: octets[name] / len(kills[name] & left),
        )
        spent += octets[best]
        if spent > most:
            break
        chosen[best] = tuple(sorted(kills[best] & left))
        left -= kills[best]
    return chosen


def measure(
    names: Iterable[str], entries: Iterable[str], *, most: int, workers: int
) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Measure the octets of the calls of some cases, and what each of them kills."""
    with TemporaryDirectory() as folder:
        write_raw(_calls(names, most=most), Path(folder))
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            parts = [
                pool.submit(_kills_of_part, folder, part, _PARTS, tuple(entries)) for part in range(_PARTS)
            ]
            kills = {name: found for part in parts for name, found in part.result().items()}
        return _octets(Path(folder)), kills


def _calls(names: Iterable[str], *, most: int) -> Iterator[ExportedCall]:
    """Yield the calls of some cases that have at most a number of elements."""
    for call in exported_calls(items(names=set(names)), weights=MOST_WEIGHTS):
        if isinstance(call, ExportedCall) and elements(call) <= most:
            yield call


def _kills_of_part(folder: str, part: int, parts: int, names: tuple[str, ...]) -> dict[str, set[str]]:
    judge, wrong = reader(), [entry(name) for name in names]
    cases = [case for number, case in enumerate(judge.read(Path(folder))) if number % parts == part]
    return {case["name"]: set(kills_of(case, wrong, judge)) for case in cases}


def _octets(folder: Path) -> dict[str, int]:
    """Count the octets of each case: its lines, and its arrays as if no other case had them."""
    octets: dict[str, int] = {}
    name, size = "", 0
    for line in (folder / INDEX).read_text(encoding="utf-8").splitlines():
        word, *rest = line.split(" ")
        if word == "case":
            name = rest[0]
        octets[name] = octets.get(name, 0) + len(line) + 1
        if word in ("array", "output"):
            size = prod(map(int, rest[5:] if word == "array" else rest[6:]))
        if word in ("array", "output", "allowed"):
            stored = rest[{"array": 2, "output": 3, "allowed": 2}[word]]
            octets[name] += size * numpy_dtype(stored).itemsize
    return octets


def kill_in_order(selection: Selection, names: Iterable[str]) -> Iterator[str]:
    """Name the entries that fail a case of the pack after the calls before it."""
    with TemporaryDirectory() as folder:
        write_raw(pack_calls(selection), Path(folder))
        cases = list(reader().read(Path(folder)))
    for name in names:
        judge = reader()  # with its own memory
        backend = entry(name).backend()
        if any(_problem(case, backend, case["dtypes"][-1], "full", judge) for case in cases):
            yield name


def _existing(selection: Selection) -> Selection:
    """Leave out the cases that no call of the suite has, or that repeat the call of another."""
    exists = {call.name for call in pack_calls(selection)}
    kept = {name: entries for name, entries in selection.cases.items() if name in exists}
    return Selection(kept, weights=selection.weights)


def _reason(name: str) -> str:
    """Say why the cases that kill an entry are not in the pack."""
    kill = read_kills()[name]
    item = find(kill.case or kill.other)
    if isinstance(item, Relation):
        return "repeated or related calls"
    return "strides" if item.layout else "large calls"


@click.command()
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--add", is_flag=True, help="Keep the cases, and add some for what they do not catch.")
def main(*, workers: int, add: bool) -> None:
    """Choose the cases of the pack, and write them to ``pack.json``."""
    stored = read_kills()
    ordinary = [name for name, kill in stored.items() if kill.ordinary]
    before = read_selection() if add else Selection({})
    before = _existing(before)  # names change where groups of cases do
    alive = sorted({*ordinary} - {name for names in before.cases.values() for name in names})
    known = {stored[name].case or stored[name].other for name in alive}
    known |= set() if add else {case.id for case in cases()}
    octets, kills = measure(known, alive, most=_MOST, workers=workers)
    alive = sorted({*alive}.difference(*kills.values()))
    rules = {entry(name).rule for name in alive}
    more = {item.name for item in items() if rules.intersection(item.rules)} - {*kills}
    for found, other in zip((octets, kills), measure(more, alive, most=_SMALL, workers=workers), strict=True):
        found.update(other)
    golden = {call.name: () for call in _calls({_ALWAYS, *(case.id for case in cases())}, most=_MOST)}
    always = Selection({**golden, **before.cases}, weights=before.weights)
    with TemporaryDirectory() as folder:
        write_raw(pack_calls(always), Path(folder))
        room = MOST_OCTETS - _OTHER_FILES - sum(path.stat().st_size for path in Path(folder).iterdir())
    more = choose({**octets, **dict.fromkeys(golden, 0)}, kills, room)
    chosen = Selection({**always.cases, **more}, weights=before.weights)
    chosen = _existing(chosen)  # a golden vector and another case may be one call
    in_order = tuple(kill_in_order(chosen, sorted({*ordinary} - catches_of(chosen))))
    caught = {*in_order} | catches_of(chosen)
    left = {name: _reason(name) for name in ordinary if name not in caught}
    chosen = replace(chosen, in_order=in_order, left=left)
    PATH.write_text(json.dumps(asdict(chosen), indent=1) + "\n", encoding="utf-8", newline="\n")
    click.echo(f"{len(chosen.cases)} cases catch {len(caught)} of {len(ordinary)} entries")
    for chapter in CHAPTERS:
        own = [name for name in ordinary if find_rule(entry(name).rule).chapter == chapter]
        click.echo(f"{chapter}: {sum(name in caught for name in own)} of {len(own)}")


if __name__ == "__main__":
    main()
