"""The results of each rule in the verdicts of a backend, and the levels that it reaches."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from attnspec import OPERATIONS, ConformanceLevel, SpecError, levels
from attnspec.conformance.verdict import Verdict
from attnspec.operations.operation import primal

#: Results of a rule besides `attnspec.conformance.verdict.STATUSES`: a MAY that does not hold, a known
#: failure, and a call that must be rejected and is accepted, where a run does not require refusals.
NOT_SHOWN, KNOWN, ACCEPTED = "not shown", "known", "accepted"
#: What a run may require besides a level: right values, or right values and refusals.
VALUES, REFUSALS = "values", "refusals"
_NO_MARKS: Mapping[Verdict, str] = MappingProxyType({})
#: The results with which a rule does not hold, the worst first.
_AGAINST = ("fail", "error", "deviation", "should not met", NOT_SHOWN)


def rule_results(verdict: Verdict) -> dict[str, str]:
    """Return the result of each rule of a verdict.

    A verdict that breaks one rule says nothing about its other rules. In a declared variant of one rule, the
    other rules hold. A declared deviation counts for the rules that are broken, and for the one that it is
    declared for. An error counts for every rule.
    """
    rule = verdict.main_rule
    if verdict.status == "deviation":
        others = dict.fromkeys(verdict.rules if verdict.variant else (), "pass")
        declared = (name.partition(" ")[0] for name in verdict.declared)
        return others | dict.fromkeys((rule, *declared), verdict.status)
    if verdict.status in ("fail", "should not met"):
        return {rule: verdict.status}
    if verdict.status == "unsupported" and verdict.rule:
        return {rule: NOT_SHOWN}
    return dict.fromkeys(verdict.rules or (rule,), verdict.status)


def count_by_rule(
    verdicts: Iterable[Verdict], marks: Mapping[Verdict, str] = _NO_MARKS
) -> dict[str, Counter[str]]:
    """Count the results of each rule in the verdicts of one backend. Marked verdicts count as their mark."""
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        for rule, status in rule_results(verdict).items():
            counts.setdefault(rule, Counter())[marks.get(verdict, status)] += 1
    return counts


@dataclass(frozen=True)
class Standing:
    """Whether a backend reaches one level, and the rules that it lacks, each with its result.

    A result may also be ``not judged``.
    """

    level: str
    missing: Mapping[str, str]

    @property
    def reached(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def standings(verdicts: Iterable[Verdict]) -> tuple[Standing, ...]:
    """Determine for every level whether one backend reaches it."""
    verdicts = list(verdicts)
    counts = count_by_rule(_with_own_rules(verdict) for verdict in verdicts)
    needed = {(verdict.dtype, verdict.accuracy) for verdict in verdicts if verdict.accuracy}
    done: dict[str, Standing] = {}
    for level in levels():
        missing = dict(done[level.builds_on].missing) if level.builds_on else {}
        missing |= _missing(level, counts)
        if level.accuracy:
            loose = [f"class {name} in {dtype}" for dtype, name in sorted(needed) if name != level.accuracy]
            missing = {"NUM-3": ", ".join(loose)} | missing if loose else missing
        done[level.name] = Standing(level.name, missing)
    return tuple(done.values())


def _with_own_rules(verdict: Verdict) -> Verdict:
    """Leave out the rules of the forward operation's results, which no backward pass shows."""
    forward = primal(verdict.operation)
    if verdict.status != "pass" or forward == verdict.operation:
        return verdict
    results = {output.rule for output in OPERATIONS[forward].results}
    return replace(verdict, rules=tuple(rule for rule in verdict.rules if rule not in results))


def chain(name: str) -> tuple[ConformanceLevel, ...]:
    """Return the levels that a level builds on, and the level itself."""
    known = {level.name: level for level in levels()}
    if name not in known:
        raise SpecError(f"level: expected one of {', '.join(known)}, got {name!r}")
    level = known[name]
    return (*(chain(level.builds_on) if level.builds_on else ()), level)


def rules_of(name: str) -> tuple[str, ...]:
    """Return the rules of a level and of the levels that it builds on."""
    return tuple(
        dict.fromkeys(rule for level in chain(name) for rule in (*level.rules, *level.where_offered))
    )


def check_required(required: str | None, part: str, level: str) -> None:
    """Refuse to require a level that a run cannot determine."""
    if required is None or required in (VALUES, REFUSALS):
        return
    names = [level.name for level in levels()]
    if required not in names:
        known = ", ".join((VALUES, REFUSALS, *names))
        raise SpecError(f"--require: expected one of {known}, got {required!r}")
    if part not in ("whole", "level"):
        raise SpecError("--require: expected a whole run or --level, got a part of the suite")
    if level and required not in (built.name for built in chain(level)):
        raise SpecError(f"--require: expected a level that --level {level} tests, got {required}")


def _missing(level: ConformanceLevel, counts: Mapping[str, Collection[str]]) -> dict[str, str]:
    missing: dict[str, str] = {}
    for rule in (*level.rules, *level.where_offered):
        statuses = counts.get(rule, ())
        bad = [status for status in _AGAINST if status in statuses]
        if bad:
            missing[rule] = bad[0]
        elif "pass" not in statuses and rule in level.rules:
            missing[rule] = "unsupported" if statuses else "not judged"
    return missing
