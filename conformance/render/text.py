"""The text of a verdict, for people. No program parses it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import attnspec
from attnspec import Rule, rules
from attnspec.backends.names import UNTRUSTED
from attnspec.citations import anchor
from attnspec.conformance.attribution.levels import NOT_SHOWN, rule_results
from attnspec.conformance.outside import cut, plain
from attnspec.conformance.render.reproduction import check_command, dump_command, reproduction
from attnspec.conformance.verdict import LISTS, Difference, Raise, Verdict


def verdict_text(verdict: Verdict, seed: int | None = None) -> str:
    """Describe a verdict: the rule, the case, the difference, what it resembles, and a reproduction."""
    if not (verdict.bad or verdict.status == "should not met" or _is_not_shown(verdict)):
        return result_line(verdict)
    return with_title(title(verdict), verdict, details(verdict, seed))


def with_title(heading: str, verdict: Verdict, text: str) -> str:
    """Put a title above the details of a verdict, or before them if two lines say all that is known."""
    return plain(f"{heading}{': ' if _has_crashed(verdict) else chr(10)}{text}")


def details(
    verdict: Verdict, seed: int | None = None, cause: Iterable[str] = (), others: Iterable[str] = ()
) -> str:
    """Describe a verdict without its title.

    Lines about its cause stand before the reproduction, those about other failures after it.
    """
    lines = [place(verdict), *_result(verdict), *resemblances(verdict)]
    if _has_crashed(verdict):
        lines = [", ".join(lines)]
    if not verdict.repeatable:
        lines.append("not repeatable: the same call, repeated, has another result")
    lines += cause
    program = reproduction(verdict, seed)
    if program and (_has_crashed(verdict) or verdict.backend.startswith(UNTRUSTED)):
        lines.append(f"reproduce: {check_command(verdict, seed)}")
    elif program:
        lines += ["reproduce:", *(f"    {line}" for line in program.splitlines())]
    if command := dump_command(verdict, seed):
        lines.append(f"debug: {command}")
    lines += others
    return plain("\n".join(lines))


def title(verdict: Verdict) -> str:
    """Return the rule that a verdict is about, with a note if it is not a MUST.

    If a conversion of the adapter raises, this is no matter of one rule.
    """
    if verdict.raised is not None and verdict.raised.conversion:
        return "a conversion of the adapter raises, not the function"
    titles = {rule.id: rule.title for rule in rules()}
    name = f"{verdict.main_rule or 'no rule'} {titles.get(verdict.main_rule, '')}".strip()
    if verdict.status == "should not met":
        return f"SHOULD not met: {name}"
    return f"{NOT_SHOWN}: {name}" if _is_not_shown(verdict) else name


def place(verdict: Verdict) -> str:
    """Return the case, its dtype and the backend of a verdict."""
    parts = [f"case {verdict.stem}" if verdict.case else "", verdict.dtype, f"on {verdict.backend}"]
    return plain(", ".join(filter(None, parts)))


def result_line(verdict: Verdict) -> str:
    """Describe the result in one line. Empty for a pass."""
    lines = [*_result(verdict), *resemblances(verdict)]
    first, _, rest = lines[0].partition("\n") if lines else ("", "", "")
    # What ends with a colon is about the next lines: what a process that ended has written last.
    return plain(f"{first} {' '.join(rest.split())}" if rest and first.endswith(":") else first)


def brief(verdict: Verdict) -> str:
    """Describe the result in one line. For a difference, only its place and the two values."""
    difference = verdict.difference
    return plain(DifferenceText(difference).values) if difference is not None else result_line(verdict)


def verdict_line(verdict: Verdict) -> str:
    """Describe in one line which rule does not hold, the result, and whether that is declared."""
    declared = "declared deviation" if verdict.status == "deviation" else ""
    return ": ".join(filter(None, (declared, title(verdict), result_line(verdict))))


@dataclass(frozen=True)
class DifferenceText:
    """The words for a difference, one part each, and as a line."""

    difference: Difference

    @property
    def place(self) -> str:
        """The output and the element."""
        element = ", ".join(map(str, self.difference.element))
        return self.difference.output + (f"[{element}]" if element else "")

    @property
    def off(self) -> str:
        """How far the value is off. Empty for what is not two numbers."""
        got, expected = self.difference.got, self.difference.expected
        if not isinstance(got, float) or not isinstance(expected, float):
            return ""
        return f"off by {abs(got - expected):.3g}"

    @property
    def count(self) -> str:
        """The number of elements that differ, and how."""
        how = {"pattern": "differ in being NaN or infinite", "bits": "have other bits"}
        elements = f"{self.difference.count} of {self.difference.size} elements"
        return f"{elements} {how.get(self.difference.kind, 'are off')}"

    @property
    def values(self) -> str:
        """The place and the two values."""
        got, expected = self.difference.got, self.difference.expected
        if self.difference.output in LISTS and not self.is_form:
            *row, key = self.difference.element
            counts = f"counts {float(got):g} of key {key}, expected {float(expected):g}"
            return f"{self.difference.output}{row}: {counts}"
        kind = f"{self.difference.kind} " if self.is_form else ""
        return f"{self.place}: got {kind}{got}, expected {expected}"

    @property
    def is_form(self) -> bool:
        """Whether shapes or dtypes differ."""
        return self.difference.kind in ("shape", "dtype")

    @property
    def is_forbidden(self) -> bool:
        """Whether no error at all is allowed."""
        return self.difference.share == float("inf")

    def __str__(self) -> str:
        if self.is_form:
            return self.values
        if self.difference.kind != "value":
            return f"{self.values} ({self.count})"
        budgets = "nothing may be off here" if self.is_forbidden else f"{self.difference.share:.3g} budgets"
        allowed = f"allowed {self.difference.allowed:.3g}: {budgets}"
        return ", ".join(filter(None, (self.values, self.off, f"{allowed} ({self.count})")))


def exception(raised: Raise, message: str) -> str:
    """Return the type of an exception with a message, and what raised it if not the call of the case."""
    whose = "the same call with valid arguments " if raised.valid else ""
    whose = f"the adapter's conversion {raised.conversion} " if raised.conversion else whose
    return f"{whose}raised {raised.type}: {message}"


def exception_lines(raised: Raise) -> Iterator[str]:
    """Describe an exception and the line that raised it, or the line in which the process ended."""
    if raised.type:
        yield cut(exception(raised, raised.message.strip() or "no message"))
    if raised.file:
        function = f", in {raised.function}" if raised.function else ""
        yield f"at {raised.file}, line {raised.line}{function}"


def resemblances(verdict: Verdict) -> Iterator[str]:
    """Describe what the result resembles: a variant, another call, a precision that is too low."""
    rule = verdict.main_rule
    if verdict.ignored:
        yield f"equals the result without `{verdict.ignored}`: accepted, and changes nothing in this call"
    if verdict.precision:
        named = f"the variant `{verdict.variant}` of {rule}" if verdict.variant else rule
        yield f"within the budget of {named}: some step is done in {verdict.precision}"
    elif verdict.variant:
        declared = "shows the declared variant" if verdict.status == "deviation" else "equals the variant"
        text = _variant_text(rule, verdict.variant)
        yield f"{declared} `{verdict.variant}` of {rule}{f': {text}' if text else ''}"
    if verdict.declared:
        yield f"declared: {', '.join(verdict.declared)}"


def _variant_text(rule: str, name: str) -> str:
    variants = (variant for known in rules() if known.id == rule for variant in known.variants)
    return next((variant.text for variant in variants if variant.name == name), "")


def _is_not_shown(verdict: Verdict) -> bool:
    """Whether it is about a MAY that does not hold."""
    return NOT_SHOWN in rule_results(verdict).values()


def _has_crashed(verdict: Verdict) -> bool:
    """Whether the process of a case ended or hung. Two lines then say all that is known."""
    return bool(verdict.case) and verdict.code in ("ended", "hung")


def _result(verdict: Verdict) -> Iterator[str]:
    if verdict.difference is not None:
        yield str(DifferenceText(verdict.difference))
    if verdict.probed:
        yield "no weights are returned: they were determined by calls with the identity as value"
    if verdict.reason:
        yield cut(verdict.reason.strip())
    if verdict.raised is not None:
        yield from exception_lines(verdict.raised)


def web_address(rule: Rule) -> str:
    """Return the address of a rule on the web. Empty if the package metadata has no source address."""
    home = _home()
    return f"{home}/blob/main/spec/{rule.chapter}.md#{anchor(rule)}" if home else ""


def address(rule: Rule) -> str:
    """Return the address of a rule on the web. If there is none, return that of its local chapter."""
    chapter = Path(attnspec.__file__).resolve().with_name(f"{rule.chapter}.md")
    return web_address(rule) or f"{chapter.as_uri()}#{anchor(rule)}"


@cache
def _home() -> str:
    """Return the address of the source from the package metadata."""
    from importlib.metadata import PackageNotFoundError, metadata  # it takes long to import

    try:
        entries: list[str] = metadata("attnspec").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    urls = {label: url for label, _, url in (entry.partition(", ") for entry in entries)}
    return urls.get("Repository", "").removesuffix(".git").rstrip("/")
