"""The command line and the suite from outside: verdicts, tables, exit codes, and errors in one line."""

import os
import subprocess
import sys

import pytest

from attnspec.conformance.verdict import read

TESTS = os.path.dirname(__file__)


def attnspec(*words, cwd=TESTS):
    command = [sys.executable, "-m", "attnspec.conformance.cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=900)


def judged(name, *words, tmp_path):
    """Run the suite on one backend: exit code and output, and its verdicts."""
    results = tmp_path / "results.jsonl"
    run = attnspec("check", name, "--results", results, *words)
    return run, read([results]).verdicts


def broken_rules(verdicts):
    return {rule for verdict in verdicts if verdict.status in ("fail", "error") for rule in verdict.rules}


@pytest.mark.parametrize("name", ["numpy", "strict"])
def test_portable_backends_and_the_reference_conform(name, tmp_path):
    run, verdicts = judged(name, tmp_path=tmp_path)
    assert run.returncode == 0, run.stdout
    statuses = {verdict.status for verdict in verdicts}
    assert statuses == (
        {"pass"} if name == "numpy" else {"pass", "unsupported"}
    )  # strict has no half precision
    assert len(verdicts) > 100


def test_nothing_is_left_behind(tmp_path):
    run = attnspec("check", "numpy-portable", "-k", "causal", cwd=tmp_path)
    assert run.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["torch-portable", "torch-sdpa", "torch-mha", "torch-flex", "jax-portable", "jax-nn"]
)
def test_native_backends_conform_or_deviate_as_they_declare(name, tmp_path):
    """In part: `nox -s conformance` has the whole of it, which takes minutes where JAX compiles."""
    part = ["-k", "golden and (softmax or masking-empty)"] if name.startswith("jax") else []
    run, verdicts = judged(name, "--quick", *part, tmp_path=tmp_path)
    assert run.returncode == 0, run.stdout
    deviating = set() if name.endswith("portable") else {"deviation"}
    # Strides that a library does not have, for one, are unsupported.
    assert {v.status for v in verdicts} - {"unsupported"} == {"pass"} | deviating


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("whole_matrix", "SOFT-1"),
        ("no_scale", "SCORE-2"),
        ("inverted_mask", "MASK-1"),
        ("no_shift", "SOFT-2"),
        ("column_softmax", "SOFT-1"),
        ("half", "NUM-3"),
        ("always_float64", "NUM-1"),
        ("transposed_output", "SHAPE-3"),
        ("mutating", "NUM-4"),
        ("accepting", "SHAPE-6"),
        ("lists", "SHAPE-3"),
        ("nan_everywhere", "NUM-3"),
        ("raising", "NUM-3"),
        ("raising", "SHAPE-6"),
        ("exiting", "NUM-3"),
        ("skipping", "NUM-3"),
        ("truncating", "NUM-6"),
    ],
)
def test_a_wrong_implementation_fails_under_the_rule_it_breaks(name, rule, tmp_path):
    run, verdicts = judged(f"broken:{name}", "--rule", rule, tmp_path=tmp_path)
    assert run.returncode == 1
    assert rule in broken_rules(verdicts)


def test_normalising_over_the_whole_matrix_is_told_by_name(tmp_path):
    run, _ = judged("broken:whole_matrix", "-k", "masking-004", tmp_path=tmp_path)
    assert run.returncode == 1
    assert "SOFT-1 Weights are the softmax of each row" in run.stdout
    assert "case masking-004-" in run.stdout
    assert "equals the variant `matrix` of SOFT-1" in run.stdout
    assert "reproduce:" in run.stdout


