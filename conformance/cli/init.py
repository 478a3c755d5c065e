"""The command ``attnspec init``."""

from pathlib import Path

import click


@click.command()
@click.argument("place", metavar="MODULE:FUNCTION")
@click.option(
    "--array", default="", metavar="LIBRARY", help="What it runs on: numpy, torch, jax or a module."
)
@click.option("--force", is_flag=True, help="Write over an attnspec.toml that is there.")
def init(place: str, array: str, *, force: bool) -> None:
    """Find out how a function is called, and write it into attnspec.toml here, with the reasons."""
    from attnspec.backends.names import FILE
    from attnspec.backends.user.found import described

    path = Path(FILE)
    if path.exists() and not force:
        raise click.UsageError(f"{FILE}: expected none here, got one; --force writes over it")
    text = described(place, array)
    path.write_text(text, encoding="utf-8")
    click.echo(text)
    click.echo(f"written to {FILE}; look it through, then: attnspec check")
