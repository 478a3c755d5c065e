"""Groups failures by cause, and finds the rule that describes each cause best.

The description of a cause consists of counts: how many of the calls with some traits fail, and how
many of all others. Calls that end the process, raise one error in one line, change an input or are not
repeatable have separate causes, and so have results of a lower precision and traces of weights that
should be 0. Other failures are divided by their common traits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from attnspec.conformance import traits
from attnspec.conformance.attribution.aside import PRECISE, TRACES, set_aside
from attnspec.conformance.attribution.blame import is_alike, is_gross, is_of_half, owners, rule_of
from attnspec.conformance.attribution.blame_gradients import are_gradients
from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.common import (
    CLEAR,
    Common,
    clarity,
    common_of,
    is_pure,
    pure_of,
    told,
    traits_of,
)
from attnspec.conformance.attribution.messages import ended, never_returned, of_line
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import DTYPES, SHORT

#: The largest number of causes into which failures are divided.
_MOST_CAUSES = 4
#: The largest number of causes of exceptions and crashes that are shown.
_MOST_WAYS = 4
#: A cause may absorb others if at least this share of the calls with its traits fails.
_NEARLY = 0.9
#: Traits of the calls that show whether an option excludes keys, and the size of a pair of traits.
_EXTREME, _PAIR = {traits.EMPTY, traits.LARGE}, 2
#: The kind of a cause by which no call returns a result.
ALWAYS = "always"
#: The kinds of causes that neither take in others nor are taken in.
_APART = {"ended", "repeated", "earlier", "refused", PRECISE, TRACES}
_NOTHING = Common()


@dataclass(frozen=True)
class Cause:
    """Failures with one cause.

    Attributes
    ----------
    rule : str
        The rule that it breaks.
    failures : tuple of Verdict
        The failures, starting with the one to show.
    common : Common
    kind : str
        ``ended``, ``raised``, ``always`` (no call returns), ``changed``, ``repeated``, ``earlier``,
        ``refused``, ``precise`` or ``traces`` (see `attnspec.conformance.attribution.aside`). Empty for other
        wrong values.
    precision : str
        A shorter dtype in whose budget all failures lie, or empty.
    further : tuple of Common
        Common traits of other calls that fail under the same rule.
    mixed : bool
        Whether its failures were left over by other causes and have nothing in common, so that they may
        have several causes.
    """

    rule: str
    failures: tuple[Verdict, ...]
    common: Common = _NOTHING
    kind: str = ""
    precision: str = ""
    further: tuple[Common, ...] = ()
    mixed: bool = False


def causes(failures: Iterable[Verdict], verdicts: Iterable[Verdict] = ()) -> list[Cause]:
    """Group the failures of one backend by cause, the most important first.

    Examples
    --------
    >>> from attnspec.conformance.attribution.causes import causes
    >>> from attnspec.conformance.verdict import Verdict
    >>> failing = [Verdict("b", r, "g", (r,), "fail", traits=("mask",)) for r in ("SOFT-1", "MASK-1")]
    >>> passing = [Verdict("b", "c", "g", ("SOFT-1",), "pass")]
    >>> [(cause.rule, len(cause.failures), cause.common.traits) for cause in causes(failing, passing)]
    [('MASK-1', 2, ('mask',))]
    """
    judged = list(verdicts)
    passing = [one for one in judged if one.status in ("pass", "deviation")]
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    found = sorted(failures, key=_simplicity)
    if never_returned(judged):
        return _of_all(found)
    unsteady = _unsteady(found)
    aside = {} if unsteady else set_aside(found)
    for one in found:
        kind = _kind(one, unsteady)
        groups.setdefault(aside.get(one, kind) if kind == ("",) else kind, []).append(one)
    groups = _with_shapes(_fewer(groups))
    made: list[Cause] = []
    for key in sorted(groups, key=lambda key: (_ORDER[key[0]], -len(groups[key]), key)):
        # The logic of calls that are only imprecise is right.
        right = passing if key[0] in (PRECISE, TRACES) else [*passing, *aside]
        made += _of_kind(key, groups[key], right)
    return _folded(made)


def _of_all(failures: Iterable[Verdict]) -> list[Cause]:
    """Make the causes of an implementation of which no call returns: one for each error."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for one in failures:
        groups.setdefault((ALWAYS, one.reason if ended(one) else "", *of_line(one)), []).append(one)
    shown = sorted(_fewer(groups).values(), key=len, reverse=True)
    return [Cause(about(group[0]), tuple(group), kind=ALWAYS) for group in shown]


