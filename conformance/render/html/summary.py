"""Adds the result of each backend and a link to the pages to the summary of a CI run."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.markdown import code, pages_line
from attnspec.conformance.render.summary import backend_headline
from attnspec.conformance.results import gathered
from attnspec.conformance.results_file import runs_of

#: The variable that names the file of the summary in a GitHub workflow.
FILE = "GITHUB_STEP_SUMMARY"


def summary(results: Sequence[Path], first: Path) -> str:
    """Return the result of each backend of some results files, and the link to the pages, as Markdown."""
    return "\n".join(("## attnspec", "", *_headlines(results), "", pages_line(first), ""))


def add_summary(results: Sequence[Path], first: Path) -> None:
    """Add the summary to the file that `FILE` names. Without it, this does nothing."""
    if target := os.environ.get(FILE):
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(summary(results, first))


def _headlines(results: Sequence[Path]) -> Iterator[str]:
    for path in results:
        for run in runs_of(path):
            report = Report(gathered([run]))
            for subject in report.results.subjects:
                said = code(f"{subject.library} {subject.version}")
                yield f"- {code(subject.name)} ({said}): {code(backend_headline(report, subject))}"
