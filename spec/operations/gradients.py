"""The gradients of operations: the arguments and the outputs of each vector-Jacobian product."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from attnspec.operations.attention import ATTENTION
from attnspec.operations.companions import MERGE_PARTIALS, MULTI_HEAD_ATTENTION
from attnspec.operations.operation import REQUIRED, Argument, Operation, Output
from attnspec.operations.positions import ROTARY

#: The end of the name of an operation that computes the gradients of another.
VJP = "_vjp"

_SINCE = "2026.11.22"
_COTANGENT = MappingProxyType({"dtype": "ERR-2", "mixed": "ERR-1", "shape": "GRAD-16", "axes": "GRAD-16"})
_OF_LSE = MappingProxyType({"dtype": "NUM-7", "shape": "GRAD-16", "axes": "GRAD-16"})
#: The nouns of results whose name is not a noun.
_NOUNS = MappingProxyType({"rotated": "rotated features"})
_NONE: Mapping[str, str] = MappingProxyType({})


def primal(operation: str) -> str:
    """Return the operation whose gradients an operation computes, or the operation itself."""
    return operation.removesuffix(VJP)


def cotangent(output: Output, rule: str = "GRAD-1") -> Argument:
    """Declare the cotangent of an output, such as `d_output`. It is required if the output has no option."""
    lse = output.numbers == "lse"
    noun = f"cotangent of the {_NOUNS.get(output.name, output.name)}"
    return Argument(
        f"d_{output.name}",
        "array",
        noun,
        ("data",),
        "GRAD-6" if lse and rule == "GRAD-1" else rule,
        output.shape,
        numbers=output.numbers,
        turns=output.turns,
        refusals=_OF_LSE if lse else _COTANGENT,
        called=noun,
        default=None if output.option else REQUIRED,
        since=_SINCE,
    )


def gradient(argument: Argument, rule: str) -> Output:
    """Declare the gradient with respect to an argument, such as `d_query`."""
    numbers: Literal["floating", "lse"] = "lse" if argument.numbers == "lse" else "floating"
    name = f"d_{argument.name}"
    return Output(
        name, argument.shape, numbers, turns=argument.turns, rule=rule, of=argument.name, since=_SINCE
    )


def result(output: Output) -> Argument:
    """Declare a result of the forward pass, which a function of gradients may take."""
    return Argument(
        output.name,
        "array",
        f"{output.name} of the forward pass",
        ("data",),
        output.rule,
        output.shape,
        numbers=output.numbers,
        default=None,
        since=_SINCE,
    )


def vjp(form: Operation, rule: str = "GRAD-1", rules: Mapping[str, str] = _NONE) -> Operation:
    """Declare the operation that computes the gradients of another.

    It takes the arguments of the other operation and a cotangent of each result, except for results
    for inspection, such as the weights. It returns the gradient of each floating-point array, except
    for those that select how the operation works, such as a table of cosines.
    """
    cotangents = [
        cotangent(output, rule)
        for output in form.results
        if not output.apart and (not output.option or output.numbers == "lse")
    ]
    arrays = [
        argument
        for argument in form.arguments.values()
        if argument.kind == "array"
        and argument.numbers in ("floating", "lse")
        and "form" not in argument.role
    ]
    return replace(
        form,
        positional=(*form.positional, *(output for output in cotangents if output.required)),
        named=(
            *(output for output in cotangents if not output.required),
            *(argument for argument in form.named if "asks" not in argument.role),
        ),
        results=tuple(gradient(argument, rules.get(argument.name, rule)) for argument in arrays),
    )


ATTENTION_VJP = replace(
    vjp(ATTENTION, rules={"bias": "GRAD-4", "sinks": "GRAD-7"}),
    forward=tuple(map(result, ATTENTION.results[:2])),
)
MERGE_PARTIALS_VJP = vjp(MERGE_PARTIALS, "GRAD-21")
ROTARY_VJP = vjp(ROTARY, "GRAD-22")
MULTI_HEAD_ATTENTION_VJP = vjp(MULTI_HEAD_ATTENTION, "GRAD-23")
