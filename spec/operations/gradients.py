"""The gradients of operations: the arguments and the outputs of each vector-Jacobian product."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from attnspec.operations.attention import ATTENTION, RETURN_LSE
from attnspec.operations.companions import MERGE_PARTIALS, MULTI_HEAD_ATTENTION
from attnspec.operations.operation import REQUIRED, Argument, Operation, Output, changed
from attnspec.operations.positions import ALIBI_BIAS, ROTARY

_SINCE = "2026.11.22"
_COTANGENT = MappingProxyType({"dtype": "ERR-2", "mixed": "ERR-1", "shape": "GRAD-16", "axes": "GRAD-16"})
_OF_LSE = MappingProxyType({"dtype": "NUM-7", "shape": "GRAD-16", "axes": "GRAD-16"})
#: The nouns of results whose name is not a noun.
_NOUNS = MappingProxyType({"rotated": "rotated features"})
_NONE: Mapping[str, str] = MappingProxyType({})


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


def dated(form: Operation, since: str) -> Operation:
    """Let a version of the standard be the first that has an operation."""
    return replace(
        form,
        positional=tuple(changed(argument, since=since) for argument in form.positional),
        named=tuple(changed(argument, since=since) for argument in form.named),
        results=tuple(changed(output, since=since) for output in form.results),
    )


_D_SCALE = Output(
    "d_scale", (), "lse", option="return_d_scale", rule="GRAD-24", apart=True, since="2026.11.25"
)
_RETURN_D_SCALE = replace(
    RETURN_LSE,
    name=_D_SCALE.option,
    meaning="return the gradient with respect to the scale, too",
    rule=_D_SCALE.rule,
    since=_D_SCALE.since,
)


def with_gradient_of_scale(form: Operation) -> Operation:
    """Let a call ask for the gradient with respect to the scale, which is no array."""
    return replace(form, named=(*form.named, _RETURN_D_SCALE), results=(*form.results, _D_SCALE))


ATTENTION_VJP = replace(
    with_gradient_of_scale(vjp(ATTENTION, rules={"bias": "GRAD-4", "sinks": "GRAD-7"})),
    forward=tuple(map(result, ATTENTION.results[:2])),
)
_SLOPES = replace(ALIBI_BIAS.arguments["slopes"], default=REQUIRED)
ALIBI_BIAS_VJP = dated(
    replace(
        ALIBI_BIAS,
        positional=(*ALIBI_BIAS.positional, cotangent(ALIBI_BIAS.results[0], "GRAD-25")),
        named=(_SLOPES, *(option for option in ALIBI_BIAS.named if option.name != _SLOPES.name)),
        results=(gradient(_SLOPES, "GRAD-25"),),
    ),
    "2026.11.25",
)
MERGE_PARTIALS_VJP = vjp(MERGE_PARTIALS, "GRAD-21")
ROTARY_VJP = vjp(ROTARY, "GRAD-22")
MULTI_HEAD_ATTENTION_VJP = vjp(MULTI_HEAD_ATTENTION, "GRAD-23")
