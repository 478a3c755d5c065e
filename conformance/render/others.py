"""The text of a cause: its failures besides the one that is shown, and the rules that they break."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from attnspec.conformance import traits
from attnspec.conformance.attribution.by_rule import about, says
from attnspec.conformance.attribution.causes import ALWAYS, Cause
from attnspec.conformance.verdict import Verdict

#: The largest number of rules that have a line of their own, and of calls in it.
_MOST_LINES, _MOST_CALLS = 8, 3
#: How the groups of calls that must be refused begin.
_REFUSED = "refused: "


def also(verdict: Verdict, cause: Cause) -> Iterator[str]:
    """Count the other failures, under the rule of the cause and under other rules.

    Every rule is named under which the table of the run counts one of them.

    Examples
    --------
    >>> from attnspec.conformance.attribution.causes import Cause
    >>> from attnspec.conformance.render.others import also
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = [Verdict("b", f"{rule}-float32", "", (rule,), "fail") for rule in ("SOFT-1", "NUM-3")]
    >>> list(also(failing[0], Cause("SOFT-1", tuple(failing))))
    ['also: 1 case under another rule, with the same cause: NUM-3']
    """
    if cause.kind == ALWAYS:
        yield f"so do {len(cause.failures) - 1} more cases of {verdict.backend}, under all rules"
        return
    counted = Counter(map(about, cause.failures[1:]))
    own = counted.pop(cause.rule, 0)
    if own:
        yield f"(and {own} more of {verdict.backend} under {cause.rule})"
    if counted:
        cases = sum(counted.values())
        under = "another rule" if len(counted) == 1 else f"{len(counted)} other rules"
        yield f"also: {cases} case{'s' * (cases > 1)} under {under}, {_what(cause)}: {', '.join(counted)}"
    if cause.kind == "refused" and len(cause.failures) > 1:
        yield from _by_rule([cause.rule, *counted], cause.failures)
    elif cause.mixed:
        yield from _by_rule(counted, cause.failures[1:])
    yield from _in_table(cause, {cause.rule: own + 1, **counted})


def _what(cause: Cause) -> str:
    if cause.kind == "refused":
        return "calls that must be refused and are not"
    return "which may have other causes" if cause.mixed else "with the same cause"


def _by_rule(rules: Iterable[str], failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line for each rule, with the calls that fail under it."""
    for rule in list(rules)[:_MOST_LINES]:
        calls = list(dict.fromkeys(_call(one) for one in failures if about(one) == rule))
        more = f" and {len(calls) - _MOST_CALLS} more" if len(calls) > _MOST_CALLS else ""
        if calls:
            yield f"    {rule}: {'; '.join(calls[:_MOST_CALLS])}{more}"


def _call(one: Verdict) -> str:
    """Describe a call: what is wrong with it if it must be refused, or the name of its case."""
    name = one.case.removesuffix(f"-{one.dtype}")
    if traits.REFUSED not in one.traits:
        return f"case {name}"
    return one.group.removeprefix(_REFUSED) or _titles().get(name, f"case {name}")


@cache
def _titles() -> dict[str, str]:
    """Return the title of each golden vector."""
    from attnspec import cases  # it reads the vectors, which only a refusal that is missing needs

    return {case.id: case.title for case in cases()}


def _in_table(cause: Cause, told: dict[str, int]) -> Iterator[str]:
    """Name the rules under which the table counts more of the failures than the lines before."""
    counted = Counter(rule for one in cause.failures for rule in says(one))
    more = {rule: number for rule, number in counted.items() if rule and number > told.get(rule, 0)}
    if more:
        each = ", ".join(f"{number} under {rule}" for rule, number in more.items())
        errors = any(one.status == "error" for one in cause.failures)
        how = "an error under each rule of its case" if errors else "these"
        yield f"the table counts {how}: {each}"
