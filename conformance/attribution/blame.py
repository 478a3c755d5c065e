"""Determines the rule that failures with one cause break, from values, common traits and failing cases."""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from math import inf, isfinite

from attnspec import OPERATIONS, rules
from attnspec.conformance import traits
from attnspec.conformance.attribution.common import traits_of
from attnspec.conformance.attribution.finding import Common
from attnspec.conformance.attribution.precision import is_rounding
from attnspec.conformance.attribution.sizes import every_trait
from attnspec.conformance.verdict import Difference, Verdict

#: The rule that is broken if calls have a trait in common, unless the values determine it. Of two traits the
#: first applies. `NO_SCALE` is late in the list because most calls have no scale.
_FIRST = {
    traits.NOTHING: "SHAPE-7",
    traits.EMPTY: "MASK-6",
    traits.LARGE: "SOFT-2",
    traits.VIEWED: "NUM-8",
    "softcap": "SCORE-5",
    "sinks": "SOFT-5",
    traits.SHARED: "HEAD-1",
}
#: Traits that follow the rules of the options.
_LAST = {
    "dropout_mask": "DROP-1",
    "query_segment_ids": "MASK-11",
    "key_segment_ids": "MASK-11",
    "query_positions": "MASK-14",
    "key_positions": "MASK-14",
    "float64": "NUM-2",
    traits.NO_SCALE: "SCORE-2",
    **dict.fromkeys((traits.MORE_QUERIES, traits.FEWER_QUERIES, traits.OTHER_QUERIES), "SHAPE-5"),
}
#: Candidates if several rules are possible, the likeliest first.
_AMONG: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("SOFT-1", "SCORE-1", "SOFT-2", "SOFT-3", "SCORE-2", "NUM-3"),
    **dict.fromkeys(
        [(traits.TILED,), (traits.TILED_32,), (traits.TILED_64,)], ("SOFT-3", "SOFT-2", "SHAPE-5")
    ),
    (traits.SPECIAL,): ("NUM-11", "NUM-12", "NUM-13", "NUM-14"),
    (traits.OTHER_DEPTH,): ("SCORE-2", "SHAPE-3", "SOFT-3"),
}
#: Candidates if calls over shards fail, whatever they have in common: what every such call shows.
_OF_SHARDS = ("SHARD-1", "SHARD-3", "SHARD-4")
#: A rule whose cases fail more often by this share is likelier than one before it.
_OFTENER = 0.2
_MASKING = {"mask", "bias", "is_causal", "window", "key_lengths", "query_lengths", "key_segment_ids"}


#: The gradients of the arrays that every call has.
_OF_ARRAYS = {"d_query", "d_key", "d_value"}
#: The rule that is broken if calls of gradients have a trait in common. Of two traits the first applies.
_GRADIENT_OWNERS = {
    traits.EMPTY: "GRAD-10",
    traits.SHARED: "GRAD-3",
    "dropout_mask": "GRAD-8",
    "sinks": "GRAD-7",
    "softcap": "GRAD-5",
    "d_lse": "GRAD-6",
    "bias": "GRAD-4",
    **dict.fromkeys(
        ("mask", "is_causal", "window", "key_lengths", "query_lengths", "query_segment_ids"), "GRAD-9"
    ),
    traits.VIEWED: "GRAD-15",
}
#: Rules about values that every call of gradients tests.
_GENERAL = ("GRAD-1", "GRAD-19")


@cache
def owners() -> dict[str, str]:
    """Return the rule that is broken for each trait that calls may have in common, in order."""
    form = OPERATIONS["attention"]
    apart = {*_LAST, *(output.option for output in form.results)}
    options = {name: form.arguments[name].rule for name in form.options if name not in apart}
    options |= {"scale": "SCORE-3", **_LAST}  # one that is given
    kinds = (traits.negative, traits.zero, traits.by_entry, traits.repeated_inside)
    numbers = {kind(name): rule for name, rule in options.items() for kind in kinds}
    sides = dict.fromkeys((traits.OPEN_LEFT, traits.OPEN_RIGHT), options["window"])
    return {**_FIRST, **numbers, **sides, **options}


