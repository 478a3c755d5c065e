"""Verdicts: what is said of one backend on one test, and the results of a run as a file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from attnspec import SpecError

#: ``deviation`` is what is declared, and shows, or a SHOULD that is not met; ``unsupported`` counts
#: neither for nor against.
Status = Literal["pass", "fail", "unsupported", "deviation", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)
#: How the message begins where a SHOULD does not hold, and where a MAY does not.
UNMET, NOT_SHOWN = "SHOULD not met", "not shown"


@dataclass(frozen=True)
class Verdict:
    """What one test says of one backend.

    Attributes
    ----------
    backend : str
        Its name.
    rules : tuple of str
        The rules the test bears on; for a failure, the one rule that is broken.
    test : str
        The test, by case id or name.
    status : {"pass", "fail", "unsupported", "deviation", "error"}
    message : str
        Why, for anything but a pass.
    used : mapping of str to (float, str)
        By dtype, the largest share of its budget that any element used, and the
        loosest of the accuracy classes that the calls of the test needed.
    deviates : tuple of str
        For a deviation, the rule that it is from; the others hold, all the same.
    declared : tuple of str
        Those of the backend's declared deviations that showed, by `Deviation.id`.
    """

    backend: str
    rules: tuple[str, ...]
    test: str
    status: Status
    message: str = ""
    used: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    deviates: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A backend as it was when it was judged; `problem` is set where it could not be judged to the end."""

    name: str
    library: str
    version: str
    problem: str = ""


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
        Of the generated problems; None for the fixed choice.
    schema : int
        The version of this format, ``results.schema.json``.
    """

    attnspec: str
    part: str = "whole"
    seed: int | None = None
    schema: int = 1


@dataclass(frozen=True)
class Footer:
    """The last line of a run: without it, the run was cut off."""

    verdicts: int


@dataclass(frozen=True)
class Results:
    """Everything a run found."""

    subjects: tuple[Subject, ...]
    verdicts: tuple[Verdict, ...]
    headers: tuple[Header, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every run in it was of the whole suite."""
        return all(header.part == "whole" for header in self.headers)


def verdict_of(entry: Mapping[str, Any]) -> Verdict:
    """Make a verdict of what became of it in JSON, or on its way from another process.

    Examples
    --------
    >>> from attnspec.conformance.verdict import verdict_of
    >>> verdict_of({"backend": "b", "rules": ["MASK-1"], "test": "t", "status": "pass"}).rules
    ('MASK-1',)
    """
    tuples = {name: tuple(entry[name]) for name in ("rules", "deviates", "declared") if name in entry}
    return Verdict(**{**entry, **tuples})


def line(kind: str, thing: Any) -> str:
    r"""Write one line of a results file: a ``header``, ``subject``, ``verdict`` or ``footer``.

    A file is JSON lines, written as the run goes on, so that a run that is cut
    off leaves what it found; that it was cut off shows in the footer that is missing.
    ``results.schema.json`` describes the lines. Several runs may follow each other.

    Examples
    --------
    >>> from attnspec.conformance.verdict import Footer, line
    >>> line("footer", Footer(7))
    '{"footer": {"verdicts": 7}}\n'
    """
    return json.dumps({kind: asdict(thing)}) + "\n"


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
        after = f"after {self.verdicts[-1].test}" if self.verdicts else "before its first test was over"
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
            elif kind == "verdict" and entry["status"] in STATUSES and isinstance(entry["rules"], list):
                runs[-1].verdicts.append(verdict_of(entry))
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