@pytest.mark.parametrize(
    ("name", "tests", "rule", "message"),
    [
        ("terse", "names_the_argument and window", "ERR-12", "SHOULD not met: ERR-12"),
        ("unrepeatable", "call_repeated", "NUM-9", "SHOULD not met: NUM-9"),
        ("batch_dependent", "entry_alone", "NUM-10", "not shown: NUM-10"),
    ],
)
def test_what_is_no_must_fails_no_run(name, tests, rule, message, tmp_path):
    """Some test that passes is asked too: a backend of which nothing can be said is not good."""
    words = f"({tests}) or has_the_dtype"
    run, verdicts = judged(f"broken:{name}", "-k", words, tmp_path=tmp_path)
    assert run.returncode == 0, run.stdout
    found = [v for v in verdicts if rule in v.rules and v.message.startswith(message)]
    assert found
    assert {v.status for v in found} == {"unsupported" if rule == "NUM-10" else "deviation"}
    row = next(line for line in run.stdout.splitlines() if line.startswith(f"│ {rule} "))
    assert ("not shown 1 of 1" if rule == "NUM-10" else "not met ") in row
    assert (f"broken:{name}: {message}" in run.stdout) == (rule != "NUM-10")


def test_unsupported_is_no_pass(tmp_path):
    _, verdicts = judged("broken:half", "--rule", "MASK-1", tmp_path=tmp_path)
    masked = [v for v in verdicts if "MASK-1" in v.rules]
    assert masked
    assert {v.status for v in masked} == {"unsupported"}
    assert all(v.message for v in masked)


def test_one_backend_that_cannot_be_used_leaves_the_others_their_results(tmp_path):
    results = tmp_path / "results.jsonl"
    run = attnspec("check", "numpy-portable", "failing:attention", "-k", "golden", "--results", results)
    assert run.returncode == 1
    assert "error: backend failing:attention: importing failing raised RuntimeError: no device" in run.stdout
    found = read([results])
    assert {v.status for v in found.verdicts} == {"pass"}
    assert found.subjects[1].problem.startswith("backend failing:attention")


def test_the_printed_reproduction_runs(tmp_path):
    run, _ = judged("broken:no_scale", "--quick", tmp_path=tmp_path)
    snippets = [block.split("\nin test")[0] for block in run.stdout.split("reproduce:\n")[1:]]
    assert any("np.array" in snippet for snippet in snippets), "a generated problem, written out"
    for snippet in (snippets[0], next(s for s in snippets if "np.array" in s)):
        program = "\n".join(line.removeprefix("    ") for line in snippet.splitlines())
        shown = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=TESTS
        )
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.strip()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "torhc"], "Error: backend: got 'torhc', expected a library (numpy, strict, torch, "),
        (["explain", "MASK-99"], "Error: rule: got 'MASK-99', expected an id such as MASK-9"),
        (["rules", "--chapter", "poetry"], "Error: chapter: got 'poetry', expected one of notation"),
        (["table", "broken.py"], "Error: results: broken.py is no file of results"),
        (["table", "absent.json"], "Error: Invalid value for 'FILES...'"),
        (["vectors", "write", "absent"], "Error: Invalid value for 'FOLDER'"),
        (
            ["vectors", "export", "out", "--format", "xml"],
            "Error: format: got 'xml', expected one of safetensors, npz",
        ),
    ],
)
def test_errors_end_in_one_line(words, message):
    run = attnspec(*words)
    assert run.returncode != 0
    assert message in run.stderr
    assert "Traceback" not in run.stderr + run.stdout


def test_explain():
    text = attnspec("explain", "mask-6").stdout
    assert text.startswith("MASK-6 A row with nothing to attend to gives zero   (MUST, chapter masking)")
    assert "variant uniform" in text
    assert "masking-empty-middle" in text


def test_rules_and_backends():
    assert "SOFT-2" in attnspec("rules").stdout
    assert "MASK-1" not in attnspec("rules", "--chapter", "softmax").stdout
    listed = attnspec("backends").stdout
    assert "torch-sdpa" in listed
    assert "MASK-6: uniform" in listed


def test_one_table_of_several_runs(tmp_path):
    files = []
    for name in ("numpy-portable", "broken:no_scale"):
        files.append(tmp_path / f"{len(files)}.json")
        attnspec("check", name, "-k", "default_scale", "--results", files[-1])
    text = attnspec("table", *files).stdout
    assert "numpy-portable" in text
    assert "FAIL " in text


def test_the_suite_by_pytest_alone_from_another_folder(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--pyargs",
        "attnspec.conformance",
        "--backend",
        "numpy-portable",
    ]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout
    assert "numpy-portable: " in run.stdout


