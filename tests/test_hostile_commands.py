"""Hostile commands and surroundings, in tables. None ends green without having judged."""

import os
from pathlib import Path

import pytest
from tests_support import attnspec, command, pairs

from attnspec.backends import BackendError
from attnspec.conformance.results_file import read

CASE = "softmax-000-float64"

#: Words of the command, in a folder with a file and a module in it, to what is said.
COMMANDS = pairs("commands")


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.sample(8)
def test_what_a_command_may_be(words, here, capfd):
    (here / "file").write_text("no file of ours")
    os.mkfifo(here / "pipe.py")
    (here / "broken.json").write_text('{"verdict": ')
    (here / "kernel.py").write_text("def f(query, key, value):\n    return query\n")
    results = here / "kept.jsonl"
    results.write_text("of the run before")
    given = [word.strip("'") for word in words.split()] if "'" in words else words.split()
    if words.startswith("check ") and "--results" not in words:
        given += ["--results", str(results)]
    run = command(*given)
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
@pytest.mark.sample(3)
def test_what_surroundings_may_be(kind, tmp_path):
    results = tmp_path / "r.jsonl"
    words = ["hostile:right", "hostile:raising_surrogates", "--case", CASE, "--results", results]
    run = attnspec("check", *words, status=1, **SURROUNDINGS[kind])
    assert "Traceback" not in run.stderr
    assert [verdict.status for verdict in read([results]).verdicts] == ["pass", "error"]


@pytest.mark.parametrize(("name", "status"), [("interrupting_the_parent", 130), ("ending_the_parent", 143)])
def test_a_call_that_ends_the_run_does_not_end_it_well(name, status, tmp_path):
    results, markdown = tmp_path / "r.jsonl", tmp_path / "m.md"
    words = [f"hostile:{name}", "--case", CASE, "--results", results, "--markdown", markdown]
    run = attnspec("check", *words, status=status)
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
    assert "attnspec[torch]" in command("backends").output
