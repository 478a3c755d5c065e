"""Groups of generated cases. A function that yields calls becomes a group of named cases."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.backends.constraints import ANY, FITTED, Constraints, is_of_attention
from attnspec.case import Alternative, Misuse
from attnspec.conformance.relations.relation import Found, Relation
from attnspec.conformance.suite import datasets
from attnspec.conformance.suite.fitted_forms import fit_form
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Problem, Shape, fitted, problem_of
from attnspec.dtypes import DTYPES
from attnspec.operations.stacks import FORMS, STACKS

Item = Case | Relation
Arguments = Mapping[str, Any]

#: Every problem is drawn in float32 and in one other dtype. The other dtype depends on the shape, so that
#: there are few pairs of shape and dtype, because some libraries compile for each pair.
_TURN = ("float16", "float64", "bfloat16")
_AMPLITUDES = (1.0, 0.125, 4.0)
_SHARED = (*SHAPES, *GROUPED, *MASKED)


#: The operations that are no form, and of which no call is drawn as that of a stack.
COMPANIONS = tuple(name for name in OPERATIONS if name not in {"attention", *FORMS, *STACKS})


@dataclass(frozen=True)
class Draw:
    """Draws the problems of one group."""

    group: str  # the group's name
    #: The seed of other problems. None for the fixed problems.
    seed: int | None = None
    constraints: Constraints = ANY  # the constraints that the shapes of problems must fit
    changed: list[Shape] = field(default_factory=list)  # the shapes that had to be changed

    def number(self, index: int = 0) -> int:
        """Return the seed of one problem of the group."""
        return crc32(f"{self.group} {index}".encode()) if self.seed is None else 7919 * self.seed + index

    def problems(self, shapes: Sequence[Shape] = SHAPES, times: int = 1) -> Iterator[Problem]:
        """Draw a problem of each shape, from flat to sharply peaked rows, in two dtypes."""
        for index, shape in enumerate(shapes * times if isinstance(shapes, tuple) else tuple(shapes) * times):
            # Shifted after each round, so that each dtype gets several amplitudes.
            amplitude = _AMPLITUDES[(index + index // len(_AMPLITUDES)) % len(_AMPLITUDES)]
            for dtype in ("float32", _TURN[(_turn(shape) + index // len(shapes)) % len(_TURN)]):
                yield self.problem(shape, dtype, index, amplitude)

    def problem(self, shape: Shape, dtype: str, index: int = 0, amplitude: float = 1.0) -> Problem:
        """Draw one problem."""
        return problem_of(self.fitted(shape), dtype, self.number(index), amplitude)

    def fitted(self, shape: Shape) -> Shape:
        """Change a shape to fit the constraints, and record it if it changes."""
        fit = fitted(shape, self.constraints)
        if fit != shape:
            self.changed.append(shape)
        return fit

    def data(self, dataset: str, size: tuple[int, int, int], dtype: str, index: int = 0) -> datasets.Problem:
        """Draw one problem of a data set, in a size (L, S, D)."""
        queries, keys, depth = size
        shape = self.fitted(Shape((), queries, keys, depth, depth))
        return datasets.problem(dataset, (shape.queries, shape.keys, shape.depth), dtype, self.number(index))

    def shapes(self, shape: Shape) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the three arrays, for other numbers than those of a problem."""
        fit = self.fitted(shape)
        return {
            "query": (*fit.outer, fit.queries, fit.depth),
            "key": (*fit.key_outer, fit.keys, fit.depth),
            "value": (*fit.key_outer, fit.keys, fit.value_depth),
        }

    def in_each_dtype(
        self,
        shape: Shape,
        amplitude: float = 1.0,
        dtypes: Sequence[str] = tuple(DTYPES),
        index: int = 0,
    ) -> Iterator[Problem]:
        """Draw one problem of a shape in each dtype."""
        for dtype in dtypes:
            yield self.problem(shape, dtype, index, amplitude)

    def generators(self, count: int = 6) -> Iterator[tuple[np.random.Generator, str]]:
        """Yield generators for other operations, each with two dtypes."""
        for index in range(count):
            for dtype in ("float32", _TURN[index % len(_TURN)]):
                yield np.random.default_rng(self.number(index)), dtype


@dataclass(frozen=True)
class Call:
    """A call that a group yields, with more than its arguments. The fields are those of `attnspec.Case`."""

    arguments: Arguments
    rules: tuple[str, ...] = ()  # by default the rules of the group
    operation: str = ""
    expected: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    misuse: Misuse | None = None
    alternatives: tuple[Alternative, ...] = ()
    layout: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Calls:
    """A relation that a group yields: the calls, and a function that compares their results."""

    calls: tuple[Arguments | Call, ...]
    run: Callable[[Any, tuple[Case, ...]], Found]
    rules: tuple[str, ...] = ()  # as in `Relation`
    live: bool = False
    beside: bool = False  # whether it also holds if all its calls have one more option
    bits: bool = False


Yielded = Arguments | Call | Calls


