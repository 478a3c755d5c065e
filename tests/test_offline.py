"""Calls as files: the verdicts are those of one process, and faults in folders are reported."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests_support import TESTS, attnspec, quick_suite, whole_suite

from attnspec.backends import BackendError, load
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.results_file import read
from attnspec.conformance.run.offline import export_calls
from attnspec.conformance.suite import find

EXAMPLES = Path(TESTS).parent / "examples"


def answer(folder, name):
    """Compute the calls in a folder elsewhere: in another process, over files alone."""
    command = [sys.executable, "-m", "attnspec.backends.program.serve", name]
    environment = {"PYTHONPATH": TESTS}
    with (folder / "calls.jsonl").open() as calls, (folder / "answers.jsonl").open("w") as answers:
        subprocess.run(command, stdin=calls, stdout=answers, cwd=folder, env=environment, check=True)


def chosen(*chapters):
    """Cases and relations of some chapters, in one dtype and beside no other."""
    mixed = ("mixed dtypes", "another dtype")
    found = [item for item in quick_suite() if item.chapter in chapters and item.dtype == "float32"]
    return [item for item in found if not any(word in item.group for word in mixed) and not in_half(item)]


def in_half(item):
    """Whether an argument, such as a table of frequencies, is in half precision beside float32."""
    calls = getattr(item, "calls", (item,))
    return any(getattr(x, "dtype", None) == "float16" for call in calls for x in call.arguments.values())


@pytest.mark.parametrize("name", ["numpy-portable", "broken:inverted_mask"])
@pytest.mark.sample(1)
def test_three_routes_agree_case_by_case(name, tmp_path, monkeypatch):
    """In this process, as a program, and over files."""
    monkeypatch.chdir(TESTS)
    cases = chosen("scores", "masking", "errors")[::6]
    done = export_calls(cases, tmp_path / "calls", dtypes=("float32",))
    assert done.cases + done.left_out == len(cases)
    answer(tmp_path / "calls", name)
    routes = [
        load(name),
        load(f"program:{sys.executable} -m attnspec.backends.program.serve {name}"),
        load(f"offline:{tmp_path / 'calls'}"),
    ]
    shown = [item for item in cases if not isinstance(item, Relation) or not item.live]
    here, piped, filed = (
        {(item.name, (verdict := judge(backend, item)).status, verdict.rule) for item in shown}
        for backend in routes
    )
    assert here == piped == filed
    assert "pass" in {status for _, status, _ in here}
    assert any(isinstance(item, Relation) for item in shown)
    if name != "numpy-portable":
        assert {"fail", "unsupported"} <= {status for _, status, _ in here}


def test_what_files_cannot_show_is_left_out_and_unsupported(tmp_path):
    repeated, strided = (
        find("errors-earlier-calls-scale-1-float32"),
        find("numerics-strides-sliced-and-key-1-float32"),
    )
    plain = find("softmax-002-float32")
    done = export_calls([repeated, strided, plain], tmp_path / "calls")
    assert (done.cases, done.left_out) == (1, 2)
    answer(tmp_path / "calls", "numpy-portable")
    backend = load(f"offline:{tmp_path / 'calls'}")
    statuses = [judge(backend, item).status for item in (repeated, strided, plain)]
    assert statuses == ["unsupported", "unsupported", "pass"]
    case = find("softmax-002-float32")
    once = export_calls([case], tmp_path / "once")
    assert export_calls([case, case], tmp_path / "twice").calls == once.calls


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with the calls of two cases, and right answers."""
    folder = tmp_path_factory.mktemp("offline") / "calls"
    two = [find(f"{name}-float32") for name in ("masking-empty-last", "softmax-lse-equal")]
    export_calls(two, folder, dtypes=("float32",))
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
    return judge(load(f"offline:{folder}"), find(f"{case}-float32"))


