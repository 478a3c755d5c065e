"""Results: everything that a run found, as a file of JSON lines."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from attnspec import SpecError
from attnspec.conformance.verdict import Verdict, from_json, to_json

#: The version of the format that ``results.schema.json`` describes.
SCHEMA = 2


@dataclass(frozen=True)
class Subject:
    """A backend as it was when it was judged.

    Attributes
    ----------
    name, library, version : str
    problem : str
        Why it could not be judged to the end; empty where it was.
    note : str
        What the report has to say beside its verdicts, such as that nothing is declared for its version.
    """

    name: str
    library: str
    version: str
    problem: str = ""
    note: str = ""


@dataclass(frozen=True)
class Header:
    """The first line of a run.

    Attributes
    ----------
    attnspec : str
        The version of the standard.
    part : {"whole", "quick", "chosen"}
        Whether the whole suite was run, or a part of it.
    seed : int or None
        Of the generated cases; None for the fixed choice.
    schema : int
        The version of this format.
    """

    attnspec: str
    part: str = "whole"
    seed: int | None = None
    schema: int = SCHEMA


@dataclass(frozen=True)
class Footer:
    """The last line of a run: without it, the run was cut off."""

    verdicts: int


@dataclass(frozen=True)
class Results:
    """Everything that one run or several found."""

    subjects: tuple[Subject, ...]
    verdicts: tuple[Verdict, ...]
    headers: tuple[Header, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every run in it was of the whole suite."""
        return all(header.part == "whole" for header in self.headers)


def line(kind: str, thing: Any) -> str:
    r"""Write one line of a results file: a ``header``, ``subject``, ``verdict`` or ``footer``.

    The lines are written as the run goes on, so that a run that is cut off leaves
    what it found. Several runs may follow each other in a file.

    Examples
    --------
    >>> from attnspec.conformance.results import Footer, line
    >>> line("footer", Footer(7))
    '{"footer": {"verdicts": 7}}\n'
    """
    return json.dumps({kind: to_json(thing) if isinstance(thing, Verdict) else asdict(thing)}) + "\n"


def read(paths: Iterable[Path]) -> Results:
    """Read the results of several runs as one.

    Raises
    ------
    SpecError
        When a file does not hold what `line` writes.
    """
    runs = [run for path in paths for run in _runs(path)]
    return Results(
        tuple(subject for run in runs for subject in run.judged()),
        tuple(verdict for run in runs for verdict in run.verdicts),
        tuple(run.header for run in runs),
    )


@dataclass
class _Run:
    """One run of a file, as it is read."""

    header: Header
    subjects: list[Subject] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    ended: bool = False

    def judged(self) -> list[Subject]:
        """Return the subjects, each with the problem that the run was cut off, where it was."""
        if self.ended:
            return self.subjects
        after = f"after {self.verdicts[-1].case}" if self.verdicts else "before its first case was judged"
        problem = f"the run was cut off {after}"
        return [
            replace(subject, problem=subject.problem or f"backend {subject.name}: {problem}")
            for subject in self.subjects
        ]


def _runs(path: Path) -> list[_Run]:
    runs: list[_Run] = []
    try:
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            ((kind, entry),) = json.loads(text).items()
            if kind == "header":
                runs.append(_Run(Header(**entry)))
            elif not runs or runs[-1].ended:
                raise SpecError(f"results: {path}, line {number}: expected a header, got a {kind}")
            elif kind == "subject":
                runs[-1].subjects.append(Subject(**entry))
            elif kind == "verdict":
                runs[-1].verdicts.append(from_json(entry))
            elif kind == "footer":
                runs[-1].ended = True
                if Footer(**entry).verdicts != len(runs[-1].verdicts):
                    raise SpecError(
                        f"results: {path}, line {number}: expected {entry['verdicts']} verdicts before it, "
                        f"got {len(runs[-1].verdicts)}"
                    )
            else:
                raise SpecError(
                    f"results: {path}, line {number}: expected a subject, a verdict or the footer, got {kind}"
                )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"results: {path} is no file of results ({type(error).__name__}: {error})") from error
    return runs
