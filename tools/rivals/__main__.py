"""``python -m tools.rivals``: holds the gallery against the rules of other projects."""

import time

import click

from tools.rivals.measure import RIVALS
from tools.rivals.page import FILE, PAGE, count_accepted, measure, page, store


@click.command()
@click.option("--write", is_flag=True, help="Write the figures and the page.")
def main(*, write: bool) -> None:
    """Judge the forward pass of the gallery by the rules of other projects. Needs onnx."""
    started = time.perf_counter()

    def progress(name: str) -> None:
        click.echo(f"{time.perf_counter() - started:5.0f} s  {name}")

    figures = measure(RIVALS, progress)
    for rule in figures.rules:
        numbers = [
            f"{count_accepted(figures, group, rule)} {group}" for group in ("wrong", "cheats", "correct")
        ]
        click.echo(f"{rule}: accepts {', '.join(numbers)}")
    if write:
        store(figures)
        PAGE.write_text(page(figures), encoding="utf-8", newline="\n")
        click.echo(f"{FILE.name}, {PAGE.name}: written")


if __name__ == "__main__":
    main()
