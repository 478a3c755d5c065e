"""Results as a file, reports made of them, and failures that are known."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from test_cli import attnspec, judged

from attnspec import SpecError, conformance, rules
from attnspec.conformance.report.badge import to_badge
from attnspec.conformance.report.junit import to_junit
from attnspec.conformance.report.known_failures import (
    Known,
    plain_name,
    read_known,
    sort_failures,
    write_known,
)
from attnspec.conformance.report.markdown import to_markdown
from attnspec.conformance.report.report import Report
from attnspec.conformance.verdict import Footer, Header, Results, Subject, Verdict, line, read

SCHEMA = json.loads((Path(conformance.__file__).parent / "results.schema.json").read_text())
SUBJECT = Subject("m:f", "numpy", "2.4")
#: One of each status, of one backend.
VERDICTS = (
    Verdict("m:f", ("SOFT-1",), "test_plain[m:f]", "pass", used={"float32": (0.5, "full")}),
    Verdict(
        "m:f",
        ("MASK-6",),
        "test_golden[m:f-masking-empty-last-float32]",
        "fail",
        "MASK-6 Empty\ncase masking-empty-last\noutput: got 1 | <expected> 0 \x00\n"
        "reproduce:\n    print(1)\nin test_golden",
    ),
    Verdict("m:f", ("NUM-3",), "test_error[m:f]", "error", "NUM-3: m:f raised ValueError: no"),
    Verdict("m:f", ("SOFT-5",), "test_sinks[m:f]", "unsupported", "m:f has no argument sinks"),
    Verdict("m:f", ("MASK-3",), "test_causal[m:f]", "deviation", "shows the variant", {}, ("MASK-3",)),
)
RESULTS = Results((SUBJECT,), VERDICTS, (Header("1", "chosen"),))
PERFECT = Results(
    (SUBJECT,), tuple(Verdict("m:f", (rule.id,), "t[m:f]", "pass") for rule in rules()), (Header("1"),)
)
KNOWN = Known(
    "MASK-6", "filled with -1e9", "https://x.example/1", ("test_golden[masking-empty-last-float32]",)
)
OTHER = Known("NUM-3", "raises | today", "", ("test_error",))


def write(path, *lines):
    path.write_text("".join(lines))
    return path


def test_a_file_of_results_comes_back_as_it_was(tmp_path):
    lines = [line("header", Header("1", "quick", 7)), line("subject", SUBJECT)]
    lines += [line("verdict", verdict) for verdict in VERDICTS]
    path = write(tmp_path / "r.jsonl", *lines, line("footer", Footer(len(VERDICTS))))
    found = read([path])
    assert found.headers == (Header("1", "quick", 7),)
    assert found.subjects == (SUBJECT,)
    assert [(v.test, v.status, v.rules) for v in found.verdicts] == [
        (v.test, v.status, v.rules) for v in VERDICTS
    ]
    for text in path.read_text().splitlines():
        jsonschema.validate(json.loads(text), SCHEMA)


def test_the_schema_refuses_what_no_run_writes():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for wrong in ({"verdict": {}}, {"end": None}, {"footer": {"verdicts": -1}}, {}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, SCHEMA)


def test_a_run_that_was_cut_off_is_seen_as_such(tmp_path):
    whole = [line("header", Header("1")), line("subject", SUBJECT), line("verdict", VERDICTS[0])]
    end = line("footer", Footer(1))
    assert read([write(tmp_path / "a", *whole, end)]).subjects[0].problem == ""
    cut = read([write(tmp_path / "b", *whole)])
    assert cut.subjects[0].problem == "backend m:f: the run was cut off after test_plain[m:f]"
    assert not Report(cut).good
    several = read([write(tmp_path / "c", *whole, end, *whole)])
    assert [bool(subject.problem) for subject in several.subjects] == [False, True]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([line("subject", SUBJECT)], "line 1: expected a header, got a subject"),
        (
            [line("header", Header("1")), line("footer", Footer(0)), line("subject", SUBJECT)],
            "line 3: expected a header, got a subject",
        ),
        (
            [line("header", Header("1")), line("footer", Footer(3))],
            "line 2: expected 3 verdicts before it, got 0",
        ),
        (
            [line("header", Header("1")), '{"end": null}\n'],
            "line 2: expected a subject, a verdict or the footer",
        ),
        (['{"header": {"colour": 1}}\n'], "is no file of results"),
        (["{\n"], "is no file of results"),
    ],
)
def test_what_is_no_file_of_results(lines, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        read([write(tmp_path / "r.jsonl", *lines)])


def test_junit():
    root = ET.fromstring(to_junit(Report(RESULTS, [OTHER])))
    (suite,) = root
    assert suite.attrib == {"name": "m:f", "tests": "5", "failures": "1", "errors": "0", "skipped": "2"}
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert [child.tag for child in cases["test_golden[masking-empty-last-float32]"]] == ["failure"]
    assert cases["test_golden[masking-empty-last-float32]"].get("classname") == "attnspec.MASK-6"
    assert cases["test_error"].find("skipped").get("message") == "known failure: raises | today"
    assert cases["test_sinks"].find("skipped").get("message") == "m:f has no argument sinks"
    assert cases["test_causal"].find("system-out").text == "deviation: shows the variant"
    assert list(cases["test_plain"]) == []
    lost = replace(RESULTS, subjects=(replace(SUBJECT, problem="cut off"),))
    assert ET.fromstring(to_junit(Report(lost)))[0].get("errors") == "2"


def test_markdown():
    text = to_markdown(Report(RESULTS, [OTHER, replace(KNOWN, tests=("test_plain",))]))
    assert text.startswith("## attnspec: does not conform\n")
    assert "| m:f | numpy 2.4 | 1 | 1 | 1 | 1 | 1 | not told" in text
    assert "<details><summary>MASK-6 Empty</summary>" in text
    assert "```text\ncase masking-empty-last\n" in text
    assert "- NUM-3 Every element stays within its error budget: 1 of it, raises | today" in text
    assert "- MASK-6 test_plain: does not fail any more; remove it" in text
    assert to_markdown(Report(PERFECT)).startswith("## attnspec: conforms\n")
    assert "core, masked, grouped, cached, exact" in to_markdown(Report(PERFECT))


@pytest.mark.parametrize(
    ("report", "message", "color"),
    [
        (Report(PERFECT), "core, masked, grouped, cached, exact", "brightgreen"),
        (Report(RESULTS), "does not conform", "red"),
        (Report(replace(PERFECT, headers=(Header("1", "quick"),))), "part of the suite passes", "yellow"),
        (
            Report(replace(PERFECT, verdicts=(*PERFECT.verdicts, VERDICTS[1])), [KNOWN]),
            "core, grouped, exact, 1 known failures",
            "yellow",
        ),
    ],
)
def test_badge(report, message, color):
    badge = json.loads(to_badge(report, ".json"))
    assert (badge["message"], badge["color"]) == (message, color)
    svg = to_badge(report, ".svg")
    ET.fromstring(svg)
    assert message in svg


def test_levels_are_told_of_whole_runs_alone():
    assert Report(PERFECT).levels(SUBJECT) == "levels: core, masked, grouped, cached, exact"
    assert Report(RESULTS).levels(SUBJECT).startswith("levels: not told")
    lame = replace(
        PERFECT, verdicts=tuple(v for v in PERFECT.verdicts if v.rules not in (("MASK-7",), ("MASK-9",)))
    )
    assert Report(lame).levels(SUBJECT) == (
        "levels: core, masked, grouped, exact; cached lacks MASK-7 (not judged), MASK-9 (not judged)"
    )


def test_what_was_run_is_told_with_the_seed():
    assert Report(PERFECT).extent() == "run: whole (the fixed problems; --seed N draws others)"
    seeded = replace(PERFECT, headers=(Header("1", "quick", 7), Header("1", "quick", 7)))
    assert Report(seeded).extent() == "run: quick (seed 7)"


def test_the_shortest_reproduction():
    longer = replace(VERDICTS[1], message="NUM-1 X\nreproduce:\n    a = 1\n    print(a)\nin test")
    report = Report(replace(RESULTS, verdicts=(longer, *VERDICTS)))
    assert report.shortest_reproduction() == "MASK-6 Empty\n    print(1)"
    assert Report(PERFECT).shortest_reproduction() == ""


def test_failures_are_new_or_known_and_entries_hold_or_are_stale():
    found = sort_failures(RESULTS, [KNOWN])
    assert [verdict.rules for verdict in found.new] == [("NUM-3",)]
    assert [(verdict.test, entry) for verdict, entry in found.known] == [(VERDICTS[1].test, KNOWN)]
    assert found.stale == ()
    # Under another rule it is another failure.
    found = sort_failures(RESULTS, [replace(KNOWN, rule="MASK-5")])
    assert len(found.new) == 2
    assert found.stale == (
        "MASK-5 test_golden[masking-empty-last-float32]: does not fail any more; remove it",
    )


def test_an_entry_of_a_test_that_was_not_run_is_stale_in_a_whole_run_alone():
    entry = replace(KNOWN, tests=("test_gone",))
    assert sort_failures(RESULTS, [entry]).stale == ()
    assert sort_failures(PERFECT, [entry]).stale == (
        "MASK-6 test_gone: does not fail as there is no such test; remove it",
    )
    assert not Report(PERFECT, [entry]).good
    assert Report(PERFECT).good


def test_names_without_the_backend():
    assert plain_name("test_a[m:f-x]", "m:f") == "test_a[x]"
    assert plain_name("test_a[m:f]", "m:f") == "test_a"
    assert plain_name("test_a", "m:f") == "test_a"


def test_known_failures_are_written_and_keep_their_reasons(tmp_path):
    path = tmp_path / "known.toml"
    assert write_known(path, RESULTS, [KNOWN]) == 2
    kept, new = read_known(path)
    assert kept == KNOWN
    assert new.rule == "NUM-3"
    assert new.reason.startswith("not looked into yet: NUM-3: m:f raised ValueError: no")
    assert Report(RESULTS, read_known(path)).failures.new == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[known", "to be TOML, got "),
        ("[unknown]\n", r"expected entries \[\[known\]\] alone, got unknown"),
        ('[[known]]\nrule = "MASK-6"\n', "entry 1: expected rule, reason, link and tests"),
        (
            '[[known]]\nrule = "X-1"\nreason = "r"\nlink = ""\ntests = ["t"]\n',
            "entry 1: rule: expected one of",
        ),
        (
            '[[known]]\nrule = "MASK-6"\nreason = " "\nlink = ""\ntests = ["t"]\n',
            "reason: expected a sentence",
        ),
        (
            '[[known]]\nrule = "MASK-6"\nreason = "r"\nlink = ""\ntests = []\n',
            "tests: expected names of tests",
        ),
    ],
)
def test_what_is_no_file_of_known_failures(text, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        read_known(write(tmp_path / "known.toml", text))


def test_reports_from_the_command_line(tmp_path):
    """All of them of one run; then the same failures known, then one of them mended."""
    known = tmp_path / "known.toml"
    words = [
        "--junit",
        tmp_path / "sub" / "j.xml",
        "--markdown",
        tmp_path / "m.md",
        "--badge",
        tmp_path / "b.svg",
    ]
    run, verdicts = judged(
        "broken:no_scale",
        "-k",
        "golden and scores or golden and softmax",
        *words,
        "--write-known-failures",
        known,
        tmp_path=tmp_path,
    )
    failing = [verdict for verdict in verdicts if verdict.status == "fail"]
    assert run.returncode == 0, "to adopt the suite today"
    assert f"{len(failing)} known failures in " in run.stdout
    assert run.stdout.rstrip().splitlines()[-1].startswith("    print(")
    assert "the shortest reproduction:" in run.stdout
    ET.parse(tmp_path / "sub" / "j.xml")
    ET.parse(tmp_path / "b.svg")
    assert (tmp_path / "m.md").read_text().startswith("## attnspec: does not conform")
    for text in (tmp_path / "results.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(text), SCHEMA)
    words = ["check", "-k", "golden and softmax", "--known-failures", known]
    run = attnspec(*words, "broken:no_scale")
    assert run.returncode == 0
    assert "known failures, told of in the table alone" in run.stdout
    assert "SOFT-1 Weights are the softmax" not in run.stdout
    run = attnspec(*words, "numpy-portable")
    assert run.returncode == 1
    assert "does not fail any more; remove it" in run.stdout
    assert attnspec("check", "--known-failures", tmp_path / "absent").stderr.startswith(
        "Error: known failures:"
    )
