"""The chapter `numerics`: digits, strides, minus infinity and batch axes of all operations."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.judge.dtypes import in_dtype, is_real
from attnspec.conformance.relations.nan import judge_elsewhere
from attnspec.conformance.suite.alone import each_acts, results
from attnspec.conformance.suite.decisions import decision
from attnspec.conformance.suite.drawn_stacks import Arguments, Random
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.whole_calls import ATTENDING, OTHERS, draw_with, whole_calls
from attnspec.dtypes import DTYPES, FORMATS, SHORT
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import primal
from attnspec.sizes import bound, is_array

chapter = Chapter("numerics")

#: The largest relative change of a number. Two scores closer than a float32 tells apart are changed by less.
_CHANGE, _CLOSE = 2.0**-12, 2.0**-40
#: As many numbers of problems as the calls of one operation have.
_TURNS = 8
#: The rows of a call without a key, in sequences of three queries and two.
_EMPTY = (0, 2)


@chapter.group("NUM-2")
def every_digit_of_an_argument(draw: Draw) -> Iterator[Yielded]:
    """The arrays and numbers of a call in float64 have digits that float32 does not hold."""
    for place, operation in enumerate(OPERATIONS):
        calls = whole_calls(draw, operation, "float64", _TURNS * place)
        random = np.random.default_rng(draw.number(_TURNS * place))
        for call in calls[:1] if operation in ATTENDING else calls:
            yield Call(with_digits(random, operation, call), operation=operation)


def with_digits(random: Random, operation: str, call: Mapping[str, Any]) -> Arguments:
    """Change each number of a call a little, so that float32 does not hold it."""
    changed = {}
    for name, x in call.items():
        if operation == "select_keys" and name == "scores":
            changed[name] = 1 + x * _CLOSE  # equal in float32
        elif is_array(x) and x.dtype == np.float64:
            changed[name] = x * (1 + random.random(x.shape) * _CHANGE)
        elif type(x) is float and OPERATIONS[operation].arguments[name].kind == "number":
            changed[name] = x * (1 + float(random.random()) * _CHANGE)
    if call.get("scaling") == "yarn":
        changed["truncate"] = False
    return {**call, **changed}


@chapter.group("NUM-8")
def strides_of_every_argument(draw: Draw) -> Iterator[Yielded]:
    """Every array of a call is every second number of a longer one."""
    yield from _laid(draw, "sliced", ("float32",))


@chapter.group("NUM-8")
def strides_below_zero(draw: Draw) -> Iterator[Yielded]:
    """Every array of a call is stored from its last number on, cotangents and positions too."""
    yield from _laid(draw, "reversed", ("float32", "float64"))


@chapter.group("NUM-8")
def strides_of_zero(draw: Draw) -> Iterator[Yielded]:
    """All entries or heads share one part of each array, by a stride of 0."""
    yield from _laid(draw, "expanded", ("float64",))


#: The operations that every run judges in float32.
_PLAIN = ("attention", "attention_vjp")


def _laid(draw: Draw, layout: str, dtypes: tuple[str, ...]) -> Iterator[Call]:
    """Draw whole calls of each operation in one of some dtypes, all of whose arrays have a layout."""
    for place, operation in enumerate(OPERATIONS):
        rules = ("NUM-8", *(("GRAD-15",) if operation.endswith("_vjp") else ()))
        dtype = "float32" if operation in _PLAIN else dtypes[place % len(dtypes)]
        suits = partial(_shows_strides, operation) if layout == "sliced" else bool
        for call in whole_calls(draw, operation, dtype, _TURNS * place, suits):
            names = [name for name, x in call.items() if is_array(x) and x.ndim]
            changed: Arguments = {}
            if layout == "expanded":
                names = [name for name in names if _may_be_equal(operation, name)]
                changed = {name: _equal(call[name]) for name in names}
            elif layout == "sliced" and operation in OTHERS:
                small = (name for name in ("lengths", "sections") if name in names)
                changed = {name: _not_one_last(call[name]) for name in small}
            yield Call(call | changed, rules, operation=operation, layout=dict.fromkeys(names, layout))


def _shows_strides(operation: str, call: Arguments) -> bool:
    """Whether a call shows each of its arrays of integers or booleans that is read without its strides."""
    few = {name: x for name, x in call.items() if is_array(x) and x.ndim and x.dtype.kind in "bi"}
    read = {name: _without_strides(x) for name, x in few.items()}
    equal = any(np.array_equal(x, read[name]) for name, x in few.items())  # often, and soon found
    return not equal and each_acts(operation, call, dict(reversed(read.items())))


def _without_strides(x: Any) -> Any:
    """Read an array from the memory of `sliced`, which has a one behind each number."""
    return np.stack([x, np.ones_like(x)], axis=-1).ravel()[: x.size].reshape(x.shape)


def _not_one_last(x: Any) -> Any:
    """Move one from a number to the last one, if this is equal to the ones between them."""
    if x[-1] != 1:
        return x
    return np.array([*x[:-2], x[-2] - 1, 2], x.dtype)


def _may_be_equal(operation: str, name: str) -> bool:
    """Whether the parts of an array along its first axis may be equal: batch entries or heads."""
    return OPERATIONS[operation].arguments[name].shape[:1] in ((BATCH,), ("Hq",), ("Hkv",))


def _equal(x: Any) -> Any:
    """Give each part of an array along its first axis the numbers of the first one."""
    return np.broadcast_to(x[:1], x.shape).copy()


#: Operations that move numbers, and of each how to draw a call that moves some.
_MOVED: Mapping[str, tuple[str, Callable[[Any], Arguments]]] = {
    "split_heads": ("HEAD-3", lambda x: {"features": x, "heads": 3}),
    "merge_heads": ("HEAD-4", lambda x: {"split": x}),
    "append_cache": ("CACHE-1", lambda x: {"cache": x, "new": x[..., :1, ::-1].copy(), "lengths": 1}),
    "gather_pages": ("CACHE-4", lambda x: {"pages": x, "block_table": np.array([1, 0])}),
    "rotary": ("POS-4", lambda x: {"features": _beside_zeros(x), "rotary_depth": 2}),
}


def _beside_zeros(x: Any) -> Any:
    """Put two features of 0 before others, which are turned into zeros."""
    return np.concatenate([np.zeros((*x.shape[:-1], 2), x.dtype), x], axis=-1)


@chapter.group("HEAD-3", "HEAD-4", "CACHE-1", "CACHE-4", "POS-4", each=tuple(_MOVED))
def every_kind_of_number_is_moved(draw: Draw, operation: str) -> Iterator[Yielded]:
    """NaN, both infinities, the largest, smallest and subnormal numbers keep their last bit."""
    rule, make = _MOVED[operation]
    for dtype, form in FORMATS.items():
        random, least = np.random.default_rng(draw.number()), form.subnormal
        kinds = [np.nan, np.inf, form.largest, form.normal, form.normal - least, 3 * least, least, 1.0]
        numbers = random.permutation([*kinds, *np.negative(kinds[1:]), 0.0] * 3)  # each in every head or page
        yield Call(make(numbers.reshape(2, 2, 2, 6).astype(dtype)), (rule,), operation=operation)


@chapter.group("MASK-2", "SOFT-5", "STACK-2")
def minus_infinity_in_bias_and_sinks(draw: Draw) -> Iterator[Yielded]:
    """Some rows have a bias of minus infinity at each key, and some heads a sink of minus infinity."""
    for place, operation in enumerate(ATTENDING):
        suits = partial(_reaches_rows, operation)
        call = draw_with(draw, operation, "float32", "bias", "sinks", index=place, suits=suits)
        call["bias"][[*_EMPTY], :] = call["bias"][:, 1] = -np.inf
        call["sinks"][0] = -np.inf
        rules = ("MASK-2", "SOFT-5", *(("STACK-2",) if OPERATIONS[primal(operation)].layers else ()))
        yield Call(call, rules, operation=operation)


@decision
def _reaches_rows(operation: str, call: Arguments) -> bool:
    """Whether the rows that a bias leaves without a key have some before, in the head without a sink."""
    return bool(results(operation, call)[0][..., 0, [*_EMPTY], :].any())


#: The operations whose arrays have one batch axis at most elsewhere, and that are no form.
_OF_ONE_AXIS = (
    *("projection", "self_attention", "multi_head_attention", "multi_head_attention_vjp"),
    *("append_cache", "gather_pages", "alibi_bias", "alibi_bias_vjp", "dequantize_blocks"),
    *("sharded_attention", "sharded_attention_vjp", "low_precision_attention", "attention_vjp"),
)


@chapter.group("SHAPE-1")
def two_batch_axes_of_operations(draw: Draw) -> Iterator[Yielded]:
    """The arrays of an operation have two batch axes."""
    for place, operation in enumerate(_OF_ONE_AXIS):
        call = whole_calls(draw, operation, "float32", _TURNS * place)[0]
        yield Call(with_two_axes(operation, call), operation=operation)


def with_two_axes(operation: str, call: Mapping[str, Any], count: int = 2) -> Arguments:
    """Put a call and one of other numbers beside each other until there are two batch axes, or as many."""
    changed, known = dict(call), OPERATIONS[operation].arguments
    for axes in range(len(bound(operation, call)[0].batch or ()), count):
        for name, x in changed.items():
            shape = known[name].shape
            if is_array(x) and BATCH in shape and x.ndim == len(shape) - 1 + axes:
                other = np.flip(x) if x.dtype.kind == "f" else x
                changed[name] = np.stack([x, other], axis=shape.index(BATCH))
    return changed


@chapter.group("SHAPE-9")
def nan_in_one_batch_entry(draw: Draw) -> Iterator[Yielded]:
    """NaN in each array of the last batch entry reaches the results of no other entry."""
    for place, operation in enumerate(OTHERS):
        known, results = OPERATIONS[operation].arguments, OPERATIONS[operation].results
        places = {x.name: (slice(None),) * x.shape.index(BATCH) + (-1,) for x in results if BATCH in x.shape}
        random = np.random.default_rng(draw.number(place))
        for dtype in ("float32", SHORT[place % len(SHORT)]) if places else ():
            for drawn in whole_calls(draw, operation, dtype):
                clean = with_two_axes(operation, drawn, 1)
                spoiled = dict(clean)
                for name, x in clean.items():
                    if (
                        BATCH in known[name].shape
                        and is_real(x)
                        and x.size
                        and x.ndim >= len(known[name].shape)
                    ):
                        own = spoiled[name] = x.copy()
                        entry = np.moveaxis(own, known[name].shape.index(BATCH), 0)[-1]
                        entry[tuple(random.integers(entry.shape))] = np.nan
                whole = {x.name: ... for x in results if BATCH not in x.shape}
                calls = (Call(clean, operation=operation), Call(spoiled, operation=operation))
                if any(spoiled[name] is not x for name, x in clean.items()):
                    yield Calls(calls, partial(judge_elsewhere, places | whole))


#: Operations each row of whose result depends on one row of their first array, and their rules.
_BY_ROW = {
    "projection": ("PROJ-1", "PROJ-2"),
    "multi_head_attention": ("HEAD-6", "NUM-11"),
    "rotary": ("POS-1", "POS-4"),
}


@chapter.group(*(rule for rules in _BY_ROW.values() for rule in rules), each=tuple(_BY_ROW))
def nan_in_one_row(draw: Draw, operation: str) -> Iterator[Yielded]:
    """NaN in a token or in a row of features reaches no other row, nor features that are not rotated."""
    random, form = np.random.default_rng(draw.number()), OPERATIONS[operation]
    for turn, drawn in enumerate(whole_calls(draw, operation, "float64")):
        if operation == "multi_head_attention" and "memory" not in drawn:
            continue  # a token that is a key reaches all rows
        columns = drawn.get("convention") == "column"
        for dtype in dict.fromkeys(("float32", DTYPES[turn % len(DTYPES)])):
            clean = in_dtype(drawn, dtype)
            spoiled = clean[form.arrays[0]].copy()
            rows = np.swapaxes(spoiled, -1, -2) if columns else spoiled
            place = tuple(int(random.integers(size)) for size in rows.shape[:-1])
            features = slice(clean.get("rotary_depth"))
            rows[place][random.integers(rows[place][features].size)] = np.nan
            reached = (*place[:-1], slice(None), place[-1]) if columns else (*place, features)
            calls = (clean, clean | {form.arrays[0]: spoiled})
            yield Calls(
                tuple(Call(call, operation=operation) for call in calls),
                partial(judge_elsewhere, {form.results[0].name: reached}),
                _BY_ROW[operation],
            )
