"""Writes a run as JUnit XML, which most CI services show."""

from xml.etree import ElementTree as ET

from attnspec import rules
from attnspec.conformance.attribution.levels import ACCEPTED
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.outside import plain
from attnspec.conformance.render.counts import totals
from attnspec.conformance.render.summary import backend_headline, levels_line, stale_line
from attnspec.conformance.render.text import result_line, verdict_line, verdict_text, web_address
from attnspec.conformance.results import Subject
from attnspec.conformance.verdict import Verdict


def to_junit(report: Report) -> str:
    """Write a suite for each backend, and a case for each of its verdicts.

    Errors include planned cases that were not judged. Known failures are skipped, with the reason, and so is
    what a limit left out, and unsupported cases if the report asks for them. Deviations, unmet SHOULDs and
    accepted calls that fail no run pass, with a note.
    """
    root = ET.Element("testsuites", name="attnspec")
    known = {
        verdict: f"known failure: {entry.reason} {entry.link}" for verdict, entry in report.failures.known
    }
    for subject in report.results.subjects:
        suite = ET.SubElement(root, "testsuite", _counts(report, subject))
        _properties(suite, report, subject)
        for verdict in _listed_verdicts(report, subject):
            text, accepted = known.get(verdict, "").strip(), report.marks.get(verdict) == ACCEPTED
            _case(suite, verdict, text, report.seed, accepted=accepted)
        for name in _lost_cases(report, subject):
            _error(suite, name, "planned, and not judged")
        if subject.problem:
            _error(suite, "the run as a whole", subject.problem)
    if report.failures.stale:
        number = str(len(report.failures.stale))
        suite = ET.SubElement(root, "testsuite", name="known failures", tests=number, errors=number)
        for text in map(stale_line, report.failures.stale):
            _error(suite, text, text)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _listed_verdicts(report: Report, subject: Subject) -> list[Verdict]:
    """Return the verdicts that have a test case."""
    return [
        verdict
        for verdict in report.verdicts(subject)
        if report.unsupported or verdict.status != "unsupported" or verdict.code == "left out"
    ]


def _counts(report: Report, subject: Subject) -> dict[str, str]:
    verdicts = _listed_verdicts(report, subject)
    new = [verdict.status for verdict in verdicts if verdict not in report.marks]
    known = sum(verdict in report.known_verdicts for verdict in verdicts)
    errors = bool(subject.problem) + len(_lost_cases(report, subject))
    return {
        "name": plain(subject.name),
        "tests": str(len(verdicts) + errors),
        "failures": str(new.count("fail")),
        "errors": str(new.count("error") + errors),
        "skipped": str(known + new.count("unsupported")),
        "time": f"{sum(verdict.seconds for verdict in verdicts):.4f}",
    }


def _lost_cases(report: Report, subject: Subject) -> tuple[str, ...]:
    """Return the cases that were not judged. If none was judged, one error gives the reason."""
    if report.outcome_of(subject) is Outcome.NOT_LOADED:
        return ()
    return report.results.missing.get(subject.name, ())


def _properties(suite: ET.Element, report: Report, subject: Subject) -> None:
    values = {
        "library": f"{subject.library} {subject.version}",
        "headline": backend_headline(report, subject),
        "levels": levels_line(report, subject),
        "totals": "; ".join(totals(report.verdicts(subject), report.marks)),
        "note": subject.note,
    }
    properties = ET.SubElement(suite, "properties")
    for name, value in values.items():
        if value:
            ET.SubElement(properties, "property", name=name, value=plain(value))


def _error(suite: ET.Element, name: str, message: str) -> None:
    case = ET.SubElement(suite, "testcase", classname="attnspec", name=plain(name))
    ET.SubElement(case, "error", message=plain(message))


def _case(suite: ET.Element, verdict: Verdict, known: str, seed: int | None, *, accepted: bool) -> None:
    rule = plain(verdict.main_rule) or "attnspec"
    took = f"{verdict.seconds:.4f}"
    name = plain(verdict.case)
    case = ET.SubElement(suite, "testcase", classname=f"attnspec.{rule}", name=name, time=took)
    if known or verdict.status == "unsupported":
        ET.SubElement(case, "skipped", message=plain(known) or result_line(verdict))
    elif accepted:
        note = f"{result_line(verdict)}; the standard rejects this call, and the run does not require it"
        ET.SubElement(case, "system-out").text = f"{ACCEPTED}: {note}"
    elif verdict.bad:
        tag = "failure" if verdict.status == "fail" else "error"
        element = ET.SubElement(case, tag, message=plain(verdict_line(verdict)), type=rule)
        element.text = f"{verdict_text(verdict, seed)}\n{_address(rule)}".strip()
    elif verdict.status != "pass":
        ET.SubElement(case, "system-out").text = f"{verdict.status}: {result_line(verdict)}"


def _address(rule_id: str) -> str:
    """Return the address of a rule."""
    rule = next((rule for rule in rules() if rule.id == rule_id), None)
    if rule is None:
        return ""
    return f"the rule: {web_address(rule) or f'attnspec explain {rule.id}'}"
