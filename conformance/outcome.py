"""From the outcome of a pytest test to a verdict."""

import traceback
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis.errors import FailedHealthCheck, FlakyFailure, Unsatisfiable

from attnspec import Case, find_rule
from attnspec.backends import Backend, Broken, Unsupported
from attnspec.conformance.judge import deviations
from attnspec.conformance.judge.budget import CLASSES
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.verdict import NOT_SHOWN, UNMET, Verdict

#: What must be returned for a golden vector to say anything of a rule.
_OUTPUT_OF: Mapping[str, str] = MappingProxyType(
    {
        "SHAPE-4": "weights",
        "SOFT-4": "weights",
        "SHAPE-8": "lse",
        "SOFT-6": "lse",
        "SOFT-7": "lse",
        "DROP-3": "lse",
        "NUM-7": "lse",
    }
)


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
    backend = parameters["backend"]
    name = backend.name
    rules = rules_of(item)
    test = context = item.name
    if isinstance(error, FlakyFailure):
        error = error.exceptions[0]
        context = f"{test}, and not every time: the same call went otherwise when it was repeated"
    if isinstance(error, Failure):
        return _failed(Verdict(name, (error.rule,), test, "fail", f"{error}\nin {context}"))
    if isinstance(error, Raised):
        place = traceback.extract_tb(error.error.__traceback__)[-1]
        where = f"at {place.filename}, line {place.lineno}, in {place.name}"
        message = f"{rules[0]}: {name} {error}\n{where}\nin {context}"
        return _failed(Verdict(name, rules, test, "error", message))
    if isinstance(error, Broken):  # whatever the level of the rule
        return Verdict(name, rules, test, "error", f"{rules[0]}: {name} {error}\nin {context}")
    # Of the health checks only this one means that every example was rejected; others are errors of ours.
    all_rejected = isinstance(error, FailedHealthCheck) and "filter" in str(error)
    if isinstance(error, Unsatisfiable) or all_rejected:
        return Verdict(name, rules, test, "unsupported", f"{name} offers none of the calls of this test")
    if report.skipped or isinstance(error, Unsupported):
        return Verdict(name, rules, test, "unsupported", str(error))
    if error is not None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"{type(error).__name__}: {error}\nat {place.filename}, line {place.lineno}, outside the backend"
        )
        return Verdict(name, rules, test, "error", f"{text}\nin {test}")
    used = _used(report)
    deviates = [rule for key, rule in report.user_properties if key == "deviates" and isinstance(rule, str)]
    found = deviations.shown()
    if deviates or found:
        messages = [f"shows the variant declared for {rule}" for rule in dict.fromkeys(deviates)]
        messages += [f"{deviation.rules[0]}: {deviation.reason}" for deviation in found]
        theirs = tuple(dict.fromkeys((*deviates, *(deviation.rules[0] for deviation in found))))
        rules = tuple(dict.fromkeys((*rules, *theirs)))
        declared = tuple(deviation.id for deviation in found)
        return Verdict(name, rules, test, "deviation", "; ".join(messages), used, theirs, declared)
    return Verdict(name, rules, test, "pass", used=used)


def rules_of(item: pytest.Item) -> tuple[str, ...]:
    """Name the rules that a test of the suite bears on, for its backend."""
    if getattr(item, "originalname", "") != "test_golden":
        marker = item.get_closest_marker("rule")
        return marker.args if marker else ()
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    case, dtype, backend = (parameters[name] for name in ("case", "dtype", "backend"))
    return tuple(rule_id for rule_id in case.rules if asked(rule_id, backend, case, dtype))


def asked(rule_id: str, backend: Backend, case: Case, dtype: str) -> bool:
    """Whether a golden vector asks a rule at all of a backend, in a dtype."""
    if rule_id in ("NUM-5", "NUM-6"):
        return "float16" in dtype
    output = _OUTPUT_OF.get(rule_id)
    return output is None or case.misuse is not None or backend.has(case.operation, f"return_{output}")


def _failed(verdict: Verdict) -> Verdict:
    """Weigh a failure by the level of its rule: only a MUST that does not hold is held against a backend."""
    rule = find_rule(verdict.rules[0])
    if rule.level == "SHOULD":
        message = f"{UNMET}: {verdict.message}"
        return Verdict(verdict.backend, (rule.id,), verdict.test, "deviation", message, {}, (rule.id,))
    if rule.level == "MAY":
        message = f"{NOT_SHOWN}: {verdict.message}"
        return Verdict(verdict.backend, (rule.id,), verdict.test, "unsupported", message)
    return verdict


def _used(report: pytest.TestReport) -> dict[str, tuple[float, str]]:
    """Take the worst of all calls of a test, dtype by dtype."""
    found: dict[str, tuple[float, str]] = {}
    for key, entry in report.user_properties:
        if key == "used" and isinstance(entry, tuple | list):
            dtype, share, accuracy = entry
            before, loosest = found.get(dtype, (0.0, "full"))
            found[dtype] = max(before, share), max(loosest, accuracy, key=CLASSES.index)
    return found
