"""Reads files of results: expands compressed ones, and validates each line and their order."""

import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import jsonschema

from attnspec import SpecError
from attnspec.conformance.results import (
    SCHEMA,
    Footer,
    Header,
    Results,
    Run,
    Shard,
    Subject,
    gather,
    join_shards,
)
from attnspec.conformance.verdict import Verdict, from_json
from attnspec.reading import parse_json, read_bytes

#: The largest number of bytes that a compressed file may expand to.
MOST = 2**28
#: The largest amount of memory that the decompressor of xz may use. ``xz -9`` needs 65 MiB.
_MEMORY = 2**28
#: The suffixes of results files. The last two are those of compressed ones.
SUFFIXES = (".jsonl", ".jsonl.xz", ".jsonl.gz")


class _Decompressor(Protocol):
    """What the decompressors of both formats have in common."""

    @property
    def eof(self) -> bool:
        """Whether the end of the compressed data was reached."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the compressed data."""
        ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Expand data to at most a number of bytes."""
        ...


_FORMATS: dict[str, Callable[[], _Decompressor]] = {
    ".xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY),
    ".gz": lambda: zlib.decompressobj(wbits=31),
}


def read_text(path: Path, most: int = MOST) -> str:
    r"""Return the text of a file. A file that ends in ``.xz`` or ``.gz`` is decompressed."""
    data = read_bytes(path, most)
    make = _FORMATS.get(path.suffix)
    return (data if make is None else _expand(make(), data, most)).decode("utf-8")


def stem(path: Path) -> str:
    """Return the name of a results file without its folder and suffixes."""
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.stem


def _expand(decompressor: _Decompressor, data: bytes, most: int) -> bytes:
    """Expand data that must be one whole stream."""
    try:
        found = decompressor.decompress(data, most + 1)
    except (lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if len(found) > most:
        raise ValueError(f"it expands to more than {most} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("expected one whole compressed stream, got a part or several")
    return found


# Applying the schema takes ten times as long as reading. The schema restricts the names of an object and each
# of its values, and relates no two values. So a line is valid if each of its parts was part of a valid line.

#: The keywords of a schema under which any value of a type and a sign is as good as another.
_OPEN = frozenset({"description", "type", "minimum", "items"})


def parts(thing: Any, free: frozenset[str]) -> Iterator[Any]:
    """Yield the parts of a line: the names in each object, and each value or what matters of it."""
    yield from _parts(thing, free, (), is_free=False)


def _parts(thing: Any, free: frozenset[str], path: tuple[str, ...], *, is_free: bool) -> Iterator[Any]:
    if isinstance(thing, dict):
        yield path, "object", frozenset(thing)
        for name, value in thing.items():
            within = is_free or name in free
            if within and isinstance(value, str):  # most values, so that they are told without a call
                yield (*path, name), str, False
            else:
                yield from _parts(value, free, (*path, name), is_free=within)
    elif isinstance(thing, list):
        yield path, "array"
        place = (*path, "[]")
        if is_free and all(isinstance(value, str) for value in thing):
            yield place, str, False
            return
        for value in thing:
            yield from _parts(value, free, place, is_free=is_free)
    elif isinstance(thing, float):
        yield path, float, thing < 0, thing.is_integer()  # 3.0 is an integer to a schema
    elif is_free:
        yield path, type(thing), isinstance(thing, int) and thing < 0
    else:
        yield path, type(thing), thing


def free_in(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the properties that a schema restricts to types and signs wherever it names them."""
    found: dict[str, bool] = {}
    for name, its in _properties(schema):
        found[name] = found.get(name, True) and _is_open(its)
    return frozenset(name for name, is_free in found.items() if is_free)


def _is_open(schema: Mapping[str, Any]) -> bool:
    return (
        set(schema) <= _OPEN
        and "object" not in schema.get("type", ())
        and schema.get("minimum", 0) == 0
        and ("items" not in schema or _is_open(schema["items"]))
    )


def _properties(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every property that a schema names, at any depth."""
    if isinstance(schema, Mapping):
        yield from schema.get("properties", {}).items()
        for part in schema.values():
            yield from _properties(part)


#: The parts of valid lines.
_VALID: set[Any] = set()
#: The number of characters of a wrong line that are quoted.
_MOST = 200


def read(paths: Iterable[Path]) -> Results:
    """Read the results of several runs as one. The shards of a run become one run again."""
    return gather(join_shards(run for path in paths for run in runs_of(path)))


def runs_of(path: Path) -> list[Run]:
    """Read the runs of a file, which may end in ``.xz`` or ``.gz``. An incomplete last line is left out."""
    runs: list[Run] = []
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        raise SpecError(f"results: {path} is no file of results ({type(error).__name__}: {error})") from error
    for number, line in enumerate(_lines(text), start=1):
        place = f"results: {path}, line {number}"
        kind, thing = _parse(line, place)
        if isinstance(thing, Header):
            runs.append(Run(thing, source=stem(path)))
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


def _lines(text: str) -> Iterator[str]:
    """Yield the lines without the last, which is empty, or an incomplete one of an interrupted run."""
    start = 0
    while (end := text.find("\n", start)) >= 0:  # a list of many empty lines needs much memory
        yield text[start:end]
        start = end + 1


def _parse(text: str, place: str) -> tuple[str, Header | Subject | Verdict | Footer]:
    """Read one line. The schema is applied to a line that has a new part."""
    try:
        ((kind, entry),) = parse_json(text).items()
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
        **{
            **entry,
            "cases": tuple(entry["cases"]),
            "choice": tuple(entry.get("choice", ())),
            "shard": _shard(entry.get("shard"), len(entry["cases"])),
        }
    ),
    "subject": lambda entry: Subject(**entry),
    "verdict": from_json,
    "footer": lambda entry: Footer(entry["verdicts"], tuple(entry.get("unshown", ()))),
}


def _shard(entry: Mapping[str, Any] | None, cases: int) -> Shard | None:
    if entry is None:
        return None
    if len(entry["places"]) != cases or entry["number"] > entry["count"]:
        raise SpecError(f"shard: expected a place for each of {cases} cases, got {len(entry['places'])}")
    return Shard(**{**entry, "places": tuple(entry["places"])})
