"""The results of a run, as a file of JSON lines."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from attnspec import OPERATIONS, SpecError
from attnspec.backends.constraints import fields_about
from attnspec.conformance.traits import RELATED
from attnspec.conformance.verdict import Verdict, from_json, to_json

#: The version of the format that ``results.schema.json`` describes.
SCHEMA = 3


#: A run of these parts succeeds only if so many calls were judged by their values: fewer show nothing.
FEWEST_VALUES: Mapping[str, int] = {"whole": 20, "level": 20, "quick": 20, "smoke": 10}
#: How a lack of a call begins that is outside of what a backend is about.
OUTSIDE = ("operation ", "dtype ", "encoding ")
#: The most reasons in a line.
_MOST_REASONS = 3


@dataclass(frozen=True)
class Subject:
    """A backend at the time when it was judged."""

    name: str
    library: str
    version: str
    problem: str = ""  # the reason that it was not judged completely, or empty
    note: str = ""  # a note for the report, for example that nothing is declared for its version
    kind: str = ""  # the class of the product, for its claim
    profile: str = ""  # the profile by whose budget it is judged, or empty
    claims: str = ""  # the rules that it claims, with commas between them
    constraints: str = ""  # those that no case is generated to fit
    options: str = ""  # those that its functions have, with commas between them
    names: str = ""  # its own names of arguments, such as ``mask=attn_mask``, with commas between them
    declares: str = ""  # what shows its variants and deviations in verdicts, with commas between them


@dataclass(frozen=True)
class Shard:
    """One of several runs that share the cases of a part of the suite."""

    number: int  # from 1
    count: int
    of: str  # the part of the suite that the shards have together
    places: tuple[int, ...]  # the place of each case of the plan in the plan of all shards


@dataclass(frozen=True)
class Header:
    """The first line of a run."""

    attnspec: str  # the version of the standard
    part: str = "whole"  # whether the whole suite was run, all cases of a level, or a part
    #: The seed of the generated cases. None for the fixed cases.
    seed: int | None = None
    #: The plan: the names of the cases to judge, written before the first is judged.
    cases: tuple[str, ...] = ()
    #: The only level that is tested. Empty for all.
    level: str = ""
    choice: tuple[str, ...] = ()  # the options that chose the cases, such as ``-k empty``
    shard: Shard | None = None
    schema: int = SCHEMA  # the version of this format


@dataclass(frozen=True)
class Footer:
    """The last line of a run. If it is missing, the run was interrupted."""

    verdicts: int
    #: The declarations that no case of a shard shows, as lines of verdicts. They are errors if no shard shows
    #: them.
    unshown: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Results:
    """The results of one or several runs."""

    subjects: tuple[Subject, ...]
    verdicts: tuple[Verdict, ...]
    headers: tuple[Header, ...] = ()
    #: The cases of its plan without a verdict, by the name of a subject.
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every run was of the whole suite."""
        return all(header.part == "whole" for header in self.headers)

    @property
    def level(self) -> str:
        """The only level that was tested in every run. Empty if there is none, or several."""
        levels = {header.level if header.part == "level" else "" for header in self.headers}
        return levels.pop() if len(levels) == 1 else ""

    @property
    def judged_whole(self) -> bool:
        """Whether every run was of the whole suite and has a verdict on each of its cases."""
        return (
            self.whole
            and not any(self.missing.values())
            and not any(subject.problem for subject in self.subjects)
        )


def line(kind: str, thing: Any) -> str:
    r"""Return one line of a results file: a ``header``, ``subject``, ``verdict`` or ``footer``.

    Lines are written during the run, so that an interrupted run keeps its results.
    A file may contain several runs.
    """
    return json.dumps({kind: to_json(thing) if isinstance(thing, Verdict) else asdict(thing)}) + "\n"


