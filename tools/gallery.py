"""``python -m tools.gallery``: judge the suite by the gallery."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from attnspec.conformance.gallery import correct_entries, wrong_entries
from tools.diagnosed import SAMPLE, counts, measured
from tools.elsewhere import elsewhere
from tools.kills import problems, summary, unbroken
from tools.matrix import matrix
from tools.page import PAGE, page
from tools.stored import FILE, Stored, kills, with_others
from tools.stored import write as store


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="Use only the part of the suite that --quick runs.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write findings to it.")
@click.option(
    "--write",
    is_flag=True,
    help="Judge the wrong entries by both parts, diagnose them, and write the results and the page.",
)
def main(names: tuple[str, ...], *, quick: bool, workers: int, file: Path | None, write: bool) -> None:
    """Judge the suite by the gallery or by some of its entries. Fails if a result is not the expected one."""
    started = time.perf_counter()
    if write:
        wrong = [one.name for one in wrong_entries()]
        whole, part = (matrix(wrong, (), quick=quick, workers=workers) for quick in (False, True))
        killed = kills(whole, part)
        killed = with_others(killed, elsewhere([name for name, kill in killed.items() if not kill.case]))
        stored = Stored(killed, counts(measured(wrong[::SAMPLE], workers=workers)))
        store(stored)
        PAGE.write_text(page(stored), encoding="utf-8", newline="\n")
        click.echo(f"{FILE.name}, {PAGE.name}: written")
        return
    chosen = [
        [one.name for one in every if not names or one.name in names]
        for every in (wrong_entries(), correct_entries())
    ]
    findings = matrix(chosen[0], chosen[1], quick=quick, workers=workers)
    if file is not None:
        file.write_text(json.dumps([asdict(one) for one in findings]), encoding="utf-8")
    found = problems(findings) + ([] if names else unbroken(findings))
    click.echo("\n".join([summary(findings), *found]))
    click.echo(f"{len(findings)} entries, {len(found)} problems, {time.perf_counter() - started:.0f} s")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
