"""How well a report tells what is wrong: measured on all bugs by ``python -m bugs.measure`` in `tests`.

Each bug is judged by the quick part of the suite, or with ``--whole`` by all of it. That takes some ten
minutes; `tests/test_bugs.py` does so for some of them.
"""

import subprocess
import sys
from dataclasses import dataclass

from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.finding import diagnosis_text, finding_text
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.render.screen import screen
from attnspec.conformance.run.run import run_all
from attnspec.conformance.run.selection import Selection
from bugs import BUGS, Bug

#: Lines of a page.
PAGE = 60


@dataclass(frozen=True)
class Measured:
    """What a report says of a bug.

    Attributes
    ----------
    found : bool
        Whether anything but missing refusals fails.
    rules : tuple of str
        The rule of each block, in their order.
    lines : int
        Of the blocks and the diagnosis.
    first : bool
        Whether the first block is about the cause.
    diagnosis : str
    named : bool
        Whether the diagnosis names a twin of the gallery.
    numbers : int
        In the arrays of the first reproduction.
    failing : tuple of str
        Reproductions that show nothing wrong.
    """

    found: bool
    rules: tuple[str, ...]
    lines: int
    first: bool
    diagnosis: str
    named: bool
    numbers: int
    failing: tuple[str, ...]


def measure(bug: Bug, *, quick: bool = True, reproduced: int | None = None) -> Measured:
    """Judge a function with a bug, and look at the report. `reproduced` limits how many reproductions run."""
    ran = run_all([bug.place], Selection(quick=quick))
    report = Report(ran.results, diagnoses=ran.diagnoses)
    diagnosis = ran.diagnoses.get(bug.place)
    examples = report.findings
    values = [one for one in examples if one.kind != "refused"]
    whole = screen(report)
    first = values[0] if values else None
    return Measured(
        bool(values),
        tuple(one.rule for one in examples),
        whole[: whole.index("by rule")].count("\n"),
        first is examples[0] and _is_cause(first, bug),
        diagnosis_text(diagnosis) if diagnosis else "",
        diagnosis is not None and bool({*bug.twins} & {*diagnosis.names}),
        first.verdict.numbers if first else 0,
        tuple(finding_text(one) for one in examples[:reproduced] if not shows(one)),
    )


def _is_cause(first: Finding | None, bug: Bug) -> bool:
    """What ends the process is its own cause, whatever the case was about."""
    return first is not None and (first.rule in bug.culprits or first.kind == bug.kind)


def shows(example: Finding) -> bool:
    """Run a reproduction, and see whether it shows what the block says."""
    verdict = example.verdict
    ran = subprocess.run(
        [sys.executable, "-c", reproduction(verdict)], capture_output=True, text=True, check=False
    )
    if example.kind == "ended":
        return ran.returncode < 0
    if verdict.raised is not None:
        return ran.returncode == 1 and verdict.raised.message in ran.stderr
    if verdict.difference is None or verdict.difference.kind == "dtype":
        return ran.returncode == 0 and ran.stdout.strip() not in ("", "None")
    last = ran.stdout.strip().splitlines()[-1:]
    return any(_differ(line.split()) for line in ran.stdout.splitlines()) or "Difference(" in "".join(last)


def _differ(numbers: list[str]) -> bool:
    return len(numbers) > 1 and numbers[0] != numbers[-1]


def main() -> None:
    """Measure all, or those that are named, and print a line of each and the sums."""
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    wanted = [bug for bug in BUGS if not names or any(name in bug.place for name in names)]
    found = []
    for bug in wanted:
        one = measure(bug, quick="--whole" not in options, reproduced=0 if "--fast" in options else None)
        found.append(one)
        marks = f"{'first' if one.first else 'NOT FIRST':9} {'named' if one.named else '-':5}"
        size = f"{one.lines:3} lines {one.numbers:6} numbers"
        sys.stdout.write(f"{bug.place:40} {marks} {size} {one.rules} {one.diagnosis[:90]}\n")
        for text in one.failing:
            sys.stdout.write(f"    shows nothing: {text}\n")
        sys.stdout.flush()
    counts = {
        "bugs": len(found),
        "found": sum(one.found for one in found),
        "first": sum(one.first for one in found),
        "on a page": sum(one.lines <= PAGE for one in found),
        "with a twin": sum(bool(bug.twins) for bug in wanted),
        "named": sum(one.named for one in found),
        "with all reproductions": sum(not one.failing for one in found),
    }
    sys.stdout.write(", ".join(f"{number} {what}" for what, number in counts.items()) + "\n")


if __name__ == "__main__":
    main()
