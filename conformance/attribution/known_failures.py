"""Known failures, so that a project with failures can adopt the suite."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.messages import ended
from attnspec.conformance.results import Results
from attnspec.conformance.verdict import Verdict

#: The ways to fail: a wrong result, an exception, or a process that ended or had to be ended.
KINDS = ("fail", "error", "ended")
#: The characters that make a name a pattern.
_WILD = frozenset("*?[")


@dataclass(frozen=True)
class Known:
    """Cases that are known to fail under one rule, in one way, on one backend.

    Attributes
    ----------
    rule : str
    backend : str
        Its name, or a pattern.
    status : str
        One of `KINDS`.
    reason : str
        Why, in a sentence.
    link : str
        A link to the issue, or empty.
    cases : tuple of str
        The names of the cases, or patterns. Empty for all that fail under the rule.
    part : str
        The part of the suite that the file was written from. Empty for the whole suite, or if unknown.

    Examples
    --------
    >>> from attnspec.conformance.attribution.known_failures import Known
    >>> from attnspec.conformance.verdict import Verdict
    >>> entry = Known("MASK-6", "m:f", "fail", "filled with -1e9", cases=("masking-*",))
    >>> wrong = Verdict("m:f", "masking-empty-last-float32", "", ("MASK-6",), "fail", rule="MASK-6")
    >>> crashed = Verdict("m:f", "masking-empty-last-float32", "", ("MASK-6",), "error", rule="MASK-6")
    >>> entry.holds_of(wrong), entry.holds_of(crashed)
    (True, False)
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
        same = (self.rule, self.status) == (about(verdict), kind(verdict)) and self.is_of(verdict.backend)
        return same and (not self.cases or any(fits(verdict.case, case) for case in self.cases))


@dataclass(frozen=True)
class Sorted:
    """Failures, sorted into new and known ones.

    Attributes
    ----------
    new : tuple of Verdict
        The failures that are not known.
    known : tuple of (Verdict, Known)
    stale : tuple of str
        What to do about entries that no longer apply, with a line for each rule and backend.
    hint : str
        A hint if failures may be new only because the file was written from a smaller part of the suite.
    """

    new: tuple[Verdict, ...]
    known: tuple[tuple[Verdict, Known], ...] = ()
    stale: tuple[str, ...] = ()
    hint: str = ""


def kind(verdict: Verdict) -> str:
    """Return how a case fails, as one of `KINDS`. Empty for a verdict that is not a failure."""
    if not verdict.bad:
        return ""
    return "ended" if ended(verdict) else verdict.status


def fits(name: str, pattern: str) -> bool:
    """Whether a name equals or matches a pattern."""
    return name == pattern or (is_pattern(pattern) and fnmatchcase(name, pattern))


def is_pattern(case: str) -> bool:
    """Whether a name is a pattern."""
    return bool(_WILD & set(case))


def find_known(verdict: Verdict, known: Iterable[Known]) -> Known | None:
    """Find the first entry that applies to a failure."""
    return next((entry for entry in known if entry.holds_of(verdict)), None)


def sort_failures(results: Results, known: Iterable[Known]) -> Sorted:
    """Separate new failures from known ones, and find the entries that no longer apply.

    Examples
    --------
    >>> from attnspec.conformance.attribution.known_failures import Known, sort_failures
    >>> from attnspec.conformance.results import Results
    >>> from attnspec.conformance.verdict import Verdict
    >>> verdict = Verdict("b", "masking-empty-last-float32", "", ("MASK-6",), "fail", rule="MASK-6")
    >>> entry = Known("MASK-6", "b", "fail", "filled with -1e9")
    >>> sort_failures(Results((), (verdict,)), [entry]).new
    ()
    """
    entries = tuple(known)
    found = [(verdict, find_known(verdict, entries)) for verdict in results.verdicts if verdict.bad]
    new = tuple(verdict for verdict, entry in found if entry is None)
    return Sorted(
        new,
        tuple((verdict, entry) for verdict, entry in found if entry is not None),
        tuple(_told(_stale(results, entries))),
        _hint(results, entries) if new else "",
    )


def _hint(results: Results, entries: Sequence[Known]) -> str:
    """Return a hint if the file was written from another part of the suite than the run."""
    part = next((entry.part for entry in entries if entry.part), "")
    run = ", ".join(dict.fromkeys(header.part for header in results.headers))
    if not part or run == part:
        return ""
    return (
        f"hint: the file of known failures was written from a {part} run and has only the cases of that run, "
        f"but this run is {run}: use --write-known-failures with the options of this run"
    )


#: An entry, one of its cases to which it no longer applies, and how that fails now; empty if it passes.
_Stale = tuple[Known, str, str]
#: If there are more cases than this, the rest is counted.
_MOST_NAMED = 3


def _stale(results: Results, entries: Iterable[Known]) -> Iterator[_Stale]:
    """Find the entries that no longer apply. Cases that were not judged are not evidence."""
    if any(header.seed is not None for header in results.headers):
        return  # cases of these names are other problems
    judged: dict[str, list[Verdict]] = {}
    for verdict in results.verdicts:
        judged.setdefault(verdict.case, []).append(verdict)
    for entry in entries:
        for case in entry.cases or ("*",):
            found: Sequence[Verdict] = judged.get(case, ())
            if is_pattern(case):
                # If not all cases were judged, the failing case may be one that was not.
                found = results.verdicts if results.judged_whole else ()
            its = [one for one in found if entry.is_of(one.backend) and fits(one.case, case)]
            if its and not any(map(entry.holds_of, its)):
                now = sorted({f"{about(one)} ({kind(one)})" for one in its if one.bad})
                otherwise = f"under {' and '.join(now)} now, not as {entry.status}" if now else ""
                yield entry, case, "" if is_pattern(case) else otherwise


def _told(stale: Iterable[_Stale]) -> Iterator[str]:
    """Describe them, with a line for each rule and backend."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry, case, now in stale:
        groups.setdefault((entry.rule, entry.backend, now), []).append(case)
    for (rule, backend, now), cases in groups.items():
        one, them = len(cases) == 1, "it" if len(cases) == 1 else "them"
        named = ", ".join(cases[:_MOST_NAMED])
        more = f" and {len(cases) - _MOST_NAMED} more" if len(cases) > _MOST_NAMED else ""
        place = f"{rule} {named} on {backend}:" if one else f"{rule} on {backend}: {len(cases)} cases"
        if now:
            said = f"{'fails' if one else 'fail'} {now}; look at {them} again"
        else:
            said = f"{'does' if one else 'do'} not fail any more; remove {them}"
        yield f"{place} {said}" + ("" if one else f": {named}{more}")
