"""Selects the failures to show, one for each cause of a backend, and the cases to repeat."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.causes import Cause, causes
from attnspec.conformance.attribution.messages import ended, never_returned
from attnspec.conformance.attribution.same_variant import same_variant, with_variant_first
from attnspec.conformance.render.because import with_argument
from attnspec.conformance.traits import REFUSED, RELATED
from attnspec.conformance.verdict import BAD, Verdict

#: A precision is named if at least this share of the failures under its rule shows it.
_NEARLY = 0.9
#: The largest number of failing cases, and of passing cases, that are repeated.
_ASKED_AGAIN = {True: 100, False: 300}


@dataclass(frozen=True)
class Example:
    """The failure that shows a cause best, and how many others there are.

    Attributes
    ----------
    verdict : Verdict
    more : int
        The number of other failures under its rule.
    cause : Cause or None
        Its cause, with all failures of the cause under all rules.
    """

    verdict: Verdict
    more: int
    cause: Cause | None = None


def broken(failures: Iterable[Verdict], verdicts: Iterable[Verdict] = ()) -> list[Example]:
    """Return an example of each cause of each backend, the most important first.

    Examples
    --------
    >>> from attnspec.conformance.attribution.failures import broken
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = [Verdict("b", f"{name}-float32", "", ("MASK-1",), "fail") for name in ("long", "no")]
    >>> [(example.verdict.case, example.more) for example in broken(failing)]
    [('long-float32', 1)]
    """
    judged: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        judged.setdefault(verdict.backend, []).append(verdict)
    bad: dict[str, list[Verdict]] = {}
    for verdict in failures:
        if verdict.bad:
            bad.setdefault(verdict.backend, []).append(verdict)
    return [_example(cause) for backend, own in bad.items() for cause in causes(own, judged.get(backend, ()))]


def _example(cause: Cause) -> Example:
    """Return the first failure, under the rule of the cause."""
    cause = replace(cause, failures=with_variant_first(cause))
    first = cause.failures[0]
    if about(first) != cause.rule:
        first = replace(first, rule=cause.rule, variant="", precision="")
    same = same_variant(cause)
    if first.precision and _is_contradicted(first, cause):
        first = replace(first, variant="", precision="")
    elif first.variant and not first.precision and (same is None or first.variant != same.name):
        first = replace(first, variant="")
    # An argument is called ignored only if this holds for each call with it.
    having = with_argument(first.ignored, cause.failures)
    if first.ignored and any(one.ignored != first.ignored for one in having):
        first = replace(first, ignored="")
    more = sum(about(one) == cause.rule for one in cause.failures[1:])
    return Example(first, more, cause)


def _is_contradicted(first: Verdict, cause: Cause) -> bool:
    """Whether other failures under the rule do not show the precision, which then fits by chance."""
    own = [one for one in cause.failures if about(one) == cause.rule and one.difference and one.group]
    own = [one for one in own if RELATED not in one.traits]
    return sum(one.variant == first.variant for one in own) < _NEARLY * len(own)


def unmet(verdicts: Iterable[Verdict]) -> list[Example]:
    """Return an example of each SHOULD that a backend does not meet."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    judged: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        judged.setdefault(verdict.backend, []).append(verdict)
        if verdict.status == "should not met":
            groups.setdefault((verdict.backend, about(verdict)), []).append(verdict)
    every = {backend for backend, own in judged.items() if never_returned(own)}
    kept = [group for (backend, _), group in groups.items() if backend not in every]
    return [Example(min(group, key=_plainness), len(group) - 1) for group in kept]


def asked_again(verdicts: Sequence[Verdict]) -> Iterator[tuple[str, str]]:
    """Choose failing and passing cases of a run to repeat, spread over all cases.

    Calls that ended the process or hung are left out, because they would do so again.
    """
    # If values are wrong, calls that must be refused give no information.
    refusals = not any(one.bad and REFUSED not in one.traits for one in verdicts)
    for bad, most in _ASKED_AGAIN.items():
        names = [
            (verdict.case, verdict.group)
            for verdict in verdicts
            if (verdict.status in BAD if bad else verdict.status == "pass")
            and verdict.case
            and not ended(verdict)
            and (REFUSED in verdict.traits) == refusals
        ]
        yield from names[:: -(-len(names) // most) or 1]


def _plainness(verdict: Verdict) -> tuple[bool, bool, bool, int, int, str]:
    """Return a sort key: values before exceptions, then named results, golden vectors, and small sizes."""
    size = verdict.difference.size if verdict.difference else 0
    named = verdict.variant or verdict.ignored or verdict.precision
    return verdict.status == "error", not named, bool(verdict.group), size, len(verdict.case), verdict.case
