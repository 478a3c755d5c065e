"""The text of a verdict, for people. No program parses it."""

from collections.abc import Iterator

from attnspec import rules
from attnspec.backends.names import UNTRUSTED
from attnspec.conformance.attribution.by_rule import NOT_SHOWN, about, says
from attnspec.conformance.attribution.causes import ALWAYS, Cause
from attnspec.conformance.attribution.messages import never_returned, of_conversion
from attnspec.conformance.outside import cut, plain
from attnspec.conformance.render.because import because
from attnspec.conformance.render.others import also
from attnspec.conformance.render.reproduction import dumped, judged_again, reproduction
from attnspec.conformance.verdict import Difference, Verdict


def said(verdict: Verdict, seed: int | None = None, cause: Cause | None = None) -> str:
    """Describe a verdict: the rule, the case, the difference, what it resembles, and a reproduction.

    Examples
    --------
    >>> from attnspec.conformance.render.text import said
    >>> from attnspec.conformance.verdict import Difference, Verdict
    >>> off = Difference("pattern", "output", (2, 0), float("nan"), 0.0, count=2, size=6)
    >>> verdict = Verdict("m:f", "masking-1-float32", "", ("MASK-6",), "fail", "float32", difference=off)
    >>> print(said(verdict))
    MASK-6 A row with nothing to attend to gives zero
    case masking-1, float32, on m:f
    output[2, 0]: got nan, expected 0.0 (2 of 6 elements differ in being NaN or infinite)
    reproduce:
        from attnspec.backends import load
        from attnspec.conformance import expected, find, observe
        case = find("masking-1-float32")
        print(observe(load("m:f"), case)["output"][2, 0], expected(case)["output"][2, 0])
    """
    if not _is_finding(verdict):
        return finding(verdict)
    between = ": " if _crashed(verdict) else "\n"
    return plain(f"{title(verdict, cause)}{between}{details(verdict, seed, cause)}")


def details(verdict: Verdict, seed: int | None = None, cause: Cause | None = None) -> str:
    """Describe a verdict as `said` does, without the title.

    Examples
    --------
    >>> from attnspec.conformance.render.text import details
    >>> from attnspec.conformance.verdict import Verdict
    >>> print(details(Verdict("m:f", "", "", ("NUM-9",), "fail", reason="got other bits")))
    on m:f
    got other bits
    """
    lines = [place(verdict), *_found(verdict), *looks(verdict)]
    if _crashed(verdict):
        lines = [", ".join(lines)]
    if not verdict.repeatable:
        lines.append("not repeatable: the same call, repeated, has another result")
    if cause is not None:
        lines += because(cause)
    program = reproduction(verdict, seed)
    if program and (_crashed(verdict) or verdict.backend.startswith(UNTRUSTED)):
        lines.append(f"reproduce: {judged_again(verdict, seed)}")
    elif program:
        lines += ["reproduce:", *(f"    {line}" for line in program.splitlines())]
    if command := dumped(verdict, seed):
        lines.append(f"debug: {command}")
    if cause is not None:
        lines += also(verdict, cause)
    return plain("\n".join(lines))


def title(verdict: Verdict, cause: Cause | None = None) -> str:
    """Return the rule that a verdict is about, with a note if it is not a MUST.

    If no call returns a result, or a conversion of the adapter raises, this is no matter of one rule.

    Examples
    --------
    >>> from attnspec.conformance.render.text import title
    >>> from attnspec.conformance.verdict import Verdict
    >>> title(Verdict("b", "repeated-float32", "", ("NUM-9",), "should not met"))
    'SHOULD not met: NUM-9 A repeated call gives the same bits'
    """
    if cause is not None and cause.kind == ALWAYS:
        return never_returned(cause.failures) or "no call returns"
    if verdict.raised is not None and verdict.raised.conversion:
        return "a conversion of the adapter raises, not the function"
    rule = about(verdict)
    titles = {known.id: known.title for known in rules()}
    name = f"{rule or 'no rule'} {titles.get(rule, '')}".strip()
    if verdict.status == "should not met":
        return f"SHOULD not met: {name}"
    return f"{NOT_SHOWN}: {name}" if says(verdict).get(rule) == NOT_SHOWN else name


def place(verdict: Verdict) -> str:
    """Return the case, its dtype and the backend of a verdict.

    Examples
    --------
    >>> from attnspec.conformance.render.text import place
    >>> from attnspec.conformance.verdict import Verdict
    >>> place(Verdict("m:f", "softmax-000-float32", "", ("SOFT-1",), "fail", "float32"))
    'case softmax-000, float32, on m:f'
    """
    case = verdict.case.removesuffix(f"-{verdict.dtype}")
    parts = [f"case {case}" if case else "", verdict.dtype, f"on {verdict.backend}"]
    return plain(", ".join(filter(None, parts)))


