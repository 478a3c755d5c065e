"""Judges sized cases: every row of a result against the codebook oracle, block by block."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from attnspec import OPERATIONS
from attnspec.backends import Backend
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.cause import SHAPE_RULES
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.deviation import declared_deviation
from attnspec.conformance.judge.dtypes import Outputs, accepted, lse_dtype
from attnspec.conformance.sizes.chosen import chosen_heads, chosen_rows, compared_rows, gradients_of_heads
from attnspec.conformance.sizes.codebook.gradients import Part, gradients
from attnspec.conformance.sizes.codebook.rows import Block, tasks
from attnspec.conformance.sizes.dialect import (
    Dialect,
    Precision,
    gradients_in_dialect,
    in_dialect,
    precisions,
)
from attnspec.conformance.sizes.sized import OUTPUTS, Sized
from attnspec.conformance.verdict import Difference, Verdict
from attnspec.formula import Formula

#: The libraries whose threads are limited.
_LIBRARIES = ThreadpoolController()

T = TypeVar("T")
S = TypeVar("S")


def mapped(function: Callable[[T], S], things: Iterable[T], threads: int = 0) -> Iterator[S]:
    """Call a function with each of several things, in as many threads as there are processors.

    Each thread multiplies small matrices. Several threads in each product would wait for each other.

    Examples
    --------
    >>> from attnspec.conformance.sizes.judge import mapped
    >>> list(mapped(abs, [-1, 2]))
    [1, 2]
    """
    with _LIBRARIES.limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads or _processors()) as pool:
        yield from pool.map(function, things)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_VJP = OPERATIONS["attention_vjp"]


def shapes_of(formula: Formula) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the gradients that are judged.

    Examples
    --------
    >>> from attnspec.conformance.sizes.judge import shapes_of
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
    >>> from attnspec.conformance.sizes.judge import values_of_gradients
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


def values_of(formula: Formula) -> dict[str, NDArray[np.float64]]:
    """Compute the exact output and lse of a problem as whole arrays.

    Examples
    --------
    >>> from attnspec.conformance.sizes.judge import values_of
    >>> from attnspec.formula import Formula
    >>> values_of(Formula(queries=2, keys=1, depth=4, value_depth=1))["output"].tolist()
    [[[[-1.640625], [-1.640625]]]]
    """
    shape = (*formula.batch, formula.heads, formula.queries)
    output, lse = np.zeros((*shape, formula.value_depth)), np.zeros(shape)
    for block in mapped(lambda task: task(), tasks(formula, "float64")):
        output[block.head][block.rows], lse[block.head][block.rows] = block.output, block.lse
    return {"output": output, "lse": lse}


def judge_sized(backend: Backend, item: Sized, verdict: Verdict, threads: int = 0) -> Verdict:
    """Make the call of a sized case, and complete the verdict on it."""
    if item.gradients:
        dialect = gradients_in_dialect(item.formula, backend.dialect)
    else:
        dialect = in_dialect(item.formula, backend.dialect, lse=backend.has(item.operation, "return_lse"))
    arguments = item.case.arguments
    if item.gradients:
        arguments = {**arguments, **forward_of(backend, item, dialect)}
    outputs = call(backend, item.operation, arguments, item.layout, item.outputs)
    return _of_outputs(backend, item, verdict, dialect, outputs, threads)


def _of_outputs(
    backend: Backend, item: Sized, verdict: Verdict, dialect: Dialect, outputs: Outputs, threads: int
) -> Verdict:
    """Judge the outputs of a call. If one deviates as declared, the other one is judged too."""
    looked = {name: outputs[name] for name in item.outputs if name in outputs}
    deviations: list[Verdict] = []
    while looked:
        for precision in precisions(backend, item.dtype):
            found = compared(item, dialect, looked, precision, threads)
            if not isinstance(found, Difference):
                break
        if not isinstance(found, Difference):
            verdict = replace(verdict, share=found, accuracy=precision.accuracy)
            break
        wrong = replace(verdict, status="fail", rule=_rule(item, found), difference=found, code="differs")
        declared = declared_deviation(backend, item.calls, wrong)
        if declared is None:
            return wrong
        deviations.append(replace(declared, difference=None))
        del looked[found.output]
    if deviations:
        first, ids = deviations[0], (name for one in deviations for name in one.declared)
        return replace(
            first, share=verdict.share, accuracy=verdict.accuracy, declared=tuple(dict.fromkeys(ids))
        )
    if rule := precision.rule or dialect.rule:
        rules = tuple(dict.fromkeys((*verdict.rules, rule)))
        return replace(
            verdict, status="deviation", rules=rules, rule=rule, variant=backend.dialect[rule], code="variant"
        )
    return verdict


def _rule(item: Sized, difference: Difference) -> str:
    if item.gradients and difference.kind in ("shape", "dtype"):
        return "GRAD-2"
    if difference.kind == "shape":
        return SHAPE_RULES[difference.output]
    if difference.kind == "dtype":
        return "NUM-7" if difference.output == "lse" else "NUM-1"
    return item.rules[0]


def compared(
    item: Sized, dialect: Dialect, outputs: Outputs, precision: Precision, threads: int = 0
) -> Difference | float:
    """Compare every row of a result with its exact values."""
    if item.gradients:
        return compared_gradients(item, dialect, outputs, precision, threads)
    formula, dtype = dialect.formula, item.dtype
    shapes = {"output": (*formula.batch, formula.heads, formula.queries, formula.value_depth)}
    shapes["lse"] = shapes["output"][:-1]
    looked = {name: outputs[name] for name in OUTPUTS if name in outputs}
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
    if item.sampled:
        arguments = {**item.case.arguments, **dialect.formula.given(dtype)}
        rows = chosen_rows((*formula.batch, formula.heads, formula.queries), item.seed)
        options |= {"unit": dialect.unit, "empty": dialect.empty}
        return compared_rows(arguments, looked, dtype, rows, **options)

    def see(task: Callable[[], Block]) -> list[Difference | float]:
        return [
            _compared(looked[name], name, task_block, dialect) for task_block in [task()] for name in looked
        ]

    work = tasks(formula, dtype, **options)
    found = [one for several in mapped(see, work, threads) for one in several]
    differences = [one for one in found if isinstance(one, Difference)]
    if not differences:
        return max((one for one in found if not isinstance(one, Difference)), default=0.0)
    first = next(iter(sorted(differences, key=lambda one: OUTPUTS.index(one.output))))
    same = [one for one in differences if one.output == first.output]
    worst = max(same, key=lambda one: (one.kind == "pattern", one.share))
    return replace(worst, count=sum(one.count for one in same), size=looked[first.output].size)


def _compared(got: NDArray[Any], name: str, block: Block, dialect: Dialect) -> Difference | float:
    """Compare the rows of one block."""
    values, budget = (
        (block.output, block.output_budget)
        if name == "output"
        else (block.lse / dialect.unit, block.lse_budget / dialect.unit)
    )
    first, last = int(block.rows[0]), int(block.rows[-1])
    together = last - first + 1 == len(block.rows)
    part = got[block.head][first : last + 1] if together else got[block.head][block.rows]
    where = None
    if not dialect.empty:
        there = block.lse > -np.inf
        where = there[:, None] if name == "output" else there
    found = compare(name, part, values, budget, str(got.dtype), where=where)
    if not isinstance(found, Difference):
        return found
    row, *rest = found.element
    return replace(found, element=(*block.head, int(block.rows[row]), *rest))
