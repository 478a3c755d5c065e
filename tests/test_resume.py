"""A run that was cut off and is continued: it judges only what is missing, and its file ends up whole."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from tests_support import attnspec, command

from attnspec import SpecError, __version__
from attnspec.conformance.results import Footer, Header, Subject, line
from attnspec.conformance.results_file import read
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.resume import finished_verdicts
from attnspec.conformance.verdict import Verdict

CASES = ("sizes-covering-1", "sizes-covering-4", "sizes-covering-5", "sizes-covering-6")
SIZES = ("--sizes", *(word for case in CASES for word in ("--case", case)))
#: Notes each call, and waits in one of them to be interrupted.
FUNCTION = """
import time
from pathlib import Path
from attnspec.backends import load

right = load("numpy-portable").attention

def noted(query, key, value, *, return_lse=False):
    with Path(__file__).with_name("calls").open("a") as file:
        file.write("x")
        number = file.tell()
    if number == {waiting}:
        time.sleep(600)
    return right(query, key, value, return_lse=return_lse)

def off(query, key, value):
    return right(query, key, value) + 1
"""


@pytest.fixture
def folder(here):
    (here / "counted.py").write_text(FUNCTION.format(waiting=0))
    return here


def check(folder, *words):
    return attnspec("check", *words, "--results", "r.jsonl", cwd=folder)


def calls(folder):
    path = folder / "calls"
    found = len(path.read_text()) if path.exists() else 0
    path.unlink(missing_ok=True)
    return found


def whole(folder, backend):
    """Whether the file has each case once, in one run that has ended."""
    results = read([folder / "r.jsonl"])
    own = [one.case for one in results.verdicts if one.backend == backend]
    assert len(own) == len(set(own)) == len(CASES)
    assert not any(results.missing.values())
    return not any(subject.problem for subject in results.subjects)


def without(folder, count):
    """Cut the file off after some verdicts."""
    path = folder / "r.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: 2 + count]))


def test_only_what_is_missing_is_judged_from_a_file_of_results(folder):
    assert check(folder, "counted:noted", *SIZES).returncode == 0
    assert calls(folder) == 4
    without(folder, 3)
    assert check(folder, "counted:noted", *SIZES, "--resume").returncode == 0
    assert calls(folder) == 1
    assert whole(folder, "counted:noted")
    assert check(folder, "counted:noted", *SIZES, "--resume").returncode == 0
    assert calls(folder) == 0
    done = command("check", "numpy-portable", "--sizes", "--resume", status=2)
    assert "--resume: expected --results with the file of the run, got none" in done.output


def test_an_interrupted_run_is_continued(folder):
    (folder / "counted.py").write_text(FUNCTION.format(waiting=3))
    command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", "counted:noted", *SIZES]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, "--results", "r.jsonl"], cwd=folder, **quiet)
    path = folder / "r.jsonl"
    while not (path.exists() and '"verdict"' in path.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 128 + signal.SIGINT
    before = {one.case for one in read([path]).verdicts}
    assert 0 < len(before) < 4
    (folder / "counted.py").write_text(FUNCTION.format(waiting=0))
    calls(folder)
    assert check(folder, "counted:noted", *SIZES, "--resume").returncode == 0
    assert calls(folder) == 4 - len(before)
    assert whole(folder, "counted:noted")


def test_a_run_stopped_at_a_failure_keeps_the_failure(folder):
    assert check(folder, "counted:off", *SIZES, "-x").returncode == 1
    assert len(read([folder / "r.jsonl"]).verdicts) == 1
    assert check(folder, "counted:off", *SIZES, "--resume").returncode == 1
    assert whole(folder, "counted:off")


def test_verdicts_that_a_resumed_run_does_not_reach_stay_in_the_file(folder):
    both = ("counted:noted", "numpy-portable", *SIZES)
    assert check(folder, *both).returncode == 0
    (folder / "counted.py").write_text("raise RuntimeError('broken')\n")
    assert check(folder, "counted:noted", *SIZES, "--resume").returncode == 3
    found = finished_verdicts(folder / "r.jsonl", Selection(sizes=True, names=CASES))
    assert len({(one.backend, one.case) for one in found}) == 2 * len(CASES)
    (folder / "counted.py").write_text(FUNCTION.format(waiting=0))
    calls(folder)
    assert check(folder, *both, "--resume").returncode == 0
    assert calls(folder) == 0
    assert whole(folder, "counted:noted")
    assert whole(folder, "numpy-portable")


PASS = Verdict("m:f", "sizes-views-1-float32", "sizes: views", ("NUM-8",), "pass", "float32")


def written(path, *verdicts, **header):
    parts = [Header(__version__, "sizes", None, (PASS.case,)), Subject("m:f", "numpy", "2")]
    parts[0] = replace(parts[0], **header)
    kinds = ("header", "subject", *["verdict"] * len(verdicts), "footer")
    path.write_text("".join(map(line, kinds, (*parts, *verdicts, Footer(len(verdicts))))))
    return path


def test_what_was_left_out_or_ended_the_process_is_judged_again(tmp_path):
    left = replace(PASS, status="unsupported", reason="left out: 0 s are left (--within)", code="left out")
    ended = replace(PASS, status="error", rule="NUM-8", reason="did not end in 300 s", code="hung")
    lacks = replace(PASS, status="unsupported", reason="no mask", code="lacks", lacks=("argument mask",))
    kept = (PASS, lacks, replace(PASS, status="fail", rule="NUM-8", code="relation"))
    path = written(tmp_path / "r.jsonl", left, ended, *kept)
    assert finished_verdicts(path, Selection(sizes=True)) == kept


@pytest.mark.parametrize(
    ("selection", "header"),
    [
        (Selection(sizes=True), {"attnspec": "1999.1.1"}),
        (Selection(sizes=True), {"part": "whole"}),
        (Selection(sizes=True, names=(PASS.case,)), {}),
        (Selection(), {"part": "whole", "seed": 7}),
    ],
)
def test_the_file_of_another_run_is_refused(tmp_path, selection, header):
    path = written(tmp_path / "r.jsonl", PASS, **header)
    with pytest.raises(SpecError, match="expected a run of version, part and seed") as caught:
        finished_verdicts(path, selection)
    assert "\n" not in str(caught.value)


MATCHING = Selection(sizes=True, match=("float32", "NUM-8"))


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (replace(MATCHING, match=("MASK-3",)), ("expected -k NUM-8, -k float32 as in", "got -k MASK-3")),
        (replace(MATCHING, match=("NUM-8",)), ("expected -k float32 as in its run, got none",)),
        (replace(MATCHING, rules=("MASK-1",)), ("expected none as in its run, got --rule MASK-1",)),
        (replace(MATCHING, names=("a",)), ("expected none as in its run, got --case a",)),
        (replace(MATCHING, sizes=False), ("expected --sizes as in its run, got none",)),
        (replace(MATCHING, rules=("SOFT-1",), level="core"), ("none as in its run, got --level core",)),
    ],
)
def test_a_run_with_another_choice_of_cases_is_refused(tmp_path, selection, words):
    path = written(tmp_path / "r.jsonl", PASS, part="chosen", choice=MATCHING.choice)
    assert finished_verdicts(path, MATCHING) == (PASS,)
    assert finished_verdicts(path, replace(MATCHING, match=MATCHING.match[::-1], within=1.0)) == (PASS,)
    with pytest.raises(SpecError) as caught:
        finished_verdicts(path, selection)
    assert all(one in str(caught.value) for one in ("--resume: ", str(path), *words))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("m:f?dtype=float32", "options of m:f: expected none as in its run, got --dtype float32"),
        ("m:f?array=jax", "expected none as in its run, got --array jax"),
        ("m:f", ""),
        ("m:g?dtype=float32", ""),
    ],
)
def test_a_backend_with_other_options_is_refused(tmp_path, name, words):
    path = written(tmp_path / "r.jsonl", PASS)
    if not words:
        assert finished_verdicts(path, Selection(sizes=True), [name]) == (PASS,)
        return
    with pytest.raises(SpecError, match=words):
        finished_verdicts(path, Selection(sizes=True), [name])


def test_the_command_notes_the_choice_and_refuses_another(folder):
    assert check(folder, "counted:noted", *SIZES).returncode == 0
    calls(folder)
    before = (folder / "r.jsonl").read_text()
    for words, message in (
        ((*SIZES[:3],), "expected --case sizes-covering-4, --case sizes-covering-5"),
        ((*SIZES, "-k", "covering"), "got -k covering"),
        ((*SIZES, "-k", "MASK-3"), "got --rule MASK-3"),
        ((*SIZES, "--dtype", "float32"), "got --dtype float32"),
    ):
        done = check(folder, "counted:noted", *words, "--resume")
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert calls(folder) == 0
    assert (folder / "r.jsonl").read_text() == before


@pytest.mark.parametrize("text", ["broken\n", "{}\n", json.dumps({"verdict": {}}) + "\n", "\x00\n"])
def test_a_broken_file_is_refused_in_one_line_and_kept(tmp_path, text):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    words = ["check", "numpy-portable", "--sizes", "--resume", "--results", str(path)]
    done = command(*words, status=2)
    assert done.output.count("\n") == 1
    assert path.read_text() == text
