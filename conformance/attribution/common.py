"""Finds traits that failing calls have in common and that passing calls lack."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from attnspec.conformance import traits
from attnspec.conformance.verdict import Verdict

#: Traits with less clarity than this are ignored.
CLEAR = 0.55
#: The additional clarity that a pair of traits must have over a single trait.
_CLEARER = 0.05
#: The weight of traits that most calls have, such as no scale.
_USUAL = 0.85
#: Of the calls with pure traits at least this many, and this share, fail; of all others at most this share.
_FEW, _PURE, _RARE = 5, 0.9, 0.05
#: Calls with the traits must fail at least this many times as often as other calls.
_OFTENER = 3


@dataclass(frozen=True)
class Common:
    """The common traits of the calls of a cause, and how many of these calls fail.

    Attributes
    ----------
    traits : tuple of str
        Empty if no trait distinguishes them from other calls.
    failing, judged : int
        The number of calls with the traits that fail, and of all calls with the traits.
    others, of_others : int
        The number of other calls that fail, and of all other calls.
    """

    traits: tuple[str, ...] = ()
    failing: int = 0
    judged: int = 0
    others: int = 0
    of_others: int = 0


def traits_of(one: Verdict) -> set[str]:
    """Return the traits of a call, including its dtype."""
    return {*one.traits, one.dtype}


def common_of(
    failing: Sequence[Verdict], passing: Sequence[Verdict], owners: Mapping[str, str] | None = None
) -> Common:
    """Find the traits that best distinguish failing calls from passing ones."""
    bad = Counter(frozenset(traits_of(one)) for one in failing)
    good = Counter(frozenset(traits_of(one)) for one in passing)
    single = sorted(set().union(*bad) - {traits.RELATED, "float32"})
    own = Counter(one.rules[0] for one in failing if one.rules)
    owned = {trait: own[rule] for trait, rule in (owners or {}).items()}

    def telling(one: Common) -> tuple[float, int]:
        # A trait of all calls does not distinguish them.
        return clarity(one), sum(owned.get(trait, 0) for trait in one.traits) if one.of_others else 0

    best = max((_counted((), bad, good), *(_counted((one,), bad, good) for one in single)), key=telling)
    pairs = [_counted(two, bad, good) for two in combinations(single, 2)]
    clearest = max(pairs, key=telling, default=best)
    return clearest if clarity(clearest) > clarity(best) + _CLEARER else best


def pure_of(failing: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    """Find the traits of the most failing calls of which nearly all calls fail, and hardly any others.

    Several causes together have no clear common traits, but each of them may have these.
    """
    bad = Counter(frozenset(traits_of(one)) for one in failing)
    good = Counter(frozenset(traits_of(one)) for one in passing)
    single = sorted(set().union(*bad) - {traits.RELATED, "float32"})
    sets = [(one,) for one in single] + list(combinations(single, 2))
    pure = [one for one in (_counted(some, bad, good) for some in sets) if is_pure(one)]
    return max(pure, key=lambda one: (one.failing, -len(one.traits)), default=Common())


def is_pure(one: Common) -> bool:
    """Whether nearly all calls with the traits fail, and a few others.

    Examples
    --------
    >>> from attnspec.conformance.attribution.common import Common, is_pure
    >>> is_pure(Common(("scale of 0",), 25, 25, 25, 1500)), is_pure(Common(("is_causal",), 29, 114, 21, 1511))
    (True, False)
    """
    enough = one.failing >= _FEW and one.failing >= _PURE * one.judged
    return enough and bool(one.others) and one.others <= _RARE * one.of_others


def told(common: Common) -> Common:
    """Return common traits if they are more significant than chance, else no traits.

    Examples
    --------
    >>> from attnspec.conformance.attribution.common import Common, told
    >>> told(Common(("mask",), 20, 150, 1, 200)).traits, told(Common(("mask",), 20, 50, 60, 150)).traits
    (('mask',), ())
    """
    rate, other = (part / max(whole, 1) for part, whole in _parts(common))
    once = common.failing == 1 < common.judged
    often = not once and common.of_others and rate >= _OFTENER * other and common.failing >= common.others
    return common if often or is_pure(common) else Common()


def _parts(common: Common) -> tuple[tuple[int, int], tuple[int, int]]:
    return (common.failing, common.judged), (common.others, common.of_others)


#: The number of calls for each set of traits.
Calls = Mapping[frozenset[str], int]


def _counted(wanted: tuple[str, ...], bad: Calls, good: Calls) -> Common:
    asked = set(wanted)
    failing, passed = (sum(n for one, n in calls.items() if asked <= one) for calls in (bad, good))
    others = sum(bad.values()) - failing
    return Common(wanted, failing, failing + passed, others, others + sum(good.values()) - passed)


def clarity(common: Common) -> float:
    """Return how well traits distinguish failing calls: 1 if exactly the calls with the traits fail.

    A failure without the traits counts four times as much as a passing call with them, because a bug
    does not show in every call that it concerns.
    """
    passing = common.judged - common.failing
    told = 5 * common.failing / (5 * common.failing + 4 * common.others + passing)
    usual = common.traits in ((), (traits.NO_SCALE,)) and 2 * common.failing < common.judged
    return told * _USUAL if usual else told
