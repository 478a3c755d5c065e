"""The gradients of operations: the arguments of each vector-Jacobian product, and what it returns."""

from types import MappingProxyType

from attnspec.operations.argument import REQUIRED, Argument, Output
from attnspec.operations.attention import ATTENTION
from attnspec.operations.operation import Operation

#: The end of the name of an operation that computes the gradients of another.
VJP = "_vjp"

_COTANGENT = MappingProxyType({"dtype": "ERR-2", "mixed": "ERR-1", "shape": "GRAD-16", "axes": "GRAD-16"})


def primal(operation: str) -> str:
    """Name the operation whose gradients an operation computes; any other operation is its own.

    Examples
    --------
    >>> from attnspec.operations.gradients import primal
    >>> primal("attention_vjp"), primal("scores")
    ('attention', 'scores')
    """
    return operation.removesuffix(VJP)


def cotangent(output: Output, since: str) -> Argument:
    """Declare the cotangent of an output, such as `d_output`, which is required if the output always is."""
    return Argument(
        f"d_{output.name}",
        "array",
        f"cotangent of the {output.name}",
        ("data",),
        "GRAD-6" if output.numbers == "lse" else "GRAD-1",
        output.shape,
        numbers=output.numbers,
        refusals=MappingProxyType(
            {**_COTANGENT, "dtype": "NUM-7"} if output.numbers == "lse" else dict(_COTANGENT)
        ),
        called=f"cotangent of the {output.name}",
        default=None if output.option else REQUIRED,
        since=since,
    )


def gradient(argument: Argument, rule: str, since: str) -> Output:
    """Declare the gradient with respect to an argument, such as `d_query`."""
    return Output(f"d_{argument.name}", argument.shape, rule=rule, of=argument.name, since=since)


def result(output: Output, since: str) -> Argument:
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
        since=since,
    )


_SINCE = "2026.11.22"
_RULES = {"bias": "GRAD-4", "sinks": "GRAD-7"}

ATTENTION_VJP = Operation(
    (*ATTENTION.positional, cotangent(ATTENTION.results[0], _SINCE)),
    (
        cotangent(ATTENTION.results[1], _SINCE),
        *(one for one in ATTENTION.named if not one.name.startswith("return_")),
    ),
    tuple(
        gradient(one, _RULES.get(one.name, "GRAD-1"), _SINCE)
        for one in ATTENTION.arguments.values()
        if one.kind == "array" and one.numbers == "floating"
    ),
    forward=tuple(result(one, _SINCE) for one in ATTENTION.results[:2]),
    headless=True,
)
