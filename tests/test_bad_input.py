"""Bad input by users: each kind has a clear verdict or error, nothing hangs, and no result is lost.

Functions are judged here through the command line, as anybody would. Programs that misbehave are listed
in ``test_program.py``, folders with files that are missing or cut in ``test_offline.py``.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_cli import TESTS, attnspec, judged

from attnspec.backends import BackendError, load
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.cli.main import main
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.results_file import read
from attnspec.conformance.run import pool
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.run import run_all

#: A part of the suite that asks for values, for a refusal and for another shape.
PART = ("notation-batch", "notation-no-queries", "notation-misfit-depth")
WORDS = [f"--case={name}" for name in PART]


#: Function to what becomes of it: a status that some case has, and what is said of it.
FUNCTIONS = {
    "lists": ("fail", "output: expected an array of numpy, got list"),
    "nothing": ("fail", "output: expected an array of numpy, got NoneType"),
    "transposed_output": ("fail", "output: got shape"),
    "nan_everywhere": ("fail", "differ in being NaN or infinite"),
    "mutating": ("fail", "expected to be unchanged, got changed by the call"),
    "raising": ("error", "raised RuntimeError: the kernel did not launch"),
    "raising_at_random": ("error", "raised RuntimeError: not this time"),
    "exiting": ("error", "raised SystemExit: 3"),
    "crashing_at_times": ("error", "its process was killed by SIGSEGV"),
    "printing_megabytes": ("pass", ""),
}
#: What cannot be judged at all, to what is said of it.
UNUSABLE = {
    "broken:misnamed": "expected query, key, value, got query, keys, values",
    "program:./absent": "expected ./absent to be an executable program",
    "broken:not_a_function": "expected a function or a Backend, got int",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """All of them judged in one run, good ones and bad ones side by side."""
    folder = tmp_path_factory.mktemp("bad")
    shutil.copy(Path(TESTS, "broken.py"), folder)
    results = folder / "results.jsonl"
    names = [*(f"broken:{name}" for name in FUNCTIONS), *list(UNUSABLE)[:2]]
    return folder, attnspec("check", *names, "--results", results, *WORDS, cwd=folder), read([results])


def test_the_run_ends_and_says_so_in_a_page_or_two(ran):
    _, run, _ = ran
    assert run.returncode == 3, "some could not be loaded"
    assert "Traceback" not in run.stdout + run.stderr
    assert len(run.stdout) < 200_000, "what a function prints is not repeated"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name, ran):
    _, _, results = ran
    status, message = FUNCTIONS[name]
    own = [verdict for verdict in results.verdicts if verdict.backend == f"broken:{name}"]
    found = [verdict_text(verdict) for verdict in own if verdict.status == status]
    assert any(message in text for text in found)
    cases = [verdict.case for verdict in own]
    good = [verdict.case for verdict in results.verdicts if verdict.backend == "broken:printing_megabytes"]
    assert sorted(cases) == sorted(good), "a verdict on every case, whatever happens"
    if status == "pass":
        assert {verdict.status for verdict in own} <= {"pass", "unsupported"}
    else:
        assert not any(subject.problem for subject in results.subjects if subject.name == f"broken:{name}")


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_judged_at_all(name, ran, monkeypatch):
    folder, run, results = ran
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(BackendError) as caught:
        load(name)
    assert UNUSABLE[name] in str(caught.value)
    for subject in results.subjects:
        if subject.name == name:
            first, *rest = str(caught.value).splitlines()
            assert "\n".join([f"error: {first}", *(f"    {line}".rstrip() for line in rest)]) in run.stdout
            assert not any(verdict.backend == name for verdict in results.verdicts)


def test_a_function_that_raises_at_random_is_told_from_one_that_always_does(tmp_path):
    """A call that fails is made again, and this one does not fail again."""
    _, verdicts = judged("broken:raising_once", "--case=notation-batch", tmp_path=tmp_path)
    (verdict,) = [verdict for verdict in verdicts if verdict.status == "error"]
    assert not verdict.repeatable
    assert "raised RuntimeError: not this time" in verdict_text(verdict)
    assert "not repeatable: the same call, repeated, has another result" in verdict_text(verdict)


def test_a_function_that_never_returns(monkeypatch):
    monkeypatch.setattr(pool, "MOST_HANGS", 1)
    monkeypatch.setattr(pool, "HANG_LIMIT", 1)
    monkeypatch.chdir(TESTS)
    results = run_all(["broken:hanging"], Selection(names=PART), seconds=1).results
    (verdict,) = [verdict for verdict in results.verdicts if verdict.status != "unsupported"]
    assert (verdict.status, verdict.reason) == ("error", "did not end in 1 s")
    text = screen(Report(results))
    assert "did not end in 1 s" in text
    assert "error: backend broken:hanging: abandoned after 1 cases that did not end" in text


def test_a_program_that_cannot_be_judged_at_all(tmp_path):
    path = os.path.join(TESTS, "misbehaving.py")
    run = attnspec("check", "--program", f"{sys.executable} -S {path} ends_at_once", *WORDS, cwd=tmp_path)
    assert run.returncode == 3
    assert "error: backend program:" in run.stdout
    assert "hello: expected" in run.stdout


def test_a_program_that_answers_badly_gets_a_verdict_on_every_case(tmp_path):
    path = os.path.join(TESTS, "misbehaving.py")
    results = tmp_path / "results.jsonl"
    words = [
        "--program",
        f"{sys.executable} -S {path} answers_in_garbage",
        "--call-limit",
        "5",
        "--results",
        results,
    ]
    run = attnspec("check", *words, *WORDS, cwd=tmp_path)
    assert run.returncode == 1
    found = read([results])
    assert not found.subjects[0].problem
    assert {verdict.status for verdict in found.verdicts} <= {"error", "unsupported"}
    assert sum(verdict.status == "error" for verdict in found.verdicts) > 3


@pytest.mark.parametrize("words", [["numpy-portable", "--dtype", "float31"], ["broken:absent?dtype=float31"]])
def test_a_dtype_that_there_is_not_is_a_wrong_command(words):
    """And it is said before anything is loaded."""
    run = CliRunner().invoke(main, ["check", *words])
    assert run.exit_code == 2
    (line,) = run.output.splitlines()
    assert line.endswith("dtype: expected some of float16, bfloat16, float32, float64, got float31")
