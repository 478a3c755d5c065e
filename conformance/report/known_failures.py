"""Known failures: what a project knows to fail today, so that it can adopt the suite today."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnspec import SpecError, rules
from attnspec.conformance.report.by_rule import about
from attnspec.conformance.report.files import write_whole
from attnspec.conformance.report.text import finding
from attnspec.conformance.results import Results
from attnspec.conformance.verdict import Verdict

_HEAD = """\
# Known failures of the attnspec suite: they are reported, and fail no run. An entry whose cases
# do not fail any more is an error. Give each a reason, and a link to where it is dealt with.
"""


@dataclass(frozen=True)
class Known:
    """Cases that are known to fail under one rule.

    Attributes
    ----------
    rule : str
    reason : str
        Why, in a sentence.
    link : str
        Where it is dealt with; may be empty.
    cases : tuple of str
        Their names.
    """

    rule: str
    reason: str
    link: str
    cases: tuple[str, ...]


@dataclass(frozen=True)
class Sorted:
    """Failures by whether they are known.

    Attributes
    ----------
    new : tuple of Verdict
        Those that are not.
    known : tuple of (Verdict, Known)
    stale : tuple of str
        Of each entry that does not hold any more, what is to be done.
    """

    new: tuple[Verdict, ...]
    known: tuple[tuple[Verdict, Known], ...] = ()
    stale: tuple[str, ...] = ()


def read_known(path: Path) -> tuple[Known, ...]:
    """Read a file of known failures.

    Raises
    ------
    SpecError
        When it is none, or an entry lacks its rule, reason, link or cases.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"known failures: expected {path} to be TOML, got {error}") from error
    entries = document.get("known", [])
    if set(document) - {"known"} or not isinstance(entries, list):
        raise SpecError(
            f"known failures: {path}: expected entries [[known]] alone, got {', '.join(document)}"
        )
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries, start=1))


def _entry(path: Path, number: int, entry: object) -> Known:
    place = f"known failures: {path}, entry {number}"
    if not isinstance(entry, dict) or set(entry) != {"rule", "reason", "link", "cases"}:
        raise SpecError(f"{place}: expected rule, reason, link and cases, got {entry!r}")
    if entry["rule"] not in {rule.id for rule in rules()}:
        raise SpecError(f"{place}: rule: expected one of the standard, got {entry['rule']!r}")
    if not isinstance(entry["reason"], str) or not entry["reason"].strip():
        raise SpecError(f"{place}: reason: expected a sentence, got {entry['reason']!r}")
    cases = entry["cases"]
    if not isinstance(cases, list) or not cases or not all(isinstance(case, str) for case in cases):
        raise SpecError(f"{place}: cases: expected names of cases, got {cases!r}")
    return Known(entry["rule"], entry["reason"], str(entry["link"]), tuple(cases))


def write_known(path: Path, results: Results, before: Sequence[Known] = ()) -> int:
    """Write all failures of a run as known ones.

    Reasons and links are kept where there are some, and so are the entries of
    cases that a run of a part of the suite did not come to.

    Returns
    -------
    int
        The number of cases in it.
    """
    entries = _by_key(before)
    ran = {verdict.case for verdict in results.verdicts}
    groups: dict[tuple[str, str, str], set[str]] = {}
    reasons: dict[str, str] = {}
    for (rule, case), entry in entries.items():
        if case not in ran and not results.whole:
            groups.setdefault((rule, entry.reason, entry.link), set()).add(case)
    for verdict in _failing(results):
        rule, case = _key(verdict)
        if rule:
            kept = entries.get((rule, case))
            reason = kept.reason if kept else reasons.setdefault(rule, _reason(verdict))
            groups.setdefault((rule, reason, kept.link if kept else ""), set()).add(case)
    lines = [_HEAD]
    for (rule, reason, link), cases in groups.items():
        lines += ["[[known]]", f'rule = "{rule}"', f"reason = {_quoted(reason)}", f"link = {_quoted(link)}"]
        lines += ["cases = [", *(f"  {_quoted(case)}," for case in sorted(cases)), "]", ""]
    write_whole(path, "\n".join(lines))
    return sum(map(len, groups.values()))


def sort_failures(results: Results, known: Iterable[Known]) -> Sorted:
    """Tell new failures from known ones, and find the entries that do not hold any more.

    Parameters
    ----------
    results : Results
    known : iterable of Known

    Examples
    --------
    >>> from attnspec.conformance.report.known_failures import Known, sort_failures
    >>> from attnspec.conformance.results import Results
    >>> from attnspec.conformance.verdict import Verdict
    >>> verdict = Verdict("b", "masking-empty-last-float32", "", ("MASK-6",), "fail", rule="MASK-6")
    >>> entry = Known("MASK-6", "filled with -1e9", "", ("masking-empty-last-float32",))
    >>> sort_failures(Results((), (verdict,)), [entry]).new
    ()
    """
    entries = _by_key(known)
    failing = _failing(results)
    found = {_key(verdict) for verdict in failing}
    ran = {verdict.case for verdict in results.verdicts}
    stale = [
        _stale(rule, case, ran, [other for other, one in found if one == case])
        for rule, case in entries
        if (rule, case) not in found and (case in ran or results.whole)
    ]
    return Sorted(
        tuple(verdict for verdict in failing if _key(verdict) not in entries),
        tuple((verdict, entries[_key(verdict)]) for verdict in failing if _key(verdict) in entries),
        tuple(stale),
    )


def is_known(verdict: Verdict, known: Iterable[Known]) -> bool:
    """Tell whether a failure is a known one."""
    return _key(verdict) in _by_key(known)


def _stale(rule: str, case: str, ran: set[str], now: Sequence[str]) -> str:
    if now:
        return f"{rule} {case}: fails under {' and '.join(sorted(now))} now; look at it again"
    return (
        f"{rule} {case}: does not fail {'any more' if case in ran else 'as there is no such case'}; remove it"
    )


def _by_key(known: Iterable[Known]) -> dict[tuple[str, str], Known]:
    return {(entry.rule, case): entry for entry in known for case in entry.cases}


def _failing(results: Results) -> list[Verdict]:
    return [verdict for verdict in results.verdicts if verdict.bad]


def _key(verdict: Verdict) -> tuple[str, str]:
    return about(verdict), verdict.case


def _reason(verdict: Verdict) -> str:
    """Take what was found as a reason to begin with."""
    return f"not looked into yet: {(finding(verdict) or verdict.status)[:120]}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
