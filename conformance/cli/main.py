"""The command line: ``attnspec check``, ``rules``, ``explain``, ``backends``, ``table`` and more."""

import io
import json
import os
import re
import sys
from pathlib import Path

import click

from attnspec import SpecError, __version__, find_rule, rules
from attnspec.conformance.cli.check import check, judge
from attnspec.conformance.cli.init import init
from attnspec.conformance.cli.program import dump, export, serve, smoke
from attnspec.conformance.cli.report import report
from attnspec.conformance.cli.trace import recorded, trace
from attnspec.conformance.cli.vectors import vectors

_RULE = re.compile(r"[A-Za-z]+-\d+")
_MOST_MATCHES = 20
#: What people call things, and the words of rules and bugs for it.
_NAMES = {
    **dict.fromkeys(("zigzag", "striped"), ("shard", "rank")),
    **dict.fromkeys(("ring", "ulysses", "cp"), ("shard", "rank")),
    **dict.fromkeys(("gqa", "mqa"), ("shared", "group", "key head")),
    **dict.fromkeys(("fp16", "bf16"), ("half", "float16")),
    **dict.fromkeys(("varlen", "cu_seqlens"), ("packed", "starts")),
    **dict.fromkeys(("fp8", "int8"), ("codes",)),
    "rope": ("rotary",),
    "kv": ("key",),
    "swa": ("window",),
    "padding": ("length", "pad"),
    "backward": ("gradient", "backward"),
}
#: What other programs call the number of ranks.
_OF_RANKS = ("--rank", "--world-size", "--np", "--nproc", "--nproc-per-node", "--processes", "--gpus")


class _Wrong(click.ClickException):
    """An error in one line, with status 2: status 1 means that a backend does not conform."""

    exit_code = 2


class _Clean(click.Group):
    """A group that prints errors of this package in one line, without a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        from attnspec.backends.errors import BackendError, Broken
        from attnspec.conformance.outside import one_line

        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name in _OF_RANKS:
                message = f"No such option '{error.option_name}'. Did you mean '--ranks'?"
                raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from None
            raise
        except BrokenPipeError:
            # The reader, such as head, has what it wanted. What is left must not raise when Python ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (SpecError, BackendError, Broken, ArithmeticError, OSError, UnicodeDecodeError) as error:
            raise _Wrong(one_line(str(error))) from error


@click.group(cls=_Clean, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="attnspec")
def main() -> None:
    """Test implementations of scaled dot-product attention against a specification."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the terminal's encoding may lack a character


@main.command("rules")
@click.option("--chapter", help="List only the rules of this chapter.")
def list_rules(chapter: str | None) -> None:
    """List the rules of the specification."""
    found = [rule for rule in rules() if chapter in (None, rule.chapter)]
    if not found:
        known = ", ".join(dict.fromkeys(rule.chapter for rule in rules()))
        raise SpecError(f"chapter: expected one of {known}, got {chapter!r}")
    from rich.console import Console
    from rich.table import Table

    table = Table("rule", "level", "title", box=None)
    for rule in found:
        table.add_row(rule.id, rule.level, rule.title)
    Console(highlight=False).print(table)


@main.command()
@click.argument("name", metavar="NAME")
def explain(name: str) -> None:
    """Print a rule, with its sentence, variants and golden vectors, or a bug that a report names.

    Words, such as 'sink rank', list the rules and the bugs that have all of them.
    """
    if not _RULE.fullmatch(name):
        from attnspec.conformance.gallery import wrong_entries

        for wrong in (wrong for wrong in wrong_entries() if wrong.name == name):
            click.echo(f"{name}, a wrong implementation of the gallery, which breaks {wrong.rule}\n")
            click.echo(click.wrap_text(wrong.sentence, 80))
            place = f"attnspec.conformance.gallery:{name}"
            click.echo(f"\njudge it: attnspec check {place} -k {wrong.rule}")
            return
        _list_matches(name)
        return
    rule = find_rule(name.upper())
    click.echo(f"{rule.id} {rule.title}   ({rule.level}, chapter {rule.chapter})\n")
    click.echo(click.wrap_text(rule.sentence, 80))
    for variant in rule.variants:
        click.echo()
        click.echo(click.wrap_text(f"variant {variant.name}: {variant.text}", 80, "  ", "    "))
    from attnspec import cases

    ids = [case.id for case in cases() if rule.id in case.rules]
    click.echo(f"\ngolden vectors: {', '.join(ids) or 'none'}")


