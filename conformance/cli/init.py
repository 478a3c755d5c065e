"""The command ``attnspec init``."""

from pathlib import Path
from typing import Any

import click

_FORCE = "--force overwrites it"


@click.command()
@click.argument("place", metavar="MODULE:FUNCTION")
@click.option(
    "--array",
    default="",
    metavar="LIBRARY",
    help="Array library of the function: numpy, torch, jax or a module.",
)
@click.option("--device", default="", metavar="NAME", help="Device for the arrays, such as cuda.")
@click.option("--force", is_flag=True, help="Ignore an existing attnspec.toml, and overwrite it.")
def init(place: str, array: str, device: str, *, force: bool) -> None:
    """Infer how a function is called, and write it to attnspec.toml in this folder.

    Keys that an attnspec.toml of this function has already are kept as they are; comments are not.
    """
    from attnspec.backends.user.configuration import FILE
    from attnspec.backends.user.inference import infer_configuration
    from attnspec.backends.user.progress import hide_output

    path = Path(FILE)
    keys = {} if force or not path.exists() else _known_keys(place, path)
    try:
        with hide_output() as errors:
            text = infer_configuration(
                place, array, keys, device, lambda line: print(line, file=errors, flush=True)
            )
    except Exception as error:
        click.echo("\n".join(getattr(error, "__notes__", ())), nl=False)  # a wrapper to judge instead
        raise
    path.write_text(text, encoding="utf-8")
    click.echo(text)
    kept = f", with {', '.join(keys)} as it was; --force infers these too" if keys else ""
    click.echo(f"written to {FILE}{kept}; check its contents, then run: attnspec check")


def _known_keys(place: str, path: Path) -> dict[str, Any]:
    """Read the keys of a configuration that is of this function, or of none."""
    from attnspec.backends.errors import BackendError
    from attnspec.backends.user.configuration import FUNCTION_KEYS, check_keys, read_matrix, read_table

    try:
        table, matrix = read_table(place, path), read_matrix(path)
    except BackendError as error:
        raise click.UsageError(f"{error}; {_FORCE}") from error
    if matrix is not None or table.pop("function", place) != place:
        raise click.UsageError(
            f"{path}: expected keys of {place}, got those of another function or a matrix; {_FORCE}"
        )
    check_keys(f"backend {place}: {path}", table, FUNCTION_KEYS)
    return table
