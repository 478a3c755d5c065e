"""The one loop of a run: plan the cases, judge those that the backend offers, and yield events.

The events are what a file of results has. The command line judges in other processes
(`attnspec.conformance.run.pool`), `attnspec.conformance.check` in this one, and pytest item by item.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from attnspec import OPERATIONS, __version__
from attnspec.backends.constraints import ANY, FITTED, fields_about
from attnspec.backends.errors import BackendError
from attnspec.conformance.outside import cut
from attnspec.conformance.results import Footer, Header, Shard, Subject
from attnspec.conformance.run.plan import Outline, Selection, is_indexed, share
from attnspec.conformance.run.smallest import WIDE
from attnspec.conformance.verdict import OUTPUT_OF, Verdict, not_judged_in, shown_declarations, to_json
from attnspec.dtypes import SHORT
from attnspec.operations.operation import primal

if TYPE_CHECKING:
    from attnspec.backends import Backend

#: Rules about the default of an option.
_DEFAULTS = {"SCORE-2": "scale"}


@dataclass(frozen=True)
class Offer:
    """What a backend offers: the parameters of its functions by operation, and more.

    `companions` are the operations that it implements itself, because its library may differentiate others.
    `given` are options of attention that every call passes. `constrained` says that it takes only some
    calls.
    """

    backend: str
    library: str
    dtypes: Sequence[str]
    functions: Mapping[str, Sequence[str]]
    companions: Sequence[str]
    given: Sequence[str]
    constrained: bool

    def has(self, operation: str, argument: str) -> bool:
        """Whether it has the operation, and its function takes the argument."""
        return argument in self.functions.get(operation, ())

    def verdict(self, outline: Outline) -> Verdict | None:
        """Make the verdict on a case that it does not offer. None if the case must be judged to know.

        The judge finds the same, in this order.
        """
        for operation, _ in outline.calls:
            if "attention" not in self.functions and operation not in self.functions:
                return self._without_operation(outline, operation)
            if self.constrained and operation in self.functions and fields_about(operation):
                return None
        missing = [dtype for dtype in outline.dtypes if dtype not in self.dtypes]
        if missing:
            return self._without(outline, not_judged_in(missing, self.dtypes), "dtype", missing)
        if outline.related and not any(operation in self.functions for operation, _ in outline.calls):
            return self._without_operation(outline, outline.calls[0].operation)
        if not outline.calls or outline.related:  # a relation may need less than all of its calls
            return None
        return self._verdict_of_call(outline, *outline.calls[0])

    def _verdict_of_call(self, outline: Outline, operation: str, arguments: Sequence[str]) -> Verdict | None:
        rules = tuple(rule for rule in outline.rules if self._shows(rule, outline, operation))
        if not rules:
            return self._without_rules(outline, operation)
        if outline.refusal and rules[0] == "ERR-12":
            if outline.variants:
                return None
            if outline.fault.startswith("d_") and operation not in {"attention", *self.companions}:
                reason = f"{self.library} checks the cotangents, and {self.backend} does not see them"
                return self._verdict(outline, reason, rules=rules)
        if operation not in self.functions:
            return self._without_operation(outline, operation, rules)
        missing = [name for name in arguments if not self.has(operation, name)]
        if not missing:
            return None
        return self._without(outline, f"has no argument {', '.join(missing)}", "argument", missing, rules)

    def _shows(self, rule: str, outline: Outline, operation: str) -> bool:
        """Whether a case tests a rule on this backend."""
        if rule in ("NUM-5", "NUM-6"):
            return outline.dtype in SHORT
        if self._lacks_default(rule, operation):
            return False
        output = OUTPUT_OF.get(rule)
        return output is None or outline.refusal or self.has(operation, f"return_{output}")

    def _lacks_default(self, rule: str, operation: str) -> bool:
        return primal(operation) == "attention" and _DEFAULTS.get(rule) in self.given

    def _without_rules(self, outline: Outline, operation: str) -> Verdict:
        options = [_DEFAULTS[rule] for rule in outline.rules if self._lacks_default(rule, operation)]
        outputs = [*dict.fromkeys(OUTPUT_OF[rule] for rule in outline.rules if rule in OUTPUT_OF)]
        if options:
            reason = f"is always given {', '.join(options)}, and shows no default"
        else:
            reason = f"does not return what {', '.join(outline.rules)} is about"
        return self._without(outline, reason, "output", outputs)

    def _without_operation(self, outline: Outline, operation: str, rules: tuple[str, ...] = ()) -> Verdict:
        return self._without(outline, f"has no {operation}", "operation", [operation], rules)

    def _without(
        self, outline: Outline, reason: str, kind: str, lacks: Sequence[str], rules: tuple[str, ...] = ()
    ) -> Verdict:
        lacking = tuple(f"{kind} {name}" for name in lacks)
        return self._verdict(outline, f"{self.backend} {reason}", lacking, rules)

    def _verdict(
        self, outline: Outline, reason: str, lacks: tuple[str, ...] = (), rules: tuple[str, ...] = ()
    ) -> Verdict:
        return Verdict(
            self.backend,
            outline.name,
            outline.group,
            rules or outline.rules,
            "unsupported",
            outline.dtype,
            outline.calls[0].operation,
            reason=cut(reason),
            lacks=lacks,
            refusal=outline.refusal,
            traits=outline.traits,
            numbers=outline.numbers,
            sizes=outline.sizes,
            code="lacks" if lacks else "not applicable",
        )


def offer_of(backend: "Backend") -> Offer | None:
    """Describe what a backend offers. None if only its cases tell, as for stored answers."""
    from attnspec.backends.backend import parameters

    if backend.cases:
        return None
    functions = {name: backend.function(name) for name in OPERATIONS}
    return Offer(
        backend.name,
        backend.library,
        backend.dtypes,
        {name: sorted(parameters(each)) for name, each in functions.items() if each is not None},
        tuple(backend.companions),
        backend.given,
        backend.constraints != ANY,
    )


Event = Header | Subject | Verdict | Footer


@dataclass(frozen=True)
class Loaded:
    """A loaded backend.

    `compiles` says whether its library compiles for each dtype. `fits` is the suffix of its constraints, and
    `offer` what it offers, if cases that it does not offer need not be judged to know it.
    """

    subject: Subject
    compiles: bool
    fits: str
    offer: Offer | None = None


class Place(Protocol):
    """Where the cases of one backend are judged."""

    @property
    def name(self) -> str:
        """The name of the backend."""

    def plan(self, selection: Selection) -> tuple[Outline, ...]:
        """Plan the selected cases."""

    def load(self) -> Loaded:
        """Load the backend, or raise `BackendError`."""

    def judge(self, plan: tuple[Outline, ...]) -> Iterator[Verdict]:
        """Judge cases, or raise `Abandoned` if no more can be judged."""

    def missing(self, shown: set[str]) -> list[Verdict]:
        """Make an error for each declaration that the verdicts do not show, or raise `Abandoned`."""


class Abandoned(Exception):  # noqa: N818 - a run that ends early is no error of this program
    """A run ended before all of its cases were judged."""


def events(
    place: Place,
    selection: Selection,
    known: Mapping[str, Verdict] | None = None,
    stop: Callable[[Verdict], bool] = lambda _: False,
) -> Iterator[Event]:
    """Judge a backend, and yield the header with the plan, the subject, each verdict, and the footer.

    If there is no footer, the run was interrupted. Cases with a known verdict are not judged again.
    """
    known = known or {}
    plan = place.plan(selection)
    try:
        loaded = place.load()
    except BackendError as error:
        yield _header(selection, plan)
        yield Subject(place.name, "", "", str(error))
        yield Footer(0)
        return
    fitted = replace(selection, fits=loaded.fits, dtype=_narrow(loaded) if selection.smoke else "")
    if fitted != selection:
        plan = _plan(place, fitted, loaded.offer)
    shard = None
    if selection.shard:
        shared = share(plan, selection.shard)
        number, count = map(int, selection.shard.split("/"))
        shard = Shard(number, count, selection.part, tuple(index for index, _ in shared))
        plan = tuple(case for _, case in shared)
    yield _header(selection, plan, shard)
    yield loaded.subject
    verdicts = [known[case.name] for case in plan if case.name in known]
    yield from verdicts
    missing: list[Verdict] = []
    reason = ""
    try:
        for verdict in _judge(place, tuple(case for case in plan if case.name not in known), loaded.offer):
            verdicts.append(verdict)
            yield verdict
            if stop(verdict):
                reason = "stopped at the first failure"
                break
        else:
            missing = _missing(place, selection, verdicts)
    except Abandoned as abandoned:
        reason = str(abandoned)
    if reason:
        yield replace(loaded.subject, problem=f"backend {place.name}: {reason}")
        return
    if shard is not None:
        yield Footer(len(verdicts), tuple(map(to_json, missing)))
        return
    yield from missing
    yield Footer(len(verdicts) + len(missing))


def _judge(place: Place, plan: tuple[Outline, ...], offer: Offer | None) -> Iterator[Verdict]:
    """Judge the cases that a backend offers. Verdicts on the others come at their places in the plan."""
    without: dict[str, Verdict] = {}
    before: dict[str, list[Verdict]] = {}
    waiting: list[Verdict] = []
    for case in plan:
        if offer is not None and (verdict := offer.verdict(case)):
            without[case.name] = verdict
            waiting.append(verdict)
        else:
            before[case.name], waiting = waiting, []
    for verdict in place.judge(tuple(case for case in plan if case.name not in without)):
        yield from before.pop(verdict.case, ())
        yield verdict
    yield from (verdict for left in (*before.values(), waiting) for verdict in left)


def _plan(place: Place, selection: Selection, offer: Offer | None) -> tuple[Outline, ...]:
    """Plan the cases. Only those that the backend offers are drawn to fit its constraints."""
    fixed = replace(selection, fits="")
    if not selection.fits or offer is None or not is_indexed(fixed) or FITTED in "".join(selection.match):
        return place.plan(selection)
    plan = place.plan(fixed)
    asked = {case.name: case for case in plan if case.group and offer.verdict(case) is None}
    chosen = replace(selection, drawn=tuple((case.group, case.name) for case in asked.values()))
    fitted = place.plan(chosen) if asked else ()
    drawn = {case.name.replace(FITTED + selection.fits, ""): case for case in fitted}
    return tuple(drawn.get(case.name, case) for case in plan if case.name in drawn or case.name not in asked)


def _narrow(loaded: Loaded) -> str:
    """Return the first dtype of a backend that has neither float32 nor float64; empty for another one."""
    dtypes = loaded.offer.dtypes if loaded.offer else WIDE
    return "" if {*dtypes} & {*WIDE} else dtypes[0]


def _missing(place: Place, selection: Selection, verdicts: list[Verdict]) -> list[Verdict]:
    """Make an error for each declaration that the run must show, and that no case has shown."""
    if selection.part not in ("whole", "level"):
        return []
    return [each for each in place.missing(shown_declarations(verdicts)) if selection.shows(each.rule)]


def _header(selection: Selection, plan: tuple[Outline, ...], shard: Shard | None = None) -> Header:
    return Header(
        __version__,
        "chosen" if selection.shard else selection.part,
        selection.seed,
        tuple(case.name for case in plan),
        level=selection.level,
        choice=selection.choice,
        shard=shard,
    )
