"""Benchmarks of gradients: the reference's backward pass beside others, checks with and without gradients.

`python -m tools.benchmark_gradients`, and a part of `nox -s bench`. Missing libraries
are left out.
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

from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.results import read
from attnspec.conformance.suite import items
from attnspec.reference import attention, attention_vjp

#: (B, H, L, D) of the problem on which the backward passes are timed.
SIZE = (1, 8, 1024, 64)
REPEATS = 5
#: The backends whose checks are timed, each with the library that it needs.
BACKENDS = {"torch-math": "torch", "torch-sdpa": "torch", "jax-nn": "jax"}
#: Functions as a stranger writes them, by library.
STRANGERS = {
    "torch": """import torch

def attention(query, key, value, *, scale=None, mask=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, dim=-1) @ value
""",
    "jax": """import jax
from jax import numpy as jnp

def attention(query, key, value, *, scale=None, mask=None):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query @ key.mT * scale
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jax.nn.softmax(scores, axis=-1) @ value
""",
}


def dense(query: Any, key: Any, value: Any, d_output: Any) -> tuple[Any, Any, Any]:
    """Compute the gradients of attention without options in NumPy, with all scores in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from tools.benchmark_gradients import dense
    >>> from attnspec.reference import attention_vjp
    >>> arrays = np.random.default_rng(0).normal(size=(4, 2, 5, 3))
    >>> all(np.allclose(*pair) for pair in zip(dense(*arrays), attention_vjp(*arrays), strict=True))
    True
    """
    scale = query.shape[-1] ** -0.5
    p = np.exp((s := query @ key.mT * scale) - s.max(axis=-1, keepdims=True))  # (*B, H, L, S)
    p /= p.sum(axis=-1, keepdims=True)
    r = d_output @ value.mT
    u = p * (r - (p * r).sum(axis=-1, keepdims=True)) * scale
    return u @ key, u.mT @ query, p.mT @ d_output


def contenders() -> dict[str, Callable[..., Any]]:
    """Return functions of query, key, value and cotangent, by name: forward passes and backward passes."""
    found: dict[str, Callable[..., Any]] = {
        "attnspec.reference, forward": lambda query, key, value, _: attention(query, key, value),
        "attnspec.reference, gradients": attention_vjp,
        "attnspec.reference, causal gradients": partial(attention_vjp, is_causal=True),
        "dense gradients in NumPy": dense,
    }
    if find_spec("torch"):
        found |= {
            "torch, math path, forward": partial(_torch, backward=False),
            "torch, math path, forward and backward": partial(_torch, backward=True),
        }
    return found


def _torch(*arrays: Any, backward: bool) -> Any:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    *given, cotangent = (torch.asarray(array).requires_grad_(backward) for array in arrays)
    with sdpa_kernel(SDPBackend.MATH):
        output = torch.nn.functional.scaled_dot_product_attention(*given)
    return torch.autograd.grad(output, given, cotangent.detach()) if backward else output


def rows(size: Sequence[int] = SIZE, repeats: int = REPEATS) -> Iterable[tuple[str, float, float]]:
    """Time each function on one float64 problem: its name, shortest time, and peak MiB beyond the inputs.

    The memory of PyTorch is not traced and is NaN.
    """
    arrays = [np.random.default_rng(seed).normal(size=size) for seed in range(4)]
    found = contenders()
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(repeats):  # alternating, so that a busy moment affects all
        for name, function in found.items():
            start = time.perf_counter()
            function(*arrays)
            seconds[name].append(time.perf_counter() - start)
    for name, function in found.items():
        tracemalloc.start()
        function(*arrays)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        yield name, min(seconds[name]), np.nan if "torch" in name else peak / 2**20


def forward_cases(*, quick: bool = False) -> list[str]:
    """Return the names of all cases that ask for no gradient."""
    return [item.name for item in items(quick=quick) if not _operation(item).endswith("_vjp")]


def _operation(item: Any) -> str:
    return str(item.calls[0].operation if isinstance(item, Relation) else item.operation)


def checks(
    folder: Path, part: Sequence[str] = (), *, repeats: int = 1, names: Iterable[str] = ()
) -> Iterable[tuple[str, Mapping[str, float], int]]:
    """Time the check of each backend with and without the cases about gradients, alternating."""
    own = [name for name, library in BACKENDS.items() if find_spec(library)]
    for library, text in STRANGERS.items():
        if find_spec(library):
            path = folder / f"stranger_{library}.py"
            path.write_text(text, encoding="utf-8")
            own.append(f"{path}:attention")
    # Each name is an argument, which costs the forward pass the time to read them.
    alone = [word for name in forward_cases(quick="--quick" in part) for word in ("--case", name)]
    for name in names or own:
        times: dict[str, list[float]] = {"whole": [], "forward": []}
        verdicts = 0
        for _ in range(repeats):
            for which, words in (("whole", part), ("forward", [*part, *alone])):
                results = folder / f"{which}.jsonl"
                command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", name, *words]
                start = time.perf_counter()
                subprocess.run(  # noqa: S603 - our own command line
                    [*command, "--results", str(results)], capture_output=True, check=False
                )
                times[which].append(time.perf_counter() - start)
                verdicts = len(read([results]).verdicts) if which == "whole" else verdicts
        yield name, {which: min(found) for which, found in times.items()}, verdicts


def tell(*, quick: bool = False, repeats: int = 1, names: Iterable[str] = ()) -> None:
    """Print both tables."""
    click.echo(f"gradients of attention of {SIZE} in float64, the shortest of {REPEATS} alternating runs\n")
    click.echo("| implementation | seconds | times the forward pass | MiB beyond the inputs |")
    click.echo("| --- | --- | --- | --- |")
    found = list(rows())
    for name, seconds, memory in found:
        shown = "not traced" if np.isnan(memory) else f"{memory:.0f}"
        click.echo(f"| {name} | {seconds:.2f} | {seconds / found[0][1]:.1f} | {shown} |")
    click.echo("\nthe suite with gradients and without them, one process, start-up included\n")
    click.echo("| backend | forward alone, seconds | with gradients, seconds | ratio | verdicts |")
    click.echo("| --- | --- | --- | --- | --- |")
    part = ["--quick"] if quick else []
    with tempfile.TemporaryDirectory() as folder:
        for name, times, verdicts in checks(Path(folder), part, repeats=repeats, names=names):
            shown = Path(name).stem if "stranger" in name else name
            ratio = times["whole"] / times["forward"]
            click.echo(
                f"| {shown} | {times['forward']:.1f} | {times['whole']:.1f} | {ratio:.2f} | {verdicts} |"
            )


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="Time the quick part of the suite.")
@click.option("--repeats", type=click.IntRange(1), default=1, help="How often each check is timed.")
def main(*, names: tuple[str, ...], quick: bool, repeats: int) -> None:
    """Print the times of backward passes, and of the suite with and without gradients."""
    tell(quick=quick, repeats=repeats, names=names)


if __name__ == "__main__":
    main()
