"""Diagnosis: finds the wrong implementation of the gallery that has the results of a failing backend.

An entry agrees with the backend on a call if it has the same result where the backend fails, and a right
result where the backend passes. The diagnosis names one entry, or two or three that no call
distinguishes, in the first of these cases that applies:

- The entry agrees on every call.
- The entry has the same result on all failing calls, and is also wrong on calls that a trait
  distinguishes from these. The backend then has the bug on one path.

In all other cases the diagnosis is empty. Calls with NaN, infinity or an empty row are not asked for if other
calls fail, because two implementations of one bug often differ there.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from time import process_time
from typing import Any

import numpy as np

from attnspec import Case, find_rule
from attnspec.backends import DTYPES, Backend, Broken, Unsupported
from attnspec.conformance import traits
from attnspec.conformance.attribution.constant import with_constant
from attnspec.conformance.attribution.finding import Diagnosis, Twin
from attnspec.conformance.attribution.resemblance import APART, EDGES, CallCounts, Tally
from attnspec.conformance.attribution.sample import FEWEST_CASES
from attnspec.conformance.gallery import Entry, wrong_entries
from attnspec.conformance.judge.budget import align, budgets_of
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.cause import outputs_to_judge
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import Outputs, accepted_dtypes, is_real, own_dtypes
from attnspec.conformance.judge.expected import differences, values_in_dialect
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.traits import numbers as count_numbers
from attnspec.conformance.judge.traits import traits as traits_of
from attnspec.conformance.suite.group import Item
from attnspec.conformance.verdict import Difference

#: With fewer failing calls than this, too many entries fit,
_FEWEST = 2
#: unless at least this many calls pass.
_PASSING = 15
#: With fewer calls on which a named entry is wrong and the backend is right, no trait of these is named.
_SEVERAL = 2
#: The passing calls that are compared at least, where time is short.
_FEWEST_PASSING = 20
#: So few entries are compared on all calls, whatever time it takes.
_FEW_LEFT = 10
#: More entries than this are not named. Entries that differ only in a size count as one.
_MOST = 3
#: The number of results of entries that are kept.
_MOST_KEPT = 30_000
#: The rules whose variants align positions in another way.
_ALIGNED = {"MASK-3", "MASK-8", "PACK-5"}
#: The class of the entries that remember earlier calls.
_REMEMBERS = "T"
#: How a call fails that has no outputs: by an exception of a type, or by a rule that is not about values.
Way = tuple[str, ...]
#: The additional distance that two results may have, as a share of the largest number in them.
_UNITS = {"float64": 2.0**-40, "float32": 2.0**-17, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class _Noted(dict[str, Any]):
    """Replacements of no steps, which note the steps that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Note a step."""
        self.taken.add(name)
        return default


@dataclass(frozen=True)
class Gallery:
    """The entries that may be named, by default all wrong ones. Each entry makes each call once."""

    entries: tuple[Entry, ...] = field(default_factory=wrong_entries)
    _outputs: dict[tuple[str, str], Outputs | Way] = field(default_factory=dict)
    _backends: dict[str, Backend] = field(default_factory=dict)
    _plain: dict[str, tuple[frozenset[str], Outputs | Way]] = field(default_factory=dict)

    def of(self, entries: Iterable[Entry]) -> "Gallery":
        """Return some entries, with the calls that they have made."""
        return replace(self, entries=tuple(entries))

    def outputs(self, entry: Entry, case: Case) -> Outputs | Way:
        """Return the outputs of an entry, or how it fails without any."""
        key = f"{entry.name} {entry.sentence}", case.name
        if key not in self._outputs:
            if len(self._outputs) >= _MOST_KEPT:  # these are arrays of thousands of calls
                self._outputs.clear()
            taken, plain = self._reference(case)
            same = taken.isdisjoint(entry.steps) and case.arguments.keys().isdisjoint(entry.lacks)
            self._outputs[key] = plain if same else outputs_of(self._backend(entry), case)
        return self._outputs[key]

    def _reference(self, case: Case) -> tuple[frozenset[str], Outputs | Way]:
        """Return the steps that the reference takes in a call, and its outputs.

        They are the outputs of every entry that replaces none of these steps.
        """
        if case.name not in self._plain:
            steps = _Noted()
            outputs = outputs_of(Entry("noted", "Take every step.", steps).backend(), case)
            self._plain[case.name] = frozenset(steps.taken), outputs
        return self._plain[case.name]

    def _backend(self, entry: Entry) -> Backend:
        """Make the backend of an entry, a new one for each call if the entry remembers earlier calls."""
        if entry.kind == _REMEMBERS:
            return entry.backend()
        key = f"{entry.name} {entry.sentence}"
        if key not in self._backends:
            self._backends[key] = entry.backend()
        return self._backends[key]


#: The traits of a call, its case, and the outputs of the backend, or how it fails without any.
Call = tuple[frozenset[str], Case, Outputs | Way]


def diagnose_run(
    backend: Backend, items: Iterable[Item], seconds: float = inf, gallery: Gallery | None = None
) -> Diagnosis | None:
    """Diagnose a backend by cases that it failed and passed. Only the calls of these cases are made.

    The entries that break a rule of a failing case are always compared, and first. All others are compared
    for some seconds of this process. Neither other work of the machine counts nor the calls of the backend.
    """
    cases = {item.name: item for item in items if isinstance(item, Case)}
    if len(cases) < FEWEST_CASES:
        return None
    calls, gallery = calls_to_compare(backend, cases.values()), gallery or Gallery()
    if seconds < inf:
        rules = {rule for _, case, _ in calls[0] for rule in case.rules}
        for near in ({next(iter(cases.values())).rules[0]}, rules):
            likely = gallery.of(entry for entry in gallery.entries if entry.rule in near)
            if found := nearest(*tally_entries(backend, calls, likely)):
                # Entries of other rules that replace the same steps may agree too: all or none are named.
                steps = {
                    step for entry in likely.entries if entry.name in found.names for step in entry.steps
                }
                alike = (x for x in gallery.entries if x in likely.entries or steps & x.steps.keys())
                with suppress(TimeoutError):
                    tallied = tally_entries(backend, calls, gallery.of(alike), process_time() + seconds)
                    found = nearest(*tallied, most=_MOST)
                return found
    # Entries about the chapters of the failing rules come before all others.
    families = {rule.partition("-")[0] for _, case, _ in calls[0] for rule in case.rules}
    family = gallery.of(entry for entry in gallery.entries if entry.rule.partition("-")[0] in families)
    for entries in (family, gallery) if seconds < inf else (gallery,):
        with suppress(TimeoutError):
            if found := nearest(*tally_entries(backend, calls, entries, process_time() + seconds)):
                return found
    return None


def diagnose(
    backend: Backend, cases: Iterable[Case], gallery: Gallery | None = None, until: float = inf
) -> Diagnosis | None:
    """Find the entries of the gallery that give the results of a backend, or raise `TimeoutError`."""
    return nearest(*tally_entries(backend, calls_to_compare(backend, cases), gallery or Gallery(), until))


def tally_entries(
    backend: Backend, asked: tuple[list[Call], list[Call]], gallery: Gallery, until: float = inf
) -> tuple[list[Tally], CallCounts]:
    """Compare a backend with each entry in failing and passing calls, and return the entries that may be it.

    If too few calls distinguish, there are none.
    """
    failing, passing = asked
    counts = CallCounts.of([kinds for kinds, *_ in failing], [kinds for kinds, *_ in passing])
    if len(failing) < (_FEWEST if len(passing) < _PASSING else 1):
        return [], counts
    tallies = [Tally(with_constant(entry, failing)) for entry in gallery.entries]
    # Failing calls exclude most entries at once. Plain calls exclude more entries, and small ones are faster.
    calls = [(bad, call) for bad, group in ((True, failing), (False, passing)) for call in group]
    calls.sort(key=lambda item: (not item[0], bool(item[1][0] & EDGES), count_numbers(item[1][1].calls)))
    for number, (bad, (kinds, case, outputs)) in enumerate(calls):
        if (
            len(tallies) > _FEW_LEFT and process_time() > until
        ):  # the calls up to here tell, if they are enough
            if number < len(failing) + min(len(passing), _FEWEST_PASSING):
                raise TimeoutError
            plain = [kinds for _, (kinds, *_) in calls[len(failing) : number]]
            return tallies, CallCounts.of([kinds for kinds, *_ in failing], plain)
        for tally in tallies:
            others = gallery.outputs(tally.entry, _translate(backend, case))
            share = share_of(backend, case, outputs, others, finite=traits.SPECIAL not in kinds)
            if share > APART and not bad and is_right(backend, case, outputs, others):
                share = 0.0
            tally.add(share, kinds, bad=bad)
        tallies = [tally for tally in tallies if tally.may_be(counts)]
    return tallies, counts


def _translate(backend: Backend, case: Case) -> Case:
    """Write a call in the dialect of a backend as the gallery, which has none, has to make it."""
    if case.must_raise or not _ALIGNED & backend.dialect.keys():
        return case
    return replace(case, arguments=align(case.operation, case.arguments, backend.dialect))


def nearest(tallies: Sequence[Tally], counts: CallCounts, most: int = 0) -> Diagnosis | None:
    """Choose the entries equal on every call, otherwise those equal on every call of one path.

    Of one failing call, more than one entry is a matter of chance, unless some number may be named.
    """
    most = most or (_MOST if counts.failing >= _FEWEST else 1)
    possible = [tally for tally in tallies if tally.may_be(counts)]
    near = [tally for tally in possible if not tally.outside] or possible
    if len(_twins(near)) > _MOST:
        fewest = min(len(tally.outside) for tally in near)
        near = [tally for tally in near if len(tally.outside) == fewest]
    twins = _twins(near)
    if not near or len(twins) > most:
        return None
    first = near[0]
    share = max(tally.share for tally in near)
    diagnosis = Diagnosis(twins, counts.failing, counts.passing, share, counts.passing - len(first.outside))
    if not first.outside:
        return diagnosis
    common = [path for path in first.paths(counts) if all(path in tally.paths(counts) for tally in near)]
    if not common:
        return None
    # A few calls may have any trait in common.
    return replace(diagnosis, path=common[0]) if len(first.outside) >= _SEVERAL else diagnosis


def _twins(tallies: Iterable[Tally]) -> tuple[Twin, ...]:
    """Group entries that differ only in a size."""
    groups: dict[str, list[Entry]] = {}
    for tally in tallies:
        entry = tally.entry
        groups.setdefault("".join(letter for letter in entry.name if not letter.isdigit()), []).append(entry)
    return tuple(
        Twin(tuple(entry.name for entry in group), group[0].sentence, group[0].rule)
        for group in groups.values()
    )


def _calls(backend: Backend, cases: Iterable[Case]) -> tuple[list[Call], list[Call]]:
    """Make the calls that distinguish entries. Return those that the backend fails and those that it passes.

    Calls that the backend does not offer are not made. Calls about a SHOULD or a MAY are not made either,
    because several results conform. If some values are wrong, calls that must or may be refused and calls
    that raise wrongly are left out.
    """
    failing: list[Call] = []
    passing: list[Call] = []
    for case in cases:
        if not _is_offered(backend, case):
            continue
        with suppress(Unsupported, Broken):
            outputs = outputs_of(backend, case)
            kinds = frozenset({case.dtype, *traits_of(_translate(backend, case))})
            (failing if fails(backend, case, outputs) else passing).append((kinds, case, outputs))
    values = [call for call in failing if not isinstance(call[2], tuple) and call[1].misuse is None]
    if not values and any(case.operation == "attention_vjp" for _, case, _ in failing):
        return [], []  # every entry that computes no gradient raises too
    if all(isinstance(outputs, tuple) for _, _, outputs in (*failing, *passing)):
        return [], []  # no call has a result that could be compared
    if not values:
        return failing, passing
    return values, [call for call in passing if call[1].misuse is None]


def calls_to_compare(backend: Backend, cases: Iterable[Case]) -> tuple[list[Call], list[Call]]:
    """Make the failing and the passing calls, without NaN and empty rows if enough other calls fail.

    Gradients are left out too. If the output is wrong, a library gives the gradients of the wrong output, and
    an entry those of the right one.
    """
    failing, passing = _calls(backend, cases)
    for edge in (traits.SPECIAL, traits.EMPTY, traits.GRADIENT):
        plain = [call for call in failing if edge not in call[0]]
        if len(plain) >= _FEWEST:
            failing, passing = plain, [call for call in passing if edge not in call[0]]
    return failing, passing


def _is_offered(backend: Backend, case: Case) -> bool:
    arrays = {str(x.dtype) for x in case.arguments.values() if is_real(x)}
    musts = all(find_rule(rule).level == "MUST" for rule in case.rules)
    return musts and {case.dtype, *arrays} & set(DTYPES) <= set(backend.dtypes)


def outputs_of(backend: Backend, case: Case) -> Outputs | Way:
    """Return the outputs of a call, or how it fails without any: what is wrong, and with which argument."""
    try:
        return call(backend, case.operation, case.arguments, case.layout)
    except Raised as raised:
        return (type(raised.error).__name__,)
    except Failure as failure:
        return failure.rule, failure.code, failure.output or failure.argument


def is_right(backend: Backend, case: Case, got: Outputs | Way, others: Outputs | Way) -> bool:
    """Whether an entry gives a different result that also conforms, because the rule leaves it open."""
    if isinstance(got, tuple) or isinstance(others, tuple) or not got.keys() <= others.keys():
        return False
    return not fails(backend, case, {name: others[name] for name in got})


def fails(backend: Backend, case: Case, outputs: Outputs | Way) -> bool:
    """Whether outputs are wrong. This agrees with `judge` but is faster, because it gives no reason."""
    if isinstance(outputs, tuple) or _is_refused(case):
        return (case.misuse is None) == isinstance(outputs, tuple)
    budgets, seen = budgets_of(backend, case), outputs_to_judge(outputs, case)
    values, _ = values_in_dialect(backend, case, budgets, seen)
    return any(
        isinstance(result, Difference)
        for result in differences(seen, values, budgets, case.dtype, own_dtypes(case))
    )


def share_of(
    backend: Backend, case: Case, got: Outputs | Way, others: Outputs | Way, *, finite: bool = False
) -> float:
    """Return the distance between two results in budgets. It is infinite if they are of different kinds.

    Two calls without outputs are alike if they fail in the same way, or if any exception rejects them.

    With `finite`, all numbers of the call are finite: where one result is NaN and the other infinite,
    both have overflowed.
    """
    if isinstance(got, tuple) or isinstance(others, tuple):
        both = isinstance(got, tuple) and isinstance(others, tuple) and case.misuse is not None
        return 0.0 if both or got == others else np.inf
    if _is_refused(case):
        return 0.0  # no rule says what is computed
    budgets = budgets_of(backend, case)
    worst = 0.0
    for name, values in got.items():
        if name not in others or others[name].shape != values.shape:
            return np.inf
        may = accepted_dtypes(name, case.dtype)  # an lse may have several dtypes
        if others[name].dtype != values.dtype and not {str(others[name].dtype), str(values.dtype)} <= set(
            may
        ):
            return np.inf
        other = others[name].astype(np.float64)
        if name == "lse":  # that of a row with an infinite score may be NaN (NUM-11)
            other = np.where((other == np.inf) & np.isnan(values.astype(np.float64)), np.nan, other)
            other = np.where((values == np.inf) & np.isnan(other), np.inf, other)
        elif finite:
            wide = values.astype(np.float64)
            other = np.where(~np.isfinite(wide) & ~np.isfinite(other), wide, other)
        # A wrong number may be larger than the right one, and it may follow from even larger numbers.
        size = np.abs(other[np.isfinite(other)]).max(initial=1.0)
        # Integer results are always wrong, so they are compared to the last bit.
        rounding = size * max(_UNITS.get(str(each.dtype), 0.0) for each in (values, others[name]))
        budget = budgets.get(name, np.zeros(()))
        budget = budget if budget.shape == other.shape else np.full(other.shape, budget.max(initial=0.0))
        lse = others.get("lse")
        of_rows = name == "weights" and lse is not None and lse.shape == other.shape[:-1]
        where = ~np.isnan(others["lse"])[..., None] if of_rows else None  # NUM-11
        compared = compare(name, values, other, budget + rounding, str(values.dtype), where=where)
        worst = max(worst, compared.share if isinstance(compared, Difference) else compared)
    return worst


def _is_refused(case: Case) -> bool:
    return case.misuse is not None and not case.misuse.allowed