@dataclass(frozen=True)
class Group:
    """One group of cases of a chapter."""

    chapter: str
    name: str
    rules: tuple[str, ...]
    operation: str
    title: str  # the docstring of the function
    make: Callable[[Draw], Iterator[Yielded]]  # yields the calls
    step: int = 2  # the quick part has one in so many of its cases

    @property
    def id(self) -> str:
        """The beginning of the ids of its cases."""
        # The sign is kept, so that -0.5 and 0.5 are different groups.
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower().replace(" -", " minus ")).strip("-")
        return f"{self.chapter}-{slug}-"

    def items(self, seed: int | None = None, constraints: Constraints = ANY) -> Iterator[Item]:
        """Make the cases and relations of the group, numbered within each dtype.

        Cases that are drawn to fit constraints have other names.
        """
        counts: dict[str, int] = {}
        # Cases about shared heads keep them, and an implementation that has none is not asked.
        drawn = replace(constraints, heads="grouped") if "HEAD-1" in self.rules else constraints
        draw, beginning = Draw(f"{self.chapter}: {self.name}", seed, drawn), self.id
        for yielded in self.make(draw):
            made = self._made(yielded)
            beside = isinstance(yielded, Calls) and yielded.beside
            asked = made if constraints is ANY else with_always(made, constraints, beside=beside)
            if constraints is not ANY and isinstance(asked, Case):
                asked = fit_form(with_own_sides(asked, constraints), drawn)
            number = counts[made.dtype] = counts.get(made.dtype, 0) + 1
            # After the first changed shape, all names have the suffix, because cases may share a problem.
            suffix = FITTED + constraints.suffix if draw.changed or asked is not made else ""
            yield replace(asked, id=f"{beginning}{number}{suffix}")

    def _made(self, yielded: Yielded) -> Item:
        if isinstance(yielded, Calls):
            calls = tuple(self._case(one) for one in yielded.calls)
            rules = yielded.rules or self.rules
            return Relation("", self.title, rules, self.name, calls, yielded.run, yielded.live, yielded.bits)
        return self._case(yielded)

    def _case(self, yielded: Arguments | Call) -> Case:
        call = yielded if isinstance(yielded, Call) else Call(yielded)
        return Case(
            "",
            self.title,
            self.chapter,
            call.operation or self.operation,
            call.rules or self.rules,
            call.arguments,
            expected=call.expected,
            alternatives=call.alternatives,
            misuse=call.misuse,
            group=self.name,
            outputs=call.outputs,
            layout=call.layout,
        )


def with_always(item: Item, constraints: Constraints, *, beside: bool = False) -> Item:
    """Add the options that an implementation always applies to a case, if its values come from the oracle.

    The same is done for a relation that holds with any option. The standard does not define a row without
    a finite score, which such an option may cause.
    """
    if isinstance(item, Relation):
        if not beside:
            return item
        calls = tuple(_as_case(with_always(call, constraints)) for call in item.calls)
        all_have = all(constraints.always.keys() <= call.arguments.keys() for call in calls)
        changed = any(one is not other for one, other in zip(calls, item.calls, strict=True))
        return replace(item, calls=calls) if changed and all_have else item
    own = item.expected or item.misuse or item.alternatives
    if not is_of_attention(item.operation) or own or constraints.always.keys() <= item.arguments.keys():
        return item
    arrays = (item.arguments[name] for name in OPERATIONS[item.operation].arrays if name in item.arguments)
    if not all(np.isfinite(array).all() for array in arrays):
        return item
    return replace(item, arguments={**constraints.always, **item.arguments})


def with_own_sides(case: Case, constraints: Constraints) -> Case:
    """Give a window equal sides, or a left one alone, for an implementation that takes one number."""
    window, kind = case.arguments.get("window"), constraints.window
    own = case.expected or case.misuse or case.alternatives
    if kind == "sides" or own or not isinstance(window, tuple) or None in window or min(window) < 0:
        return case
    sides = (max(window),) * 2 if kind == "both" else (window[0], 0)
    closed = kind == "left" and case.arguments.get("is_causal") is True
    if closed or sides in ((0, 0), window):
        return case
    return replace(case, arguments={**case.arguments, "window": sides})


def _as_case(item: Item) -> Case:
    assert isinstance(item, Case)  # noqa: S101 - for the type checker: it was one
    return item


class Chapter(list[Group]):
    """The groups of a chapter, in the order in which they are written."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def group(
        self, *rules: str, operation: str = "attention", each: Sequence[Any] = (), step: int = 2
    ) -> Callable[[Callable[..., Iterator[Yielded]]], Callable[..., Iterator[Yielded]]]:
        """Register a function as a group, or with `each` as one group for each of several values.

        The quick part has one in `step` of its cases.
        """

        def enter(function: Callable[..., Iterator[Yielded]]) -> Callable[..., Iterator[Yielded]]:
            title = " ".join((function.__doc__ or "").split())
            name = function.__name__.replace("_", " ")
            found = (
                {name: function}
                if not each
                else {f"{name}: {_word(value)}": partial(_second, function, value) for value in each}
            )
            for own, make in found.items():
                self.append(Group(self.name, own, rules, operation, title, make, step))
            return function

        return enter


def _turn(shape: Shape) -> int:
    """Return the index of a shape among the shared shapes, or the number of keys of another shape."""
    return _SHARED.index(shape) if shape in _SHARED else shape.keys


def _second(function: Callable[..., Iterator[Yielded]], value: Any, draw: Draw) -> Iterator[Yielded]:
    return function(draw, value)


def _word(value: Any) -> str:
    return " and ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def drawn_cases(operation: str, seed: int) -> Iterator[Case]:
    """Draw the valid cases of an operation, of the groups of its own, or else of those about its rule."""
    from attnspec.conformance.suite import groups  # imports this module

    rules = {output.rule for output in OPERATIONS[operation].results}
    own = [group for group in groups() if group.operation == operation]
    for item in (
        item for group in own or groups() if own or rules & {*group.rules} for item in group.items(seed)
    ):
        if isinstance(item, Case) and item.operation == operation and not (item.misuse or item.alternatives):
            yield item
