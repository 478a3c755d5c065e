"""The linter of the golden vectors, for everything that a schema cannot express."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnspec.case import Case
from attnspec.errors import SpecError
from attnspec.golden import cases
from attnspec.operations import OPERATIONS
from attnspec.rule import find_rule, rules
from attnspec.schema import SCHEMA, VECTORS, read
from attnspec.sizes import misfits, output_shapes

#: The largest number of elements of an array, because golden vectors are meant to be read.
MOST_ELEMENTS = 64

#: Rules that only a live test can show, and that need no stored case.
LIVE = frozenset(
    {
        "NUM-8",  # strides are not in a vector: arrays are spelled in row-major order
        "NUM-9",  # needs the same call twice
        "NUM-10",  # needs a batch entry alone and in its batch
        *(f"INV-{number}" for number in range(1, 10)),  # compare several large calls
        "ERR-13",  # needs two calls, one after the other
        "ERR-1",  # both an error and a value conform, and a case has only one
        "ERR-14",  # likewise
        "ERR-17",  # likewise
        "ERR-19",  # likewise; a relation shows what a result depends on
        "ERR-20",  # needs a call that is captured, and its replays
        "SHAPE-10",  # is about the order of results, which a case stores by name
        "GRAD-12",  # compares a call that has NaN with one that has none
        "GRAD-15",  # is about strides, and about inputs after the call
        "GRAD-17",  # is about what is not computed
        "GRAD-18",  # compares a call that has NaN with one that has none
        "GRAD-20",  # needs the mean of many errors
        *(f"DROP-{number}" for number in range(5, 10)),  # need calls that show the mask of a seed
        "CACHE-10",  # needs attention over each part and over all keys
    }
)

Arguments = Mapping[str, Any]


def lint(folder: Path = VECTORS) -> list[str]:
    """List the problems of the golden vectors of a folder."""
    for path in sorted(folder.glob("*.json")):
        if path.name != SCHEMA:
            read(path)  # validates against the schema, which loading our own vectors does not
    results = cases(folder)
    problems = [f"case {case.id}: {problem}" for case in results for problem in _of_case(case)]
    cited = {rule for case in results for rule in case.rules}
    problems += [f"rule {rule_id}: expected no case, as it is in LIVE" for rule_id in sorted(cited & LIVE)]
    wanted = [rule.id for rule in rules() if rule.id not in LIVE]
    problems += [f"rule {rule_id}: expected a case, got none" for rule_id in wanted if rule_id not in cited]
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
    problems += [f"argument {name}: expected a value, got none" for name in absent]
    for name, x in case.arguments.items():
        if isinstance(x, np.ndarray) and x.size > MOST_ELEMENTS:
            problems.append(f"argument {name}: expected at most {MOST_ELEMENTS} elements, got {x.size}")
    if case.misuse is not None:
        if case.misuse.argument not in allowed:  # it may be absent from the call, if that is the fault
            problems.append(f"misuse: expected an argument of {case.operation}, got {case.misuse.argument}")
        return problems
    wanted = operation.judged(case.arguments)
    if set(case.expected) != set(wanted):
        problems.append(f"outputs: expected {', '.join(wanted)}, got {', '.join(case.expected)}")
    if not absent:
        problems += (result := misfits(case.operation, case.arguments))
        problems += [] if result else _of_expected(case)
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
            f"alternative: expected variants of {rule_id} ({', '.join(known) or 'none'}), got {variant!r}"
        ]
    return []


def _of_alternative(variant: str, arguments: Arguments, expected: Arguments) -> list[str]:
    left, right = ({name: x.shape for name, x in group.items()} for group in (arguments, expected))
    if left != right:
        return [f"alternative {variant}: expected shapes {right}, got {left}"]
    if all(np.array_equal(x, expected[name], equal_nan=True) for name, x in arguments.items()):
        return [f"alternative {variant}: expected values other than those of the rule, got the same"]
    return []


def _of_expected(case: Case) -> list[str]:
    shapes = output_shapes(case.operation, case.arguments, counted=True)
    return [
        f"expected {name}: expected shape {shapes[name]}, got {x.shape}"
        for name, x in case.expected.items()
        if name in shapes and x.shape != shapes[name]
    ]
