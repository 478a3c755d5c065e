"""Stores whole runs for the pages of results: one compressed file for each backend, version and day.

::

    python -m tools.store_results results/*.jsonl --into site/results
"""

import lzma
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from attnspec.conformance.render.html.column import slug_of
from attnspec.conformance.results import Footer, Run, Subject, line
from attnspec.conformance.results_file import runs_of
from attnspec.conformance.verdict import Verdict


def rejection(run: Run, subject: Subject) -> str:
    """Return why a run of a backend is not stored. Empty if it is whole."""
    if run.header.part != "whole":
        return f"expected a run of the whole suite, got {run.header.part}"
    if run.header.seed is not None:
        return f"expected the fixed cases, got those of seed {run.header.seed}"
    return next(
        (judged.problem for judged in run.judged() if judged.name == subject.name and judged.problem), ""
    )


def lines_of(run: Run, subject: Subject) -> Iterator[str]:
    """Yield the lines of one backend of a run as a run of its own. Paths begin at the installed package."""
    own = [_without_folder(verdict) for verdict in run.verdicts if verdict.backend == subject.name]
    yield line("header", run.header)
    yield line("subject", subject)
    yield from (line("verdict", verdict) for verdict in own)
    yield line("footer", Footer(len(own)))


def _without_folder(verdict: Verdict) -> Verdict:
    if verdict.raised is None:
        return verdict
    file = re.sub(r"^.*/(?:site-packages|__editable__[^/]*)/", "", verdict.raised.file)
    return replace(verdict, raised=replace(verdict.raised, file=file))


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--into", required=True, type=click.Path(file_okay=False, path_type=Path))
@click.option("--date", help="The day of the runs, as 2026-01-31. The default is that of each file.")
def main(files: tuple[Path, ...], into: Path, date: str | None) -> None:
    """Store each whole run of each file in a compressed file of its own, and say which are left out."""
    into.mkdir(parents=True, exist_ok=True)
    for path in files:
        day = date or f"{datetime.fromtimestamp(path.stat().st_mtime, UTC):%Y-%m-%d}"
        for run in runs_of(path):
            for subject in run.subjects:
                if problem := rejection(run, subject):
                    click.echo(f"left out: {subject.name} in {path.name}: {problem[:200]}")
                    continue
                target = into / f"{slug_of(subject.name)}-{slug_of(subject.version)}-{day}.jsonl.xz"
                text = "".join(lines_of(run, subject))
                target.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
                click.echo(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
