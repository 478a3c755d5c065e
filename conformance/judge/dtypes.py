"""The dtypes of the arguments and the results of a call."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.conformance.verdict import LISTS
from attnspec.dtypes import DTYPES, FORMATS, SHORT, name_of
from attnspec.operations.operation import primal

#: Arrays by the name of an output.
Outputs = dict[str, NDArray[Any]]
#: Arguments that are log-sum-exps. They have the dtype of an lse, not that of the other arrays.
LSES = frozenset(
    name
    for form in OPERATIONS.values()
    for name, argument in form.arguments.items()
    if argument.numbers == "lse"
)
#: Outputs of the dtype of an lse.
PRECISE = frozenset(
    result.name
    for form in OPERATIONS.values()
    for result in form.results
    if result.numbers == "lse" and not result.of
)
#: Gradients of such arguments, which have their dtype (GRAD-2).
_GRADIENTS_OF_LSES = frozenset(
    result.name
    for form in OPERATIONS.values()
    for result in form.results
    if result.of and result.numbers == "lse"
)


def is_real(thing: Any) -> bool:
    """Whether something is an array of a dtype of the standard, not a mask, ids or a number."""
    return isinstance(thing, np.ndarray) and name_of(thing.dtype) in DTYPES


def lse_dtype(dtype: str) -> str:
    """Return the shortest dtype that an lse may have for inputs of a dtype (NUM-7)."""
    return FORMATS[dtype].lse


def accepted_dtypes(output: str, dtype: str) -> tuple[str, ...]:
    """List the dtypes that an output may have for inputs of a dtype (NUM-1, NUM-7, POS-8)."""
    if dtype not in FORMATS:  # the inputs are integers, which the implementation accepted
        return (dtype,)
    if output in LISTS:  # counts of what they hold are compared
        return ("float64",)
    if output in PRECISE:
        return FORMATS[dtype].accepted_of_lse
    if output in _GRADIENTS_OF_LSES:
        return (FORMATS[dtype].lse,)
    if output == "bias":  # the bias of ALiBi
        own = FORMATS[dtype]
        wider = (name for name, form in FORMATS.items() if form.digits > own.digits and form.working == name)
        return (dtype, *wider)
    return (dtype,)


def own_dtypes(case: Case) -> Mapping[str, str]:
    """Name the dtypes of gradients of arrays that are not of the dtype of the call (GRAD-2)."""
    if primal(case.operation) == case.operation:
        return {}
    arrays = {name: name_of(x.dtype) for name, x in case.arguments.items() if is_real(x)}
    return {f"d_{name}": dtype for name, dtype in arrays.items() if dtype != case.dtype}


def dtype_of(operation: str, arguments: Mapping[str, Any]) -> str:
    """Return the dtype of a call, which is the dtype of its first array."""
    return name_of(arguments[OPERATIONS[operation].arrays[0]].dtype)


def in_dtype(arguments: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Cast the floating-point arrays among some arguments, an lse to the dtype of an lse."""
    return {
        name: _cast(x, lse_dtype(dtype) if name in LSES else dtype) if _is_cast(name, x) else x
        for name, x in arguments.items()
    }


def _is_cast(name: str, thing: Any) -> bool:
    """Whether to cast an argument. An lse in half precision is a fault, which a cast would remove."""
    return is_real(thing) and not (name in LSES and name_of(thing.dtype) in SHORT)


def dtypes_of(case: Case) -> tuple[str, ...]:
    """Return the dtypes that hold all inputs of a case exactly, so that its expected values apply.

    If a misuse is about dtypes, this is only the dtype of the first array.
    """
    if is_mixed(case) or not any(is_real(x) for x in case.arguments.values()):
        return (dtype_of(case.operation, case.arguments),)
    return tuple(
        dtype
        for dtype in DTYPES
        if all(
            np.array_equal(x.astype(np.float64), case.arguments[name].astype(np.float64), equal_nan=True)
            for name, x in in_dtype(case.arguments, dtype).items()
            if is_real(x)
        )
    )


def arguments_of(case: Case, dtype: str) -> dict[str, Any]:
    """Return the arguments of a case in a dtype."""
    return dict(case.arguments) if is_mixed(case) else in_dtype(case.arguments, dtype)


def is_mixed(case: Case) -> bool:
    """Whether a case is a misuse because dtypes differ. Casting its arrays would remove the fault."""
    given = {name_of(x.dtype) for name, x in case.arguments.items() if is_real(x) and name not in LSES}
    return case.misuse is not None and len(given) > 1


def _cast(array: Any, dtype: str) -> Any:
    with np.errstate(over="ignore"):  # a number that overflows is not held exactly, so the dtype is left out
        return array.astype(dtype)


def in_each(case: Case, dtypes: Sequence[str] = DTYPES) -> tuple[Case, ...]:
    """Return a case in each dtype that holds its inputs exactly."""
    found = [dtype for dtype in dtypes_of(case) if dtype in dtypes or dtype not in DTYPES]
    return tuple(replace(case, arguments=arguments_of(case, dtype)) for dtype in found)