def _folded(made: Sequence[Cause]) -> list[Cause]:
    """Merge a cause into a larger one that fails for nearly all calls of a kind and covers its calls."""
    kept: list[Cause] = []
    for cause in sorted(made, key=lambda one: -len(one.failures)):
        wider = next((one for one in kept if _takes_in(one, cause)), None)
        if wider is None:
            kept.append(cause)
        else:
            kept[kept.index(wider)] = replace(wider, failures=(*wider.failures, *cause.failures))
    order = [cause.failures[0] for cause in made]
    return _of_one_rule(sorted(kept, key=lambda one: order.index(one.failures[0])))


def _of_one_rule(made: Iterable[Cause]) -> list[Cause]:
    """Merge causes of wrong values under one rule or of one option, those of the first in front."""
    kept: list[Cause] = []
    for cause in made:
        first = next((one for one in kept if _is_same(one, cause)), None)
        if first is None:
            kept.append(cause)
        else:
            failures, further = (*first.failures, *cause.failures), (*first.further, cause.common)
            kept[kept.index(first)] = replace(
                first, failures=failures, further=further, mixed=first.mixed or cause.mixed
            )
    return kept


def _is_same(one: Cause, other: Cause) -> bool:
    """Whether both are wrong values under one rule, or of one option where it must exclude keys entirely."""
    forms = {one.kind, other.kind, _form(one), _form(other)}
    same = one.rule == other.rule or bool(_weak(one.common) & _weak(other.common))
    return forms == {""} and same and one.precision == other.precision


def _weak(common: Common) -> set[str]:
    """Return the option that fails only where nothing is left to attend to, or beside large scores.

    An option that lowers scores by a finite number, instead of excluding keys, fails in both.
    """
    found = set(common.traits)
    return found - _EXTREME if len(found) == _PAIR and found & _EXTREME else set()


def _takes_in(wider: Cause, cause: Cause) -> bool:
    having, common = set(wider.common.traits), wider.common
    clear = bool(having) and common.failing >= _NEARLY * common.judged
    apart = {wider.kind, cause.kind} & _APART
    # Wrong values do not cause a wrong shape or dtype.
    apart |= {_form(cause)} - {_form(wider), ""}
    return clear and not apart and all(having <= traits_of(one) for one in cause.failures)


#: The order in which kinds of causes are shown. Within a kind, larger causes come first.
_ORDER = {
    "ended": 0,
    "repeated": 1,
    "earlier": 1,
    "changed": 2,
    "dtype": 4,
    "shape": 4,
    "": 4,
    "raised": 4,
    PRECISE: 5,
    TRACES: 5,
    "refused": 6,
}
#: Messages of libraries about writing to a read-only input, which would have changed the input.
_UNWRITABLE = ("read-only", "more than one element of the written-to tensor")


def _fewer(groups: Mapping[tuple[str, ...], list[Verdict]]) -> dict[tuple[str, ...], list[Verdict]]:
    """Merge crashes or exceptions of too many kinds, except for the most frequent ones."""
    kept: dict[tuple[str, ...], list[Verdict]] = {}
    counts: Counter[str] = Counter()
    for key, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        counts[key[0]] += 1
        kept.setdefault(key if counts[key[0]] < _MOST_WAYS else (key[0],), []).extend(group)
    return kept


