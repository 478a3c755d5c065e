"""The chapter `notation`: axes, shapes, and shapes that are refused."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.case import Alternative, Misuse
from attnspec.conformance.judge.dtypes import in_dtype, is_real
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.suite.faults import SIZES, fitting, with_needs
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import GROUPED, SHAPES, Shape, grid
from attnspec.conformance.suite.sizes_of_operations import is_valid
from attnspec.conformance.suite.whole_calls import whole_calls
from attnspec.operations.letters import BATCH, LETTERS, value_of
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS
from attnspec.sizes import bound

chapter = Chapter("notation")

#: The operations that take a number, but for gradients and combined forms.
_COUNTED = tuple(
    name
    for name, form in OPERATIONS.items()
    if "number" in {x.kind for x in form.arguments.values()} and not (form.stacked or name.endswith("_vjp"))
)

_BATCHED = tuple(shape for shape in SHAPES if len(shape.outer) == 2)
#: Some have as many queries as keys, so that axes could be confused.
_FLAT = (Shape((), 4, 4, 3, 3), *(shape for shape in SHAPES if not shape.outer))
_OBLONG = tuple(shape for shape in SHAPES if shape.queries != shape.keys)
#: (batch entries, heads), queries, keys
_EMPTY: Mapping[str, tuple[tuple[int, int], int, int]] = {
    "batch": ((0, 2), 3, 5),
    "queries": ((2, 2), 0, 5),
    "keys": ((2, 2), 3, 0),
    "queries and keys": ((2, 2), 0, 0),
}
#: The shapes of query, key and value, and the argument at fault.
_MISFITS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], str]] = {
    "depth of key": ((2, 3, 4), (2, 5, 3), (2, 5, 4), "key"),
    "positions of value": ((2, 3, 4), (2, 5, 4), (2, 6, 4), "value"),
    # A fused kernel may read past the end of the shorter array on four axes.
    "more positions of value": ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 6, 4), "value"),
    "fewer positions of value": ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 4, 4), "value"),
    "no positions of value": ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 0, 4), "value"),
    "no positions of key": ((2, 2, 3, 4), (2, 2, 0, 4), (2, 2, 5, 4), "value"),
    "batch of key and value": ((2, 2, 3, 4), (3, 2, 5, 4), (3, 2, 5, 4), "key"),
    "batch of value": ((2, 2, 3, 4), (2, 2, 5, 4), (3, 2, 5, 4), "value"),
}
_ARRAYS = ("query", "key", "value")
#: The letters that are 0 with another: a table without a row has no position, and no shard has no row.
_WITH: Mapping[str, tuple[str, ...]] = {"C": ("N",), "Z": ("L", "S")}


@chapter.group("SHAPE-1")
def heads_of_batch_entries(draw: Draw) -> Iterator[Yielded]:
    """A batch of heads gives, head by head, what each head gives by itself."""
    for problem in draw.problems(_BATCHED, 2):
        yield problem.arguments


@chapter.group("SHAPE-9", each=_ARRAYS)
def numbers_of_one_head(draw: Draw, name: str) -> Iterator[Yielded]:
    """Large numbers in one head of one batch entry change nothing elsewhere."""
    for problem in draw.problems(_BATCHED, 2):
        array = problem.arguments[name].copy()
        array[-1, 0] *= 64
        yield problem.arguments | {name: array}


@chapter.group("SHAPE-2")
def two_axes(draw: Draw) -> Iterator[Yielded]:
    """Inputs without batch and head axes give a result without them."""
    for problem in draw.problems(_FLAT, 2):
        yield problem.arguments


@chapter.group("SHAPE-5", "SHAPE-3")
def oblong(draw: Draw) -> Iterator[Yielded]:
    """The output has the queries' positions, whether there are more keys than queries or fewer."""
    for problem in draw.problems(_OBLONG):
        yield problem.arguments


@chapter.group("SOFT-4", "SHAPE-4")
def row_of_weights_for_each_query(draw: Draw) -> Iterator[Yielded]:
    """Weights that are returned have a row for each query and a column for each key."""
    for problem in draw.problems(_OBLONG):
        yield Call(problem.arguments, outputs=("weights",))


@chapter.group("SHAPE-4")
def weights_of_a_square_problem(draw: Draw) -> Iterator[Yielded]:
    """With as many queries as keys, the weights that are returned are not transposed."""
    for problem in draw.problems((Shape((2,), 5, 5, 5, 5),), 3):
        yield Call(problem.arguments, outputs=("weights",))


@chapter.group("SOFT-6", "SHAPE-8")
def one_lse_for_each_query(draw: Draw) -> Iterator[Yielded]:
    """The lse has one number for each query, with no axis of 1 at its end and no axis of keys."""
    for problem in draw.problems((*SHAPES, *GROUPED)):
        yield Call(problem.arguments, outputs=("lse",))


@chapter.group("SHAPE-7", each=tuple(_EMPTY))
def nothing_to_compute(draw: Draw, empty: str) -> Iterator[Yielded]:
    """With no batch entries, no queries or no keys the results have the right shapes."""
    outer, queries, keys = _EMPTY[empty]
    for problem in draw.problems((Shape(outer, queries, keys, 4, 4),)):
        yield problem.arguments
        yield problem.arguments | {"is_causal": True}