@dataclass
class Run:
    """One run: a header, its subjects and verdicts, whether it has ended, and its file."""

    header: Header
    subjects: list[Subject] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    ended: bool = False
    source: str = ""
    unshown: tuple[Mapping[str, Any], ...] = ()

    def judged(self) -> list[Subject]:
        """Return the subjects, with a problem if the run was interrupted or left out cases."""
        return [
            subject
            if subject.problem or not (problem := self._problem(subject))
            else replace(subject, problem=f"backend {subject.name}: {problem}")
            for subject in self.subjects
        ]

    def _problem(self, subject: Subject) -> str:
        """Return the reason that a run judged fewer cases than planned."""
        if not self.ended:
            after = f"after {self.verdicts[-1].case}" if self.verdicts else "before its first case was judged"
            return f"the run was cut off {after}"
        own = [one for one in self.verdicts if one.backend == subject.name]
        declined = sum(one.declined for one in own)
        judged = sum(one.status != "unsupported" for one in own)
        if declined > judged:  # a backend that declines most cases was not judged
            operations = Counter(one.operation or "attention" for one in own if one.declined)
            keys = dict.fromkeys(
                key for operation, _ in operations.most_common() for key in fields_about(operation)
            )
            advice = (
                f"To declare what it takes, see the lines `declined by`, or use {', '.join(keys)}"
                if keys
                else "No key declares what it takes"
            )
            return (
                f"declined {declined} of {declined + judged} cases that its arguments offer; expected at "
                f"most half. {advice}"
            )
        missing = self.missing(subject)
        if missing:
            return f"{len(missing)} of {len(self.header.cases)} cases of the plan were not judged"
        if self.header.part not in FEWEST_VALUES:
            return ""
        return _options_without_calls(own, subject.options) or few_values(own, self.header.part)

    def missing(self, subject: Subject) -> tuple[str, ...]:
        """Return the cases of the plan without a verdict on a subject."""
        known = {verdict.case for verdict in self.verdicts if verdict.backend == subject.name}
        return tuple(case for case in self.header.cases if case not in known)

    def add(self, thing: Header | Subject | Verdict | Footer) -> None:
        """Add a line. The last header and the last line about a subject apply."""
        if isinstance(thing, Header):
            self.header = thing
        elif isinstance(thing, Subject):
            self.subjects = [*(one for one in self.subjects if one.name != thing.name), thing]
        elif isinstance(thing, Verdict):
            self.verdicts.append(thing)
        else:
            self.ended, self.unshown = True, thing.unshown


def _options_without_calls(verdicts: Sequence[Verdict], options: str) -> str:
    """Name the options of which the implementation declined every call; empty if there are none."""
    # A relation may hold although its call with the argument was declined.
    values = [verdict for verdict in verdicts if not verdict.refusal and RELATED not in verdict.traits]
    declined = {trait for verdict in values if verdict.declined for trait in verdict.traits}
    judged = {trait for verdict in values if verdict.status != "unsupported" for trait in verdict.traits}
    # A function that computes no gradient need not say which cotangents it takes.
    without = {trait for verdict in values if verdict.code == "no gradient" for trait in verdict.traits}
    left = declined - judged - (without - OPERATIONS["attention"].arguments.keys())
    names = [name for name in options.split(",") if name in left]
    return (
        f"it declined every call with {' or '.join(names)}. Declare which of these calls it takes, as the "
        "lines `declined by` say, or leave the argument out of its signature"
        if names
        else ""
    )


