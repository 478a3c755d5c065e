"""Writes a run as Markdown, for the summary of a pull request."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from attnspec import find_rule, rules
from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.claim import claim_of
from attnspec.conformance.outside import cut, plain
from attnspec.conformance.render.counts import COUNTED, count_statuses
from attnspec.conformance.render.finding import finding_details, finding_title
from attnspec.conformance.render.summary import (
    backend_headline,
    headline,
    other_part_line,
    stale_line,
    why_not_whole,
)
from attnspec.conformance.render.text import web_address
from attnspec.conformance.results import Subject

#: The largest number of failures that are shown, and of cases that are named. The rest is counted.
_MOST_SHOWN = 20
#: What an address within angle brackets cannot contain.
_PLAIN = re.compile(r"[<>\r\n]")
_ADDRESS = re.compile(r"https?://[\w.~:/?#@!$&'*+,;=%-]+")


def to_markdown(report: Report) -> str:
    """Write the result, a table of the backends, a failure for each broken rule, and known failures."""
    lines = [f"## attnspec: {_text(headline(report))}", "", *_table(report), ""]
    for subject in report.results.subjects:
        lines += _backend_lines(report, subject)
    if report.pages:
        lines += ["", pages_line(report.pages)]
    for finding in report.findings[:_MOST_SHOWN]:
        lines += _details(finding)
    if len(report.findings) > _MOST_SHOWN:
        lines += ["", f"and failures under {len(report.findings) - _MOST_SHOWN} more rules"]
    lines += _known_failures(report)
    if report.failures.parts:
        lines += ["", _text(other_part_line(report.failures.parts))]
    if report.failures.stale:
        lines += ["", "Entries of known failures that no longer apply:", ""]
        lines += [f"- {code(stale_line(stale))}" for stale in report.failures.stale]
    return "\n".join(lines) + "\n"


def pages_line(first: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return a sentence with a link to the pages, and in a GitHub workflow to the artifacts of the run."""
    known = os.environ if environment is None else environment
    where = first.as_posix()
    line = f"Matrix, comparison and pages of the backends: [{code(where)}](<{_PLAIN.sub('', where)}>)"
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    if all(known.get(name) for name in names):
        server, repository, run = (known[name] for name in names)
        line += f", in the [artifacts of this run]({server}/{repository}/actions/runs/{run}#artifacts)"
    return line


def _backend_lines(report: Report, subject: Subject) -> Iterator[str]:
    """Write the result of one backend, and the cases that were not judged."""
    yield f"- {code(subject.name)}: {_text(backend_headline(report, subject))}"
    if claim := claim_of(report, subject):
        yield f"- claim: {code(claim)}"
    if subject.problem:
        yield f"- **error**: {code(subject.problem)}"
    if why := why_not_whole(report, subject):
        yield f"- not judged whole: {code(why)}"
    missing = report.results.missing.get(subject.name, ())
    if missing and report.outcome_of(subject) is not Outcome.NOT_LOADED:
        more = f" and {len(missing) - _MOST_SHOWN} more" if len(missing) > _MOST_SHOWN else ""
        names = ", ".join(map(code, missing[:_MOST_SHOWN]))
        yield f"- **error**: {len(missing)} cases of {code(subject.name)} were not judged: {names}{more}"
    if subject.note:
        yield f"- {code(subject.name)}: {code(subject.note)}"


def _table(report: Report) -> Iterator[str]:
    yield f"| backend | library | calls | {' | '.join(COUNTED)} |"
    yield "| --- " * (len(COUNTED) + 3) + "|"
    for subject in report.results.subjects:
        for name, refusal in (("values", False), ("refusals", True)):
            verdicts = [verdict for verdict in report.verdicts(subject) if verdict.refusal == refusal]
            counts = count_statuses(verdicts, report.marks)
            cells = [code(subject.name), code(f"{subject.library} {subject.version}"), name]
            # In a table a bar ends a cell, even within code.
            cells = [cell.replace("|", "\\|") for cell in cells]
            yield f"| {' | '.join((*cells, *(str(counts[status]) for status in COUNTED)))} |"


def _details(finding: Finding) -> Iterator[str]:
    text = finding_details(finding)
    fence = "```"
    while fence in text:
        fence += "`"
    others = finding.others[finding.rule]
    more = f" (and {others} more)" if others else ""
    rule = next((rule for rule in rules() if rule.id == finding.rule), None)
    where = web_address(rule) if rule else ""
    link = f' (<a href="{_html(where)}">the rule</a>)' if where else ""
    yield from (
        "",
        f"<details><summary>{_html(plain(finding_title(finding))).translate(_LINKING)}{more}{link}</summary>",
        "",
    )
    yield from (f"{fence}text", text, fence)
    if rule and not where:
        yield from ("", f"The rule in full: `attnspec explain {rule.id}`")
    yield from ("", "</details>")


def _known_failures(report: Report) -> Iterator[str]:
    counts = Counter(entry for _, entry in report.failures.known)
    if counts:
        yield from ("", "Known failures:", "")
    for entry, number in counts.items():
        rule = find_rule(entry.rule)
        name = f"[{rule.id}]({web_address(rule)})" if web_address(rule) else rule.id
        link = f" ([link]({entry.link}))" if _ADDRESS.fullmatch(entry.link) else ""
        link = link or (f" ({code(entry.link)})" if entry.link else "")
        yield f"- {name} {rule.title}: known, {number} case{'s' * (number != 1)}, {code(entry.reason)}{link}"


def code(text: str) -> str:
    """Quote external text as code, so that it has no links, tags or mentions."""
    line = " ".join(cut(plain(text)).split()) or " "
    longest = max((len(ticks) for ticks in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    space = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{space}{line}{space}{fence}"


def _text(text: str) -> str:
    """Escape a text that may contain external words."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", plain(text))


#: What makes links, images and mentions of text that is not code.
_LINKING = {ord(letter): f"&#{ord(letter)};" for letter in "[]!@:"}


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
