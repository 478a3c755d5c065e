"""The chapter `errors`: what must be rejected, and options with an effect, alone and in pairs (ERR-3)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case, cases
from attnspec.backends import DTYPES, Backend
from attnspec.case import Misuse
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import in_dtype, in_each
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.relations.memory import in_any_surroundings, worst_of
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.faults import BATCHES, SIZES
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.malformed import malformed
from attnspec.conformance.suite.malformed_call import Malformed
from attnspec.conformance.suite.options import MASKS, NO_PAIRS, OPTIONS, draw_option
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Problem, Shape
from attnspec.conformance.verdict import Difference
from attnspec.operations.operation import primal

chapter = Chapter("errors")

_ARRAYS = ("query", "key", "value")
#: The shape of three arrays.
_ALIKE = Shape((2,), 3, 3, 4, 4)
_MALFORMED = {call.name: call.operation for call in malformed()}


@chapter.group("ERR-3", each=tuple(_MALFORMED))
def refused(draw: Draw, name: str) -> Iterator[Yielded]:
    """A call that cannot be honoured raises an error, whether it asks for more results or not."""
    other = ("float64", "float16", "bfloat16")[tuple(_MALFORMED).index(name) % 3]
    for call, dtype in product(_named(draw, name), ("float32", other)):
        misuse = Misuse(call.argument, call.names)
        outputs = (OPERATIONS[call.operation].results[0].name,) if dtype == "float32" else ()
        arguments = in_dtype(call.arguments, dtype)
        yield Call(arguments, (call.rule,), call.operation, misuse=misuse, outputs=outputs)


def _named(draw: Draw, name: str) -> list[Malformed]:
    """Return the malformed call with a name; none if sizes that fit do not allow it, as of swapped axes."""
    return [call for call in _malformed_calls(draw, _MALFORMED[name]) if call.name == name]


def _malformed_calls(draw: Draw, operation: str) -> tuple[Malformed, ...]:
    """Return malformed calls whose sizes fit the constraints, apart from the intended fault."""
    if primal(operation) != "attention":
        return malformed()
    own = Shape((*BATCHES, SIZES["Hq"]), SIZES["L"], SIZES["S"], SIZES["D"], SIZES["Dv"])
    fit = draw.fitted(own)
    sizes = (("L", fit.queries), ("S", fit.keys), ("D", fit.depth), ("Dv", fit.value_depth))
    return malformed(sizes if fit != own else ())


#: The rules on the ranges of integers that are lengths or places.
_RANGES = (
    *("ERR-9", "CACHE-2", "CACHE-5", "CACHE-8", "PACK-6"),
    *("PAGE-8", "POS-13", "QUANT-15", "SHARD-11", "SPARSE-11"),
)


@chapter.group("ERR-19", each=tuple(call.name for call in malformed() if call.rule in _RANGES))
def memory_around(draw: Draw, name: str) -> Iterator[Yielded]:
    """Integers out of range are refused, or the result is the same whatever lies around the arrays."""
    for call in _named(draw, name):
        given = Call(in_dtype(call.arguments, "float32"), operation=call.operation)
        yield Calls((given,), in_any_surroundings, live=True, bits=True)


@chapter.group("ERR-12", each=tuple(dict.fromkeys(call.operation for call in malformed())))
def named_in_the_error(draw: Draw, operation: str) -> Iterator[Yielded]:
    """The error of a call that is refused names the argument at fault."""
    for call in _malformed_calls(draw, operation):
        if call.operation == operation:
            misuse = Misuse(call.argument, call.names)
            yield Call(in_dtype(call.arguments, "float32"), operation=operation, misuse=misuse)


@chapter.group("ERR-12")
def named_in_the_error_of_a_golden_vector(_draw: Draw) -> Iterator[Yielded]:
    """The error of a golden vector that is refused names the argument at fault."""
    for case in cases():
        if case.misuse is not None:
            (chosen, *_) = in_each(case, ("float32",)) or in_each(case)
            yield Call(chosen.arguments, operation=case.operation, misuse=case.misuse)


@chapter.group("ERR-1", each=_ARRAYS)
def mixed_dtypes(draw: Draw, name: str) -> Iterator[Yielded]:
    """One of the three arrays has another dtype than the others: refused, or taken at its value."""
    for dtype, other in permutations(DTYPES, 2):
        (problem,) = draw.in_each_dtype(MASKED[0], dtypes=("float32",))
        fine = np.round(problem.random.normal(size=problem.arguments[name].shape) * 1024) / 1024
        arrays = {key: (fine if key == name else x) for key, x in problem.arguments.items()}
        cast = {key: x.astype(other if key == name else dtype) for key, x in arrays.items()}
        yield Call(cast, misuse=replace(Misuse(name), allowed=True))


@chapter.group(
    "ERR-2",
    each=tuple(product(("int32", "int64", "bool", "complex64"), ("all", *_ARRAYS))),
)
def not_floating_point(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Integers, booleans and complex numbers are refused, in all arrays and in one."""
    dtype, name = which
    shapes = draw.shapes(_ALIKE)
    for other in DTYPES[2:] if name != "all" else DTYPES[2:3]:
        given = {key: dtype if name in ("all", key) else other for key in _ARRAYS}
        arguments = {key: np.ones(shapes[key], given[key]) for key in _ARRAYS}
        yield Call(arguments, misuse=Misuse("query" if name == "all" else name))


