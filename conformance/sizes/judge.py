"""Judges sized cases: every row of a result against the codebook oracle, block by block."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from attnspec import OPERATIONS
from attnspec.backends import Backend, Deviation
from attnspec.backends.outcome import Bound, InDtype, OtherCall
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.cause import SHAPE_RULES
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.deviation import as_deviation
from attnspec.conformance.judge.dtypes import Outputs, accepted_dtypes, lse_dtype
from attnspec.conformance.sizes.chosen import chosen_heads, chosen_rows, compare_rows, gradients_of_heads
from attnspec.conformance.sizes.codebook.gradients import Part, gradients
from attnspec.conformance.sizes.codebook.rows import Block, tasks
from attnspec.conformance.sizes.dialect import (
    Dialect,
    Precision,
    gradients_in_dialect,
    in_dialect,
    precisions,
)
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.verdict import Difference, Verdict
from attnspec.dtypes import FORMATS
from attnspec.formula import Formula

#: The libraries whose threads are limited.
_LIBRARIES = ThreadpoolController()
_VJP = OPERATIONS["attention_vjp"]


def judge_sized(backend: Backend, item: SizedCase, verdict: Verdict) -> Verdict:
    """Make the call of a sized case, and complete the verdict on it."""
    arguments = item.case.arguments
    if item.gradients:
        dialect = gradients_in_dialect(item.formula, backend.dialect)
        arguments = {**arguments, **_forward_results(backend, item, dialect)}
    else:
        dialect = in_dialect(item.formula, backend.dialect, lse=backend.has(item.operation, "return_lse"))
    outputs = call(backend, item.operation, arguments, item.layout, item.outputs)
    return _judge_outputs(backend, item, verdict, dialect, outputs)


def _judge_outputs(
    backend: Backend, item: SizedCase, verdict: Verdict, dialect: Dialect, outputs: Outputs
) -> Verdict:
    """Judge the outputs of a call. If one deviates as declared, the other one is judged too."""
    left = {name: outputs[name] for name in item.outputs if name in outputs}
    deviations: list[Deviation] = []
    broken: list[str] = []
    while left:
        for precision in precisions(backend, item.dtype):
            result = compare_outputs(item, dialect, left, precision)
            if not isinstance(result, Difference):
                break
        if not isinstance(result, Difference):
            verdict = replace(verdict, share=result, accuracy=precision.accuracy)
            break
        wrong = replace(verdict, status="fail", rule=_rule(item, result), difference=result, code="differs")
        declared = _find_deviation(backend, item, wrong, left[result.output], precision)
        if declared is None:
            return wrong
        deviations.append(declared)
        broken.append(wrong.rule)
        del left[result.output]
    if deviations:
        return as_deviation(verdict, deviations, *broken)
    if rule := precision.rule or dialect.rule:
        rules = tuple(dict.fromkeys((*verdict.rules, rule)))
        return replace(
            verdict, status="deviation", rules=rules, rule=rule, variant=backend.dialect[rule], code="variant"
        )
    return verdict


def _find_deviation(
    backend: Backend, item: SizedCase, wrong: Verdict, got: NDArray[Any], precision: Precision
) -> Deviation | None:
    """Find a declared deviation whose outcome some rows of an output have, or all rows if it is a bound."""
    difference, case = wrong.difference, item.case
    assert difference is not None  # noqa: S101 - for the type checker: an output differs
    rows = chosen_rows(_shapes(item.formula, gradients=False)["lse"], item.seed)
    for deviation in backend.deviations:
        if not deviation.covers(wrong.rule, case.arguments, dtype=item.dtype, output=difference.output):
            continue
        arguments, dtype, rounding = case.arguments, item.dtype, 0.0
        output = got
        for outcome in deviation.outcomes:
            if isinstance(outcome, Bound):
                if difference.kind == "value" and difference.share <= outcome.budgets:
                    return deviation
            elif isinstance(outcome, OtherCall):
                arguments = outcome.change(arguments)
                dtype = str(arguments["query"].dtype)
            elif isinstance(outcome, InDtype) and got.dtype.name == outcome.of(case.arguments):
                rounding = 2.0 ** -FORMATS[got.dtype.name].digits
                output = got.astype(accepted_dtypes(difference.output, dtype)[0])
            else:
                break
        else:
            if item.gradients or output.dtype.name not in accepted_dtypes(difference.output, dtype):
                continue
            part, options = {difference.output: output}, precision.options
            compared = compare_rows(arguments, part, dtype, rows, rounding=rounding, **options)
            if not isinstance(compared, Difference):
                return deviation
    return None


def _rule(item: SizedCase, difference: Difference) -> str:
    if item.gradients and difference.kind in ("shape", "dtype"):
        return "GRAD-2"
    if difference.kind == "shape":
        return SHAPE_RULES[difference.output]
    if difference.kind == "dtype":
        return "NUM-7" if difference.output == "lse" else "NUM-1"
    return item.rules[0]


def compare_outputs(
    item: SizedCase, dialect: Dialect, outputs: Outputs, precision: Precision, threads: int = 0
) -> Difference | float:
    """Compare every row of a result, or some rows of arbitrary numbers, with the exact values."""
    formula, dtype = dialect.formula, item.dtype
    shapes = _shapes(formula, gradients=item.gradients)
    if "d_bias" in outputs:
        shapes["d_bias"] = item.case.arguments["bias"].shape
    for name, got in outputs.items():
        if got.shape != shapes[name]:
            return Difference("shape", name, (), str(got.shape), str(shapes[name]))
        if str(got.dtype) not in accepted_dtypes(name, dtype):
            return Difference("dtype", name, (), str(got.dtype), " or ".join(accepted_dtypes(name, dtype)))
    options = precision.options
    if item.sampled:
        arguments = {**item.case.arguments, **formula.given(dtype)}
        if item.gradients:
            heads = chosen_heads(shapes["d_key"][:-2], item.seed)
            parts = gradients_of_heads(arguments, dtype, heads, **options)
            return worst(_compare_parts(parts, outputs), outputs)
        rows = chosen_rows(shapes["lse"], item.seed)
        options |= {"unit": dialect.unit, "empty": dialect.empty}
        return compare_rows(arguments, outputs, dtype, rows, **options)
    if item.gradients:
        return worst(
            _compare_parts(gradients(formula, dtype, run=_in_threads(threads), **options), outputs), outputs
        )

    def compare_task(task: Callable[[], Block]) -> list[Difference | float]:
        block = task()
        return [compare_block(got, name, block, dialect) for name, got in outputs.items()]

    results = map_in_threads(compare_task, tasks(formula, dtype, **options), threads)
    return worst((result for several in results for result in several), outputs)


def _shapes(formula: Formula, *, gradients: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the outputs that are judged."""
    heads, keys = (*formula.batch, formula.heads), (*formula.batch, formula.key_heads, formula.keys)
    if not gradients:
        rows = (*heads, formula.queries)
        return {"output": (*rows, formula.value_depth), "lse": rows}
    shapes: dict[str, tuple[int, ...]] = {
        "d_query": (*heads, formula.queries, formula.depth),
        "d_key": (*keys, formula.depth),
        "d_value": (*keys, formula.value_depth),
    }
    return shapes | ({"d_sinks": (formula.heads,)} if "sinks" in formula.options else {})


