"""The options that the commands which judge share, and what an option may be."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from attnspec.conformance.render import formats

FILE = click.Path(dir_okay=False, path_type=Path)


class _Seconds(click.ParamType):  # type: ignore[type-arg] # not subscriptable at run time
    """A time limit in seconds; zero, infinity and NaN are refused."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert an option to seconds."""
        seconds = click.FLOAT.convert(value, param, ctx)
        if not 0.1 <= seconds <= 86400.0:  # true for NaN too
            self.fail(f"expected 0.1 to 86400 seconds, got {value}", param, ctx)
        return float(seconds)


class _Shard(click.ParamType):  # type: ignore[type-arg] # not subscriptable at run time
    """A share of the cases, such as ``3/8``."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the two numbers."""
        found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", value)
        if value and (not found or int(found[1]) > int(found[2])):
            self.fail(f"expected I/N with I from 1 to N, such as 3/8, got {value!r}", param, ctx)
        return str(value)


SECONDS = _Seconds()
SHARD = _Shard()
_REPORTS = (
    click.option("--results", type=FILE, help="Write the verdicts to this file as JSON lines."),
    *(click.option(f"--{option}", type=FILE, help=text) for option, text in formats.options().items()),
    click.option("--junit-unsupported", is_flag=True, help="List unsupported cases as skipped in --junit."),
    click.option(
        "--html",
        type=click.Path(file_okay=False, path_type=Path),
        help="Write pages of the results into this folder.",
    ),
    click.option(
        "--known-failures", type=FILE, help="Read known failures from this file; they do not fail the run."
    ),
    click.option(
        "--write-known-failures", type=FILE, help="Write all failures to this file as known failures."
    ),
    click.option(
        "-x", "stop", is_flag=True, help="Stop at the first wrong value that is not a known failure."
    ),
    click.option("-n", "jobs", default="1", metavar="N", help="Number of processes, or auto (default: 1)."),
    click.option(
        "--time-limit",
        type=SECONDS,
        metavar="SECONDS",
        help="Time limit for one case (default: 300, with --smoke 60).",
    ),
    click.option("-s", "echo", is_flag=True, help="Print the output of the implementation."),
    click.option(
        "--case", "cases", multiple=True, metavar="ID", help="Run only this case, given by its id or name."
    ),
    click.option(
        "--require",
        metavar="WHAT",
        help="What decides the exit status: values (the default), refusals (values, and the calls that must "
        "be refused), or a level.",
    ),
    click.option(
        "--explain",
        is_flag=True,
        help="Look longer than a second for wrong implementations with the same results.",
    ),
    click.option(
        "--table", "every", is_flag=True, help="Print every rule, not only those that do not fully pass."
    ),
)


def reporting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that check and judge share."""
    for option in reversed(_REPORTS):
        command = option(command)
    return command
