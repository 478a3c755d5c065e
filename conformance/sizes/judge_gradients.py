"""Judges gradients of sized cases: every element against sums by words, or some heads against float64."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends import Backend
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import Outputs, accepted, lse_dtype
from attnspec.conformance.judge.parallel import mapped
from attnspec.conformance.sizes.dialect import Dialect, Precision
from attnspec.conformance.sizes.sampled_gradients import chosen_heads, gradients_of_heads
from attnspec.conformance.sizes.sized import Sized
from attnspec.conformance.verdict import Difference
from attnspec.formula import Formula
from attnspec.reference.codebook.gradients import Part, gradients
from attnspec.reference.codebook.rows import tasks

_VJP = OPERATIONS["attention_vjp"]


def shapes_of(formula: Formula) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the gradients that are judged.

    Examples
    --------
    >>> from attnspec.conformance.sizes.judge_gradients import shapes_of
    >>> from attnspec.formula import Formula
    >>> shapes_of(Formula(queries=2, keys=3, depth=4, value_depth=5))["d_value"]
    (1, 1, 3, 5)
    """
    heads, keys = (*formula.batch, formula.heads), (*formula.batch, formula.key_heads, formula.keys)
    found: dict[str, tuple[int, ...]] = {
        "d_query": (*heads, formula.queries, formula.depth),
        "d_key": (*keys, formula.depth),
        "d_value": (*keys, formula.value_depth),
    }
    return found | ({"d_sinks": (formula.heads,)} if "sinks" in formula.options and formula.words else {})


def values_of_gradients(formula: Formula) -> dict[str, NDArray[np.float64]]:
    """Compute the gradients of a problem as whole arrays.

    Examples
    --------
    >>> from attnspec.conformance.sizes.judge_gradients import values_of_gradients
    >>> from attnspec.formula import Formula
    >>> values_of_gradients(Formula(queries=1, keys=1, depth=4, value_depth=1))["d_query"].tolist()
    [[[[0.0, 0.0, 0.0, 0.0]]]]
    """
    found = {name: np.zeros(shape) for name, shape in shapes_of(formula).items()}
    for part in gradients(formula, "float64", run=_threads()):
        found[part.name][part.head] = part.values
    return found


def forward_of(backend: Backend, item: Sized, dialect: Dialect) -> Outputs:
    """Compute the results of the forward pass that a function of gradients takes, by the codebook oracle."""
    names = [one.name for one in _VJP.forward if backend.has(item.operation, one.name)]
    if not names or not dialect.formula.words:
        return {}
    formula = dialect.formula
    rows = (*formula.batch, formula.heads, formula.queries)
    found = {"output": np.zeros((*rows, formula.value_depth)), "lse": np.zeros(rows)}
    for block in mapped(_called, tasks(formula, item.dtype)):
        found["output"][block.head][block.rows] = block.output
        found["lse"][block.head][block.rows] = block.lse / dialect.unit
    dtypes = {"output": item.dtype, "lse": lse_dtype(item.dtype)}
    return {name: found[name].astype(dtypes[name]) for name in names}


def compared_gradients(
    item: Sized, dialect: Dialect, outputs: Outputs, precision: Precision, threads: int = 0
) -> Difference | float:
    """Compare gradients with their exact values."""
    shapes, dtype = shapes_of(dialect.formula), item.dtype
    looked = {name: outputs[name] for name in shapes if name in outputs}
    for name, got in looked.items():
        if got.shape != shapes[name]:
            return Difference("shape", name, (), str(got.shape), str(shapes[name]))
        if str(got.dtype) not in accepted(name, dtype):
            return Difference("dtype", name, (), str(got.dtype), " or ".join(accepted(name, dtype)))
    options: dict[str, Any] = {
        "accuracy": precision.accuracy,
        "working": precision.working,
        "profile": precision.profile,
    }
    parts: Iterable[Part]
    if item.sampled:
        arguments = {**item.case.arguments, **dialect.formula.given(dtype)}
        heads = chosen_heads(shapes["d_key"][:-2], item.seed)
        parts = gradients_of_heads(arguments, dtype, heads, **options)
    else:
        parts = gradients(dialect.formula, dtype, run=_threads(threads), **options)
    return _worst(parts, looked)


def _worst(parts: Iterable[Part], outputs: Mapping[str, NDArray[Any]]) -> Difference | float:
    """Compare each part with that of an output."""
    share, differences = 0.0, []
    for part in parts:
        if part.name not in outputs:
            continue
        got = outputs[part.name][part.head]
        found = compare(part.name, np.asarray(got), part.values, part.budget, str(got.dtype))
        if isinstance(found, Difference):
            differences.append(replace(found, element=(*part.head, *found.element)))
        else:
            share = max(share, found)
    if not differences:
        return share
    first = min(differences, key=lambda one: list(outputs).index(one.output)).output
    same = [one for one in differences if one.output == first]
    worst = max(same, key=lambda one: (one.kind == "pattern", one.share))
    return replace(worst, count=sum(one.count for one in same), size=outputs[first].size)


def _threads(threads: int = 0) -> Callable[[Iterable[Callable[[], Any]]], Iterator[Any]]:
    return lambda calls: mapped(_called, calls, threads)


def _called(call: Callable[[], Any]) -> Any:
    return call()
