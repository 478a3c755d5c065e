"""Writes, checks and exports the golden vectors."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case, SpecError
from attnspec.golden import decode
from attnspec.reference.exact.balls import Settled
from attnspec.reference.exact.evaluate import evaluate
from attnspec.schema import SCHEMA, read, spell


@dataclass(frozen=True)
class Rewritten:
    """The new content of a vector file, and the cases whose values change."""

    path: Path
    text: str
    stale: bool
    changed: tuple[str, ...]


def rewrite(folder: Path, only: str | None = None) -> list[Rewritten]:
    """Compute the new content of every vector file of a folder. Nothing is written."""
    paths = sorted(path for path in folder.glob("*.json") if path.name != SCHEMA)
    documents = {path: read(path, complete=False) for path in paths}
    ids = [entry["id"] for document in documents.values() for entry in document["cases"]]
    if only is not None and only not in ids:
        raise SpecError(f"case: expected one of {', '.join(ids)}, got {only!r}")
    results = []
    for path, document in documents.items():
        entries = [_recompute(entry) if only in (None, entry["id"]) else entry for entry in document["cases"]]
        changed = [
            f"{new['id']} ({', '.join(new['rules'])})"
            for old, new in zip(document["cases"], entries, strict=True)
            if "expected" in old
            and (old["expected"], old.get("alternatives")) != (new["expected"], new.get("alternatives"))
        ]
        text = dump({"cases": entries})
        stale = text != path.read_text(encoding="utf-8")
        results.append(Rewritten(path, text, stale, tuple(changed)))
    return results


def _recompute(entry: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return recompute(entry)
    except (KeyError, ValueError, TypeError, ArithmeticError) as error:
        raise SpecError(f"case {entry['id']}: {type(error).__name__}: {error}") from error


def recompute(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Add the exact values to a case of a vector file."""
    arguments = decode(entry["arguments"])
    entry = dict(entry)
    if "misuse" in entry:
        return entry
    entry |= _proof(evaluate(entry["operation"], arguments))
    if "alternatives" in entry:
        entry["alternatives"] = [
            {"rule": other["rule"], "variant": other["variant"]}
            | _proof(evaluate(entry["operation"], arguments, other["variant"]))
            for other in entry["alternatives"]
        ]
    return entry


def _proof(results: Mapping[str, Settled]) -> dict[str, Any]:
    radii = [settled.radius for settled in results.values() if settled.radius is not None]
    return {
        "expected": {name: tensor(settled.values) for name, settled in results.items()},
        "proof": {
            "bits": max(settled.bits for settled in results.values()),
            "radius": f"2^{max(radii)}" if radii else "0",
        },
    }


def tensor(values: NDArray[Any]) -> dict[str, Any]:
    """Return an array as a vector file spells it."""
    data = [spell(number) for number in values.ravel().tolist()]
    return {"dtype": str(values.dtype), "shape": list(values.shape), "data": data}


#: The order of a case's keys in a file.
_ORDER = ("id", "title", "operation", "rules", "provenance", "arguments", "misuse", "expected", "proof")


def dump(document: Mapping[str, Any]) -> str:
    """Return a vector file in its canonical form, with a line for each row of an array."""
    cases = ",\n".join(_dump_case(entry) for entry in document["cases"])
    return f'{{"cases": [\n{cases}\n]}}\n'


def _dump_case(entry: Mapping[str, Any]) -> str:
    names = [name for name in _ORDER if name in entry] + sorted(set(entry) - set(_ORDER))
    lines = ",\n".join(f'  "{name}": {_dump(entry[name], "  ")}' for name in names)
    return f" {{\n{lines}\n }}"


def _dump(thing: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(thing, dict) and "data" in thing:
        shape = json.dumps(thing["shape"])
        rows = ",\n".join(inner + row for row in _rows(thing["data"], thing["shape"]))
        opening = f'{{"dtype": "{thing["dtype"]}", "shape": {shape}, "data": ['
        return f"{opening}\n{rows}\n{indent}]}}" if rows else f"{opening}]}}"
    if isinstance(thing, dict) and any(isinstance(inside, dict) for inside in thing.values()):
        lines = ",\n".join(
            f"{inner}{json.dumps(name)}: {_dump(inside, inner)}" for name, inside in thing.items()
        )
        return f"{{\n{lines}\n{indent}}}"
    if isinstance(thing, list) and any(isinstance(inside, dict) for inside in thing):
        lines = ",\n".join(inner + _dump(inside, inner) for inside in thing)
        return f"[\n{lines}\n{indent}]"
    return json.dumps(thing, ensure_ascii=False)


def _rows(data: list[Any], shape: list[int]) -> Iterable[str]:
    width = shape[-1] if shape else 1
    for start in range(0, len(data), max(width, 1)):
        yield json.dumps(data[start : start + width])[1:-1]


FORMATS = ("safetensors", "npz")


def export(results: Iterable[Case], folder: Path, kind: str = "safetensors") -> list[Path]:
    """Write each case as one file, and a manifest of everything that is not an array.

    Tensors are named ``arguments/query``, ``expected/output``,
    ``alternatives/MASK-6/uniform/output``. The manifest, ``manifest.json``, holds
    for each case id its operation, rules, title, the arguments that are not arrays
    (spelled as in the vectors: a window as a list, infinity in quotes), and the
    argument at fault in a misuse.
    """
    if kind not in FORMATS:
        raise SpecError(f"format: expected one of {', '.join(FORMATS)}, got {kind!r}")
    folder.mkdir(parents=True, exist_ok=True)
    manifest, paths = {}, []
    for case in results:
        path = folder / f"{case.id}.{kind}"
        _save(path, _tensors(case), kind)
        paths.append(path)
        manifest[case.id] = {
            "file": path.name,
            "title": case.title,
            "operation": case.operation,
            "rules": list(case.rules),
            "scalars": {
                name: spell(x) if isinstance(x, float) else x  # a window, a tuple, is a list in JSON
                for name, x in case.arguments.items()
                if not isinstance(x, np.ndarray)
            },
            "misuse": case.misuse.argument if case.misuse else None,
        }
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest, indent=1, allow_nan=False) + "\n", encoding="utf-8", newline="\n")
    return [*paths, path]


def _tensors(case: Case) -> dict[str, Any]:
    groups: list[tuple[str, Mapping[str, Any]]] = [("arguments", case.arguments), ("expected", case.expected)]
    groups += [(f"alternatives/{other.rule}/{other.variant}", other.expected) for other in case.alternatives]
    return {
        f"{group}/{name}": np.array(x, order="C")
        for group, things in groups
        for name, x in things.items()
        if isinstance(x, np.ndarray)
    }


def _save(path: Path, tensors: dict[str, Any], kind: str) -> None:
    if kind == "npz":
        np.savez(path, **tensors)
        return
    try:
        from safetensors.numpy import save_file
    except ModuleNotFoundError as error:
        raise SpecError("format: safetensors is not installed; pip install 'attnspec[vectors]'") from error
    save_file(tensors, path)
