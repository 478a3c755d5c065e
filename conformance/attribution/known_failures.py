"""Known failures, so that a project with failures can adopt the suite."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from attnspec import SpecError, rules
from attnspec.conformance.files import write_whole
from attnspec.conformance.outside import one_line
from attnspec.conformance.results import Results
from attnspec.conformance.verdict import Verdict
from attnspec.reading import parse_toml

#: The ways to fail: a wrong result, an exception, or a process that ended or had to be ended.
KINDS = ("fail", "error", "ended")
#: The characters that make a name a pattern.
_WILD = frozenset("*?[")


@dataclass(frozen=True)
class Known:
    """Cases that are known to fail under one rule, in one way (one of `KINDS`), on one backend.

    Names of the backend and of cases may be patterns. Without cases, all that fail under the rule are known.
    `part` is the part of the suite that the file was written from. Empty for the whole suite, or if unknown.
    """

    rule: str
    backend: str
    status: str
    reason: str
    link: str = ""
    cases: tuple[str, ...] = ()
    part: str = field(default="", compare=False)

    def is_of(self, backend: str) -> bool:
        """Whether it applies to a backend."""
        return fits(backend, self.backend)

    def holds_of(self, verdict: Verdict) -> bool:
        """Whether it applies to a verdict."""
        same = (self.rule, self.status) == (verdict.main_rule, failure_kind(verdict)) and self.is_of(
            verdict.backend
        )
        return same and (not self.cases or any(fits(verdict.case, case) for case in self.cases))


@dataclass(frozen=True)
class Stale:
    """Cases to which entries no longer apply, and how they fail now, such as ``MASK-5 (fail)``.

    If nothing fails any more, the status of the entries is empty, and so is `now`.
    """

    rule: str
    backend: str
    status: str
    cases: tuple[str, ...]
    now: tuple[str, ...]


@dataclass(frozen=True)
class SortedFailures:
    """Failures, sorted into new and known ones, and the entries that no longer apply.

    `parts` is the part of the suite that the file was written from, and that of the run, if they differ:
    failures may be new only because of this.
    """

    new: tuple[Verdict, ...]
    known: tuple[tuple[Verdict, Known], ...] = ()
    stale: tuple[Stale, ...] = ()
    parts: tuple[str, str] | None = None


def failure_kind(verdict: Verdict) -> str:
    """Return how a case fails, as one of `KINDS`. Empty for a verdict that is not a failure."""
    if not verdict.bad:
        return ""
    return "ended" if verdict.ended else verdict.status


def fits(name: str, pattern: str) -> bool:
    """Whether a name equals or matches a pattern."""
    return name == pattern or (is_pattern(pattern) and fnmatchcase(name, pattern))


def is_pattern(case: str) -> bool:
    """Whether a name is a pattern."""
    return bool(_WILD & set(case))


def find_known(verdict: Verdict, known: Iterable[Known]) -> Known | None:
    """Find the first entry that applies to a failure."""
    return next((entry for entry in known if entry.holds_of(verdict)), None)


def sort_failures(results: Results, known: Iterable[Known]) -> SortedFailures:
    """Separate new failures from known ones, and find the entries that no longer apply."""
    entries = tuple(known)
    pairs = [(verdict, find_known(verdict, entries)) for verdict in results.verdicts if verdict.bad]
    new = tuple(verdict for verdict, entry in pairs if entry is None)
    return SortedFailures(
        new,
        tuple((verdict, entry) for verdict, entry in pairs if entry is not None),
        tuple(_stale(results, entries)),
        _other_parts(results, entries) if new else None,
    )


def _other_parts(results: Results, entries: Sequence[Known]) -> tuple[str, str] | None:
    """Return the part of the suite that the file was written from, and that of the run, if they differ."""
    part = next((entry.part for entry in entries if entry.part), "")
    run = ", ".join(dict.fromkeys(header.part for header in results.headers))
    return (part, run) if part and run != part else None


def _stale(results: Results, entries: Iterable[Known]) -> Iterator[Stale]:
    """Find the entries that no longer apply. Cases that were not judged are not evidence."""
    if any(header.seed is not None for header in results.headers):
        return  # cases of these names are other problems
    judged: dict[str, list[Verdict]] = {}
    for verdict in results.verdicts:
        judged.setdefault(verdict.case, []).append(verdict)
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for entry in entries:
        for case in entry.cases or ("*",):
            verdicts: Sequence[Verdict] = judged.get(case, ())
            if is_pattern(case):
                # If not all cases were judged, the failing case may be one that was not.
                verdicts = results.verdicts if results.judged_whole else ()
            own = [
                verdict for verdict in verdicts if entry.is_of(verdict.backend) and fits(verdict.case, case)
            ]
            if own and not any(map(entry.holds_of, own)):
                now = {f"{verdict.main_rule} ({failure_kind(verdict)})" for verdict in own if verdict.bad}
                now = set() if is_pattern(case) else now
                key = entry.rule, entry.backend, entry.status if now else "", tuple(sorted(now))
                groups.setdefault(key, []).append(case)
    for (rule, backend, status, now_fails), cases in groups.items():
        yield Stale(rule, backend, status, tuple(cases), now_fails)


_HEAD = """\
# Known failures of the attnspec suite. They are reported, but do not fail a run. An entry whose cases
# no longer fail is an error. Give each entry a reason, and a link to its issue.
# An entry without cases covers all failures of its kind under its rule. Cases and backends may be patterns.
"""
#: The parts of the suite that a file may be written from. It then lacks the other cases.
_PARTS = ("quick", "smoke", "level", "chosen")
_NEEDED, _KEYS = {"rule", "backend", "status", "reason"}, {"link", "cases"}


def read_known(path: Path) -> tuple[Known, ...]:
    """Read a file of known failures."""
    try:
        document = parse_toml(path)
    except (OSError, ValueError) as error:
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


def write_known(
    path: Path,
    results: Results,
    before: Sequence[Known] = (),
    describe: Callable[[Verdict], str] = lambda verdict: verdict.status,
) -> tuple[int, tuple[str, ...]]:
    """Write all failures of a run as known failures. A description of the first one is a first reason.

    Entries that still apply are kept. Entries about other backends and about cases that were not
    judged are kept too. A backend that was not judged completely gets no entries. If there is no
    other backend, nothing is written.
    """
    subjects = results.subjects
    cut = [subject for subject in subjects if subject.problem or results.missing.get(subject.name)]
    problems = tuple(subject.problem or f"backend {subject.name}: it was not judged whole" for subject in cut)
    judged = {subject.name for subject in subjects if subject not in cut}
    if not judged:
        return 0, problems
    verdicts = [verdict for verdict in results.verdicts if verdict.backend in judged]
    whole = results.whole and all(header.seed is None for header in results.headers)
    kept = [*_kept(dict.fromkeys(before), judged, verdicts, whole=whole)]
    failing = [verdict for verdict in verdicts if verdict.bad and verdict.main_rule]
    entries = (*kept, *_new([verdict for verdict in failing if find_known(verdict, kept) is None], describe))
    part = next((entry.part for entry in before), _part(results)) if not results.whole else ""
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
        own = [verdict for verdict in verdicts if entry.is_of(verdict.backend)]
        holding = [verdict.case for verdict in own if entry.holds_of(verdict)]
        covered = {verdict.case for verdict in own}
        cases = tuple(
            case
            for case in entry.cases or ("*",)
            if any(fits(name, case) for name in holding)
            or (not whole and (is_pattern(case) or case not in covered))
        )
        if cases:
            yield replace(entry, cases=cases if entry.cases else ())


def _new(failing: Sequence[Verdict], describe: Callable[[Verdict], str]) -> Iterator[Known]:
    """Make an entry of the cases that fail on one backend under one rule in one way."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in failing:
        groups.setdefault((verdict.main_rule, verdict.backend, failure_kind(verdict)), []).append(verdict)
    for (rule, backend, status), own in groups.items():
        reason = f"not looked into yet: {(describe(own[0]) or status)[:120]}"
        cases = tuple(sorted({verdict.case for verdict in own if verdict.case}))
        yield Known(rule, backend, status, reason, "", cases)


def _lines(entry: Known) -> Iterator[str]:
    yield "[[known]]"
    for key in ("rule", "backend", "status", "reason", "link"):
        yield f"{key} = {quote(getattr(entry, key))}"
    if entry.cases:
        yield from ("cases = [", *(f"  {quote(case)}," for case in entry.cases), "]")
    yield ""


def quote(text: str) -> str:
    """Quote a text for TOML, which does not allow lone surrogates."""
    return json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
