"""What failing calls have in common that passing ones have not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from attnspec.conformance import traits
from attnspec.conformance.verdict import Verdict

#: What is in common says less than this of failing and passing calls: then nothing is in common.
CLEAR = 0.55
#: By how much two things in common have to say more than one.
_CLEARER = 0.05
#: Most calls have no scale, and all of them nothing: where most of these pass, that says less.
_USUAL = 0.85
#: What is told is at least so many times as likely to fail as other calls are.
_OFTENER = 3


@dataclass(frozen=True)
class Common:
    """What the calls of a cause have in common, and how many of them fail.

    Attributes
    ----------
    traits : tuple of str
        None where nothing tells them from others.
    failing, judged : int
        Of the calls that have it.
    others, of_others : int
        How many of the other calls fail, and how many there are.
    """

    traits: tuple[str, ...] = ()
    failing: int = 0
    judged: int = 0
    others: int = 0
    of_others: int = 0


def traits_of(one: Verdict) -> set[str]:
    """Give what a call has, its dtype too."""
    return {*one.traits, one.dtype}


def common_of(
    failing: Sequence[Verdict], passing: Sequence[Verdict], owners: Mapping[str, str] | None = None
) -> Common:
    """Find what tells failing calls best from passing ones.

    Parameters
    ----------
    failing, passing : sequence of Verdict
    owners : mapping of str to str, optional
        The rule that is broken where calls have something in common: of two things that tell as well,
        the one is taken whose own cases fail.
    """
    bad = Counter(frozenset(traits_of(one)) for one in failing)
    good = Counter(frozenset(traits_of(one)) for one in passing)
    single = sorted(set().union(*bad) - {traits.RELATED, "float32"})
    own = Counter(one.rules[0] for one in failing if one.rules)
    owned = {trait: own[rule] for trait, rule in (owners or {}).items()}

    def telling(one: Common) -> tuple[float, int]:
        # What all calls have tells nothing, whoever's cases fail.
        return clarity(one), sum(owned.get(trait, 0) for trait in one.traits) if one.of_others else 0

    best = max((_counted((), bad, good), *(_counted((one,), bad, good) for one in single)), key=telling)
    pairs = [_counted(two, bad, good) for two in combinations(single, 2)]
    clearest = max(pairs, key=telling, default=best)
    return clearest if clarity(clearest) > clarity(best) + _CLEARER else best


def told(common: Common) -> Common:
    """Keep what is in common where it tells more than chance would, with the numbers; else nothing.

    Examples
    --------
    >>> from attnspec.conformance.report.common import Common, told
    >>> told(Common(("mask",), 20, 150, 1, 200)).traits, told(Common(("mask",), 20, 50, 60, 150)).traits
    (('mask',), ())
    """
    rate, other = (part / max(whole, 1) for part, whole in _parts(common))
    once = common.failing == 1 < common.judged
    often = not once and common.of_others and rate >= _OFTENER * other and common.failing >= common.others
    return common if often else Common()


def _parts(common: Common) -> tuple[tuple[int, int], tuple[int, int]]:
    return (common.failing, common.judged), (common.others, common.of_others)


#: How many calls there are with the same traits.
Calls = Mapping[frozenset[str], int]


def _counted(wanted: tuple[str, ...], bad: Calls, good: Calls) -> Common:
    asked = set(wanted)
    failing, passed = (sum(n for one, n in calls.items() if asked <= one) for calls in (bad, good))
    others = sum(bad.values()) - failing
    return Common(wanted, failing, failing + passed, others, others + sum(good.values()) - passed)


def clarity(common: Common) -> float:
    """Give how well it tells failing calls from passing ones: 1 where each of these fails and no other.

    A failure that is left out counts four times as much as a call that passes: of a bug that does not
    show in each call, what all its failures have in common is still the cause.
    """
    passing = common.judged - common.failing
    told = 5 * common.failing / (5 * common.failing + 4 * common.others + passing)
    usual = common.traits in ((), (traits.NO_SCALE,)) and 2 * common.failing < common.judged
    return told * _USUAL if usual else told