def _form(cause: Cause) -> str:
    """Return ``shape`` or ``dtype`` if the cause is about these, or an empty string."""
    difference = cause.failures[0].difference
    return difference.kind if difference and difference.kind in ("shape", "dtype") else ""


def _with_shapes(groups: dict[tuple[str, ...], list[Verdict]]) -> dict[tuple[str, ...], list[Verdict]]:
    """Merge wrong values into more numerous wrong shapes, because some shapes are right by chance."""
    shapes, values = groups.get(("shape",), []), groups.get(("",), [])
    having = set.intersection(*map(traits_of, shapes)) if shapes else set()
    own = [one for one in values if having <= traits_of(one)] if len(shapes) > len(values) else []
    left = [one for one in values if one not in own]
    return {
        key: shapes + own if key == ("shape",) else left if key == ("",) else group
        for key, group in groups.items()
        if key != ("",) or left
    }


def _unsteady(failures: Iterable[Verdict]) -> str:
    """Return the kind of a cause whose calls have another result if repeated or called first."""
    if any(not one.repeatable for one in failures):
        return "repeated"
    return "earlier" if any(not one.alone for one in failures) else ""


def _kind(one: Verdict, unsteady: str) -> tuple[str, ...]:
    raised = one.raised
    if one.status == "error" and one.difference is None and not (raised and raised.type):
        # The place where it ended is not always known, but the way is.
        return "ended", one.reason
    if about(one) == "NUM-4" or (raised and any(text in raised.message for text in _UNWRITABLE)):
        return ("changed",)
    # Beside a refused call, the values of good calls are compared. They fail for the reasons of other calls.
    if traits.REFUSED in one.traits and not (traits.RELATED in one.traits and one.difference):
        return ("refused",)
    if unsteady:
        return (unsteady,)
    if raised is not None:
        return "raised", *of_line(one)
    kind = one.difference.kind if one.difference and traits.RELATED not in one.traits else ""
    return (kind,) if kind in ("dtype", "shape") else ("",)


def _of_kind(
    key: tuple[str, ...], failures: Sequence[Verdict], passing: Sequence[Verdict]
) -> Iterator[Cause]:
    kind = key[0]
    if kind in (PRECISE, TRACES):
        rule = _rule_of_traces(failures) if kind == TRACES else key[1]
        common = told(common_of(_singles(failures), _plain(passing), owners()))
        yield Cause(rule, _shown_first(failures, lambda one: about(one) == rule), common, kind)
    elif kind == "repeated":
        # The calls whose result changed when repeated show it best.
        yield Cause("NUM-9", tuple(sorted(failures, key=lambda one: one.repeatable)), kind=kind)
    elif kind == "earlier":
        # A single call would pass. A relation of several calls fails on its own.
        yield Cause("ERR-13", _shown_first(failures, lambda one: "ERR-13" in one.rules), kind=kind)
    elif kind in ("changed", "dtype", "shape", "refused"):
        ruled = "NUM-4" if kind == "changed" else Counter(map(about, failures)).most_common(1)[0][0]
        common = Common() if kind == "refused" else told(common_of(failures, _plain(passing), owners()))
        kept = kind if kind in ("changed", "refused") else ""
        yield Cause(ruled, _shown_first(failures, lambda one: about(one) == ruled), common, kept)
    else:
        plain = _plain(passing)
        divided = _divided(failures, plain) if kind == "" else [_one(failures, plain, kind)]
        # Errors the size of a rounding give the least information.
        yield from sorted(divided, key=lambda cause: cause.rule == "NUM-3" and not cause.precision)


def _rule_of_traces(failures: Iterable[Verdict]) -> str:
    """Return the rule on weights of disallowed keys. If other weights are wrong too, that on all weights."""
    none = all(one.difference is not None and one.difference.expected == 0 for one in failures)
    return "MASK-5" if none else "SOFT-1"


