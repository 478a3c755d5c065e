"""The commands that judge: ``attnspec check`` and ``attnspec judge``."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attnspec.conformance.report.report import Report

_FILE = click.Path(dir_okay=False, path_type=Path)
_REPORTS = (
    click.option("--results", type=_FILE, help="Write the verdicts here as JSON lines."),
    click.option("--junit", type=_FILE, help="Write a report here as JUnit XML."),
    click.option("--markdown", type=_FILE, help="Write a report here as Markdown."),
    click.option("--badge", type=_FILE, help="Write a badge here, as .svg or .json."),
    click.option("--known-failures", type=_FILE, help="What is known to fail, and fails no run."),
    click.option("--write-known-failures", type=_FILE, help="Write all that fails to such a file."),
    click.option("-x", "stop", is_flag=True, help="Stop at the first failure."),
    click.option("-n", "workers", metavar="N", help="Run in N processes, or auto (needs pytest-xdist)."),
    click.option("--time-limit", default=300.0, metavar="SECONDS", help="For one test (300)."),
    click.option("--case", "cases", multiple=True, metavar="ID", help="Only this golden vector."),
)


def _reporting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that both commands have."""
    for option in reversed(_REPORTS):
        command = option(command)
    return command


@click.command()
@click.argument("backend", nargs=-1)
@click.option("--backend", "also", multiple=True, metavar="NAME", help="The same as an argument.")
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="COMMAND",
    help="A program in any language that speaks the protocol.",
)
@click.option("--array", metavar="LIBRARY", help="What a function runs on: numpy, torch, jax or a module.")
@click.option("--device", metavar="NAME", help="Where its arrays are put, such as cuda.")
@click.option("--dtype", "dtypes", multiple=True, metavar="DTYPE", help="Only in this dtype.")
@click.option("--call-limit", type=float, metavar="SECONDS", help="For one call of a program (20).")
@click.option("--quick", is_flag=True, help="A fixed part of the suite that touches every rule.")
@click.option(
    "-k", "tests", metavar="RULE", help="Only tests of this rule, or whose name matches as in pytest."
)
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Only tests that bear on this rule.")
@click.option("--seed", type=int, metavar="N", help="Other examples of each property.")
@_reporting
def check(
    backend: tuple[str, ...],
    also: tuple[str, ...],
    programs: tuple[str, ...],
    array: str | None,
    device: str | None,
    dtypes: tuple[str, ...],
    call_limit: float | None,
    quick: bool,
    tests: str | None,
    rules: tuple[str, ...],
    seed: int | None,
    **reports: Any,
) -> None:
    """Judge backends: names, libraries, module:function of your own, or a folder with attnspec.toml.

    Without any of these it is the attnspec.toml here, and the backends of NumPy where there is none.
    """
    from attnspec.backends.names import FILE, expand, name_program, with_options

    said = {"array": array, "device": device, "dtype": ",".join(dtypes)}
    given = {option: thing for option, thing in said.items() if thing}
    own = [name_program(command, call_limit) for command in programs]
    default = ["."] if Path(FILE).is_file() else ["numpy"]
    asked = [*backend, *also] or ([] if own else default)
    wanted = [name for one in asked for name in expand(with_options(one, given))] + own
    options = ["--quick"] if quick else []
    if tests and re.fullmatch(r"[A-Z]+-[1-9][0-9]*", tests):
        rules = (*rules, tests.upper())
    elif tests:
        options += ["-k", tests]
    options += [f"--rule={rule.upper()}" for rule in rules]
    options += [f"--seed={seed}"] if seed is not None else []
    _judge(wanted, options, **reports)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_reporting
def judge(folder: Path, **reports: Any) -> None:
    """Judge the answers to the calls that `attnspec export` wrote to a folder."""
    from attnspec.backends import load
    from attnspec.backends.names import OFFLINE

    load(f"{OFFLINE}{folder}")  # what is wrong with the folder as a whole is said at once
    _judge([f"{OFFLINE}{folder}"], ["-k", "test_golden"], **reports)


