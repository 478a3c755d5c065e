"""What a cell of the matrix shows when it is opened, as JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from math import isfinite
from typing import Any

import numpy as np

from attnspec import Case, cases
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.levels import NOT_SHOWN, rule_results
from attnspec.conformance.outside import cut, plain
from attnspec.conformance.render.finding import cause_lines
from attnspec.conformance.render.reproduction import check_command, reproduction
from attnspec.conformance.render.text import DifferenceText, exception_lines, resemblances
from attnspec.conformance.verdict import Difference, Verdict

#: The largest number of examples in a cell, and of characters of a text in it.
_MOST, _LONGEST = 4, 800
#: Where installed packages are. The folders before it tell a reader nothing.
_INSTALLED = re.compile(r"(?<=[/\\])(?:site|dist)-packages[/\\]")
_WORD = re.compile(r"[^\s\"'(]+")


@dataclass(frozen=True)
class Example:
    """One case in a cell: the number of cases for which it stands, and its values if any were compared.

    `notes` say what else is known: a reason, an exception, what the result resembles, what the calls share.
    """

    case: str
    dtype: str
    status: str
    number: int = 1
    place: str = ""
    got: str = ""
    expected: str = ""
    allowed: str = ""
    off: str = ""
    notes: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    script: str = ""
    command: str = ""


def cells_of(verdicts: Sequence[Verdict], seed: int | None = None) -> dict[str, Any]:
    """Return for each rule the counts of its results, and examples of what does not hold.

    A rule that holds has the case that used the largest share of its budget, and the command that
    judges it again. Of what is not offered, the reason is given.
    """
    by_rule: dict[str, dict[str, list[Verdict]]] = {}
    for verdict in verdicts:
        for rule, status in rule_results(verdict).items():
            by_rule.setdefault(rule, {}).setdefault(status, []).append(verdict)
    by_cause: dict[str, list[Finding]] = {}
    for finding in findings(verdicts, verdicts, seed=seed):
        by_cause.setdefault(finding.rule, []).append(finding)
    return {rule: _cell(rule, by, by_cause.get(rule, []), seed) for rule, by in by_rule.items()}


def _cell(
    rule: str,
    by: dict[str, list[Verdict]],
    causes: list[Finding],
    seed: int | None,
) -> dict[str, Any]:
    cell: dict[str, Any] = {"counts": {status: len(its) for status, its in by.items()}}
    bad = [*by.get("fail", ()), *by.get("error", ())]
    examples = [
        _example(
            finding.verdict, seed, sum(failure.main_rule == rule for failure in finding.failures), finding
        )
        for finding in causes
    ]
    if bad and not examples:  # the failures have a cause under another rule
        examples = [_example(min(bad, key=_plainness), seed, len(bad))]
    for status in ("deviation", "should not met", NOT_SHOWN):
        for group in _alike(by.get(status, ())):
            examples.append(_example(min(group, key=_plainness), seed, len(group)))
    if examples:
        cell["examples"] = [_plain(asdict(example)) for example in islice(examples, _MOST)]
        cell["more"] = len(examples) - len(cell["examples"])
    elif passing := by.get("pass"):
        most = max(
            passing, key=lambda each: (bool(each.accuracy), each.share if isfinite(each.share) else 0.0)
        )
        command = check_command(most, seed) if most.case else ""
        share = f"{most.share:.3g}" if most.share else ""
        cell["most"] = {"case": most.case, "share": share, "command": command, "accuracy": most.accuracy}
    elif without := by.get("unsupported"):
        ((reason, number),) = Counter(verdict.reason for verdict in without).most_common(1)
        cell["reason"], cell["number"] = _text(reason), number
    return cell


def _alike(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Group verdicts by what they show: a declared deviation, a variant, or neither."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((*verdict.declared, verdict.variant), []).append(verdict)
    return sorted(groups.values(), key=len, reverse=True)


def _example(verdict: Verdict, seed: int | None, number: int, finding: Finding | None = None) -> Example:
    values = _values(verdict.difference) if verdict.difference else {}
    again = verdict
    if verdict.difference is None and (variant := _variant_difference(verdict)):
        again = replace(verdict, difference=variant)
        values = _values_of_variant(variant, verdict.variant)
    return Example(
        verdict.case.removesuffix(f"-{verdict.dtype}"),
        verdict.dtype,
        verdict.status,
        number,
        notes=tuple(_notes(verdict, finding)),
        declared=verdict.declared,
        script=reproduction(again, seed),
        command=check_command(verdict, seed) if verdict.case else "",
        **values,
    )


def _values(difference: Difference) -> dict[str, str]:
    text = DifferenceText(difference)
    values = {"place": text.place, "got": str(difference.got), "expected": str(difference.expected)}
    if text.is_form:
        return values | {"place": f"{difference.kind} of {difference.output}"}
    if difference.kind != "value":
        return values | {"off": text.count}
    off = text.off or "off"
    if text.is_forbidden:
        return values | {"allowed": "0: nothing may be off here", "off": f"{off}; {text.count}"}
    share = f"{difference.share:.3g} times the allowed error"
    return values | {"allowed": f"{difference.allowed:.3g}", "off": f"{off}, {share}; {text.count}"}


def _values_of_variant(difference: Difference, name: str) -> dict[str, str]:
    """Return the values of a variant. The backend was judged by them, and its own are in no results file."""
    return {
        "place": _values(difference)["place"],
        "got": f"{_number_text(difference.got)}, within the allowed error of the variant {name}",
        "expected": _number_text(difference.expected),
        "off": f"the element that the variant changes first in {difference.output}",
    }


def _number_text(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value


def _notes(verdict: Verdict, finding: Finding | None) -> Iterator[str]:
    if verdict.reason:
        yield verdict.reason.strip()
    if verdict.raised is not None:
        yield from exception_lines(verdict.raised)
    yield from resemblances(replace(verdict, declared=()))
    if not verdict.repeatable:
        yield "not repeatable: the same call, repeated, has another result"
    if finding is not None:
        yield from cause_lines(finding)


def _plainness(verdict: Verdict) -> tuple[bool, bool, int, str]:
    """Return a sort key: values show more than words, and a golden vector more than a generated case."""
    has_values = verdict.difference is not None or _variant_difference(verdict) is not None
    return not has_values, bool(verdict.group), len(verdict.case), verdict.case


def _variant_difference(verdict: Verdict) -> Difference | None:
    """Return the first element that the variant of a verified deviation changes, and both of its values.

    The value of the variant stands for the value of the backend, which was judged to be within its budget.
    """
    case = _golden().get(verdict.case.removesuffix(f"-{verdict.dtype}"))
    if verdict.status != "deviation" or not verdict.variant or case is None:
        return None
    for alternative in case.alternatives:
        if (alternative.rule, alternative.variant) == (verdict.main_rule, verdict.variant):
            for output, values in alternative.expected.items():
                usual = case.expected.get(output)
                if usual is None or np.shape(usual) != np.shape(values):
                    continue
                differs = ~((values == usual) | (np.isnan(values) & np.isnan(usual)))
                if differs.any():
                    element = tuple(int(index) for index in np.argwhere(differs)[0])
                    return Difference("value", output, element, float(values[element]), float(usual[element]))
    return None


@cache
def _golden() -> Mapping[str, Case]:
    return {case.id: case for case in cases()}


def _plain(example: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is empty, and make every text safe to show."""
    return {
        name: [_text(each) for each in value] if isinstance(value, tuple) else _text(value)
        for name, value in example.items()
        if value
    }


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = _WORD.sub(_without_folders, cut(plain(value)))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\u2026"


def _without_folders(word: re.Match[str]) -> str:
    """Return a word, from the folder of installed packages on if it is a path in it."""
    installed = _INSTALLED.search(word[0])
    return word[0][installed.start() :] if installed else word[0]
