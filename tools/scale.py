"""``python -m tools.scale``: simulates attention over many ranks, for the tables of the chapter `sharding`.

The partial results of each rank are exact and rounded once to float32. What is measured is what merging adds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: The unit roundoff of float32.
UNIT = 2.0**-24
KEYS, ROWS, DEPTH = 2**20, 8, 4
PARTS = (2, 8, 64, 1024)
SHIFTS = (0.0, 100.0)
ORDERS = ("ring", "tree")


@dataclass(frozen=True)
class Merging:
    """What merging adds: the largest errors of output and lse, in units of float32, and their bounds."""

    parts: int
    order: str
    shift: float  # what is added to all scores
    output: float  # relative to the mean of the absolute values
    output_bound: float
    lse: float
    lse_bound: float
    lost: float  # the largest change of an output if the last part is lost, in the same units


def draw(seed: int = 36) -> tuple[Array, Array]:
    """Draw normally distributed scores of some rows, and values around 1."""
    random = np.random.default_rng(seed)
    return random.normal(size=(ROWS, KEYS)), 1 + random.normal(size=(KEYS, DEPTH))


def partials(s: Array, value: Array, parts: int) -> tuple[Array, Array]:
    """Return output and lse of each part, ``(parts, rows, depth)`` and ``(parts, rows, 1)``."""
    split = s.reshape(len(s), parts, -1)
    top = split.max(axis=-1, keepdims=True)
    e = np.exp(split - top)
    total = e.sum(axis=-1, keepdims=True)
    outputs = np.einsum("rpk,pkd->prd", e, value.reshape(parts, -1, DEPTH)) / np.moveaxis(total, 0, 1)
    return outputs, np.moveaxis(top + np.log(total), 0, 1)


def merge(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Merge two partial results in the precision that they have."""
    lse = np.logaddexp(one[1], other[1])
    return one[0] * np.exp(one[1] - lse) + other[0] * np.exp(other[1] - lse), lse


def fold(outputs: Array, lses: Array, order: str) -> tuple[Array, Array]:
    """Merge all parts, one after the other or in a tree."""
    if order == "ring":
        whole = outputs[0], lses[0]
        for part in zip(outputs[1:], lses[1:], strict=True):
            whole = merge(whole, part)
        return whole
    while len(outputs) > 1:
        outputs, lses = merge((outputs[::2], lses[::2]), (outputs[1::2], lses[1::2]))
    return outputs[0], lses[0]


def measure(s: Array, value: Array, parts: int, order: str, shift: float) -> Merging:
    """Merge the parts in float32, and compare with all keys in float64."""
    exact = partials(s + shift, value, 1)
    output, lse = exact[0][0], exact[1][0]
    mean = partials(s, np.abs(value), 1)[0][0]
    own = partials(s + shift, value, parts)
    got = fold(*(x.astype(np.float32) for x in own), order)
    without = fold(own[0][:-1], own[1][:-1], "ring")[0]
    merging = (parts + 2) * np.log(KEYS) + parts * (np.abs(lse) + 8)  # a key is about log(KEYS) below the lse
    return Merging(
        parts,
        order,
        shift,
        float((np.abs(got[0] - output) / mean).max() / UNIT),
        float(2 * merging.max() + 2 * (parts + 4)),
        float(np.abs(got[1] - lse).max() / UNIT),
        float((merging + 3 * np.abs(lse)).max()),
        float((np.abs(without - output) / mean).max() / UNIT),
    )


def measurements() -> Iterator[Merging]:
    """Measure each number of parts in each order."""
    s, value = draw()
    for shift in SHIFTS:
        for parts in PARTS:
            for order in ORDERS:
                yield measure(s, value, parts, order, shift)


def table(found: Iterator[Merging]) -> str:
    """Print measurements as a table."""
    columns = ("parts", "order", "lse about", "error of the output", "its bound", "error of the lse")
    head = f"| {' | '.join((*columns, 'its bound', 'one part lost'))} |"
    lines = [head, "|" + " --- |" * 8]
    for merging in found:
        numbers = (merging.output, merging.output_bound, merging.lse, merging.lse_bound, merging.lost)
        cells = " | ".join(f"{number:,.0f}" for number in numbers)
        lines.append(
            f"| {merging.parts:,} | {merging.order} | {merging.shift + np.log(KEYS):.0f} | {cells} |"
        )
    return "\n".join(lines)


def exact_up_to(dtype: str) -> int:
    """Return the power of 2 up to which a format holds every integer."""
    power = 0
    while float(np.array(2.0**power + 1).astype(dtype)) != 2.0**power and power < 64:
        power += 1
    return power


@click.command()
def main() -> None:
    """Print the tables."""
    click.echo(table(measurements()))
    for dtype in ("float16", "float32", "float64"):
        click.echo(f"{dtype}: every integer up to 2^{exact_up_to(dtype)}")


if __name__ == "__main__":
    main()