def _list_matches(text: str) -> None:
    """List the rules and the bugs whose name, title or sentence has all words of a text."""
    from attnspec.conformance.gallery import wrong_entries

    lines = [(rule.id, f"{rule.title}. {rule.sentence}") for rule in rules()]
    lines += [(wrong.name, f"{wrong.sentence} {wrong.rule} {wrong.seen}") for wrong in wrong_entries()]
    words = [_NAMES.get(word, (word,)) for word in re.split(r"[^\w]+", text.lower())]
    matches = [
        line for line in lines if all(any(x in " ".join(line).lower() for x in several) for several in words)
    ]
    if not matches:
        raise SpecError(f"name: expected a rule, a bug, or words of one such as 'sink rank', got {text!r}")
    for name, said in matches[:_MOST_MATCHES]:
        click.echo(click.wrap_text(f"{name}: {' '.join(said.split())}", 80, "", "    "))
    if more := matches[_MOST_MATCHES:]:
        click.echo(f"and {len(more)} more; write more words")


@main.command()
def backends() -> None:
    """List the backends and the reason if one cannot be used."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from attnspec.backends import NAMES, BackendError, load
    from attnspec.backends.names import APART, entry_points_of_packages
    from attnspec.conformance.outside import one_line
    from attnspec.dialect import described

    table = Table("backend", "library", "declared variants", box=None)
    for name in (*NAMES, *APART, *entry_points_of_packages()):
        try:
            backend = load(name)
        except BackendError as error:
            cells = (name, str(error).partition(": ")[2], "")
        else:
            dialect = ", ".join(f"{rule}: {variant}" for rule, variant in described(backend.dialect).items())
            said = "; ".join((dialect, *backend.notes)).strip("; ")
            cells = (name, f"{backend.library} {backend.version}", said or "none")
        table.add_row(*(Text(one_line(cell)) for cell in cells))  # no markup: attnspec[torch] is text
    Console(highlight=False, width=120).print(table)


@main.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--rest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Print levels and deviations of core only, and write the whole table to this file.",
)
def table(files: tuple[Path, ...], rest: Path | None) -> None:
    """Print one table of the results of several runs; exit with the worst status."""
    from attnspec.conformance.attribution.report import Report
    from attnspec.conformance.files import check_writable, write_whole
    from attnspec.conformance.render.overview import overview
    from attnspec.conformance.render.screen import screen, wants_color
    from attnspec.conformance.results_file import read

    if rest:
        check_writable(rest)
    report = Report(read(files))
    if rest:
        click.echo(overview(report, color=wants_color()))
        write_whole(rest, screen(report, width=200, every=True))
        click.echo(f"every rule, with what was counted: {rest}")
    else:
        click.echo(screen(report, color=wants_color(), every=True), nl=False)
    sys.exit(report.outcome.status)


@main.command()
@click.argument("before", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def compare(before: Path, after: Path) -> None:
    """Compare the results of two runs: regressions, repairs, new and removed cases.

    The exit status is 1 if there are regressions.
    """
    from attnspec.conformance.outside import one_line
    from attnspec.conformance.render.compare import compare as compared
    from attnspec.conformance.results_file import read

    found = compared(read([before]), read([after]))
    for name, comparison in found.items():
        click.echo(one_line(name))
        for line in comparison.lines():
            click.echo(f"  {line}")
    if any(comparison.changes_of("regressions") for comparison in found.values()):
        sys.exit(1)


@main.command()
@click.option("--digests", is_flag=True, help="Print a digest of each part of the normative content instead.")
def registry(digests: bool) -> None:
    """List the ids of rules, variants, levels, profiles and operations, and those that are withdrawn."""
    from attnspec.conformance import registry as ids

    lines = ids.digests().items() if digests else ids.registry()
    for parts in lines:
        click.echo("  ".join(filter(None, parts)))


@main.command()
@click.argument("sources", nargs=-1, required=True, metavar="RESULTS... | CLAIM")
def claim(sources: tuple[str, ...]) -> None:
    """Print the claim of each backend in files of RESULTS, or read a CLAIM and print it as JSON."""
    from attnspec.conformance.attribution.report import Report
    from attnspec.conformance.claim import claim_of, read_claim
    from attnspec.conformance.results_file import read

    if any("attnspec=" in source for source in sources):
        for source in sources:
            click.echo(json.dumps(read_claim(source), indent=2))
        return
    report = Report(read(map(Path, sources)))
    for subject in report.results.subjects:
        text = claim_of(report, subject)
        click.echo(text or f"{subject.name}: no claim: the run is not whole, or something fails")


for command in (check, judge, report, init, export, dump, smoke, serve, trace, recorded, vectors):
    main.add_command(command)


if __name__ == "__main__":
    main()
