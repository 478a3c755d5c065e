"""The golden vectors, which are the cases of `spec/vectors` with their proven values, and cases as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec.case import Alternative, Case, Figure, Misuse, Provenance
from attnspec.errors import SpecError
from attnspec.operations import OPERATIONS
from attnspec.rule import CHAPTERS
from attnspec.schema import SCHEMA, SPELLINGS, VECTORS, parsed, read, spell


def to_json(case: Case) -> dict[str, Any]:
    """Convert a case to an entry of a vector file. Fields with their default are left out."""
    entry: dict[str, Any] = {
        "id": case.id,
        "title": case.title,
        "operation": case.operation,
        "rules": list(case.rules),
        "provenance": asdict(case.provenance),
        "arguments": spelled(case.arguments),
    }
    if case.expected:
        entry["expected"] = spelled(case.expected)
    if case.alternatives:
        entry["alternatives"] = [
            {"rule": other.rule, "variant": other.variant, "expected": spelled(other.expected)}
            for other in case.alternatives
        ]
    if case.misuse is not None:
        entry["misuse"] = {name: _plain(thing) for name, thing in asdict(case.misuse).items() if thing}
    if case.figures:
        entry["figures"] = [_of_figure(figure) for figure in case.figures]
    others = {"group": case.group, "outputs": list(case.outputs), "layout": dict(case.layout)}
    return entry | {name: thing for name, thing in others.items() if thing}


def from_json(entry: Mapping[str, Any]) -> Case:
    """Make a case from the result of `to_json`. Its id begins with its chapter."""
    chapter = str(entry["id"]).partition("-")[0]
    if chapter not in CHAPTERS:
        raise SpecError(f"case {entry['id']}: expected an id that begins with a chapter, got {chapter!r}")
    case = case_of(chapter, entry)
    judged = OPERATIONS[case.operation].judged(case.arguments, case.outputs)
    if case.expected and not {*case.expected} >= {*judged}:
        raise SpecError(
            f"case {case.id}: expected values of {', '.join(judged)}, got {', '.join(case.expected)}"
        )
    return case


def case_of(chapter: str, entry: Mapping[str, Any]) -> Case:
    """Make a case from an entry of a vector file, or of a file of that form."""
    misuse = entry.get("misuse")
    return Case(
        id=entry["id"],
        title=entry["title"],
        chapter=chapter,
        operation=entry["operation"],
        rules=tuple(entry["rules"]),
        arguments=decode(entry["arguments"]),
        provenance=Provenance(**entry["provenance"]),
        expected=decode(entry.get("expected", {})),
        alternatives=tuple(
            Alternative(other["rule"], other["variant"], decode(other["expected"]))
            for other in entry.get("alternatives", ())
        ),
        misuse=misuse and Misuse(**{**misuse, "named": tuple(misuse.get("named", ()))}),
        figures=tuple(_figure(figure) for figure in entry.get("figures", ())),
        group=entry.get("group", ""),
        outputs=tuple(entry.get("outputs", ())),
        layout=entry.get("layout", {}),
    )


def decode(group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the arguments or values of a case from the form of a vector file."""
    return MappingProxyType({name: _decoded(thing) for name, thing in group.items()})


def array(tensor: Mapping[str, Any]) -> NDArray[Any]:
    """Return the array that a vector file represents, read-only."""
    numbers = [_number(x) for x in tensor["data"]]
    result = np.array(numbers, dtype=tensor["dtype"]).reshape(tensor["shape"])
    result.flags.writeable = False
    return result


def _number(spelled: Any) -> Any:
    if isinstance(spelled, list):
        return complex(*map(_number, spelled))
    return SPELLINGS[spelled] if isinstance(spelled, str) else spelled


