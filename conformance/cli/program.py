"""The commands around programs: ``attnspec smoke``, ``serve``, ``export`` and ``dump``."""

import shlex
import sys
from pathlib import Path

import click


@click.command()
@click.argument("backend", required=False)
@click.option("--program", metavar="COMMAND", help="Command of a program that speaks the protocol.")
def smoke(backend: str | None, program: str | None) -> None:
    """Test this installation, then make one call of a backend or program."""
    from attnspec.backends.names import name_program
    from attnspec.conformance.cli.smoke import check_harness, try_out

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
    """Serve a Python backend as a program that speaks the protocol."""
    from attnspec.backends import load
    from attnspec.backends.program.serve import serve_here

    serve_here(lambda: load(backend))


#: The most elements of a call in a quick export with expected values.
_MOST_QUICK = 2**12


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--hello",
    "answer",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Answer of the implementation to hello; without it the whole suite is exported.",
)
@click.option("--dtype", "dtypes", multiple=True, help="Export only calls in this dtype.")
@click.option("--chapter", "chapters", multiple=True, help="Export only cases of this chapter.")
@click.option("--quick", is_flag=True, help="Export a fixed part of the suite that touches every rule.")
@click.option(
    "--format",
    "form",
    help="Write expected values and allowed errors too: raw, json, npz, safetensors or onnx.",
)
def export(
    folder: Path,
    answer: Path | None,
    dtypes: tuple[str, ...],
    chapters: tuple[str, ...],
    form: str | None,
    *,
    quick: bool,
) -> None:
    """Write the calls of the suite to FOLDER, to compute them on another machine."""
    from attnspec import CHAPTERS, SpecError
    from attnspec.backends import DTYPES
    from attnspec.conformance.run.offline import EVERYTHING, export_calls, hello_of
    from attnspec.conformance.suite import items

    for option, given, known in (("dtype", dtypes, DTYPES), ("chapter", chapters, CHAPTERS)):
        if not set(given) <= set(known):
            raise SpecError(f"{option}: expected some of {', '.join(known)}, got {', '.join(given)}")
    if folder.exists() and any(folder.iterdir()):
        raise SpecError(f"folder: expected {folder} to be empty, got files in it")
    found = (item for item in items(quick=quick) if not chapters or item.chapter in chapters)
    if form is not None:
        from attnspec.conformance.export.write import write

        if answer:
            raise SpecError("hello: expected no answer with --format, which exports every call")
        written = write(found, folder, form, dtypes, most=_MOST_QUICK if quick else None)
        click.echo(f"{written.calls} calls in {folder}, with expected values and allowed errors")
        larger = f", or are larger than {_MOST_QUICK} elements" if quick else ""
        click.echo(
            f"{len(written.left_out)} cases cannot be judged by comparing arrays{larger}: left_out.txt"
        )
        return
    hello = hello_of(answer) if answer else EVERYTHING
    part = "chosen" if chapters or dtypes or quick else "whole"
    made = export_calls(found, folder, hello, dtypes, part)
    click.echo(f"{made.calls} calls in {folder}/calls.jsonl; write the answers to {folder}/answers.jsonl")
    click.echo(f"they judge {made.cases} cases; {made.left_out} cases cannot be judged from files")


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--case", "name", required=True, metavar="ID", help="Id or name of the case.")
@click.option("--program", metavar="COMMAND", help="The program to debug.")
@click.option("--seed", type=int, metavar="N", help="Seed of the run that the case is from.")
def dump(folder: Path, name: str, program: str | None, seed: int | None) -> None:
    """Write the call of one case to FOLDER, and print commands to run and debug it."""
    from attnspec import SpecError
    from attnspec.backends import load
    from attnspec.backends.names import name_program
    from attnspec.conformance.run.offline import dump_case
    from attnspec.conformance.suite import find

    if folder.exists() and any(folder.iterdir()):
        raise SpecError(f"folder: expected {folder} to be empty, got files in it")
    backend = load(name_program(program)) if program else None
    calls = dump_case(find(name, seed), folder, backend)
    words = shlex.split(program) if program else ["PROGRAM"]
    # The commands change to the folder, so relative paths would not be found.
    command = shlex.join(str(Path(word).absolute()) if Path(word).is_file() else word for word in words)
    place = shlex.quote(str(folder))
    click.echo(f"{calls} calls in {folder}/calls.jsonl, their arrays in {folder}/calls")
    click.echo(f"run:   cd {place} && {command} < calls.jsonl")
    click.echo(f"debug: cd {place} && gdb -ex 'run < calls.jsonl' --args {command}")
