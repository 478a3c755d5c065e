"""Calls as files: the same verdicts as in one process, and folders in which something is wrong."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import TESTS, attnspec

from attnspec import cases, find_case
from attnspec.backends import BackendError, Broken, Unsupported, load
from attnspec.conformance.judge.dtypes import dtypes_of
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.judge import judge_case
from attnspec.conformance.run.offline import export_calls
from attnspec.conformance.verdict import read

EXAMPLES = Path(TESTS).parent / "examples"


def answer(folder, name):
    """Compute the calls in a folder elsewhere: in another process, over files alone."""
    command = [sys.executable, "-m", "attnspec.conformance.run.serve", name]
    environment = {"PYTHONPATH": TESTS}
    with (folder / "calls.jsonl").open() as calls, (folder / "answers.jsonl").open("w") as answers:
        subprocess.run(command, stdin=calls, stdout=answers, cwd=folder, env=environment, check=True)


def verdict(backend, case, dtype):
    """What the judge says of a golden vector: the status, and the rule of a failure."""
    try:
        return judge_case(backend, case, dtype).status, ""
    except Failure as failure:
        return "fail", failure.rule
    except Unsupported:
        return "unsupported", ""
    except Raised:
        return "error", ""


@pytest.mark.parametrize("name", ["numpy-portable", "broken:whole_matrix", "broken:inverted_mask"])
def test_three_routes_agree_case_by_case(name, tmp_path, monkeypatch):
    """In this process, as a program, and over files."""
    monkeypatch.chdir(TESTS)
    chapters = ("scores", "masking", "errors")
    chosen = [case for case in cases() if case.chapter in chapters and "float32" in dtypes_of(case)][::2]
    export_calls(chosen, tmp_path / "calls", dtypes=("float32",))
    answer(tmp_path / "calls", name)
    routes = [
        load(name),
        load(f"program:{sys.executable} -m attnspec.conformance.run.serve {name}"),
        load(f"offline:{tmp_path / 'calls'}"),
    ]
    here, piped, filed = (
        {case.id: verdict(backend, case, "float32") for case in chosen} for backend in routes
    )
    assert here == piped == filed
    assert "pass" in {status for status, _ in here.values()}
    if name != "numpy-portable":
        assert {"fail", "unsupported"} <= {status for status, _ in here.values()}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with the calls of two cases, and right answers."""
    folder = tmp_path_factory.mktemp("offline") / "calls"
    export_calls(
        [find_case("masking-empty-last"), find_case("softmax-lse-equal")], folder, dtypes=("float32",)
    )
    answer(folder, "numpy-portable")
    return folder


@pytest.fixture
def folder(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "calls")


def lines_of(folder):
    return (folder / "answers.jsonl").read_text().splitlines()


def rewrite(folder, lines):
    (folder / "answers.jsonl").write_text("\n".join(lines) + "\n")


def said(folder, case="masking-empty-last"):
    return judge_case(load(f"offline:{folder}"), find_case(case), "float32").status


def test_the_answers_as_they_are(folder):
    (folder / "calls" / "a file that nobody asked for").write_text("x")
    (folder / "calls" / "0001" / "extra.bin").write_text("x")
    assert said(folder) == "pass"
    rewrite(folder, [lines_of(folder)[0], *lines_of(folder)[:0:-1]])
    assert said(folder) == "pass", "in any order"


