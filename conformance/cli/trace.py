"""What looks for calls: ``attnspec trace``, ``attnspec recorded``, and ``attnspec check --search``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from attnspec.conformance.verdict import Verdict


@click.command()
@click.argument("rule_ids", nargs=-1, metavar="[ID]...")
@click.option("--no-backends", is_flag=True, help="Do not load backends to list their deviations.")
@click.option(
    "--cases", "needed", is_flag=True, help="List golden vectors that no gallery entry needs (slow)."
)
def trace(rule_ids: tuple[str, ...], *, no_backends: bool, needed: bool) -> None:
    """Trace each rule to its vectors, groups, gallery entries and backends; fail on gaps."""
    from attnspec.conformance.trace import (
        declared_deviations,
        gaps,
        trace_lines,
        trace_rules,
        unneeded_vectors,
    )

    found = trace_rules({} if no_backends else declared_deviations())
    chosen = [one for one in found if not rule_ids or one.rule in {name.upper() for name in rule_ids}]
    click.echo("\n".join(text for one in chosen for text in trace_lines(one, whole=bool(rule_ids))))
    missing = gaps(found) if not rule_ids else []
    for text in missing:
        click.echo(f"gap: {text}")
    for case in unneeded_vectors() if needed else ():
        click.echo(f"no entry needs: {case}")
    sys.exit(bool(missing))


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("name", metavar="BACKEND")
def recorded(folder: Path, name: str) -> None:
    """Judge a BACKEND on the calls that `attnspec.conformance.record` stored in FOLDER, with their numbers.

    Each call is judged in its last row and in some others. The first one that fails is reduced, and written
    to a file that `attnspec check BACKEND --case FILE` judges whole.
    """
    from attnspec.backends import load
    from attnspec.conformance.judge.judge import judge
    from attnspec.conformance.outside import plain
    from attnspec.conformance.recorded import read_recorded, shrink
    from attnspec.conformance.render.text import result_line
    from attnspec.conformance.run.search import Counterexample, store

    backend, failing = load(name), None
    statuses = []
    for item in read_recorded(folder):
        verdict = judge(backend, item)
        statuses.append(verdict.status)
        click.echo(plain(f"{verdict.status}: {item.id}, {item.case.title}"))
        if verdict.bad and failing is None:
            failing = item
            click.echo(plain(result_line(verdict)))
    if failing is not None:
        smallest = shrink(backend, failing)
        found = Counterexample(smallest.case, judge(backend, smallest))
        _print_found(name, *store(backend, found, Path.cwd(), "recorded"))
    judged = sum(status in ("pass", "deviation") for status in statuses)
    merged = "of calls with equal shapes, dtypes and options, one is stored"
    click.echo(f"{len(statuses)} recorded calls: {judged} pass; {merged}")
    sys.exit(1 if failing else 0 if judged else 4)


def print_search(names: Sequence[str], number: int, seed: int | None) -> None:
    """Search for failing calls of backends, each in its own process, print what is found, and exit."""
    from attnspec.backends.errors import BackendError
    from attnspec.conformance.attribution.report import Outcome
    from attnspec.conformance.outside import plain
    from attnspec.conformance.run.plan import Selection
    from attnspec.conformance.run.worker import Ended, Worker

    outcomes = []
    for name in dict.fromkeys(names):
        worker = Worker(Selection(seed=seed), name)
        try:
            worker.load(name)
            verdict, call = worker.search(number, Path.cwd())
        except BackendError as error:
            outcomes.append(Outcome.NOT_LOADED)
            click.echo(plain(f"error: {error}"))
        except Ended as end:
            outcomes.append(Outcome.NOT_WHOLE)
            place = f", at {end.raised.file}, line {end.raised.line}" if end.raised else ""
            click.echo(plain(f"error: {name}: the search did not finish: {end}{place}"))
        else:
            outcomes.append(Outcome.FAILS if verdict else Outcome.GOOD)
            if verdict:
                _print_found(name, verdict, call)
            else:
                click.echo(f"{name}: {number} calls searched, none of them wrong")
        finally:
            worker.stop()
    sys.exit(max(outcome.status for outcome in outcomes))


def _print_found(name: str, verdict: Verdict, call: Sequence[str]) -> None:
    from attnspec.conformance.render.text import verdict_text

    click.echo(f"{verdict.rule} does not hold, in the smallest call that was found:")
    click.echo("".join(f"  {line}\n" for line in call) + verdict_text(verdict))
    click.echo(f"judge it again: attnspec check {name} --case {verdict.case}")
