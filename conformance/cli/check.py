"""The commands that judge: ``attnspec check`` and ``attnspec judge``."""

from __future__ import annotations

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnspec.conformance.report import formats

if TYPE_CHECKING:
    from attnspec.conformance.report.report import Report
    from attnspec.conformance.results import Results

_FILE = click.Path(dir_okay=False, path_type=Path)
_REPORTS = (
    click.option("--results", type=_FILE, help="Write the verdicts here as JSON lines."),
    *(click.option(f"--{option}", type=_FILE, help=text) for option, text in formats.options().items()),
    click.option("--known-failures", type=_FILE, help="What is known to fail, and fails no run."),
    click.option("--write-known-failures", type=_FILE, help="Write all that fails to such a file."),
    click.option("-x", "stop", is_flag=True, help="Stop at the first failure."),
    click.option("-n", "workers", metavar="N", help="Run in N processes, or auto (needs pytest-xdist)."),
    click.option("--time-limit", default=300.0, metavar="SECONDS", help="For one test (300)."),
    click.option("--case", "cases", multiple=True, metavar="ID", help="Only this case, by its id or name."),
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
@click.option("--search", type=int, metavar="N", help="Draw N legal calls, and shrink one that is wrong.")
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
    search: int | None,
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
    if search is not None:
        from attnspec.conformance.run.search import search_all

        sys.exit(0 if search_all(wanted, search, seed, Path.cwd(), click.echo) else 1)
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
    _judge([f"{OFFLINE}{folder}"], [], **reports)


def _judge(
    names: Sequence[str],
    options: Sequence[str],
    *,
    stop: bool,
    workers: str | None,
    time_limit: float,
    cases: tuple[str, ...],
    results: Path | None,
    known_failures: Path | None,
    write_known_failures: Path | None,
    **reports: Path | None,
) -> None:
    """Check the arguments, run, print, write the reports, and end with the status that tells it."""
    from attnspec.conformance.report.files import check_writable
    from attnspec.conformance.report.known_failures import read_known
    from attnspec.conformance.report.report import Report
    from attnspec.conformance.suite import require

    if workers and importlib.util.find_spec("xdist") is None:
        raise click.ClickException("-n: expected pytest-xdist to be installed, got none")
    for case in cases:
        require(case)
    wanted = [(formats.find_format(option, path), path) for option, path in reports.items() if path]
    known = read_known(known_failures) if known_failures else ()
    before = (
        read_known(write_known_failures) if write_known_failures and write_known_failures.exists() else ()
    )
    for path in (results, write_known_failures, *(path for _, path in wanted)):
        if path:
            check_writable(path)
    options = [*options, *(f"--case={case}" for case in cases)]
    options += ["-x"] if stop else []
    options += ["-n", workers] if workers else []
    sound, found = _run(names, options, time_limit, results)
    report = Report(found, known)
    _tell(report)
    _write(report, wanted)
    if write_known_failures:
        from attnspec.conformance.report.known_failures import write_known

        number = write_known(write_known_failures, report.results, (*known, *before))
        click.echo(f"{number} known failures in {write_known_failures}: give each a reason and a link")
    sys.exit(0 if sound and (report.good or write_known_failures) else 1)


def _run(
    names: Sequence[str], options: Sequence[str], seconds: float, results: Path | None
) -> tuple[bool, Results]:
    """Run the suite on each backend; what there is of its results is kept, however it ends."""
    from attnspec.conformance.results import read
    from attnspec.conformance.run.process import run

    if results:
        results.write_text("", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        sound, paths = True, []
        for number, name in enumerate(dict.fromkeys(names)):
            path = Path(folder) / f"{number}.jsonl"
            try:
                sound &= run(name, path, options, seconds=seconds)
            finally:
                if results and path.exists():
                    with results.open("a", encoding="utf-8") as file:
                        file.write(path.read_text(encoding="utf-8"))
            paths.append(path)
        return sound, read(paths)


def _tell(report: Report) -> None:
    from attnspec.conformance.report.screen import screen

    diagnoses: dict[str, str] = {}
    if report.failures.new:
        from attnspec.conformance.report.diagnosis import of_results  # brings the gallery with it

        diagnoses = of_results(report.results)
    click.echo(screen(report, color=sys.stdout.isatty(), diagnoses=diagnoses), nl=False)


def _write(report: Report, wanted: Sequence[tuple[formats.Format, Path]]) -> None:
    """Write every report that can be written, and then say which could not."""
    from attnspec.conformance.report.files import write_whole

    errors = []
    for one, path in wanted:
        try:
            write_whole(path, one.write(report))
        except OSError as error:
            errors.append(f"--{one.option}: {error}")
    if errors:
        raise click.ClickException("; ".join(errors))