def _compare_parts(
    parts: Iterable[Part], outputs: Mapping[str, NDArray[Any]]
) -> Iterator[Difference | float]:
    """Compare each part of a gradient."""
    left = {*outputs}
    for part in parts:
        left.discard(part.name)
        if part.name not in outputs:
            continue
        got = outputs[part.name][part.head]
        result = compare(part.name, np.asarray(got), part.values, part.budget, str(got.dtype))
        if isinstance(result, Difference):
            result = replace(result, element=(*part.head, *result.element))
        yield result
    if left:
        raise AssertionError(f"{', '.join(sorted(left))}: expected values of each output, got none")


def compare_block(got: NDArray[Any], name: str, block: Block, dialect: Dialect) -> Difference | float:
    """Compare the rows of one block."""
    if name == "output":
        values, budget = block.output, block.output_budget
    else:
        values, budget = block.lse / dialect.unit, block.lse_budget / dialect.unit
    first, last = int(block.rows[0]), int(block.rows[-1])
    together = last - first + 1 == len(block.rows)
    part = got[block.head][first : last + 1] if together else got[block.head][block.rows]
    where = None
    if not dialect.empty:
        where = block.lse > -np.inf
        where = where[:, None] if name == "output" else where
    result = compare(name, part, values, budget, str(got.dtype), where=where)
    if not isinstance(result, Difference):
        return result
    row, *rest = result.element
    return replace(result, element=(*block.head, int(block.rows[row]), *rest))


