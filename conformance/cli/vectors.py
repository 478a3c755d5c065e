"""The commands of ``attnspec vectors``."""

from pathlib import Path

import click


@click.group()
def vectors() -> None:
    """Write, lint and export the golden vectors and the expected values."""


_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@vectors.command()
@click.argument("folder", type=_FOLDER)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail if a byte would change.")
@click.option("--only", metavar="ID", help="Compute only this case and keep the others.")
def write(folder: Path, only_check: bool, only: str | None) -> None:
    """Compute the vectors of FOLDER with the exact oracle (requires python-flint)."""
    try:
        from attnspec.reference.golden import rewrite
    except ModuleNotFoundError as error:
        message = f"vectors: expected {error.name} to be installed, got none; pip install 'attnspec[vectors]'"
        raise click.ClickException(message) from error

    stale = False
    for file in rewrite(folder, only):
        stale |= file.stale
        for changed in file.changed:
            click.echo(f"{file.path.name}: VALUE CHANGED: {changed}", err=True)
        if file.stale and not only_check:
            file.path.write_text(file.text, encoding="utf-8", newline="\n")
        click.echo(f"{file.path.name}: {_state(changed=file.stale, only_check=only_check)}")
    if stale and only_check:
        raise click.ClickException(
            "vectors: expected the files to be up to date, got other bytes; run `nox -s vectors`"
        )


@vectors.command()
@click.argument("folder", type=_FOLDER)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; fail if a byte would change.")
@click.option("--only", metavar="CHAPTER", help="Compute only the values of this chapter.")
@click.option("--missing", is_flag=True, help="Keep the values that are stored, and compute only the others.")
def expected(folder: Path, only_check: bool, only: str | None, missing: bool) -> None:
    """Compute the expected values of the generated cases with both oracles, a file for each chapter.

    The index of the suite, by which runs are planned, and the values that a wheel has are written with them.
    """
    from attnspec import CHAPTERS
    from attnspec.conformance.judge.store import FOLDER, PACKAGED, encode, members
    from attnspec.conformance.run.expected_values import chapters, values_by_fingerprint, write_packaged
    from attnspec.conformance.run.index import write as write_index
    from attnspec.conformance.run.plan import PATH
    from attnspec.conformance.suite import decisions

    if only not in (None, *CHAPTERS):
        raise click.ClickException(f"vectors: expected one of {', '.join(CHAPTERS)}, got {only!r}")
    others = set((folder / FOLDER.name).glob("*.npz")) if only is None else set()
    stale = False
    if not missing:
        decisions.forget()
    for chapter, cases in chapters(only):
        path = folder / FOLDER.name / f"{chapter}.npz"
        data = encode(values_by_fingerprint(cases, only_missing=missing))
        others.discard(path)
        changed = not path.exists() or members(path.read_bytes()) != members(data)
        stale |= changed
        if changed and not only_check:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        click.echo(f"{path.name}: {_state(changed=changed, only_check=only_check)}")
    written = (PATH, write_index), (PACKAGED, write_packaged), (decisions.PATH, decisions.write)
    for name, write_file in ((path.name, write) for path, write in written):
        changed = write_file(folder / name, only_check=only_check)
        stale |= changed
        click.echo(f"{name}: {_state(changed=changed, only_check=only_check)}")
    for path in sorted(others):
        click.echo(f"{path.name}: of no chapter, {'would go' if only_check else 'removed'}")
        if not only_check:
            path.unlink()
    if only_check and (stale or others):
        raise click.ClickException("vectors: expected the files to be up to date, got other values")


def _state(*, changed: bool, only_check: bool) -> str:
    return "unchanged" if not changed else "would change" if only_check else "rewritten"


@vectors.command("lint")
@click.argument("folder", type=_FOLDER, required=False)
def lint_vectors(folder: Path | None) -> None:
    """List the problems of the vectors in FOLDER (default: those of the specification)."""
    from attnspec.lint import lint
    from attnspec.schema import VECTORS

    problems = lint(folder or VECTORS)
    for problem in problems:
        click.echo(problem)
    if problems:
        raise click.ClickException(f"vectors: expected no problems, got {len(problems)}")


@vectors.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--format", "kind", default="safetensors", help="safetensors (default) or npz.")
def export(folder: Path, kind: str) -> None:
    """Write the golden vectors to FOLDER as binary files, with a manifest."""
    from attnspec import cases
    from attnspec.reference.golden import export as write_files

    paths = write_files(cases(), folder, kind)
    click.echo(f"{len(paths) - 1} cases and {paths[-1].name} in {folder}")


@vectors.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def pack(folder: Path) -> None:
    """Write the data of the pack, which other languages judge by without Python, to FOLDER."""
    from attnspec.conformance.export.pack import write_pack

    manifest = write_pack(folder)
    octets = sum(file["octets"] for file in manifest["files"].values())
    click.echo(
        f"{manifest['cases']} cases in {folder}, {octets / 1e6:.1f} MB; they catch {manifest['caught']}"
    )
    click.echo(f"wrong implementations of the gallery, and miss {len(manifest['left'])}")


@vectors.command()
def path() -> None:
    """Print the folder of the golden vectors, which are JSON files."""
    from attnspec.schema import VECTORS

    click.echo(VECTORS)
