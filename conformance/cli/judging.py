"""The part that ``attnspec check`` and ``attnspec judge`` share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnspec.conformance.render import formats
from attnspec.conformance.run.selection import Selection

if TYPE_CHECKING:
    from attnspec.conformance.attribution.report import Report
    from attnspec.conformance.verdict import Verdict


def judge_all(
    names: Sequence[str],
    selection: Selection,
    *,
    stop: bool,
    jobs: str,
    time_limit: float,
    echo: bool,
    cases: tuple[str, ...],
    require: str | None,
    every: bool,
    results: Path | None,
    known_failures: Path | None,
    write_known_failures: Path | None,
    resume: bool = False,
    explain: bool = False,
    html: Path | None = None,
    **reports: Path | None,
) -> None:
    """Check the arguments, run, print, write the reports, and exit with the status of the run."""
    from attnspec.conformance.attribution.known_failures import find_known, read_known
    from attnspec.conformance.attribution.levels import VALUES, check_required
    from attnspec.conformance.attribution.report import Outcome, Report
    from attnspec.conformance.files import check_writable
    from attnspec.conformance.outside import one_line
    from attnspec.conformance.render.screen import screen, wants_color
    from attnspec.conformance.run.run import run_all

    wanted = [(formats.find_format(option, path), path) for option, path in reports.items() if path]
    selection = replace(selection, names=cases)
    check_required(require, selection.part, selection.level)
    known = read_known(known_failures) if known_failures else ()
    before = (
        read_known(write_known_failures) if write_known_failures and write_known_failures.exists() else ()
    )
    files = [path for path in (results, write_known_failures, *(path for _, path in wanted)) if path]
    for path in (*files, *([html / "index.html"] if html else [])):
        check_writable(path)
    if len({path.resolve() for path in files}) < len(files):
        raise click.UsageError(
            f"reports: expected a different file for each, got {', '.join(map(str, files))}"
        )
    earlier = _unfinished(results, selection, names) if resume else ()
    runs = run_all(
        names,
        selection,
        jobs=_jobs(jobs),
        seconds=time_limit,
        echo=echo,
        path=results,
        fails=lambda verdict: verdict.bad and not verdict.accepts and not find_known(verdict, known),
        stop=stop,
        known=earlier,
        explain=explain,
    )
    pages = html / "index.html" if html and runs.results.subjects else None
    report = Report(runs.results, known, require or VALUES, pages, runs.diagnoses)
    try:
        click.echo(screen(report, color=wants_color(), every=every), nl=False)
    finally:  # the pipe that standard output goes to may be closed
        _write(report, wanted, html)
    if not (explain or selection.sizes):
        for name in _without_diagnosis(report):
            click.echo(
                f"{one_line(name)}: no bug of the gallery matches within a second; --explain looks longer",
                err=True,
            )
    if runs.problem:
        raise click.ClickException(runs.problem)
    if runs.signal:
        sys.exit(128 + runs.signal)
    status = report.outcome.status
    if write_known_failures:
        from attnspec.conformance.attribution.known_failures import write_known
        from attnspec.conformance.render.text import result_line

        number, problems = write_known(write_known_failures, report.counted, (*known, *before), result_line)
        for problem in problems:
            click.echo(f"known failures: not written: {one_line(problem)}")
        if number or not problems:
            entries = "1 entry" if number == 1 else f"{number} entries"
            click.echo(f"{entries} in {write_known_failures}: add a reason and a link to each")
        status = 0 if report.outcome is Outcome.FAILS and not problems else status
    sys.exit(status)


def _unfinished(path: Path | None, selection: Selection, names: Sequence[str]) -> tuple[Verdict, ...]:
    from attnspec.conformance.run.resume import unfinished

    return unfinished(path, selection, names)


def _without_diagnosis(report: Report) -> list[str]:
    """Return the backends of which a call returns a wrong result, and no diagnosis says why."""
    wrong = (
        finding.backend
        for finding in report.findings
        if any(verdict.difference for verdict in finding.failures)
    )
    return [name for name in dict.fromkeys(wrong) if name not in report.diagnoses]


def _jobs(said: str) -> int:
    """Convert the option -n to a number of processes."""
    if said == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not re.fullmatch(r"[1-9][0-9]{0,2}", said):
        raise click.UsageError(f"-n: expected an integer from 1 to 999 or auto, got {said!r}")
    return int(said)


def _write(report: Report, wanted: Sequence[tuple[formats.Format, Path]], html: Path | None) -> None:
    """Write every report that can be written, then raise for those that could not."""
    from attnspec.conformance.files import write_whole

    errors = []
    for one, path in wanted:
        try:
            write_whole(path, one.write(report))
        except OSError as error:
            errors.append(f"--{one.option}: {error}")
    if html and report.pages:
        from attnspec.conformance.render.html import write

        try:
            write([report.results], html)
        except OSError as error:
            errors.append(f"--html: {error}")
    if errors:
        raise click.ClickException("; ".join(errors))
