"""The commands that judge: ``attnspec check`` and ``attnspec judge``."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnspec.conformance.cli.options import FILE, SECONDS, SHARD, reporting
from attnspec.conformance.render import formats
from attnspec.conformance.run.plan import Selection

if TYPE_CHECKING:
    from attnspec.conformance.attribution.finding import Finding
    from attnspec.conformance.attribution.report import Report
    from attnspec.conformance.verdict import Verdict


def judge_all(
    names: Sequence[str],
    selection: Selection,
    *,
    stop: bool,
    jobs: str,
    time_limit: float | None,
    echo: bool,
    cases: tuple[str, ...],
    require: str | None,
    every: bool,
    results: Path | None,
    known_failures: Path | None,
    write_known_failures: Path | None,
    resume: bool = False,
    explain: bool = False,
    junit_unsupported: bool = False,
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

    started = time.monotonic()
    # Verdicts and outlines are in no cycles: to look for some took a quarter of the time of this process.
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)
    wanted = [(formats.find_format(option, path), path) for option, path in reports.items() if path]
    selection = replace(selection, names=cases)
    check_required(require, selection.part, selection.level)
    known = read_known(known_failures) if known_failures else ()
    before = read_known(path) if (path := write_known_failures) and path.exists() else ()
    files = [path for path in (results, write_known_failures, *(path for _, path in wanted)) if path]
    for path in (*files, *([html / "index.html"] if html else [])):
        check_writable(path)
    if len({os.path.realpath(path) for path in files}) < len(files):
        raise click.UsageError(
            f"reports: expected a different file for each, got {', '.join(map(str, files))}"
        )
    earlier = _unfinished(results, selection, names) if resume else ()
    runs = run_all(
        names,
        selection,
        jobs=_jobs(jobs),
        seconds=time_limit or (60.0 if selection.smoke else 300.0),
        echo=echo,
        path=results,
        fails=lambda verdict: verdict.bad and not (verdict.accepts or (known and find_known(verdict, known))),
        stop=stop,
        known=earlier,
        explain=explain,
        show=_show_first,
    )
    pages = html / "index.html" if html and runs.results.subjects else None
    seconds = time.monotonic() - started
    report = Report(
        runs.results, known, require or VALUES, pages, runs.diagnoses, junit_unsupported, seconds, runs.probes
    )
    try:
        click.echo(screen(report, color=wants_color(), every=every), nl=False)
    finally:  # the pipe that standard output goes to may be closed
        _write(report, wanted, html)
    for name in () if selection.sizes else _without_diagnosis(report):
        none = "no wrong implementation of the gallery has the same results"
        shown = none if explain else "no bug of the gallery matches in a short search; --explain looks longer"
        click.echo(f"{one_line(name)}: {shown}", err=True)
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


def _said_of_ranks(ranks: str | None, call_limit: float | None, *, untrusted: bool) -> dict[str, str | None]:
    """Return the options of the names of backends that are called in several processes."""
    from attnspec.backends.ranks.load import numbers_of

    if not ranks:
        return {}
    if untrusted:
        raise click.UsageError("--ranks: expected trusted code, got --untrusted")
    numbers_of("--ranks", ranks)
    return {"ranks": ranks, "call_limit": None if call_limit is None else f"{call_limit:g}"}


def _unfinished(path: Path | None, selection: Selection, names: Sequence[str]) -> tuple[Verdict, ...]:
    from attnspec.conformance.run.resume import finished_verdicts

    return finished_verdicts(path, selection, names)


def _failing_cases(path: Path) -> list[str]:
    """Return the cases that failed in a results file."""
    from attnspec.conformance.results_file import read

    cases = [verdict.case for verdict in read([path]).verdicts if verdict.bad and verdict.case]
    if not cases:
        raise click.UsageError(f"--rerun: expected a failing case in {path}, got none")
    return [*dict.fromkeys(cases)]


def _show_first(verdict: Verdict) -> None:
    """Print the first failure, long before the report, with the command that judges its case again."""
    from attnspec.conformance.attribution.causes import findings
    from attnspec.conformance.outside import one_line
    from attnspec.conformance.render.reproduction import check_command
    from attnspec.conformance.render.text import verdict_line

    # Its rule is that of the output which is wrong, as in the report.
    (finding,) = findings([verdict], [verdict])
    command = f": {check_command(verdict)}" if verdict.case else ""
    click.echo(one_line(f"first failure: {verdict_line(finding.verdict)}") + one_line(command), err=True)


def _without_diagnosis(report: Report) -> list[str]:
    """Return the backends whose first cause of wrong results has no diagnosis and resembles nothing."""
    wrong: dict[str, Finding] = {}
    for finding in report.findings:
        if any(verdict.difference for verdict in finding.failures):
            wrong.setdefault(finding.backend, finding)
    alike = {name for name, x in wrong.items() if x.variant or x.ignored or x.verdict.precision}
    return [name for name in wrong if name not in alike | report.diagnoses.keys()]


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


@click.command()
@click.argument("backend", nargs=-1)
@click.option(
    "--backend", "also", multiple=True, metavar="NAME", help="Judge this backend; same as the argument."
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="COMMAND",
    help="Judge a program in any language that speaks the protocol.",
)
@click.option(
    "--array", metavar="LIBRARY", help="Array library of the function: numpy, torch, jax or a module."
)
@click.option("--device", metavar="NAME", help="Device for the arrays, such as cuda.")
@click.option("--dtype", "dtypes", multiple=True, metavar="DTYPE", help="Run only cases of this dtype.")
@click.option(
    "--call-limit",
    type=SECONDS,
    metavar="SECONDS",
    help="Time limit for one call of a program (default: 20).",
)
@click.option("--quick", is_flag=True, help="Run a fixed part of the suite that touches every rule.")
@click.option(
    "--smoke", is_flag=True, help="Run the smallest calls only, one for each rule and argument: some seconds."
)
@click.option(
    "--rerun", type=FILE, metavar="RESULTS", help="Run only the cases that failed in this results file."
)
@click.option(
    "-k",
    "match",
    multiple=True,
    metavar="TEXT",
    help="Run only cases with TEXT, such as 'empty or MASK-4', in their name, group or rules.",
)
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Run only cases of this rule.")
@click.option(
    "--search",
    type=click.IntRange(min=1),
    metavar="N",
    help="Generate N valid random calls, and shrink a failing one.",
)
@click.option("--level", metavar="LEVEL", help="Run only cases of the rules of this level, such as core.")
@click.option(
    "--sizes",
    is_flag=True,
    help="Run the sizes instead: calls by formula up to a million rows, smallest first.",
)
@click.option(
    "--within",
    type=SECONDS,
    default=600.0,
    metavar="SECONDS",
    help="Time limit for the sizes; what does not fit is left out (default: 600).",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0.1, max=2.0**20),
    metavar="GIB",
    help="Memory limit for the sizes (default: half of the memory of the machine).",
)
@click.option(
    "--resume", is_flag=True, help="Continue the run in the file of --results; judge only what it lacks."
)
@click.option(
    "--untrusted",
    is_flag=True,
    help="Judge code that may cheat: in a confined process of its own, on drawn cases in a drawn order.",
)
@click.option(
    "--ranks",
    metavar="N,...",
    help="Start N processes as ranks, and judge sharded attention: each is called with its shard.",
)
@click.option(
    "--config",
    "matrices",
    multiple=True,
    type=FILE,
    help="Judge each combination of backends and options in the table [matrix] of this file.",
)
@click.option("--seed", type=int, metavar="N", help="Seed of the generated cases.")
@click.option(
    "--shard",
    type=SHARD,
    default="",
    metavar="I/N",
    help="Judge only the Ith of N shares of the cases; `attnspec report` joins their results.",
)
@reporting
def check(
    backend: tuple[str, ...],
    also: tuple[str, ...],
    programs: tuple[str, ...],
    array: str | None,
    device: str | None,
    dtypes: tuple[str, ...],
    call_limit: float | None,
    quick: bool,
    smoke: bool,
    rerun: Path | None,
    match: tuple[str, ...],
    rules: tuple[str, ...],
    search: int | None,
    level: str | None,
    seed: int | None,
    ranks: str | None,
    matrices: tuple[Path, ...],
    sizes: bool,
    within: float,
    memory: float | None,
    resume: bool,
    untrusted: bool,
    shard: str,
    **reports: Any,
) -> None:
    """Judge backends.

    BACKEND is the name of a backend, a library, module:function, or a folder with attnspec.toml.
    The default is the attnspec.toml in this folder or in the nearest parent folder that has one.

    The exit status is 0 if all planned cases were judged and no value is wrong, 1 if a case
    fails, 2 if the command is wrong, 3 if a backend cannot be loaded, and 4 if some planned cases
    were not judged, hardly any by its values, or none with an argument of the function, because it
    declined them. If several apply, the status is the first of 3, 1 and 4.
    """
    from attnspec.backends.names import add_options, check_options, expand, expand_matrix, name_program
    from attnspec.backends.user import configuration

    said = {"array": array, "device": device, "dtype": ",".join(dtypes) if dtypes else None}
    said |= _said_of_ranks(ranks, call_limit, untrusted=untrusted)
    given = {option: thing for option, thing in said.items() if thing is not None}
    if programs and (array or device):
        raise click.UsageError(
            "--program: expected neither --array nor --device, which are of functions in Python"
        )
    own = [name_program(command, call_limit, dtypes, ranks) for command in programs]
    described = configuration.find_configuration(Path.cwd())
    default = [str(described.parent)] if described else []
    of_matrices = [name for path in matrices for name in expand_matrix(path)]
    asked = [*backend, *also, *of_matrices] or ([] if own else default)
    if not asked and not own:
        raise click.UsageError(
            "backend: expected a name, a library, module:function, or a folder with "
            f"{configuration.FILE}, got no argument and no {configuration.FILE} in this folder or its parents"
        )
    wanted = [name for one in asked for name in expand(add_options(one, given))] + own
    if untrusted:
        from attnspec.backends.names import distrust

        wanted = [distrust(name, call_limit) for name in wanted]
    check_options(wanted)
    if search is not None:
        from attnspec.conformance.cli.trace import print_search

        print_search(wanted, search, seed)
    ids = [text for text in match if re.fullmatch(r"[A-Za-z]+-[1-9][0-9]*", text)]
    texts = tuple(part for text in match if text not in ids for part in re.split(r"\s+or\s+", text))
    found = tuple(rule.upper() for rule in (*rules, *ids))
    if level:
        from attnspec.conformance.attribution.levels import rules_of

        if found:
            raise click.UsageError("--level: expected either --level or --rule, got both")
        found = rules_of(level)
    if untrusted:
        from attnspec.conformance.run.untrusted import draw_seed

        seed = draw_seed() if seed is None and not sizes else seed
    selection = Selection(
        quick or smoke,
        found,
        match=texts,
        level=level or "",
        seed=seed,
        untrusted=untrusted,
        smoke=smoke,
        shard=shard,
    )
    reports["cases"] += tuple(_failing_cases(rerun) if rerun else ())
    if sizes:
        if quick or smoke or seed is not None:
            raise click.UsageError("--sizes: expected neither --quick nor --seed, which have other cases")
        selection = replace(selection, sizes=True, within=within, memory=memory or 0.0)
    judge_all(wanted, selection, resume=resume, **reports)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@reporting
def judge(folder: Path, **reports: Any) -> None:
    """Judge the answers to the calls that `attnspec export` wrote to FOLDER."""
    from attnspec.backends import load
    from attnspec.backends.names import OFFLINE
    from attnspec.backends.program.answers import cases_of

    name = f"{OFFLINE}{folder}"
    load(name)  # reports a problem with the whole folder before the run
    reports["cases"] = reports["cases"] or cases_of(name, folder)
    judge_all([name], Selection(), **reports)
