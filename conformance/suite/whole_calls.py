"""Draws calls of any operation that together have every argument it takes."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.judge.dtypes import in_dtype, is_real, lse_dtype
from attnspec.conformance.suite.alone import acts, results
from attnspec.conformance.suite.decisions import decision
from attnspec.conformance.suite.drawn_stacks import (
    Arguments,
    Random,
    Sizes,
    draw_call,
    draw_together,
)
from attnspec.conformance.suite.group import Draw, drawn_cases
from attnspec.conformance.suite.problem import grid
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.operation import primal
from attnspec.sizes import is_array, misfits, output_shapes

#: The operations that take queries, keys and values, or codes of them, and options of attention.
ATTENDING = tuple(name for name, form in OPERATIONS.items() if form.reduces or primal(name) == "attention")
#: The other ones.
OTHERS = tuple(name for name in OPERATIONS if name not in ATTENDING)
#: Two sequences of a few queries, or two batch entries.
_SIZES = Sizes(queries=(3, 2), keys=(7, 5), heads=(2, 1), encoding="int8", listed=9)
#: A step between codes of 8 bits.
_STEP = 1 / 16
#: How often a call is drawn. One of lists of blocks may have a mask of blocks instead.
_MOST_DRAWS = 200
#: Whether a call serves a group.
Suits = Callable[[Arguments], bool]


def draw_with(
    draw: Draw, operation: str, dtype: str, *options: str, index: int = 0, suits: Suits = bool
) -> Arguments:
    """Draw a call of an operation that attends, with some options of `drawn_stacks`."""
    make = lambda *given: draw_call(*given, *options)  # noqa: E731  # for one use
    return _draw(draw, operation, index, "block_mask", make, dtype, suits)


def _draw(
    draw: Draw,
    operation: str,
    index: int,
    without: str,
    make: Callable[..., Arguments],
    dtype: str,
    suits: Suits,
) -> Arguments:
    """Draw a call of the forms of an operation, and make it one of the operation."""
    random = np.random.default_rng(draw.number(index))
    ((_, _, sizes), *_) = draw_in_turn(draw, _SIZES)
    for _ in range(_MOST_DRAWS):
        call = make(random, dtype, layers_of(operation), sizes)
        own = of_operation(random, operation, call)
        if without not in own and suits(own) and gives_numbers(operation, own):
            break
    return own


@decision
def gives_numbers(operation: str, call: Arguments) -> bool:
    """Whether the first result of a call has a number besides 0."""
    return bool(results(operation, call)[0].any())


def layers_of(operation: str) -> tuple[str, ...]:
    """Return the forms in which the arrays of an operation are drawn."""
    layers = OPERATIONS[primal(operation)].layers
    return () if layers == ("sharded",) else layers


def of_operation(random: Random, operation: str, call: Arguments) -> Arguments:
    """Add what an operation needs besides, and leave out what it does not take."""
    own = primal(operation)
    if own == "sharded_attention":
        queries, keys = call["query"].shape[-2], call["key"].shape[-2]
        ends = {"query_shards": (min(2, queries), queries), "key_shards": (min(3, keys), keys)}
        ends["head_shards"] = (0, call["query"].shape[-3])
        call |= {name: np.array([0, *end]) for name, end in ends.items()}
    if own == "seeded_dropout_attention":
        call |= {"dropout_p": 0.0, "seed": 1}
    if own == "low_precision_attention":
        for name in ("query", "key", "value"):
            array = call[name].astype(np.float64)
            call[f"{name}_codes"] = np.clip(np.rint(array / _STEP), -127, 127).astype(np.int8)
            call[f"{name}_scales"] = np.full((*array.shape[:-1], 1), _STEP, call[name].dtype)
    known = OPERATIONS[operation].arguments
    asked = {name: x for name, x in call.items() if name in known}
    return asked | (draw_cotangents(random, own, asked) if operation != own else {})


def draw_cotangents(random: Random, operation: str, call: Arguments) -> Arguments:
    """Draw cotangents of the output and the lse of a call."""
    dtype = str(call["query"].dtype)
    shapes = output_shapes(operation, call)
    return {
        "d_output": grid(random, shapes["output"], 1.0).astype(dtype),
        "d_lse": grid(random, shapes["lse"], 1.0).astype(lse_dtype(dtype)),
    }


def whole_calls(
    draw: Draw, operation: str, dtype: str, index: int = 0, suits: Suits = bool
) -> tuple[Arguments, ...]:
    """Draw valid calls of an operation in a dtype that together have each of its arguments.

    Those of an operation that attends are drawn again until they suit.
    """
    if operation in OTHERS:
        return tuple(in_dtype(deepcopy(call), dtype) for call in _of_groups(operation, draw.seed))
    calls = [
        _draw(draw, operation, index + turn, without, partial(_together, together), dtype, suits)
        for turn, (together, without) in enumerate((("offsets", "block_mask"), ("positions", "block_counts")))
    ]
    if "new_key" in OPERATIONS[operation].arguments:
        cases = drawn_cases(operation, Draw("whole calls", draw.seed).number())
        calls.append(in_dtype(next(x.arguments for x in cases if "new_key" in x.arguments), dtype))
    return tuple(calls)


def _together(together: str, random: Random, dtype: str, layers: tuple[str, ...], sizes: Sizes) -> Arguments:
    return draw_together(random, dtype, layers, sizes, together)


@cache
def _of_groups(operation: str, seed: int | None) -> tuple[Arguments, ...]:
    """Choose drawn cases of an operation, so that each of its arguments has an effect in one of them."""
    number = Draw("whole calls", seed).number()
    cases = [case for case in drawn_cases(operation, number) if not misfits(operation, case.arguments)]
    chosen, met = [], set[str]()
    for case in sorted(cases, key=lambda case: -len(case.arguments)):
        call = {name: x for name, x in case.arguments.items() if x is not None}
        new = {name for name in {*call} - met if _is_full(call) and _has_effect(operation, call, name)}
        chosen += [call] if new else []
        met |= new
    return tuple(chosen)


def _is_full(call: Arguments) -> bool:
    """Whether the first array of a call has several numbers, and none of its arrays has NaN or infinity."""
    arrays = [x for x in call.values() if isinstance(x, np.ndarray)]
    real = (x.astype(np.float64) for x in arrays if x.dtype != bool)
    return arrays[0].size > 1 and all((x < np.inf).all() for x in real)


def _has_effect(operation: str, call: Arguments, name: str) -> bool:
    """Whether a call without an argument, or with other real numbers in it, has other results."""
    argument, x = OPERATIONS[operation].arguments[name], call[name]
    if argument.kind != "number" and not is_real(x):
        return argument.required or acts(operation, call, name)
    changed = call | {name: np.flip(x) / 2 if is_array(x) else x / 2}
    more = {"return_attention_factor": True} if operation == "rotary_frequencies" else {}
    return _has_other_results(operation, call | more, changed | more)


@decision
def _has_other_results(operation: str, call: Arguments, changed: Arguments) -> bool:
    pairs = zip(*(results(operation, given) for given in (call, changed)), strict=True)
    # The order of a list does not count.
    ordered = ([np.sort(x) if x.dtype.kind == "i" else x for x in pair] for pair in pairs)
    return any(not np.array_equal(own, other, equal_nan=True) for own, other in ordered)
