"""What somebody's code may do wrong, whole: for each a clear verdict or error, nothing hung, nothing lost.

Functions are judged here through the command line, as anybody would. Programs that misbehave are listed
in ``test_program.py``, folders with files that are missing or cut in ``test_offline.py``.
"""

import os
import sys
from pathlib import Path

import pytest
from test_cli import TESTS, attnspec, judged

from attnspec.backends import BackendError, load
from attnspec.conformance.verdict import read

#: A part of the suite that asks for values, for a refusal and for another shape.
PART = ["-k", "test_golden and notation", "--time-limit", "5"]


#: Function to what becomes of it: a status that some test has, and what its message says.
FUNCTIONS = {
    "lists": ("fail", "output: expected an array of numpy, got list"),
    "nothing": ("fail", "output: expected an array of numpy, got NoneType"),
    "transposed_output": ("fail", "output: got shape"),
    "nan_everywhere": ("fail", "differ in being NaN or infinite"),
    "mutating": ("fail", "got changed by the call, expected it as it was"),
    "raising": ("error", "raised RuntimeError: the kernel did not launch"),
    "raising_at_random": ("error", "raised RuntimeError: not this time"),
    "exiting": ("error", "raised SystemExit: 3"),
    "crashing_at_times": ("error", "was killed by SIGSEGV"),
    "printing_megabytes": ("pass", ""),
}
#: What cannot be judged at all, to what is said of it.
UNUSABLE = {
    "badly:misnamed": "expected query, key, value, got query, keys, values",
    "program:./absent": "expected ./absent to be a program that can be run",
    "badly:no_function": "expected a function or a Backend, got int",
    "badly:absent": "expected absent in badly, got no such name",
    "badly_written:f": "importing badly_written raised SyntaxError",
    "badly:f?array=absent_library": "array: expected absent_library to be installed, got none",
    "program:./not_executable": "expected ./not_executable to be a program that can be run",
    "offline:absent": "manifest.json to be a file of text",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """All of them judged in one run, good ones and bad ones side by side."""
    folder = tmp_path_factory.mktemp("bad")
    source = Path(TESTS, "badly.py").read_text()
    (folder / "badly.py").write_text(
        source.replace("import broken", f"sys.path.append({TESTS!r})\nimport broken")
    )
    (folder / "badly_written.py").write_text("def f(:\n")
    (folder / "not_executable").write_text("#!/bin/sh\n")
    results = folder / "results.jsonl"
    names = [*(f"badly:{name}" for name in FUNCTIONS), *list(UNUSABLE)[:2]]
    return folder, attnspec("check", *names, "--results", results, *PART, cwd=folder), read([results])


def test_the_run_ends_and_says_so_in_a_page_or_two(ran):
    _, run, _ = ran
    assert run.returncode == 1
    assert "Traceback" not in run.stdout + run.stderr
    assert len(run.stdout) < 200_000, "what a function prints is not repeated"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function(name, ran):
    _, _, results = ran
    status, message = FUNCTIONS[name]
    own = [verdict for verdict in results.verdicts if verdict.backend == f"badly:{name}"]
    found = [verdict.message for verdict in own if verdict.status == status]
    assert any(message in text for text in found)
    tests = [verdict.test.partition("-")[2] for verdict in own]
    good = [v.test.partition("-")[2] for v in results.verdicts if v.backend == "badly:printing_megabytes"]
    assert sorted(tests) == sorted(good), "a verdict on every test, whatever happens"
    if status == "pass":
        assert {verdict.status for verdict in own} <= {"pass", "unsupported", "deviation", "fail"}
    else:
        assert not any(subject.problem for subject in results.subjects if subject.name == f"badly:{name}")


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
            assert f"error: {caught.value}" in run.stdout
            assert not any(verdict.backend == name for verdict in results.verdicts)


def test_a_function_that_raises_at_random_is_told_from_one_that_always_does(tmp_path):
    """Where hypothesis repeats a call that failed, and it does not fail again."""
    _, verdicts = judged("badly:raising_once", "-k", "test_named_data_sets and plain", tmp_path=tmp_path)
    (verdict,) = [verdict for verdict in verdicts if verdict.status == "error"]
    assert verdict.message.startswith("NUM-3: badly:raising_once raised RuntimeError: not this time")
    assert verdict.message.endswith("not every time: the same call went otherwise when it was repeated")


def test_a_function_that_never_returns(tmp_path):
    run, _ = judged("badly:never_returning", *PART[:-1], "1", tmp_path=tmp_path)
    assert run.returncode == 1
    assert "badly:never_returning did not end in 1 s" in run.stdout
    assert "the run was cut off after" in run.stdout


def test_a_program_that_cannot_be_judged_at_all(tmp_path):
    path = os.path.join(TESTS, "misbehaving.py")
    run = attnspec("check", "--program", f"{sys.executable} -S {path} ends_at_once", *PART, cwd=tmp_path)
    assert run.returncode == 1
    assert "error: backend program:" in run.stdout
    assert "hello: expected" in run.stdout


def test_a_program_that_answers_badly_gets_a_verdict_on_every_test(tmp_path):
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
    run = attnspec("check", *words, *PART, cwd=tmp_path)
    assert run.returncode == 1
    found = read([results])
    assert not found.subjects[0].problem
    assert {verdict.status for verdict in found.verdicts} == {"error", "unsupported"}
    assert sum(verdict.status == "error" for verdict in found.verdicts) > 3


def test_the_options_of_the_command_line_are_refused_in_one_line(tmp_path):
    for words, message in [
        (["--case", "no-such-case"], "case: got 'no-such-case'"),
        (["-k", "MASK-99"], "rule: got 'MASK-99'"),
        (["--known-failures", "absent.toml"], "known failures: expected absent.toml"),
        (["--dtype", "float31"], "dtype: expected some of float16"),
        (["--junit", "badly.py/x"], "badly.py"),
    ]:
        (tmp_path / "badly.py").write_text("")
        run = attnspec("check", "numpy-portable", *words, cwd=tmp_path)
        assert run.returncode != 0, words
        assert message in run.stderr + run.stdout, (words, run.stdout, run.stderr)
        assert "Traceback" not in run.stderr + run.stdout, words