def broken_rule(failures: Sequence[Verdict], common: Common, passing: Sequence[Verdict]) -> str:
    """Return the rule that failures break."""
    if resembled := _resembled_rule(failures):
        return resembled
    if are_gradients(failures):
        return _gradient_rule(failures, common, passing)
    if not common.traits and is_rounding(failures):
        return "NUM-3"
    owner = _owner(failures, common)
    if _are_forms(failures) and not any(owner == verdict.main_rule for verdict in failures):
        owner = ""  # a rule of attention, where a form has one of its own
    return owner or _rule_of_most_cases(failures, passing, common)


def is_uniform(failures: Sequence[Verdict]) -> bool:
    """Whether most values show one variant or precision, or nearly all errors have the size of a rounding."""
    return bool(_resembled_rule(failures)) or is_rounding(failures)


def are_gradients(failures: Sequence[Verdict]) -> bool:
    """Whether all failures are calls of gradients."""
    return bool(failures) and all(traits.GRADIENT in verdict.traits for verdict in failures)


def right_outputs(
    failures: Sequence[Verdict], common: Common, judged: Collection[Verdict]
) -> tuple[tuple[str, ...], int]:
    """Return traits of failures in gradients alone, and how many calls with these have right outputs.

    The traits are those that tell the failures from other calls, with the options that all failures have, or
    the dtype too if an output in another dtype is wrong. The options of each failure need a right call.
    """
    shared = tuple(trait for trait in common.traits if trait != traits.GRADIENT)
    options = [{*OPERATIONS["attention"].options} & {*verdict.traits} for verdict in failures]
    shared += tuple(sorted(set.intersection(*options) - {*shared})) if options else ()
    for kinds in (shared, (*shared, failures[0].dtype)) if are_gradients(failures) else ():
        own = [v for v in judged if v.operation == "attention" and {*kinds} <= traits_of(v)]
        own = [v for v in own if not {traits.REFUSED, traits.RELATED} & {*v.traits}]
        right = [verdict for verdict in own if verdict.status in ("pass", "deviation")]
        asked = all(any(each <= {*verdict.traits} for verdict in right) for each in options)
        if asked and not any(verdict.bad for verdict in own):
            return kinds, len(right)
    return (), 0


def _are_forms(failures: Sequence[Verdict]) -> bool:
    """Whether all failures are calls of a form, or of a stack of forms."""
    names = {verdict.operation for verdict in failures}
    return all(name in OPERATIONS and OPERATIONS[name].layers for name in names)


def _resembled_rule(failures: Sequence[Verdict]) -> str:
    """Return the rule whose variant or precision most of the values show, or an empty string."""
    named = [verdict for verdict in failures if verdict.variant or verdict.precision]
    if 2 * len(named) <= len(failures):
        return ""
    looks = Counter(verdict.precision or verdict.main_rule for verdict in named).most_common(1)[0][0]
    same = (verdict.main_rule for verdict in named if looks in (verdict.precision, verdict.main_rule))
    return Counter(same).most_common(1)[0][0]


def _owner(failures: Sequence[Verdict], common: Common) -> str:
    """Return the rule that owns the output or the common traits, or an empty string."""
    differences = [verdict.difference for verdict in failures]
    if all(off and off.output == "lse" for off in differences):
        nothing = sum(off is not None and off.expected == -inf for off in differences)
        return "SOFT-7" if traits.EMPTY in common.traits or 2 * nothing > len(failures) else "SOFT-6"
    options = set(map(traits.option_of, common.traits))
    if owned := _owner_in_companion(failures, options):
        return owned
    if len(options & _MASKING) > 1:
        return "MASK-4"
    # More failures in float64 are no evidence if other dtypes fail too.
    having = set(common.traits) - ({"float64"} if common.others else set())
    having -= set() if _are_of_empty_rows(differences) else {traits.EMPTY}
    return next((rule for trait, rule in owners().items() if trait in having), "")


