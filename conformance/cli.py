"""The command line: ``attnspec check``, ``rules``, ``explain``, ``backends``, ``table`` and more."""

import importlib.util
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from attnspec import SpecError, __version__, cases, find_rule, rules
from attnspec.conformance.commands_program import serve, smoke
from attnspec.conformance.commands_vectors import vectors


class _Clean(click.Group):
    """Our own errors end in one line, not in a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        from attnspec.backends import BackendError

        try:
            return super().invoke(ctx)
        except (SpecError, BackendError, ArithmeticError, OSError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Clean, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="attnspec")
def main() -> None:
    """The standard that attention implementations are measured against."""


@main.command()
@click.argument("backend", nargs=-1)
@click.option("--backend", "also", multiple=True, metavar="NAME", help="The same as an argument.")
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="COMMAND",
    help="A program in any language that speaks the protocol.",
)
@click.option("--call-limit", type=float, metavar="SECONDS", help="For one call of a program (20).")
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the verdicts here as JSON lines.",
)
@click.option("-x", "stop", is_flag=True, help="Stop at the first failure.")
@click.option("-k", "tests", metavar="TEXT", help="Only tests whose name matches, as in pytest.")
@click.option("-n", "workers", metavar="N", help="Run in N processes, or auto (needs pytest-xdist).")
@click.option("--time-limit", default=300.0, metavar="SECONDS", help="For one test (300).")
def check(
    backend: tuple[str, ...],
    also: tuple[str, ...],
    programs: tuple[str, ...],
    call_limit: float | None,
    results: Path | None,
    stop: bool,
    tests: str | None,
    workers: str | None,
    time_limit: float,
) -> None:
    """Judge backends: names, libraries, or module:function of your own."""
    from attnspec.backends.registry import expand, name_program
    from attnspec.conformance.runner import run
    from attnspec.conformance.summary import render
    from attnspec.conformance.verdict import read

    own = [name_program(command, call_limit) for command in programs]
    wanted = [name for given in [*backend, *also, *own] or ["numpy"] for name in expand(given)]
    if workers and importlib.util.find_spec("xdist") is None:
        raise click.ClickException("-n: expected pytest-xdist to be installed, got none")
    options = [f"--time-limit={time_limit}"]
    options += ["-x"] if stop else []
    options += ["-k", tests] if tests else []
    options += ["-n", workers] if workers else []
    with tempfile.TemporaryDirectory() as folder:
        path = results or Path(folder) / "results.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")  # now, not after minutes, if it cannot be written at all
        good, files = True, []
        for number, name in enumerate(dict.fromkeys(wanted)):
            files.append(Path(folder) / f"{number}.jsonl")
            good &= run(name, files[-1], options)
            with path.open("a", encoding="utf-8") as file:
                file.write(files[-1].read_text(encoding="utf-8"))
        click.echo(render(read(files), color=sys.stdout.isatty()))
    sys.exit(0 if good else 1)


@main.command("rules")
@click.option("--chapter", help="Only the rules of one chapter.")
def list_rules(chapter: str | None) -> None:
    """List the rules of the standard."""
    found = [rule for rule in rules() if chapter in (None, rule.chapter)]
    if not found:
        known = ", ".join(dict.fromkeys(rule.chapter for rule in rules()))
        raise SpecError(f"chapter: got {chapter!r}, expected one of {known}")
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
    ids = [case.id for case in cases() if rule.id in case.rules]
    click.echo(f"\ngolden vectors: {', '.join(ids) or 'none'}")


@main.command()
def backends() -> None:
    """List the backends, and which of them can be used here."""
    from attnspec.backends import NAMES, BackendError, load

    table = Table("backend", "library", "declared variants", box=None)
    for name in NAMES:
        try:
            backend = load(name)
        except BackendError as error:
            table.add_row(name, str(error).partition(": ")[2], "")
        else:
            dialect = ", ".join(f"{rule}: {variant}" for rule, variant in backend.dialect.items())
            table.add_row(name, f"{backend.library} {backend.version}", dialect or "none")
    Console(highlight=False, width=120).print(table)


@main.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
def table(files: tuple[Path, ...]) -> None:
    """Print one table of the results of several runs."""
    from attnspec.conformance.summary import render
    from attnspec.conformance.verdict import read

    click.echo(render(read(files), color=sys.stdout.isatty()))


main.add_command(vectors)
main.add_command(smoke)
main.add_command(serve)


if __name__ == "__main__":
    main()
