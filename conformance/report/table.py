"""The summary of a run: a row for each rule, a column for each backend."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnspec import Rule, rules
from attnspec.backends import DTYPES
from attnspec.conformance.judge.budget import CLASSES
from attnspec.conformance.verdict import NOT_SHOWN, STATUSES, UNMET, Results, Status, Verdict

_STYLES = {
    "pass": "green",
    "deviation": "yellow",
    "fail": "bold red",
    "error": "bold red",
    "unsupported": "dim",
}


def render(
    results: Results,
    *,
    color: bool = False,
    width: int | None = None,
    told: Iterable[Verdict] | None = None,
    diagnoses: Mapping[str, str] | None = None,
) -> str:
    """Render results as a table, with a line for each backend that could not be used.

    Parameters
    ----------
    results : Results
    color : bool, optional
        With terminal colours.
    width : int, optional
        In columns; as wide as the table when not given.
    told : iterable of Verdict, optional
        Those whose failures are told one by one; by default all.
    diagnoses : mapping of str to str, optional
        By backend, what its failures are consistent with (`attnspec.conformance.report.diagnosis`).
    """
    console = Console(
        force_terminal=color, no_color=not color, width=width or _width(results), highlight=False
    )
    with console.capture() as capture:
        console.print()
        for text in failures(results.verdicts if told is None else told):
            console.print(Text(text + "\n"), soft_wrap=True)
        for name, text in (diagnoses or {}).items():
            console.print(Text(f"{name}: {text}\n"), soft_wrap=True)
        console.print(_table(results))
        for note in unmet(results.verdicts):
            console.print(Text(note, style=_STYLES["deviation"]), soft_wrap=True)
        console.print(_totals(results), soft_wrap=True)
        for subject in results.subjects:
            if subject.problem:
                console.print(Text(f"error: {subject.problem}", style=_STYLES["error"]), soft_wrap=True)
    return capture.get()


def failures(verdicts: Iterable[Verdict]) -> list[str]:
    """Tell of each broken rule one failure, the plainest, and how many more there are.

    Examples
    --------
    >>> from attnspec.conformance.report.table import failures
    >>> from attnspec.conformance.verdict import Verdict
    >>> print(failures([Verdict("b", ("MASK-1",), "t", "fail", "MASK-1: wrong")] * 3)[0])
    MASK-1: wrong
    (and 2 more of b under MASK-1)
    """
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.status in ("fail", "error"):
            groups.setdefault((verdict.backend, verdict.rules[0] if verdict.rules else "?"), []).append(
                verdict
            )
    texts = []
    for (backend, rule), group in groups.items():
        text = min(group, key=_plainness).message
        more = f"\n(and {len(group) - 1} more of {backend} under {rule})" if len(group) > 1 else ""
        texts.append(text + more)
    return texts


def unmet(verdicts: Iterable[Verdict]) -> list[str]:
    r"""Tell of each SHOULD that a backend does not meet, in a line, with the plainest finding.

    Examples
    --------
    >>> from attnspec.conformance.report.table import unmet
    >>> from attnspec.conformance.verdict import Verdict
    >>> said = "SHOULD not met: NUM-9 A call repeated gives the same bits\noutput: got other bits"
    >>> print(unmet([Verdict("b", ("NUM-9",), "t", "deviation", said, {}, ("NUM-9",))])[0])
    b: SHOULD not met: NUM-9 A call repeated gives the same bits: output: got other bits
    """
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.status == "deviation" and verdict.message.startswith(UNMET):
            groups.setdefault((verdict.backend, verdict.deviates[0]), []).append(verdict)
    notes = []
    for (backend, _), group in groups.items():
        lines = min((verdict.message for verdict in group), key=len).splitlines()
        more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
        notes.append(f"{backend}: {': '.join(lines[:3])}{more}")
    return notes


def _plainness(verdict: Verdict) -> tuple[bool, bool, bool, int]:
    """Order failures: values before exceptions, named variants and golden vectors first, then by length."""
    text = verdict.message
    return verdict.status == "error", "variant `" not in text, "\ncase " not in text, len(text)


def cell(verdicts: Iterable[Verdict]) -> tuple[str, str]:
    """Sum up the verdicts of one backend on one rule, as a text and the status that colours it.

    Examples
    --------
    >>> from attnspec.conformance.report.table import cell
    >>> from attnspec.conformance.verdict import Verdict
    >>> cell([Verdict("b", ("MASK-1",), "t", "pass"), Verdict("b", ("MASK-1",), "u", "fail")])
    ('FAIL 1 of 2', 'fail')
    >>> cell([])
    ('', 'unsupported')
    """
    found = list(verdicts)
    counts = Counter(verdict.status for verdict in found)
    judged = sum(counts.values()) - counts["unsupported"]
    if counts["fail"] or counts["error"]:
        named: tuple[tuple[str, Status], ...] = (("FAIL", "fail"), ("ERROR", "error"))
        parts = [f"{name} {counts[status]}" for name, status in named if counts[status]]
        return f"{', '.join(parts)} of {judged}", "fail"
    if counts["deviation"]:
        unmet_here = any(verdict.message.startswith(UNMET) for verdict in found)
        return f"{'not met' if unmet_here else 'deviation'} {counts['deviation']} of {judged}", "deviation"
    not_shown = sum(verdict.message.startswith(NOT_SHOWN) for verdict in found)
    if not_shown:
        return f"not shown {not_shown} of {judged + not_shown}", "unsupported"
    if counts["pass"]:
        return f"pass {counts['pass']}", "pass"
    return ("unsupported" if counts else ""), "unsupported"


def _table(results: Results) -> Table:
    table = Table(title="attnspec conformance, by rule", title_justify="left")
    table.add_column("rule", no_wrap=True)
    table.add_column("", overflow="ellipsis", no_wrap=True, max_width=44)
    for subject in results.subjects:
        table.add_column(f"{subject.name}\n{subject.version or 'not loaded'}", no_wrap=True)
    chapter = ""
    for rule in rules():
        if chapter not in ("", rule.chapter):
            table.add_section()
        chapter = rule.chapter
        table.add_row(rule.id, rule.title, *_row(results, rule))
    return table


def _row(results: Results, rule: Rule) -> list[Text]:
    row = []
    for subject in results.subjects:
        own = [v for v in results.verdicts if v.backend == subject.name and rule.id in v.rules]
        # What deviates from one rule holds the others of its test.
        own = [replace(v, status="pass") if v.deviates and rule.id not in v.deviates else v for v in own]
        text, status = cell(own)
        row.append(Text(text, style=_STYLES[status]))
    return row


def _totals(results: Results) -> Text:
    lines = Text()
    for subject in results.subjects:
        own = [verdict for verdict in results.verdicts if verdict.backend == subject.name]
        counts = Counter(verdict.status for verdict in own)
        said = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
        lines.append(f"{subject.name}: {said or 'no verdict'}{_used(own)}\n")
    return lines


def _used(verdicts: list[Verdict]) -> str:
    """Say for each dtype how much of the budget was used, by which class, and where most of it was."""
    parts = []
    most, where = 0.0, ""
    for dtype in DTYPES:
        used = [(*verdict.used[dtype], verdict.test) for verdict in verdicts if dtype in verdict.used]
        if used:
            share, _, test = max(used)
            accuracy = max((name for _, name, _ in used), key=CLASSES.index)
            parts.append(f"{dtype} {share:.2f} ({accuracy})")
            most, where = max((most, where), (share, f"{dtype}, {test}"))
    return f"; of the budget used: {', '.join(parts)}; most in {where}" if parts else ""


def _width(results: Results) -> int:
    """Wide enough that nothing is cut, whatever the terminal: a table that wraps is no table."""
    return 64 + sum(max(19, len(subject.name) + 3) for subject in results.subjects)
