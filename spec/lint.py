"""The linter of the golden vectors: what a schema cannot say."""

from pathlib import Path
from typing import Any

import numpy as np

from attnspec.case import VECTORS, Case, cases
from attnspec.errors import SpecError
from attnspec.rule import find_rule, rules
from attnspec.signature import OPERATIONS

#: A golden vector is to be read: no array of it has more elements.
MOST_ELEMENTS = 64


def lint(folder: Path = VECTORS) -> list[str]:
    """List what is wrong with the golden vectors of a folder; nothing, when nothing is.

    Parameters
    ----------
    folder : Path, optional
        By default that of the standard.

    Raises
    ------
    SpecError
        When a file cannot be read, or an id stands twice.

    Examples
    --------
    >>> from attnspec.lint import lint
    >>> lint()
    []
    """
    found = cases(folder)
    problems = [f"case {case.id}: {problem}" for case in found for problem in _of_case(case)]
    cited = {rule for case in found for rule in case.rules}
    problems += [f"rule {rule.id}: got no case, expected one" for rule in rules() if rule.id not in cited]
    return problems


def _of_case(case: Case) -> list[str]:
    problems = []
    if case.id.partition("-")[0] != case.chapter:
        problems.append(f"id: expected it to begin with {case.chapter}")
    problems += [problem for rule_id in case.rules for problem in _of_rule(rule_id, None)]
    operation = OPERATIONS[case.operation]
    allowed = {*operation.arrays, *operation.options}
    problems += [
        f"argument {name}: expected one of {case.operation}" for name in case.arguments if name not in allowed
    ]
    problems += [
        f"argument {name}: got none, expected one" for name in operation.arrays if name not in case.arguments
    ]
    for name, x in case.arguments.items():
        if isinstance(x, np.ndarray) and x.size > MOST_ELEMENTS:
            problems.append(f"argument {name}: got {x.size} elements, expected {MOST_ELEMENTS} at most")
    if case.misuse is not None:
        if case.misuse.argument not in case.arguments:
            problems.append(f"misuse: got {case.misuse.argument}, expected the name of an argument")
        return problems
    if set(case.expected) != set(operation.outputs):
        problems.append(f"expected: got {', '.join(case.expected)}, expected {', '.join(operation.outputs)}")
    for other in case.alternatives:
        problems += _of_rule(other.rule, other.variant)
        problems += _of_shapes(other.variant, other.expected, case.expected)
    if case.operation == "attention":
        outer = case.arguments["query"].shape[:-1]
        shapes = {
            "output": (*outer, case.arguments["value"].shape[-1]),
            "weights": (*outer, case.arguments["key"].shape[-2]),
        }
        problems += [
            f"expected {name}: got shape {x.shape}, expected {shapes[name]}"
            for name, x in case.expected.items()
            if name in shapes and x.shape != shapes[name]
        ]
    return problems


def _of_rule(rule_id: str, variant: str | None) -> list[str]:
    try:
        rule = find_rule(rule_id)
    except SpecError as error:
        return [str(error)]
    known = [other.name for other in rule.variants]
    if variant is not None and variant not in known:
        return [
            f"alternative: got variant {variant!r} of {rule_id}, expected one of {', '.join(known) or 'none'}"
        ]
    return []


def _of_shapes(variant: str, given: Any, expected: Any) -> list[str]:
    left, right = ({name: x.shape for name, x in group.items()} for group in (given, expected))
    return [] if left == right else [f"alternative {variant}: got shapes {left}, expected {right}"]
