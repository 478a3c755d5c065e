"""The pack: a small set of cases that kills the gallery, as files that need no Python (``spec/pack``)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from attnspec import OPERATIONS, __version__
from attnspec.conformance.export.calls import ExportedCall, exported_calls
from attnspec.conformance.export.formats import INDEX, RULES, VERSION, write_raw
from attnspec.conformance.gallery import wrong_entries
from attnspec.conformance.suite import items

SELECTION = Path(__file__).with_name("pack.json")
BUGS, MANIFEST, SIGNATURES = "bugs.txt", "manifest.json", "operations.txt"
#: The most elements of weights of a call of the pack.
MOST_WEIGHTS = 2**8
#: The most octets of the pack, with which it catches 95 of 100 bugs. Each bug beyond takes 100,000 or more.
MOST_OCTETS = 5_150_000


@dataclass(frozen=True)
class Selection:
    """The cases of the pack, as ``python -m tools.pack`` chose them."""

    #: The names of the cases, each with the wrong implementations that no case before it catches.
    cases: Mapping[str, tuple[str, ...]]
    #: The wrong implementations that fail only if one process makes all calls, in their order.
    in_order: tuple[str, ...] = ()
    #: The wrong implementations that the ordinary run kills and the pack does not, each with the reason.
    left: Mapping[str, str] = field(default_factory=dict)
    #: The names of cases with more weights than `MOST_WEIGHTS`, because the weights catch something.
    weights: tuple[str, ...] = ()


def read_selection(path: Path = SELECTION) -> Selection:
    """Read which cases the pack has."""
    content = json.loads(path.read_text(encoding="utf-8"))
    cases = {name: tuple(entries) for name, entries in content["cases"].items()}
    return Selection(cases, tuple(content["in_order"]), content["left"], tuple(content["weights"]))


def catches_of(selection: Selection) -> set[str]:
    """Return the names of the wrong implementations that the pack catches."""
    return {*selection.in_order, *(name for entries in selection.cases.values() for name in entries)}


def pack_calls(selection: Selection) -> Iterator[ExportedCall]:
    """Yield the calls of a selection, in the order of the suite."""
    names = {name.partition("+")[0] for name in selection.cases}
    for call in exported_calls(items(names=names), weights=MOST_WEIGHTS, of_weights=selection.weights):
        if isinstance(call, ExportedCall) and call.name in selection.cases:
            yield call


def write_pack(folder: Path, selection: Selection | None = None) -> Mapping[str, Any]:
    """Write the data of the pack to a folder, and return its manifest.

    The bytes are the same on every machine.
    """
    chosen = selection or read_selection()
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.bin"):
        path.unlink()
    written = write_raw(pack_calls(chosen), folder, chosen.cases)
    if written != len(chosen.cases):
        raise AssertionError(f"pack: expected {len(chosen.cases)} cases, got {written}")
    caught = catches_of(chosen)
    lines = [
        f"{entry.name} {entry.rule} {entry.seen or '-'} {entry.sentence}\n"
        for entry in wrong_entries()
        if entry.name in caught
    ]
    (folder / BUGS).write_text("".join(lines), encoding="utf-8", newline="\n")
    operations = sorted({call.operation for call in pack_calls(chosen)})
    text = "".join(f"{_signature(name)}\n" for name in operations)
    (folder / SIGNATURES).write_text(text, encoding="utf-8", newline="\n")
    files = sorted({*folder.glob("*.bin"), *(folder / name for name in (BUGS, INDEX, RULES, SIGNATURES))})
    manifest = {
        "format": VERSION,
        "attnspec": __version__,
        "cases": written,
        "caught": len(caught),
        "left": dict(sorted(chosen.left.items())),
        "files": {
            path.name: {"octets": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
            for path in files
        },
    }
    text = json.dumps(manifest, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8", newline="\n")
    return manifest


def _signature(name: str) -> str:
    """Write an operation on a line: its arguments with their shapes or kinds, their defaults, its results."""
    form = OPERATIONS[name]
    words = []
    for argument in form.arguments.values():
        shape = f"({','.join(argument.shape)})" if argument.shape else argument.kind
        default = "" if argument.required else f"={argument.default}".replace(" ", "")
        words.append(f"{argument.name}:{shape}{default}")
    results = [f"{result.name}{f'?{result.option}' if result.option else ''}" for result in form.results]
    return " ".join((name, *words, "->", *results))