def worst(results: Iterable[Difference | float], outputs: Mapping[str, NDArray[Any]]) -> Difference | float:
    """Return the largest share, or the largest difference of the first output that differs."""
    share, differences = 0.0, []
    for result in results:
        if isinstance(result, Difference):
            differences.append(result)
        else:
            share = max(share, result)
    if not differences:
        return share
    first = min((difference.output for difference in differences), key=list(outputs).index)
    same = [difference for difference in differences if difference.output == first]
    worst = max(same, key=lambda difference: (difference.kind == "pattern", difference.share))
    return replace(worst, count=sum(difference.count for difference in same), size=outputs[first].size)


def values_of(formula: Formula, *, of_gradients: bool = False) -> dict[str, NDArray[np.float64]]:
    """Compute the exact output and lse of a problem, or its gradients, as whole arrays."""
    if not of_gradients:
        return _forward(formula, "float64")
    values = {name: np.zeros(shape) for name, shape in _shapes(formula, gradients=True).items()}
    for part in gradients(formula, "float64", run=_in_threads()):
        values[part.name][part.head] = part.values
    return values


def _forward(formula: Formula, dtype: str, unit: float = 1.0) -> dict[str, NDArray[np.float64]]:
    """Compute the exact output and lse as whole arrays, the lse in a unit."""
    shapes = _shapes(formula, gradients=False)
    output, lse = np.zeros(shapes["output"]), np.zeros(shapes["lse"])
    for block in map_in_threads(_call, tasks(formula, dtype)):
        output[block.head][block.rows], lse[block.head][block.rows] = block.output, block.lse / unit
    return {"output": output, "lse": lse}


def _forward_results(backend: Backend, item: SizedCase, dialect: Dialect) -> Outputs:
    """Compute the results of the forward pass that a function of gradients takes, by the codebook oracle."""
    names = [argument.name for argument in _VJP.forward if backend.has(item.operation, argument.name)]
    if not names or not dialect.formula.words:
        return {}
    values = _forward(dialect.formula, item.dtype, dialect.unit)
    dtypes = {"output": item.dtype, "lse": lse_dtype(item.dtype)}
    return {name: values[name].astype(dtypes[name]) for name in names}


def map_in_threads(function: Callable[[Any], Any], things: Iterable[Any], threads: int = 0) -> Iterator[Any]:
    """Call a function with each of several things, in as many threads as there are processors.

    Each thread multiplies small matrices. Several threads in each product would wait for each other.
    """
    with _LIBRARIES.limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads or _processors()) as pool:
        yield from pool.map(function, things)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_threads(threads: int = 0) -> Callable[[Iterable[Callable[[], Any]]], Iterator[Any]]:
    return lambda calls: map_in_threads(_call, calls, threads)


def _call(task: Callable[[], Any]) -> Any:
    return task()
