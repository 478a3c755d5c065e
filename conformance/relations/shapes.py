"""The shapes of the outputs of attention, for relations without expected values."""

from collections.abc import Iterable, Mapping
from typing import Any

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.verdict import Difference

#: The rule that a wrong shape of an output of attention breaks.
RULES = {output.name: output.rule for output in OPERATIONS["attention"].results}


def misshapen(backend: Backend, calls: Iterable[Case]) -> Failure | None:
    """Make calls of attention until a result has a wrong shape. Return None if all shapes are right."""
    for case in calls:
        if case.operation == "attention":
            outputs = observe(backend, case)
            for name, shape in _shapes(case.arguments).items():
                if name in outputs and outputs[name].shape != shape:
                    found = Difference("shape", name, (), str(outputs[name].shape), str(shape))
                    return Failure(RULES[name], difference=found)
    return None


def _shapes(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    rows = arguments["query"].shape[:-1]
    value = arguments["value"].shape
    return {"output": (*rows, value[-1]), "weights": (*rows, value[-2]), "lse": rows, "max": rows}
