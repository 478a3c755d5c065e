"""From the outcome of a pytest test to a verdict."""

import traceback
from typing import Any

import pytest
from hypothesis.errors import FailedHealthCheck, Unsatisfiable

from attnspec.conformance.allowance import CLASSES
from attnspec.conformance.failure import Failure, Raised
from attnspec.conformance.verdict import Verdict


def outcome(item: pytest.Item, report: pytest.TestReport, error: BaseException | None) -> Verdict | None:
    """Say what a test of the suite says of its backend; None when it has none.

    Parameters
    ----------
    item : pytest.Item
        The test.
    report : pytest.TestReport
        What pytest makes of it.
    error : BaseException or None
        What it raised.
    """
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if "backend" not in parameters:
        return None
    name = parameters["backend"].name
    marker = item.get_closest_marker("rule")
    rules: tuple[str, ...] = (
        parameters["case"].rules if "case" in parameters else marker.args if marker else ()
    )
    rules = tuple(rule_id for rule_id in rules if _asked(rule_id, parameters))
    test = item.name
    properties = dict(report.user_properties)
    if isinstance(error, Failure):
        return Verdict(name, (error.rule,), test, "fail", f"{error}\nin {test}")
    if isinstance(error, Raised):
        place = traceback.extract_tb(error.error.__traceback__)[-1]
        where = f"at {place.filename}, line {place.lineno}, in {place.name}"
        message = f"{rules[0]}: {name} {error}\n{where}\nin {test}"
        return Verdict(name, rules, test, "error", message)
    # Of the health checks only this one means that every example was rejected; others are errors of ours.
    all_rejected = isinstance(error, FailedHealthCheck) and "filter" in str(error)
    if isinstance(error, Unsatisfiable) or all_rejected:
        return Verdict(name, rules, test, "unsupported", f"{name} offers none of the calls of this test")
    if report.skipped:
        return Verdict(name, rules, test, "unsupported", str(error))
    if error is not None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"{type(error).__name__}: {error}\nat {place.filename}, line {place.lineno}, outside the backend"
        )
        return Verdict(name, rules, test, "error", f"{text}\nin {test}")
    used = _used(report)
    deviates = properties.get("deviates")
    if isinstance(deviates, str):
        message = f"shows the variant declared for {deviates}"
        return Verdict(name, (deviates,), test, "deviation", message, used)
    return Verdict(name, rules, test, "pass", used=used)


def _asked(rule_id: str, parameters: dict[str, Any]) -> bool:
    """Whether a golden vector asks a rule at all of this backend, in this dtype."""
    if rule_id in ("NUM-5", "NUM-6"):
        return "float16" in parameters.get("dtype", "float16")
    if rule_id in ("SHAPE-4", "SOFT-4") and "case" in parameters:
        return bool(parameters["backend"].has("attention", "return_weights"))
    return True


def _used(report: pytest.TestReport) -> dict[str, tuple[float, str]]:
    """Take the worst of all calls of a test, dtype by dtype."""
    found: dict[str, tuple[float, str]] = {}
    for key, entry in report.user_properties:
        if key == "used" and isinstance(entry, tuple | list):
            dtype, share, accuracy = entry
            before, loosest = found.get(dtype, (0.0, "full"))
            found[dtype] = max(before, share), max(loosest, accuracy, key=CLASSES.index)
    return found
