"""Merges causes of wrong values that are one: under one rule, of one option, or within a larger one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from attnspec.conformance import traits
from attnspec.conformance.attribution.common import (
    calls_of,
    common_of_sizes,
    common_traits,
    if_evident,
    plainer,
    traits_of,
)
from attnspec.conformance.attribution.finding import Common, Finding
from attnspec.conformance.attribution.precision import PRECISE, TRACES, empty_rows
from attnspec.conformance.verdict import Verdict

#: A cause may absorb others if at least this share of the calls with its traits fails.
_NEARLY = 0.9
#: Traits of the calls that show whether an option excludes keys, and the size of a pair of traits.
_EXTREME, _PAIR = {traits.EMPTY, traits.LARGE}, 2
#: The kinds of findings that are not merged with others.
_SEPARATE = {"ended", "repeated", "earlier", "refused", PRECISE, TRACES}


def merged(causes: Sequence[Finding], passing: Sequence[Verdict]) -> list[Finding]:
    """Merge a cause into a larger one that fails for nearly all calls of a kind and covers its calls."""
    kept: list[Finding] = []
    for cause in sorted(causes, key=lambda cause: -len(cause.failures)):
        wider = next((other for other in kept if _covers(other, cause)), None)
        if wider is None:
            kept.append(cause)
        else:
            kept[kept.index(wider)] = replace(wider, failures=(*wider.failures, *cause.failures))
    order = [cause.failures[0] for cause in causes]
    return _merged_by_rule(sorted(kept, key=lambda cause: order.index(cause.failures[0])), passing)


def _merged_by_rule(causes: Iterable[Finding], passing: Sequence[Verdict]) -> list[Finding]:
    """Merge causes of wrong values under one rule or of one option, those of the first in front."""
    kept: list[Finding] = []
    for cause in causes:
        first = next((other for other in kept if _is_same(other, cause)), None)
        if first is None:
            kept.append(cause)
        else:
            failures, further = (*first.failures, *cause.failures), (*first.further, cause.common)
            both = replace(first, failures=failures, further=further, mixed=first.mixed or cause.mixed)
            # The traits of one call are its own, so that those of all are looked for.
            if first.common.failing < 2:
                common = common_of_sizes(calls_of(failures), passing)
                common = common if common.traits else common_traits(calls_of(failures), passing, {})
                common = if_evident(common)
                common = plainer(common, calls_of(failures), passing) if common.traits else common
                both = replace(both, common=common, further=())
            kept[kept.index(first)] = both
    return kept


def _is_same(cause: Finding, other: Finding) -> bool:
    """Whether both are wrong values under one rule, or of one option where it must exclude keys entirely."""
    forms = {cause.kind, other.kind, _form(cause), _form(other)}
    forms -= {"nan"} if _form(cause) == _form(other) else set()
    same = cause.rule == other.rule or bool(_lowering(cause.common) & _lowering(other.common))
    return not forms - {""} and same and cause.precision == other.precision


def _lowering(common: Common) -> set[str]:
    """Return the option that fails only where nothing is left to attend to, or beside large scores.

    An option that lowers scores by a finite number, instead of excluding keys, fails in both.
    """
    pair = set(common.traits)
    return pair - _EXTREME if len(pair) == _PAIR and pair & _EXTREME else set()


def _covers(wider: Finding, cause: Finding) -> bool:
    having, common = set(wider.common.traits), wider.common
    clear = bool(having) and common.failing >= _NEARLY * common.judged
    separate = {wider.kind, cause.kind} & _SEPARATE
    # Wrong values do not cause a wrong shape or dtype.
    new_form = {_form(cause)} - {_form(wider), ""}
    covered = all(having <= traits_of(verdict) for verdict in cause.failures)
    return clear and not separate and not new_form and covered


def _form(cause: Finding) -> str:
    """Return ``shape``, ``dtype``, ``nan`` for empty rows, or nothing, as what a cause is about."""
    if len(empty_rows(cause.failures)) == len(cause.failures):
        return "nan"
    difference = cause.failures[0].difference
    return difference.kind if difference and difference.kind in ("shape", "dtype") else ""
