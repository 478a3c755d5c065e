"""Benchmarks: the reference beside other implementations, the judge by size, and the suite on each backend.

Run it as `python -m tools.benchmark` (`nox -s bench`). Missing libraries are left out.
"""

import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from attnspec.backends import NAMES
from attnspec.conformance.results_file import read
from attnspec.conformance.sizes.dialect import Dialect, Precision
from attnspec.conformance.sizes.judge import compare_outputs, values_of
from attnspec.conformance.sizes.limits import forget_peak, peak_memory
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.verdict import Difference
from attnspec.formula import Formula
from attnspec.reference import attention, attention_vjp

#: (B, H, L, D) of the problem on which the reference is timed.
SIZE = (1, 8, 1024, 64)
REPEATS = 5
#: Powers of 2: the numbers of queries and of keys of the calls by formula.
POWERS = (12, 14, 16, 18, 20)
#: The keys of a row with a window.
_WINDOW = 256
_WORDS = 8
_DEPTH = 64
_MIB = 2**20
#: The number of queries of a block of the windowed function.
_BLOCK = 256


def floor(query: Any, key: Any, value: Any) -> Any:
    """Compute two matrix products and one exponential, which every implementation on NumPy needs."""
    scores = query @ np.swapaxes(key, -1, -2)
    np.exp(scores, out=scores)
    return scores @ value


