"""Draws calls in which one argument stands alone.

A function is judged on calls all of whose arguments it has. If it has one option and ignores it, only such a
call shows this.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.suite import options
from attnspec.conformance.suite.decisions import decide, decision
from attnspec.conformance.suite.drawn_stacks import OPTIONS, Arguments, Random, Sizes, draw_call
from attnspec.conformance.suite.group import Call, Draw
from attnspec.conformance.suite.problem import Problem
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.attention import ATTENTION
from attnspec.operations.operation import primal
from attnspec.operations.positions import NEEDED
from attnspec.reference import ArgumentError, function

#: Draws what a call of gradients has besides.
More = Callable[[Random, Arguments], Arguments]

#: The arguments that stand alone, and the option of `drawn_stacks` that draws each.
ALONE: Mapping[str, str] = {
    "is_causal": "causality",
    "query_offset": "offsets",
    "window": "window",
    "sinks": "sinks",
    "softcap": "softcap",
    "scale": "scale",
    "mask": "mask",
    "bias": "bias",
    "query_lengths": "query lengths",
    "key_lengths": "key lengths",
    "query_segment_ids": "segments",
    "query_positions": "positions",
    "key_positions": "positions",
    "left_padding": "left padding",
    "dropout_mask": "dropout",
    "key_zero_points": "nothing",
    "value_zero_points": "nothing",
}
#: The arguments that have no effect without causality or a window, or are rarely taken without causality.
_PLACES = ("query_offset", "query_positions", "key_positions")
#: How much an argument changes a result: far more than a budget of numbers of about 1.
_EFFECT = 1 / 16
#: How often a call is drawn. Zero points of keys take a hundred draws: a shift of all keys changes nothing.
_MOST_DRAWS = 2000


def optional_of(operation: str) -> tuple[str, ...]:
    """Name the arguments that stand alone in an operation."""
    arguments = OPERATIONS[operation].arguments
    return tuple(name for name in ALONE if name in arguments and not arguments[name].required)


def needs_of(operation: str, name: str, scaling: str = "none") -> frozenset[str]:
    """Name an argument of an operation and what comes with it, such as the rate beside a dropout mask.

    The arguments of `rotary_frequencies` come with a scaling and what it needs.
    """
    others: tuple[str, ...] = ("is_causal",) if name in _PLACES else ()
    others = ("dropout_rate",) if name == "dropout_mask" else others
    if operation == "rotary_frequencies" and scaling != "none":
        others = ("scaling", *NEEDED[scaling])
    return frozenset((name, *OPERATIONS[operation].arguments[name].needs, *others))


def draw_alone(
    draw: Draw, name: str, operations: Iterable[str], more: More = lambda *_: {}
) -> Iterator[Call]:
    """Draw a call of each form, stack or gradient of a form, in which one argument acts alone."""
    calls = [Sizes(name=operation, encoding="int8") for operation in operations]
    for index, (random, _, sizes) in enumerate(draw_in_turn(draw, *calls)):
        form, dtype = OPERATIONS[primal(sizes.name)], ("float32", "float64")[index % 2]
        others = {*ATTENTION.options, *ALONE, "latent_zero_points"} - needs_of(sizes.name, name)
        left_out = {own for own in others if own in form.arguments and not form.arguments[own].required}
        for _ in range(_MOST_DRAWS):
            call = draw_call(random, dtype, form.layers, sizes, ALONE[name])
            call = {own: x for own, x in call.items() if own not in left_out} | more(random, call)
            if acts(sizes.name, call, name):
                break
        else:
            raise AssertionError(f"{sizes.name}: expected a call in which {name} acts, got none")
        rules = ("STACK-2", *OPTIONS[ALONE[name]][0])
        rules = rules if "is_causal" in call else tuple(rule for rule in rules if rule != "MASK-3")
        rules = ("STACK-1", "QUANT-2") if name.endswith("zero_points") else rules
        yield Call(call, rules, operation=sizes.name)


def draw_option_alone(problem: Problem, operation: str, name: str, others: Arguments) -> Call:
    """Draw an argument of a problem that acts in a call, beside what it needs and nothing else."""
    option = ALONE[name] if name.endswith(("segment_ids", "positions")) else name
    rules = (options.OPTIONS[option].rule, *(("MASK-3",) if name in _PLACES else ()))
    for _ in range(_MOST_DRAWS):
        needs, drawn = options.draw_option(problem, option)
        call = others | {own: x for own, x in (needs | drawn).items() if own in needs_of(operation, name)}
        if acts(operation, call, name):
            return Call(call, rules, operation=operation)
    raise AssertionError(f"{operation}: expected a call in which {name} acts, got none")


def draw_acting(
    draw: Draw, operation: str, name: str, make: Callable[[Random, str], Arguments], *rules: str
) -> Iterator[Call]:
    """Draw a call of a companion in float32 and in another dtype, in which an argument acts."""
    for random, dtype in draw.generators(1):
        calls = (make(random, dtype) for _ in range(_MOST_DRAWS))
        yield Call(next(call for call in calls if acts(operation, call, name)), rules, operation=operation)


def acts(operation: str, call: Mapping[str, Any], name: str, least: Any = _EFFECT) -> bool:
    """Whether a call without an argument, and without what needs it, differs by more than a number."""
    return bool(acting(operation, call, (name,), least))


def acting(
    operation: str, call: Mapping[str, Any], names: Iterable[str], least: Any = _EFFECT, first: int = 0
) -> frozenset[str]:
    """Choose the arguments that act in a call. With `first`, only the results from there on count."""
    arguments = OPERATIONS[operation].arguments
    call = {**call, **({"return_attention_factor": True} if operation == "rotary_frequencies" else {})}
    whole = cache(lambda: results(operation, call)[first:])

    def acts(name: str) -> bool:
        without = {own: x for own, x in call.items() if own != name and name not in arguments[own].needs}
        try:
            pairs = zip(whole(), results(operation, without)[first:], strict=False)
            return any(a.shape != b.shape or bool((np.abs(a - b) > least).any()) for a, b in pairs)
        except ArgumentError:  # another argument needs it
            return True

    about = "acts", operation, call, least, first
    return frozenset(name for name in names if decide(partial(acts, name), name, *about))


@decision
def each_acts(operation: str, call: Mapping[str, Any], changes: Arguments) -> bool:
    """Whether a call with any one of some changes differs by more than a number, or is refused."""
    whole = results(operation, call)
    for name, x in changes.items():
        with suppress(ArgumentError), np.errstate(invalid="ignore"):
            pairs = zip(whole, results(operation, {**call, name: x}), strict=True)
            if not any((np.abs(a - b) > _EFFECT).any() for a, b in pairs):
                return False
    return True


def results(operation: str, call: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the results of the reference for a call."""
    arrays = OPERATIONS[operation].arrays
    named = {name: x for name, x in call.items() if name not in arrays}
    results = function(operation)(*(call[name] for name in arrays), **named)
    return results if isinstance(results, tuple) else (results,)
