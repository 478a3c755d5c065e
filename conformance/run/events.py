"""The one loop of a run: plan the cases, judge them at some place, and yield what a file of results has.

The command line judges in other processes (`attnspec.conformance.run.pool`), `attnspec.conformance.check` in
this one, and pytest item by item.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from attnspec import __version__
from attnspec.backends.errors import BackendError
from attnspec.conformance.results import Footer, Header, Subject
from attnspec.conformance.run.offer import Offer
from attnspec.conformance.run.plan import Outline
from attnspec.conformance.run.selection import Selection
from attnspec.conformance.verdict import Verdict, shown

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
    if loaded.fits:
        plan = place.plan(replace(selection, fits=loaded.fits))
    yield _header(selection, plan)
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


def _missing(place: Place, selection: Selection, verdicts: list[Verdict]) -> list[Verdict]:
    """Make an error for each declaration that the run must show, and that no case has shown."""
    if selection.part not in ("whole", "level"):
        return []
    return [each for each in place.missing(shown(verdicts)) if selection.shows(each.rule)]


def _header(selection: Selection, plan: tuple[Outline, ...]) -> Header:
    return Header(
        __version__,
        selection.part,
        selection.seed,
        tuple(case.name for case in plan),
        level=selection.level,
        choice=selection.choice,
    )