def _plain(passing: Sequence[Verdict]) -> list[Verdict]:
    return [one for one in passing if not {traits.REFUSED, traits.RELATED} & set(one.traits)]


def _one(failures: Sequence[Verdict], plain: Sequence[Verdict], kind: str) -> Cause:
    """Make one cause of failures that raise in one line or end in one way."""
    return _named(failures, common_of(failures, plain, owners()), plain, kind)


def _divided(failures: Sequence[Verdict], plain: Sequence[Verdict]) -> Iterator[Cause]:
    """Divide failures by common traits, starting with the most significant traits."""
    # Relations and other operations fail for the same reasons as calls of attention.
    left = list(failures)
    common = common_of(_singles(left), plain, owners())
    gross = [one for one in left if is_gross(one)]
    if gross and clarity(common) < CLEAR and not is_of_half(left):
        # Large errors may show common traits that small errors hide.
        fine = [one for one in left if one not in gross]
        common = common_of(_singles(gross), [*plain, *_singles(fine)], owners())
        if clarity(common) >= CLEAR and told(common).traits:
            own = [one for one in gross if set(common.traits) <= traits_of(one)]
            yield _named(own, common, plain)
            left = [one for one in left if one not in own]
    for number in range(_MOST_CAUSES):
        if not left:
            return
        common = common_of(_singles(left), plain, owners())
        if clarity(common) < CLEAR and number < _MOST_CAUSES - 1:
            # Several causes are left. One of them may be all calls of some kind.
            pure = pure_of(_singles(left), plain)
            common = pure if pure.traits else common
        # Remaining failures without common traits are not divided further.
        unclear = clarity(common) < CLEAR and not is_pure(common)
        last = number == _MOST_CAUSES - 1 or (number > 0 and unclear)
        own = [one for one in left if last or set(common.traits) <= traits_of(one)]
        # The same call in another dtype has the same cause.
        stems = {_stem(one) for one in own if set(common.traits) & set(DTYPES)}
        own += [one for one in left if one not in own and _stem(one) in stems]
        yield _named(own, common, plain)
        left = [one for one in left if one not in own]


def _singles(found: Sequence[Verdict]) -> Sequence[Verdict]:
    """Leave out relations, unless there is nothing else."""
    return [one for one in found if traits.RELATED not in one.traits] or found


def _named(own: Sequence[Verdict], common: Common, passing: Sequence[Verdict], kind: str = "") -> Cause:
    """Make a cause of failures, with its rule."""
    if is_of_half(own):
        precise = "GRAD-19" if are_gradients(own) else "NUM-3"
        first = _shown_first(own, lambda one: about(one) == precise)
        return Cause(precise, first, common, kind, "float16")
    # A single call has too many traits that others lack.
    clear = (clarity(common) >= CLEAR or is_pure(common)) and len(own) > 1
    rule = rule_of(own, common if clear else Common(), passing)
    mixed = not kind and not clear and len(set(map(about, own))) > 1 and not is_alike(own)
    return Cause(rule, _shown_first(own, lambda one: about(one) == rule), told(common), kind, mixed=mixed)


def _stem(one: Verdict) -> str:
    return one.case.removesuffix(f"-{one.dtype}")


def _shown_first(found: Sequence[Verdict], wanted: Callable[[Verdict], bool]) -> tuple[Verdict, ...]:
    return tuple(sorted(found, key=lambda one: not wanted(one)))


def _simplicity(one: Verdict) -> tuple[bool, int, bool, int, bool, bool, str]:
    """Return a sort key: single calls first, then named cases, then fewer numbers, then longer dtypes."""
    named = bool(one.variant or one.precision)
    kind = 2 * (traits.RELATED in one.traits) + (traits.REFUSED in one.traits)
    return one.status == "error", kind, not named, one.numbers, one.dtype in SHORT, bool(one.group), one.case
