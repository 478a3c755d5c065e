"""A backend that reads the answers in a folder, which another machine computed."""

import json
import math
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, SpecError, __version__
from attnspec.backends.backend import Backend, no_attention
from attnspec.backends.errors import BackendError, Broken
from attnspec.backends.library.library import array_api_library
from attnspec.backends.program.protocol import (
    as_function,
    fingerprint,
    parse_handshake,
    read_answer,
    write_call,
)
from attnspec.reading import parse_json, read_text
from attnspec.reference.numpy_namespace import xp
from attnspec.sizes import output_shapes

#: Bytes of an element of the widest dtype.
_WIDEST = 16
CALLS, ANSWERS, MANIFEST = "calls.jsonl", "answers.jsonl", "manifest.json"


def recorded_backend(name: str, folder: Path) -> Backend:
    """Make a backend from the answers in a folder."""
    manifest = _manifest(name, folder)
    first, *answers = _lines(name, folder / ANSWERS) or [""]
    said = parse_handshake(name, first)
    record = _Answers(name, folder, manifest, answers)
    offered: dict[str, list[str]] = manifest["operations"]
    functions = {
        operation: as_function(
            operation, [option for option in options if option in offered[operation]], record.run
        )
        for operation, options in said.operations.items()
        if operation in offered
    }
    dtypes = tuple(dtype for dtype in said.dtypes if dtype in manifest["dtypes"])
    if not dtypes:
        raise BackendError(
            f"backend {name}: expected answers in some of {', '.join(manifest['dtypes'])}, "
            f"got {', '.join(said.dtypes)}"
        )
    version = f"{said.name} {said.version}".strip() or "answers"
    library = array_api_library("offline", version, xp)
    attention = functions.pop("attention", no_attention)
    asked_by = frozenset(manifest["cases"])
    declared: dict[str, Any] = {"dialect": said.dialect, "claims": said.claims, "notes": said.notes}
    return Backend(name, library, attention, dtypes, functions, **declared, cases=asked_by, concurrent=False)


def cases_of(name: str, folder: Path) -> tuple[str, ...]:
    """Return the names of the exported cases; empty if they are the whole suite."""
    manifest = _manifest(name, folder)
    return () if manifest["part"] == "whole" else tuple(manifest["cases"])


class _Answers:
    """The answers, indexed by call."""

    def __init__(self, name: str, folder: Path, manifest: Mapping[str, Any], answers: list[str]) -> None:
        self._folder = folder
        self._calls: dict[str, dict[str, Any]] = {call["fingerprint"]: call for call in manifest["calls"]}
        self._answers: dict[int, str] = {}
        self._broken: dict[int, str] = {}
        self._stray = ""
        known = {call["id"] for call in manifest["calls"]}
        for place, line in enumerate(answers, start=2):
            number = _number(line)
            if number is None:
                self._stray = self._stray or f"; line {place} of {ANSWERS} is not an answer"
            elif number not in known:
                raise BackendError(
                    f"backend {name}: {ANSWERS}, line {place}: expected the id of a call in {MANIFEST}, "
                    f"got {number}"
                )
            elif number in self._answers:
                self._broken[number] = f"gave two answers to call {number}, the second in line {place}"
            else:
                self._answers[number] = line

    def run(self, operation: str, arguments: Mapping[str, Any]) -> NDArray[Any] | tuple[NDArray[Any], ...]:
        """Return the recorded result of a call."""
        call = self._calls.get(_fingerprint_of_call(operation, arguments))
        if call is None:
            raise Broken(f"was not asked this call: it is not in {MANIFEST}")
        number, place = call["id"], self._folder / call["folder"]
        want = OPERATIONS[operation].wanted(arguments)
        most = _largest_array(operation, arguments)
        for part in (*call["call"]["tensors"], *want):
            self._check(number, place / f"{part}.bin", most)
        try:
            same = fingerprint(json.dumps(call["call"]), place) == call["fingerprint"]
        except OSError as error:
            raise Broken(f"call {number}: expected its arrays as exported, got {error}") from error
        if not same:
            raise Broken(
                f"call {number}: expected its arrays as exported, got other bytes in {call['folder']}"
            )
        if number in self._broken:
            raise Broken(self._broken[number])
        if number not in self._answers:
            raise Broken(f"gave no answer to call {number} ({call['folder']}){self._stray}")
        parts = read_answer(self._answers[number], number, want, place)
        return parts if len(parts) > 1 else parts[0]

    def _check(self, number: int, path: Path, most: int) -> None:
        """Raise `Broken` if a file is not in the folder, is no file, or is too large to be of this call."""
        target = path.resolve()
        if not target.is_relative_to(self._folder.resolve()):
            raise Broken(f"call {number}: {path.name}: expected a file in the folder, got a link out of it")
        if target.exists() and not target.is_file():
            raise Broken(f"call {number}: {path.name}: expected a file, got something else")
        if target.exists() and (size := target.stat().st_size) > most:
            raise Broken(f"call {number}: {path.name}: expected at most {most} bytes, got {size}")


def _fingerprint_of_call(operation: str, arguments: Mapping[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return fingerprint(write_call(0, operation, arguments, Path(folder), ""), Path(folder))


def _manifest(name: str, folder: Path) -> dict[str, Any]:
    text = "\n".join(_lines(name, folder / MANIFEST))
    try:
        manifest = parse_json(text)
        version = manifest["attnspec"]
        complete = _is_complete(manifest)
    except (ValueError, TypeError, KeyError, AttributeError):
        complete, version = False, ""
    if not complete:
        raise BackendError(
            f"backend {name}: {MANIFEST}: expected the file that attnspec export wrote, got other contents"
        )
    if version != __version__:
        raise BackendError(
            f"backend {name}: {MANIFEST}: expected calls exported by attnspec {__version__}, got {version}"
        )
    assert isinstance(manifest, dict)  # noqa: S101 - for the type checker
    return manifest


def _largest_array(operation: str, arguments: Mapping[str, Any]) -> int:
    """Return the most bytes that an array of a call can have: a result may have the widest dtype."""
    given = [value.nbytes for value in arguments.values() if isinstance(value, np.ndarray)]
    with suppress(SpecError):  # a malformed call has no results of a known shape
        given += [math.prod(shape) * _WIDEST for shape in output_shapes(operation, arguments).values()]
    return max(given, default=0)


def _is_complete(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest has everything that is read, in the types that it is read in."""
    names = [*manifest["dtypes"], *manifest["cases"], *manifest["operations"], manifest["part"]]
    names += [option for options in manifest["operations"].values() for option in options]
    for call in manifest["calls"]:
        names += [call["fingerprint"], call["folder"], call["call"]["operation"], *call["call"]["tensors"]]
        if type(call["id"]) is not int or not isinstance(call["call"]["options"], dict):
            return False
    return all(isinstance(name, str) for name in names)


def _lines(name: str, path: Path) -> list[str]:
    try:
        return read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BackendError(f"backend {name}: expected {path} to be a text file, got {error}") from error


def _number(line: str) -> int | None:
    try:
        number = json.loads(line)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return number if type(number) is int else None