def test_an_unknown_backend_by_pytest_alone(tmp_path):
    command = [sys.executable, "-m", "pytest", "--pyargs", "attnspec.conformance", "--backend", "torhc"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 4
    assert "ERROR: backend: got 'torhc'" in run.stderr


def test_workers_give_the_same_verdicts(tmp_path):
    _, alone = judged("broken:no_scale", "-k", "softmax", tmp_path=tmp_path)
    (tmp_path / "results.jsonl").unlink()
    _, shared = judged("broken:no_scale", "-k", "softmax", "-n", "2", tmp_path=tmp_path)
    key = lambda verdict: (verdict.test, verdict.status)  # noqa: E731 - said once, here
    assert sorted(map(key, alone)) == sorted(map(key, shared))


def test_a_kernel_that_takes_the_process_with_it(tmp_path):
    """No exit code 0 without a verdict, and what others got stays."""
    results = tmp_path / "results.jsonl"
    run = attnspec(
        "check", "broken:vanishing", "numpy-portable", "-k", "golden and softmax", "--results", results
    )
    assert run.returncode == 1
    assert "error: backend broken:vanishing: the run was cut off after test_golden" in run.stdout
    assert "broken:vanishing ended the process with status 0" in run.stdout
    assert {v.backend for v in read([results]).verdicts if v.status == "pass"} == {"numpy-portable"}


def test_a_run_goes_on_after_a_crash(tmp_path):
    """One call crashes: its test gets an error, and every other its verdict."""
    run, verdicts = judged("broken:crashing", "-k", "golden and (softmax or scores)", tmp_path=tmp_path)
    assert run.returncode == 1
    assert "cut off" not in run.stdout
    (lost,) = [v for v in verdicts if v.status == "error"]
    assert "broken:crashing was killed by SIGSEGV" in lost.message
    _, whole = judged("broken:no_scale", "-k", "golden and (softmax or scores)", tmp_path=tmp_path)
    tests = [[v.test.partition("-")[2] for v in found] for found in (verdicts, whole)]
    assert sorted(tests[0]) == sorted(tests[1])
    assert len(set(tests[0])) == len(tests[0])
    run, verdicts = judged("broken:crashing", "-n", "2", "-k", "golden and scores", tmp_path=tmp_path)
    assert run.returncode == 1
    assert [v.message.splitlines()[0] for v in verdicts if v.status == "error"] == [
        "broken:crashing ended the process"
    ]


def test_a_kernel_that_hangs(tmp_path):
    run, verdicts = judged("broken:hanging", "-k", "golden or plain", "--time-limit", "2", tmp_path=tmp_path)
    assert run.returncode == 1
    assert "the run was cut off" in run.stdout
    assert {v.status for v in verdicts} <= {"unsupported", "error"}
    assert all("did not end in 2 s" in v.message for v in verdicts if v.status == "error")


def test_a_backend_of_which_nothing_can_be_asked(tmp_path):
    run, verdicts = judged("numpy-portable", "-k", "no_such_test", tmp_path=tmp_path)
    assert run.returncode == 1
    assert verdicts == ()


def test_options_of_other_projects_are_left_alone(tmp_path):
    """A project that merely has attnspec installed may have a --backend of its own."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--backend', default='x')\n"
        "    parser.addoption('--results', default='y')\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_it(request):\n    assert request.config.getoption('--backend') == 'z'\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "--backend",
        "z",
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_results_that_cannot_be_written_are_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    run = attnspec("check", "numpy-portable", "--results", tmp_path / "file" / "results.jsonl")
    assert run.returncode == 1
    assert run.stderr.startswith("Error: ")
    assert "numpy-portable:" not in run.stdout


def test_a_failing_backend_is_diagnosed(tmp_path):
    run, _ = judged("attnspec.conformance.gallery:lse_negative", "--rule", "SOFT-6", tmp_path=tmp_path)
    assert run.returncode == 1
    assert "attnspec.conformance.gallery:lse_negative: consistent with: lse_negative" in run.stdout
