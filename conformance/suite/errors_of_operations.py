"""The chapter `errors`: integers out of range, calls before others, and cotangents of each operation."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from attnspec import OPERATIONS, find_rule
from attnspec.case import Misuse
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.relations.memory import each_in_turn, in_any_surroundings
from attnspec.conformance.suite.drawn_stacks import Arguments
from attnspec.conformance.suite.faults import SIZES, fitting, with_needs
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.malformed import further, make_calls, malformed, options_in_turn
from attnspec.conformance.suite.malformed_call import Malformed, make_call
from attnspec.conformance.suite.whole_calls import ATTENDING, OTHERS, draw_with, whole_calls
from attnspec.operations import Argument
from attnspec.operations.letters import value_of
from attnspec.operations.operation import primal
from attnspec.operations.quantization import RANGES
from attnspec.sizes import bound, is_array

chapter = Chapter("errors")

#: The options with lengths, by argument.
_LENGTHS = {"query_lengths": "query lengths", "key_lengths": "key lengths", "left_padding": "left padding"}
#: The limits of integers that the declarations leave to a rule, or that have none but a word for nothing.
_MOST = {"block_table": "P", "block_indices": "S/Sb"}
#: So much larger are scales, so that a code in place of another one shows.
_LARGER = 64


@chapter.group("ERR-19")
def memory_around_every_operation(draw: Draw) -> Iterator[Yielded]:
    """Lengths, boundaries and entries of tables and lists are past their range and before it."""
    for place, operation in enumerate(ATTENDING):
        known = OPERATIONS[operation].arguments
        for name in (name for name, argument in known.items() if _is_limited(argument)):
            option = _LENGTHS[name] if name in _LENGTHS and not known[name].required else "nothing"
            call = draw_with(draw, operation, "float32", option, index=place)
            call = {own: x * _LARGER if own.endswith("_scales") else x for own, x in call.items()}
            yield _around(operation, call, name, _limits(operation, call, known[name]))
    for call in whole_calls(draw, "rotary_vjp", "float32"):
        for name in (own for own in ("positions", "offset") if own in call and "cosines" in call):
            yield _around("rotary_vjp", call, name, (0, len(call["cosines"]) - 1))


def _is_limited(argument: Argument) -> bool:
    integers = argument.kind == "integers" or (argument.kind == "array" and argument.numbers == "integer")
    limited = argument.bounds is not None and argument.bounds.most != ""
    return integers and (limited or argument.name in _MOST)


def _limits(operation: str, call: Mapping[str, Any], argument: Argument) -> tuple[int, int]:
    """Return the smallest and the largest integer that an argument of a call may hold."""
    letters = bound(operation, call)[0].letters
    if "query_block" in call:
        letters |= {"Lb": call["query_block"], "Sb": call["key_block"]}
    bounds = argument.bounds
    most = _MOST.get(argument.name) or str(bounds and bounds.most)
    below = argument.name in _MOST or bool(bounds and bounds.below)
    return (bounds.least if bounds else 0), (value_of(most, letters) or 0) - below


def _around(operation: str, call: Arguments, name: str, limits: tuple[int, int]) -> Calls:
    """Put integers after the largest and before the smallest one into an argument."""
    least, most = limits
    if not is_array(call[name]):
        wrong: list[Any] = [most + 1, least - 1]
    else:
        wrong = [np.full_like(call[name], number, dtype=np.int64) for number in (most + 1, least - 1)]
        if OPERATIONS[operation].arguments[name].ascending:
            wrong = [np.array([*call[name][:-1], most + 1]), np.array([least - 1, *call[name][1:]])]
    calls = tuple(Call({**call, name: x}, operation=operation) for x in wrong)
    return Calls(calls, in_any_surroundings, live=True, bits=True)


@chapter.group("ERR-13")
def other_numbers_in_turn(draw: Draw) -> Iterator[Yielded]:
    """Calls of an operation that differ in the numbers of one array come after one another."""
    for operation in OTHERS:
        for call in whole_calls(draw, operation, "float32"):
            arrays = (name for name, x in call.items() if is_array(x) and x.dtype.kind == "f")
            others = ({**call, name: call[name] / 2} for name in arrays)
            calls = (Call(own, operation=operation) for own in (call, *others))
            yield Calls(tuple(calls), each_in_turn, live=True)


@chapter.group("GRAD-16")
def cotangents_of_another_shape(draw: Draw) -> Iterator[Yielded]:
    """A cotangent has one number more in its last axis, or one entry more in its first one."""
    for place, operation in enumerate(name for name in OPERATIONS if name.endswith("_vjp")):
        call = whole_calls(draw, operation, "float32", place)[0]
        for name in (name for name in call if name.startswith("d_")):
            for axis in (0, -1):
                more = np.concatenate([call[name], np.take(call[name], [0], axis)], axis)
                yield Call({**call, name: more}, operation=operation, misuse=Misuse(name))


@chapter.group("ERR-3", each=tuple(further()), step=6)
def refused_besides(_draw: Draw, operation: str) -> Iterator[Yielded]:
    """A call with a rarer fault of an argument raises an error, without a result beside the first."""
    yield from map(_refused, further()[operation])


@chapter.group("ERR-3", step=6)
def options_refused_in_turn(_draw: Draw) -> Iterator[Yielded]:
    """An option of a form or of gradients without another one, or with a rarer fault, raises an error."""
    yield from map(_refused, options_in_turn())


@chapter.group("ERR-3", step=6)
def gradients_of_refused_calls(_draw: Draw) -> Iterator[Yielded]:
    """What an operation rejects, its gradients reject: each kind of fault, and each number out of range."""
    asked = chain(malformed(), *further().values(), options_in_turn())
    met = {(call.operation, call.argument, call.rule, call.kind) for call in asked}
    gradients = (name for name, form in OPERATIONS.items() if name.endswith("_vjp") and not form.stacked)
    for operation in gradients:
        forward = OPERATIONS[primal(operation)].arguments.keys() - OPERATIONS["attention"].arguments.keys()
        for call in make_calls(operation):
            kind = operation, call.argument, call.rule, call.kind
            must = call.required and find_rule(call.rule).level == "MUST"
            # A depth of 0 is that of an array of attention.
            own = call.argument in forward or call.rule == "ERR-5"
            if must and own and (kind not in met or call.kind == "bounds"):
                met.add(kind)
                yield _refused(call)


@chapter.group("ERR-16", step=6)
def arrays_shorter_than_an_lse(_draw: Draw) -> Iterator[Yielded]:
    """An array of the dtype of an lse has float32 beside float64."""
    for operation, form in OPERATIONS.items():
        for argument in (x for x in form.arguments.values() if x.numbers == "lse" and not form.stacked):
            call = in_dtype(fitting(operation) | with_needs(operation, argument), "float64")
            call |= {argument.name: call[argument.name].astype(np.float32)}
            first = (form.results[0].name,)
            yield Call(call, operation=operation, misuse=Misuse(argument.name), outputs=first)


@chapter.group("QUANT-15", step=6)
def codes_past_each_encoding(_draw: Draw) -> Iterator[Yielded]:
    """A code that no byte holds raises an error, whatever encoding of 8 bits the codes have."""
    for operation, argument in _each(lambda argument: argument.name.endswith("codes")):
        for encoding in (x for x in RANGES if RANGES[x] == RANGES["int8"] and x != "int8"):
            good = with_needs(operation, argument) | {"encoding": encoding}
            past = good | {argument.name: np.full(good[argument.name].shape, 256, np.int64)}
            call = make_call(operation, argument, f"{encoding} past a byte", "", past, SIZES)
            yield _refused(replace(call, rule="QUANT-15"))


@chapter.group("ERR-16", step=6)
def nothing_for_a_value(_draw: Draw) -> Iterator[Yielded]:
    """None raises an error where the absence of an argument is another value."""
    places: dict[tuple[str, str], list[tuple[str, Argument]]] = {}
    for operation, argument in _each(lambda argument: argument.default is not None and not argument.required):
        if operation != "attention":
            own = "" if argument.name in OPERATIONS["attention"].arguments else operation
            places.setdefault((argument.name, own), []).append((operation, argument))
    for turn, found in enumerate(places.values()):  # one form in turn is asked about an argument of attention
        operation, argument = found[turn % len(found)]
        changes = with_needs(operation, argument) | {argument.name: None}
        call = make_call(operation, argument, "as nothing", "form", changes, SIZES)
        yield _refused(replace(call, rule="ERR-16"))


def _each(chosen: Callable[[Argument], bool]) -> Iterator[tuple[str, Argument]]:
    """Yield some arguments of each operation that combines no forms."""
    for operation, form in OPERATIONS.items():
        if not form.stacked and operation == primal(operation):
            yield from ((operation, argument) for argument in form.arguments.values() if chosen(argument))


def _refused(call: Malformed) -> Call:
    """Ask for the first result of a call that must be rejected."""
    arguments, misuse = in_dtype(call.arguments, "float32"), Misuse(call.argument, call.names)
    first = (OPERATIONS[call.operation].results[0].name,)
    return Call(arguments, (call.rule,), call.operation, misuse=misuse, outputs=first)
