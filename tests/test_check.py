"""The command that judges: what it prints and writes for given results."""

import json
import signal
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from reported import ERROR, FAIL, PASS, PERFECT, SUBJECT, UNSUPPORTED, VERDICTS
from test_results import FORMAT
from tests_support import command

from attnspec.conformance.attribution.finding import Diagnosis, Twin
from attnspec.conformance.attribution.known_failures import read_known
from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.cli import check as cli
from attnspec.conformance.results import Footer, Header
from attnspec.conformance.results_file import read
from attnspec.conformance.run import run
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.verdict import Difference

NAME = SUBJECT.name


MANY = (*VERDICTS, *PERFECT.verdicts[:9])
HEADER = Header("1", "chosen", cases=tuple(verdict.case for verdict in VERDICTS))


@pytest.fixture
def check(monkeypatch):
    """`attnspec check` with verdicts instead of processes that find them."""

    def checked(*words, verdicts=VERDICTS, ends=lambda: None, header=HEADER, named=True):
        class Pool(AbstractContextManager):
            def __init__(self, name, selection, jobs, seconds, echo):
                assert (name, jobs, seconds, echo) == (NAME, 1, 300, False)
                self.name = name
                self.selection = checked.selection = selection

            def __exit__(self, *_):
                pass

            def probe(self, cases, seconds):
                assert list(cases)
                assert seconds
                return ""

            def diagnose(self, cases, seconds):
                assert list(cases)
                twin = Twin(("fills_with_a_number" if seconds else "fills_always",), "It fills.", "MASK-5")
                return Diagnosis((twin,), 2, 3, 0.0, 3) if named else None

        def events(pool, selection, known, stop):
            assert (pool.name, selection, known) == (NAME, checked.selection, {})
            yield replace(header, cases=tuple(verdict.case for verdict in verdicts))
            yield SUBJECT
            for verdict in verdicts:
                yield verdict
                if stop(verdict):
                    yield replace(SUBJECT, problem="stopped")
                    return
            ends()
            yield Footer(len(verdicts))

        monkeypatch.setattr(run, "Pool", Pool)
        monkeypatch.setattr(run, "events", events)
        return command("check", NAME, *words)

    return checked


def test_the_exit_status_tells_whether_it_is_good(check):
    assert check().exit_code == 1
    assert check(verdicts=[PASS]).exit_code == 0
    assert check(verdicts=[UNSUPPORTED]).exit_code == 4, "nothing was judged"
    assert check(verdicts=[]).exit_code == 4
    everything = [*PERFECT.verdicts, FAIL]
    whole = Header("1")
    assert check(verdicts=everything, header=whole).exit_code == 1
    done = check("--require", "core", verdicts=everything, header=whole)
    assert done.exit_code == 0
    assert "reaches level core, as required; 1 case fails outside of it" in done.stdout
    assert check("--require", "masked", verdicts=everything, header=whole).exit_code == 1
    assert check("--require", "core", verdicts=[PASS], header=whole).exit_code == 1


def test_a_failing_backend_is_diagnosed_and_a_diagnosis_without_a_name_is_said(check):
    assert "\nconsistent with: fills_with_a_number (It fills" in check(verdicts=MANY).stdout
    for few in (VERDICTS, PERFECT.verdicts):  # too few cases, or no failure
        assert "consistent with" not in check(verdicts=few).stdout
    assert "\nconsistent with: fills_always (It fills" in check("--explain", verdicts=MANY).stdout
    hint = "m:f: no bug of the gallery matches in a short search; --explain looks longer\n"
    plain = [replace(verdict, variant="") for verdict in VERDICTS]
    assert hint in check(named=False, verdicts=plain).stderr
    assert hint not in check(named=False).stderr, "the variant that it equals is named"
    none = "m:f: no wrong implementation of the gallery has the same results\n"
    for words, named, verdicts in (((), True, MANY), (("--explain",), False, plain), ((), False, [PASS])):
        other = check(*words, named=named, verdicts=verdicts).stderr
        assert hint not in other
        assert (none in other) == bool(words)


