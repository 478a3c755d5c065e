"""Finds traits that failing calls have in common and that passing calls lack."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb

from attnspec.conformance import traits
from attnspec.conformance.attribution.finding import Common
from attnspec.conformance.attribution.sizes import conditions, traits_of_sizes
from attnspec.conformance.verdict import Verdict

#: Traits with less clarity than this are ignored.
CLEAR = 0.55
#: The additional clarity that a pair of traits must have over a single trait.
_CLEARER = 0.05
#: The weight of traits that most calls have, such as no scale.
_USUAL = 0.85
#: Of the calls with pure traits at least this many, and this share, fail; of all others at most this share.
_FEW, _PURE, _RARE = 5, 0.9, 0.05
#: At least this share of the calls with the traits fails, unless no other call does.
_PREDICTS = 0.5
#: Of the calls with a usual trait at least this share fails, even if no other call does.
_SOME = 0.15
#: So many pairs of traits are tried, of which one is pure by chance.
_OF_PAIRS = 1000
_USUALS = tuple((trait,) for trait in traits.USUAL)
#: That all failing calls have a usual trait is no chance if it has a smaller probability than this.
_CHANCE = Fraction(1, 20)  # which compares with integers that no float holds
#: Properties that the sizes and the numbers of calls happen to have, and how many are taken to be tried.
_ACCIDENTAL = {traits.WHOLE_PAGES, traits.RISING, traits.RISING_32, traits.RISING_64, *traits.TILES}
_TRIED = 10
#: Properties that predict a failure only if nearly all calls with them fail.
_BESIDE = {
    *(traits.RISING, traits.RISING_32, traits.RISING_64),
    *(traits.ODD_DEPTH, traits.UNPAIRED, traits.ODD_HEADS),
}
#: One of two traits is named alone if the other divides the calls with it as well with this probability.
_AS_WELL = Fraction(3, 20)
#: The chance that failing calls have traits in common, above which these are not named.
_LIKELY = 0.3
#: Calls with the traits must fail at least this many times as often as other calls.
_OFTENER = 3
#: The number of calls for each set of traits.
Calls = Mapping[frozenset[str], int]


def traits_of(verdict: Verdict) -> set[str]:
    """Return the traits of a call, with its dtype and the conditions that its sizes meet."""
    return {*_named(verdict), *traits_of_sizes(verdict.sizes)}


def _named(verdict: Verdict) -> set[str]:
    return {*verdict.traits, verdict.dtype}


def common_traits(
    failing: Sequence[Verdict], passing: Sequence[Verdict], owners: Mapping[str, str]
) -> Common:
    """Find the traits that best distinguish failing calls from passing ones.

    Of traits that distinguish them equally well, those whose owner (a rule) has more failing cases win.
    A condition on sizes wins if it predicts better which calls fail.
    """
    bad, good = _by_traits(failing, _named), _by_traits(passing, _named)
    single = _candidates(bad)
    failing_rules = Counter(verdict.rules[0] for verdict in failing if verdict.rules)

    def key(common: Common) -> tuple[float, int]:
        # A trait of all calls does not distinguish them.
        own = sum(failing_rules.get(owners.get(trait, ""), 0) for trait in common.traits)
        return clarity(common), own if common.of_others else 0

    counts = [_count(wanted, bad, good) for n in (1, 2) for wanted in combinations(single, n)]
    counts = [common for common in counts if not _is_accidental(common)]
    best = max((_count((), bad, good), *(common for common in counts if len(common.traits) == 1)), key=key)
    pairs = [common for common in counts if len(common.traits) > 1]
    clearest = max(pairs, key=key, default=best)
    best = clearest if clarity(clearest) > clarity(best) + _CLEARER else best
    sized = common_of_sizes(failing, passing)
    if not sized.traits:
        return best
    # Of "more keys or queries than a tile" it names the side.
    clearer = clarity(best) + (0 if traits.TILES & {*best.traits} else _CLEARER)
    return sized if best.traits in ((), *_USUALS) or clarity(sized) > clearer else best


def common_of_sizes(failing: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    """Find the condition on sizes, alone or beside another trait, that predicts which calls fail."""
    # With no query or key, every implementation is right.
    shown = [verdict for verdict in passing if traits.NOTHING not in verdict.traits]
    bad, good = _by_traits(failing, traits_of), _by_traits(shown, traits_of)
    counts = [_count(wanted, bad, good) for wanted in conditions(bad, _candidates(bad))] if bad else []
    counts = [common for common in counts if not _is_accidental(common)]
    # Half of the chance is for conditions alone: there are few of them.
    alone, beside = ([c for c in counts if (len(c.traits) == 1) == single] for single in (True, False))
    found = [best for group in (alone, beside) if (best := max(group, key=clarity, default=Common())).judged]
    found = [best for best in found if _is_no_chance(best, 2 * len(alone if best in alone else beside))]
    best = max(found, key=clarity, default=Common())
    return count_of(best.traits, failing, passing) if best.traits else best


def _is_no_chance(common: Common, number: int) -> bool:
    """Whether so many calls with traits hardly fail by chance, if these are one of some conditions."""
    enough = not common.others or (common.failing >= _FEW and common.others <= _RARE * common.of_others)
    ways = comb(common.judged, common.failing) * comb(common.of_others, common.others)
    every = comb(common.judged + common.of_others, common.failing + common.others)
    return enough and number * ways < _CHANCE * every


def calls_of(failures: Sequence[Verdict]) -> Sequence[Verdict]:
    """Leave out relations, unless there is nothing else."""
    return [verdict for verdict in failures if traits.RELATED not in verdict.traits] or failures


def count_of(traits_: tuple[str, ...], failing: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    """Count the calls with some traits, and the others."""
    return _count(traits_, _by_traits(failing, traits_of), _by_traits(passing, traits_of))


def with_lacked(common: Common, failing: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    """Add to a count of all calls the trait of the most passing calls that no failing call has."""
    if common.traits or not common.judged:
        return common
    having = Counter(trait for verdict in passing for trait in _named(verdict))
    lacked = {*having}.difference(*map(_named, failing))
    trait = max(sorted(lacked), key=lambda trait: having[trait], default="")
    # One of so many traits is lacked by chance.
    by_chance = len(having) * (1 - having[trait] / common.judged) ** common.failing >= _CHANCE
    return common if by_chance else replace(common, lacked=(trait, having[trait]))


def pure_traits(failing: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    """Find the traits of the most failing calls of which nearly all calls fail, and hardly any others.

    Several causes together have no clear common traits, but each of them may have these.
    """
    bad, good = _by_traits(failing, _named), _by_traits(passing, _named)
    single = _candidates(bad)
    sets = [(trait,) for trait in single] + list(combinations(single, 2))
    pure = [common for common in (_count(wanted, bad, good) for wanted in sets) if is_pure(common)]
    return max(pure, key=lambda common: (common.failing, -len(common.traits)), default=Common())


def calls_of_usual_trait(
    failing: Sequence[Verdict], passing: Sequence[Verdict], owners: Mapping[str, str]
) -> Common:
    """Count the calls with a trait of most calls, such as no scale, if these alone fail.

    As most calls have the trait, a case of the rule that owns it must fail, or this must be no chance and no
    such case may pass: calls without the trait lack many others too.
    """
    for trait in traits.USUAL:
        common = count_of((trait,), failing, passing)
        share = common.judged / max(common.judged + common.of_others, 1)
        shown, denied = (
            any(owners.get(trait) in verdict.rules[:1] for verdict in each) for each in (failing, passing)
        )
        alone = common.failing > 1 and not common.others and common.of_others
        if alone and (shown or (share**common.failing < _CHANCE and not denied)):
            return common
    return Common()


def _is_accidental(common: Common) -> bool:
    """Whether traits are of numbers that many calls have, and do not predict which calls fail."""
    pure = common.failing >= _FEW and common.failing >= _PURE * common.judged
    beside = _BESIDE | ({traits.BATCHED, traits.HEADS} if len(common.traits) > 1 else set())
    return not beside.isdisjoint(common.traits) and common.traits not in _USUALS and not pure


def is_pure(common: Common) -> bool:
    """Whether nearly all calls with the traits fail, and a few others."""
    enough = common.failing >= _FEW and common.failing >= _PURE * common.judged
    ways = comb(common.judged, common.failing) * comb(common.of_others, common.others)
    every = comb(common.judged + common.of_others, common.failing + common.others)
    # Where many others fail for causes of their own, it is still no chance that nearly all of these do.
    rare = common.others <= _RARE * common.of_others or _OF_PAIRS * ways < _CHANCE * every
    return enough and bool(common.others) and rare


def is_clear(common: Common) -> bool:
    """Whether traits distinguish failing calls well enough to name a cause."""
    return clarity(common) >= CLEAR or is_pure(common)


def if_significant(common: Common) -> Common:
    """Return common traits if they are more significant than chance, else no traits."""
    rate, other = common.failing / max(common.judged, 1), common.others / max(common.of_others, 1)
    once = common.failing == 1 < common.judged
    often = not once and common.of_others and rate >= _OFTENER * other and common.failing >= common.others
    # Most calls have no scale, so calls with one that fail too, or many that pass, show another cause.
    usual = common.traits in _USUALS
    alone = not common.others and rate >= (_SOME if usual else _RARE)
    predicts = (rate >= _PREDICTS and not (usual and common.others)) or alone
    # If hardly any other call was judged, all failing calls may have the traits by chance.
    chance = (common.judged / max(common.judged + common.of_others, 1)) ** common.failing
    shown = often and predicts and (common.others or chance < _LIKELY)
    return common if shown or is_pure(common) else Common()


def if_evident(common: Common) -> Common:
    """Return significant traits if so few calls would not have them by chance, else no traits.

    If the failing calls were any of those judged, each choice of as many would be as likely.
    """
    ways = comb(common.judged, common.failing) * comb(common.of_others, common.others)
    every = comb(common.judged + common.of_others, common.failing + common.others)
    # Of many properties of sizes and of numbers, one fits by chance.
    number = 1 if _ACCIDENTAL.isdisjoint(common.traits) else _TRIED
    return if_significant(common) if number * ways < _CHANCE * every else Common()


def plainer(common: Common, failing: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    """Count calls again, without a trait that divides those with the others no better than chance."""
    common = count_of(common.traits, failing, passing)
    for trait in common.traits if len(common.traits) > 1 else ():
        rest = count_of(tuple(other for other in common.traits if other != trait), failing, passing)
        ways, every = comb(common.judged, common.failing), comb(rest.judged, rest.failing)
        if rest.failing == common.failing and ways >= _AS_WELL * every and if_evident(rest).traits:
            return plainer(rest, failing, passing)
    return common


def clarity(common: Common) -> float:
    """Return how well traits distinguish failing calls: 1 if exactly the calls with the traits fail.

    A failure without the traits counts four times as much as a passing call with them, because a bug
    does not show in every call that it concerns.
    """
    passing = common.judged - common.failing
    share = 5 * common.failing / (5 * common.failing + 4 * common.others + passing)
    usual = common.traits in ((), *_USUALS) and 2 * common.failing < common.judged
    return share * _USUAL if usual else share


def _by_traits(verdicts: Sequence[Verdict], traits_: Callable[[Verdict], set[str]]) -> Calls:
    return Counter(frozenset(traits_(verdict)) for verdict in verdicts)


def _candidates(bad: Calls) -> list[str]:
    return sorted(set().union(*bad) - {traits.RELATED, "float32"})


def _count(wanted: tuple[str, ...], bad: Calls, good: Calls) -> Common:
    having = set(wanted)
    failing, passing = (sum(n for kinds, n in calls.items() if having <= kinds) for calls in (bad, good))
    others = sum(bad.values()) - failing
    return Common(wanted, failing, failing + passing, others, others + sum(good.values()) - passing)
