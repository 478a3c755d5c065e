"""Relations between several calls, for rules that no single call can show."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.cause import SHAPE_RULES
from attnspec.conformance.judge.failure import Failure, Missing
from attnspec.conformance.judge.judge import require_calls, settle
from attnspec.conformance.judge.traits import numbers, traits_of_relation
from attnspec.conformance.verdict import OUTPUT_OF, Difference, Verdict, rules_with_outputs

#: None if the relation holds. Otherwise a difference, a sentence, or the verdict on one of the calls.
Found = Difference | Verdict | str | None


@dataclass(frozen=True)
class Relation:
    """A relation that must hold between calls.

    The fields are those of a case, and `title` states the relation. `calls` do not depend on the
    results of other calls. `run` makes them on a backend, and returns what does not hold. `live` says
    that it needs a live backend, and cannot be judged from stored answers: it repeats a call, asks for
    fewer outputs, uses the result of another call, or checks that inputs do not change. `bits` says
    that it compares only the bits of results, so that it needs no expected values.
    """

    id: str
    title: str
    rules: tuple[str, ...]
    group: str
    calls: tuple[Case, ...]
    run: Callable[[Backend, tuple[Case, ...]], Found]
    live: bool = False
    bits: bool = False

    @property
    def chapter(self) -> str:
        """The chapter of its first call."""
        return self.calls[0].chapter

    @property
    def dtype(self) -> str:
        """The dtype of its first call."""
        return self.calls[0].dtype

    @property
    def operation(self) -> str:
        """The operation of its first call."""
        return self.calls[0].operation

    @property
    def name(self) -> str:
        """Its id and its dtype."""
        return f"{self.id}-{self.dtype}"

    @property
    def refusal(self) -> bool:
        """A relation is no call that must be rejected."""
        return False

    @property
    def traits(self) -> tuple[str, ...]:
        """The traits of all of its calls."""
        return traits_of_relation(self.calls, bits=self.bits)

    @property
    def numbers(self) -> int:
        """The number of numbers in the arrays of its calls."""
        return numbers(self.calls)

    def require(self, backend: Backend) -> None:
        """Raise `Missing` if the backend does not offer the calls, or has none of their operations."""
        require_calls(backend, self)
        if not backend.cases and not any(backend.function(case.operation) for case in self.calls):
            raise Missing(f"{backend.name} has no {self.operation}", f"operation {self.operation}")

    def applicable_rules(self, backend: Backend) -> tuple[str, ...]:
        """Leave out rules about outputs that the backend does not return."""
        outputs = [name for name in OUTPUT_OF.values() if backend.has("attention", f"return_{name}")]
        return rules_with_outputs(self.rules, outputs)

    def judge(self, backend: Backend, verdict: Verdict) -> Verdict:
        """Make the calls, and turn what does not hold into a verdict."""
        try:
            found = self.run(backend, self.calls)
        except (ValueError, IndexError):  # the relation cannot combine results whose shapes differ
            if (wrong := wrong_shape(backend, self.calls)) is None:
                raise
            raise wrong from None
        if found is None:
            return verdict
        if isinstance(found, Verdict):  # one of the cases of a sequence
            return replace(
                found,
                case=verdict.case,
                group=verdict.group,
                rules=tuple(dict.fromkeys((*verdict.rules, *found.rules))),
            )
        failed = replace(verdict, status="fail", rule=self.rules[0])
        if isinstance(found, Difference):
            return settle(backend, self, replace(failed, difference=found, code="differs"))
        return settle(backend, self, replace(failed, reason=found, code="relation"))


def wrong_shape(backend: Backend, calls: Iterable[Case]) -> Failure | None:
    """Make calls of attention until a result has a wrong shape. Return None if all shapes are right."""
    for case in calls:
        if case.operation == "attention":
            outputs = observe(backend, case)
            for name, shape in _shapes(case.arguments).items():
                if name in outputs and outputs[name].shape != shape:
                    found = Difference("shape", name, (), str(outputs[name].shape), str(shape))
                    return Failure(SHAPE_RULES[name], difference=found)
    return None


def _shapes(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    rows = arguments["query"].shape[:-1]
    value = arguments["value"].shape
    return {"output": (*rows, value[-1]), "weights": (*rows, value[-2]), "lse": rows, "max": rows}