def test_options_are_handed_on_and_a_level_selects_its_rules(check):
    check("-k", "window", "--rule", "soft-1", "--seed", "3", "--quick", "--case", "softmax-000")
    assert check.selection == Selection(
        quick=True, rules=("SOFT-1",), names=("softmax-000",), match=("window",), seed=3
    )
    check("-k", "mask-6")
    assert check.selection == Selection(rules=("MASK-6",))
    assert check("--level", "masked", verdicts=[PASS]).exit_code == 0
    assert check.selection == Selection(rules=rules_of("masked"), level="masked")
    assert check.selection.part == "level"
    for words in (["--quick"], ["-k", "empty"], ["--case", "softmax-000"]):
        check("--level", "core", *words)
        assert check.selection.part != "level"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--level", "gold"], "level: expected one of core, strict, masked, "),
        (["--level", "core", "--rule", "MASK-6"], "--level: expected either --level or --rule, got both"),
        (["--require", "gold"], "--require: expected one of values, refusals, core, "),
        (["--require", "core", "--quick"], "--require: expected a whole run"),
        (["--require", "core", "-k", "mask"], "--require: expected a whole run"),
        (["--require", "core", "--case", "softmax-000"], "--require: expected a whole run"),
        (["--require", "masked", "--level", "core"], "--require: expected a level that --level core"),
    ],
)
def test_levels_that_cannot_be_asked_for(check, words, message):
    done = check(*words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_tables_of_every_rule_and_of_several_runs(check, tmp_path):
    assert "│ SOFT-1 " not in check(verdicts=PERFECT.verdicts, header=Header("1")).stdout
    assert "│ SOFT-1 " in check("--table", verdicts=PERFECT.verdicts, header=Header("1")).stdout
    for name in ("a", "b"):
        check("--results", tmp_path / name)
    done = command("table", tmp_path / "a", tmp_path / "b", status=1)
    assert "FAIL " in done.stdout
    assert "m:f (b)" in done.stdout, "two runs of one backend are not added up"


def test_the_first_failure_that_is_not_known_stops_it(check, tmp_path):
    first = check("-x")
    assert first.exit_code == 1
    known = tmp_path / "known.toml"
    check("--write-known-failures", known, verdicts=[FAIL])
    done = check("-x", "--known-failures", known, verdicts=[FAIL, ERROR, PASS])
    assert done.exit_code == 1
    assert "stopped" in done.stdout
    assert check("-x", "--known-failures", known, verdicts=[FAIL, PASS]).exit_code == 0


def test_all_reports_of_one_run(check, tmp_path):
    files = [tmp_path / "sub" / "j.xml", tmp_path / "m.md", tmp_path / "b.svg", tmp_path / "r.jsonl"]
    options = ["--junit", "--markdown", "--badge", "--results"]
    files[3].write_text("of the run before")
    done = check(*(word for pair in zip(options, files, strict=True) for word in pair))
    assert done.exit_code == 1
    ET.parse(files[0])
    ET.parse(files[2])
    assert files[1].read_text().startswith("## attnspec: does not conform")
    assert len(read([files[3]]).verdicts) == len(VERDICTS)
    for text in files[3].read_text().splitlines():
        jsonschema.validate(json.loads(text), FORMAT)


def test_failures_made_known_then_known_then_mended(check, tmp_path):
    known = tmp_path / "known.toml"
    done = check("--write-known-failures", known)
    assert done.exit_code == 0, "to adopt the suite today"
    assert done.stdout.splitlines()[-1] == f"2 entries in {known}: add a reason and a link to each"
    assert len(read_known(known)) == 2
    done = check("--known-failures", known)
    assert done.exit_code == 0
    assert "2 known failures, shown only in the table" in done.stdout
    assert "reproduce:" not in done.stdout
    done = check("--known-failures", known, verdicts=[replace(FAIL, status="pass", rule="", difference=None)])
    assert done.exit_code == 1
    assert "does not fail any more; remove it" in done.stdout


def test_no_known_failures_are_written_of_a_run_that_was_cut_off(check, tmp_path):
    known = tmp_path / "known.toml"
    done = check("--write-known-failures", known, "-x")
    assert done.exit_code == 1
    assert "known failures: not written: stopped" in done.stdout
    assert not known.exists()
    done = check("--write-known-failures", known, ends=lambda: signal.raise_signal(signal.SIGINT))
    assert done.exit_code == 130
    assert not known.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--badge", "x.png"],
        ["--known-failures", "absent.toml"],
        ["--junit", "{folder}"],
        ["--junit", "{results}/below.xml"],
    ],
)
def test_results_are_not_touched_before_the_arguments_are_known_to_be_right(check, tmp_path, words):
    results = tmp_path / "r.jsonl"
    results.write_text("before")
    done = check("--results", results, *(word.format(folder=tmp_path, results=results) for word in words))
    assert done.exit_code not in (0, None)
    assert "Error: " in done.stderr
    assert results.read_text() == "before"


