"""Counts the failures of a cause that equal one variant, to name it with the evidence."""

from collections import Counter
from dataclasses import dataclass

from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.causes import Cause
from attnspec.conformance.traits import GRADIENT, RELATED
from attnspec.conformance.verdict import Verdict

#: A variant is named if at least this share of the calls that could show it equals it. A call that breaks
#: another rule too equals no single variant, so most of them need not.
_ENOUGH = 0.25


@dataclass(frozen=True)
class SameVariant:
    """A variant of the rule of a cause, and how many of its failing calls equal it.

    Attributes
    ----------
    name : str
    equal, compared : int
        The number of failing calls under the rule that equal the variant, and of all that were compared
        with it.
    """

    name: str
    equal: int
    compared: int


def same_variant(cause: Cause) -> SameVariant | None:
    """Return the variant that failures under the rule of a cause equal most often.

    Examples
    --------
    >>> from attnspec.conformance.attribution.causes import Cause
    >>> from attnspec.conformance.attribution.same_variant import same_variant
    >>> from attnspec.conformance.verdict import Difference, Verdict
    >>> off = Difference("value", "output")
    >>> tiled = Verdict("b", "c", "g", ("HEAD-1",), "fail", difference=off, variant="tiled")
    >>> other = Verdict("b", "d", "g", ("HEAD-1",), "fail", difference=off)
    >>> same_variant(Cause("HEAD-1", (tiled, other)))
    SameVariant(name='tiled', equal=1, compared=2)
    """
    compared = [one for one in cause.failures if _is_compared(one, cause)]
    named = Counter(one.variant for one in compared if one.variant)
    if not named:
        return None
    ((name, equal),) = named.most_common(1)
    return SameVariant(name, equal, len(compared)) if equal >= _ENOUGH * len(compared) else None


def with_variant_first(cause: Cause) -> tuple[Verdict, ...]:
    """Return the failures of a cause, first a call that equals its variant, if possible not of gradients."""
    same = same_variant(cause)

    def order(one: Verdict) -> tuple[bool, bool]:
        shows = same is not None and one.variant == same.name and _is_compared(one, cause)
        return not shows, shows and GRADIENT in one.traits

    return tuple(sorted(cause.failures, key=order))


def _is_compared(one: Verdict, cause: Cause) -> bool:
    """Whether a failure is a call under the rule whose values were compared with those of variants.

    A golden vector may lack the values of the variant. A call that equals one without an argument is not
    compared: with one query, a variant of MASK-3 is the same call as one without `is_causal`.
    """
    under = about(one) == cause.rule and RELATED not in one.traits and not one.ignored
    values = one.difference is not None and one.difference.kind in ("value", "pattern")
    return under and values and bool(one.group or one.variant) and not one.precision
