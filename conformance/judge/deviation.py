"""Declared deviations: which of them a failure is, and which of them a run has not shown."""

from collections.abc import Collection, Mapping

from attnspec import Case
from attnspec.backends import Backend, Deviation
from attnspec.conformance.verdict import Verdict


def declared_for(backend: Backend, rule: str, case: Case, output: str = "") -> Deviation | None:
    """Find the declared deviation that a broken rule is, for just such a case; None where there is none.

    Parameters
    ----------
    backend : Backend
    rule : str
        The rule that is broken.
    case : Case
    output : str, optional
        The output that shows it; none where it is refused or raised what must not be.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec import find_case
    >>> from attnspec.backends import Deviation, load
    >>> from attnspec.conformance.judge.deviation import declared_for
    >>> deviation = Deviation(("ERR-6",), "any scale is taken", "scale", dtypes=("float16",))
    >>> backend = replace(load("numpy-portable"), deviations=(deviation,))
    >>> declared_for(backend, "ERR-6", find_case("masking-empty-last")) is None  # in float64
    True
    """
    for deviation in backend.deviations:
        if deviation.covers(rule, case.arguments, dtype=case.dtype, output=output, group=case.group):
            return deviation
    return None


def not_shown(backend: Backend, shown: Collection[str]) -> list[Verdict]:
    """Make an error of each variant and deviation that a backend declares and a whole run has not shown.

    Parameters
    ----------
    backend : Backend
    shown : collection of str
        What its verdicts show, as `shown` names it.
    """
    declared: Mapping[str, tuple[str, str]] = {
        **{rule: (rule, f"the variant `{variant}`") for rule, variant in backend.dialect.items()},
        **{one.id: (one.rules[0], f"the deviation ({one.reason})") for one in backend.deviations},
    }
    missing = []
    for key, (rule, what) in declared.items():
        if key not in shown:
            reason = f"{backend.name} declares {what}, and no case of a whole run shows it"
            missing.append(Verdict(backend.name, "", "", (rule,), "error", rule=rule, reason=reason))
    return missing
