"""``attnspec report``: pages of results in a folder, and a summary for a CI run."""

from __future__ import annotations

from pathlib import Path

import click

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("results", nargs=-1, required=True, type=_FILE)
@click.option(
    "--html",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the pages into this folder. They need no server: open index.html in a browser.",
)
@click.option(
    "--markdown",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report as Markdown here, with a link to the pages.",
)
def report(results: tuple[Path, ...], folder: Path, markdown: Path | None) -> None:
    """Write pages of the RESULTS of runs: a matrix of rules, comparisons, and a page for each backend.

    RESULTS are files that `attnspec check --results` wrote. They may be compressed as .jsonl.xz or .jsonl.gz.
    The results of all shards of a run are one run.
    In a GitHub workflow, and without --markdown, the summary of the run gets the results and a link.
    """
    from attnspec.conformance.attribution.report import Report
    from attnspec.conformance.files import check_writable, write_whole
    from attnspec.conformance.outside import one_line
    from attnspec.conformance.render.html import write
    from attnspec.conformance.render.html.folder import add_summary
    from attnspec.conformance.render.markdown import to_markdown
    from attnspec.conformance.results import gather, join_shards
    from attnspec.conformance.results_file import runs_of

    if markdown:
        check_writable(markdown)
    runs = [run for path in results for run in runs_of(path)]
    joined = gather(join_shards(runs))
    sharded = any(run.header.shard for run in runs)
    first = write([joined] if sharded else results, folder)
    found = Report(joined, pages=first)
    for subject in found.results.subjects:
        if subject.problem:  # such as shards that are missing
            click.echo(one_line(f"{subject.name}: {subject.problem}"), err=True)
    click.echo(f"wrote {first}")
    if markdown:
        write_whole(markdown, to_markdown(found))
    else:
        add_summary(results, first)
