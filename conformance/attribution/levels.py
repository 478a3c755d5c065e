"""Determines the levels that a backend reaches from its verdicts."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from attnspec import ConformanceLevel, SpecError, levels
from attnspec.conformance.attribution.by_rule import NOT_SHOWN, by_rule
from attnspec.conformance.verdict import Verdict

#: The statuses with which a rule does not hold, the worst first.
_AGAINST = ("fail", "error", "deviation", "should not met", NOT_SHOWN)


@dataclass(frozen=True)
class Standing:
    """Whether a backend reaches one level, and what it lacks.

    Attributes
    ----------
    level : str
    missing : mapping of str to str
        The rules that it lacks, each with its result: ``fail``, ``error``, ``deviation``,
        ``should not met``, ``not shown``, ``unsupported``, or ``not judged``.
    """

    level: str
    missing: Mapping[str, str]

    @property
    def reached(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


def standings(verdicts: Iterable[Verdict]) -> tuple[Standing, ...]:
    """Determine for every level whether one backend reaches it.

    Examples
    --------
    >>> from attnspec.conformance.attribution.levels import standings
    >>> any(standing.reached for standing in standings([]))
    False
    """
    found = list(verdicts)
    counted = by_rule(found)
    needed = {(verdict.dtype, verdict.accuracy) for verdict in found if verdict.accuracy}
    done: dict[str, Standing] = {}
    for level in levels():
        missing = dict(done[level.builds_on].missing) if level.builds_on else {}
        missing |= _missing(level, counted)
        if level.accuracy:
            loose = [f"class {name} in {dtype}" for dtype, name in sorted(needed) if name != level.accuracy]
            missing = {"NUM-3": ", ".join(loose)} | missing if loose else missing
        done[level.name] = Standing(level.name, missing)
    return tuple(done.values())


def chain(name: str) -> tuple[ConformanceLevel, ...]:
    """Return the levels that a level builds on, and the level itself.

    Examples
    --------
    >>> from attnspec.conformance.attribution.levels import chain
    >>> [level.name for level in chain("cached")]
    ['core', 'masked', 'cached']
    """
    known = {level.name: level for level in levels()}
    if name not in known:
        raise SpecError(f"level: expected one of {', '.join(known)}, got {name!r}")
    level = known[name]
    return (*(chain(level.builds_on) if level.builds_on else ()), level)


def rules_of(name: str) -> tuple[str, ...]:
    """Return the rules of a level and of the levels that it builds on.

    Examples
    --------
    >>> from attnspec.conformance.attribution.levels import rules_of
    >>> "SOFT-1" in rules_of("masked"), "HEAD-1" in rules_of("masked")
    (True, False)
    """
    return tuple(dict.fromkeys(r for one in chain(name) for r in (*one.rules, *one.where_offered)))


def check_required(required: str | None, part: str, level: str) -> None:
    """Refuse to require a level that a run cannot determine.

    Examples
    --------
    >>> from attnspec.conformance.attribution.levels import check_required
    >>> check_required("core", "level", "masked")
    >>> check_required("exact", "level", "masked")
    Traceback (most recent call last):
        ...
    attnspec.errors.SpecError: --require: expected a level that --level masked tests, got exact
    """
    if required is None:
        return
    chain(required)
    if part not in ("whole", "level"):
        raise SpecError("--require: expected a whole run or --level, got a part of the suite")
    if level and required not in (one.name for one in chain(level)):
        raise SpecError(f"--require: expected a level that --level {level} tests, got {required}")


def reached(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Return the levels that one backend reaches."""
    return tuple(standing.level for standing in standings(verdicts) if standing.reached)


def _missing(level: ConformanceLevel, counted: Mapping[str, Collection[str]]) -> dict[str, str]:
    missing: dict[str, str] = {}
    for rule in (*level.rules, *level.where_offered):
        statuses = counted.get(rule, ())
        bad = [status for status in _AGAINST if status in statuses]
        if bad:
            missing[rule] = bad[0]
        elif "pass" not in statuses and rule in level.rules:
            missing[rule] = "unsupported" if statuses else "not judged"
    return missing
