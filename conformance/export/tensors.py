"""The forms for programs with libraries: NumPy's npz, safetensors, and lines of JSON."""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import SpecError
from attnspec.case_json import spelled
from attnspec.conformance.export.index import arrays, cited, head, options
from attnspec.conformance.export.judged import Judged

INDEX = "cases.json"
LINES = "cases.jsonl"


def write_lines(found: Iterable[Judged], folder: Path) -> int:
    """Write each case as a line of JSON with all its arrays, and return the number of cases."""
    number = 0
    with (folder / LINES).open("w", encoding="ascii", newline="\n") as to:
        to.write(json.dumps(head()) + "\n")
        for one in found:
            number += 1
            entry = described(one) | {"arrays": spelled(arrays(one))}
            for output in one.outputs:
                values = {"expected": output.expected, "allowed": output.allowed}
                entry["outputs"][output.name] |= spelled(values)
            to.write(json.dumps(entry, allow_nan=False) + "\n")
    return number


def write_npz(found: Iterable[Judged], folder: Path) -> int:
    """Write the arrays of each chapter as one file of NumPy, and an index.

    NumPy reads a bfloat16 array back as two bytes for each element.
    """
    return _write(
        found, folder, "npz", lambda path, tensors: np.savez(path, allow_pickle=False, **dict(tensors))
    )


def write_safetensors(found: Iterable[Judged], folder: Path) -> int:
    """Write the arrays of each chapter as one file of safetensors, and an index."""
    try:
        from safetensors.numpy import save_file
    except ModuleNotFoundError as error:
        raise SpecError("format: safetensors is not installed; pip install 'attnspec[vectors]'") from error
    return _write(found, folder, "safetensors", lambda path, tensors: save_file(dict(tensors), path))


def described(one: Judged) -> dict[str, Any]:
    """Describe a case without its arrays.

    Examples
    --------
    >>> from attnspec.conformance.export.judged import judged
    >>> from attnspec.conformance.export.tensors import described
    >>> from attnspec.conformance.suite import find
    >>> case, *_ = judged([find("masking-causal-square-float32")])
    >>> described(case)["options"], described(case)["rules"][0]["id"]
    ({'is_causal': True}, 'MASK-3')
    """
    return {
        "name": one.name,
        "title": one.title,
        "operation": one.operation,
        "dtype": one.dtype,
        "rules": [
            {"id": rule.id, "level": rule.level, "link": rule.link, "levels": list(rule.levels)}
            for rule in map(cited, one.rules)
        ],
        "refusal": one.refusal,
        "at_fault": list(one.at_fault),
        "options": spelled({name: thing for name, _, thing in options(one)}),
        "outputs": {output.name: {"dtypes": list(output.dtypes)} for output in one.outputs},
    }


def _write(
    found: Iterable[Judged],
    folder: Path,
    kind: str,
    save: Callable[[Path, Mapping[str, NDArray[Any]]], None],
) -> int:
    entries = []
    for chapter, cases in groupby(found, key=lambda one: one.name.partition("-")[0]):
        tensors: dict[str, NDArray[Any]] = {}
        place = folder / f"{chapter}.{kind}"
        for one in cases:
            entries.append(described(one) | {"file": place.name})
            parts = {f"arguments/{name}": array for name, array in arrays(one).items()}
            for output in one.outputs:
                parts[f"expected/{output.name}"] = output.expected
                parts[f"allowed/{output.name}"] = output.allowed
            tensors |= {f"{one.name}/{name}": np.array(array, order="C") for name, array in parts.items()}
        if place.exists():
            raise SpecError(
                f"cases: expected those of {chapter} one after the other, got others between them"
            )
        save(place, tensors)
    (folder / INDEX).write_text(
        json.dumps({**head(), "cases": entries}, indent=1, allow_nan=False) + "\n",
        encoding="ascii",
        newline="\n",
    )
    return len(entries)
