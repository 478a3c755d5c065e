"""The commands around programs: ``attnspec smoke`` and ``attnspec serve``."""

import sys

import click


@click.command()
@click.argument("backend", required=False)
@click.option("--program", metavar="COMMAND", help="A program in any language that speaks the protocol.")
def smoke(backend: str | None, program: str | None) -> None:
    """Check this tool itself, then say hello to a program or make one call of a backend."""
    from attnspec.backends.registry import name_program
    from attnspec.conformance.smoke import check_harness, try_out

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
    from attnspec.conformance.serve import serve_here

    serve_here(load(backend))
