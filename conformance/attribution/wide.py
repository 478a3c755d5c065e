"""Compares causes in wide dtypes with failures in half precision, whose errors hide common traits."""

from collections.abc import Sequence
from dataclasses import replace

from attnspec.conformance import traits
from attnspec.conformance.attribution.common import calls_of, count_of, traits_of
from attnspec.conformance.attribution.finding import Common, Finding
from attnspec.conformance.attribution.precision import PRECISE
from attnspec.conformance.attribution.sizes import every_trait
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import SHORT

_SIZES = {*traits.TILES, *every_trait()}
#: A cause takes calls in half precision with its traits if at least this share of its calls fails.
_MOSTLY = 0.7
#: Calls that seem imprecise have another cause if at least this share of them does.
_NEARLY = 0.9


def explained(causes: Sequence[Finding], passing: Sequence[Verdict]) -> list[Finding]:
    """Move calls that seem imprecise to the wrong values that most calls of their kind have."""
    kept = list(causes)
    for cause in causes:
        if cause.kind != PRECISE or cause.rule != "NUM-5":
            continue
        for number, other in enumerate(kept):
            having = set(other.common.traits)
            moved = [verdict for verdict in cause.failures if having <= traits_of(verdict)]
            if len(moved) >= _NEARLY * len(cause.failures) and is_general(other, passing):
                kept[number] = counted(replace(other, failures=(*other.failures, *moved)), passing)
                left = tuple(verdict for verdict in cause.failures if verdict not in moved)
                place = kept.index(cause)
                kept[place : place + 1] = [replace(cause, failures=left)] if left else []
                break
    return kept


def is_general(cause: Finding, passing: Sequence[Verdict]) -> bool:
    """Whether most calls in wide dtypes with the traits of a cause of wrong values fail."""
    bad, good = _in_wide(cause.common, cause.failures, passing)
    return not cause.kind and bool(cause.common.traits) and 0 < bad >= _MOSTLY * (bad + good)


def _in_wide(common: Common, failures: Sequence[Verdict], passing: Sequence[Verdict]) -> tuple[int, int]:
    """Count the calls in wide dtypes with some traits that fail, and that pass."""
    having = set(common.traits)
    bad, good = (
        sum(verdict.dtype not in SHORT and having <= traits_of(verdict) for verdict in group)
        for group in (failures, passing)
    )
    return bad, good


def is_predicted(failures: Sequence[Verdict], common: Common, passing: Sequence[Verdict]) -> bool:
    """Whether most calls with the traits fail in wide dtypes, as they do where a step is too short.

    Such a step is as short in calls of few keys, so that sizes do not count.
    """
    kind = replace(common, traits=tuple(trait for trait in common.traits if trait not in _SIZES))
    bad, good = _in_wide(kind, failures, passing)
    return bad >= good


def counted(cause: Finding, passing: Sequence[Verdict]) -> Finding:
    """Count the calls with the traits of a cause again, after others were added."""
    if not cause.common.traits:
        return cause
    common = count_of(cause.common.traits, calls_of(cause.failures), passing)
    # Calls that other causes explain are no counterexamples.
    return replace(cause, common=common)
