"""Known failures: what a project knows to fail today, so that it can adopt the suite today."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnspec import SpecError, rules
from attnspec.conformance.verdict import Results, Verdict

_HEAD = """\
# Known failures of the attnspec suite: they are reported, and fail no run. An entry whose tests
# do not fail any more is an error. Give each a reason, and a link to where it is dealt with.
"""


@dataclass(frozen=True)
class Known:
    """Tests that are known to fail under one rule.

    Attributes
    ----------
    rule : str
    reason : str
        Why, in a sentence.
    link : str
        Where it is dealt with; may be empty.
    tests : tuple of str
        Names of tests, without that of the backend.
    """

    rule: str
    reason: str
    link: str
    tests: tuple[str, ...]


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


def plain_name(test: str, backend: str) -> str:
    """Take the name of the backend out of that of a test.

    Examples
    --------
    >>> from attnspec.conformance.report.known_failures import plain_name
    >>> plain_name("test_golden[m:f-masking-empty-last-float32]", "m:f"), plain_name("test_causal[m:f]", "m:f")
    ('test_golden[masking-empty-last-float32]', 'test_causal')
    """
    function, bracket, parameters = test.partition("[")
    if parameters == f"{backend}]":
        return function
    return function + bracket + parameters.removeprefix(f"{backend}-")


def read_known(path: Path) -> tuple[Known, ...]:
    """Read a file of known failures.

    Raises
    ------
    SpecError
        When it is none, or an entry lacks its rule, reason, link or tests.
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
    if not isinstance(entry, dict) or set(entry) != {"rule", "reason", "link", "tests"}:
        raise SpecError(f"{place}: expected rule, reason, link and tests, got {entry!r}")
    if entry["rule"] not in {rule.id for rule in rules()}:
        raise SpecError(f"{place}: rule: expected one of the standard, got {entry['rule']!r}")
    if not isinstance(entry["reason"], str) or not entry["reason"].strip():
        raise SpecError(f"{place}: reason: expected a sentence, got {entry['reason']!r}")
    tests = entry["tests"]
    if not isinstance(tests, list) or not tests or not all(isinstance(test, str) for test in tests):
        raise SpecError(f"{place}: tests: expected names of tests, got {tests!r}")
    return Known(entry["rule"], entry["reason"], str(entry["link"]), tuple(tests))


def write_known(path: Path, results: Results, before: Sequence[Known] = ()) -> int:
    """Write all failures of a run as known ones; reasons and links are kept where there are some.

    Returns
    -------
    int
        The number of tests in it.
    """
    kept = {(entry.rule, test): entry for entry in before for test in entry.tests}
    first: dict[str, Known] = {}
    groups: dict[tuple[str, str, str], set[str]] = {}
    for verdict in _failing(results):
        rule, test = _key(verdict)
        if rule:
            new = Known(rule, _first_finding(verdict), "", ())
            entry = kept.get((rule, test)) or first.setdefault(rule, new)
            groups.setdefault((rule, entry.reason, entry.link), set()).add(test)
    lines = [_HEAD]
    for (rule, reason, link), tests in groups.items():
        lines += ["[[known]]", f'rule = "{rule}"', f"reason = {_quoted(reason)}", f"link = {_quoted(link)}"]
        lines += ["tests = [", *(f"  {_quoted(test)}," for test in sorted(tests)), "]", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
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
    >>> from attnspec.conformance.verdict import Results, Verdict
    >>> verdict = Verdict("b", ("MASK-6",), "test_empty[b]", "fail")
    >>> entry = Known("MASK-6", "filled with -1e9", "", ("test_empty",))
    >>> sort_failures(Results((), (verdict,)), [entry]).new
    ()
    """
    entries = {(entry.rule, test): entry for entry in known for test in entry.tests}
    failing = _failing(results)
    found = {_key(verdict) for verdict in failing}
    ran = {plain_name(verdict.test, verdict.backend) for verdict in results.verdicts}
    stale = [
        f"{rule} {test}: does not fail {'any more' if test in ran else 'as there is no such test'}; remove it"
        for rule, test in entries
        if (rule, test) not in found and (test in ran or results.whole)
    ]
    return Sorted(
        tuple(verdict for verdict in failing if _key(verdict) not in entries),
        tuple((verdict, entries[_key(verdict)]) for verdict in failing if _key(verdict) in entries),
        tuple(stale),
    )


def _failing(results: Results) -> list[Verdict]:
    return [verdict for verdict in results.verdicts if verdict.status in ("fail", "error")]


def _key(verdict: Verdict) -> tuple[str, str]:
    return verdict.rules[0] if verdict.rules else "", plain_name(verdict.test, verdict.backend)


def _first_finding(verdict: Verdict) -> str:
    """Take the line that says what was got, as a reason to begin with."""
    lines = [line for line in verdict.message.splitlines() if "got " in line or "raised " in line]
    return f"not looked into yet: {(lines or verdict.message.splitlines() or ['no message'])[0][:120]}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
