"""What a cell of the matrix shows when it is opened, as JSON."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from math import isfinite
from typing import Any

from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.levels import NOT_SHOWN, rule_results
from attnspec.conformance.outside import cut, plain
from attnspec.conformance.render.finding import cause_lines
from attnspec.conformance.render.html.variant import of_variant
from attnspec.conformance.render.reproduction import check_command, reproduction
from attnspec.conformance.render.text import DifferenceText, exception_lines, resemblances
from attnspec.conformance.verdict import Difference, Verdict

#: The largest number of examples in a cell, and of characters of a text in it.
_MOST, _LONGEST = 4, 1000
#: Where installed packages are. The folders before it tell a reader nothing.
_INSTALLED = re.compile(r"(?<=[/\\])(?:site|dist)-packages[/\\]")
_WORD = re.compile(r"[^\s\"'(]+")


@dataclass(frozen=True)
class Example:
    """One case in a cell.

    Attributes
    ----------
    case, dtype, status : str
    number : int
        The number of cases of the cell that it stands for.
    place, got, expected, allowed, off : str
        The output and the element, the values there, the allowed error, and how far the value is off.
        Empty if no values were compared.
    said : tuple of str
        What else is known: a reason, an exception, what the result resembles, what the calls share.
    declared : tuple of str
        The declared deviations that it shows.
    script, command : str
        The lines of Python and the command that show it again.
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
    said: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    script: str = ""
    command: str = ""


def details_of(verdicts: Sequence[Verdict], seed: int | None = None) -> dict[str, Any]:
    """Return for each rule the counts of its results, and examples of what does not hold.

    A rule that holds has the case that used the largest share of its budget, and the command that
    judges it again. Of what is not offered, the reason is given.

    Examples
    --------
    >>> from attnspec.conformance.render.html.detail import details_of
    >>> from attnspec.conformance.verdict import Difference, Verdict
    >>> off = Difference("pattern", "output", (2, 0), float("nan"), 0.0, count=2, size=6)
    >>> failing = Verdict("m:f", "masking-1-float32", "", ("MASK-6",), "fail", "float32", difference=off)
    >>> detail = details_of([failing])["MASK-6"]
    >>> detail["counts"], detail["examples"][0]["place"], detail["examples"][0]["got"]
    ({'fail': 1}, 'output[2, 0]', 'nan')
    """
    found: dict[str, dict[str, list[Verdict]]] = {}
    for one in verdicts:
        for rule, status in rule_results(one).items():
            found.setdefault(rule, {}).setdefault(status, []).append(one)
    causes: dict[str, list[Finding]] = {}
    for finding in findings(verdicts, verdicts, seed=seed):
        causes.setdefault(finding.rule, []).append(finding)
    return {rule: _of_rule(rule, by, causes.get(rule, []), seed) for rule, by in found.items()}


def _of_rule(
    rule: str,
    by: dict[str, list[Verdict]],
    causes: list[Finding],
    seed: int | None,
) -> dict[str, Any]:
    detail: dict[str, Any] = {"counts": {status: len(its) for status, its in by.items()}}
    bad = [*by.get("fail", ()), *by.get("error", ())]
    shown = [
        _example(one.verdict, seed, sum(each.main_rule == rule for each in one.failures), one)
        for one in causes
    ]
    if bad and not shown:  # the failures have a cause under another rule
        shown = [_example(min(bad, key=_plainness), seed, len(bad))]
    for status in ("deviation", "should not met", NOT_SHOWN):
        for group in _alike(by.get(status, ())):
            shown.append(_example(min(group, key=_plainness), seed, len(group)))
    if shown:
        detail["examples"] = [_plain(asdict(one)) for one in islice(shown, _MOST)]
        detail["more"] = len(shown) - len(detail["examples"])
    elif passing := by.get("pass"):
        most = max(passing, key=lambda one: (bool(one.accuracy), one.share if isfinite(one.share) else 0.0))
        command = check_command(most, seed) if most.case else ""
        detail["most"] = {"case": most.case, "share": _short(most.share), "command": command}
        detail["most"]["accuracy"] = most.accuracy
    elif without := by.get("unsupported"):
        ((reason, number),) = Counter(one.reason for one in without).most_common(1)
        detail["reason"], detail["number"] = _text(reason), number
    return detail


