"""The commands around programs: ``attnspec smoke``, ``serve``, ``export`` and ``dump``."""

import shlex
import sys
from pathlib import Path

import click


@click.command()
@click.argument("backend", required=False)
@click.option("--program", metavar="COMMAND", help="A program in any language that speaks the protocol.")
def smoke(backend: str | None, program: str | None) -> None:
    """Check this tool itself, then say hello to a program or make one call of a backend."""
    from attnspec.backends.names import name_program
    from attnspec.conformance.run.smoke import check_harness, try_out

    sound = True
    for finding in check_harness():
        click.echo(finding)
        sound &= finding.good
    name = name_program(program) if program else backend
    if name:
        for finding in try_out(name):
            click.echo(finding)
            sound &= finding.good
    sys.exit(0 if sound else 1)


@click.command()
@click.argument("backend")
def serve(backend: str) -> None:
    """Serve a backend of Python as a program that speaks the protocol."""
    from attnspec.backends import load
    from attnspec.conformance.run.serve import serve_here

    serve_here(load(backend))


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--hello",
    "answer",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What the implementation answers to hello; without it everything is exported.",
)
@click.option("--dtype", "dtypes", multiple=True, help="Only calls in this dtype.")
@click.option("--chapter", "chapters", multiple=True, help="Only cases of this chapter.")
@click.option("--quick", is_flag=True, help="A fixed part of the suite that touches every rule.")
def export(
    folder: Path, answer: Path | None, dtypes: tuple[str, ...], chapters: tuple[str, ...], *, quick: bool
) -> None:
    """Write the calls of the suite to a folder, to be computed elsewhere."""
    from attnspec import CHAPTERS, SpecError
    from attnspec.backends import DTYPES
    from attnspec.conformance.run.offline import EVERYTHING, export_calls, hello_of
    from attnspec.conformance.suite import items

    for option, given, known in (("dtype", dtypes, DTYPES), ("chapter", chapters, CHAPTERS)):
        if not set(given) <= set(known):
            raise SpecError(f"{option}: got {', '.join(given)}, expected some of {', '.join(known)}")
    if folder.exists() and any(folder.iterdir()):
        raise SpecError(f"folder: expected {folder} to be empty, got a folder with files")
    found = (item for item in items(quick=quick) if not chapters or item.chapter in chapters)
    hello = hello_of(answer) if answer else EVERYTHING
    part = "chosen" if chapters or dtypes or quick else "whole"
    made = export_calls(found, folder, hello, dtypes, part)
    click.echo(f"{made.calls} calls in {folder}/calls.jsonl; answers are expected in {folder}/answers.jsonl")
    click.echo(f"{made.cases} cases are judged by them; {made.left_out} need a device that can be called")


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--case", "name", required=True, metavar="ID", help="The case, by its name.")
@click.option("--program", metavar="COMMAND", help="The program that is to be given it.")
@click.option("--seed", type=int, metavar="N", help="Of the run, where it had one.")
def dump(folder: Path, name: str, program: str | None, seed: int | None) -> None:
    """Write the call of one case to a folder, and print the line that feeds it to a debugger."""
    from attnspec import SpecError
    from attnspec.backends import load
    from attnspec.backends.names import name_program
    from attnspec.conformance.run.offline import dump_case
    from attnspec.conformance.suite import find

    if folder.exists() and any(folder.iterdir()):
        raise SpecError(f"folder: expected {folder} to be empty, got a folder with files")
    backend = load(name_program(program)) if program else None
    calls = dump_case(find(name, seed), folder, backend)
    words = shlex.split(program) if program else ["PROGRAM"]
    # It is run in the folder, where its own path, and those of its files, would not be found.
    command = shlex.join(str(Path(word).absolute()) if Path(word).is_file() else word for word in words)
    place = shlex.quote(str(folder))
    click.echo(f"{calls} calls in {folder}/calls.jsonl, their arrays in {folder}/calls")
    click.echo(f"run:   cd {place} && {command} < calls.jsonl")
    click.echo(f"debug: cd {place} && gdb -ex 'run < calls.jsonl' --args {command}")
