"""Groups failures by cause into findings, and finds the rule that describes each cause best.

A cause is described by counts: how many calls with some traits fail, and how many others. Calls that end the
process, raise one error in one line, change an input or are not repeatable have causes of their own, and so
have results of a lower precision and traces of weights. Traits divide the other failures.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from attnspec.conformance import traits
from attnspec.conformance.attribution.blame import (
    are_gradients,
    broken_rule,
    is_uniform,
    owners,
    right_outputs,
)
from attnspec.conformance.attribution.common import (
    CLEAR,
    calls_of,
    calls_of_usual_trait,
    clarity,
    common_of_sizes,
    common_traits,
    if_evident,
    if_significant,
    is_clear,
    is_pure,
    plainer,
    pure_traits,
    traits_of,
    with_lacked,
)
from attnspec.conformance.attribution.declined import preconditions_of
from attnspec.conformance.attribution.exceptions import exception_key, never_returns
from attnspec.conformance.attribution.finding import Common, Diagnosis, Finding, Kind, simplicity
from attnspec.conformance.attribution.merging import merged
from attnspec.conformance.attribution.order import (
    importance,
    plainness,
    put_first,
    under_rule_first,
    with_rule_of_bug,
)
from attnspec.conformance.attribution.precision import (
    PRECISE,
    TRACES,
    empty_rows,
    imprecise,
    is_gross,
    is_half_precision,
    is_slight,
    rows_past,
)
from attnspec.conformance.attribution.wide import counted, explained, is_general, is_predicted
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import DTYPES, SHORT

#: The largest numbers of causes: into which failures are divided, of exceptions and crashes that are shown,
#: and that are compared with the gallery.
_MOST_CAUSES, _MOST_WAYS, _MOST_DIAGNOSED = 4, 4, 3
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
#: What tells failures of one cause from others: a kind, and details such as the line that raised.
Key = tuple[str, ...]
Groups = dict[Key, list[Verdict]]


def findings(
    failures: Iterable[Verdict],
    verdicts: Iterable[Verdict] = (),
    diagnoses: Mapping[str, Mapping[str, Diagnosis]] | None = None,
    probes: Mapping[str, Mapping[str, str]] | None = None,
    *,
    seed: int | None = None,
    names: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Group the failures of each backend by cause, the most important first.

    The diagnoses and the probes are those of a backend by the rule of a cause, and the names its own ones of
    arguments.
    """
    judged = by_backend(verdicts)
    found: list[Finding] = []
    for backend, own in by_backend(verdict for verdict in failures if verdict.bad).items():
        causes = _causes(own, judged.get(backend, []))
        wrong = [verdict for verdict in own if traits.REFUSED not in verdict.traits]
        right = _values([verdict for verdict in judged.get(backend, []) if verdict.status == "pass"])
        for number, cause in enumerate(causes):
            lacking = preconditions_of(cause.failures, right, seed)
            common = with_lacked(cause.common, wrong, right)
            causes[number] = replace(cause, common=common, preconditions=lacking)
        wrong_values = sum(len(cause.failures) for cause in causes if cause.verdict.difference)
        causes.sort(key=lambda cause: importance(cause, wrong_values))
        by_rule, diagnosed = (diagnoses or {}).get(backend, {}), diagnosed_causes(causes)
        for cause in causes:
            rule = with_rule_of_bug(cause).rule  # under which it was diagnosed and probed
            diagnosis = by_rule.get(rule) if cause in diagnosed else None
            described = replace(cause, seed=seed, diagnosis=diagnosis, names=(names or {}).get(backend, ""))
            outputs = right_outputs(cause.failures, cause.common, judged.get(backend, []))
            probed = (probes or {}).get(backend, {}).get(rule, "") if cause in diagnosed[:1] else ""
            named = with_rule_of_bug(replace(described, right=outputs, probed=probed))
            found.append(_with_traits_first(named.with_variant_first()))
    return found


def _with_traits_first(cause: Finding) -> Finding:
    """Put a call with the common traits first if the first one lacks them, or leave out traits of others."""
    kind, having = cause.failures[0], {*cause.common.traits}
    alike = [x for x in cause.failures if (x.main_rule, x.variant) == (kind.main_rule, kind.variant)]
    if having <= traits_of(kind) or not any(having <= traits_of(verdict) for verdict in alike):
        return cause if having <= traits_of(kind) else replace(cause, common=Common())
    shown = put_first(alike, lambda verdict: having <= traits_of(verdict))
    return replace(cause, failures=put_first(cause.failures, shown[0].__eq__))