def finding(verdict: Verdict) -> str:
    """Describe the finding in one line. Empty for a pass.

    Examples
    --------
    >>> from attnspec.conformance.render.text import finding
    >>> from attnspec.conformance.verdict import Raise, Verdict
    >>> raised = Raise("ValueError", "no")
    >>> finding(Verdict("m:f", "softmax-000-float32", "", ("SOFT-1",), "error", raised=raised))
    'raised ValueError: no'
    """
    lines = [*_found(verdict), *looks(verdict)]
    return plain(lines[0].partition("\n")[0]) if lines else ""


def brief(verdict: Verdict) -> str:
    """Describe the finding in one line. For a difference, only its place and the two values.

    Examples
    --------
    >>> from attnspec.conformance.render.text import brief
    >>> from attnspec.conformance.verdict import Difference, Verdict
    >>> off = Difference("pattern", "output", (2, 0), float("nan"), 0.0, count=2, size=6)
    >>> brief(Verdict("m:f", "c", "", ("MASK-13",), "should not met", difference=off))
    'output[2, 0]: got nan, expected 0.0'
    """
    difference = verdict.difference
    return plain(_values(difference)) if difference is not None else finding(verdict)


def line(verdict: Verdict) -> str:
    """Describe in one line which rule does not hold, and the finding.

    Examples
    --------
    >>> from attnspec.conformance.render.text import line
    >>> from attnspec.conformance.verdict import Verdict
    >>> line(Verdict("m:f", "c", "", ("NUM-9",), "should not met", reason="got other bits"))
    'SHOULD not met: NUM-9 A repeated call gives the same bits: got other bits'
    """
    return ": ".join(filter(None, (title(verdict), finding(verdict))))


def _crashed(verdict: Verdict) -> bool:
    """Whether the process of a case ended or hung. Two lines then say all that is known."""
    return bool(verdict.case) and verdict.code in ("ended", "hung")


def _is_finding(verdict: Verdict) -> bool:
    return verdict.bad or verdict.status == "should not met" or NOT_SHOWN in says(verdict).values()


def _found(verdict: Verdict) -> Iterator[str]:
    if verdict.difference is not None:
        yield _differs(verdict.difference)
    if verdict.probed:
        yield "no weights are returned: they were determined by calls with the identity as value"
    if verdict.reason:
        yield cut(verdict.reason.strip())
    if verdict.raised is not None:
        raised = verdict.raised
        if raised.type:
            yield cut(
                f"{of_conversion(raised)}raised {raised.type}: {raised.message.strip() or 'no message'}"
            )
        if raised.file:
            function = f", in {raised.function}" if raised.function else ""
            yield f"at {raised.file}, line {raised.line}{function}"


def _values(difference: Difference) -> str:
    element = f"[{', '.join(map(str, difference.element))}]" if difference.element else ""
    kind = f"{difference.kind} " if difference.kind in ("shape", "dtype") else ""
    return f"{difference.output}{element}: got {kind}{difference.got}, expected {difference.expected}"


def _differs(difference: Difference) -> str:
    values, got, expected = _values(difference), difference.got, difference.expected
    counted = f"{difference.count} of {difference.size} elements"
    if difference.kind in ("shape", "dtype"):
        return values
    if difference.kind == "pattern":
        return f"{values} ({counted} differ in being NaN or infinite)"
    if difference.kind == "bits":
        return f"{values} ({counted} have other bits)"
    off = (
        f", off by {abs(got - expected):.3g}"
        if isinstance(got, float) and isinstance(expected, float)
        else ""
    )
    none = difference.share == float("inf")
    budgets = "nothing may be off here" if none else f"{difference.share:.3g} budgets"
    allowed = f"allowed {difference.allowed:.3g}: {budgets}"
    return f"{values}{off}, {allowed} ({counted} are off)"


def looks(verdict: Verdict) -> Iterator[str]:
    """Describe what the result resembles: a variant, another call, a precision that is too low.

    Examples
    --------
    >>> from attnspec.conformance.render.text import looks
    >>> from attnspec.conformance.verdict import Verdict
    >>> list(looks(Verdict("m:f", "c", "", ("MASK-1",), "fail", "float32", ignored="mask")))
    ['equals the result without `mask`: accepted, and changes nothing in float32']
    """
    rule = about(verdict)
    if verdict.ignored:
        within = f" in {verdict.dtype}" if verdict.dtype else ""
        yield f"equals the result without `{verdict.ignored}`: accepted, and changes nothing{within}"
    if verdict.precision:
        named = f"the variant `{verdict.variant}` of {rule}" if verdict.variant else rule
        yield f"within the budget of {named}: some step is done in {verdict.precision}"
    elif verdict.variant:
        declared = "shows the declared variant" if verdict.status == "deviation" else "equals the variant"
        text = _variant(rule, verdict.variant)
        yield f"{declared} `{verdict.variant}` of {rule}{f': {text}' if text else ''}"
    if verdict.declared:
        yield f"declared: {', '.join(verdict.declared)}"


def _variant(rule: str, name: str) -> str:
    return next(
        (one.text for known in rules() if known.id == rule for one in known.variants if one.name == name), ""
    )