@chapter.group("ERR-17")
def no_heads(draw: Draw) -> Iterator[Yielded]:
    """A call without query heads, and with or without key heads, is refused or gives empty results."""
    for without in (("query", "key", "value"), ("query",)):
        for problem in draw.in_each_dtype(MASKED[0]):
            arguments = {
                name: array[:, :0] if name in without else array for name, array in problem.arguments.items()
            }
            yield Call(arguments, misuse=replace(Misuse("query"), allowed=True))


@chapter.group("ERR-17", operation="attention_vjp")
def gradients_of_no_heads(draw: Draw) -> Iterator[Yielded]:
    """A call of the gradients without heads is refused or gives empty results."""
    for problem in draw.in_each_dtype(MASKED[0]):
        arrays = problem.arguments | {"d_output": np.ones_like(problem.query)}
        arguments = {name: array[:, :0] for name, array in arrays.items()}
        yield Call(arguments, operation="attention_vjp", misuse=replace(Misuse("query"), allowed=True))


@chapter.group("ERR-13", each=tuple(OPTIONS))
def earlier_calls(draw: Draw, option: str) -> Iterator[Yielded]:
    """A call with one argument changed, and changed back, gives its own result each time."""
    for problem in draw.in_each_dtype(MASKED[0]):
        needs, first = draw_option(problem, option)
        _, second = draw_option(problem, option)
        before, after = (problem.arguments | needs | own for own in (first, second))
        plain = problem.arguments | needs
        yield Calls((before, after, plain, before), judge_each, live=True, beside=True)


