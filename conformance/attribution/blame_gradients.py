"""Determines the rule that a cause breaks, if all of its failures are gradients."""

from collections import Counter
from collections.abc import Sequence

from attnspec.conformance import traits
from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.common import Common
from attnspec.conformance.verdict import Verdict

#: The rule that is broken if calls have a trait in common. Of two traits the first applies.
_OWNERS = {
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


def are_gradients(own: Sequence[Verdict]) -> bool:
    """Whether all failures of a cause are calls of gradients.

    Examples
    --------
    >>> from attnspec.conformance.attribution.blame_gradients import are_gradients
    >>> from attnspec.conformance.verdict import Verdict
    >>> are_gradients([Verdict("b", "c", "g", ("GRAD-1",), "fail", traits=("gradient",))])
    True
    """
    return bool(own) and all(traits.GRADIENT in one.traits for one in own)


def rule_of_gradients(own: Sequence[Verdict], common: Common, *, rounding: bool) -> str:
    """Name the rule of the gradients that failures break.

    Examples
    --------
    >>> from attnspec.conformance.attribution.blame_gradients import rule_of_gradients
    >>> from attnspec.conformance.attribution.common import Common
    >>> from attnspec.conformance.verdict import Verdict
    >>> failures = [Verdict("b", "c", "g", ("GRAD-9",), "fail")]
    >>> rule_of_gradients(failures, Common(("shared heads",)), rounding=False)
    'GRAD-3'
    """
    silent = Counter(map(about, own))
    if 2 * silent["GRAD-17"] > len(own):
        return "GRAD-17"
    options = set(map(traits.option_of, common.traits))
    owner = next((rule for trait, rule in _OWNERS.items() if trait in options), "")
    if owner:
        return owner
    if rounding:
        return "GRAD-19"
    return next((rule for rule in _GENERAL if rule in silent), max(silent, key=lambda rule: silent[rule]))
