"""The line of a claim: a report prints it, it is read back, and what it may name is checked."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from reported import ACCEPTED, DEVIATION, FAIL, KNOWN, PASS, PERFECT, SUBJECT, perfect

import attnspec
from attnspec import SpecError
from attnspec.backends import load
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.claim import CLASSES, FIELDS, claim_of, class_of, read_claim
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Header


def test_a_claim_of_conformance_is_read_back():
    """The line of a report has every field, and what is read back from it makes the same line."""
    subject = replace(SUBJECT, kind="adapted", profile="tf32", claims="NUM-10,INV-1")
    declined = replace(PASS, case="d-float32", status="unsupported", declined=True, rules=("MASK-8",))
    results = perfect(DEVIATION, ACCEPTED, declined, subjects=(subject,))
    report = Report(results)
    line = claim_of(report, subject)
    assert f"claim: {line}" in screen(report, width=80).splitlines()
    assert f"- claim: `{line}`" in to_markdown(report).splitlines()
    claim = read_claim(f"claim: {line}")
    assert tuple(claim) == FIELDS
    assert (
        "; ".join(
            f"{field}={value if isinstance(value, str) else ','.join(value)}"
            for field, value in claim.items()
        )
        == line
    )
    assert (claim["class"], claim["profile"], claim["dtypes"]) == ("adapted", "tf32", ["float32"])
    assert (claim["variants"], claim["deviations"]) == (["MASK-3:bottom-right"], ["SHAPE-6"])
    assert claim["claims"] == ["NUM-10", "INV-1"]
    assert "grouped" in claim["levels"]
    assert not {"strict", "masked"} & {*claim["levels"]}, "they lack SHAPE-6 and MASK-3"
    assert re.fullmatch(r"1/\d+ MASK-8", claim["declined"])


def test_there_is_no_claim_of_a_run_with_known_failures():
    subject = replace(SUBJECT, kind="function")
    results = perfect(FAIL, subjects=(subject,))
    report = Report(results, [KNOWN])
    assert report.outcome_of(subject) is Outcome.GOOD
    assert claim_of(report, subject) == ""


@pytest.mark.parametrize(
    "results",
    [
        perfect(FAIL),
        perfect(headers=(Header("1", "quick"),)),
        perfect(subjects=(replace(SUBJECT, problem="x"),)),
        perfect(*(replace(PASS, case=f"d-{n}", status="unsupported", declined=True) for n in range(999))),
    ],
)
def test_there_is_no_claim_of_a_run_that_fails_is_not_whole_or_declines_most_calls(results):
    (subject,) = (replace(one, kind="function") for one in results.subjects)
    report = Report(replace(results, subjects=(subject,)))
    assert claim_of(report, subject) == ""
    assert claim_of(Report(PERFECT), replace(SUBJECT, kind="function"))


LINE = claim_of(Report(PERFECT), replace(SUBJECT, kind="function"))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("; class=function", "", "claim: expected the fields attnspec, product, class"),
        ("class=function", "class=kernel", "claim: class: expected some of function, adapted.*got 'kernel'"),
        ("levels=core", "levels=gold", "claim: levels: .*got 'gold'"),
        ("dtypes=float32", "dtypes=float8", "claim: dtypes: .*got 'float8'"),
        ("variants=none", "variants=MASK-3:left", "claim: variants: expected some of bottom-right"),
        ("deviations=none", "deviations=MASK-99", "rule: expected an id"),
        ("declined=0/", "declined=many/", "claim: declined: expected at most half"),
        ("declined=0/", "declined=9999/", "claim: declined: expected at most half"),
    ],
)
def test_a_claim_that_names_what_there_is_not_is_refused(before, after, message):
    assert before in LINE
    with pytest.raises(SpecError, match=message):
        read_claim(LINE.replace(before, after))


def test_the_fields_and_classes_of_a_claim_are_those_of_the_page():
    page = (Path(attnspec.__file__).parent / "conformance.md").read_text(encoding="utf-8")
    fields, classes = (
        re.findall(r"^    (attnspec=.*)$", page, re.MULTILINE)[0],
        page.partition("## Adapters")[0],
    )
    assert tuple(part.partition("=")[0] for part in fields.split("; ")) == FIELDS
    assert tuple(re.findall(r"^\| `(\w+)` \|", classes, re.MULTILINE)) == CLASSES


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("numpy-portable", "function"),
        ("program:./kernel?dtype=float32", "program"),
        ("untrusted:program:./kernel", "program"),
        ("offline:answers", "files"),
        ("my_kernels:flash", "function"),
        ("torch-sdpa", "adapted"),
    ],
)
def test_the_class_of_a_product(name, kind):
    assert class_of(name, load("numpy-portable")) == kind
