"""The failures to show: of each backend and rule that does not hold, the plainest one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from attnspec.conformance.report.by_rule import about
from attnspec.conformance.verdict import BAD, Status, Verdict

#: Of the cases of a run, at most so many that it failed, and that it passed, are asked again.
_ASKED_AGAIN = {True: 60, False: 120}


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


def asked_again(verdicts: Sequence[Verdict]) -> Iterator[tuple[str, str]]:
    """Choose cases of a run that are asked again: failing and passing ones, spread over all there are.

    What ended the process, or did not end, would do so again.

    Returns
    -------
    iterator of (str, str)
        The name of each and its group.
    """
    for bad, most in _ASKED_AGAIN.items():
        names = [
            (verdict.case, verdict.group)
            for verdict in verdicts
            if (verdict.status in BAD if bad else verdict.status == "pass")
            and verdict.case
            and not ended(verdict)
        ]
        yield from names[:: -(-len(names) // most) or 1]


def ended(verdict: Verdict) -> bool:
    """Tell whether the process ended in the call, or had to be ended: it would do so again.

    Examples
    --------
    >>> from attnspec.conformance.report.failures import ended
    >>> from attnspec.conformance.verdict import Verdict
    >>> ended(Verdict("b", "c", "", ("MASK-1",), "error", reason="did not end in 300 s"))
    True
    """
    has_raised = verdict.raised is not None and bool(verdict.raised.type)
    return verdict.status == "error" and verdict.difference is None and not has_raised


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
