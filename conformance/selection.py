"""Which tests of the suite are run: by rule, by golden vector, and the fixed part that is quick."""

from collections.abc import Collection, Mapping
from typing import Any
from zlib import crc32

import pytest

from attnspec import Case
from attnspec.conformance.judge.dtypes import dtypes_of


def is_selected(
    item: pytest.Function, *, quick: bool, rules: Collection[str], cases: Collection[str]
) -> bool:
    """Whether a test is to be run.

    Parameters
    ----------
    item : pytest.Function
        A test of the suite.
    quick : bool
        Golden vectors in one dtype each, that of their turn, but all of them in the chapter `numerics`.
        What is left of the properties is said by `attnspec.conformance.extent`.
    rules, cases : collection of str
        Ids; only tests that bear on one of them. Empty for all.
    """
    parameters: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    case: Case | None = parameters.get("case")
    if cases and (case is None or case.id not in cases):
        return False
    if rules and not set(rules) & set(_rules_of(item, case)):
        return False
    return not quick or case is None or "dtype" not in parameters or _in_turn(parameters, case)


def _rules_of(item: pytest.Function, case: Case | None) -> tuple[str, ...]:
    if case is not None:
        return case.rules
    marker = item.get_closest_marker("rule")
    return marker.args if marker else ()


def _in_turn(parameters: Mapping[str, Any], case: Case) -> bool:
    offered = [dtype for dtype in dtypes_of(case) if dtype in parameters["backend"].dtypes]
    if case.chapter == "numerics" or not offered:
        return True
    return bool(parameters["dtype"] == offered[crc32(case.id.encode()) % len(offered)])