@chapter.group("SHAPE-7", each=tuple(name for name in OPERATIONS if name != "attention"), step=5)
def nothing_in_an_axis(draw: Draw, operation: str) -> Iterator[Yielded]:
    """Each size of a call that may be 0 is 0, and the results have the right shapes."""
    known, random = OPERATIONS[operation].arguments.values(), np.random.default_rng(draw.number())
    for letter in (name for name, letter in LETTERS.items() if letter.may_be_empty):
        others = {name: size for name, size in SIZES.items() if name != letter}
        speak = (argument for argument in known if any(value_of(x, others) is None for x in argument.shape))
        for argument in sorted(speak, key=lambda argument: not argument.required)[:1]:
            sizes = {**SIZES, **dict.fromkeys((letter, *_WITH.get(letter, ())), 0)}
            call = fitting(operation, sizes) | with_needs(operation, argument, sizes)
            call |= {name: grid(random, x.shape, 1.0) for name, x in call.items() if is_real(x)}
            call |= {"dropout_p": 0.0} if "dropout_p" in call else {}  # without chance
            yield Call(in_dtype(call, "float32"), operation=operation)


@chapter.group("ERR-16", each=_COUNTED, step=6)
def integers_for_numbers(draw: Draw, operation: str) -> Iterator[Yielded]:
    """Each number of a call is an integer of the host language, and a scale is 0."""
    known = OPERATIONS[operation].arguments
    for call in whole_calls(draw, operation, "float32"):
        numbers = {name: x for name, x in call.items() if known[name].kind == "number"}
        limited = {name for name in numbers if (bounds := known[name].bounds) and bounds.most != ""}
        whole = {name: 0 if name in {"scale", *limited} else max(round(x), 1) for name, x in numbers.items()}
        rules = tuple(dict.fromkeys(known[name].rule for name in whole if name != "dropout_p"))
        if whole and is_valid(operation, call | whole):
            yield Call(call | whole, rules, operation=operation)


@chapter.group("SHAPE-6", each=tuple(_MISFITS))
def misfits(_: Draw, misfit: str) -> Iterator[Yielded]:
    """Arrays that disagree in depth, positions or batch axes raise an error."""
    *shapes, at_fault = _MISFITS[misfit]
    yield Call(_ones(*shapes), misuse=Misuse(at_fault, tuple(name for name in _ARRAYS if name != at_fault)))


@chapter.group("ERR-15", each=("mask", "bias"))
def misfit_of_the_scores(_: Draw, name: str) -> Iterator[Yielded]:
    """A mask or a bias with axes that are swapped or of another size raises an error."""
    for shape in ((5, 3), (4,), (2, 4, 5)):
        array = np.ones(shape, bool if name == "mask" else np.float32)
        arguments = _ones((2, 3, 4), (2, 5, 4), (2, 5, 4)) | {name: array}
        yield Call(arguments, misuse=Misuse(name))


@chapter.group("SHAPE-6", each=("of one", "missing"))
def batch_axes_not_repeated(draw: Draw, axes: str) -> Iterator[Yielded]:
    """Keys and values without all batch axes are refused, or repeated where that variant is declared."""
    problem = next(draw.problems((Shape((1, 2), 3, 5, 4, 4),)))
    query = problem.array(2, *problem.query.shape[1:])
    shared = {"key": problem.key, "value": problem.value}
    if axes == "missing":
        shared = {name: array[0, 0] for name, array in shared.items()}
    repeated = {name: np.broadcast_to(array, (2, *problem.key.shape[1:])) for name, array in shared.items()}
    output = exact("attention", {"query": query, **repeated})["output"]
    yield Call(
        {"query": query, **shared},
        misuse=Misuse("key", ("query", "value")),
        alternatives=(Alternative("SHAPE-6", "broadcast", {"output": output}),),
        outputs=("output",),
    )


def _ones(*shapes: Any) -> dict[str, Any]:
    return {name: np.ones(shape, np.float32) for name, shape in zip(_ARRAYS, shapes, strict=True)}


#: The operations with an integer of each batch entry.
_OF_ENTRIES = tuple(
    name
    for name, form in OPERATIONS.items()
    if any(x.kind == "integers" and x.shape == (BATCH,) for x in form.arguments.values())
    and primal(name) not in STACKS
)


@chapter.group("SHAPE-1", each=_OF_ENTRIES, step=6)
def array_without_axes(draw: Draw, operation: str) -> Iterator[Yielded]:
    """Without batch axes, an integer of each batch entry is in an array without axes."""
    known, met = OPERATIONS[operation].arguments, set[str]()
    for drawn in whole_calls(draw, operation, "float32"):
        call = _first_entry(operation, drawn)
        own = {name: np.array(x) for name, x in call.items() if known[name].shape == (BATCH,)}
        if not {*own} <= met:
            met |= {*own}
            rules = (known[name].rule for name in own)
            yield Call(call | own, ("SHAPE-1", *dict.fromkeys(rules)), operation=operation)


def _first_entry(operation: str, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first batch entry of a call, whose arrays have no batch axes."""
    first, changed = (0,) * len(bound(operation, call)[0].batch or ()), dict(call)
    for name, x in call.items():
        shape = OPERATIONS[operation].arguments[name].shape
        if first and BATCH in shape and np.ndim(x) == len(shape) - 1 + len(first):
            changed[name] = x[(slice(None),) * shape.index(BATCH) + first]
    return changed
