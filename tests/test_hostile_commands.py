"""Hostile commands and surroundings, in tables. None ends green without having judged."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests_support import attnspec

from attnspec.backends import BackendError
from attnspec.conformance.cli.main import main
from attnspec.conformance.results_file import read

CASE = "softmax-000-float64"

#: Words of the command, in a folder with a file and a module in it, to what is said.
COMMANDS = {
    "check": "backend: expected a name, a library, module:function",
    "check ''": "backend: expected a library",
    "check torhc": "got 'torhc'",
    "check numpy-portable --rule MASK-99": "got 'MASK-99'",
    "check numpy-portable --rule nonsense": "got 'NONSENSE'",
    "check numpy-portable -k MASK-99": "got 'MASK-99'",
    "check numpy-portable -k zzz": "got none",
    "check numpy-portable --case zzz": "got 'zzz'",
    "check numpy-portable --case absent.json": "absent.json",
    "check numpy-portable --case broken.json": "broken.json",
    "check numpy-portable --rule SOFT-1 --case masking-empty-last": "got none",
    "check numpy-portable --time-limit nan": "--time-limit",
    "check numpy-portable --time-limit inf": "--time-limit",
    "check numpy-portable --time-limit 0": "--time-limit",
    "check numpy-portable --time-limit -1": "--time-limit",
    "check numpy-portable --time-limit soon": "--time-limit",
    "check numpy-portable -n 0": "-n: expected an integer",
    "check numpy-portable -n -1": "-n: expected an integer",
    "check numpy-portable -n many": "-n: expected an integer",
    "check numpy-portable -n 1.5": "-n: expected an integer",
    "check numpy-portable --seed x": "--seed",
    "check numpy-portable --dtype float31": "dtype: expected some of",
    "check numpy-portable --dtype ''": "dtype",
    "check numpy-portable --nonsense": "--nonsense",
    "check numpy-portable --results .": "--results",
    "check numpy-portable --results file/x": "file",
    "check numpy-portable --junit a.xml --markdown a.xml": "reports: expected a different file for each",
    "check numpy-portable --junit file/x": "file",
    "check numpy-portable --badge x.png": "badge",
    "check numpy-portable --known-failures absent.toml": "known failures: expected absent.toml",
    "check numpy-portable --known-failures file": "known failures",
    "check numpy-portable --known-failures broken.json": "known failures",
    "check numpy-portable --search 0": "search",
    "check numpy-portable --search -3": "search",
    "check numpy-portable --search x": "--search",
    "check --program ''": "program",
    "check --program ./absent": "expected ./absent to be an executable program",
    "check --program ./file": "expected ./file to be an executable program",
    "check --program true": "program",
    "check --program cat --array torch": "expected neither --array nor --device",
    "check --program cat --dtype float31": "dtype: expected some of",
    "check --program cat --call-limit nan": "--call-limit",
    "check --program cat --call-limit -1": "--call-limit",
    "check offline:absent": "manifest.json",
    "check offline:": "backend",
    "check kernel:f --array absent_library": "absent_library",
    "check kernel:f --device nowhere": "device",
    "check kernel:absent": "expected kernel to have absent",
    "check kernel:": "backend",
    "check :f": "backend",
    "check kernel:f:g": "backend",
    "check ../kernel:f": "backend",
    "check ./pipe.py:f": "expected a file pipe.py, got none",
    "check ./pipe.py:f --untrusted": "expected a file pipe.py, got none",
    "check ./pipe.py": "backend",
    "init ./pipe.py:f": "expected a file pipe.py, got none",
    "check absent_module:f": "absent_module",
    "check 'kernel:f?speed=high'": "expected the options array, device, dtype",
    "judge absent": "absent",
    "judge .": "manifest.json",
    "table": "FILES",
    "table absent.jsonl": "absent.jsonl",
    "table .": "FILES",
    "table file": "expected a header in its first line",
    "table broken.json": "expected a header in its first line",
    "explain ZZZ-1": "got 'ZZZ-1'",
    "rules --chapter zzz": "chapter: expected one of notation",
    "smoke absent_module:f": "absent_module",
    "vectors write absent": "Invalid value for 'FOLDER'",
    "vectors export out --format xml": "format: expected one of safetensors, npz, got 'xml'",
    "zzz": "zzz",
}


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.sample(8)
def test_what_a_command_may_be(words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no file of ours")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "broken.json").write_text('{"verdict": ')
    (tmp_path / "kernel.py").write_text("def f(query, key, value):\n    return query\n")
    results = tmp_path / "kept.jsonl"
    results.write_text("of the run before")
    given = [word.strip("'") for word in words.split()] if "'" in words else words.split()
    if words.startswith("check ") and "--results" not in words:
        given += ["--results", str(results)]
    run = CliRunner().invoke(main, given)
    told = run.output + "".join(capfd.readouterr())
    assert run.exit_code not in (0, None)
    assert isinstance(run.exception, SystemExit), run.exception
    assert COMMANDS[words] in told
    assert "Traceback" not in told
    if run.exit_code == 2:
        assert results.read_text() == "of the run before", "a wrong command costs nothing"


#: Surroundings in which a right implementation is judged right, and one whose message is odd is judged wrong.
SURROUNDINGS = {
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "no assertions": {"PYTHONOPTIMIZE": "2"},
    "no letters but those of English": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    "a narrow terminal": {"COLUMNS": "10"},
    "no home": {"HOME": "/nowhere", "TMPDIR": "/nowhere"},
    "pytest's plugins": {"PYTEST_PLUGINS": "absent_plugin", "PYTEST_ADDOPTS": "-k nothing --trace"},
}


@pytest.mark.parametrize("kind", SURROUNDINGS)
def test_what_surroundings_may_be(kind, tmp_path):
    results = tmp_path / "r.jsonl"
    words = ["hostile:right", "hostile:raising_surrogates", "--case", CASE, "--results", results]
    run = attnspec("check", *words, **SURROUNDINGS[kind])
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stderr
    assert [verdict.status for verdict in read([results]).verdicts] == ["pass", "error"]


@pytest.mark.parametrize(("name", "status"), [("interrupting_the_parent", 130), ("ending_the_parent", 143)])
def test_a_call_that_ends_the_run_does_not_end_it_well(name, status, tmp_path):
    results, markdown = tmp_path / "r.jsonl", tmp_path / "m.md"
    words = [f"hostile:{name}", "--case", CASE, "--results", results, "--markdown", markdown]
    run = attnspec("check", *words)
    assert run.returncode == status
    assert "the run was cut off" in run.stdout
    assert len(results.read_text().splitlines()) == 2, "the plan and the subject"
    assert "not" in markdown.read_text().splitlines()[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_results_that_cannot_be_written_cost_neither_the_run_nor_the_table():
    run = attnspec("check", "hostile:right", "--case", CASE, "--results", "/dev/full")
    assert run.returncode != 0
    assert "hostile:right: passes" in run.stdout
    assert "No space left" in run.stderr


def test_a_reader_that_goes_away_is_no_success_of_nothing(tmp_path):
    results, markdown = tmp_path / "r.jsonl", tmp_path / "m.md"
    reading, writing = os.pipe()
    os.close(reading)
    words = ["hostile:interrupting", "--case", CASE, "--results", results, "--markdown", markdown]
    run = attnspec("check", *words, stdout=writing)
    os.close(writing)
    assert run.returncode != 0
    assert "Traceback" not in run.stderr
    assert [verdict.status for verdict in read([results]).verdicts] == ["error"]
    assert markdown.read_text().startswith("## attnspec: does not conform")


def test_the_list_of_backends_eats_no_brackets(monkeypatch):
    def load(name):
        raise BackendError(f"backend {name}: expected it to be there; pip install 'attnspec[torch]'")

    monkeypatch.setattr("attnspec.backends.load", load)
    assert "attnspec[torch]" in CliRunner().invoke(main, ["backends"]).output
