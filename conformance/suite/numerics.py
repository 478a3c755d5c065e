"""The chapter `numerics`: precision, dtypes, and layouts in memory."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.backends import DTYPES, Backend
from attnspec.conformance.judge.call import call, observe, without
from attnspec.conformance.judge.comparison import same_bits
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.layout import LAYOUTS
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.relations.rounding_bias import signed_mean
from attnspec.conformance.suite.datasets import DATASETS
from attnspec.conformance.suite.drawn_stacks import Sizes, draw_call
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded, drawn_cases
from attnspec.conformance.suite.options import OPTIONS, Options, biased, draw_option
from attnspec.conformance.suite.problem import MASKED, SHAPES, Problem, Shape
from attnspec.conformance.suite.words import draw_in_turn, in_two_dtypes
from attnspec.dtypes import SHORT, numpy_dtype
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS
from attnspec.reference.budget.budget import budget

chapter = Chapter("numerics")

#: The sizes of data sets whose exact values take milliseconds.
_SIZES = ((1, 1, 1), (3, 7, 4), (7, 16, 16), (4, 31, 8), (8, 32, 3))
#: Sizes past every tile, with depths that are no multiple of 8; (L, S, D).
_LARGE = ((5, 65, 13), (17, 33, 72), (2, 257, 40), (33, 9, 20))


@chapter.group("NUM-1", each=("plain", "scale", "is_causal"))
def dtype_of_the_result(draw: Draw, option: str) -> Iterator[Yielded]:
    """The result has the dtype of the query, with and without options that bring numbers of their own."""
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "scale": {"scale": 0.5},
        "is_causal": {"is_causal": True},
    }
    for problem in draw.in_each_dtype(Shape((2,), 3, 3, 4, 4)):
        yield {name: np.ones_like(x) for name, x in problem.arguments.items()} | options[option]


@chapter.group("NUM-2")
def float64_is_computed_in_float64(draw: Draw) -> Iterator[Yielded]:
    """The problem shows a computation in float32."""
    random = np.random.default_rng(draw.number())
    shapes = draw.shapes(Shape((2,), 8, 8, 4, 4))
    yield {name: random.normal(size=shape) for name, shape in shapes.items()}


@chapter.group("NUM-3")
def plain_problems(draw: Draw) -> Iterator[Yielded]:
    """The result is within its budget for every shape, from flat to sharply peaked rows."""
    for drawn_problem in draw.problems():
        yield drawn_problem.arguments


@chapter.group("NUM-3", each=tuple(DATASETS))
def data_set(draw: Draw, dataset: str) -> Iterator[Yielded]:
    """The result is within its budget on flat, peaked, shifted, cancelling and tiny data."""
    for index, size in enumerate(_SIZES):
        for dtype in (DTYPES[index % 4], DTYPES[(index + 2) % 4]):
            yield draw.data(dataset, size, dtype, index).arguments


@chapter.group("NUM-3", "SCORE-2")
def sizes_past_every_tile(draw: Draw) -> Iterator[Yielded]:
    """No key, query or feature is lost past a tile, and the scale is that of the depth without padding."""
    for size in _LARGE:
        for dtype in ("float32", "float64"):
            yield draw.data("plain", size, dtype).arguments


@chapter.group("NUM-5")
def half_precision_is_computed_in_float32(draw: Draw) -> Iterator[Yielded]:
    """The problems show a computation in half precision. One depth has a scale that every dtype holds."""
    for dtype in SHORT:
        for index in range(4):
            random, depth = np.random.default_rng(draw.number(index)), (16, 24)[index % 2]
            shapes = draw.shapes(Shape((2,), 3, 40, depth, depth))
            yield {name: (2 * random.normal(size=shape)).astype(dtype) for name, shape in shapes.items()}


@chapter.group("NUM-5", "SOFT-3", each=(1024, 2049, 4096))
def long_sums_in_half_precision(draw: Draw, keys: int) -> Iterator[Yielded]:
    """With a query of zeros every key counts alike. Sums of so many terms are lost in half precision."""
    for problem in draw.in_each_dtype(Shape((1,), 2, keys, 4, 4), dtypes=tuple(SHORT)):
        value = 1 + np.abs(problem.value.astype(np.float64)) % 1  # of one sign, and their sum is exact
        mean = np.broadcast_to(value.mean(axis=-2, keepdims=True), (*problem.shape[:-1], value.shape[-1]))
        expected = {"output": mean, "lse": np.full(problem.shape[:-1], np.log(value.shape[-2]))}
        arguments = problem.arguments | {
            "query": np.zeros_like(problem.query),
            "value": value.astype(problem.value.dtype),
        }
        yield Call(arguments, expected=expected, outputs=("output", "lse"))


@chapter.group("NUM-5", "SOFT-3", each=tuple(SHORT))
def equal_terms_in_half_precision(draw: Draw, dtype: str) -> Iterator[Yielded]:
    """Some hundred keys have the same weight and value: few enough for the smallest calls."""
    terms = {"query": 0.0, "key": 1.0, "value": 1 + (1 / 128 if dtype == "float16" else 1 / 16)}
    shapes = draw.shapes(Shape((1,), 2, 317, 4, 4))
    arguments = {name: np.full(shapes[name], term).astype(dtype) for name, term in terms.items()}
    yield Call(arguments, outputs=("output", "lse"))


@chapter.group("NUM-6")
def rounding_has_no_bias(draw: Draw) -> Iterator[Yielded]:
    """With values of one sign, rounding errors add up if they are biased."""
    for dtype in SHORT:
        random = np.random.default_rng(draw.number())
        shapes = draw.shapes(Shape((), 48, 48, 32, 32))
        arguments = {name: random.normal(size=shapes[name]).astype(dtype) for name in ("query", "key")}
        arguments["value"] = (1 + random.random(shapes["value"])).astype(dtype)
        yield Calls((Call(arguments, outputs=("output", "weights")),), _check_bias, beside=True)


@chapter.group("NUM-6", each=(4096, 16384))
def rounding_of_long_rows_has_no_bias(draw: Draw, keys: int) -> Iterator[Yielded]:
    """With a query of zeros, the mean of many values is rounded without a bias."""
    random = np.random.default_rng(draw.number())
    steps = random.uniform(0, 15, 512)  # the means lie anywhere between two neighbours
    value = 1 + (np.floor(steps) + (random.random((keys, 512)) < steps % 1)) / 128  # their sum is exact
    arrays = {"query": np.zeros((1, 4)), "key": random.normal(size=(keys, 4)), "value": value}
    # A unit of float16 is no larger than the errors of so long a sum.
    arguments = {name: array.astype(numpy_dtype("bfloat16")) for name, array in arrays.items()}
    exact = {"output": value.mean(axis=0, keepdims=True), "weights": np.full((1, keys), 1 / keys)}
    yield Calls((Call(arguments, expected=exact, outputs=("output",)),), _check_bias)


def _check_bias(backend: Backend, calls: tuple[Case, ...]) -> Found:
    (case,) = calls
    values = expected(case)
    allowed = budget("attention", case.arguments, case.dtype, profile=backend.profile)["output"]
    output = observe(backend, case)["output"].astype(np.float64)
    # Made after the budget, which needs as much memory.
    cast = values["weights"], case.arguments["value"].astype(np.float64)
    share = signed_mean(output, values["output"], allowed, dtype=case.dtype, cast=cast)
    return f"output: errors of one sign add up to {share:.3g} times what chance leaves" if share > 1 else None


@chapter.group("NUM-4", each=tuple(OPTIONS))
def inputs_beside(draw: Draw, option: str) -> Iterator[Yielded]:
    """Every input has the same bytes after the call."""
    for drawn_problem in draw.in_each_dtype(MASKED[0]):
        needs, own = draw_option(drawn_problem, option)
        yield Calls((drawn_problem.arguments | needs | own,), _call_all, live=True, beside=True)


@chapter.group("NUM-4")
def inputs_beside_each_other(draw: Draw) -> Iterator[Yielded]:
    """Mask, bias and dropout mask in one call are not written into one another."""
    every = ("mask", "bias", "dropout", "sinks", "is_causal")
    for drawn_problem in draw.in_each_dtype(MASKED[0]):
        options = {name: draw_option(drawn_problem, name)[1] for name in every}
        for chosen in (every, ("mask", "bias", "is_causal"), ("bias", "is_causal"), ("mask", "bias")):
            own = {name: thing for option in chosen for name, thing in options[option].items()}
            yield Calls((drawn_problem.arguments | own,), _call_all, live=True, beside=True)


def _call_all(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make the calls only. The inputs are compared in every call of the suite."""
    for case in calls:
        call(backend, case.operation, case.arguments)
    return None


