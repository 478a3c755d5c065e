"""The chapter `numerics`: sizes, broadcast axes, two dtypes and shared memory in all operations."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.case import Misuse
from attnspec.conformance.judge.layout import SHARED
from attnspec.conformance.suite.alone import each_acts, results
from attnspec.conformance.suite.decisions import decision
from attnspec.conformance.suite.drawn_stacks import Arguments, Sizes, draw_call
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.numbers_of_operations import with_two_axes
from attnspec.conformance.suite.whole_calls import ATTENDING, OTHERS, layers_of, of_operation, whole_calls
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS
from attnspec.reference import ArgumentError
from attnspec.sizes import bound, is_array, shape_of, turned

chapter = Chapter("numerics")

#: One of each axis; more heads and sequences than 8 and depths than 32; and arrays of one shape.
_ONE = Sizes(
    queries=(1,),
    keys=(1,),
    heads=(1, 1),
    depths=(1, 1),
    page=1,
    latent=(1, 1),
    blocks=(1, 1),
    spare=0,
    listed=1,
    encoding="int8",
)
_MANY = Sizes(
    queries=(2, 1) * 5, keys=(3, 9) * 5, heads=(10, 2), depths=(40, 36), latent=(38, 34), encoding="int8"
)
_ALIKE = Sizes(queries=(5, 3), keys=(5, 3), heads=(2, 2), depths=(4, 4), latent=(4, 4), encoding="int8")
#: The sizes of an axis of a companion.
_SIZES = (1, 40)
#: The share of keys that a drawn mask allows.
_KEPT = 0.7
#: Letters whose sizes follow from a word of the call, such as an encoding, or are few.
_FIXED = ("Y", "A", "Z", "X")
#: Letters that are alike in a call with the same tokens or heads.
_TOGETHER = ({"Hq", "Hkv"}, {"E", "E'"})
#: The ends of the names of arrays with an axis of entries.
_LISTS = ("counts", "indices")
#: The quick part has one in so many cases, as each is of another operation or axis.
_STEP = 5
#: As many numbers of problems as the calls of one operation have.
_TURNS = 8


@chapter.group("NUM-2", each=("one", "many"), step=_STEP)
def forms_of_sizes(draw: Draw, sizes: str) -> Iterator[Yielded]:
    """Every axis of a form or stack has the size 1, or most have more than 8."""
    own = {"one": _ONE, "many": _MANY}[sizes]
    for random, _, fit in draw_in_turn(draw, *(replace(own, name=name) for name in ATTENDING)):
        call = of_operation(random, fit.name, draw_call(random, "float32", layers_of(fit.name), fit))
        yield Call(call, operation=fit.name)


@chapter.group("NUM-2", step=_STEP)
def companions_of_sizes(draw: Draw) -> Iterator[Yielded]:
    """An axis of a companion has the size 1, or 40."""
    for place, operation in enumerate(OTHERS):
        calls = whole_calls(draw, operation, "float32", _TURNS * place)
        letters = {letter for call in calls for letter in bound(operation, call)[0].letters}
        for letter, other in product(sorted(letters - {*_FIXED}), _SIZES):
            changed = (resize(operation, call, letter, other) for call in calls)
            if valid := next((call for call in changed if call and is_valid(operation, call)), None):
                yield Call(valid, operation=operation)


def resize(operation: str, call: Mapping[str, Any], letter: str, size: int) -> Arguments:
    """Give an axis another size in all arrays: the first numbers, then them again, halved each time.

    Returns an empty call if the axis has this size, is empty or is not there.
    """
    known, changed = OPERATIONS[operation].arguments, dict(call)
    letters = bound(operation, call)[0].letters
    if letters.get(letter, 0) in (0, size):
        return {}
    together = next(pair for pair in (*_TOGETHER, {letter}) if letter in pair) & {*letters}
    for name, x in call.items():
        argument = known[name]
        if argument.binds in together:
            changed[name] = size
        if not is_array(x) or not argument.shape:
            continue
        shape = turned(argument.shape) if call.get("convention") in argument.turns else argument.shape
        for place, expression in enumerate(shape):
            factors = expression.split("*") if expression != BATCH else []
            axis = place - len(shape) if BATCH in shape[:place] else place
            if not together & {*factors} or -axis > changed[name].ndim:
                continue
            if not argument.broadcasts or changed[name].shape[axis] > 1:
                sizes = [letters[own] if own in letters else int(own) for own in factors]
                changed[name] = _resize_axis(changed[name], axis, factors, sizes, together, size)
    return changed


def _resize_axis(
    x: Any, axis: int, factors: list[str], sizes: list[int], together: set[str], size: int
) -> Any:
    axis %= x.ndim
    split = x.reshape(*x.shape[:axis], *sizes, *x.shape[axis + 1 :])
    for place, factor in enumerate(factors):
        if factor in together:
            index = np.arange(size)
            split = split.take(index % sizes[place], axis + place)
            if x.dtype.kind == "f":
                weights = (0.5 ** (index // sizes[place])).astype(x.dtype)
                split = split * weights.reshape(-1, *[1] * (split.ndim - axis - place - 1))
    width = prod(split.shape[axis : axis + len(factors)])
    return split.reshape(*x.shape[:axis], width, *x.shape[axis + 1 :])


@decision
def is_valid(operation: str, call: Mapping[str, Any]) -> bool:
    """Whether the reference takes a call."""
    try:
        results(operation, call)
    except ArgumentError:
        return False
    return True


@chapter.group("NUM-2", step=_STEP)
def axes_that_broadcast(draw: Draw) -> Iterator[Yielded]:
    """Masks and biases of a call are equal for all heads, queries or keys, or for all but the keys."""
    for place, operation in enumerate(name for name in OPERATIONS if primal(name) not in STACKS):
        calls = whole_calls(draw, operation, "float32", _TURNS * place, partial(_shows_each, operation))
        narrowed = (
            _narrow_calls(operation, call) for call in (*calls, _with_mask(draw, operation, calls[0]))
        )
        for call in next((calls for calls in narrowed if calls), ()):
            yield Call(call, operation=operation)


def _shows_each(operation: str, call: Arguments) -> bool:
    """Whether a mask or bias that is ignored changes the results, however it broadcasts."""
    names = _masks_and_biases(operation, call)
    for own in _narrow_calls(operation, call):
        ignored = {name: np.full_like(own[name], own[name].dtype == bool) for name in names}
        if not each_acts(operation, own, ignored):
            return False
    return True


def _with_mask(draw: Draw, operation: str, call: Mapping[str, Any]) -> Arguments:
    """Give a call two batch axes and a mask, if the operation has one."""
    own = with_two_axes(operation, call)
    mask = OPERATIONS[operation].arguments.get("mask")
    if mask is None:
        return own
    shape = shape_of(mask.shape, bound(operation, own)[0])
    return own | {"mask": np.random.default_rng(draw.number()).random(shape) < _KEPT}


def _masks_and_biases(operation: str, call: Mapping[str, Any]) -> Arguments:
    known = OPERATIONS[operation].arguments
    wide = {name: x for name, x in call.items() if known[name].broadcasts and np.ndim(x) > 1}
    return {name: x for name, x in wide.items() if x.dtype.kind in "bf"}


def _narrow_calls(operation: str, call: Arguments) -> list[Arguments]:
    """Make the masks and biases of a call narrow in each way."""
    wide = _masks_and_biases(operation, call)
    batch = (bound(operation, call)[0].batch or ()) if wide else ()
    return [call | narrow for narrow in _narrow(operation, wide, batch)]


def _narrow(operation: str, wide: Arguments, batch: tuple[int, ...]) -> Iterator[Arguments]:
    """Yield arrays with an axis of 1, in turn; of the keys alone; and of the entries and the keys."""
    for turn in range(3 if wide else 0):  # the last three axes
        axes = {name: -1 - (index + turn) % min(3, x.ndim) for index, (name, x) in enumerate(wide.items())}
        yield {name: wide[name].take([-1], axis) for name, axis in axes.items()}
    rows = {name: x[(0,) * (x.ndim - 1)] for name, x in wide.items()}
    if rows:
        yield rows
        ones = {name: [1] * (len(OPERATIONS[operation].arguments[name].shape) - 2) for name in rows}
        entries = {name: [np.roll(x, index) for index in range(prod(batch))] for name, x in rows.items()}
        yield {name: np.stack(x).reshape(*batch, *ones[name], -1) for name, x in entries.items()}


@chapter.group("MASK-1", "SCORE-4", "DROP-1", "SPARSE-1", "QUANT-5", step=_STEP)
def arrays_of_no_axes(draw: Draw) -> Iterator[Yielded]:
    """A mask, a bias, scales or zero points are one number in an array without axes."""
    for place, operation in enumerate(name for name in OPERATIONS if primal(name) not in STACKS):
        known, met = OPERATIONS[operation].arguments, set[str]()
        for call in whole_calls(draw, operation, "float32", _TURNS * place):
            wide = {name: x for name, x in call.items() if known[name].broadcasts}
            single = {name: np.asarray(x.max()) for name, x in wide.items() if not name.endswith(_LISTS)}
            if not {*single} <= met:
                met |= {*single}
                rules = tuple(dict.fromkeys(known[name].rule for name in single))
                yield Call(call | single, rules, operation=operation)


@chapter.group("SCORE-3")
def scale_of_zero_in_companions(draw: Draw) -> Iterator[Yielded]:
    """A scale of 0 is no scale that was left out."""
    for place, operation in enumerate(name for name in OTHERS if "scale" in OPERATIONS[name].arguments):
        call = whole_calls(draw, operation, "float32", _TURNS * place)[0]
        yield Call(call | {"scale": 0.0}, operation=operation)


@chapter.group("NUM-8", step=_STEP)
def shared_memory(draw: Draw) -> Iterator[Yielded]:
    """Arrays of one shape are one array in memory, as those of self-attention."""
    for random, _, fit in draw_in_turn(draw, *(replace(_ALIKE, name=name) for name in ATTENDING)):
        call = of_operation(random, fit.name, draw_call(random, "float32", layers_of(fit.name), fit))
        first: dict[Any, str] = {}
        for name, x in call.items():
            # The shape of scales depends on the granularity that is drawn.
            if is_array(x) and x.dtype.kind == "f" and not name.endswith("_scales"):
                first.setdefault((x.shape, x.dtype), name)
        shared = {name: first.get((np.shape(x), getattr(x, "dtype", None)), name) for name, x in call.items()}
        shared |= {name: name for name in call if name.endswith("_scales")}
        if layout := {name: SHARED + other for name, other in shared.items() if other != name}:
            call = {name: call[other] for name, other in shared.items()}
            yield Call(call, operation=fit.name, layout=layout)


@chapter.group("ERR-1", step=_STEP)
def arrays_of_two_dtypes(draw: Draw) -> Iterator[Yielded]:
    """An array of float32 beside half precision, or of half beside it, is refused or used at its values."""
    for place, operation in enumerate(OPERATIONS):
        known, dtypes = OPERATIONS[operation].arguments, ("float16", "float32")
        calls = [whole_calls(draw, operation, dtype, _TURNS * place)[0] for dtype in dtypes]
        alike = [name for name, x in calls[0].items() if "mixed" in known[name].refusals and is_array(x)]
        for turn, name in enumerate(alike[1:], start=place):
            call, other = calls[turn % 2], dtypes[(turn + 1) % 2]
            cast = call | {name: call[name].astype(other)}
            yield Call(cast, operation=operation, misuse=Misuse(name, allowed=True))