def _are_of_empty_rows(differences: Sequence[Difference | None]) -> bool:
    """Whether most wrong numbers may be of a row that has nothing to attend to: such a row is 0, or NaN."""
    numbers = [off.expected for off in differences if off and off.kind in ("value", "pattern")]
    return 2 * sum(isinstance(x, float) and x != 0 and isfinite(x) for x in numbers) <= len(numbers)


def _owner_in_companion(failures: Sequence[Verdict], options: Collection[str]) -> str:
    """Return the rule that a companion gives to an option of attention, if all failures are calls of it."""
    forms = [OPERATIONS[name] for name in {verdict.operation for verdict in failures} if name in OPERATIONS]
    if len(forms) != 1 or forms[0].reduces:
        return ""
    own = (forms[0].arguments[name].rule for name in forms[0].options if name in options)
    return next((rule for rule in own if rule not in owners().values()), "")


def _rule_of_most_cases(failures: Sequence[Verdict], passing: Sequence[Verdict], common: Common) -> str:
    """Return the rule whose own cases fail most often, among calls with the common traits."""
    within = [verdict for verdict in passing if set(common.traits) <= traits_of(verdict)]
    bad = Counter(
        verdict.rules[0] for verdict in failures if verdict.rules and traits.RELATED not in verdict.traits
    )
    good = Counter(verdict.rules[0] for verdict in within if verdict.rules)
    bad = bad or Counter(verdict.main_rule for verdict in failures)
    order = {rule.id: -number for number, rule in enumerate(rules())}
    # Count one additional case, because one of one failing is weaker evidence than five of five.
    share = {rule: bad[rule] / (bad[rule] + good[rule] + 1) for rule in bad}
    # All calls of an implementation may have an option that masks.
    options = set.intersection(*map(traits_of, failures)) & _MASKING
    masks = [] if common.traits else [owners()[option] for option in sorted(options)]
    sized = common.traits and set(common.traits) <= set(every_trait())
    among = ("SOFT-3", *_AMONG[()]) if sized else _AMONG.get(common.traits, ())
    likely = [rule for rule in (*masks, *among) if rule in share]
    if common.traits and traits.VIEWED not in common.traits:  # calls in plain memory fail too
        share = {rule: part for rule, part in share.items() if rule != owners()[traits.VIEWED]} or share
        likely = [rule for rule in likely if rule in share]
    often = max(share.values()) - _OFTENER
    likely = likely or [rule for rule in _OF_SHARDS if rule in share and share[rule] >= often]
    most = max(share[rule] for rule in likely or share)
    return next(
        (rule for rule in likely if share[rule] >= most - _OFTENER),
        max(share, key=lambda rule: (share[rule], order.get(rule, 0))),
    )


def _gradient_rule(failures: Sequence[Verdict], common: Common, passing: Sequence[Verdict]) -> str:
    """Return the rule of the gradients that failures break."""
    counted = Counter(verdict.main_rule for verdict in failures)
    options = set(map(traits.option_of, common.traits))
    wrong = {output for x in failures if (off := x.difference) for output in (*off.outputs, off.output)}
    # A gradient of 0 that most other calls have is no gradient that is not offered.
    offered = [x for x in passing if traits.GRADIENT in x.traits and traits.NOTHING not in x.traits]
    offers = wrong <= _OF_ARRAYS and len(offered) > len(failures)
    if 2 * counted["GRAD-17"] > len(failures) and not offers:
        return "GRAD-17"
    owner = next((rule for trait, rule in _GRADIENT_OWNERS.items() if trait in options), "")
    if owner:
        return owner
    if is_rounding(failures):
        return "GRAD-19"
    most = max(counted, key=lambda rule: counted[rule])
    return next((rule for rule in _GENERAL if rule in counted), "GRAD-1" if most == "GRAD-17" else most)
