"""The failures to show: of each backend and rule that does not hold, the plainest one."""

from collections.abc import Iterable
from dataclasses import dataclass

from attnspec.conformance.report.by_rule import about
from attnspec.conformance.verdict import BAD, Status, Verdict


@dataclass(frozen=True)
class Example:
    """The plainest verdict of a backend under a rule, and how many more there are of the kind."""

    verdict: Verdict
    more: int


def broken(verdicts: Iterable[Verdict]) -> list[Example]:
    """Give an example of each rule that each backend breaks, the plainest first.

    Examples
    --------
    >>> from attnspec.conformance.report.failures import broken
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = [Verdict("b", f"{name}-float32", "", ("MASK-1",), "fail") for name in ("long", "no")]
    >>> [(example.verdict.case, example.more) for example in broken(failing)]
    [('no-float32', 1)]
    """
    return _examples(verdicts, BAD)


def unmet(verdicts: Iterable[Verdict]) -> list[Example]:
    """Give an example of each SHOULD that each backend does not meet."""
    return _examples(verdicts, ("should not met",))


def _examples(verdicts: Iterable[Verdict], statuses: tuple[Status, ...]) -> list[Example]:
    groups: dict[str, dict[str, list[Verdict]]] = {}
    for verdict in verdicts:
        if verdict.status in statuses:
            groups.setdefault(verdict.backend, {}).setdefault(about(verdict), []).append(verdict)
    return [
        Example(min(group, key=_plainness), len(group) - 1)
        for of_backend in groups.values()
        for group in sorted(of_backend.values(), key=lambda group: min(map(_plainness, group)))
    ]


def _plainness(verdict: Verdict) -> tuple[bool, bool, bool, int, int, str]:
    """Order failures: values before exceptions, what has a name first, golden vectors first, then by size."""
    size = verdict.difference.size if verdict.difference else 0
    named = verdict.variant or verdict.ignored or verdict.precision
    return verdict.status == "error", not named, bool(verdict.group), size, len(verdict.case), verdict.case
