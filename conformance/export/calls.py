"""Cases with all that a judge needs: the arguments, the exact values, and the allowed errors."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.backends import DTYPES, Backend
from attnspec.backends.library.library import array_api_library
from attnspec.backends.program.protocol import as_function
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.dtypes import accepted_dtypes, own_dtypes
from attnspec.conformance.judge.expected import expected, forward_results
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite.group import Item
from attnspec.reference.budget.budget import Budget
from attnspec.reference.numpy_namespace import xp

#: Whether a call may or must be rejected.
Refusal = Literal["never", "may", "must"]


@dataclass(frozen=True)
class Output:
    """An output of a call, with what is allowed.

    `allowed` is the largest error of each element. An error that is plus infinity also allows NaN, where plus
    infinity is expected. An error of NaN allows anything: the standard does not define the element.
    """

    name: str
    dtypes: tuple[str, ...]
    expected: NDArray[np.float64]
    allowed: NDArray[np.float64]


@dataclass(frozen=True)
class ExportedCall:
    """A call that can be judged by comparing arrays.

    The calls of a relation, and those that show the weights of a case, have the name of the case and a
    suffix after a plus sign. `outputs` is empty if the call must be rejected; then the error has to name one
    of the arguments `at_fault` (ERR-12). The arguments have the results of the forward pass too.
    """

    name: str
    title: str
    operation: str
    dtype: str
    rules: tuple[str, ...]
    arguments: Mapping[str, Any]
    outputs: tuple[Output, ...]
    refusal: Refusal = "never"
    at_fault: tuple[str, ...] = ()
    chapter: str = ""


def exported_calls(found: Iterable[Item]) -> Iterator[ExportedCall | Item]:
    """Yield each call with its expected values and allowed errors.

    An item that no comparison of arrays can judge is yielded as it is: one about strides, about repeated
    calls, or about bits.
    """
    for item in found:
        try:
            # The standard defines no values for some calls of relations.
            calls = tuple(_of_item(item))
        except ValueError:
            calls = ()
        if calls:
            yield from calls
        else:
            yield item


def _of_item(item: Item) -> Iterator[ExportedCall]:
    if isinstance(item, Relation):
        if not (item.live or item.bits):
            for number, case in enumerate(item.calls, 1):
                yield from _of_case(replace(case, rules=item.rules), f"{item.name}+call-{number}")
    elif not item.layout and not any(output.lists for output in OPERATIONS[item.operation].results):
        yield from _of_case(item, item.name)


def _of_case(case: Case, name: str) -> Iterator[ExportedCall]:
    """Yield the call of a case, and the calls that show its weights."""
    backend = _everything()
    arguments = {**case.arguments, **forward_results(backend, case.operation, case.arguments)}
    call = ExportedCall(
        name, case.title, case.operation, case.dtype, case.rules, arguments, (), chapter=case.chapter
    )
    refusal: Refusal = "never"
    if case.misuse is not None:
        refusal = "may" if case.misuse.allowed else "must"
        call = replace(call, refusal=refusal, at_fault=(case.misuse.argument, *case.misuse.named))
    if refusal == "must":
        yield call
        return
    with np.errstate(over="ignore"):  # disallowed scores may overflow
        values, allowed = expected(case), budgets_of(backend, case)
    outputs = [
        _output(case, output, values, allowed[output])
        for output in OPERATIONS[case.operation].judged(case.arguments, case.outputs)
    ]
    yield replace(call, outputs=tuple(outputs))
    # The judge sees weights that are not returned only in this operation.
    if case.operation == "attention" and any(output.name == "weights" for output in outputs):
        yield from _of_weights(case, call, values)


def _of_weights(
    case: Case, whole_call: ExportedCall, values: Mapping[str, NDArray[np.float64]]
) -> Iterator[ExportedCall]:
    """Yield the calls by which the judge sees weights that are not returned."""
    calls: list[Mapping[str, Any]] = []

    def run(operation: str, arguments: Mapping[str, Any]) -> Any:
        calls.append({name: x for name, x in arguments.items() if name not in flags})
        output = np.zeros((*arguments["query"].shape[:-1], arguments["value"].shape[-1]))
        more = len(OPERATIONS[operation].wanted(arguments)) - 1
        return (output, *[output[..., 0]] * more) if more else output

    flags = {output.option for output in OPERATIONS[case.operation].results}
    shows = _everything(without=("return_weights", "return_lse"), run=run)
    observe(shows, case)
    with np.errstate(over="ignore"):
        allowed = budgets_of(shows, case)["weights"]
    depth = case.arguments["value"].shape[-1]
    whole = _output(case, "weights", values, allowed)
    for number, arguments in enumerate(calls[1:], 1):
        part = slice((number - 1) * depth, number * depth)
        width = whole.expected[..., part].shape[-1]
        padding = [(0, 0)] * (whole.expected.ndim - 1) + [(0, depth - width)]  # of columns without a key
        output = Output(
            "output",
            whole.dtypes,
            np.pad(whole.expected[..., part], padding),
            np.pad(whole.allowed[..., part], padding, constant_values=np.nan),
        )
        yield replace(
            whole_call, name=f"{whole_call.name}+weights-{number}", arguments=arguments, outputs=(output,)
        )


def _everything(
    *, without: tuple[str, ...] = (), run: Callable[[str, Mapping[str, Any]], Any] = lambda *_: None
) -> Backend:
    """Make a backend that offers every operation and argument but some, to ask the judge for budgets."""
    functions = {
        name: as_function(name, [argument for argument in form.offers if argument not in without], run)
        for name, form in OPERATIONS.items()
    }
    attention = functions.pop("attention")
    library = array_api_library("export", "", xp)
    return Backend("export", library, attention, DTYPES, functions)


def _output(case: Case, name: str, values: Mapping[str, NDArray[np.float64]], allowed: Budget) -> Output:
    """Write what the judge accepts beside the exact values as allowed errors (NUM-11, CACHE-9)."""
    wide = np.broadcast_to(np.asarray(allowed, dtype=np.float64), values[name].shape).copy()
    if name in ("lse", "weights") and "lse" in values:
        infinite = values["lse"] == np.inf
        undefined = np.isnan(values["lse"]) | infinite
        if "weights" in values:
            undefined &= np.isnan(values["lse"]) | np.isnan(values["weights"]).all(axis=-1)
        if name == "lse":
            wide[infinite & undefined] = np.inf
        else:
            wide[undefined] = np.nan
    dtypes = accepted_dtypes(name, own_dtypes(case).get(name, case.dtype))
    return Output(name, dtypes, np.asarray(values[name], dtype=np.float64), wide)
