"""The judge: one call of one backend held against what it must give."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec import Alternative, Case, find_rule
from attnspec.backends import DTYPES, Backend
from attnspec.conformance.allowance import CLASSES, budgets_of, required
from attnspec.conformance.call import Outputs, call
from attnspec.conformance.comparison import Comparison, compare
from attnspec.conformance.failure import Failure, Raised
from attnspec.conformance.figure import misprint
from attnspec.conformance.reproduction import of_arguments, of_case
from attnspec.reference.rounding import Accuracy, Budget, budget

#: The rule that a kind of difference breaks, whatever the case is about; None: what the case is about.
_RULE_OF = {"shape": "SHAPE-3", "dtype": "NUM-1", "pattern": None, "value": None}


#: Calls that fit, to tell a refusal from a function that always raises.
_FITTING: Mapping[str, Mapping[str, NDArray[Any]]] = {
    "attention": {name: np.ones((2, 3, 4), np.float32) for name in ("query", "key", "value")},
    "projection": {"tokens": np.ones((3, 2), np.float32), "weight": np.ones((2, 2), np.float32)},
}


@dataclass(frozen=True)
class Judgement:
    """That a call gave what it must.

    Attributes
    ----------
    status : {"pass", "deviation"}
        A deviation is a declared variant, verified.
    share : float
        The largest share of its budget that an element used.
    accuracy : {"full", "cast", "storage"}
        The tightest class whose budgets hold.
    deviates : str
        The rule whose declared variant was verified; empty for a pass.
    """

    status: Literal["pass", "deviation"]
    share: float
    accuracy: Accuracy = "full"
    deviates: str = ""


def judge_case(backend: Backend, case: Case, dtype: str) -> Judgement:
    """Run a golden vector in a dtype that holds its inputs exactly.

    Raises
    ------
    Failure
        When a rule is broken.
    Raised
        When the implementation raises.
    Unsupported
        When the backend cannot be asked.
    """
    arguments = in_dtype(case.arguments, dtype)
    place = f"case {case.id}, {dtype}, on {backend.name}"
    reproduction = of_case(backend, case, dtype)
    if case.misuse is not None:
        judge_misuse(backend, case.operation, arguments, case.rules[0], place, reproduction)
        return Judgement("pass", 0.0)
    budgets = budgets_of(backend, case.operation, arguments, dtype)
    outputs = observe(backend, case.operation, arguments)
    deviates = ""
    expected = case.expected
    for other in case.alternatives:
        if backend.dialect.get(other.rule) == other.variant:
            expected, deviates = other.expected, other.rule
            break  # the nearer rule stands first
    worst = 0.0
    for name, got in outputs.items():
        comparison = compare(name, got, expected[name], budgets[name], dtype)
        if comparison.problem:
            rule, hint = _attribute(case, name, got, comparison, budgets)
            raise Failure(rule, f"{place}\n{comparison.problem}{hint}\n{reproduction}")
        worst = max(worst, comparison.share)
    accuracy = _tightest(backend, case.operation, arguments, dtype, outputs, expected)
    for figure in () if deviates else case.figures:
        if figure.of in outputs and (problem := misprint(figure, outputs, budgets)):
            raise Failure(case.rules[0], f"{place}\n{problem}\n{reproduction}")
    return Judgement("deviation" if deviates else "pass", worst, accuracy, deviates)


def judge(
    backend: Backend,
    rule: str,
    operation: str,
    arguments: Mapping[str, Any],
    expected: Callable[[], Mapping[str, NDArray[Any]]],
) -> Judgement:
    """Hold one call with generated arguments against expected values.

    Parameters
    ----------
    backend : Backend
    rule : str
        The rule under test.
    operation : str
    arguments : mapping
        Arrays of floating-point numbers all have one dtype.
    expected : callable
        Gives the exact values by output name, and is asked once the call is over;
        an output that is not listed is not looked at.

    Raises
    ------
    Failure, Raised, Unsupported
        As `judge_case`.
    """
    dtype = dtype_of(arguments)
    budgets = budgets_of(backend, operation, arguments, dtype)
    outputs = observe(backend, operation, arguments)
    values = expected()
    worst = 0.0
    for name in values:
        comparison = compare(name, outputs[name], values[name], budgets[name], dtype)
        if comparison.problem:
            text = of_arguments(backend, operation, arguments, name, values[name])
            broken, hint = _RULE_OF[comparison.kind] or rule, ""
            if comparison.kind == "value":
                broken, hint = _precision(backend, operation, arguments, outputs, values) or (rule, "")
            raise Failure(broken, f"{dtype}, on {backend.name}\n{comparison.problem}{hint}\n{text}")
        worst = max(worst, comparison.share)
    return Judgement("pass", worst, _tightest(backend, operation, arguments, dtype, outputs, values))


def judge_misuse(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    rule: str,
    place: str,
    reproduction: str,
) -> None:
    """Make a call that must be refused.

    Raises
    ------
    Failure
        When the implementation returns something.
    """
    try:
        outputs = call(backend, operation, arguments)
    except Raised:
        call(backend, operation, _FITTING[operation])  # what raises whatever it is given refuses nothing
        return
    got = ", ".join(f"{name} of shape {array.shape}" for name, array in outputs.items())
    raise Failure(rule, f"{place}\nexpected an error, got {got}\n{reproduction}")


def observe(backend: Backend, operation: str, arguments: Mapping[str, Any]) -> Outputs:
    """Call a backend, and see the weights of attention even where it returns none.

    With the identity as value the output *is* the weights. The identity is given
    in slices as wide as the value, as some libraries take no other depth.
    """
    outputs = call(backend, operation, arguments)
    value = arguments.get("value")
    if operation != "attention" or "weights" in outputs or value is None:
        return outputs
    keys, depth = value.shape[-2:]
    slices = []
    for start in range(0, keys, depth):
        identity = np.eye(keys, depth, -start, dtype=value.dtype)  # (S, Dv): key `start + c` in column c
        probe = {**arguments, "value": np.broadcast_to(identity, value.shape)}
        slices.append(call(backend, operation, probe)["output"])
    none = np.zeros((*outputs["output"].shape[:-1], 0), value.dtype)
    outputs["weights"] = np.concatenate([none, *slices], axis=-1)[..., :keys]
    return outputs


def _precision(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    outputs: Outputs,
    expected: Mapping[str, NDArray[Any]],
) -> tuple[str, str] | None:
    """Tell whether values are off just as a precision that is too low would have them."""
    dtype = dtype_of(arguments)
    if dtype == "float64":
        low = budget(operation, arguments, dtype, working="float32")
        rule, hint = (
            "NUM-2",
            "\nwithin the budget of the variant `float32` of NUM-2: some step is done in float32",
        )
    elif dtype == "float32":
        return None
    else:
        low = budgets_of(backend, operation, arguments, dtype, "storage")
        rule, hint = (
            "NUM-5",
            f"\nwithin the budget of the variant `storage` of NUM-5: some step is done in {dtype}",
        )
    shown = {name: array for name, array in outputs.items() if name in expected and name in low}
    fits = not any(
        compare(name, array, expected[name], low[name], dtype).problem for name, array in shown.items()
    )
    return (rule, hint) if fits else None


def _tightest(
    backend: Backend,
    operation: str,
    arguments: Mapping[str, Any],
    dtype: str,
    outputs: Outputs,
    expected: Mapping[str, NDArray[Any]],
) -> Accuracy:
    """Find the tightest class that holds, given that the required one does."""
    last = required(backend, dtype)
    for accuracy in CLASSES[: CLASSES.index(last)]:
        budgets = budgets_of(backend, operation, arguments, dtype, accuracy)
        if not any(
            compare(n, x, expected[n], budgets[n], dtype).problem for n, x in outputs.items() if n in expected
        ):
            return accuracy
    return last


def dtypes_of(case: Case) -> tuple[str, ...]:
    """Every dtype that holds all inputs of a case exactly, so that its values stay exact."""
    arrays = [x for x in case.arguments.values() if isinstance(x, np.ndarray) and x.dtype != bool]
    return tuple(
        dtype
        for dtype in DTYPES
        if all(np.array_equal(x.astype(dtype).astype(np.float64), x.astype(np.float64)) for x in arrays)
    )


def dtype_of(arguments: Mapping[str, Any]) -> str:
    """Tell the dtype of a call, which is that of its first array."""
    return str(arguments["query" if "query" in arguments else "tokens"].dtype)


def in_dtype(arguments: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Cast the floating-point arrays among some arguments."""
    return {
        name: x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype != bool else x
        for name, x in arguments.items()
    }


def _attribute(
    case: Case, name: str, got: NDArray[Any], comparison: Comparison, budgets: Mapping[str, Budget]
) -> tuple[str, str]:
    """Say which rule a difference breaks, and what it looks like."""
    rule = _RULE_OF[comparison.kind]
    if rule is not None:
        return rule, ""
    for other in case.alternatives:
        if _fits(other, name, got, budgets):
            text = next(v.text for v in find_rule(other.rule).variants if v.name == other.variant)
            return other.rule, f"\nequals the variant `{other.variant}` of {other.rule}: {text}"
    return case.rules[0], ""


def _fits(other: Alternative, name: str, got: NDArray[Any], budgets: Mapping[str, Budget]) -> bool:
    if name not in other.expected:
        return False
    # Eight budgets: a variant's own rounding is not that of the softmax for which budgets are derived.
    return not compare(name, got, other.expected[name], 8 * budgets[name], str(got.dtype)).problem
