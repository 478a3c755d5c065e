"""The record of a finding: failures with one cause, the rule they break, and what is known of the cause."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal

from attnspec import rules
from attnspec.conformance.traits import GRADIENT, NOTHING, REFUSED, RELATED, by_entry, repeated_inside
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import SHORT

#: ``ended``: the process ended or hung. ``raised``: an exception. ``always``: no call returns a result.
#: ``changed``: an input was changed. ``repeated``: a repeated call has another result. ``earlier``: a call
#: depends on earlier ones. ``refused``: a call must be rejected, and is not. ``precise``: only the precision
#: is too low. ``traces``: weights that should be 0 are slightly larger. Empty: other wrong values.
Kind = Literal[
    "", "ended", "raised", "always", "changed", "repeated", "earlier", "refused", "precise", "traces"
]
#: A variant is named if at least this share of the calls that could show it equals it. A call that breaks
#: another rule too equals no single variant, so most of them need not.
_ENOUGH = 0.25
#: A precision is named if at least this share of the failures under its rule shows it.
_NEARLY = 0.9
#: Fewer failing calls than these are wrong from some index on by chance.
_SEVERAL = 3
#: The place of the number of queries in `Verdict.sizes`.
_QUERIES = 3


@dataclass(frozen=True)
class Common:
    """Traits that calls have in common: how many calls with them fail, of all, and of the other calls.

    There are no traits if none distinguishes the calls from others. `lacked` is then a trait that some of the
    passing calls have and no failing one, with the number of these calls.
    """

    traits: tuple[str, ...] = ()
    failing: int = 0
    judged: int = 0
    others: int = 0
    of_others: int = 0
    lacked: tuple[str, int] = ("", 0)


@dataclass(frozen=True)
class VariantCount:
    """A variant of the broken rule, and how many of the failing calls compared with it equal it."""

    name: str
    equal: int
    compared: int


@dataclass(frozen=True)
class IgnoredCount:
    """An argument, and how many of the failing calls with it have the result of the call without it."""

    argument: str
    same: int
    compared: int


@dataclass(frozen=True)
class Twin:
    """Entries of the gallery that differ only in a size: their names, and what the first does wrong."""

    names: tuple[str, ...]
    sentence: str
    rule: str


@dataclass(frozen=True)
class Diagnosis:
    """The entries of the gallery that have the results of a backend, and how well they fit."""

    twins: tuple[Twin, ...]
    failing: int  # the number of compared calls that the backend fails
    passing: int  # and that it passes
    share: float  # the largest distance between the results, in budgets
    same_passing: int  # the number of passing calls on which the results are the same
    #: The trait that distinguishes the calls on which the backend has the bug, and
    #: whether they have it.
    path: tuple[str, bool] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all entries."""
        return tuple(name for twin in self.twins for name in twin.names)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Diagnosis":
        """Make a diagnosis from `dataclasses.asdict` of one that went through JSON."""
        twins = tuple(Twin(**{**twin, "names": tuple(twin["names"])}) for twin in data["twins"])
        path = tuple(data["path"]) if data["path"] else None
        return cls(**{**data, "twins": twins, "path": path})


