"""Functions with one realistic bug: a page names the cause first, with reproductions that run."""

import subprocess
import sys

import pytest

from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.render.screen import screen
from attnspec.conformance.run import worker
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.run import run_all

pytestmark = pytest.mark.usefixtures("in_tests")
#: The lines of a page.
PAGE = 60
#: The largest number of numbers in the arrays of the call that is shown first.
SMALL = 3000
#: The number of reproductions of a report that run.
REPRODUCED = 2
#: One bug of each kind: an option, a row, a number, tiles, heads, a dtype, memory, chance, an error, a crash.
#: Each with the rule or kind of its first finding, and whether a diagnosis names it.
BUGS = [
    ("causal_bottom_right", "MASK-3", True),
    ("empty_rows_are_the_mean", "MASK-6", True),
    ("scale_of_zero_is_the_default", "SCORE-3", True),
    ("keys_past_sixty_four_dropped", "SOFT-3", True),
    ("key_heads_tiled", "HEAD-1", True),
    ("output_in_float32", "NUM-1", True),
    # A twin that makes the calls in another order remembers other calls.
    ("mask_of_an_earlier_call", "ERR-13", False),
    ("broken:noisy", "NUM-9", False),
    ("broken:more_queries_refused", "SHAPE-5", False),
    ("broken:crashes_on_one_shape", "ended", False),
]


@pytest.mark.parametrize(("name", "cause", "named"), BUGS)
@pytest.mark.exhaustive
def test_the_report_of_a_bug_names_its_cause_first(name, cause, named, monkeypatch):
    # What is named must not depend on what else the machine does.
    monkeypatch.setattr(worker, "DIAGNOSIS_LIMIT", 600.0)
    backend = name if ":" in name else f"attnspec.conformance.gallery:{name}"
    # A whole run of what takes every argument would take minutes.
    selection = Selection(quick=True, rules=() if cause == "ended" else (cause, "SOFT-1"))
    ran = run_all([backend], selection, explain=named)
    report = Report(ran.results, diagnoses=ran.diagnoses)
    first = report.findings[0]
    assert cause in (first.rule, first.kind)
    # Which calls of a noisy function fail is chance.
    assert first.verdict.numbers <= SMALL or name == "broken:noisy"
    text = screen(report)
    assert text.count("\n") <= PAGE
    assert (first.diagnosis is not None and name in first.diagnosis.names) == named
    for finding in report.findings[:REPRODUCED]:
        assert shows(finding), reproduction(finding.verdict)


def shows(finding):
    """Run the reproduction of a finding, and tell whether it shows what the report says."""
    verdict = finding.verdict
    command = [sys.executable, "-c", reproduction(verdict)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if finding.kind == "ended":
        return ran.returncode < 0
    if verdict.raised is not None:
        return ran.returncode == 1 and verdict.raised.message in ran.stderr
    if verdict.difference is None or verdict.difference.kind == "dtype":
        return ran.returncode == 0 and ran.stdout.strip() not in ("", "None")
    lines = [line.split() for line in ran.stdout.splitlines()]
    return any(len(line) > 1 and line[0] != line[-1] for line in lines) or ": got " in ran.stdout
