"""Benchmarks of the sizes: how time and memory grow with the number of rows, for the judge and a function.

`python -m tools.benchmark_sizes`, and a part of `nox -s bench`. Wall time shows
what else the machine does, so the processor time stands beside it.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click
import numpy as np

from attnspec.conformance.sizes.dialect import Dialect, Precision
from attnspec.conformance.sizes.judge import compared, values_of
from attnspec.conformance.sizes.limits import forget_peak, peak_memory
from attnspec.conformance.sizes.sized import Sized
from attnspec.conformance.verdict import Difference
from attnspec.formula import Formula
from tools.windowed import windowed

#: Powers of 2: the numbers of queries and of keys.
POWERS = (12, 14, 16, 18, 20)
#: The keys of a row with a window.
_WINDOW = 256
_REPEATS = 3
_WORDS = 8
_DEPTH = 64
_MIB = 2**20


def measured(call: Callable[[], Any], repeats: int = _REPEATS) -> tuple[Any, float, float, float]:
    """Call a function: its result, the least seconds and processor seconds, and the MiB that it needs."""
    wall, work, memory, result = [], [], [], None
    for _ in range(repeats):
        forget_peak()
        before, start, begun = peak_memory(), time.perf_counter(), time.process_time()
        result = call()
        wall.append(time.perf_counter() - start)
        work.append(time.process_time() - begun)
        memory.append(peak_memory() - before)  # least in a repetition, which finds freed memory
    return result, min(wall), min(work), max(memory) / _MIB


def rows(powers: Iterable[int]) -> Iterable[tuple[str, ...]]:
    """Measure the formula, the judge of a causal result, and a windowed function, for each number of rows."""
    for power in powers:
        size = 2**power
        one = Formula(size, size, _DEPTH, _DEPTH, words=_WORDS, options={"is_causal": True})
        arguments, made, *_ = measured(partial(one.arguments, "float32"))
        found = {name: values.astype(np.float32) for name, values in values_of(one).items()}
        item = Sized(f"of-{size}", "", ("MASK-3",), "", one, "float32")
        judge = measured(partial(compared, item, Dialect(one), found, Precision("full")))
        accepted = not isinstance(judge[0], Difference)
        if not accepted:
            raise RuntimeError(f"judge: expected to accept the exact values, got {judge[0]}")
        del found
        window = (_WINDOW - 1, None)
        own = measured(partial(windowed, **arguments, window=window, return_lse=True))
        numbers = (made, judge[1], judge[2], own[1], own[2])
        yield (f"{size:,}", *(f"{number:.2f}" for number in numbers), f"{judge[3]:.0f}", f"{own[3]:.0f}")


def tell() -> None:
    """Print the table."""
    click.echo(
        f"{_DEPTH} features in float32, least of {_REPEATS}: the inputs, the judge of a causal output "
        f"with lse, and a function in NumPy with a window of {_WINDOW} keys: seconds and MiB\n"
    )
    names = ("rows", "inputs", "judge", "judge, processor", "function", "function, processor")
    click.echo(f"| {' | '.join((*names, 'judge, MiB', 'function, MiB'))} |")
    click.echo(f"|{' --- |' * 8}")
    for cells in rows(POWERS):
        click.echo(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    tell()
