"""A run as JUnit XML, which most continuous integrations show."""

from xml.etree import ElementTree as ET

from attnspec.conformance.report.by_rule import about
from attnspec.conformance.report.outside import plain
from attnspec.conformance.report.report import Report
from attnspec.conformance.report.summary import levels
from attnspec.conformance.report.text import finding, line, said
from attnspec.conformance.results import Subject
from attnspec.conformance.verdict import Verdict


def to_junit(report: Report) -> str:
    """Write a suite for each backend, and a case for each of its verdicts.

    A failure is one; an error is one; what is unsupported or known to fail is skipped,
    with the reason; a deviation and a SHOULD that is not met pass, and say so.

    Examples
    --------
    >>> from attnspec.conformance.report.report import Report
    >>> from attnspec.conformance.report.junit import to_junit
    >>> from attnspec.conformance.results import Results, Subject
    >>> from attnspec.conformance.verdict import Verdict
    >>> verdict = Verdict("b", "masking-004-float32", "", ("MASK-1",), "fail")
    >>> "<failure" in to_junit(Report(Results((Subject("b", "numpy", "2"),), (verdict,))))
    True
    """
    root = ET.Element("testsuites", name="attnspec")
    known = {
        verdict: f"known failure: {entry.reason} {entry.link}" for verdict, entry in report.failures.known
    }
    for subject in report.results.subjects:
        suite = ET.SubElement(root, "testsuite", _counts(report, subject))
        properties = ET.SubElement(suite, "properties")
        _property(properties, "library", f"{subject.library} {subject.version}")
        _property(properties, "levels", levels(report, subject))
        if subject.note:
            _property(properties, "note", subject.note)
        for verdict in report.verdicts(subject):
            _case(suite, verdict, known.get(verdict, "").strip(), report.seed)
        if subject.problem:
            case = ET.SubElement(suite, "testcase", classname="attnspec", name="the run as a whole")
            ET.SubElement(case, "error", message=plain(subject.problem))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(report: Report, subject: Subject) -> dict[str, str]:
    verdicts = report.verdicts(subject)
    new = [verdict.status for verdict in verdicts if verdict not in report.known_verdicts]
    problem = bool(subject.problem)
    return {
        "name": plain(subject.name),
        "tests": str(len(verdicts) + problem),
        "failures": str(new.count("fail")),
        "errors": str(new.count("error") + problem),
        "skipped": str(len(verdicts) - len(new) + new.count("unsupported")),
    }


def _property(properties: ET.Element, name: str, value: str) -> None:
    ET.SubElement(properties, "property", name=name, value=plain(value))


def _case(suite: ET.Element, verdict: Verdict, known: str, seed: int | None) -> None:
    rule = about(verdict) or "attnspec"
    case = ET.SubElement(suite, "testcase", classname=f"attnspec.{rule}", name=plain(verdict.case))
    if known or verdict.status == "unsupported":
        ET.SubElement(case, "skipped", message=plain(known) or finding(verdict))
    elif verdict.bad:
        tag = "failure" if verdict.status == "fail" else "error"
        ET.SubElement(case, tag, message=line(verdict), type=rule).text = said(verdict, seed)
    elif verdict.status != "pass":
        ET.SubElement(case, "system-out").text = f"{verdict.status}: {finding(verdict)}"
