"""Calls for measuring the diagnosis: golden vectors, and calls with one option each."""

from attnspec import Case, cases
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.suite.options import OPTIONS, drawn
from attnspec.conformance.suite.problem import GROUPED, MASKED, Shape, problem_of

_SHAPES = (MASKED[0], GROUPED[1], Shape((1, 1), 19, 35, 2, 2))
_PLAIN = (
    Shape((), 2, 257, 2, 3),
    Shape((), 33, 9, 20, 2),
    Shape((2, 2), 4, 4, 3, 3),
    Shape((2,), 3, 4, 2, 5),
)


def golden() -> list[Case]:
    """Return all golden vectors, each in one of the dtypes that hold its numbers."""
    each = [in_each(case) for case in cases()]
    return [found[number % len(found)] for number, found in enumerate(each) if found]


def probes(seed: int = 5) -> list[Case]:
    """Make cases with one option each, and plain cases. Some have sizes past tiles."""
    found = []
    for number, shape in enumerate((*_SHAPES, *_PLAIN)):
        for dtype in ("float32", "float16"):
            for name in OPTIONS if number < len(_SHAPES) else ("plain",):
                problem = problem_of(shape, dtype, seed + number)
                needs, own = ({}, {}) if name == "plain" else drawn(problem, name)
                rule = OPTIONS[name].rule if name in OPTIONS else "SOFT-1"
                title, arguments = f"a probe of {name}", problem.arguments | needs | own
                id_ = f"errors-probe-{name.replace('_', '-')}-{number}"
                found.append(Case(id_, title, "errors", "attention", (rule,), arguments, group="probe"))
    return found