@dataclass(frozen=True)
class _Wanted:
    """What is to be written, where."""

    results: Path | None
    junit: Path | None
    markdown: Path | None
    badge: Path | None
    known_failures: Path | None
    write_known_failures: Path | None

    def prepare(self) -> None:
        """Make the files now, not after minutes, if they cannot be written at all."""
        for path in (self.results, self.junit, self.markdown, self.badge):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("", encoding="utf-8")


def _judge(
    names: Sequence[str],
    options: Sequence[str],
    *,
    stop: bool,
    workers: str | None,
    time_limit: float,
    cases: tuple[str, ...],
    **wanted: Path | None,
) -> None:
    from attnspec import find_case
    from attnspec.conformance.report.known_failures import read_known
    from attnspec.conformance.report.report import Report
    from attnspec.conformance.run.process import run
    from attnspec.conformance.verdict import read

    if workers and importlib.util.find_spec("xdist") is None:
        raise click.ClickException("-n: expected pytest-xdist to be installed, got none")
    for case in cases:
        find_case(case)
    files = _Wanted(**wanted)
    files.prepare()
    known = read_known(files.known_failures) if files.known_failures else ()
    options = [*options, *(f"--case={case}" for case in cases)]
    options += ["-x"] if stop else []
    options += ["-n", workers] if workers else []
    with tempfile.TemporaryDirectory() as folder:
        sound, paths = True, []
        for number, name in enumerate(dict.fromkeys(names)):
            paths.append(Path(folder) / f"{number}.jsonl")
            sound &= run(name, paths[-1], options, seconds=time_limit)
            if files.results:
                with files.results.open("a", encoding="utf-8") as file:
                    file.write(paths[-1].read_text(encoding="utf-8"))
        report = Report(read(paths), known)
    _write(report, files)
    _tell(report)
    sys.exit(0 if sound and (report.good or files.write_known_failures) else 1)


def _write(report: Report, files: _Wanted) -> None:
    from attnspec.conformance.report.badge import to_badge
    from attnspec.conformance.report.junit import to_junit
    from attnspec.conformance.report.known_failures import read_known, write_known
    from attnspec.conformance.report.markdown import to_markdown

    if files.junit:
        files.junit.write_text(to_junit(report), encoding="utf-8")
    if files.markdown:
        files.markdown.write_text(to_markdown(report), encoding="utf-8")
    if files.badge:
        files.badge.write_text(to_badge(report, files.badge.suffix), encoding="utf-8")
    if files.write_known_failures:
        before = read_known(files.write_known_failures) if files.write_known_failures.exists() else ()
        number = write_known(files.write_known_failures, report.results, (*report.known, *before))
        click.echo(f"{number} known failures in {files.write_known_failures}: give each a reason and a link")


def _tell(report: Report) -> None:
    """Print the summary: failures by rule, the table, levels, what is known and stale, a reproduction."""
    from attnspec.conformance.report.table import render

    diagnoses: dict[str, str] = {}
    if any(verdict.status in ("fail", "error") for verdict in report.results.verdicts):
        from attnspec.conformance.report.diagnosis import of_results  # brings the gallery with it

        diagnoses = of_results(report.results)
    color = sys.stdout.isatty()
    click.echo(render(report.results, color=color, told=report.failures.new, diagnoses=diagnoses))
    click.echo(report.extent())
    for subject in report.results.subjects:
        click.echo(f"{subject.name}: {report.levels(subject)}")
    if report.failures.known:
        click.echo(f"{len(report.failures.known)} known failures, told of in the table alone")
    for text in report.failures.stale:
        click.echo(f"error: known failures: {text}")
    reproduction = report.shortest_reproduction()
    if reproduction:
        click.echo(f"\nthe shortest reproduction:\n{reproduction}")
