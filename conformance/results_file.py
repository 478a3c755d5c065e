"""Reads a file of results, and validates each line against the schema and the order of lines."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

from attnspec import SpecError
from attnspec.conformance.packed import bare, text_of
from attnspec.conformance.results import SCHEMA, Footer, Header, Run, Subject
from attnspec.conformance.results_parts import free_in, parts
from attnspec.conformance.verdict import Verdict, from_json

#: The parts of valid lines.
_VALID: set[Any] = set()
#: The number of characters of a wrong line that are quoted.
_MOST = 200


def runs_of(path: Path) -> list[Run]:
    """Read the runs of a file, which may end in ``.xz`` or ``.gz``. An incomplete last line is left out."""
    runs: list[Run] = []
    try:
        lines = text_of(path).split("\n")
    except (OSError, ValueError) as error:
        raise SpecError(f"results: {path} is no file of results ({type(error).__name__}: {error})") from error
    lines.pop()  # empty, or an incomplete line of an interrupted run
    for number, text in enumerate(lines, start=1):
        place = f"results: {path}, line {number}"
        kind, thing = _thing(text, place)
        if isinstance(thing, Header):
            runs.append(Run(thing, source=bare(path)))
            continue
        if not runs or runs[-1].ended:
            raise SpecError(f"{place}: expected a header, got a {kind}")
        runs[-1].add(thing)
        came = len(runs[-1].verdicts)
        if isinstance(thing, Footer) and thing.verdicts != came:
            raise SpecError(f"{place}: expected {thing.verdicts} verdicts before it, got {came}")
    if not runs:
        raise SpecError(f"results: {path}: expected a header in its first line, got no whole line")
    return runs


def _thing(text: str, place: str) -> tuple[str, Header | Subject | Verdict | Footer]:
    """Read one line. The schema is applied to a line that has a new part."""
    try:
        ((kind, entry),) = json.loads(text).items()
        if kind in _KINDS:
            if kind == "header" and entry.get("schema") != SCHEMA:
                raise SpecError(f"{place}: expected schema {SCHEMA}, got {entry.get('schema')!r}")
            found = {*parts({kind: entry}, _free())}
            if not found <= _VALID:
                _schema().validate({kind: entry})
                _VALID.update(found)
            return kind, _KINDS[kind](entry)
    except jsonschema.ValidationError as error:
        where = ".".join(map(str, error.absolute_path))
        raise SpecError(f"{place}: {where}: {_short(error.message)}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"{place} is no line of results ({type(error).__name__}: {error})") from error
    raise SpecError(f"{place}: expected {', '.join(_KINDS)}, got {_short(kind)}")


def _short(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


@cache
def _free() -> frozenset[str]:
    return free_in(_schema().schema)


@cache
def _schema() -> jsonschema.Draft202012Validator:
    path = Path(__file__).parent / "results.schema.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


_KINDS: Mapping[str, Callable[[dict[str, Any]], Header | Subject | Verdict | Footer]] = {
    "header": lambda entry: Header(
        **{**entry, "cases": tuple(entry["cases"]), "choice": tuple(entry.get("choice", ()))}
    ),
    "subject": lambda entry: Subject(**entry),
    "verdict": from_json,
    "footer": lambda entry: Footer(**entry),
}
