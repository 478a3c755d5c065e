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
class Results:
    """Everything a run found."""

    subjects: tuple[Subject, ...]
    verdicts: tuple[Verdict, ...]


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
    r"""Write one line of a results file: a ``subject``, a ``verdict``, or the ``end``.

    A file is JSON lines, written as the run goes on, so that a run that is cut
    off leaves what it found; its subjects without an ``end`` tell so.

    Examples
    --------
    >>> from attnspec.conformance.verdict import line
    >>> line("end", None)
    '{"end": null}\n'
    """
    return json.dumps({kind: None if thing is None else asdict(thing)}) + "\n"


def read(paths: Iterable[Path]) -> Results:
    """Read the results of several runs as one.

    Raises
    ------
    SpecError
        When a file does not hold what `line` writes.
    """
    subjects: list[Subject] = []
    verdicts: list[Verdict] = []
    for path in paths:
        own, found, ended = _read(path)
        if not ended:
            after = f"after {found[-1].test}" if found else "before its first test was over"
            problem = f"the run was cut off {after}"
            own = [replace(subject, problem=f"backend {subject.name}: {problem}") for subject in own]
        subjects += own
        verdicts += found
    return Results(tuple(subjects), tuple(verdicts))


def _read(path: Path) -> tuple[list[Subject], list[Verdict], bool]:
    subjects: list[Subject] = []
    verdicts: list[Verdict] = []
    ended = False
    try:
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            ((kind, entry),) = json.loads(text).items()
            if kind == "subject":
                subjects.append(Subject(**entry))
            elif kind == "verdict" and entry["status"] in STATUSES and isinstance(entry["rules"], list):
                verdicts.append(verdict_of(entry))
            elif kind == "end":
                ended = True
            else:
                raise SpecError(
                    f"results: {path}, line {number}: expected a subject, a verdict or the end, got {kind}"
                )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"results: {path} is no file of results ({type(error).__name__}: {error})") from error
    return subjects, verdicts, ended
