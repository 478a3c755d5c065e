"""Determines the rule that a cause breaks, from its values, common traits and the cases that fail."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import inf

from attnspec import rules
from attnspec.conformance import traits
from attnspec.conformance.attribution.blame_gradients import are_gradients, rule_of_gradients
from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.common import Common, traits_of
from attnspec.conformance.sizes.sized import GROUPS
from attnspec.conformance.verdict import Verdict

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
    "float64": "NUM-2",
    traits.NO_SCALE: "SCORE-2",
    traits.MORE_QUERIES: "SHAPE-5",
}
#: Candidates if several rules are possible, the likeliest first.
_AMONG: dict[tuple[str, ...], tuple[str, ...]] = {
    (): ("SOFT-1", "SOFT-2", "SOFT-3", "SCORE-1", "SCORE-2", "NUM-3"),
    **dict.fromkeys(
        [(traits.TILED,), (traits.TILED_32,), (traits.TILED_64,)], ("SOFT-3", "SOFT-2", "SHAPE-5")
    ),
    (traits.SPECIAL,): ("NUM-11", "NUM-12", "NUM-13", "NUM-14"),
    (traits.OTHER_DEPTH,): ("SCORE-2", "SHAPE-3", "SOFT-3"),
}
#: A rule whose cases fail more often by this share is likelier than one before it.
_OFTENER = 0.2
_MASKING = {"mask", "bias", "is_causal", "window", "key_lengths", "query_lengths", "key_segment_ids"}
#: The largest error, in budgets, of a result that was computed in half precision, by its dtype.
_HALF = {"float32": 2.0**13, "float64": 2.0**42}
#: If the cause is half precision, the error of some result in float32 is at least this many budgets.
_COARSE = 200.0
#: And the error of half of the results in float32 is at least this many budgets.
_MIDDLE = 10.0
#: An error larger than this share of the number is not due to rounding.
_GROSS = 0.05
#: An error of fewer budgets than this may be due to wrong rounding.
_FEW_BUDGETS = 100.0
#: With fewer failures than this, no precision is named.
_FEW = 5
_NEARLY = 0.8


@cache
def owners() -> dict[str, str]:
    """Return the rule that is broken for each trait that calls may have in common, in order.

    Examples
    --------
    >>> from attnspec.conformance.attribution.blame import owners
    >>> owners()["mask"]
    'MASK-1'
    """
    from attnspec.conformance.suite.options import OPTIONS  # it imports NumPy, which only a failure needs

    options = {**{name: option.rule for name, option in OPTIONS.items()}, **_LAST}
    kinds = (traits.negative, traits.zero, traits.by_entry)
    numbers = {kind(name): rule for name, rule in options.items() for kind in kinds}
    sides = dict.fromkeys((traits.OPEN_LEFT, traits.OPEN_RIGHT), options["window"])
    return {**_FIRST, **numbers, **sides, **options}


def rule_of(own: Sequence[Verdict], common: Common, passing: Sequence[Verdict]) -> str:
    """Return the rule that failures break.

    Examples
    --------
    >>> from attnspec.conformance.attribution.blame import rule_of
    >>> from attnspec.conformance.attribution.common import Common
    >>> from attnspec.conformance.verdict import Verdict
    >>> rule_of([Verdict("b", "c", "g", ("SHAPE-1",), "fail")], Common(("mask",)), [])
    'MASK-1'
    """
    if are_gradients(own):
        return _looks(own) or rule_of_gradients(own, common, rounding=_is_of_rounding(own))
    if not common.traits and _is_of_rounding(own):
        return _looks(own) or "NUM-3"
    return _looks(own) or _owner(own, common) or _whose(own, passing, common)


def is_of_half(own: Sequence[Verdict]) -> bool:
    """Whether nearly all errors, also in float32, match a computation in half precision."""
    # The budgets of sized cases grow with the number of keys, so their shares do not tell.
    found = [
        (one.dtype, one.difference) for one in own if one.difference and not one.group.startswith(GROUPS)
    ]
    within = [dtype for dtype, off in found if off.kind == "value" and off.share <= _HALF.get(dtype, 0.0)]
    shares = sorted(off.share for dtype, off in found if dtype == "float32")
    coarse = bool(shares) and shares[-1] >= _COARSE and shares[len(shares) // 2] >= _MIDDLE
    # Outside the range of half precision there is no budget. Smaller errors have other causes.
    return len(own) >= _FEW and coarse and len(within) >= _NEARLY * len(own)


def is_gross(one: Verdict) -> bool:
    """Whether the error is a large share of the result, so that it is not due to rounding."""
    off = one.difference
    if off is None or not isinstance(off.got, float) or not isinstance(off.expected, float):
        return off is not None and off.kind == "pattern"
    return off.kind == "pattern" or not abs(off.got - off.expected) <= _GROSS * max(1.0, abs(off.expected))


def is_few_budgets(one: Verdict) -> bool:
    """Whether the error of a value is only a few budgets."""
    off = one.difference
    return off is not None and off.kind == "value" and off.share <= _FEW_BUDGETS


def _is_of_rounding(own: Sequence[Verdict]) -> bool:
    """Whether nearly all errors are a few budgets, and none is large."""
    few = sum(map(is_few_budgets, own))
    if 2 * sum(bool(one.ignored or one.variant) for one in own) > len(own):
        return False  # it resembles something else
    return bool(own) and few >= _NEARLY * len(own) and not any(map(is_gross, own))


def is_alike(own: Sequence[Verdict]) -> bool:
    """Whether most values show one variant or precision, or nearly all errors have the size of a rounding."""
    return bool(_looks(own)) or _is_of_rounding(own)


def _looks(own: Sequence[Verdict]) -> str:
    """Return the rule whose variant or precision most of the values show, or an empty string."""
    named = [one for one in own if one.variant or one.precision]
    if 2 * len(named) <= len(own):
        return ""
    looks = Counter((one.precision or about(one)) for one in named).most_common(1)[0][0]
    return Counter(about(one) for one in named if looks in (one.precision, about(one))).most_common(1)[0][0]


def _owner(own: Sequence[Verdict], common: Common) -> str:
    if all(one.difference and one.difference.output == "lse" for one in own):
        nothing = sum(one.difference is not None and one.difference.expected == -inf for one in own)
        return "SOFT-7" if traits.EMPTY in common.traits or 2 * nothing > len(own) else "SOFT-6"
    options = set(map(traits.option_of, common.traits))
    if len(options & _MASKING) > 1:
        return "MASK-4"
    # More failures in float64 are no evidence if other dtypes fail too.
    having = set(common.traits) - ({"float64"} if common.others else set())
    return next((rule for trait, rule in owners().items() if trait in having), "")


def _whose(own: Sequence[Verdict], passing: Sequence[Verdict], common: Common) -> str:
    """Return the rule whose own cases fail most often, among calls with the common traits."""
    within = [one for one in passing if set(common.traits) <= traits_of(one)]
    bad = Counter(one.rules[0] for one in own if one.rules and traits.RELATED not in one.traits)
    good = Counter(one.rules[0] for one in within if one.rules)
    bad = bad or Counter(map(about, own))
    order = {rule: -number for number, rule in enumerate(rule.id for rule in rules())}
    # Count one additional case, because one of one failing is weaker evidence than five of five.
    often = {rule: bad[rule] / (bad[rule] + good[rule] + 1) for rule in bad}
    likely = [rule for rule in _AMONG.get(common.traits, ()) if rule in often]
    most = max(often[rule] for rule in likely or often)
    return next(
        (rule for rule in likely if often[rule] >= most - _OFTENER),
        max(often, key=lambda rule: (often[rule], order.get(rule, 0))),
    )
