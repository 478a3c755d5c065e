"""The commands that judge: ``attnspec check`` and ``attnspec judge``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from attnspec.conformance.cli.judging import judge_all
from attnspec.conformance.report import formats
from attnspec.conformance.run.selection import Selection

_FILE = click.Path(dir_okay=False, path_type=Path)


class _Seconds(click.ParamType):  # type: ignore[type-arg] # click has none to give at run time
    """A time limit: neither none at all nor for ever, and a number."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        seconds = click.FLOAT.convert(value, param, ctx)
        if not 0.1 <= seconds <= 86400.0:  # NaN is not either
            self.fail(f"expected 0.1 to 86400 seconds, got {value}", param, ctx)
        return float(seconds)


_SECONDS = _Seconds()
_REPORTS = (
    click.option("--results", type=_FILE, help="Write the verdicts here as JSON lines."),
    *(click.option(f"--{option}", type=_FILE, help=text) for option, text in formats.options().items()),
    click.option("--known-failures", type=_FILE, help="What is known to fail, and fails no run."),
    click.option("--write-known-failures", type=_FILE, help="Write all that fails to such a file."),
    click.option("-x", "stop", is_flag=True, help="Stop at the first failure that is not known."),
    click.option("-n", "jobs", default="1", metavar="N", help="Judge in N processes at once, or auto (1)."),
    click.option(
        "--time-limit",
        type=_SECONDS,
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
@click.option("--call-limit", type=_SECONDS, metavar="SECONDS", help="For one call of a program (20).")
@click.option("--quick", is_flag=True, help="A fixed part of the suite that touches every rule.")
@click.option(
    "-k",
    "match",
    multiple=True,
    metavar="TEXT",
    help="Only cases with TEXT, as in 'empty or MASK-4', in their name, group or rules.",
)
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Only cases that bear on this rule.")
@click.option(
    "--search",
    type=click.IntRange(min=1),
    metavar="N",
    help="Draw N legal calls, and shrink one that is wrong.",
)
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

    Without any of these it is what the attnspec.toml here or above describes.

    The exit status is 0 where all that was to be judged was judged and conforms, 1 where something
    fails, 2 where the command is wrong, 3 where what is to be judged cannot be loaded, and 4 where
    not all of it was judged, or nothing of what was asked for is offered. Where several of these
    apply, it is the first of 3, 1 and 4.
    """
    from attnspec.backends.names import FILE, expand, name_program, with_options
    from attnspec.backends.user.configuration import find_configuration
    from attnspec.backends.user.settings import check_options

    said = {"array": array, "device": device, "dtype": ",".join(dtypes) if dtypes else None}
    given = {option: thing for option, thing in said.items() if thing is not None}
    own = [name_program(command, call_limit) for command in programs]
    described = find_configuration(Path.cwd())
    default = [str(described.parent)] if described else []
    asked = [*backend, *also] or ([] if own else default)
    if not asked and not own:
        raise click.UsageError(
            f"backend: expected a name, a library, module:function, or a folder with {FILE}, got nothing, "
            "and no such file here or above"
        )
    wanted = [name for one in asked for name in expand(with_options(one, given))] + own
    check_options(wanted)
    if search is not None:
        from attnspec.conformance.run.run import search_all

        sys.exit(search_all(wanted, search, seed, Path.cwd(), click.echo).status)
    ids = [text for text in match if re.fullmatch(r"[A-Za-z]+-[1-9][0-9]*", text)]
    texts = tuple(part for text in match if text not in ids for part in re.split(r"\s+or\s+", text))
    found = tuple(rule.upper() for rule in (*rules, *ids))
    if level:
        from attnspec.conformance.report.levels import rules_of

        if found:
            raise click.UsageError("--level: expected no --rule beside it, got both")
        found = rules_of(level)
    judge_all(wanted, Selection(quick, found, match=texts, level=level or "", seed=seed), **reports)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@_reporting
def judge(folder: Path, **reports: Any) -> None:
    """Judge the answers to the calls that `attnspec export` wrote to a folder."""
    from attnspec.backends import load
    from attnspec.backends.names import OFFLINE
    from attnspec.backends.program.answers import cases_of

    name = f"{OFFLINE}{folder}"
    load(name)  # what is wrong with the folder as a whole is said at once
    reports["cases"] = reports["cases"] or cases_of(name, folder)
    judge_all([name], Selection(), **reports)
