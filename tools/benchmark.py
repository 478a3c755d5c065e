"""Benchmarks: the time of the suite on each backend, and the time of the reference beside others, in one run.

Run it as `python -m tools.benchmark` (`nox -s bench`). Missing libraries are left out.
"""

import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np

from attnspec.backends import NAMES
from attnspec.conformance.results import read
from attnspec.reference import attention
from tools import benchmark_gradients, benchmark_sizes

#: (B, H, L, D) of the problem on which the reference is timed.
SIZE = (1, 8, 1024, 64)
REPEATS = 5


def floor(query: Any, key: Any, value: Any) -> Any:
    """Compute two matrix products and one exponential, which every implementation on NumPy needs."""
    scores = query @ np.swapaxes(key, -1, -2)
    np.exp(scores, out=scores)
    return scores @ value


def contenders() -> dict[str, Callable[..., Any]]:
    """Return the installed functions that the reference is compared with, by name."""
    found: dict[str, Callable[..., Any]] = {
        "two products and one exponential": floor,
        "attnspec.reference": attention,
        "attnspec.reference, causal": lambda *arrays: attention(*arrays, is_causal=True),
    }
    try:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ModuleNotFoundError:
        pass
    else:

        def torch_math(*arrays: Any) -> Any:
            with sdpa_kernel(SDPBackend.MATH):
                return torch.nn.functional.scaled_dot_product_attention(*map(torch.asarray, arrays))

        found["torch, math path"] = torch_math
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
        found["onnx.reference"] = lambda *arrays: evaluator.run(None, dict(zip(names, arrays, strict=True)))
    return found


def reference_rows() -> Iterable[tuple[str, float, float]]:
    """Time each function on one float64 problem: its name, shortest time, and peak MiB beyond the inputs."""
    random = np.random.default_rng(0)
    arrays = [random.normal(size=SIZE) for _ in range(3)]
    found = contenders()
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(REPEATS):  # alternating, so that a busy moment affects all
        for name, function in found.items():
            start = time.perf_counter()
            function(*arrays)
            seconds[name].append(time.perf_counter() - start)
    for name, function in found.items():
        tracemalloc.start()
        function(*arrays)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield name, min(seconds[name]), peak / 2**20


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
            done = subprocess.run(  # noqa: S603 - our own command line
                [*command, "--results", str(path)], capture_output=True, text=True, check=False
            )
            seconds = time.perf_counter() - start
            count = len(read([path]).verdicts) if path.exists() else 0
        yield name, seconds, count, "passed" if done.returncode == 0 else f"exit {done.returncode}"


@click.command()
@click.argument("backends", nargs=-1)
@click.option(
    "--results",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder for the verdicts of whole runs, for attnspec table.",
)
def main(backends: tuple[str, ...], results: Path | None) -> None:
    """Print the times of attention, and of the suite on all backends or on the named ones."""
    click.echo(f"attention of {SIZE} in float64, the shortest of {REPEATS} alternating runs\n")
    click.echo("| implementation | seconds | times the floor | MiB beyond the inputs |")
    click.echo("| --- | --- | --- | --- |")
    rows = list(reference_rows())
    for name, seconds, memory in rows:
        shown = f"{memory:.0f}" if "torch" not in name else "not traced"
        click.echo(f"| {name} | {seconds:.2f} | {seconds / rows[0][1]:.1f} | {shown} |")
    click.echo("")
    benchmark_gradients.tell()
    click.echo("")
    benchmark_sizes.tell()
    click.echo("\nthe suite, start-up included\n")
    click.echo("| backend | run | seconds | verdicts | per second | exit status |")
    click.echo("| --- | --- | --- | --- | --- | --- |")
    runs = {
        "one case": (("--case", "softmax-000"), None),
        "quick": (("--quick",), None),
        "whole, all cores": (("-n", "auto"), results),
    }
    for label, (options, kept) in runs.items():
        for name, seconds, count, ended in suite_rows(backends or NAMES, options, kept):
            click.echo(f"| {name} | {label} | {seconds:.1f} | {count} | {count / seconds:.0f} | {ended} |")


if __name__ == "__main__":
    main()
