"""Causes: failures put together that come of one thing, and the rule that says best what it is.

What is said of a cause is counted and no guess: of the calls that have something in common so many
fail, of all others so many. What ends the process, what raises in one line, what changes an input and
what is not repeatable each has a cause of its own; the values that are left are divided by what they
have in common.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from attnspec import rules
from attnspec.conformance.judge import traits
from attnspec.conformance.report.by_rule import about
from attnspec.conformance.suite.options import OPTIONS
from attnspec.conformance.verdict import Verdict

#: The rule that is broken where calls have this in common, unless the values say it more closely; of two
#: things the one that stands first. Most calls have no scale: beside anything else it says little.
_OWNERS = {
    traits.NOTHING: "SHAPE-7",
    traits.EMPTY: "MASK-6",
    traits.LARGE: "SOFT-2",
    traits.VIEWED: "NUM-8",
    "softcap": "SCORE-5",
    "sinks": "SOFT-5",
    traits.SHARED: "HEAD-1",
    **{name: option.rule for name, option in OPTIONS.items()},
    "dropout_mask": "DROP-1",
    "query_segment_ids": "MASK-11",
    "key_segment_ids": "MASK-11",
    "float64": "NUM-2",
    traits.NO_SCALE: "SCORE-2",
    traits.MORE_QUERIES: "SHAPE-5",
}
#: Where that leaves several rules open, those that it may be, the likeliest first.
_AMONG = {
    (): ("SOFT-1", "SOFT-2", "SOFT-3", "SCORE-1", "NUM-3"),
    (traits.TILED,): ("SOFT-3", "SOFT-2", "SHAPE-5"),
    (traits.SPECIAL,): ("NUM-11", "NUM-12", "NUM-13", "NUM-14"),
    (traits.OTHER_DEPTH,): ("SCORE-2", "SHAPE-3", "SOFT-3"),
}
#: A rule whose cases fail by so much more often is likelier than one before it.
_OFTENER = 0.2
_MASKING = {"mask", "bias", "is_causal", "window", "key_lengths", "query_lengths", "key_segment_ids"}
#: By how much two things in common have to say more than one.
_CLEARER = 0.05
#: Most calls have no scale, and all of them nothing: where most of these pass, that says less.
_USUAL = 0.85
#: A cause that leaves failures is followed by another, so often.
_MOST_CAUSES = 4
#: Ways to raise or to end that are shown, those put together among them.
_MOST_WAYS = 4
#: What is in common says less than this of failing and passing calls: then nothing is in common.
_CLEAR = 0.55
#: By how many of its budgets a result is off at most that was computed in half precision, by its dtype.
_HALF = {"float32": 2.0**13, "float64": 2.0**42}
#: On fewer failures than these no precision is named.
_FEW = 5
_NEARLY = 0.8


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


@dataclass(frozen=True)
class Cause:
    """Failures that come of one thing.

    Attributes
    ----------
    rule : str
        That it breaks.
    failures : tuple of Verdict
        The one to show first.
    common : Common
    kind : str
        ``ended``, ``raised``, ``changed``, ``repeated``, ``earlier`` or ``refused``; empty for values.
    precision : str
        The dtype in whose budget all of them lie, where it is shorter than theirs.
    """

    rule: str
    failures: tuple[Verdict, ...]
    common: Common = Common()
    kind: str = ""
    precision: str = ""


def causes(failures: Iterable[Verdict], verdicts: Iterable[Verdict] = ()) -> list[Cause]:
    """Put the failures of one backend together by cause, the one to look at first at the front.

    Parameters
    ----------
    failures : iterable of Verdict
    verdicts : iterable of Verdict, optional
        All of the run: what passes tells causes apart.

    Examples
    --------
    >>> from attnspec.conformance.report.causes import causes
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = [Verdict("b", c, "g", (r,), "fail", traits=("mask",)) for c, r in ("aS", "bM", "cN")]
    >>> [(cause.rule, len(cause.failures), cause.common.traits) for cause in causes(failing)]
    [('MASK-1', 3, ('mask',))]
    """
    passing = [one for one in verdicts if one.status in ("pass", "deviation")]
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    found = sorted(failures, key=_simplicity)
    unsteady = _unsteady(found)
    for one in found:
        groups.setdefault(_kind(one, unsteady), []).append(one)
    groups = _fewer(groups)
    made: list[Cause] = []
    for key in sorted(groups, key=lambda key: (_ORDER[key[0]], -len(groups[key]), key)):
        made += _of_kind(key[0], groups[key], passing)
    return made


#: In what order they are shown; of values and of what is raised, what there is more of.
_ORDER = {"ended": 0, "repeated": 1, "earlier": 1, "changed": 2, "dtype": 3, "": 4, "raised": 4, "refused": 5}


def _fewer(groups: Mapping[tuple[str, ...], list[Verdict]]) -> dict[tuple[str, ...], list[Verdict]]:
    """Put together what ends or raises in too many ways to be shown one by one, but for the commonest."""
    kept: dict[tuple[str, ...], list[Verdict]] = {}
    counts: Counter[str] = Counter()
    for key, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        counts[key[0]] += 1
        kept.setdefault(key if counts[key[0]] < _MOST_WAYS else (key[0],), []).extend(group)
    return kept


def _unsteady(failures: Iterable[Verdict]) -> str:
    """Tell whether the same call came out otherwise when repeated, or as the first call of a process."""
    if any(not one.repeatable for one in failures):
        return "repeated"
    return "earlier" if any(not one.alone for one in failures) else ""


def _kind(one: Verdict, unsteady: str) -> tuple[str, ...]:
    raised = one.raised
    if one.status == "error" and one.difference is None and not (raised and raised.type):
        # Where it ended is known at times alone; how is known each time.
        return "ended", one.reason
    if about(one) == "NUM-4":
        return ("changed",)
    if traits.REFUSED in one.traits:
        return ("refused",)
    if unsteady:
        return (unsteady,)
    if raised is not None:
        return "raised", raised.type, raised.file, str(raised.line)
    return ("dtype",) if one.difference and one.difference.kind == "dtype" else ("",)


def _of_kind(kind: str, failures: Sequence[Verdict], passing: Sequence[Verdict]) -> Iterator[Cause]:
    if kind == "repeated":
        # The ones that were seen to come out otherwise show it best.
        yield Cause("NUM-9", tuple(sorted(failures, key=lambda one: one.repeatable)), kind=kind)
    elif kind == "earlier":
        # One alone would pass; several calls that are held against each other fail by themselves.
        yield Cause("ERR-13", _shown_first(failures, lambda one: "ERR-13" in one.rules), kind=kind)
    elif kind == "changed":
        yield Cause("NUM-4", tuple(failures), kind=kind)
    elif kind == "dtype":
        ruled = Counter(map(about, failures)).most_common(1)[0][0]
        yield Cause(ruled, _shown_first(failures, lambda one: about(one) == ruled))
    elif kind == "refused":
        commonest = Counter(map(about, failures)).most_common(1)[0][0]
        yield Cause(commonest, _shown_first(failures, lambda one: about(one) == commonest), kind=kind)
    else:
        plain = [one for one in passing if not {traits.REFUSED, traits.RELATED} & set(one.traits)]
        yield from _divided(failures, plain) if kind == "" else [_one(failures, plain, kind)]


def _one(failures: Sequence[Verdict], plain: Sequence[Verdict], kind: str) -> Cause:
    """Take what raises in one line, or ends in one way, for one cause, whatever the calls are about."""
    return _named(failures, _common(failures, plain), plain, kind)


def _divided(failures: Sequence[Verdict], plain: Sequence[Verdict]) -> Iterator[Cause]:
    """Divide failures by what the calls have in common, the most telling first."""
    # Several calls held against each other, and other operations, fail as the calls of attention do.
    left = list(failures)
    for number in range(_MOST_CAUSES):
        if not left:
            return
        common = _common([one for one in left if traits.RELATED not in one.traits] or left, plain)
        # What is left over of one cause, with nothing in common, is not divided any further.
        last = number == _MOST_CAUSES - 1 or (number > 0 and _clarity(common) < _CLEAR)
        own = [one for one in left if last or set(common.traits) <= _traits(one)]
        yield _named(own, common, plain)
        left = [one for one in left if one not in own]


def _traits(one: Verdict) -> set[str]:
    return {*one.traits, one.dtype}


def _common(failing: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    """Find what tells failing calls best from passing ones."""
    bad = [_traits(one) for one in failing]
    good = [_traits(one) for one in passing]
    single = sorted(set().union(*bad) - {traits.RELATED, "float32"})
    best = max((_counted((), bad, good), *(_counted((one,), bad, good) for one in single)), key=_clarity)
    pairs = [_counted(two, bad, good) for two in combinations(single, 2)]
    clearest = max(pairs, key=_clarity, default=best)
    return clearest if _clarity(clearest) > _clarity(best) + _CLEARER else best


def _counted(wanted: tuple[str, ...], bad: Sequence[set[str]], good: Sequence[set[str]]) -> Common:
    asked = set(wanted)
    failing, passed = (sum(asked <= one for one in calls) for calls in (bad, good))
    others = len(bad) - failing
    return Common(wanted, failing, failing + passed, others, others + len(good) - passed)


def _clarity(common: Common) -> float:
    """Give how well it tells failing calls from passing ones: 1 where each of these fails and no other.

    A failure that is left out counts four times as much as a call that passes: of a bug that does not
    show in each call, what all its failures have in common is still the cause.
    """
    passing = common.judged - common.failing
    told = 5 * common.failing / (5 * common.failing + 4 * common.others + passing)
    usual = common.traits in ((), (traits.NO_SCALE,)) and 2 * common.failing < common.judged
    return told * _USUAL if usual else told


def _named(own: Sequence[Verdict], common: Common, passing: Sequence[Verdict], kind: str = "") -> Cause:
    """Name the rule of a cause: by what the values look like, by what is in common, by whose cases fail."""
    if _is_of_half(own):
        first = _shown_first(own, lambda one: about(one) == "NUM-3")
        return Cause("NUM-3", first, common, kind, "float16")
    if _clarity(common) < _CLEAR:
        common = Common()
    rule = _looks(own) or _owner(own, common) or _whose(own, passing, common)
    return Cause(rule, _shown_first(own, lambda one: about(one) == rule), common, kind)


def _is_of_half(own: Sequence[Verdict]) -> bool:
    """Tell whether nearly all is off by no more than half precision would have it, float32 too."""
    found = [(one.dtype, one.difference) for one in own if one.difference]
    within = [dtype for dtype, off in found if off.kind == "value" and off.share <= _HALF.get(dtype, 0.0)]
    # Beyond what half precision holds there is no budget of it.
    return len(own) >= _FEW and "float32" in within and len(within) >= _NEARLY * len(own)


def _looks(own: Sequence[Verdict]) -> str:
    """Name the rule whose variant, or whose precision, most of the values are those of; empty for none."""
    named = [one for one in own if one.variant or one.precision]
    if 2 * len(named) <= len(own):
        return ""
    looks = Counter((one.precision or about(one)) for one in named).most_common(1)[0][0]
    return Counter(about(one) for one in named if looks in (one.precision, about(one))).most_common(1)[0][0]


def _owner(own: Sequence[Verdict], common: Common) -> str:
    if all(one.difference and one.difference.output == "lse" for one in own):
        return "SOFT-7" if traits.EMPTY in common.traits else "SOFT-6"
    if len(set(common.traits) & _MASKING) > 1:
        return "MASK-4"
    return next((rule for trait, rule in _OWNERS.items() if trait in common.traits), "")


def _whose(own: Sequence[Verdict], passing: Sequence[Verdict], common: Common) -> str:
    """Name the rule whose own cases fail most, among calls that have this in common."""
    within = [one for one in passing if set(common.traits) <= _traits(one)]
    bad = Counter(one.rules[0] for one in own if one.rules and traits.RELATED not in one.traits)
    good = Counter(one.rules[0] for one in within if one.rules)
    bad = bad or Counter(map(about, own))
    order = {rule: -number for number, rule in enumerate(rule.id for rule in rules())}
    # One more than there are: that a single case fails says less than that five of five do.
    often = {rule: bad[rule] / (bad[rule] + good[rule] + 1) for rule in bad}
    likely = [rule for rule in _AMONG.get(common.traits, ()) if rule in often]
    most = max(often[rule] for rule in likely or often)
    return next(
        (rule for rule in likely if often[rule] >= most - _OFTENER),
        max(often, key=lambda rule: (often[rule], order.get(rule, 0))),
    )


def _shown_first(found: Sequence[Verdict], wanted: Callable[[Verdict], bool]) -> tuple[Verdict, ...]:
    return tuple(sorted(found, key=lambda one: not wanted(one)))


def _simplicity(one: Verdict) -> tuple[bool, int, bool, int, bool, str]:
    """Order failures: single calls first, then those with a name, then by how many numbers they take."""
    named = bool(one.variant or one.precision)
    kind = 2 * (traits.RELATED in one.traits) + (traits.REFUSED in one.traits)
    return one.status == "error", kind, not named, one.numbers, bool(one.group), one.case