@dataclass(frozen=True)
class Finding:
    """Failures of one backend with one cause."""

    rule: str
    failures: tuple[Verdict, ...]  # the failures, starting with the one that shows it best
    common: Common = Common()
    kind: Kind = ""
    precision: str = ""  # a shorter dtype in whose budget all failures lie, or empty
    further: tuple[Common, ...] = ()  # common traits of other calls that fail under the same rule
    mixed: bool = False  # whether other causes left its failures over, so that they may have several causes
    seed: int | None = None  # the seed of the generated cases, which a reproduction needs
    names: str = ""  # the backend's own names of arguments, as in `Subject.names`
    #: The diagnosis of the cause, if it is one of the first of its backend and is about values.
    diagnosis: Diagnosis | None = None
    probed: str = ""  # what calls with other sizes show of the first cause
    #: If only gradients are wrong: traits of all failures, and how many calls with them are right.
    right: tuple[tuple[str, ...], int] = ((), 0)
    #: What an implementation may require of its calls that all failing ones lack, and few right ones.
    preconditions: tuple[str, ...] = ()

    @property
    def backend(self) -> str:
        """The name of the backend."""
        return self.failures[0].backend

    @cached_property
    def verdict(self) -> Verdict:
        """The first failure, under the rule of the finding, without what the other failures contradict."""
        first = self.failures[0]
        if first.main_rule != self.rule:
            first = replace(first, rule=self.rule, variant="", precision="")
        variant = self.variant
        if first.precision and self._contradicts(first):
            first = replace(first, variant="", precision="")
        elif first.variant and not first.precision and (variant is None or first.variant != variant.name):
            first = replace(first, variant="")
        # An argument is called ignored only if this holds for each call with it, and for no other reason.
        compared = with_argument(first.ignored, self.failures)
        if first.ignored and (
            any(verdict.ignored != first.ignored for verdict in compared) or self._is_chance(compared)
        ):
            first = replace(first, ignored="")
        return first

    @cached_property
    def others(self) -> Counter[str]:
        """The number of failures besides the first, by the rule that each is about."""
        return Counter(verdict.main_rule for verdict in self.failures[1:])

    @cached_property
    def variant(self) -> VariantCount | None:
        """The variant of the rule that failures under it equal most often, if enough of them do.

        Beside an entry of the gallery that has all results, a variant of fewer calls is a coincidence.
        """
        compared = [verdict for verdict in self.failures if self._is_compared(verdict)]
        named = Counter(verdict.variant for verdict in compared if verdict.variant)
        if not named:
            return None
        ((name, equal),) = named.most_common(1)
        enough = _ENOUGH if self.diagnosis is None else _NEARLY
        return VariantCount(name, equal, len(compared)) if equal >= enough * len(compared) else None

    @cached_property
    def other_variants(self) -> tuple[str, ...]:
        """The variants of the rule, if calls under it were compared with them and resemble nothing."""
        compared = [verdict for verdict in self.failures if self._is_compared(verdict)]
        alike = any(verdict.variant or verdict.ignored for verdict in self.failures) or self.diagnosis
        return variants_of(self.rule) if compared and not alike and not self.kind else ()

    @cached_property
    def ignored(self) -> tuple[IgnoredCount, ...]:
        """Arguments without which most of the failing calls with them have the same result."""
        counts = []
        for name in dict.fromkeys(verdict.ignored for verdict in self.failures if verdict.ignored):
            compared = with_argument(name, self.failures)
            same = sum(verdict.ignored == name for verdict in compared)
            if 2 * same > len(compared):
                counts.append(IgnoredCount(name, same, len(compared)))
        return tuple(counts)

    @cached_property
    def starts(self) -> tuple[tuple[str, int, int], ...]:
        """Where wrong elements begin in nearly all failing calls: at one index, or at an entry of the batch.

        Each has the number of these calls and that of all failing calls.

        Rows may be counted from the end. Most of the last ones are wrong then.
        """
        own = [verdict.difference for verdict in self.failures if RELATED not in verdict.traits]
        found = [off.starts if off and off.output == "output" else () for off in own]
        if len(found) < _SEVERAL:
            return ()
        counted = Counter(start for starts in found for start in starts)
        # Calls of one length have all their ends in common.
        several = len({verdict.sizes[_QUERIES] for verdict in self.failures if verdict.sizes}) > 1
        kept = (start for start in sorted(counted) if several or "-" not in start)
        return tuple(
            (start, counted[start], len(found)) for start in kept if counted[start] >= _NEARLY * len(found)
        )

    def with_variant_first(self) -> "Finding":
        """Return it with a call first that equals its variant, if possible not one of gradients."""
        variant = self.variant

        def order(verdict: Verdict) -> tuple[bool, bool]:
            shows = variant is not None and verdict.variant == variant.name and self._is_compared(verdict)
            return not shows, shows and GRADIENT in verdict.traits

        return replace(self, failures=tuple(sorted(self.failures, key=order)))

    def _is_compared(self, verdict: Verdict) -> bool:
        """Whether a failure is a call under the rule whose values were compared with those of variants.

        A golden vector may lack the values of the variant. A call that equals one without an argument is not
        compared: with one query, a variant of MASK-3 is the same call as one without `is_causal`.
        """
        under = verdict.main_rule == self.rule and RELATED not in verdict.traits and not verdict.ignored
        values = verdict.difference is not None and verdict.difference.kind in ("value", "pattern")
        return under and values and bool(verdict.group or verdict.variant) and not verdict.precision

    @staticmethod
    def _is_chance(compared: Sequence[Verdict]) -> bool:
        """Whether only one call shows an ignored argument, and its first part for all may look the same."""
        argument = compared[0].ignored if compared else ""
        parts = {repeated_inside(argument), by_entry(argument)}
        return len({verdict.stem for verdict in compared}) == 1 and not parts.isdisjoint(compared[0].traits)

    def _contradicts(self, first: Verdict) -> bool:
        """Whether other failures under the rule do not show the precision, which then fits by chance."""
        own = [
            verdict
            for verdict in self.failures
            if verdict.main_rule == self.rule
            and verdict.difference
            and verdict.group
            and RELATED not in verdict.traits
        ]
        return sum(verdict.variant == first.variant for verdict in own) < _NEARLY * len(own)


@cache
def variants_of(rule: str) -> tuple[str, ...]:
    """Return the names of the variants of a rule with which generated calls are compared."""
    from attnspec.reference.rational.scores import SHOWN  # it needs NumPy

    return tuple(variant.name for known in rules() if known.id == rule in SHOWN for variant in known.variants)


def with_argument(name: str, failures: Sequence[Verdict]) -> list[Verdict]:
    """Return the failing calls that were compared with the same call without an argument.

    Golden vectors and relations are not.
    """
    return [
        verdict
        for verdict in failures
        if name in verdict.traits and verdict.group and RELATED not in verdict.traits
    ]


def simplicity(verdict: Verdict) -> tuple[bool, int, bool, bool, bool, bool, int, bool, str]:
    """Return a sort key: single calls with elements first, gradients last, then by dtypes and numbers."""
    named, gradient = bool(verdict.variant or verdict.precision), GRADIENT in verdict.traits
    kind = 2 * (RELATED in verdict.traits) + (REFUSED in verdict.traits)
    short, generated = verdict.dtype in SHORT, bool(verdict.group)
    size, empty = verdict.numbers, NOTHING in verdict.traits
    return verdict.status == "error", kind, gradient, empty, short, not named, size, generated, verdict.case
