"""A claim of conformance: one line about a product, which a report prints and a program reads back."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import TYPE_CHECKING

from attnspec import OPERATIONS, ConformanceLevel, SpecError, claimable, find_rule, levels
from attnspec.backends.constraints import FITTED, Constraints
from attnspec.backends.names import OFFLINE, PORTABLE, PROGRAM, UNTRUSTED
from attnspec.conformance.attribution.levels import rule_results
from attnspec.conformance.outside import one_line
from attnspec.dialect import BY_ROUTE, ROUTES
from attnspec.dtypes import DTYPES, SHORT
from attnspec.operations.quantization import ENCODINGS

if TYPE_CHECKING:
    from attnspec.backends import Backend
    from attnspec.conformance.attribution.report import Report
    from attnspec.conformance.results import Subject
    from attnspec.conformance.verdict import Verdict

#: The fields of a claim, in their order.
FIELDS = (
    *("attnspec", "product", "class", "levels", "dtypes", "constraints"),
    *("profile", "variants", "deviations", "claims", "declined"),
)
#: The fields that are lists.
LISTS = ("levels", "dtypes", "constraints", "variants", "deviations", "claims")
#: The forms of fields, those of the others being lists.
_ITEMS = r"none|[A-Za-z0-9:_-]+(?:,[A-Za-z0-9:_-]+)*"
_LIST = re.compile(_ITEMS)
#: A character of a name, or an escape.
_CHAR = r"(?:[!-:<-\[\]-~]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8})"
_FORMS = {
    "attnspec": re.compile(r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}(?:\.[0-9]+|\.dev[0-9]+)?"),
    "product": re.compile(rf"(?: |{_CHAR})*{_CHAR}"),
    "declined": re.compile(rf"(0|[1-9][0-9]*)/(0|[1-9][0-9]*) ({_ITEMS})"),
}
CLASSES = ("function", "adapted", "program", "files")


def class_of(name: str, backend: "Backend") -> str:
    """Return the class of a product, by the name of its backend and by what stands before its function."""
    plain = name.removeprefix(UNTRUSTED).partition("?")[0]
    functions = (backend.attention, *backend.companions.values())
    if plain.startswith(OFFLINE):
        return "files"
    if plain.startswith(PROGRAM) or any(getattr(function, "program", False) for function in functions):
        return "program"
    as_it_is = ":" in plain and not any(hasattr(function, "convention") for function in functions)
    return "function" if as_it_is or plain in PORTABLE else "adapted"


def claim_of(report: "Report", subject: "Subject") -> str:
    """Return the claim that a run supports. Empty if it is partial, something fails, or most is declined."""
    known = any(verdict.backend == subject.name for verdict in report.known_verdicts)
    partial = not report.results.whole and not report.results.level
    if not subject.kind or partial or known or report.outcome_of(subject).name != "GOOD":
        return ""
    verdicts = report.verdicts(subject)
    shown = [verdict for verdict in verdicts if verdict.status == "deviation"]
    # A variant of one route only is written as `MASK-6:mask:uniform`.
    variants = {
        f"{verdict.main_rule}:{variant.replace(' ', '')}"
        for verdict in shown
        for variant in filter(None, verdict.variant.split(", "))
    }
    accepted = {verdict.main_rule for verdict in report.accepted if verdict.backend == subject.name}
    other = {rule for verdict in shown if not verdict.variant for rule in _deviating(verdict)}
    passing = {verdict.dtype for verdict in verdicts if verdict.status == "pass"}
    declined = [verdict.main_rule for verdict in verdicts if verdict.declined]
    offered = len(declined) + sum(verdict.status != "unsupported" for verdict in verdicts)
    if 2 * len(declined) > offered:
        return ""
    product = f"{subject.name} ({subject.library} {subject.version})".replace(";", ",")
    contents = {
        "attnspec": report.results.headers[0].attnspec,
        "product": one_line(product).replace("\\", "\\u005c").encode("ascii", "backslashreplace").decode(),
        "class": subject.kind,
        "levels": _items(report.levels_reached(subject)),
        "dtypes": _items(dtype for dtype in DTYPES if dtype in passing),
        "constraints": _items(_constraints(subject, verdicts)),
        "profile": subject.profile or "none",
        "variants": _items(sorted(variants)),
        "deviations": _items(sorted(accepted | other)),
        "claims": subject.claims or "none",
        "declined": f"{len(declined)}/{offered} {_items(sorted({*declined}))}",
    }
    return "; ".join(f"{field}={contents[field]}" for field in FIELDS)


def read_claim(line: str) -> Mapping[str, str | list[str]]:
    """Read a claim back. A field that is a list has its items.

    Raises
    ------
    SpecError
        If a field is missing or out of its order, or names something that this version does not have.
    """
    parts = [part.partition("=") for part in line.removeprefix("claim: ").split("; ")]
    if (got := tuple(field for field, _, _ in parts)) != FIELDS:
        raise SpecError(f"claim: expected the fields {', '.join(FIELDS)}, got {', '.join(got)}")
    contents = {field: text for field, _, text in parts}
    for field, text in contents.items():
        if not _FORMS.get(field, _LIST).fullmatch(text):
            raise SpecError(f"claim: {field}: expected the form of the page conformance, got {text!r}")
    _check_date(contents["attnspec"])
    result: dict[str, str | list[str]] = dict(contents)
    result |= {field: [] if contents[field] == "none" else contents[field].split(",") for field in LISTS}
    declined, offered, rules = _FORMS["declined"].fullmatch(contents["declined"]).groups()  # type: ignore[union-attr]  # it matches
    _check("class", [contents["class"]], CLASSES)
    # Imported here: a run that prints a claim needs no NumPy.
    from attnspec.reference.budget.arithmetic import PROFILES

    _check("profile", [contents["profile"]], ["none", *PROFILES])
    known = {level.name: level for level in levels()}
    _check("levels", result["levels"], known)
    for field in LISTS:
        if len(result[field]) != len({*result[field]}):
            raise SpecError(f"claim: {field}: expected each once, got {contents[field]!r}")
    _check("levels", [known[name].builds_on or name for name in result["levels"]], result["levels"])
    _check("dtypes", result["dtypes"], DTYPES)
    _check_dtypes(result)
    refused = [] if rules == "none" else rules.split(",")
    if len(refused) != len({*refused}):
        raise SpecError(f"claim: declined: expected each once, got {rules!r}")
    for rule in (*result["deviations"], *refused):
        find_rule(rule)
    _check("claims", result["claims"], [rule for rule in claimable() if rule not in result["deviations"]])
    _check_constraints(result["constraints"])
    _check_rules(result, known)
    if int(offered) == 0 or 2 * int(declined) > int(offered) or (rules == "none") != (int(declined) == 0):
        text = contents["declined"]
        raise SpecError(f"claim: declined: expected at most half of the calls and their rules, got {text!r}")
    return result


def _check_date(version: str) -> None:
    try:
        date(*map(int, version.split(".")[:3]))
    except ValueError as error:
        raise SpecError(f"claim: attnspec: expected a date, got {version!r} ({error})") from error


def _check_dtypes(result: Mapping[str, str | list[str]]) -> None:
    """Check that levels have a dtype, and that no half precision with a profile is exact (it is `cast`)."""
    if result["levels"] and not result["dtypes"]:
        raise SpecError("claim: dtypes: expected some beside levels, got 'none'")
    short = [dtype for dtype in result["dtypes"] if dtype in SHORT]
    if result["profile"] != "none" and short and "exact" in result["levels"]:
        raise SpecError(f"claim: levels: expected no exact in {short[0]} with a profile, got 'exact'")


def _check_constraints(items: str | list[str]) -> None:
    from attnspec.backends.user.scales import GRANULARITIES  # it needs NumPy

    flags = [option.name for option in OPERATIONS["attention"].named if option.kind == "flag"]
    for item in items:
        word, *names = item.split(":")
        if len(names) != len({*names}):
            raise SpecError(f"claim: constraints: expected each once, got {item!r}")
        known = {"always": flags, "encoding": ENCODINGS, "scales": GRANULARITIES}
        _check("constraints", names, known.get(word, names))
    try:
        Constraints.of_suffix("-".join(items).replace(":", ".")) if items else None
    except ValueError as error:
        raise SpecError(f"claim: constraints: {error}") from error


def _check_rules(result: Mapping[str, str | list[str]], known: Mapping[str, ConformanceLevel]) -> None:
    """Check the variants, and that no level has a rule from which the product deviates."""
    off = {*result["deviations"]}
    for item in result["variants"]:
        rule, *route, variant = item.split(":") if ":" in item else (item, "")
        _check("variants", [variant], [one.name for one in find_rule(rule).variants])
        _check("variants", [":".join(route)], ["", *ROUTES] if rule in BY_ROUTE else [""])
        off.add(rule)
    for name in result["levels"]:
        if broken := off & {*known[name].rules, *known[name].where_offered}:
            raise SpecError(f"claim: levels: expected none with {', '.join(sorted(broken))}, got {name!r}")


def _deviating(verdict: "Verdict") -> Iterator[str]:
    return (rule for rule, result in rule_results(verdict).items() if result == "deviation")


def _constraints(subject: "Subject", verdicts: Iterable["Verdict"]) -> Iterator[str]:
    """Return the constraints of a product: those in the names of cases that were drawn to fit, and others."""
    fitted = (verdict.case for verdict in verdicts if FITTED in verdict.case)
    suffix = next((name.partition(FITTED)[2].rpartition("-")[0] for name in fitted), "")
    return (part.replace(".", ":") for part in f"{suffix}-{subject.constraints}".split("-") if part)


def _items(names: Iterable[str]) -> str:
    return ",".join(names) or "none"


def _check(field: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise SpecError(f"claim: {field}: expected some of {', '.join(known)}, got {name!r}")