def few_values(verdicts: Iterable[Verdict], part: str) -> str:
    """Return why too few calls were judged by their values for a success; empty if there are enough.

    An operation with few calls needs half of those that its function could be asked for.
    """
    named = [
        one for one in verdicts if not one.refusal and not any(lack.startswith(OUTSIDE) for lack in one.lacks)
    ]
    left = [one for one in named if one.status == "unsupported"]
    judged = len(named) - len(left)
    least = min(FEWEST_VALUES[part], -(-len(named) // 2))
    if judged >= least:
        return ""
    reasons = Counter(one.reason.removeprefix(f"{one.backend} ").partition(", got ")[0] for one in left)
    most = "; ".join(f"{reason} ({number})" for reason, number in reasons.most_common(_MOST_REASONS))
    return (
        f"the values of {judged} of {len(named)} calls of its operations and dtypes were judged; expected at "
        f"least {least}. Most of the others were not, because it {most}. "
        "Describe the arguments that it has. If all of this is true of it, "
        + ("" if part == "whole" else "a whole run has more calls that it takes, and ")
        + "a wrapper can take more of them"
    )


def join_shards(runs: Iterable[Run]) -> list[Run]:
    """Join the shards of a run to one run. A shard that is missing is a problem of its subject.

    Raises
    ------
    SpecError
        If a shard is there twice.
    """
    joined: list[Run] = []
    groups: dict[Any, dict[int, Run]] = {}
    for run in runs:
        shard = run.header.shard
        if shard is None:
            joined.append(run)
            continue
        names = tuple(subject.name for subject in run.subjects)
        whole = _whole_of(run.header, shard)
        key = (names, shard.count, replace(whole, cases=()))
        group = groups.setdefault(key, {})
        if shard.number in group:
            text = f"shard {shard.number}/{shard.count} of {', '.join(names)}"
            raise SpecError(f"results: expected {text} once, got it twice")
        group[shard.number] = run
    return joined + [_join(group, count) for (_, count, _), group in groups.items()]


def _whole_of(header: Header, shard: Shard) -> Header:
    choice = tuple(option for option in header.choice if not option.startswith("--shard "))
    return replace(header, part=shard.of, choice=choice, shard=None)


def _join(group: Mapping[int, Run], count: int) -> Run:
    """Join some of the shards of a run."""
    runs = [group[number] for number in sorted(group)]
    places = {
        case: place
        for run in runs
        if run.header.shard
        for case, place in zip(run.header.cases, run.header.shard.places, strict=True)
    }
    verdicts = sorted((verdict for run in runs for verdict in run.verdicts), key=lambda it: places[it.case])
    subjects = [subject for run in runs for subject in run.judged()]
    absent = [str(number) for number in range(1, count + 1) if number not in group]
    problems = [subject.problem for subject in subjects if subject.problem]
    if absent:
        problems.append(f"shard{'s' * (len(absent) > 1)} {', '.join(absent)} of {count} missing")
    elif not problems:
        unshown = [[line for line in runs[0].unshown if all(line in run.unshown for run in runs)]]
        verdicts += [from_json(dict(line)) for lines in unshown for line in lines]
    first = runs[0].header
    assert first.shard is not None  # noqa: S101 - for the type checker
    header = replace(_whole_of(first, first.shard), cases=tuple(sorted(places, key=places.__getitem__)))
    subject = replace(runs[0].subjects[0], problem="; ".join(problems))
    ended = all(run.ended for run in runs)
    return Run(header, [subject], verdicts, ended=ended, source=runs[0].source)


def gather(runs: Iterable[Run]) -> Results:
    """Combine runs. From the second run of a backend on, its name includes that of the file."""
    seen: Counter[str] = Counter()
    subjects: list[Subject] = []
    verdicts: list[Verdict] = []
    headers: list[Header] = []
    missing: dict[str, tuple[str, ...]] = {}
    for run in runs:
        names = {}
        for subject in run.judged():
            name = names[subject.name] = _own_name(subject.name, run.source, seen)
            subjects.append(replace(subject, name=name))
            missing[name] = run.missing(subject)
        verdicts += [
            verdict
            if names.get(verdict.backend, verdict.backend) == verdict.backend
            else replace(verdict, backend=names[verdict.backend])
            for verdict in run.verdicts
        ]
        headers.append(run.header)
    return Results(tuple(subjects), tuple(verdicts), tuple(headers), missing)


def _own_name(name: str, source: str, seen: Counter[str]) -> str:
    """Make a unique name."""
    seen[name] += 1
    if seen[name] == 1:
        return name
    if not source:
        return _own_name(f"{name} ({seen[name]})", "", seen)
    seen[f"{name} ({source}"] += 1
    number = seen[f"{name} ({source}"]
    return _own_name(f"{name} ({source}{f' {number}' if number > 1 else ''})", "", seen)
