"""A call that must be rejected: what is wrong with it, and whether a rule requires an error."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import OPERATIONS, find_rule
from attnspec.conformance.suite.faults import BATCHES, fitting
from attnspec.operations import Argument


@dataclass(frozen=True)
class Malformed:
    """One call that must be rejected."""

    name: str
    rule: str
    argument: str  # at fault
    names: tuple[str, ...]  # that an error may name: the one at fault, or an array that changed with it
    operation: str
    arguments: Mapping[str, Any]  # with floating-point arrays in float64
    #: Whether the suite requires the refusal. Our own implementations refuse the others too: those that no
    #: rule covers, such as True for a number, and those that another operation is asked to refuse.
    asked: bool = True
    required: bool = True  # whether a rule requires it
    kind: str = ""  # of fault: as in `Argument.refusals`, or one by itself


def make_call(
    operation: str,
    argument: Argument,
    words: str,
    key: str,
    changes: Mapping[str, Any],
    sizes: Mapping[str, int],
    *,
    own: bool = False,
    late: bool = False,
) -> Malformed:
    """Make a valid call with some changes, one of which is a fault of an argument."""
    form = OPERATIONS[operation]
    rule = argument.refusals.get(key, argument.refusals.get("shape", argument.rule))
    # A number of heads is compared with the arrays that have this number.
    holding = [array.name for array in form.positional if argument.binds and speaks_of(array, argument.binds)]
    names = dict.fromkeys((argument.name, *(name for name in changes if name in form.arrays), *holding))
    required = not own and _is_required(rule, argument, key) and not _has_a_variant(rule, argument, changes)
    kind = words if late else key
    late = late or (rule == "ERR-2" and f"`{argument.name}`" not in find_rule(rule).sentence)
    arguments = MappingProxyType({**fitting(operation, sizes), **changes})
    asked = required and not late
    return Malformed(words, rule, argument.name, tuple(names), operation, arguments, asked, required, kind)


def speaks_of(argument: Argument, letter: str) -> bool:
    """Whether the shape of an argument has a letter."""
    return any(letter in axis.split("*") for axis in argument.shape)


def _is_required(rule: str, argument: Argument, key: str) -> bool:
    """Whether a rule requires an error for a fault."""
    sentence = find_rule(rule).sentence
    if argument.broadcasts and key == "shape":
        return True
    return "raise an error" in sentence


def _has_a_variant(rule: str, argument: Argument, changes: Mapping[str, Any]) -> bool:
    """Whether an array has too few or too many axes, and a variant of the rule defines the result."""
    given = changes.get(argument.name)
    if argument.kind != "array" or argument.broadcasts or not isinstance(given, np.ndarray):
        return False
    return bool(find_rule(rule).variants) and given.ndim != len(argument.shape) - 1 + len(BATCHES)
