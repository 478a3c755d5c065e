"""The results of the kill matrix as lines of text."""

from collections.abc import Iterable, Sequence

from attnspec import rules
from attnspec.conformance.gallery.entry import NEEDS
from tools.matrix import Finding


def problems(findings: Iterable[Finding]) -> list[str]:
    """List survivors, entries under the wrong rule, and false alarms.

    Entries that need more than the suite has are left out.

    Examples
    --------
    >>> from tools.matrix import Finding
    >>> from tools.kills import problems
    >>> problems([Finding("a", "MASK-1", "", 9, 0.0, {}, 1.0)])
    ['a survives: no case of 9 says that MASK-1 is broken']
    """
    found = []
    for one in findings:
        others = ", ".join(f"{rule} by {case}" for rule, case in one.broken.items())
        if one.rule and not one.killed_by and not one.needs:
            said = f"has the wrong rule: it breaks {others}, and no case" if others else "survives: no case"
            found.append(f"{one.entry} {said} of {one.tried} says that {one.rule} is broken")
        if not one.rule and others:
            found.append(f"{one.entry} is correct, but fails: {others}")
    return found


def unbroken(findings: Iterable[Finding]) -> list[str]:
    """List the rules that no entry breaks."""
    killed = {one.rule for one in findings if one.killed_by}
    return [f"{rule.id} is broken by no entry" for rule in rules() if rule.id not in killed]


def summary(findings: Sequence[Finding]) -> str:
    """Summarise how many entries are killed for each rule, by which cases, and after how many seconds."""
    wrong = [one for one in findings if one.rule]
    right = [one for one in findings if not one.rule]
    lines = []
    for rule in rules():
        own = [one for one in wrong if one.rule == rule.id]
        killed = sorted((one for one in own if one.killed_by), key=lambda one: one.tried)
        first = f"; soonest in {killed[0].killed_by}" if killed else ""
        if own:
            lines.append(f"{rule.id:9} {len(killed)} of {len(own)} killed{first}")
    times = sorted(one.first_failure for one in wrong if one.killed_by)
    if times:
        lines.append(f"wrong: {len(wrong)}, killed under their own rule: {len(times)}")
        middle, last = times[len(times) // 2], times[-1]
        lines.append(f"time to first failure: median {middle:.2f} s, longest {last:.2f} s")
    for need in NEEDS:
        left = sum(one.needs == need and not one.killed_by for one in wrong)
        if left:
            lines.append(f"not killed, and known to need {NEEDS[need]}: {left}")
    if right:
        passed = sum(one.as_it_should for one in right)
        lines.append(f"correct: {len(right)}, without a false alarm: {passed}")
    return "\n".join(lines)