def write_cases(cases: list[Case], path: Path) -> None:
    """Write cases to a file in the form of the vector files."""
    text = json.dumps({"cases": [to_json(case) for case in cases]}, indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def read_cases(path: Path) -> list[Case]:
    """Read the cases of a file that `write_cases` wrote, or of a vector file."""
    return [from_json(entry) for entry in read(path, complete=False)["cases"]]


def spelled(group: Mapping[str, Any]) -> dict[str, Any]:
    """Convert arrays and numbers, by name, to what JSON can represent."""
    return {name: _tensor(x) if isinstance(x, np.ndarray) else _plain(x) for name, x in group.items()}


def _tensor(array: Any) -> dict[str, Any]:
    # Integers and booleans stay; a short float is converted to the equal float64; a complex number is a pair.
    plain = array if array.dtype.kind in "biuc" else array.astype(np.float64)
    data = [_plain(number) for number in plain.ravel().tolist()]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}


def _plain(thing: Any) -> Any:
    if isinstance(thing, tuple):
        return [_plain(part) for part in thing]
    if isinstance(thing, np.generic):
        thing = thing.item()
    if isinstance(thing, complex):
        return [spell(thing.real), spell(thing.imag)]
    return spell(thing) if isinstance(thing, float) else thing


def _of_figure(figure: Figure) -> dict[str, Any]:
    shown = {field.name: (getattr(figure, field.name), field.default) for field in fields(figure)}
    return {name: _plain(thing) for name, (thing, default) in shown.items() if thing != default}


def _decoded(thing: Any) -> Any:
    if isinstance(thing, dict):
        return array(thing)
    if isinstance(thing, list):
        return tuple(thing)
    return SPELLINGS.get(thing, thing) if isinstance(thing, str) else thing


def _figure(entry: Mapping[str, Any]) -> Figure:
    settled: dict[str, Any] = {
        name: tuple(thing) if isinstance(thing, list) else thing for name, thing in entry.items()
    }
    return Figure(**settled)


@cache
def cases(folder: Path = VECTORS) -> tuple[Case, ...]:
    """Return every golden vector, chapter by chapter.

    Parameters
    ----------
    folder : Path, optional
        The folder of the vector files, by default that of the standard.

    Raises
    ------
    SpecError
        If a file is malformed, does not belong to a chapter, or repeats an id.

    Examples
    --------
    >>> from attnspec import cases
    >>> case = cases()[0]
    >>> case.chapter, case.operation
    ('notation', 'attention')
    """
    results: list[Case] = []
    for path in sorted(folder.glob("*.json"), key=_reading_order):
        if path.name != SCHEMA:
            results.extend(cases_of(path.stem) if folder == VECTORS else load(path))
    if not results:
        raise SpecError(f"vectors: expected CHAPTER.json in {folder.name}/, got no vector file")
    ids = [case.id for case in results]
    for twice in sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise SpecError(f"case {twice}: expected one case of this id, got {ids.count(twice)}")
    return tuple(results)


@cache
def cases_of(chapter: str) -> tuple[Case, ...]:
    """Return the golden vectors of a chapter; empty if it has none."""
    path = VECTORS / f"{chapter}.json"
    # The linter and the tests validate our own files. Validating them here would take a second.
    return tuple(load(path, validated=True)) if path.exists() else ()


def find_case(case_id: str) -> Case:
    """Return the golden vector of an id.

    Raises
    ------
    SpecError
        If there is none.

    Examples
    --------
    >>> from attnspec import find_case
    >>> find_case("scores-000").expected["scores"].shape
    (3, 3)
    """
    for case in cases():
        if case.id == case_id:
            return case
    near = ", ".join(get_close_matches(case_id, [case.id for case in cases()], cutoff=0))
    raise SpecError(f"case: expected an id such as {near}, got {case_id!r}")


def load(path: Path, *, validated: bool = False) -> list[Case]:
    """Read the cases of one vector file.

    Parameters
    ----------
    path : Path
    validated : bool, optional
        Whether the file is known to fit the schema.

    Raises
    ------
    SpecError
        If the file cannot be read or does not fit the schema.
    """
    if path.stem not in CHAPTERS:
        raise SpecError(
            f"vectors: expected a file named after a chapter ({', '.join(CHAPTERS)}), got {path.name}"
        )
    document = parsed(path) if validated else read(path)
    return [case_of(path.stem, entry) for entry in document["cases"]]


def _reading_order(path: Path) -> tuple[int, str]:
    place = CHAPTERS.index(path.stem) if path.stem in CHAPTERS else len(CHAPTERS)
    return place, path.name
