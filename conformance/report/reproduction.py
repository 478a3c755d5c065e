"""Reproductions: a few lines of Python that show a failure without the suite, from its verdict alone."""

import json

from attnspec.conformance.verdict import Difference, Verdict


def reproduction(verdict: Verdict, seed: int | None = None) -> str:
    """Write the lines that show what a verdict says.

    An element that is off is printed beside what it must be. Everything else, such as an
    exception, a call that had to be refused or a relation between calls, is judged once more.

    Parameters
    ----------
    verdict : Verdict
    seed : int, optional
        Of the run, where it was given one.

    Returns
    -------
    str
        Empty for a verdict of no case.

    Examples
    --------
    >>> from attnspec.conformance.report.reproduction import reproduction
    >>> from attnspec.conformance.verdict import Difference, Verdict
    >>> difference = Difference("value", "output", (2, 0), 1.5, 0.0)
    >>> print(reproduction(Verdict("m:f", "a-1-float32", "", ("MASK-6",), "fail", difference=difference)))
    from attnspec.backends import load
    from attnspec.conformance import expected, find, observe
    case = find("a-1-float32")
    print(observe(load("m:f"), case)["output"][2, 0], expected(case)["output"][2, 0])
    >>> print(reproduction(Verdict("m:f", "a-1-float32", "", ("MASK-6",), "error"), seed=7))
    from attnspec.backends import load
    from attnspec.conformance import find, judge
    print(judge(load("m:f"), find("a-1-float32", seed=7)))
    """
    if not verdict.case:
        return ""
    backend = f"load({_quoted(verdict.backend)})"
    case = f"find({_quoted(verdict.case)}{'' if seed is None else f', seed={seed}'})"
    lines = ["from attnspec.backends import load"]
    difference = verdict.difference
    # A relation says in `reason` what it found: what differs there are calls from each other.
    if difference is None or difference.kind == "bits" or verdict.reason:
        lines += ["from attnspec.conformance import find, judge", f"print(judge({backend}, {case}))"]
        return "\n".join(lines)
    got, expected = (f"{of}{_select(difference)}" for of in (f"observe({backend}, case)", "expected(case)"))
    shown = got if difference.kind == "dtype" else f"{got}, {expected}"  # what is expected is float64
    imports = "find, observe" if difference.kind == "dtype" else "expected, find, observe"
    lines += [f"from attnspec.conformance import {imports}", f"case = {case}", f"print({shown})"]
    return "\n".join(lines)


def _select(difference: Difference) -> str:
    output = f'["{difference.output}"]'
    if difference.kind in ("shape", "dtype"):
        return f"{output}.{difference.kind}"
    element = ", ".join(map(str, difference.element))
    return f"{output}[{element}]" if element else output


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
