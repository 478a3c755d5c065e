"""Sized cases: calls of attention by formula, whose arrays are made when they are judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from secrets import randbits

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import DTYPES, Backend
from attnspec.backends.constraints import Constraints, fits
from attnspec.case import SIZES, Provenance
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.traits import ARBITRARY, MORE_THAN, NOT_A_MULTIPLE, ONE_QUERY, SHARED
from attnspec.conformance.verdict import Verdict, not_judged_in
from attnspec.formula import Formula
from attnspec.operations.operation import primal

#: The outputs that are judged. The weights would need too much memory.
OUTPUTS = ("output", "lse")
#: The sizes above which kernels take other paths, and those that they divide into.
_TILES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_EDGES = {
    "queries": _TILES,
    "keys": _TILES,
    "heads": (1, 8, 16, 32),
    "batch entries": (1, 4, 16),
    "features": (32, 64, 128, 256),
    "features of values": (32, 64, 128, 256),
}
_UNITS = {"queries": (2, 16, 64, 128), "keys": (2, 16, 64, 128), "features": (8, 16, 32)}
#: The products of matrices of a forward and a backward pass, for each of those of a forward pass.
_BACKWARD = 3
#: The octets of a number.
_OCTETS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class SizedCase:
    """A call of attention by formula, or of its gradients. The fields are those of a case."""

    id: str
    title: str
    rules: tuple[str, ...]
    group: str
    formula: Formula
    dtype: str
    layout: Mapping[str, str] = field(default_factory=dict)
    operation: str = "attention"

    @property
    def name(self) -> str:
        """Its id and its dtype."""
        return f"{self.id}-{self.dtype}"

    @property
    def calls(self) -> tuple[Case, ...]:
        """Its one call, whose arrays are made when it is asked for."""
        return (self.case,)

    @property
    def refusal(self) -> bool:
        """A sized case is no call that must be rejected."""
        return False

    def require(self, backend: Backend) -> None:
        """Raise `Missing` if the backend does not offer the call, before its arrays are made."""
        if self.dtype not in set(backend.dtypes) & set(DTYPES):
            said = not_judged_in([self.dtype], backend.dtypes)
            raise Missing(f"{backend.name} {said}", f"dtype {self.dtype}")
        missing = [name for name in self.named if not backend.has(self.operation, name)]
        if missing:
            lacks = [f"argument {name}" for name in missing]
            raise Missing(f"{backend.name} has no argument {', '.join(missing)}", *lacks)
        if self.layout and getattr(backend.function(self.operation), "copies", False):
            raise Missing(f"{backend.name} gets copies of these arrays, which have no strides of their own")
        misfit = self.misfit(backend.constraints)
        if misfit:
            raise Missing(f"{backend.name} {misfit}")

    def applicable_rules(self, _: Backend) -> tuple[str, ...]:
        """Return all of its rules."""
        return self.rules

    def judge(self, backend: Backend, verdict: Verdict) -> Verdict:
        """Make the call, and compare every row, or some rows of arbitrary numbers."""
        from attnspec.conformance.sizes.judge import judge_sized  # it imports this module

        return judge_sized(backend, self, verdict)

    @property
    def gradients(self) -> bool:
        """Whether it is a call of the gradients."""
        return self.operation != primal(self.operation)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that are judged."""
        given = ("query", "key", "value", *self.formula.options)
        gradients = tuple(result.name for result in OPERATIONS[self.operation].results if result.of in given)
        return gradients if self.gradients else OUTPUTS

    @property
    def _rows(self) -> int:
        return prod(self.formula.batch) * self.formula.heads * self.formula.queries

    @property
    def scores(self) -> int:
        """The number of scores of all heads and batch entries."""
        return self._rows * self.formula.keys

    @property
    def work(self) -> int:
        """The number of multiplications of an implementation that computes every score."""
        times = _BACKWARD if self.gradients else 1
        return times * self.scores * (self.formula.depth + self.formula.value_depth)

    @property
    def octets(self) -> int:
        """The memory of the arrays and of the result. Each of them has a cotangent or a gradient."""
        formula = self.formula
        times = 2 if self.gradients else 1
        queries = self._rows * (formula.depth + formula.value_depth)
        keys = prod(formula.batch) * formula.key_heads * formula.keys * (formula.depth + formula.value_depth)
        return times * (queries + keys) * _OCTETS[self.dtype]

    @property
    def numbers(self) -> int:
        """The number of numbers in query, key and value."""
        formula = self.formula
        keys = prod(formula.batch) * formula.key_heads * formula.keys * (formula.depth + formula.value_depth)
        return self._rows * formula.depth + keys

    @property
    def named(self) -> tuple[str, ...]:
        """The canonical names of its options."""
        segments = ("query_segment_ids", "key_segment_ids")
        return tuple(
            name
            for option in self.formula.options
            for name in (segments if option == "segments" else (option,))
        )

    @property
    def traits(self) -> tuple[str, ...]:
        """Its options, and the sizes that choose a path of a kernel."""
        formula = self.formula
        sizes = {
            "queries": formula.queries,
            "keys": formula.keys,
            "heads": formula.heads,
            "batch entries": prod(formula.batch),
            "features": formula.depth,
            "features of values": formula.value_depth,
        }
        found = {*self.named, *(["layout"] if self.layout else [])}
        for name, size in sizes.items():
            found |= {f"{MORE_THAN}{edge} {name}" for edge in _EDGES[name] if size > edge}
            found |= {f"{name}{NOT_A_MULTIPLE}{unit}" for unit in _UNITS.get(name, ()) if size % unit}
        if formula.queries == 1:
            found.add(ONE_QUERY)
        if formula.heads != formula.key_heads:
            found.add(SHARED)
        if self.sampled:
            found.add(ARBITRARY)
        return tuple(sorted(found))

    def misfit(self, constraints: Constraints) -> str:
        """Return the reason that the call violates constraints; empty if it does not."""
        formula = self.formula
        biased = "bias" in formula.options
        if constraints.slopes and biased:
            return "takes slopes of ALiBi, got a bias that is none of ALiBi"
        shapes = {
            "query": (*formula.batch, formula.heads, formula.queries, formula.depth),
            "key": (*formula.batch, formula.key_heads, formula.keys, formula.depth),
            "value": (*formula.batch, formula.key_heads, formula.keys, formula.value_depth),
        }
        # Views of one number have the shapes without the memory.
        arrays = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
        arrays |= {"bias": np.zeros((), np.float32)} if biased else {}  # its dtype is that of the query
        return fits(constraints, {**formula.options, **arrays})

    @property
    def sampled(self) -> bool:
        """Whether only some rows are compared, because all rows of queries and keys are different."""
        return not self.formula.words

    @cached_property
    def seed(self) -> int:
        """The seed of the judged rows, if only some are. It is drawn when the first result is there.

        If the same object is judged again, the same rows are. Otherwise a wrong kernel could fail once and
        pass then, and would be said to be not repeatable.
        """
        return randbits(32)

    @cached_property
    def case(self) -> Case:
        """The call with its arrays."""
        formula, made = self.formula, Provenance("the suite", "made by a formula")
        return Case(
            self.id,
            self.title,
            SIZES,
            self.operation,
            self.rules,
            formula.arguments_of_gradients(self.dtype) if self.gradients else formula.arguments(self.dtype),
            provenance=made,
            group=self.group,
            outputs=self.outputs,
            layout=self.layout,
        )