def forward_passes() -> dict[str, Callable[..., Any]]:
    """Return the installed functions of query, key and value that the reference is compared with, by name."""
    functions: dict[str, Callable[..., Any]] = {
        "two products and one exponential": floor,
        "attnspec.reference": attention,
        "attnspec.reference, causal": partial(attention, is_causal=True),
    }
    if find_spec("torch"):
        functions["torch, math path"] = partial(_torch, backward=False)
    try:
        from onnx import TensorProto, helper
        from onnx.reference import ReferenceEvaluator
    except ModuleNotFoundError:
        pass
    else:
        names = ("Q", "K", "V")
        node = helper.make_node("Attention", names, ["Y"])
        values = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in (*names, "Y")]
        graph = helper.make_graph([node], "attention", values[:3], values[3:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
        evaluator = ReferenceEvaluator(model)
        functions["onnx.reference"] = lambda *arrays: evaluator.run(
            None, dict(zip(names, arrays, strict=True))
        )

    return functions


def backward_passes() -> dict[str, Callable[..., Any]]:
    """Return functions of query, key, value and cotangent, by name: a forward pass, and backward passes."""
    functions: dict[str, Callable[..., Any]] = {
        "attnspec.reference, forward": lambda query, key, value, _: attention(query, key, value),
        "attnspec.reference, gradients": attention_vjp,
        "attnspec.reference, causal gradients": partial(attention_vjp, is_causal=True),
        "dense gradients in NumPy": dense,
    }
    if find_spec("torch"):
        functions |= {
            "torch, math path, forward": lambda *arrays: _torch(*arrays[:3], backward=False),
            "torch, math path, forward and backward": partial(_torch, backward=True),
        }
    return functions


def dense(query: Any, key: Any, value: Any, d_output: Any) -> tuple[Any, Any, Any]:
    """Compute the gradients of attention without options in NumPy, with all scores in memory."""
    scale = query.shape[-1] ** -0.5
    p = np.exp((s := query @ key.mT * scale) - s.max(axis=-1, keepdims=True))  # (*B, H, L, S)
    p /= p.sum(axis=-1, keepdims=True)
    r = d_output @ value.mT
    u = p * (r - (p * r).sum(axis=-1, keepdims=True)) * scale
    return u @ key, u.mT @ query, p.mT @ d_output


def _torch(*arrays: Any, backward: bool) -> Any:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    given = [torch.asarray(array).requires_grad_(backward) for array in arrays[:3]]
    with sdpa_kernel(SDPBackend.MATH):
        output = torch.nn.functional.scaled_dot_product_attention(*given)
    return torch.autograd.grad(output, given, torch.asarray(arrays[3])) if backward else output


def time_functions(
    functions: Mapping[str, Callable[..., Any]],
    count: int,
    size: Sequence[int] = SIZE,
    repeats: int = REPEATS,
) -> Iterable[tuple[str, float, float]]:
    """Time functions of some float64 arrays: the name, the shortest time, and the peak MiB beyond the inputs.

    The memory of PyTorch is not traced and is NaN.
    """
    arrays = [np.random.default_rng(seed).normal(size=size) for seed in range(count)]
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):  # alternating, so that a busy moment affects all
        for name, function in functions.items():
            start = time.perf_counter()
            function(*arrays)
            seconds[name].append(time.perf_counter() - start)
    for name, function in functions.items():
        tracemalloc.start()
        function(*arrays)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield name, min(seconds[name]), np.nan if "torch" in name else peak / _MIB


def attend_in_windows(
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    *,
    is_causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    return_lse: bool = False,
) -> Any:
    """Attend block by block, each to the keys that the window of its rows has."""
    left = window[0] if window else None
    if not is_causal or left is None or query.shape[:-1] != key.shape[:-1]:
        raise NotImplementedError("expected a causal mask, a window and as many keys as queries")
    working = np.promote_types(query.dtype, np.float32)
    count, scale = query.shape[-2], 1 / np.sqrt(query.shape[-1])
    output = np.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
    lse = np.empty(query.shape[:-1], working)
    for start in range(0, count, _BLOCK):
        stop, first = min(start + _BLOCK, count), max(0, start - left)
        rows, keys, values = (
            array[..., part, :].astype(working)
            for array, part in (
                (query, slice(start, stop)),
                (key, slice(first, stop)),
                (value, slice(first, stop)),
            )
        )
        scores = (rows * working.type(scale)) @ np.swapaxes(keys, -1, -2)  # (*B, H, m, T)
        i, j = np.arange(start, stop)[:, None], np.arange(first, stop)
        scores[..., (j > i) | (j < i - left)] = -np.inf
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        output[..., start:stop, :] = (weights @ values) / total
        lse[..., start:stop] = (top + np.log(total))[..., 0]
    return (output, lse) if return_lse else output


def measure(call: Callable[[], Any], repeats: int = 3) -> tuple[Any, float, float, float]:
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


def size_rows(powers: Iterable[int]) -> Iterable[tuple[str, ...]]:
    """Measure the formula, the judge of a causal result, and a windowed function, for each number of rows."""
    for power in powers:
        size = 2**power
        formula = Formula(size, size, _DEPTH, _DEPTH, words=_WORDS, options={"is_causal": True})
        arguments, made, *_ = measure(partial(formula.arguments, "float32"))
        exact = {name: values.astype(np.float32) for name, values in values_of(formula).items()}
        item = SizedCase(f"of-{size}", "", ("MASK-3",), "", formula, "float32")
        judge = measure(partial(compare_outputs, item, Dialect(formula), exact, Precision("full")))
        accepted = not isinstance(judge[0], Difference)
        if not accepted:
            raise RuntimeError(f"judge: expected to accept the exact values, got {judge[0]}")
        del exact
        window = (_WINDOW - 1, None)
        own = measure(partial(attend_in_windows, **arguments, window=window, return_lse=True))
        numbers = (made, judge[1], judge[2], own[1], own[2])
        yield (f"{size:,}", *(f"{number:.2f}" for number in numbers), f"{judge[3]:.0f}", f"{own[3]:.0f}")


def suite_rows(
    names: Iterable[str], options: Iterable[str], keep: Path | None = None
) -> Iterable[tuple[str, float, int, str]]:
    """Run the suite on each backend, and keep results in a folder: name, seconds, verdicts, exit status."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = (keep or Path(folder)) / f"{name}.jsonl"
            path.unlink(missing_ok=True)
            command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", name, *options]
            start = time.perf_counter()
            process = subprocess.run(  # noqa: S603 - our own command line
                [*command, "--results", str(path)], capture_output=True, text=True, check=False
            )
            seconds = time.perf_counter() - start
            count = len(read([path]).verdicts) if path.exists() else 0
        yield name, seconds, count, "passed" if process.returncode == 0 else f"exit {process.returncode}"


def print_table(head: str, rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown, row by row as they come."""
    click.echo(f"| {head} |\n|{' --- |' * (head.count('|') + 1)}")
    for row in rows:
        click.echo(f"| {' | '.join(row)} |")


def print_times(count: int, functions: Mapping[str, Callable[..., Any]], unit: str) -> None:
    """Print the time of each function, and how many times that of the first it is."""
    click.echo(f"\nattention of {SIZE} in float64, the shortest of {REPEATS} alternating runs\n")
    rows = [*time_functions(functions, count)]
    print_table(
        f"implementation | seconds | times {unit} | MiB beyond the inputs",
        (
            (
                name,
                f"{seconds:.2f}",
                f"{seconds / rows[0][1]:.1f}",
                "not traced" if np.isnan(mib) else f"{mib:.0f}",
            )
            for name, seconds, mib in rows
        ),
    )


def print_sizes() -> None:
    """Print the time of the judge of calls by formula."""
    click.echo(
        f"\n{_DEPTH} features in float32, least of 3: the inputs, the judge of a causal output "
        f"with lse, and a function in NumPy with a window of {_WINDOW} keys: seconds and MiB\n"
    )
    print_table(
        "rows | inputs | judge | judge, processor | function | function, processor | judge, MiB"
        " | function, MiB",
        size_rows(POWERS),
    )


def print_suite(names: Iterable[str], results: Path | None) -> None:
    """Print the time of the suite on each backend."""
    click.echo("\nthe suite, start-up included\n")
    runs = {
        "one case": (("--case", "softmax-000"), None),
        "quick": (("--quick",), None),
        "whole, all cores": (("-n", "auto"), results),
    }
    print_table(
        "backend | run | seconds | verdicts | per second | exit status",
        (
            (name, label, f"{seconds:.1f}", str(count), f"{count / seconds:.0f}", status)
            for label, (options, folder) in runs.items()
            for name, seconds, count, status in suite_rows(names, options, folder)
        ),
    )


PARTS = ("attention", "gradients", "sizes", "suite")


@click.command()
@click.argument("backends", nargs=-1)
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Print these tables only.")
@click.option(
    "--results",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder for the verdicts of whole runs, for attnspec table.",
)
def main(backends: tuple[str, ...], only: tuple[str, ...], results: Path | None) -> None:
    """Print the times of attention and of its gradients, of the judge, and of the suite on all backends."""
    prints: dict[str, Callable[[], None]] = {
        "attention": lambda: print_times(3, forward_passes(), "the floor"),
        "gradients": lambda: print_times(4, backward_passes(), "the forward pass"),
        "sizes": print_sizes,
        "suite": lambda: print_suite(backends or NAMES, results),
    }
    for part in only or PARTS:
        prints[part]()


if __name__ == "__main__":
    main()