def _alike(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Group verdicts by what they show: a declared deviation, a variant, or neither."""
    groups: dict[tuple[str, ...], list[Verdict]] = {}
    for one in verdicts:
        groups.setdefault((*one.declared, one.variant), []).append(one)
    return sorted(groups.values(), key=len, reverse=True)


def _example(verdict: Verdict, seed: int | None, number: int, cause: Finding | None = None) -> Example:
    values = _values(verdict.difference) if verdict.difference else {}
    again = verdict
    if verdict.difference is None and (variant := of_variant(verdict)):
        again = replace(verdict, difference=variant)
        values = _of_variant(variant, verdict.variant)
    return Example(
        verdict.case.removesuffix(f"-{verdict.dtype}"),
        verdict.dtype,
        verdict.status,
        number,
        said=tuple(_said(verdict, cause)),
        declared=verdict.declared,
        script=reproduction(again, seed),
        command=check_command(verdict, seed) if verdict.case else "",
        **values,
    )


def _values(difference: Difference) -> dict[str, str]:
    text = DifferenceText(difference)
    found = {"place": text.place, "got": str(difference.got), "expected": str(difference.expected)}
    if text.is_form:
        return found | {"place": f"{difference.kind} of {difference.output}"}
    if difference.kind != "value":
        return found | {"off": text.count}
    if text.is_forbidden:
        found["allowed"] = "0: nothing may be off here"
        return found | {"off": f"{text.off or 'off'}; {text.count}"}
    found["allowed"] = f"{difference.allowed:.3g}"
    return found | {
        "off": f"{text.off or 'off'}, {difference.share:.3g} times the allowed error; {text.count}"
    }


def _of_variant(difference: Difference, name: str) -> dict[str, str]:
    """Return the values of a variant. The backend was judged by them, and its own are in no results file."""
    return {
        "place": _values(difference)["place"],
        "got": f"{_number_of(difference.got)}, within the allowed error of the variant {name}",
        "expected": _number_of(difference.expected),
        "off": f"the element that the variant changes first in {difference.output}",
    }


def _number_of(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value


def _said(verdict: Verdict, cause: Finding | None) -> Iterator[str]:
    if verdict.reason:
        yield verdict.reason.strip()
    if verdict.raised is not None:
        yield from exception_lines(verdict.raised)
    yield from resemblances(replace(verdict, declared=()))
    if not verdict.repeatable:
        yield "not repeatable: the same call, repeated, has another result"
    if cause is not None:
        yield from cause_lines(cause)


def _plainness(verdict: Verdict) -> tuple[bool, bool, int, str]:
    """Return a sort key: values show more than words, and a golden vector more than a generated case."""
    told = verdict.difference is not None or of_variant(verdict) is not None
    return not told, bool(verdict.group), len(verdict.case), verdict.case


def _plain(thing: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is empty, and make every text safe to show."""
    return {
        name: [_text(one) for one in value] if isinstance(value, tuple) else _text(value)
        for name, value in thing.items()
        if value
    }


def _text(thing: Any) -> Any:
    if not isinstance(thing, str):
        return thing
    text = _WORD.sub(_without_folders, cut(plain(thing)))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\u2026"


def _without_folders(word: re.Match[str]) -> str:
    """Return a word, from the folder of installed packages on if it is a path in it."""
    found = _INSTALLED.search(word[0])
    return word[0][found.start() :] if found else word[0]


def _short(share: float) -> str:
    return f"{share:.3g}" if share else ""
