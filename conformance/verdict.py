"""Verdicts: what is said of one backend on one test, and the results of a run."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from attnspec import SpecError

#: ``deviation`` is a declared variant, verified; ``unsupported`` counts neither for nor against.
Status = Literal["pass", "fail", "unsupported", "deviation", "error"]
STATUSES: tuple[Status, ...] = ("pass", "fail", "unsupported", "deviation", "error")


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
    """

    backend: str
    rules: tuple[str, ...]
    test: str
    status: Status
    message: str = ""
    used: Mapping[str, tuple[float, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Subject:
    """A backend as it was when it was judged; `problem` is set where it could not be loaded."""

    name: str
    library: str
    version: str
    problem: str = ""


@dataclass(frozen=True)
class Results:
    """Everything a run found."""

    subjects: tuple[Subject, ...]
    verdicts: tuple[Verdict, ...]


def write(results: Results, path: Path, version: str) -> None:
    """Write results as JSON."""
    document = {
        "attnspec": version,
        "subjects": [asdict(subject) for subject in results.subjects],
        "verdicts": [asdict(verdict) for verdict in results.verdicts],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read(paths: Iterable[Path]) -> Results:
    """Read the results of several runs as one.

    Raises
    ------
    SpecError
        When a file is not what `write` makes.
    """
    subjects: list[Subject] = []
    verdicts: list[Verdict] = []
    for path in paths:
        try:
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            subjects += [Subject(**entry) for entry in document["subjects"]]
            verdicts += [
                Verdict(**{**entry, "rules": tuple(entry["rules"])}) for entry in document["verdicts"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SpecError(
                f"results: {path} is no file of results ({type(error).__name__}: {error})"
            ) from error
    return Results(tuple(subjects), tuple(verdicts))
