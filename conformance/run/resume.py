"""Continue a run: the verdicts of an earlier run that was not finished."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from attnspec import SpecError, __version__
from attnspec.backends.names import split_options
from attnspec.conformance.results_file import runs_of
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.verdict import Verdict


def finished_verdicts(
    path: Path | None, selection: Selection, names: Sequence[str] = ()
) -> tuple[Verdict, ...]:
    """Read the verdicts of an earlier run of the same part, without those that are to be judged again.

    A case that was left out, or that ended the process, is judged again. A missing file has no verdicts.
    """
    if path is None:
        raise SpecError("--resume: expected --results with the file of the run, got none")
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return ()
    runs = list(runs_of(path))
    expected = (__version__, selection.part, selection.seed)
    for run in runs:
        got = (run.header.attnspec, run.header.part, run.header.seed)
        if got != expected:
            raise SpecError(
                f"--resume: {path}: expected a run of version, part and seed {expected}, got {got}"
            )
        _require(path, "options", run.header.choice, selection.choice)
    own = {subject.name for run in runs for subject in run.subjects}
    for name in names:
        others = sorted(each for each in own if split_options(each)[0] == split_options(name)[0])
        if others and name not in own:
            _require(path, f"options of {split_options(name)[0]}", _words(others[0]), _words(name))
    found = (verdict for run in runs for verdict in run.verdicts if verdict.case)
    return tuple(verdict for verdict in found if not verdict.ended and verdict.code != "left out")


def _require(path: Path, what: str, expected: Iterable[str], got: Iterable[str]) -> None:
    """Refuse options that are not those of the earlier run."""
    if {*expected} != {*got}:
        lacks, has = (", ".join(sorted(set(a) - set(b))) for a, b in ((expected, got), (got, expected)))
        raise SpecError(
            f"--resume: {path}: {what}: expected {lacks or 'none'} as in its run, got {has or 'none'}"
        )


def _words(name: str) -> list[str]:
    return [f"--{option} {value}" for option, value in split_options(name)[1].items()]