@chapter.group("NUM-7", each=(0.0, 300.0, -300.0))
def lse_is_held_in_float32(draw: Draw, level: float) -> Iterator[Yielded]:
    """The lse of scores of a few hundred is right, although bfloat16 would be off by one."""
    for drawn_problem in draw.in_each_dtype(SHAPES[4]):
        query, key = drawn_problem.query.copy(), drawn_problem.key.copy()
        query[..., 0], key[..., 0] = level / 4, 8  # 300 / 4 is a number of bfloat16; the scale halves it
        yield drawn_problem.arguments | {"query": query, "key": key}


@chapter.group("NUM-9", each=("plain", "mask", "is_causal"))
def call_repeated(draw: Draw, option: str) -> Iterator[Yielded]:
    """The same call gives the same bits three times, on more than one tile."""
    for dtype in DTYPES:
        large = draw.data("plain", (17, 33, 72), dtype)
        arrays = {"query": large.query, "key": large.key, "value": large.value}
        options: dict[str, dict[str, Any]] = {
            "plain": {},
            "mask": {"mask": np.random.default_rng(9).random(large.allowed.shape) < 0.7},
            "is_causal": {"is_causal": True},
        }
        yield Calls((arrays | options[option],), _repeats, live=True, beside=True)


def _repeats(backend: Backend, calls: tuple[Case, ...]) -> Found:
    first, *others = [observe(backend, calls[0]) for _ in range(3)]
    return next(
        (
            difference
            for other in others
            for name in first
            if (difference := same_bits(name, other[name], first[name]))
        ),
        None,
    )


