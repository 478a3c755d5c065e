"""Judges sized cases: every row of a result against the codebook oracle, block by block."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends import DTYPES, Backend, Broken, Unsupported
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.deviation import declared_for
from attnspec.conformance.judge.dtypes import Outputs, accepted
from attnspec.conformance.judge.failure import Failure, Missing, Raised, code_of, lacking_of
from attnspec.conformance.judge.lacking import Lacking, gradient_lacking
from attnspec.conformance.judge.parallel import mapped
from attnspec.conformance.relations.shapes import RULES
from attnspec.conformance.sizes.dialect import (
    Dialect,
    Precision,
    gradients_in_dialect,
    in_dialect,
    precisions,
)
from attnspec.conformance.sizes.judge_gradients import compared_gradients, forward_of
from attnspec.conformance.sizes.rows import chosen_rows, compared_rows
from attnspec.conformance.sizes.sized import OUTPUTS, Sized
from attnspec.conformance.verdict import Difference, Verdict
from attnspec.formula import Formula
from attnspec.reference.codebook.rows import Block, tasks


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


def judge_sized(backend: Backend, item: Sized, threads: int = 0) -> Verdict:
    """Judge a sized case on a backend.

    Examples
    --------
    >>> from attnspec.backends import load
    >>> from attnspec.conformance.sizes.judge import judge_sized
    >>> from attnspec.conformance.sizes.sized import Sized
    >>> from attnspec.formula import Formula
    >>> problem = Formula(queries=300, keys=300, depth=8, value_depth=8, options={"is_causal": True})
    >>> item = Sized("one", "", ("MASK-3",), "", problem, "float32")
    >>> judge_sized(load("numpy-portable"), item).status
    'pass'
    """
    verdict = Verdict(
        backend.name,
        item.name,
        item.group,
        item.rules,
        "pass",
        item.dtype,
        item.operation,
        traits=item.traits,
        numbers=item.numbers,
    )
    try:
        _require(backend, item)
        dialect, arguments = _in_dialect(backend, item), item.case.arguments
        if item.gradients:
            arguments = {**arguments, **forward_of(backend, item, dialect)}
        outputs = call(backend, item.operation, arguments, item.layout, item.outputs)
        return _of_outputs(backend, item, verdict, dialect, outputs, threads)
    except Unsupported as unsupported:
        lacking = _lacking(backend, item, unsupported)
        declined = not lacking and not isinstance(unsupported, Missing)
        return replace(
            verdict,
            status="unsupported",
            reason=lacking.reason if lacking else str(unsupported),
            declined=declined,
            lacks=lacking_of(unsupported),
            code=lacking.code if lacking else code_of(unsupported),
        )
    except Broken as broken:
        return replace(verdict, status="error", rule=item.rules[0], reason=str(broken), code="broken")
    except Raised as raised:
        if lacking := _lacking(backend, item, raised):
            return replace(verdict, status="unsupported", reason=lacking.reason, code=lacking.code)
        return _declared(
            backend,
            item,
            replace(verdict, status="error", rule=item.rules[0], raised=raised.data, code="raised"),
        )
    except Failure as failure:
        wrong = replace(
            verdict,
            rule=failure.rule,
            reason=failure.reason,
            difference=failure.difference,
            code=failure.code,
        )
        return _declared(backend, item, replace(wrong, status="fail"))


def _in_dialect(backend: Backend, item: Sized) -> Dialect:
    if item.gradients:
        return gradients_in_dialect(item.formula, backend.dialect)
    return in_dialect(item.formula, backend.dialect, lse=backend.has(item.operation, "return_lse"))


def _lacking(backend: Backend, item: Sized, error: Exception) -> Lacking | None:
    """Name the gradient that a function does not compute, if it raised because of it."""
    if not item.gradients or isinstance(error, Missing):
        return None
    return gradient_lacking(backend, item.case, error)


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
        settled = _declared(backend, item, wrong)
        if settled.status == "fail":
            return settled
        deviations.append(replace(settled, difference=None))
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


def _require(backend: Backend, item: Sized) -> None:
    """Raise `Missing` if the backend does not offer the case, before its arrays are made."""
    if item.dtype not in set(backend.dtypes) & set(DTYPES):
        raise Missing(f"{backend.name} has no {item.dtype}", f"dtype {item.dtype}")
    missing = [name for name in item.named if not backend.has(item.operation, name)]
    if missing:
        lacks = [f"argument {name}" for name in missing]
        raise Missing(f"{backend.name} has no argument {', '.join(missing)}", *lacks)
    misfit = item.misfit(backend.constraints)
    if misfit:
        raise Missing(f"{backend.name} {misfit}")


def _rule(item: Sized, difference: Difference) -> str:
    if item.gradients and difference.kind in ("shape", "dtype"):
        return "GRAD-2"
    if difference.kind == "shape":
        return RULES[difference.output]
    if difference.kind == "dtype":
        return "NUM-7" if difference.output == "lse" else "NUM-1"
    return item.rules[0]


def _declared(backend: Backend, item: Sized, verdict: Verdict) -> Verdict:
    """Turn a failure that the backend declares into a deviation."""
    output = verdict.difference.output if verdict.difference else ""
    deviation = declared_for(backend, verdict.rule, item.case, output)
    if deviation is None:
        return verdict
    rules = tuple(dict.fromkeys((*verdict.rules, verdict.rule)))
    return replace(
        verdict,
        status="deviation",
        rules=rules,
        reason=deviation.reason,
        declared=(deviation.id,),
        code="deviation",
    )


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
