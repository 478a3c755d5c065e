"""Exports the golden vectors as binary files, for programs without a JSON parser."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnspec import Case, SpecError
from attnspec.spelling import spell

FORMATS = ("safetensors", "npz")


def export(found: Iterable[Case], folder: Path, kind: str = "safetensors") -> list[Path]:
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
    for case in found:
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
