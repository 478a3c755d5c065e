"""A run as JUnit XML, which most continuous integrations show."""

import re
from xml.etree import ElementTree as ET

from attnspec.conformance.report.known_failures import plain_name
from attnspec.conformance.report.report import Report
from attnspec.conformance.verdict import Verdict

#: What XML cannot hold, not even escaped.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_junit(report: Report) -> str:
    """Write a suite for each backend, and a case for each of its tests.

    A failure is one; an error is one; what is unsupported or known to fail is skipped,
    with the reason; a deviation passes, and says so.

    Examples
    --------
    >>> from attnspec.conformance.report.report import Report
    >>> from attnspec.conformance.report.junit import to_junit
    >>> from attnspec.conformance.verdict import Results, Subject, Verdict
    >>> verdict = Verdict("b", ("MASK-1",), "test_mask[b]", "fail", "MASK-1: wrong")
    >>> text = to_junit(Report(Results((Subject("b", "numpy", "2"),), (verdict,))))
    >>> "<failure" in text
    True
    """
    root = ET.Element("testsuites", name="attnspec")
    known = {
        id(verdict): f"known failure: {entry.reason} {entry.link}".strip()
        for verdict, entry in report.failures.known
    }
    for subject in report.results.subjects:
        verdicts = report.verdicts(subject)
        counts = {
            status: sum(v.status == status and id(v) not in known for v in verdicts)
            for status in ("fail", "error")
        }
        skipped = sum(v.status == "unsupported" or id(v) in known for v in verdicts)
        problem = bool(subject.problem)
        suite = ET.SubElement(
            root,
            "testsuite",
            name=subject.name,
            tests=str(len(verdicts) + problem),
            failures=str(counts["fail"]),
            errors=str(counts["error"] + problem),
            skipped=str(skipped),
        )
        properties = ET.SubElement(suite, "properties")
        for name, said in (
            ("library", f"{subject.library} {subject.version}"),
            ("levels", report.levels(subject)),
        ):
            ET.SubElement(properties, "property", name=name, value=_legal(said))
        for verdict in verdicts:
            _case(suite, verdict, known.get(id(verdict), ""))
        if problem:
            case = ET.SubElement(suite, "testcase", classname="attnspec", name="the run as a whole")
            ET.SubElement(case, "error", message=_legal(subject.problem))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, verdict: Verdict, known: str) -> None:
    rule = verdict.rules[0] if verdict.rules else "attnspec"
    name = plain_name(verdict.test, verdict.backend)
    case = ET.SubElement(suite, "testcase", classname=f"attnspec.{rule}", name=_legal(name))
    first = (verdict.message.splitlines() or [""])[0]
    if known or verdict.status == "unsupported":
        ET.SubElement(case, "skipped", message=_legal(known or first))
    elif verdict.status in ("fail", "error"):
        tag = "failure" if verdict.status == "fail" else "error"
        ET.SubElement(case, tag, message=_legal(first), type=rule).text = _legal(verdict.message)
    elif verdict.status == "deviation":
        ET.SubElement(case, "system-out").text = _legal(f"deviation: {verdict.message}")


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
