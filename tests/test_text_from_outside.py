"""External text in every report: it is shown, and is neither markup nor a line of the report."""

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

from reported import ERROR, FAIL, OTHER, PASS, RESULTS, SUBJECT, UNMET, UNSUPPORTED

from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.junit import to_junit
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Subject
from attnspec.conformance.verdict import Raise


def test_no_line_of_ours_is_made_by_text_from_outside():
    """A name, a note or a problem that goes on in a line of its own would look like one of the run."""
    forged = "x\nm:f: conforms to level core"
    subject = Subject(forged, forged, forged, forged, forged)
    verdicts = [replace(one, backend=forged, case=forged, reason="") for one in (PASS, UNMET, UNSUPPORTED)]
    results = replace(RESULTS, subjects=(subject,), verdicts=tuple(verdicts))
    for text in (screen(Report(results)), to_markdown(Report(results))):
        assert not re.search(r"^m:f: conforms", text, re.MULTILINE)
    long = replace(SUBJECT, problem="y" * 10**6, note="z" * 10**6)
    assert len(screen(Report(replace(RESULTS, subjects=(long,))))) < 20_000


WILD = "\x1b[31m\x1b]8;;http://x\x07[red]x[/] [a](http://y) <script>`b`\n| @you #1 \udc80\u202e:boom: ![i](z)"


def test_text_from_outside_is_text_in_every_report():
    raised = Raise("E" + WILD, WILD, WILD, 1, WILD)
    subject = replace(SUBJECT, name=WILD, library=WILD, version=WILD, problem=WILD, note=WILD)
    verdicts = [replace(ERROR, backend=WILD, raised=raised), replace(FAIL, backend=WILD, reason=WILD)]
    verdicts += [replace(UNSUPPORTED, backend=WILD, reason=WILD), replace(ERROR, backend=WILD, case=WILD)]
    verdicts += [replace(UNMET, backend=WILD, difference=None, reason=WILD)]
    results = replace(RESULTS, subjects=(subject,), verdicts=tuple(verdicts), missing={WILD: (WILD,)})
    known = replace(OTHER, backend=WILD, reason=WILD, link=WILD)
    for known_of in ((), (known,)):
        report = Report(results, known_of)
        texts = {"screen": screen(report), "markdown": to_markdown(report), "junit": to_junit(report)}
        for text in texts.values():
            assert not {"\x1b", "\x07", "\udc80", "\u202e"} & set(text)
            text.encode()
        ET.fromstring(texts["junit"])
        assert "[red]x[/]" in texts["screen"], "no markup is eaten"
        # What is left outside of code and of fences holds nothing that Markdown would act on.
        bare = re.sub(r"^(`{3,})text\n.*?^\1$", "", texts["markdown"], flags=re.MULTILINE | re.DOTALL)
        bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", bare)
        assert not re.search(r"http:|<script|!\[i|@you|\[red\]", bare)
