"""The commands that judge: ``attnspec check`` and ``attnspec judge``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnspec.conformance.report import formats
from attnspec.conformance.run.selection import Selection

if TYPE_CHECKING:
    from attnspec.conformance.report.report import Report

_FILE = click.Path(dir_okay=False, path_type=Path)
_REPORTS = (
    click.option("--results", type=_FILE, help="Write the verdicts here as JSON lines."),
    *(click.option(f"--{option}", type=_FILE, help=text) for option, text in formats.options().items()),
    click.option("--known-failures", type=_FILE, help="What is known to fail, and fails no run."),
    click.option("--write-known-failures", type=_FILE, help="Write all that fails to such a file."),
    click.option("-x", "stop", is_flag=True, help="Stop at the first failure that is not known."),
    click.option("-n", "jobs", default="1", metavar="N", help="Judge in N processes at once, or auto (1)."),
    click.option(
        "--time-limit",
        type=click.FloatRange(0.1, 86400.0),
        default=300.0,
        metavar="SECONDS",
        help="For one case (300).",
    ),
    click.option("-s", "echo", is_flag=True, help="Print what the implementation prints."),
    click.option("--case", "cases", multiple=True, metavar="ID", help="Only this case, by its id or name."),
    click.option("--require", metavar="LEVEL", help="Succeed where this level is reached, and only there."),
    click.option("--table", "every", is_flag=True, help="Print every rule, not only what does not pass."),
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
    "-k",
    "match",
    multiple=True,
    metavar="TEXT",
    help="Only cases with TEXT, as in 'empty or MASK-4', in their name, group or rules.",
)
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Only cases that bear on this rule.")
@click.option("--search", type=int, metavar="N", help="Draw N legal calls, and shrink one that is wrong.")
@click.option("--level", metavar="LEVEL", help="Only what bears on the rules of this level, such as core.")
@click.option("--seed", type=int, metavar="N", help="Other generated cases.")
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
    match: tuple[str, ...],
    rules: tuple[str, ...],
    search: int | None,
    level: str | None,
    seed: int | None,
    **reports: Any,
) -> None:
    """Judge backends: names, libraries, module:function of your own, or a folder with attnspec.toml.

    Without any of these it is the attnspec.toml here.

    The exit status is 0 where all that was to be judged was judged and conforms, 1 where something
    fails, 2 where the command is wrong, 3 where what is to be judged cannot be loaded, and 4 where
    not all of it was judged.
    """
    from attnspec.backends.names import FILE, expand, name_program, with_options

    said = {"array": array, "device": device, "dtype": ",".join(dtypes)}
    given = {option: thing for option, thing in said.items() if thing}
    own = [name_program(command, call_limit) for command in programs]
    default = ["."] if Path(FILE).is_file() else []
    asked = [*backend, *also] or ([] if own else default)
    if not asked and not own:
        raise click.UsageError(
            f"backend: expected a name, a library, module:function, or a folder with {FILE}, got nothing"
        )
    wanted = [name for one in asked for name in expand(with_options(one, given))] + own
    if search is not None:
        from attnspec.conformance.run.search import search_all

        sys.exit(0 if search_all(wanted, search, seed, Path.cwd(), click.echo) else 1)
    ids = [text for text in match if re.fullmatch(r"[A-Za-z]+-[1-9][0-9]*", text)]
    texts = tuple(part for text in match if text not in ids for part in re.split(r"\s+or\s+", text))
    found = tuple(rule.upper() for rule in (*rules, *ids))
    if level:
        from attnspec.conformance.report.levels import rules_of

        if found:
            raise click.UsageError("--level: expected no --rule beside it, got both")
        found = rules_of(level)
    _judge(wanted, Selection(quick, found, match=texts, level=level or "", seed=seed), **reports)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_reporting
def judge(folder: Path, **reports: Any) -> None:
    """Judge the answers to the calls that `attnspec export` wrote to a folder."""
    from attnspec.backends import load
    from attnspec.backends.names import OFFLINE

    load(f"{OFFLINE}{folder}")  # what is wrong with the folder as a whole is said at once
    _judge([f"{OFFLINE}{folder}"], Selection(), **reports)


def _judge(
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
    **reports: Path | None,
) -> None:
    """Check the arguments, run, print, write the reports, and end with the status that tells it."""
    from attnspec.conformance.report.files import check_writable
    from attnspec.conformance.report.known_failures import find_known
    from attnspec.conformance.report.known_file import read_known
    from attnspec.conformance.report.outside import one_line
    from attnspec.conformance.report.report import Outcome, Report
    from attnspec.conformance.report.screen import screen, wants_color
    from attnspec.conformance.run.run import run_all

    wanted = [(formats.find_format(option, path), path) for option, path in reports.items() if path]
    selection = replace(selection, names=cases)
    _check_required(require, selection)
    known = read_known(known_failures) if known_failures else ()
    before = (
        read_known(write_known_failures) if write_known_failures and write_known_failures.exists() else ()
    )
    for path in (results, write_known_failures, *(path for _, path in wanted)):
        if path:
            check_writable(path)
    ran = run_all(
        names,
        selection,
        jobs=_jobs(jobs),
        seconds=time_limit,
        echo=echo,
        path=results,
        fails=lambda verdict: verdict.bad and not find_known(verdict, known),
        stop=stop,
    )
    report = Report(ran.results, known, require or "")
    try:
        click.echo(screen(report, color=wants_color(), diagnoses=ran.diagnoses, every=every), nl=False)
    finally:  # nobody may be reading any more
        _write(report, wanted)
    if ran.signal:
        sys.exit(128 + ran.signal)
    status = report.outcome.status
    if write_known_failures:
        from attnspec.conformance.report.known_file import write_known

        number, problems = write_known(write_known_failures, report.told, (*known, *before))
        for problem in problems:
            click.echo(f"known failures: none written: {one_line(problem)}")
        if number or not problems:
            click.echo(f"{number} entries in {write_known_failures}: give each a reason and a link")
        status = 0 if report.outcome is Outcome.FAILS and not problems else status
    sys.exit(status)


def _check_required(level: str | None, selection: Selection) -> None:
    """Refuse to require a level that the run will not tell of."""
    if level is None:
        return
    from attnspec.conformance.report.levels import chain

    chain(level)
    if selection.part not in ("whole", "level"):
        raise click.UsageError("--require: a level is told of a whole run or of --level alone, got a part")
    if selection.level and level not in (one.name for one in chain(selection.level)):
        raise click.UsageError(
            f"--require: got {level}, expected a level that --level {selection.level} asks"
        )


def _jobs(said: str) -> int:
    """Read how many processes judge at once."""
    if said == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not re.fullmatch(r"[1-9][0-9]{0,2}", said):
        raise click.UsageError(f"-n: expected a number from 1 to 999, or auto, got {said!r}")
    return int(said)


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