def judge_each(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Judge each call by itself, in their order."""
    from attnspec.conformance.judge.judge import judge

    return worst_of([judge(backend, case) for case in calls])


@chapter.group("ERR-14", each=tuple(product(("bias", "sinks"), ("fine", "large"))))
def another_dtype(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """A bias or a sink of another dtype is refused, or taken at its value."""
    name, numbers = which
    for dtype, other in permutations(DTYPES, 2):
        (problem,) = draw.in_each_dtype(MASKED[0], dtypes=(dtype,))
        shape = problem.shape if name == "bias" else problem.shape[-3:-2]
        array = np.round(problem.random.normal(size=shape) * 1024) / 1024
        if numbers == "large" and other != "float16":  # outside the range of float16
            array = np.round(array * 4) + (100000 if name == "bias" else -100000)
        arguments: dict[str, Any] = problem.arguments | {name: array.astype(other)}
        yield Call(arguments, misuse=replace(Misuse(name), allowed=True))


#: More keys than queries, so that bottom-right and top-left masks differ, and large enough for every mask.
_SHAPE, _SHARED = MASKED[0], GROUPED[0]
#: Longer than tiles of 16 and 32, and not a multiple of them.
_TILED = Shape((1, 1), 19, 35, 2, 2)
#: Longer than tiles of 64 and 128, with many queries and with one.
_LONG = (Shape((1, 4), 133, 139, 4, 3, groups=2), Shape((2, 2), 1, 139, 4, 3))
#: An offset always comes with a causal mask, and a rate with a dropout mask.
_PAIRS = sorted(
    (
        *(pair for pair in combinations(OPTIONS, 2) if pair not in NO_PAIRS and pair[1] != "dropout_rate"),
        *(("grouped", name) for name in OPTIONS),
    ),
    key=lambda pair: "positions" in pair,  # a newer option does not change the dtypes of older pairs
)
#: The fixed problems in which an option has no effect, by group and number, and the number of the next
#: problem in which it has one. A test checks with the second oracle that other problems need no entry.
SKIPPED: dict[tuple[str, int], int] = {
    ("errors: option has an effect: dropout", 0): 1,
    ("errors: option has an effect: dropout_rate", 0): 2,
    ("errors: option has an effect: query_offset", 0): 1,
    ("errors: option beside a window: key_lengths", 0): 3,
    ("errors: options in pairs: grouped and dropout", 0): 1,
    ("errors: options in pairs: grouped and dropout_rate", 1): 6,
    ("errors: options in pairs: is_causal and dropout", 0): 1,
    ("errors: options in pairs: is_causal and key_lengths", 0): 1,
    ("errors: options in pairs: is_causal and window", 0): 3,
    ("errors: options in pairs: key_lengths and dropout", 0): 1,
    ("errors: options in pairs: mask and dropout", 0): 1,
    ("errors: options in pairs: mask and sinks", 0): 1,
    ("errors: options in pairs: query_lengths and sinks", 1): 1,
    ("errors: options in pairs: query_offset and dropout", 1): 2,
    ("errors: options in pairs: query_offset and segments", 1): 2,
    ("errors: options in pairs: query_offset and window", 0): 1,
    ("errors: options in pairs: scale and dropout", 1): 1,
    ("errors: options in pairs: scale and is_causal", 0): 1,  # it has a negative scale
    ("errors: options in pairs: scale and softcap", 0): 2,
    ("errors: options in pairs: scale and softcap", 1): 2,
    ("errors: options in pairs: segments and dropout", 0): 1,
    ("errors: options in pairs: softcap and dropout", 1): 1,
    ("errors: options in pairs: window and dropout", 0): 2,
    ("errors: options in pairs: window and dropout", 1): 1,
    ("errors: options in pairs: window and key_lengths", 0): 1,
    ("errors: options in pairs: window and positions", 0): 1,
}


@chapter.group("ERR-3", each=tuple(OPTIONS))
def option_has_an_effect(draw: Draw, option: str) -> Iterator[Yielded]:
    """An option that is accepted changes the result where it has to."""
    for problem in _problems(draw, _SHAPE, 0, lambda problem: _matters(problem, option)):
        needs, own = draw_option(problem, option)
        yield Calls((problem.arguments | needs, problem.arguments | needs | own), _differ)


def _differ(backend: Backend, calls: tuple[Case, ...]) -> Found:
    less, more = (observe(backend, case) for case in calls)
    few, many = (budgets_of(backend, case) for case in calls)
    for name, array in more.items():
        allowed = few[name] + many[name]
        if allowed.shape != array.shape:  # other cases test shapes
            allowed = np.full(array.shape, allowed.max(initial=0.0))
        compared = compare(name, array, less[name].astype(np.float64), allowed, str(array.dtype))
        if isinstance(compared, Difference):
            return None
    own = [name for name in calls[1].arguments if name not in calls[0].arguments]
    return f"{' and '.join(own)}: accepted, and changes nothing"


@chapter.group("ERR-3", each=_PAIRS)
def options_in_pairs(draw: Draw, pair: tuple[str, str]) -> Iterator[Yielded]:
    """Two options have their effect together, on problems in which both matter."""
    shape = _SHARED if pair[0] == "grouped" else _SHAPE
    both_mask = set(pair) <= set(MASKS)
    rule = "MASK-4" if both_mask else next(OPTIONS[name].rule for name in reversed(pair) if name in OPTIONS)
    for number in range(2):
        for problem in _problems(draw, shape, number):
            # float32, and one of the other dtypes.
            turn = ("float16", "float64", "bfloat16")[(_PAIRS.index(pair) + number) % 3]
            if str(problem.query.dtype) in ("float32", turn):
                yield Call(together(problem, pair), (rule, "ERR-3"))


#: The options that are also drawn beside a window that leaves out the first keys, as in models with sinks.
_BESIDE_A_WINDOW = ("scale", "softcap", "bias", "mask", "query_offset", "key_lengths", "sinks")


@chapter.group("ERR-3", each=_BESIDE_A_WINDOW)
def option_beside_a_window(draw: Draw, option: str) -> Iterator[Yielded]:
    """An option has its effect beside a window that leaves out the first keys and all later ones."""
    problem = draw.problem(_SHAPE, "float32", SKIPPED.get((draw.group, 0), 0))
    own = {"window": (2, 0)} | draw_option(problem, option)[1]
    yield Call(problem.arguments | own, (OPTIONS[option].rule,))


def together(problem: Problem, pair: tuple[str, str]) -> dict[str, Any]:
    """Draw the arguments of a call with two options of a problem."""
    parts = [draw_option(problem, name) for name in pair if name in OPTIONS]
    arguments: dict[str, Any] = dict(problem.arguments)
    for needs, _ in parts:
        arguments |= needs
    for _, own in parts:
        arguments |= own
    return arguments


def _problems(
    draw: Draw, shape: Shape, number: int, good: Callable[[Problem], bool] = lambda _: True
) -> Iterator[Problem]:
    """Draw a problem in each dtype, and skip those in which an option has no effect."""
    first = 100 * number
    if draw.seed is None and draw.fitted(shape) == shape:
        place = first + SKIPPED.get((draw.group, number), 0)
    else:  # there is no table for other seeds
        place = next(
            index for index in range(first, first + 50) if good(draw.problem(shape, "float32", index))
        )
    yield from draw.in_each_dtype(shape, index=place)


def _matters(problem: Problem, option: str) -> bool:
    """Whether an option has an effect that is visible in every dtype."""
    needs, own = draw_option(problem, option)
    less, more = (exact("attention", problem.arguments | needs | more)["output"] for more in ({}, own))
    return bool(np.abs(less - more).max() > 1 / 8)


@chapter.group("ERR-3", each=tuple(OPTIONS))
def option_past_every_tile(draw: Draw, option: str) -> Iterator[Yielded]:
    """An option holds for the last query and the last key as for the first."""
    for problem in draw.in_each_dtype(_TILED, dtypes=("float32", "float64")):
        needs, own = draw_option(problem, option)
        yield Call(problem.arguments | needs | own, (OPTIONS[option].rule,))


@chapter.group("ERR-3", each=tuple(product(OPTIONS, ("alone", "causal"))))
def option_past_large_tiles(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """An option holds past tiles of 64 and 128, alone and under a causal mask, and for one query."""
    option, beside = which
    for shape in _LONG[: 1 if option == "query_lengths" else 2]:  # a single query cannot be shortened
        for problem in draw.in_each_dtype(shape, dtypes=("float32",)):
            needs, own = draw_option(problem, option)
            causal: dict[str, Any] = {"is_causal": True} if beside == "causal" else {}
            if causal and "query_offset" not in own and option != "positions":
                causal["query_offset"] = problem.integers(-2, problem.shape[-1] - problem.shape[-2])
            arguments = causal | _in_few_words(problem) | needs | own
            yield Call(arguments, (OPTIONS[option].rule,), outputs=("output", "lse"))


def _in_few_words(problem: Problem) -> dict[str, Any]:
    """Draw queries and keys from a few vectors, because the oracles compute equal scores only once."""
    arrays = {}
    for name, count in (("query", 3), ("key", 6)):
        array = problem.arguments[name]
        words = problem.random.integers(0, min(count, array.shape[-2]), array.shape[-2])
        arrays[name] = np.ascontiguousarray(array[..., words, :])
    return arrays | {"value": problem.value}


@chapter.group("MASK-4", "SCORE-3", "SCORE-4", "SCORE-5")
def options_together(draw: Draw) -> Iterator[Yielded]:
    """Several options apply at once, and mask and bias have every shape that broadcasts."""
    for number, problem in enumerate(draw.problems((*SHAPES, *GROUPED), 4)):
        # Options that few implementations have are left out of every second problem.
        names = [name for name in OPTIONS if name != "positions"]  # an offset excludes them
        names = [name for name in names if number % 4 < 2 or name in ("scale", "bias", "mask", "is_causal")]
        options: dict[str, Any] = {}
        for name in names:
            needs, own = draw_option(problem, name) if min(problem.shape[-2:]) > 1 else ({}, {})
            if problem.random.random() < 0.4:
                options |= needs | own
        if "bias" in options:
            # Numbers that are not exact in a shorter dtype. Some are large.
            bias = problem.random.normal(size=problem.shape) * problem.choice(1.0, 300.0)
            bias[problem.random.random(problem.shape) < 0.2] = -np.inf
            options["bias"] = problem.broadcastable(bias.astype(problem.query.dtype))
        if "mask" in options:
            options["mask"] = problem.broadcastable(problem.random.random(problem.shape) < 0.7)
        # A rule about an absent option would pass without being tested.
        of = {"scale": "SCORE-3", "bias": "SCORE-4", "softcap": "SCORE-5"}
        yield Call(problem.arguments | options, ("MASK-4", *(of[name] for name in of if name in options)))
