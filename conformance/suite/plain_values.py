"""The chapter `stacks`: values that are no arrays, such as None for a bound, in operations that attend."""

from collections.abc import Callable, Iterator, Mapping

from attnspec import OPERATIONS
from attnspec.conformance.suite.alone import each_acts
from attnspec.conformance.suite.drawn_stacks import Arguments
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.stacks import SERVED
from attnspec.conformance.suite.whole_calls import ATTENDING, draw_with, layers_of
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS

chapter = Chapter("stacks")

Window = tuple[int | None, int | None]
#: The operations that meet each value alone. Other groups have them in `attention` and its gradients.
SINGLE = tuple(
    name for name in ATTENDING if primal(name) != "attention" and (name not in STACKS or name in SERVED)
)
#: What no call needs, and many functions lack.
_MORE = ("d_lse", "head_shards", "key_zero_points", "value_zero_points", "latent_zero_points")
#: The quick part has one in so many cases.
_STEP = 3


def draw_plain(
    draw: Draw,
    operation: str,
    dtype: str,
    own: Arguments,
    *options: str,
    index: int = 0,
    suits: Callable[[Arguments], bool],
) -> Arguments:
    """Draw a call of an operation with some values of its own, until it suits. None leaves one out."""

    def make(call: Arguments) -> Arguments:
        changed = {name: x for name, x in call.items() if name not in _MORE} | own
        return {name: x for name, x in changed.items() if x is not None}

    call = make(
        draw_with(draw, operation, dtype, *options, index=index, suits=lambda call: suits(make(call)))
    )
    if not suits(call):
        raise AssertionError(f"{operation}: expected a call in which {', '.join(own)} act, got none")
    return call


def rules_of(operation: str, *rules: str) -> tuple[str, ...]:
    """Cite the rule of gradients, that of forms and rules on options."""
    gradients = [OPERATIONS[operation].results[0].rule] if operation != primal(operation) else []
    return (*gradients, *(["STACK-2"] if layers_of(operation) else []), *rules)


#: Windows with an open side or a bound of 0, and the dtype of their calls.
_WINDOWS: Mapping[Window, str] = {
    (None, 1): "float32",
    (1, None): "float16",  # for functions that have half precision alone, like (0, 0)
    (0, 1): "float32",
    (0, 0): "bfloat16",
    (127, None): "float32",
}


@chapter.group("MASK-8", "STACK-2", each=tuple(_WINDOWS), step=_STEP)
def window_with_bounds(draw: Draw, window: Window) -> Iterator[Yielded]:
    """One side of a window is open, or a bound of 0 leaves the key at the query's position alone."""
    wide = window == (127, None)  # as in models: it disallows nothing, and causality closes the other side
    for index, operation in enumerate(SINGLE):
        own = {"window": window, **({"is_causal": True} if wide else {})}
        call = draw_plain(draw, operation, _WINDOWS[window], own, index=index, suits=_seen(operation))
        yield Call(call, rules_of(operation, "MASK-8", *(["MASK-3"] if wide else [])), operation=operation)


def _seen(operation: str) -> Callable[[Arguments], bool]:
    """Whether each side of a window acts: an open one is not 0, and another one is not open."""

    def suits(call: Arguments) -> bool:
        left, right = call["window"]
        if "is_causal" in call:
            return each_acts(operation, call, {"is_causal": False})
        others = ((None if left is not None else 0, right), (left, None if right is not None else 0))
        return all(each_acts(operation, call, {"window": other}) for other in others)

    return suits


_GRADIENTS = tuple(name for name in SINGLE if name != primal(name) and layers_of(name))
#: Numbers that act, the options of `drawn_stacks` beside them, their rules, and the operations. Others meet
#: them in other groups.
_NUMBERS: Mapping[str, tuple[Arguments, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "query_lengths": ({"query_lengths": 1}, (), ("MASK-10",), SINGLE),
    "key_lengths": ({"key_lengths": 2}, (), ("MASK-9",), ("latent_attention", *_GRADIENTS)),
    "query_offset": (
        {"query_offset": 2, "is_causal": True},
        (),
        ("MASK-7", "MASK-3"),
        ("listed_attention", "listed_attention_vjp", "low_precision_attention", *SERVED),
    ),
    "scale": ({"scale": 0.0}, (), ("SCORE-3",), ("sharded_attention_vjp", *_GRADIENTS, *SERVED)),
    "dropout_mask": ({"dropout_rate": 0.0}, ("dropout",), ("DROP-1", "DROP-2"), (*_GRADIENTS, *SERVED)),
}


@chapter.group("STACK-2", each=tuple(_NUMBERS), step=_STEP)
def one_integer_or_zero(draw: Draw, name: str) -> Iterator[Yielded]:
    """One integer holds for all sequences, and a scale or a rate of 0 is no number that was left out."""
    own, options, rules, operations = _NUMBERS[name]
    for index, operation in enumerate(own for own in operations if name in OPERATIONS[own].arguments):
        acts = lambda call, operation=operation: each_acts(operation, call, {name: None})  # noqa: E731
        call = draw_plain(draw, operation, "float32", own, *options, index=index, suits=acts)
        more = ["STACK-3"] if name.endswith("lengths") and "packed" in layers_of(operation) else []
        yield Call(call, rules_of(operation, *more, *rules), operation=operation)


_TOGETHER: Arguments = {
    "window": (1, None),
    "query_offset": 2,
    "query_lengths": 2,
    "key_lengths": 4,
    "scale": 0.0,
    "dropout_rate": 0.0,
}
_OTHERS = tuple(name for name in STACKS if name not in SERVED)


@chapter.group("MASK-8", "STACK-2", step=_STEP)
def window_from_each_query(draw: Draw) -> Iterator[Yielded]:
    """In each other stack, a window begins at the query and is open to the right."""
    for index, operation in enumerate(_OTHERS):
        own = {"window": (0, None)}
        call = draw_plain(draw, operation, "float32", own, index=index, suits=_seen(operation))
        yield Call(call, rules_of(operation, "MASK-8"), operation=operation)


@chapter.group("STACK-2", "ERR-3", step=_STEP)
def integers_and_zeros_together(draw: Draw) -> Iterator[Yielded]:
    """In each other stack, one integer holds for all sequences, and and a scale and a rate are 0."""
    for index, operation in enumerate(_OTHERS):
        known = OPERATIONS[operation].arguments
        own = {name: x for name, x in _TOGETHER.items() if not known[name].required}
        changes = dict.fromkeys(own.keys() - {"dropout_rate"} | {"dropout_mask"})

        def suits(call: Arguments, operation: str = operation, changes: Arguments = changes) -> bool:
            return _seen(operation)(call) and each_acts(operation, call, changes)

        call = draw_plain(draw, operation, "float32", own, "dropout", index=index, suits=suits)
        yield Call(call, operation=operation)
