"""Reads the file of known failures, and writes it from the results of a run."""

import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from attnspec import SpecError, rules
from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.known_failures import KINDS, Known, find_known, fits, is_pattern, kind
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.files import write_whole
from attnspec.conformance.render.text import finding
from attnspec.conformance.results import Results
from attnspec.conformance.verdict import Verdict

_HEAD = """\
# Known failures of the attnspec suite. They are reported, but do not fail a run. An entry whose cases
# no longer fail is an error. Give each entry a reason, and a link to its issue.
# An entry without cases covers all failures of its kind under its rule. Cases and backends may be patterns.
"""
#: The parts of the suite that a file may be written from. It then lacks the other cases.
_PARTS = ("quick", "level", "chosen")
_NEEDED, _KEYS = {"rule", "backend", "status", "reason"}, {"link", "cases"}


def read_known(path: Path) -> tuple[Known, ...]:
    """Read a file of known failures."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SpecError(f"known failures: expected {path} to be TOML, got {one_line(str(error))}") from error
    entries = document.get("known", [])
    if set(document) - {"known", "part"} or not isinstance(entries, list):
        got = one_line(", ".join(document))
        raise SpecError(f"known failures: {path}: expected only entries [[known]], got {got}")
    part = document.get("part", "")
    if part not in ("", *_PARTS):
        got = one_line(repr(part))
        raise SpecError(f"known failures: {path}: part: expected one of {', '.join(_PARTS)}, got {got}")
    return tuple(_entry(path, number, entry, part) for number, entry in enumerate(entries, start=1))


def _entry(path: Path, number: int, entry: object, part: str) -> Known:
    place = f"known failures: {path}, entry {number}"
    if not isinstance(entry, dict) or not _NEEDED <= set(entry) <= _NEEDED | _KEYS:
        got = one_line(", ".join(entry) if isinstance(entry, dict) else repr(entry))
        raise SpecError(
            f"{place}: expected rule, backend, status, reason, and optionally link and cases, got {got}"
        )
    for key in (_NEEDED | _KEYS) - {"cases"}:
        text = entry.get(key, "")
        if not isinstance(text, str) or (key in _NEEDED and not text.strip()):
            raise SpecError(f"{place}: {key}: expected a text, got {one_line(repr(text))}")
    if entry["rule"] not in {rule.id for rule in rules()}:
        raise SpecError(f"{place}: rule: expected one of the standard, got {one_line(repr(entry['rule']))}")
    if entry["status"] not in KINDS:
        got = one_line(repr(entry["status"]))
        raise SpecError(f"{place}: status: expected one of {', '.join(KINDS)}, got {got}")
    cases = entry.get("cases", ["*"])
    if not isinstance(cases, list) or not cases or not all(isinstance(case, str) and case for case in cases):
        raise SpecError(
            f"{place}: cases: expected names of cases, or no key cases, got {one_line(repr(cases))}"
        )
    return Known(**{**entry, "cases": tuple(entry.get("cases", ())), "part": part})


def write_known(path: Path, results: Results, before: Sequence[Known] = ()) -> tuple[int, tuple[str, ...]]:
    """Write all failures of a run as known failures.

    Entries that still apply are kept. Entries about other backends and about cases that were not
    judged are kept too. A backend that was not judged completely gets no entries. If there is no
    other backend, nothing is written.
    """
    subjects = results.subjects
    cut = [one for one in subjects if one.problem or results.missing.get(one.name)]
    problems = tuple(one.problem or f"backend {one.name}: it was not judged whole" for one in cut)
    judged = {one.name for one in subjects if one not in cut}
    if not judged:
        return 0, problems
    verdicts = [verdict for verdict in results.verdicts if verdict.backend in judged]
    whole = results.whole and all(header.seed is None for header in results.headers)
    kept = [*_kept(dict.fromkeys(before), judged, verdicts, whole=whole)]
    failing = [verdict for verdict in verdicts if verdict.bad and about(verdict)]
    entries = (*kept, *_new([verdict for verdict in failing if find_known(verdict, kept) is None]))
    part = next((one.part for one in before), _part(results)) if not results.whole else ""
    head = [_HEAD, *([f'part = "{part}"  # of the suite, that this was written from', ""] if part else [])]
    write_whole(path, "\n".join([*head, *(line for entry in entries for line in _lines(entry))]))
    return len(entries), problems


def _part(results: Results) -> str:
    """Return the part of the suite that was run, or the smallest of several."""
    parts = {header.part for header in results.headers}
    return next((part for part in reversed(_PARTS) if part in parts), "")


def _kept(
    before: Sequence[Known] | dict[Known, None], judged: set[str], verdicts: Sequence[Verdict], *, whole: bool
) -> Iterator[Known]:
    """Keep the cases of each entry to which it still applies or that were not judged."""
    for entry in before:
        if not any(map(entry.is_of, judged)):
            yield entry
            continue
        its = [verdict for verdict in verdicts if entry.is_of(verdict.backend)]
        holding = [verdict.case for verdict in its if entry.holds_of(verdict)]
        came_to = {verdict.case for verdict in its}
        cases = tuple(
            case
            for case in entry.cases or ("*",)
            if any(fits(one, case) for one in holding)
            or (not whole and (is_pattern(case) or case not in came_to))
        )
        if cases:
            yield replace(entry, cases=cases if entry.cases else ())


def _new(failing: Sequence[Verdict]) -> Iterator[Known]:
    """Make an entry of the cases that fail on one backend under one rule in one way."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in failing:
        groups.setdefault((about(verdict), verdict.backend, kind(verdict)), []).append(verdict)
    for (rule, backend, status), its in groups.items():
        # The finding is a first reason.
        reason = f"not looked into yet: {(finding(its[0]) or status)[:120]}"
        cases = tuple(sorted({verdict.case for verdict in its if verdict.case}))
        yield Known(rule, backend, status, reason, "", cases)


def _lines(entry: Known) -> Iterator[str]:
    yield "[[known]]"
    for key in ("rule", "backend", "status", "reason", "link"):
        yield f"{key} = {_quoted(getattr(entry, key))}"
    if entry.cases:
        yield from ("cases = [", *(f"  {_quoted(case)}," for case in entry.cases), "]")
    yield ""


def _quoted(text: str) -> str:
    """Quote a text for TOML, which does not allow lone surrogates."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