def delete(name):
    return lambda folder: (folder / name).unlink()


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def version(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"attnspec": "1999.1.1"}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (delete("manifest.json"), "manifest.json to be a file of text, got .*No such file"),
        (write("manifest.json", "{}"), "manifest.json: expected it as attnspec export wrote it"),
        (write("manifest.json", '{"attnspec'), "manifest.json: expected it as attnspec export wrote it"),
        (version, "expected calls exported by attnspec 20.*, got 1999.1.1"),
        (delete("answers.jsonl"), "answers.jsonl to be a file of text, got .*No such file"),
        (write("answers.jsonl", ""), "hello: expected a JSON object, got ''"),
        (lambda folder: rewrite(folder, lines_of(folder)[1:]), "hello: protocol: expected 1, got None"),
        (
            lambda folder: rewrite(folder, [*lines_of(folder), '{"id": 999}']),
            r"answers.jsonl, line \d: got an answer to call 999, expected calls of manifest.json alone",
        ),
    ],
)
def test_a_folder_that_cannot_be_judged(harm, message, folder):
    harm(folder)
    with pytest.raises(BackendError, match=message) as caught:
        load(f"offline:{folder}")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: rewrite(folder, lines_of(folder)[:1]), r"gave no answer to call 1 \(calls/0001\)$"),
        (
            lambda folder: rewrite(folder, [lines_of(folder)[0], lines_of(folder)[1][:20]]),
            "gave no answer to call 1 .*; line 2 of answers.jsonl is no answer",
        ),
        (
            lambda folder: rewrite(folder, [*lines_of(folder), lines_of(folder)[1]]),
            r"gave two answers to call 1, the second in line \d",
        ),
        (delete("calls/0001/output.bin"), "output.bin: expected a file that can be read"),
        (write("calls/0001/output.bin", "x"), "output.bin: expected 24 bytes .*, got 1"),
        (delete("calls/0001/query.bin"), "call 1: expected its arrays as exported, got .*No such file"),
        (write("calls/0001/query.bin", "x"), "call 1: expected its arrays as exported, got other bytes"),
    ],
)
def test_a_call_that_cannot_be_judged_leaves_the_others(harm, message, folder):
    before = lines_of(folder)
    harm(folder)
    with pytest.raises(Broken, match=message):
        said(folder)
    if len(lines_of(folder)) >= len(before):
        assert said(folder, "softmax-lse-equal") == "pass"


def test_a_call_that_was_not_exported(folder):
    with pytest.raises(Broken, match=r"was not asked this call: it is not in manifest.json"):
        said(folder, "masking-empty-middle")


def test_export_and_judge_from_the_command_line(tmp_path):
    calls = tmp_path / "calls"
    words = ["--dtype", "float32", "--chapter", "masking", "--chapter", "scores"]
    run = attnspec("export", calls, *words)
    assert run.returncode == 0, run.stderr
    answer(calls, "broken:inverted_mask")
    results = tmp_path / "offline.jsonl"
    run = attnspec("judge", calls, "--results", results)
    assert run.returncode == 1
    assert "MASK-1 A boolean mask says where to attend" in run.stdout
    there = {entry.test.partition("-masking")[2]: entry for entry in read([results]).verdicts}
    results = tmp_path / "here.jsonl"
    attnspec(
        "check", "broken:inverted_mask", "-k", "test_golden and masking and float32", "--results", results
    )
    here = {entry.test.partition("-masking")[2]: entry for entry in read([results]).verdicts}
    assert len(here) > 50
    for name, entry in here.items():
        assert (entry.status, entry.rules) == (there[name].status, there[name].rules), name
    run = attnspec("export", calls, *words)
    assert run.returncode == 1
    assert "Error: folder: expected" in run.stderr
    assert attnspec("export", tmp_path / "x", "--dtype", "float31").stderr.startswith(
        "Error: dtype: got float31"
    )


def test_an_example_that_speaks_the_protocol_works_over_files_as_it_is(tmp_path):
    command = [sys.executable, "-S", EXAMPLES / "attention.py"]
    hello = tmp_path / "hello.json"
    hello.write_text(
        subprocess.run(
            command, input='{"do": "hello", "protocol": 1}\n', capture_output=True, text=True, check=True
        ).stdout
    )
    calls = tmp_path / "calls"
    run = attnspec("export", calls, "--hello", hello, "--dtype", "float16", "--chapter", "softmax")
    assert run.returncode == 0, run.stderr
    with (calls / "calls.jsonl").open() as given, (calls / "answers.jsonl").open("w") as answers:
        subprocess.run(command, stdin=given, stdout=answers, cwd=calls, check=True)
    found = [
        verdict(load(f"offline:{calls}"), case, "float16")[0]
        for case in cases()
        if case.chapter == "softmax" and "float16" in dtypes_of(case)
    ]
    assert "pass" in found
    assert set(found) <= {"pass", "unsupported"}


@pytest.mark.parametrize("chapter", ["softmax", "notation"])
def test_the_vectors_with_a_json_parser_alone(chapter):
    if shutil.which("node") is None:
        pytest.skip("no Node (node) is installed")
    path = attnspec("vectors", "path").stdout.strip()
    command = ["node", EXAMPLES / "vectors.mjs", f"{path}/{chapter}.json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[-2]) > 2