def test_the_answers_as_they_are(folder):
    (folder / "calls" / "a file that nobody asked for").write_text("x")
    (folder / "calls" / "0001" / "extra.bin").write_text("x")
    assert said(folder).status == "pass"
    rewrite(folder, [lines_of(folder)[0], *lines_of(folder)[:0:-1]])
    assert said(folder).status == "pass", "in any order"


def delete(name):
    return lambda folder: (folder / name).unlink()


def write(name, text):
    return lambda folder: (folder / name).write_text(text)


def changed(name, thing):
    def harm(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | {name: thing}))

    return harm


def linked(folder):
    """Put the answer behind a link out of the folder."""
    path = folder / "calls" / "0001" / "output.bin"
    path.rename(folder.parent / "elsewhere.bin")
    path.symlink_to(folder.parent / "elsewhere.bin")


def elsewhere(folder):
    """Let the manifest name a folder beside this one."""
    shutil.copytree(folder / "calls" / "0001", folder.parent / "0001")
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("calls/0001", "../0001"))


def enormous(folder):
    """Answer with a file that takes no place on the disk and declares what it holds."""
    with (folder / "calls" / "0001" / "output.bin").open("r+b") as file:
        file.truncate(2**40)
    first, line, *rest = lines_of(folder)
    answer = json.loads(line)
    answer["tensors"]["output"]["shape"] = [2**20, 2**18]
    rewrite(folder, [first, json.dumps(answer), *rest])


def replaced(name, make):
    """Put something else than a file in the place of an array."""

    def harm(folder):
        path = folder / "calls" / "0001" / name
        path.unlink()
        make(path)

    return harm


NOT_OURS = "manifest.json: expected the file that attnspec export wrote"


def answered(*places):
    """Write the lines of the answers at these places, or these lines."""

    def harm(folder):
        lines = lines_of(folder)
        rewrite(folder, [lines[place] if isinstance(place, int) else place for place in places])

    return harm


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (delete("manifest.json"), "manifest.json to be a text file, got .*No such file"),
        (write("manifest.json", "{}"), NOT_OURS),
        (changed("calls", 3), NOT_OURS),
        (changed("calls", [{"id": 1}]), NOT_OURS),
        (changed("cases", [["a"]]), NOT_OURS),
        (changed("operations", ["attention"]), NOT_OURS),
        (write("manifest.json", "[" * 9999), NOT_OURS),
        (write("manifest.json", '{"attnspec'), NOT_OURS),
        (changed("attnspec", "1999.1.1"), "expected calls exported by attnspec 20.*, got 1999.1.1"),
        (delete("answers.jsonl"), "answers.jsonl to be a text file, got .*No such file"),
        (write("answers.jsonl", ""), "hello: expected a JSON object, got ''"),
        (lambda folder: rewrite(folder, lines_of(folder)[1:]), "hello: protocol: expected 1, got None"),
        (answered(0, '{"id": 999}'), r"line \d: expected the id of a call in manifest.json, got 999"),
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
        (answered(0), r"gave no answer to call 1 \(calls/0001\)$"),
        (answered(0, '{"id": 1, "status'), "no answer to call 1 .*; line 2 of answers.jsonl is not"),
        (lambda folder: rewrite(folder, [*lines_of(folder), lines_of(folder)[1]]), "two answers to call 1"),
        (delete("calls/0001/output.bin"), "output.bin: expected a readable file"),
        (write("calls/0001/output.bin", "x"), "output.bin: expected 24 bytes .*, got 1"),
        (linked, "call 1: output.bin: expected a file in the folder, got a link out of it"),
        (elsewhere, "call 1: .*: expected a file in the folder, got a link out of it"),
        (enormous, "call 1: output.bin: expected at most 192 bytes, got 1099511627776"),
        (replaced("output.bin", os.mkfifo), "call 1: output.bin: expected a file, got something else"),
        (replaced("query.bin", os.mkfifo), "call 1: query.bin: expected a file, got something else"),
        (replaced("output.bin", Path.mkdir), "call 1: output.bin: expected a file, got something else"),
        (delete("calls/0001/query.bin"), "call 1: expected its arrays as exported, got .*No such file"),
        (write("calls/0001/query.bin", "x"), "call 1: expected its arrays as exported, got other bytes"),
    ],
)
def test_a_call_that_cannot_be_judged_leaves_the_others(harm, message, folder):
    before = lines_of(folder)
    harm(folder)
    verdict = said(folder)
    assert (verdict.status, verdict.rule) == ("error", "MASK-6")
    assert re.search(message, verdict.reason)
    if len(lines_of(folder)) >= len(before):
        assert said(folder, "softmax-lse-equal").status == "pass"


