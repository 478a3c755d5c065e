"""The command ``attnspec trace``."""

import sys

import click


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
