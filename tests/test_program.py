"""Programs as backends: each kind of misbehaviour is reported, and the three examples are judged."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests_support import attnspec

from attnspec import OPERATIONS, cases, conformance
from attnspec.backends import BackendError, Broken, Unsupported, load
from attnspec.backends.program import program
from attnspec.backends.program.process import Process
from attnspec.backends.program.protocol import HELLO, STOP, parse_handshake, read_array, read_call, write_call
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.judge.failure import Raised
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.results_file import read

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
MISBEHAVING = f"{sys.executable} -S {Path(__file__).with_name('misbehaving.py')}"
ONE = {name: np.ones((2, 3)) for name in ("query", "key", "value")}


def misbehaving(mode, limit=20.0):
    return load(f"program:{MISBEHAVING} {mode}?call_limit={limit}")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("crashes", r"was killed by SIGSEGV before it .*; its standard error ends:\n    about to crash"),
        ("exits", "ended with status 3 before it answered"),
        ("answers_in_garbage", "answered with invalid JSON: got 'no JSON at all'"),
        ("answers_in_bytes", r"answered with invalid UTF-8: got '\\xff\\xfe'"),
        ("answers_without_end", 'an incomplete answer: got \'{"id": 1, "sta\' without a newline, and ended'),
        ("answers_in_megabytes", "gave an incomplete answer: got a line longer than 1048576 bytes"),
        ("answers_out_of_order", r"answered out of order: expected an answer to call \d, got \d"),
        ("answers_in_riddles", "an invalid answer: expected status ok with tensors, refused or unsupported"),
        ("names_no_output", "gave an incomplete answer: expected output, got no output"),
        ("writes_no_output", r"output.bin: expected a readable file, got \[Errno 2\]"),
        ("writes_half_the_output", r"output.bin: expected 48 bytes for float64 of shape \(2, 3\), got 24"),
        ("writes_too_much", r"output.bin: expected 48 bytes for float64 of shape \(2, 3\), got 96"),
        ("has_no_such_dtype", 'output.bin: expected a dtype and a shape, got \'{"dtype": "float31"'),
        ("has_a_negative_shape", "output.bin: expected a dtype and a shape"),
    ],
)
def test_what_a_program_does_wrong_is_told_apart(mode, message):
    backend = misbehaving(mode)
    for _ in range(2):  # started anew after the first
        with pytest.raises(Broken, match=message):
            call(backend, "attention", ONE)


def test_a_program_that_hangs_is_waited_for_once_for_each_call_and_then_given_up(monkeypatch):
    backend = misbehaving("hangs", 0.1)
    for _ in range(2):
        with pytest.raises(Broken, match=r"gave no answer in 0\.1 s"):
            call(backend, "attention", ONE)
    with monkeypatch.context() as patched:
        patched.setattr(Process, "receive", None)  # the same call is not made again
        with pytest.raises(Broken, match="gave no answer"):
            call(backend, "attention", ONE)
    for size in range(5):
        with pytest.raises(Broken, match=r"gave no answer|not called again"):
            call(backend, "attention", {name: np.ones((2, 4 + size)) for name in ONE})
    with pytest.raises(Broken, match=r"not called again: 5 calls had no answer in 0\.1 s"):
        call(backend, "attention", {name: np.ones((1, 1)) for name in ONE})


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("ends_at_once", "hello: expected an answer, but the program ended with status 4 before it answered"),
        ("greets_wrongly", r"hello: expected a JSON object, got '\[\"hello\"\]'"),
        ("speaks_another_version", "hello: protocol: expected 1, got 2"),
        ("has_no_dtypes", r"hello: dtypes: expected some of float16, .*, got \['float31'\]"),
        ("has_no_operations", "operations: expected an object with attention or other operations, got"),
        ("has_an_option", r"hello: attention: expected a list of some of scale, .*, got 'scale'"),
        ("has_an_unknown_dialect", "dialect: MASK-6: expected nan or uniform, got 'purple'"),
        ("does_not_greet", r"hello: expected an answer, but the program gave no answer in 0\.1 s"),
    ],
)
def test_a_program_that_cannot_be_used_is_refused_in_one_line(mode, message, monkeypatch):
    if mode == "does_not_greet":
        monkeypatch.setattr(program, "START_LIMIT", 0.1)
    with pytest.raises(BackendError, match=message) as caught:
        misbehaving(mode)
    assert len(str(caught.value).splitlines()) == 1


def test_an_argument_that_this_version_does_not_have_is_ignored_and_listed():
    backend = misbehaving("has_unknown_options")
    assert backend.has("attention", "scale")
    assert not backend.has("attention", "attn_mask")
    assert backend.notes == ("ignored, unknown in this version: attn_mask of attention",)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("./absent", r"expected \./absent to be an executable program, got .*No such file"),
        (str(Path(__file__)), r"to be an executable program, got .*Permission denied"),
        ("", "expected a command, got none"),
        ("'x", "expected a command, got"),
    ],
)
def test_what_is_no_program(command, message):
    with pytest.raises(BackendError, match=message):
        load(f"program:{command}")


@pytest.mark.parametrize("mode", ["is_noisy", "writes_over_its_input", "does_well"])
def test_what_is_no_fault(mode):
    for _ in range(2):
        assert call(misbehaving(mode), "attention", ONE)["output"].tolist() == np.zeros((2, 3)).tolist()


def test_an_answer_too_many_is_found_at_the_next_call():
    backend = misbehaving("answers_twice")
    call(backend, "attention", ONE)
    with pytest.raises(Broken, match="out of order: expected an answer to call 2, got 1"):
        call(backend, "attention", ONE)
    call(backend, "attention", ONE)


def test_what_a_program_refuses_or_does_not_offer(tmp_path):
    with pytest.raises(Raised, match="no"):
        call(misbehaving("refuses"), "attention", ONE)
    with pytest.raises(Unsupported, match="not this"):
        call(misbehaving("declines"), "attention", ONE)
    with pytest.raises(Unsupported, match="scale: expected a value that JSON can represent, got complex"):
        write_call(1, "attention", {"scale": 1j}, tmp_path, ".")
    with pytest.raises(BackendError, match="expected only the options call_limit=SECONDS and dtype, got"):
        load("program:cat?call_limit=soon")


def test_a_program_that_does_not_stop_is_ended(monkeypatch):
    from attnspec.backends.program import process

    monkeypatch.setattr(process, "_STOP_LIMIT", 0.1)
    stopped = program.Program("p", [*MISBEHAVING.split(), "does_not_stop"], 1.0).close()
    assert stopped == "did not end within 0.1 s after stop"
    monkeypatch.undo()
    assert program.Program("p", [*MISBEHAVING.split(), "does_well"], 1.0).close() == ""


def test_a_call_comes_out_as_it_went_in(tmp_path):
    """Every dtype, byte order, stride and number without a spelling in JSON."""
    arguments = {
        "query": np.arange(6, dtype=">f4").reshape(2, 3),
        "key": np.arange(12, dtype=ml_dtypes.bfloat16).reshape(2, 6)[:, ::2],
        "mask": np.array(True),
        "query_offset": np.int64(3),
        "window": (2, None),
        "scale": float("-inf"),
        "is_causal": np.True_,
    }
    line = write_call(7, "attention", arguments, tmp_path, ".")
    json.loads(line)
    number, operation, found, folder = read_call(line, tmp_path)
    assert (number, operation, folder) == (7, "attention", tmp_path)
    assert found["window"] == (2, None)
    assert found["scale"] == -np.inf
    assert found["query_offset"] == 3
    assert found["is_causal"] is True
    assert set(found) == set(arguments)
    for name in ("query", "key", "mask"):
        assert np.array_equal(found[name], arguments[name])
        assert found[name].dtype.name == arguments[name].dtype.name
    assert (tmp_path / "query.bin").read_bytes() == np.arange(6, dtype="<f4").tobytes()


def test_a_folder_of_any_name(tmp_path, monkeypatch):
    # It is written as it is, so that a search for its end finds it.
    folder = tmp_path / "ünder a space"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert call(misbehaving("does_well"), "attention", ONE)["output"].shape == (2, 3)
    assert f'"folder": "{folder}"' in write_call(1, "attention", {}, folder, str(folder))
    # A search for the name in quotes is parser enough: so the page says.
    for case in cases():
        line = write_call(1, case.operation, case.arguments, tmp_path, "folder")
        for name in ("id", "folder", "want", "options", "tensors", *case.arguments):
            assert line.count(f'"{name}": ') == 1
        assert line.isascii()
        assert len(line) < 65536


def test_the_messages_on_the_page_are_messages():
    page = (Path(conformance.__file__).parent / "protocol.md").read_text()
    messages = [json.loads(text.partition("\n```")[0]) for text in page.split("```json\n")[1:]]
    assert messages[0] == json.loads(HELLO)
    assert messages[-1] == json.loads(STOP)
    assert parse_handshake("p", json.dumps(messages[1])).dtypes == ("float32", "bfloat16")
    call, done, refused, declined = messages[2:6]
    arrays = {name: np.zeros(x["shape"], x["dtype"]) for name, x in call["tensors"].items()}
    assert call["options"].keys() <= set(OPERATIONS["attention"].options)
    assert set(arrays) == {"query", "key", "value"}
    assert done["id"] == refused["id"] == declined["id"] == call["id"]
    assert list(done["tensors"]) == call["want"]


def command_of(example, folder):
    """The command by which an example runs; skips where what it needs is not there."""
    if example.suffix == ".c":
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler (cc) is installed")
        subprocess.run(
            [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", folder / "attention", example, "-lm"],
            check=True,
        )
        return str(folder / "attention")
    if example.suffix == ".mjs":
        if shutil.which("node") is None:
            pytest.skip("no Node (node) is installed")
        return f"node {example}"
    return f"{sys.executable} -S -E {example}"  # without site-packages: without attnspec and NumPy


@pytest.mark.parametrize("name", ["attention.c", "attention.mjs", "attention.py"])
def test_an_example_conforms(name, tmp_path):
    example = EXAMPLES / name
    assert len(example.read_text().splitlines()) < 200
    backend = load(f"program:{command_of(example, tmp_path)}")
    statuses = []
    for case in cases():
        # Some of those of attention, in all dtypes: the whole suite takes a minute.
        if case.operation == "attention" and all(backend.has("attention", name) for name in case.arguments):
            statuses += [judge(backend, one).status for one in in_each(case, backend.dtypes)]
    assert set(statuses) - {"unsupported"} == {"pass"}  # what is only about an lse is not asked of all
    assert statuses.count("pass") > 150


def test_a_program_is_judged_from_the_command_line_and_the_run_goes_on_after_crashes(tmp_path):
    source = (EXAMPLES / "attention.py").read_text()
    assert "    print(json" in source
    crashing = tmp_path / "crashing.py"
    exits = "    if message.get('options', {}).get('is_causal'):\n        sys.exit('no causal today')\n"
    crashing.write_text(source.replace("    print(json", f"{exits}    print(json"))
    results = tmp_path / "results.jsonl"
    words = ["check", "--program", f"{sys.executable} -S crashing.py", "--quick"]
    run = attnspec(*words, "-k", "notation-two or causal-1", "--results", results, cwd=tmp_path, status=1)
    found = read([results])
    assert not found.subjects[0].problem
    wrong = [verdict for verdict in found.verdicts if verdict.status == "error"]
    assert all("ended with status 1 before it answered" in verdict_text(verdict) for verdict in wrong)
    assert all("no causal today" in verdict_text(verdict) for verdict in wrong)
    assert len(wrong) > 1
    assert sum(verdict.status == "pass" for verdict in found.verdicts) > 1
    assert {verdict.status for verdict in found.verdicts} == {"pass", "error", "unsupported"}
    assert "ended with status 1" in run.stdout


def test_smoke():
    run = attnspec("smoke", "--program", f"{MISBEHAVING} does_well", status=0)
    assert "ok    what ignores its mask fails as a program" in run.stdout
    assert "ok    a call in float32 gave output [[0.0, 0.0], [0.0, 0.0]]" in run.stdout
    run = attnspec("smoke", "--program", f"{MISBEHAVING} exits", status=1)
    assert "WRONG a call in float32: ended with status 3" in run.stdout


def test_a_backend_served_as_a_program_gives_the_same_bits(tmp_path):
    here = load("numpy-portable")
    served = load(f"program:{sys.executable} -m attnspec.backends.program.serve numpy-portable")
    assert served.dtypes == here.dtypes
    for case in cases()[::7]:
        arguments = in_each(case)[0].arguments
        if case.misuse is not None:
            with pytest.raises(Raised):
                call(served, case.operation, arguments)
            continue
        mine, theirs = (call(backend, case.operation, arguments) for backend in (here, served))
        for name in mine.keys() | theirs.keys():
            assert mine[name].tobytes() == theirs[name].tobytes()


def test_calls_are_dumped_for_a_debugger(tmp_path):
    folder, program = tmp_path / "a folder", EXAMPLES / "attention.py"
    case = ("dump", "--case", "masking-empty-last-float32")
    run = attnspec(*case, "--program", f"{sys.executable} {program}", folder, status=0)
    assert run.stdout.startswith(f"1 calls in {folder}/calls.jsonl")
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("run: ")]
    fed = subprocess.run(line.removeprefix("run: "), shell=True, capture_output=True, text=True, check=True)
    assert json.loads(fed.stdout.splitlines()[1])["id"] == 1, "hello is answered, and then the call"
    assert "gdb -ex 'run < calls.jsonl' --args" in run.stdout
    again = attnspec(*case, folder)
    assert (again.returncode, "to be empty" in again.stderr) == (2, True)
    run = attnspec("dump", "--case", "errors-earlier-calls-mask-1-float32", tmp_path / "calls")
    assert run.stdout.startswith("3 calls in "), "the fourth is the first once more"


def test_a_program_is_judged_in_the_dtypes_that_are_asked_for():
    program = f"program:{MISBEHAVING} does_well"
    assert load(f"{program}?call_limit=5&dtype=float32").dtypes == ("float32",)
    for dtype in ("bfloat16", "float31"):
        with pytest.raises(BackendError, match=rf"dtype: expected some of .*, got {dtype}"):
            load(f"{program}?dtype={dtype}")


@pytest.fixture
def calls():
    """A program, and its folder of calls. It is open, so that its number is not given to a new one."""
    made = program.Program("p", [sys.executable, "-S", str(EXAMPLES / "attention.py")], 20.0)
    held = os.open(made._folder, os.O_RDONLY)
    yield made, os.fstat(held).st_ino
    os.close(held)
    made.close()


def test_the_folder_of_the_calls_is_emptied_and_made_anew(calls, tmp_path):
    # A confined program is permitted to use the folder that was there when it started.
    made, number = calls
    folder = made._folder
    (folder / "result").write_text("of an earlier call")
    (folder / "inner").mkdir()
    (folder / "inner" / "result").write_text("of an earlier call")
    (folder / "link").symlink_to(tmp_path)
    made.run("attention", ONE)
    assert folder.stat().st_ino == number
    assert not any((folder / name).exists() for name in ("result", "inner", "link"))
    assert tmp_path.is_dir()
    made, _ = calls
    shutil.rmtree(made._folder)
    made._folder.symlink_to(tmp_path)
    made.run("attention", ONE)
    assert not made._folder.is_symlink()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_an_empty_result_is_read_from_a_plain_file_only(make, tmp_path):
    """A pipe and a device have no bytes either, and reading them would not end."""
    make(tmp_path / "output.bin")
    with pytest.raises(Broken, match=r"output\.bin: expected a readable file, got .*regular file"):
        read_array(tmp_path / "output.bin", {"dtype": "float64", "shape": [0, 3]})
