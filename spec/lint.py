"""The linter of the golden vectors: what a schema cannot say."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnspec.case import Case
from attnspec.errors import SpecError
from attnspec.fitting import misfits
from attnspec.golden import cases
from attnspec.operations import OPERATIONS
from attnspec.rule import find_rule, rules
from attnspec.schema import SCHEMA, VECTORS, read
from attnspec.sizes import output_shapes

#: A golden vector is to be read: no array of it has more elements.
MOST_ELEMENTS = 64

#: Rules that only a live test can show, so that no stored case is asked for.
LIVE = frozenset(
    {
        "NUM-8",  # strides are not in a vector: arrays are spelled in row-major order
        "NUM-9",  # takes the same call twice
        "NUM-10",  # takes a batch entry alone and in its batch
        "ERR-13",  # takes two calls, one after the other
        "ERR-1",  # two answers conform, an error and a value; a case has one
        "ERR-14",  # likewise
        "ERR-17",  # likewise
        "SHAPE-10",  # is about what a call returns, and a case has each of it by name
        "GRAD-12",  # compares a call that has NaN with one that has none
        "GRAD-15",  # strides again, and inputs after the call
        "GRAD-17",  # is about what is not computed
        "GRAD-18",  # compares a call that has NaN with one that has none
        "GRAD-20",  # takes the mean of many errors
        "CACHE-10",  # takes attention over each part, and over all keys
    }
)

Arguments = Mapping[str, Any]


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
    for path in sorted(folder.glob("*.json")):
        if path.name != SCHEMA:
            read(path)  # against the schema: loading our own takes that for granted
    found = cases(folder)
    problems = [f"case {case.id}: {problem}" for case in found for problem in _of_case(case)]
    cited = {rule for case in found for rule in case.rules}
    problems += [f"rule {rule_id}: expected no case, as it is in LIVE" for rule_id in sorted(cited & LIVE)]
    wanted = [rule.id for rule in rules() if rule.id not in LIVE]
    problems += [f"rule {rule_id}: got no case, expected one" for rule_id in wanted if rule_id not in cited]
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
    absent = [name for name in operation.arrays if name not in case.arguments]
    problems += [f"argument {name}: got none, expected one" for name in absent]
    for name, x in case.arguments.items():
        if isinstance(x, np.ndarray) and x.size > MOST_ELEMENTS:
            problems.append(f"argument {name}: got {x.size} elements, expected {MOST_ELEMENTS} at most")
    if case.misuse is not None:
        if case.misuse.argument not in allowed:  # it may be missing from the call: that may be the fault
            problems.append(f"misuse: got {case.misuse.argument}, expected an argument of {case.operation}")
        return problems
    asked = {one.option: True for one in operation.results if one.option}
    wanted = operation.wanted({**case.arguments, **asked})
    if set(case.expected) != set(wanted):
        problems.append(f"expected: got {', '.join(case.expected)}, expected {', '.join(wanted)}")
    if not absent:
        problems += (found := misfits(case.operation, case.arguments))
        problems += [] if found else _of_expected(case)
    for other in case.alternatives:
        problems += _of_rule(other.rule, other.variant)
        problems += _of_alternative(other.variant, other.expected, case.expected)
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


def _of_alternative(variant: str, given: Arguments, expected: Arguments) -> list[str]:
    left, right = ({name: x.shape for name, x in group.items()} for group in (given, expected))
    if left != right:
        return [f"alternative {variant}: got shapes {left}, expected {right}"]
    if all(np.array_equal(x, expected[name], equal_nan=True) for name, x in given.items()):
        return [f"alternative {variant}: got the expected values, expected others"]
    return []


def _of_expected(case: Case) -> list[str]:
    shapes = output_shapes(case.operation, case.arguments)
    return [
        f"expected {name}: got shape {x.shape}, expected {shapes[name]}"
        for name, x in case.expected.items()
        if name in shapes and x.shape != shapes[name]
    ]