def test_a_case_that_was_not_exported_is_unsupported(folder):
    verdict = said(folder, "masking-empty-middle")
    assert (verdict.status, verdict.rule) == ("unsupported", "")
    assert verdict.reason.endswith("has no answers to masking-empty-middle")


def test_a_call_of_an_exported_case_that_is_missing_is_an_error(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["calls"] = [call for call in manifest["calls"] if not call["case"].startswith("masking")]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    kept = {call["id"] for call in manifest["calls"]}
    lines = lines_of(folder)
    rewrite(folder, [lines[0], *(line for line in lines[1:] if json.loads(line)["id"] in kept)])
    verdict = said(folder)
    assert verdict.status == "error"
    assert "was not asked this call: it is not in manifest.json" in verdict.reason


@pytest.mark.exhaustive
def test_export_and_judge_from_the_command_line(tmp_path):
    calls = tmp_path / "calls"
    words = ["--dtype", "float32", "--chapter", "masking", "--quick"]
    run = attnspec("export", calls, *words, status=0)
    assert "they judge " in run.stdout
    answer(calls, "broken:inverted_mask")
    results = tmp_path / "offline.jsonl"
    run = attnspec("judge", calls, "--results", results, status=1)
    assert "MASK-1 A boolean mask says where to attend" in run.stdout
    there = {verdict.case: verdict for verdict in read([results]).verdicts}
    assert any(verdict.group for verdict in there.values() if verdict.status == "pass"), "not golden alone"
    sys.path.insert(0, TESTS)
    backend = load("broken:inverted_mask")
    here = [judge(backend, item) for item in chosen("masking")]
    assert len(here) > 50
    for verdict in here:
        other = there[verdict.case]
        assert (verdict.status, verdict.rule, verdict.rules) == (other.status, other.rule, other.rules)
    run = attnspec("export", calls, *words, status=2)
    assert "Error: folder: expected" in run.stderr
    run = attnspec("export", tmp_path / "x", "--dtype", "float31")
    assert run.stderr.startswith("Error: dtype: expected some of float16")


def test_an_example_that_speaks_the_protocol_works_over_files_as_it_is(tmp_path):
    command = [sys.executable, "-S", EXAMPLES / "attention.py"]
    hello = tmp_path / "hello.json"
    asked = '{"do": "hello", "protocol": 1}\n'
    hello.write_text(subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout)
    calls = tmp_path / "calls"
    words = ["--hello", hello, "--dtype", "float16", "--chapter", "softmax"]
    attnspec("export", calls, *words, status=0)
    with (calls / "calls.jsonl").open() as given, (calls / "answers.jsonl").open("w") as answers:
        subprocess.run(command, stdin=given, stdout=answers, cwd=calls, check=True)
    backend = load(f"offline:{calls}")
    found = [item for item in whole_suite() if item.chapter == "softmax" and item.dtype == "float16"]
    verdicts = [judge(backend, item) for item in found]
    assert "pass" in {verdict.status for verdict in verdicts}
    assert not [verdict.case for verdict in verdicts if verdict.status not in ("pass", "unsupported")]


@pytest.mark.parametrize("chapter", ["softmax", "notation"])
def test_the_vectors_with_a_json_parser_alone(chapter):
    if shutil.which("node") is None:
        pytest.skip("no Node (node) is installed")
    path = attnspec("vectors", "path").stdout.strip()
    command = ["node", EXAMPLES / "vectors.mjs", f"{path}/{chapter}.json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout.split()[-2]) > 2
