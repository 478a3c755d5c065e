"""The chapter `errors`: no result depends on what was called before or is called from other threads (ERR-13).

The values are judged, not only the bits. Most problems are long, because kernels that keep buffers,
plans and compiled code do so on their paths for long problems.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.case import Misuse
from attnspec.conformance.judge.traits import numbers
from attnspec.conformance.relations.memory import (
    beside_a_refused_call,
    capture_and_replay,
    each_in_turn,
    from_threads,
    in_freed_memory,
    in_the_same_arrays,
    keep_results_of_calls,
    repeat_often,
)
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.drawn_stacks import Sizes, draw_call
from attnspec.conformance.suite.group import COMPANIONS, Call, Calls, Chapter, Draw, Yielded, drawn_cases
from attnspec.conformance.suite.options import OPTIONS, Options, biased, draw_option, sinks
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.words import few_words
from attnspec.operations.stacks import FORMS, STACKS

chapter = Chapter("errors")

#: A few queries and one, with more keys than tiles of 64, 128 and 256 hold.
_FEW, _ONE = Shape((2, 2), 9, 139, 4, 4), Shape((2, 2), 1, 300, 4, 4)
#: Keys that are split.
_LONG = Shape((1, 2), 2, 700, 4, 4)
_SMALL = Shape((2, 2), 4, 7, 4, 4)
#: A result of some thousand numbers. Small results often have no buffer.
_LARGE = Shape((2, 4), 70, 139, 8, 8)
#: So many scores that a call is seldom over before other threads are in theirs.
_SLOW = Shape((1, 3), 128, 700, 4, 4)
_ARRAYS = ("query", "key", "value")


def _problem(draw: Draw, shape: Shape, index: int = 0) -> Problem:
    return few_words(draw.problem(shape, "float32", index, 0.5))


def _relate(run: Callable[..., Found], *calls: Mapping[str, Any] | Call) -> Calls:
    named = (call if isinstance(call, Call) else Call(call, outputs=("output", "lse")) for call in calls)
    return Calls(tuple(named), run, live=True, beside=True)


def _by_entry(problem: Problem, low: int, high: int) -> Any:
    return problem.random.integers(low, high + 1, problem.batch)


def _segments(problem: Problem) -> Options:
    queries, keys = problem.shape[-2:]
    return {
        "query_segment_ids": problem.random.integers(0, 2, (*problem.batch, queries)),
        "key_segment_ids": problem.random.integers(0, 2, (*problem.batch, keys)),
    }


#: The arrays among the arguments, each with a function that draws its numbers, in one shape and dtype.
_WRITTEN: Mapping[str, Callable[[Problem], Options]] = {
    **{name: lambda p, name=name: {name: p.arguments[name]} for name in _ARRAYS},  # type: ignore[misc] # its default
    "all three": lambda p: p.arguments,
    "mask": lambda p: {"mask": p.mask()},
    "bias": lambda p: {"bias": biased(p, amplitude=0.5)},
    "query_lengths": lambda p: {"query_lengths": _by_entry(p, 0, p.shape[-2])},
    "key_lengths": lambda p: {"key_lengths": _by_entry(p, 1, p.shape[-1])},
    "query_offset": lambda p: {"is_causal": True, "query_offset": _by_entry(p, 0, p.shape[-1])},
    "segments": _segments,
    "sinks": sinks,
    "dropout": lambda p: {"dropout_mask": p.random.random(p.shape) < 0.7, "dropout_rate": 0.25},
}


def _with_other_numbers(draw: Draw, name: str, shape: Shape) -> tuple[Options, Options]:
    """Draw two calls that differ in the numbers of one array."""
    first, second = (_problem(draw, shape, index) for index in range(2))
    own, other = (_WRITTEN[name](problem) for problem in (first, second))
    if name == "query_lengths":  # two draws for a single query may be the same
        other = {name: shape.queries - own[name]}
    return first.arguments | own, first.arguments | other


@chapter.group("ERR-13", each=tuple(_WRITTEN))
def other_numbers_in_the_same_arrays(draw: Draw, name: str) -> Iterator[Yielded]:
    """The caller writes other numbers into an array between two calls, and the first ones again."""
    for shape in (_FEW, _ONE):
        before, after = _with_other_numbers(draw, name, shape)
        yield _relate(in_the_same_arrays, before, after, before)


@chapter.group("ERR-20", each=tuple(_WRITTEN))
def captured_with_other_numbers(draw: Draw, name: str) -> Iterator[Yielded]:
    """A call that is captured once gives the results of the numbers that its arrays hold at each replay."""
    before, after = _with_other_numbers(draw, name, _FEW)
    yield _relate(capture_and_replay, before, after, before)


#: Options that are no arrays, each with two values.
_FIXED: Mapping[str, tuple[Any, Any]] = {
    "scale": (0.25, 0.75),
    "softcap": (0.5, 2.0),
    "is_causal": (True, False),
    "window": ((5, 1), (2, 40)),
}


@chapter.group("ERR-20", each=tuple(_FIXED))
def captured_beside_another(draw: Draw, option: str) -> Iterator[Yielded]:
    """Two calls of the same shapes are captured, and each is replayed with its own option."""
    calls = [_problem(draw, _FEW, index).arguments for index in range(2)]
    one, other = ({option: value} for value in _FIXED[option])
    yield _relate(capture_and_replay, calls[0] | one, calls[0] | other, calls[1] | one, calls[1] | other)


#: Operations whose tables, lengths and lists are written anew.
_CAPTURED = (
    "attention_vjp",
    "packed_attention",
    "paged_attention",
    "quantized_attention",
    "block_sparse_attention",
    "listed_attention",
    "latent_attention",
    "packed_paged_attention",
)


@chapter.group("ERR-20", each=_CAPTURED)
def captured_tables(draw: Draw, operation: str) -> Iterator[Yielded]:
    """Sequences of other lengths, in other pages and with other lists, take the place of those before."""
    calls: list[Options] = []
    for index in range(20):  # until two have the same shapes
        call = _of_operation(draw, operation, index)
        calls += [call] if not calls or _shapes(call) == _shapes(calls[0]) else []
        if len(calls) == 2:
            break
    named = [Call(call, operation=operation) for call in (*calls, calls[0])]
    yield Calls(tuple(named), capture_and_replay, live=True)


def _of_operation(draw: Draw, operation: str, index: int) -> Options:
    random = np.random.default_rng(draw.number(index))
    if operation == "attention_vjp":
        problem = _problem(draw, _SMALL, index)
        return problem.arguments | {"d_output": problem.array(*problem.query.shape)}
    layers = OPERATIONS[operation].layers
    turned = np.roll((3, 1, 4), index).tolist()
    queries = tuple(turned) if "packed" in layers else (3, 3, 3)
    sizes = Sizes(queries=queries, keys=tuple(np.roll((5, 7, 2), index).tolist()), encoding="int8")
    return draw_call(random, "float32", layers, sizes, "causality")


def _shapes(call: Options) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(x) for name, x in call.items()}


@chapter.group("ERR-13", each=("all three", "mask", "bias", "key_lengths", "segments"))
def arrays_in_freed_memory(draw: Draw, name: str) -> Iterator[Yielded]:
    """Arrays are freed after each call, and those of the next call are likely to have their addresses."""
    yield _relate(in_freed_memory, *_with_other_numbers(draw, name, _FEW))


@chapter.group("ERR-13", each=("few queries", "many queries", "one query", "few keys"))
def results_kept_by_the_caller(draw: Draw, size: str) -> Iterator[Yielded]:
    """The arrays that a call returned keep their numbers while calls of its and other sizes are made."""
    shape = {"few queries": _FEW, "many queries": _LARGE, "one query": _ONE, "few keys": _SMALL}[size]
    shapes = (shape, shape, shape._replace(keys=shape.keys // 2), shape)
    calls = [_problem(draw, shape, index).arguments for index, shape in enumerate(shapes)]
    yield _relate(keep_results_of_calls, *calls)


@chapter.group("ERR-13")
def results_of_forms_kept_by_the_caller(draw: Draw) -> Iterator[Yielded]:
    """The arrays that a call of a form returned keep their numbers while other calls of it are made."""
    for index, (name, form) in enumerate({**FORMS, **STACKS}.items()):
        random, sizes = np.random.default_rng(draw.number(index)), Sizes(name=name, encoding="int8")
        calls = (draw_call(random, "float32", form.layers, sizes) for _ in range(3))
        yield _relate(
            keep_results_of_calls, *(Call(call, operation=name, outputs=("output",)) for call in calls)
        )


@chapter.group("ERR-13", each=COMPANIONS)
def results_of_companions_kept_by_the_caller(draw: Draw, operation: str) -> Iterator[Yielded]:
    """The arrays that a call of another operation returned keep their numbers while it is called again."""
    form = OPERATIONS[operation]
    cases = (case for case in drawn_cases(operation, draw.number()) if case.dtype == "float32")
    case = max(islice(cases, 12), key=lambda case: numbers([case]))
    other = {
        name: np.flip(x) if isinstance(x, np.ndarray) and not form.arguments[name].ascending else x
        for name, x in case.arguments.items()
    } | ({"base": 500.0} if "base" in form.arguments else {})
    calls = (case.arguments, other, case.arguments)
    yield _relate(
        keep_results_of_calls, *(Call(call, operation=operation, outputs=case.outputs) for call in calls)
    )


@chapter.group("ERR-13", each=("nothing", *OPTIONS))
def sizes_in_turn(draw: Draw, option: str) -> Iterator[Yielded]:
    """A larger call comes before a smaller one, and after it, in every axis."""
    shapes = (Shape((2, 4), 9, 300, 8, 8, groups=2), Shape((1, 2), 5, 139, 4, 4), Shape((1, 1), 1, 37, 4, 4))
    sizes = []
    for index, shape in enumerate(shapes):
        problem = _problem(draw, shape, index)
        given = ({}, {}) if option == "nothing" or shape.queries == 1 else draw_option(problem, option)
        sizes.append(problem.arguments | given[0] | given[1])
    yield _relate(each_in_turn, *sizes)
    yield _relate(each_in_turn, *reversed(sizes), sizes[-1])


@chapter.group("ERR-13", each=tuple(OPTIONS))
def option_changed_in_turn(draw: Draw, option: str) -> Iterator[Yielded]:
    """Arrays of the same shapes get an option, another value of it, and no option again."""
    for shape in (_FEW, _ONE, _LONG):
        problem = _problem(draw, shape)
        if option == "query_lengths" and shape is _ONE:
            own: list[Options] = [{option: np.array(lengths)} for lengths in ((0, 1), (1, 0))]
            needs: Options = {}
        else:
            needs, first = draw_option(problem, option)
            own = [first, draw_option(problem, option)[1]]
        plain = problem.arguments | needs
        yield _relate(each_in_turn, plain, plain | own[0], plain | own[1], plain, plain | own[0])


@chapter.group("ERR-13")
def key_heads_changed_in_turn(draw: Draw) -> Iterator[Yielded]:
    """Queries of the same shape meet two key heads, one, and two again."""
    for shape in (_SMALL, _FEW, _ONE):
        equal, shared = (_problem(draw, shape._replace(groups=groups)).arguments for groups in (1, 2))
        yield _relate(each_in_turn, equal, shared, equal)


#: Calls that raise: the argument at fault, and the arguments besides the three arrays, or instead of them.
_REFUSED: Mapping[str, tuple[str, Callable[[Problem], Options]]] = {
    "key beside is_causal": ("key", lambda p: {"key": p.key[..., :-1], "is_causal": True}),
    "key beside scale": ("key", lambda p: {"key": p.key[..., :-1], "scale": 3.0}),
    "key beside mask": ("key", lambda p: {"key": p.key[..., :-1], "mask": p.mask()}),
    "key beside softcap": ("key", lambda p: {"key": p.key[..., :-1], "softcap": 0.25}),
    "key beside key_lengths": ("key", lambda p: {"key": p.key[..., :-1], "key_lengths": 3}),
    "key beside window": ("key", lambda p: {"key": p.key[..., :-1], "window": (1, 1)}),
    "value": ("value", lambda p: {"value": p.value[..., :-1, :]}),
    "value beside is_causal": ("value", lambda p: {"value": p.value[..., :-1, :], "is_causal": True}),
    "value beside scale": ("value", lambda p: {"value": p.value[..., :-1, :], "scale": 3.0}),
    "mask beside scale": ("mask", lambda p: {"mask": p.mask()[..., :-1], "scale": 3.0}),
    "bias beside is_causal": (
        "bias",
        lambda p: {"bias": biased(p)[..., :-1], "is_causal": True},
    ),
    "scale": ("scale", lambda _: {"scale": np.nan}),
}


@chapter.group("ERR-13", each=tuple(_REFUSED))
def refused_call_between(draw: Draw, name: str) -> Iterator[Yielded]:
    """A call that must be rejected comes between two good ones, and leaves nothing of its options."""
    argument, options = _REFUSED[name]
    for shape in (_SMALL, _FEW):
        first, second = (_problem(draw, shape, index) for index in range(2))
        bad = Call(first.arguments | options(first), misuse=Misuse(argument))
        yield _relate(beside_a_refused_call, first.arguments, bad, second.arguments, first.arguments)


@chapter.group("ERR-13", each=("nothing", "bias"))
def call_repeated_often(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each of some two hundred calls with the same arguments gives their result."""
    problem = _problem(draw, _FEW)
    yield _relate(repeat_often, problem.arguments | (_WRITTEN[option](problem) if option == "bias" else {}))


@chapter.group("ERR-13", each=("nothing", *OPTIONS))
def calls_from_threads(draw: Draw, option: str) -> Iterator[Yielded]:
    """Threads make calls at once: of one shape with an option, other values of it and none, and another."""
    calls = []
    for index, shape in enumerate((_FEW, _FEW, _FEW, _LONG)):
        problem = _problem(draw, shape, index)
        needs, own = ({}, {}) if option == "nothing" else draw_option(problem, option)
        calls.append(problem.arguments | needs | (own if index != 2 else {}))
    yield _relate(from_threads, *calls)


@chapter.group("ERR-13")
def calls_of_one_shape_from_threads(draw: Draw) -> Iterator[Yielded]:
    """Threads make calls at once that differ in their numbers only, and so need the same buffers."""
    first, second = (_problem(draw, _SLOW, index).arguments for index in range(2))
    yield _relate(from_threads, first, second, first, second)