def test_a_report_that_cannot_be_written_costs_neither_the_table_nor_the_others(check, tmp_path):
    folder, other = tmp_path / "sub" / "j.xml", tmp_path / "m.md"

    def ends():
        folder.mkdir()  # while the suite ran

    done = check("--junit", folder, "--markdown", other, ends=ends, verdicts=[PASS])
    assert done.exit_code == 1
    assert "m:f: passes the part of the suite" in done.stdout
    assert done.stderr.startswith("Error: --junit: ")
    assert other.read_text().startswith("## attnspec: passes the part")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_run_that_is_interrupted_has_found_is_kept_and_told(check, tmp_path, number):
    results = tmp_path / "r.jsonl"
    markdown = tmp_path / "m.md"
    words = ["--results", results, "--markdown", markdown]
    done = check(*words, verdicts=[PASS], ends=lambda: signal.raise_signal(number))
    assert done.exit_code == 128 + number
    assert "the run was cut off" in done.stdout
    assert "conforms" not in markdown.read_text().splitlines()[0].replace("does not conform", "")
    assert read([results]).verdicts == (PASS,)
    assert read([results]).subjects[0].problem


def test_only_what_failed_is_judged_again(check, tmp_path, monkeypatch):
    results = tmp_path / "r.jsonl"
    check("--results", results, verdicts=[PASS])
    again = command("check", NAME, "--rerun", results, status=2)
    assert "--rerun: expected a failing case in" in again.output
    check("--results", results)
    asked = []
    monkeypatch.setattr(cli, "judge_all", lambda _names, _selection, *, cases, **_: asked.extend(cases))
    again = command("check", NAME, "--rerun", results, "--case", "softmax-000", status=0)
    assert asked == ["softmax-000", FAIL.case, ERROR.case]


def test_the_first_failure_is_printed_in_a_line_while_the_suite_runs(check, monkeypatch):
    done = check()
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("first failure: ")]
    assert line.startswith("first failure: MASK-6 A row with nothing to attend to gives zero: output[2, 0]:")
    assert line.endswith(": attnspec check m:f --case masking-empty-last-float32")
    assert "first failure" not in done.stdout
    wrong = Difference("value", "lse", (0,), 1.0, 2.0, outputs=("lse",), right=("output",))
    of_lse = replace(FAIL, rule="SOFT-5", rules=("SOFT-5",), variant="", difference=wrong)
    assert "first failure: SOFT-6 The lse is " in check(verdicts=[of_lse]).stderr, "the output is right"
    assert "first failure" not in check(verdicts=[PASS]).stderr
    assert "first failure: MASK-6" in check(verdicts=[ERROR, FAIL]).stderr, "as in the report"
    assert "first failure: NUM-3" in check("-x", verdicts=[ERROR, FAIL]).stderr
    assert "first failure: NUM-3" in check(verdicts=[ERROR] * 5 + [FAIL]).stderr
    monkeypatch.setattr("attnspec.conformance.run.run._WAIT", -1.0)
    assert "first failure: NUM-3" in check(verdicts=[ERROR, FAIL]).stderr, "it waits for seconds only"
    order = []
    monkeypatch.setattr(cli, "_show_first", lambda verdict: order.append(verdict.case))
    check(ends=lambda: order.append("end"))
    assert order == [FAIL.case, "end"]


DECLINING = """
from attnspec.reference import attention as right


def attention(query, key, value, *, scale=None, is_causal=False):
    if CONDITION:
        raise NotImplementedError("no causality here")
    return right(query, key, value, scale=scale, is_causal=is_causal, dtype=query.dtype)
"""
OF_OTHER_LENGTHS = "is_causal and query.shape[-2] != key.shape[-2]"


@pytest.mark.usefixtures("here_beside_tests")
@pytest.mark.parametrize(("condition", "status"), [("is_causal", 4), (OF_OTHER_LENGTHS, 0)])
def test_a_run_that_declines_every_call_with_an_argument_is_no_success(condition, status):
    Path("declining.py").write_text(DECLINING.replace("CONDITION", condition))
    run = command("check", "./declining.py:attention", "--quick", status=status)
    assert ("declined every call with is_causal" in " ".join(run.output.split())) == (status == 4)


@pytest.mark.usefixtures("here_beside_tests")
def test_judged_calls_without_an_argument_say_nothing_of_the_declined_ones_with_it():
    Path("declining.py").write_text(DECLINING.replace("CONDITION", OF_OTHER_LENGTHS))
    cases = ("notation-more-keys-float32", "masking-causal-more-keys-float32")
    run = command("check", "./declining.py:attention", *(word for case in cases for word in ("--case", case)))
    assert 'lengths = "equal" describes them' in " ".join(run.output.split())


@pytest.mark.usefixtures("here_beside_tests")
@pytest.mark.parametrize("place", ["declining.py:attention", "./declining.py:attention?SPLITS=3"])
def test_a_configuration_is_that_of_its_function_however_the_file_is_named(place):
    of_other_names = DECLINING.replace("CONDITION", "False").replace("query", "x")
    Path("declining.py").write_text(of_other_names)
    Path("attnspec.toml").write_text(
        '[backend]\nfunction = "declining.py:attention"\nnames = { query = "x" }\n'
    )
    command("check", place, "--case", "notation-more-keys-float32", status=0)
