"""The commands that judge: ``attnspec check`` and ``attnspec judge``."""

import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

_FILE = click.Path(dir_okay=False, path_type=Path)
_REPORTS = (
    click.option("--results", type=_FILE, help="Write the verdicts here as JSON lines."),
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
    from attnspec.backends.configuration import FILE
    from attnspec.backends.registry import expand, name_program, with_options

    said = {"array": array, "device": device, "dtype": ",".join(dtypes)}
    given = {option: thing for option, thing in said.items() if thing}
    own = [name_program(command, call_limit) for command in programs]
    default = ["."] if Path(FILE).is_file() else ["numpy"]
    asked = [*backend, *also] or ([] if own else default)
    wanted = [name for one in asked for name in expand(with_options(one, given))] + own
    options = ["--quick"] if quick else []
    if tests and re.fullmatch(r"[A-Z]+-[0-9]+", tests.upper()):
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
    from attnspec.backends.registry import OFFLINE, load

    load(f"{OFFLINE}{folder}")  # what is wrong with the folder as a whole is said at once
    _judge([f"{OFFLINE}{folder}"], ["-k", "test_golden"], **reports)


def _judge(
    names: Sequence[str],
    options: Sequence[str],
    *,
    results: Path | None,
    stop: bool,
    workers: str | None,
    time_limit: float,
    cases: tuple[str, ...],
) -> None:
    from attnspec import find_case
    from attnspec.conformance.runner import run
    from attnspec.conformance.summary import render
    from attnspec.conformance.verdict import read

    if workers and importlib.util.find_spec("xdist") is None:
        raise click.ClickException("-n: expected pytest-xdist to be installed, got none")
    for case in cases:
        find_case(case)
    options = [f"--time-limit={time_limit}", *options, *(f"--case={case}" for case in cases)]
    options += ["-x"] if stop else []
    options += ["-n", workers] if workers else []
    with tempfile.TemporaryDirectory() as folder:
        path = results or Path(folder) / "results.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")  # now, not after minutes, if it cannot be written at all
        good, files = True, []
        for number, name in enumerate(dict.fromkeys(names)):
            files.append(Path(folder) / f"{number}.jsonl")
            good &= run(name, files[-1], options)
            with path.open("a", encoding="utf-8") as file:
                file.write(files[-1].read_text(encoding="utf-8"))
        click.echo(render(read(files), color=sys.stdout.isatty()))
    sys.exit(0 if good else 1)