@chapter.group("NUM-10")
def batch_entry_alone(draw: Draw) -> Iterator[Yielded]:
    """Each batch entry has the same bits alone as in its batch."""
    for drawn_problem in draw.in_each_dtype(SHAPES[4]):
        batch = drawn_problem.arguments
        entries = [{name: array[n : n + 1] for name, array in batch.items()} for n in range(2)]
        yield Calls((batch, *entries), _same_alone, beside=True)


def _same_alone(backend: Backend, calls: tuple[Case, ...]) -> Found:
    backend = without(backend, "return_weights")  # the rule is about calls that do not ask for them
    whole, *alone = [call(backend, case.operation, case.arguments, case.layout) for case in calls]
    for entry, outputs in enumerate(alone):
        for name, array in outputs.items():
            difference = same_bits(name, array, whole[name][entry : entry + 1])
            if difference is not None:
                return replace(difference, element=(entry, *difference.element[1:]))
    return None


_NAMES = ("query", "key", "value", "mask", "bias", "all")


@chapter.group("NUM-8", each=tuple(product(LAYOUTS, _NAMES)))
def strides(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """The result does not depend on the strides of one input, or of all."""
    layout, name = which
    for problem in draw.in_each_dtype(SHAPES[4]):
        arguments: dict[str, Any] = problem.arguments
        arguments |= {"mask": {"mask": problem.mask()}, "bias": {"bias": biased(problem)}}.get(name, {})
        arguments = {key: _fitting(x, layout) for key, x in arguments.items()}
        names = tuple(arguments) if name == "all" else (name,)
        yield Call(arguments, layout=dict.fromkeys(names, layout))


#: One query, several, grouped heads and many queries, past tiles of 64.
_LONG = (
    Shape((5, 2), 1, 139, 4, 4),
    Shape((2, 2), 3, 139, 72, 72),
    Shape((2, 6), 1, 129, 8, 8, groups=3),
    Shape((1, 4), 70, 139, 8, 8, groups=2),
)
#: Without other axes, the positions are the first one, and one position repeats by a stride of 0.
_OF_EQUAL_ROWS = Shape((), 3, 139, 4, 4)


@chapter.group("NUM-8", each=tuple(product(LAYOUTS, ("query", "key", "value", "all"))))
def strides_of_every_size(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """The result does not depend on the strides of the three arrays for one query, many, or grouped heads."""
    layout, name = which
    shapes = (*_LONG, _OF_EQUAL_ROWS) if layout == "expanded" else _LONG
    # The same problems in every layout.
    for problem in in_two_dtypes(replace(draw, group="strides of every size"), shapes):
        arguments = {key: _fitting(x, layout) for key, x in problem.arguments.items()}
        names = tuple(arguments) if name == "all" else (name,)
        yield Call(arguments, outputs=("output", "lse"), layout=dict.fromkeys(names, layout))


#: The arrays of options, by the option that has them.
_OF_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "query_offset": ("query_offset",),
    "query_lengths": ("query_lengths",),
    "key_lengths": ("key_lengths",),
    "segments": ("query_segment_ids", "key_segment_ids"),
    "sinks": ("sinks",),
    "dropout": ("dropout_mask",),
    "mask": ("mask",),
    "bias": ("bias",),
}
#: Layouts of arrays with a single axis.
_OF_ONE_AXIS = ("sliced", "within", "reversed", "expanded")
#: Several batch entries, of one query and of several, and more keys than a tile of 64.
_BATCHES = (Shape((5, 2), 1, 70, 4, 4), Shape((3, 2), 4, 70, 4, 4))


@chapter.group(
    "NUM-8",
    each=tuple(
        (layout, option)
        for layout, option in product(LAYOUTS, _OF_OPTIONS)
        if layout in _OF_ONE_AXIS
        or option in ("mask", "bias", "dropout")
        or (option == "segments" and layout != "repeated")
    ),
)
def strides_of_options(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """The result does not depend on the strides of offsets, lengths, ids, sinks, masks and biases."""
    layout, option = which
    for problem in in_two_dtypes(replace(draw, group=f"strides of options: {option}"), _BATCHES):
        options = _draw_full(problem, option)
        names = _OF_OPTIONS[option]
        options |= {name: _fitting(options[name], layout) for name in names}
        yield Call(
            problem.arguments | options,
            ("NUM-8", OPTIONS[option].rule),
            outputs=("output", "lse"),
            layout=dict.fromkeys(names, layout),
        )


def _draw_full(problem: Problem, option: str) -> Options:
    """Draw an option, with arrays of full shape and an integer for each batch entry."""
    if option == "dropout":
        return {"dropout_mask": problem.random.random(problem.shape) < 0.7}
    if option == "bias":
        return {"bias": biased(problem, amplitude=0.5)}
    if option not in ("query_offset", "query_lengths", "key_lengths"):
        return draw_option(problem, option)[1]
    low, high = (0, max(1, problem.shape[-2] - 1)) if option == "query_lengths" else (20, 60)
    causal = {"is_causal": True} if option == "query_offset" else {}
    return {option: problem.random.integers(low, high + 1, problem.batch)} | causal


#: Other operations with arrays of three axes and more, and groups of cases.
_OTHERS = tuple(
    name
    for name, form in OPERATIONS.items()
    if len(form.layers) < 2
    and primal(name) != "attention"
    and name != "rotary_frequencies"
    and any(len(argument.shape) > 2 for argument in form.positional)
)


@chapter.group("NUM-8", each=_OTHERS)
def arrays_column_by_column(draw: Draw, operation: str) -> Iterator[Yielded]:
    """A call of another operation gives the same result if its arrays are stored column by column."""
    valid = [*drawn_cases(operation, draw.number())]  # of another seed: no call stands in two chapters
    first = {(case.dtype == "float32"): case for case in reversed(valid)}
    for like in first.values():
        case = max((case for case in valid if case.dtype == like.dtype and not case.layout), key=_depth)
        laid = {name: "column major" for name, x in case.arguments.items() if np.ndim(x) > 1}
        yield Call(case.arguments, ("NUM-8", like.rules[0]), operation, outputs=case.outputs, layout=laid)


@chapter.group("NUM-8")
def stacks_column_by_column(draw: Draw) -> Iterator[Yielded]:
    """A call of several forms gives the same result if its arrays are stored column by column."""
    for random, dtype, sizes in draw_in_turn(draw, *(Sizes(name=name, encoding="int8") for name in STACKS)):
        call = draw_call(random, dtype, STACKS[sizes.name].layers, sizes)
        laid = {name: "column major" for name, x in call.items() if np.ndim(x) > 1}
        yield Call(call, operation=sizes.name, outputs=("output",), layout=laid)


def _depth(case: Case) -> int:
    """Return how many axes of an array have several entries: the order of three and more shows."""
    arrays = (x for x in case.arguments.values() if isinstance(x, np.ndarray))
    return max(sum(int(size > 1) for size in array.shape) for array in arrays)


def _fitting(array: NDArray[Any], layout: str) -> NDArray[Any]:
    """Make all heads equal, or all parts along the first axis, if a layout repeats them."""
    if layout == "repeated":
        return np.array(np.broadcast_to(array[..., :1, :, :], array.shape))
    return np.array(np.broadcast_to(array[:1], array.shape)) if layout == "expanded" else array