def diagnosed_causes(causes: Sequence[Finding]) -> list[Finding]:
    """Return the first causes with wrong values, one under each rule, or the first cause if none has any."""
    wrong = {cause.rule: cause for cause in reversed(causes) if cause.verdict.difference is not None}
    return [cause for cause in causes if cause is wrong.get(cause.rule)][:_MOST_DIAGNOSED] or [*causes[:1]]


def unmet(verdicts: Iterable[Verdict]) -> list[Finding]:
    """Return a finding for each SHOULD that a backend does not meet, the plainest verdict first."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    judged = by_backend(verdicts)
    for backend, own in judged.items():
        if not never_returns(own):
            for verdict in own:
                if verdict.status == "should not met":
                    groups.setdefault((backend, verdict.main_rule), []).append(verdict)
    return [Finding(rule, tuple(sorted(group, key=plainness))) for (_, rule), group in groups.items()]


def by_backend(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """Group verdicts by their backend."""
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(verdict.backend, []).append(verdict)
    return groups


def _causes(failures: Iterable[Verdict], judged: Sequence[Verdict]) -> list[Finding]:
    """Group the failures of one backend by cause."""
    passing = [verdict for verdict in judged if verdict.status in ("pass", "deviation")]
    groups: Groups = {}
    failing = sorted(failures, key=simplicity)
    if never_returns(judged):
        return _exceptions(failing)
    unsteady = _unsteady(failing)
    separate = {} if unsteady else imprecise(failing)
    # What one condition predicts in every dtype is no matter of the precision.
    sized = common_of_sizes(calls_of([v for v in failing if v.difference]), _values(passing))
    if separate and is_general(Finding("", tuple(failing), sized), passing):
        separate = {v: key for v, key in separate.items() if not {*sized.traits} <= traits_of(v)}
    for verdict in failing:
        key = _key(verdict, unsteady)
        groups.setdefault(separate.get(verdict, key) if key == ("",) else key, []).append(verdict)
    groups = _with_shapes(_fewer(groups))
    causes: list[Finding] = []
    for key in sorted(groups, key=lambda key: (_ORDER[key[0]], -len(groups[key]), key)):
        # The logic of calls that are only imprecise is right.
        right = passing if key[0] in (PRECISE, TRACES) else [*passing, *separate]
        causes += _of_group(key, groups[key], right)
    return merged(explained(causes, passing), _values(passing)) if len(causes) > 1 else causes


def _exceptions(failures: Iterable[Verdict]) -> list[Finding]:
    """Make the findings of an implementation of which no call returns: one for each error."""
    groups: Groups = {}
    for verdict in failures:
        key = ("always", verdict.reason if verdict.ended else "", *exception_key(verdict))
        groups.setdefault(key, []).append(verdict)
    shown = sorted(_fewer(groups).values(), key=len, reverse=True)
    return [Finding(group[0].main_rule, tuple(group), kind="always") for group in shown]


def _fewer(groups: Mapping[Key, list[Verdict]]) -> Groups:
    """Merge crashes or exceptions of too many kinds, except for the most frequent ones."""
    kept: Groups = {}
    counts: Counter[str] = Counter()
    for key, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        counts[key[0]] += 1
        kept.setdefault(key if counts[key[0]] < _MOST_WAYS else (key[0],), []).extend(group)
    return kept


def _with_shapes(groups: Groups) -> Groups:
    """Merge wrong values into more numerous wrong shapes, because some shapes are right by chance."""
    shapes, values = groups.get(("shape",), []), groups.get(("",), [])
    having = set.intersection(*({*verdict.traits, verdict.dtype} for verdict in shapes)) if shapes else set()
    own = [verdict for verdict in values if having <= traits_of(verdict)] if len(shapes) > len(values) else []
    left = [verdict for verdict in values if verdict not in own]
    return {
        key: shapes + own if key == ("shape",) else left if key == ("",) else group
        for key, group in groups.items()
        if key != ("",) or left
    }


def _unsteady(failures: Iterable[Verdict]) -> str:
    """Return the kind of a cause whose calls have another result if repeated or called first."""
    if any(not verdict.repeatable for verdict in failures):
        return "repeated"
    return "earlier" if any(not verdict.alone for verdict in failures) else ""


def _key(verdict: Verdict, unsteady: str) -> Key:
    """Return the kind of a failure, with what tells it from others of the kind."""
    raised = verdict.raised
    if verdict.ended:
        # The place where it ended is not always known, but the way is.
        return "ended", verdict.reason
    if (verdict.main_rule == "NUM-4" and raised is None) or (
        raised and any(text in raised.message for text in _UNWRITABLE)
    ):
        return ("changed",)
    # Beside a refused call, the values of good calls are compared. They fail for the reasons of other calls.
    if traits.REFUSED in verdict.traits and not (traits.RELATED in verdict.traits and verdict.difference):
        return ("refused",)
    if unsteady:
        return (unsteady,)
    if raised is not None:
        return "raised", *exception_key(verdict)
    kind = verdict.difference.kind if verdict.difference and traits.RELATED not in verdict.traits else ""
    return (kind,) if kind in ("dtype", "shape") else ("",)


def _of_group(key: Key, failures: Sequence[Verdict], passing: Sequence[Verdict]) -> Iterator[Finding]:
    """Yield the causes of the failures with one key."""
    kind = key[0]
    if kind in (PRECISE, TRACES):
        rule = _rule_of_traces(failures) if kind == TRACES else key[1]
        common = if_evident(common_traits(calls_of(failures), _values(passing), owners()))
        yield Finding(rule, under_rule_first(failures, rule), common, cast(Kind, kind))
    elif kind == "repeated":
        # The calls whose result changed when repeated show it best.
        yield Finding("NUM-9", put_first(failures, lambda verdict: not verdict.repeatable), kind="repeated")
    elif kind == "earlier":
        # A single call would pass. A relation of several calls fails on its own, and two calls show it too.
        first = put_first(failures, lambda verdict: bool(verdict.after))
        first = put_first(
            first, lambda verdict: "ERR-13" in verdict.rules and traits.RELATED in verdict.traits
        )
        yield Finding("ERR-13", first, kind="earlier")
    elif kind in ("changed", "dtype", "shape", "refused"):
        rule = "NUM-4" if kind == "changed" else _most_frequent_rule(failures)
        common = Common()
        if kind != "refused":
            common = if_evident(common_traits(failures, _values(passing), owners()))
        shown = cast(Kind, kind if kind in ("changed", "refused") else "")
        yield Finding(rule, under_rule_first(failures, rule), common, shown)
    else:
        values = _values(passing)
        divided: Iterable[Finding] = _divided(failures, values)
        if kind:
            common = common_traits(failures, values, owners())
            divided = [_cause(failures, common, values, cast(Kind, kind))]
        # Errors the size of a rounding give the least information.
        yield from sorted(divided, key=lambda cause: cause.rule == "NUM-3" and not cause.precision)


def _rule_of_traces(failures: Iterable[Verdict]) -> str:
    """Return the rule on weights of disallowed keys. If other weights are wrong too, that on all weights."""
    none = all(verdict.difference is not None and verdict.difference.expected == 0 for verdict in failures)
    return "MASK-5" if none else "SOFT-1"


def _most_frequent_rule(failures: Iterable[Verdict]) -> str:
    return Counter(verdict.main_rule for verdict in failures).most_common(1)[0][0]


def _values(passing: Sequence[Verdict]) -> list[Verdict]:
    """Leave out refusals and relations."""
    return [verdict for verdict in passing if not {traits.REFUSED, traits.RELATED} & set(verdict.traits)]


def _divided(failures: Sequence[Verdict], passing: Sequence[Verdict]) -> Iterator[Finding]:
    """Divide failures by common traits.

    Where errors in half precision hide them, first those in wide dtypes, then what these do not explain.
    """
    for apart in (empty_rows(failures), rows_past(failures, passing)):
        if 0 < len(apart) < len(failures):
            yield from _divided(apart, passing)
            failures = [verdict for verdict in failures if verdict not in apart]
    short = [verdict for verdict in failures if verdict.dtype in SHORT]
    if not 0 < len(short) < len(failures):
        yield from _by_traits(failures, passing)
        return
    wide = [verdict for verdict in failures if verdict.dtype not in SHORT]
    right = [verdict for verdict in passing if verdict.dtype not in SHORT]
    if clarity(common_traits(calls_of(failures), passing, owners())) >= CLEAR:  # the dtypes agree
        yield from _by_traits(failures, passing)
        return
    causes = [*_by_traits(wide, right)]
    own = {verdict.stem: number for number, cause in enumerate(causes) for verdict in cause.failures}
    general = [number for number, cause in enumerate(causes) if is_general(cause, right)]
    added: dict[int, list[Verdict]] = {}
    left: list[Verdict] = []
    for verdict in short:
        # The same call in a wide dtype, or calls of a kind of which nearly all fail.
        covering = (number for number in general if set(causes[number].common.traits) <= traits_of(verdict))
        number = own.get(verdict.stem, next(covering, None))
        (left if number is None else added.setdefault(number, [])).append(verdict)
    for number, cause in enumerate(causes):
        yield counted(replace(cause, failures=(*cause.failures, *added.get(number, ()))), passing)
    if left:
        yield from _by_traits(left, [verdict for verdict in passing if verdict.dtype in SHORT])


def _by_traits(failures: Sequence[Verdict], passing: Sequence[Verdict]) -> Iterator[Finding]:
    """Divide failures by common traits, starting with the most significant traits."""
    # Relations and other operations fail for the same reasons as calls of attention.
    left = list(failures)
    common = common_traits(calls_of(left), passing, owners())
    gross = [verdict for verdict in left if is_gross(verdict)]
    if gross and clarity(common) < CLEAR and not is_half_precision(left):
        # Large errors may show common traits that small errors hide.
        fine = [verdict for verdict in left if verdict not in gross]
        common = common_traits(calls_of(gross), [*passing, *calls_of(fine)], owners())
        if clarity(common) >= CLEAR and if_significant(common).traits:
            own = [verdict for verdict in gross if set(common.traits) <= traits_of(verdict)]
            yield _cause(own, common, passing)
            left = [verdict for verdict in left if verdict not in own]
    for number in range(_MOST_CAUSES):
        if not left:
            return
        common = common_traits(calls_of(left), passing, owners())
        if clarity(common) < CLEAR and number < _MOST_CAUSES - 1:
            # Several causes are left. One of them may be all calls of some kind.
            pure = pure_traits(calls_of(left), passing)
            common = pure if pure.traits else common
        if number == 0 and not _separates(common):
            default = _of_usual_trait(left, passing)
            common = default if default.traits else common
        # Remaining failures without common traits are not divided further.
        unclear = clarity(common) < CLEAR and not is_pure(common)
        last = number == _MOST_CAUSES - 1 or (number > 0 and unclear)
        own = [verdict for verdict in left if last or set(common.traits) <= traits_of(verdict)]
        # The same call in another dtype has the same cause.
        stems = {verdict.stem for verdict in own if set(common.traits) & set(DTYPES)}
        own += [verdict for verdict in left if verdict not in own and verdict.stem in stems]
        left = [verdict for verdict in left if verdict not in own]
        if number == 0 and all(traits.RELATED in verdict.traits for verdict in left):
            # The relations fail because of their calls: a call alone fails too. NaN explains no other number.
            numbers = [x for x in left if x.difference and x.difference.kind == "value"]
            other = [x for x in numbers if traits.SPECIAL in {*common.traits} - {*x.traits}]
            own, left = [*own, *(verdict for verdict in left if verdict not in other)], other
        yield _cause(own, common, passing)


def _cause(
    failures: Sequence[Verdict], common: Common, passing: Sequence[Verdict], kind: Kind = ""
) -> Finding:
    """Make a finding of failures, with its rule."""
    if is_half_precision(failures) and is_predicted(failures, common, passing):
        rule = "GRAD-19" if are_gradients(failures) else "NUM-3"
        return Finding(rule, under_rule_first(failures, rule), common, kind, "float16")
    # A single call has too many traits that others lack.
    clear = len(failures) > 1 and (_separates(common) or common == _of_usual_trait(failures, passing))
    # NaN shows any bug, and the gradients of a wrong output are wrong: rules about them come last.
    shown_by = failures
    for trait in (traits.SPECIAL, traits.GRADIENT):
        plain = [verdict for verdict in shown_by if trait not in verdict.traits]
        shown_by = plain if plain and trait not in common.traits else shown_by
    shown_by = [verdict for verdict in shown_by if not is_slight(verdict)] or shown_by
    rule = broken_rule(shown_by, common if clear else Common(), passing)
    mixed = not kind and not clear and len({x.main_rule for x in failures}) > 1 and not is_uniform(failures)
    shown = if_evident(common)
    if shown.traits or not kind:  # failures of other causes do not count
        shown = plainer(shown, calls_of(failures), passing)
    return Finding(rule, under_rule_first(failures, rule), shown, kind, mixed=mixed)


def _of_usual_trait(failures: Sequence[Verdict], passing: Sequence[Verdict]) -> Common:
    return calls_of_usual_trait(calls_of(failures), passing, owners())


def _separates(common: Common) -> bool:
    """Whether traits name a cause, and calls with them fail so often that this may be said."""
    return is_clear(common) and common == if_significant(common)
