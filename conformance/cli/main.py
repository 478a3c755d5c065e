"""The command line: ``attnspec check``, ``rules``, ``explain``, ``backends``, ``table`` and more."""

import sys
from pathlib import Path

import click

from attnspec import SpecError, __version__, find_rule, rules
from attnspec.conformance.cli.check import check, judge
from attnspec.conformance.cli.program import dump, export, serve, smoke
from attnspec.conformance.cli.trace import trace
from attnspec.conformance.cli.vectors import vectors


class _Clean(click.Group):
    """Our own errors end in one line, not in a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        from attnspec.backends.errors import BackendError

        try:
            return super().invoke(ctx)
        except (SpecError, BackendError, ArithmeticError, OSError) as error:
            wrong = click.ClickException(str(error))
            wrong.exit_code = 2  # 1 says that something judged does not conform
            raise wrong from error


@click.group(cls=_Clean, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="attnspec")
def main() -> None:
    """The standard that attention implementations are measured against."""


@main.command("rules")
@click.option("--chapter", help="Only the rules of one chapter.")
def list_rules(chapter: str | None) -> None:
    """List the rules of the standard."""
    found = [rule for rule in rules() if chapter in (None, rule.chapter)]
    if not found:
        known = ", ".join(dict.fromkeys(rule.chapter for rule in rules()))
        raise SpecError(f"chapter: got {chapter!r}, expected one of {known}")
    from rich.console import Console
    from rich.table import Table

    table = Table("rule", "level", "title", box=None)
    for rule in found:
        table.add_row(rule.id, rule.level, rule.title)
    Console(highlight=False).print(table)


@main.command()
@click.argument("rule_id", metavar="ID")
def explain(rule_id: str) -> None:
    """Print a rule: its sentence, its variants, the vectors that bear on it."""
    rule = find_rule(rule_id.upper())
    click.echo(f"{rule.id} {rule.title}   ({rule.level}, chapter {rule.chapter})\n")
    click.echo(click.wrap_text(rule.sentence, 88))
    for variant in rule.variants:
        click.echo()
        click.echo(click.wrap_text(f"variant {variant.name}: {variant.text}", 88, "  ", "    "))
    from attnspec import cases

    ids = [case.id for case in cases() if rule.id in case.rules]
    click.echo(f"\ngolden vectors: {', '.join(ids) or 'none'}")


@main.command()
def backends() -> None:
    """List the backends, and which of them can be used here."""
    from rich.console import Console
    from rich.table import Table

    from attnspec.backends import NAMES, BackendError, load
    from attnspec.backends.names import APART, registered

    table = Table("backend", "library", "declared variants", box=None)
    for name in (*NAMES, *APART, *registered()):
        try:
            backend = load(name)
        except BackendError as error:
            table.add_row(name, str(error).partition(": ")[2], "")
        else:
            dialect = ", ".join(f"{rule}: {variant}" for rule, variant in backend.dialect.items())
            said = "; ".join((dialect, *backend.notes)).strip("; ")
            table.add_row(name, f"{backend.library} {backend.version}", said or "none")
    Console(highlight=False, width=120).print(table)


@main.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def table(files: tuple[Path, ...]) -> None:
    """Print one table of the results of several runs."""
    from attnspec.conformance.report.report import Report
    from attnspec.conformance.report.screen import screen
    from attnspec.conformance.results import read

    click.echo(screen(Report(read(files)), color=sys.stdout.isatty()), nl=False)


for command in (check, judge, export, dump, smoke, serve, trace, vectors):
    main.add_command(command)


if __name__ == "__main__":
    main()
