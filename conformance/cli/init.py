"""The command ``attnspec init``."""

from pathlib import Path

import click


@click.command()
@click.argument("place", metavar="MODULE:FUNCTION")
@click.option(
    "--array",
    default="",
    metavar="LIBRARY",
    help="Array library of the function: numpy, torch, jax or a module.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing attnspec.toml.")
def init(place: str, array: str, *, force: bool) -> None:
    """Infer how a function is called, and write it to attnspec.toml in this folder."""
    from attnspec.backends.user.configuration import FILE
    from attnspec.backends.user.inference import infer_configuration

    path = Path(FILE)
    if path.exists() and not force:
        raise click.UsageError(
            f"{FILE}: expected no such file in this folder, got one; --force overwrites it"
        )
    text = infer_configuration(place, array)
    path.write_text(text, encoding="utf-8")
    click.echo(text)
    click.echo(f"written to {FILE}; check its contents, then run: attnspec check")
