"""A matrix of backends and options: each combination is a backend, and each process has an environment."""

import pytest
from tests_support import command

from attnspec.backends import BackendError, expand, load
from attnspec.backends.names import environment_of, expand_matrix
from attnspec.conformance.render.reproduction import check_command
from attnspec.conformance.results_file import read
from attnspec.conformance.verdict import Verdict

KERNELS = """
import os
import numpy as np

with open("seen.txt", "a") as file:
    print(os.environ["FAKE_VISIBLE_DEVICES"], os.environ["BLOCK"], file=file)

def flash(query, key, value, *, is_causal=False):
    scores = query @ key.swapaxes(-1, -2) / query.dtype.type(query.shape[-1]) ** query.dtype.type(0.5)
    late = os.environ["BLOCK"] == "128"
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], k=late, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""
MATRIX = """
[matrix]
backend = ["./kernels.py:flash"]
BLOCK = ["64", "128"]
dtype = ["float64"]
FAKE_VISIBLE_DEVICES = "6|7"
"""
#: Some groups, so that two processes have work.
WORDS = ("--rule", "MASK-3")


@pytest.fixture
def folder(here):
    (here / "kernels.py").write_text(KERNELS)
    (here / "attnspec.toml").write_text(MATRIX)
    return here


def names_of(folder, *, blocks=("64", "128")):
    return [f"./kernels.py:flash?BLOCK={block}&dtype=float64&FAKE_VISIBLE_DEVICES=6|7" for block in blocks]


def test_a_matrix_has_a_page_of_all_combinations_and_a_device_for_each_process(folder):
    words = ["check", "-n", "2", *WORDS, "--results", "results.jsonl", "--html", "pages"]
    command(*words, status=1)
    results = read([folder / "results.jsonl"])
    assert [subject.name for subject in results.subjects] == names_of(folder)
    wrong = {verdict.backend for verdict in results.verdicts if verdict.status == "fail"}
    assert wrong == {*names_of(folder, blocks=["128"])}
    page = (folder / "pages" / "index.html").read_text()
    assert all(name.replace("&", "&amp;") in page for name in names_of(folder))
    seen = {*(folder / "seen.txt").read_text().splitlines()}
    assert seen == {f"{device} {block}" for device in "67" for block in ("64", "128")}


def test_shards_of_a_matrix_have_the_results_of_one_run(folder):
    words = ["check", "--config", "attnspec.toml", *WORDS, "--quick", "--results"]
    command(*words, "whole.jsonl")
    for shard in ("1", "2"):
        command(*words, f"{shard}.jsonl", "--shard", f"{shard}/2")
    whole, shards = read([folder / "whole.jsonl"]), read([folder / "1.jsonl", folder / "2.jsonl"])
    assert shards.subjects == whole.subjects
    assert {(x.backend, x.case, x.status) for x in shards.verdicts} == {
        (x.backend, x.case, x.status) for x in whole.verdicts
    }


def test_a_file_elsewhere_names_files_from_its_own_folder(folder, monkeypatch):
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    names = expand_matrix(folder / "attnspec.toml")
    assert names == tuple(name.replace("./", "./../") for name in names_of(folder))
    assert expand("..") == names


def test_the_function_of_the_file_itself_has_a_matrix(folder):
    (folder / "attnspec.toml").write_text(
        '[backend]\nfunction = "kernels:flash"\n[matrix]\nBLOCK = ["1", "2"]\n'
    )
    assert expand(".") == ("kernels:flash?BLOCK=1", "kernels:flash?BLOCK=2")
    (folder / "attnspec.toml").write_text(
        '[backend]\nfunction = "kernels:flash"\n[matrix]\nbackend = [".", "numpy"]\n'
    )
    assert expand(".") == ("kernels:flash", "numpy-portable")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[matrix]\nBLOCK = []", "BLOCK: expected a string or a list of strings, got .]"),
        ("[matrix]\nblock = '1'", "expected backend, array, .* got 'block'"),
        ("[matrix]\nBLOCK = '1'", "expected a table .matrix. with the key backend, got none"),
        ("matrix = 3", "matrix: expected a table, got 3"),
    ],
)
def test_a_wrong_matrix_is_refused(folder, text, message):
    (folder / "attnspec.toml").write_text(text)
    with pytest.raises(BackendError, match=message):
        expand_matrix(folder / "attnspec.toml")


def test_each_process_has_one_of_several_values(monkeypatch):
    name = "program:./judge?dtype=float32&HIP_VISIBLE_DEVICES=a|b&TILE=64"
    assert [environment_of(name, worker)["HIP_VISIBLE_DEVICES"] for worker in range(3)] == ["a", "b", "a"]
    monkeypatch.setenv("ATTNSPEC_WORKER", "1")
    assert environment_of(name) == {"HIP_VISIBLE_DEVICES": "b", "TILE": "64"}


def test_the_command_for_a_case_of_a_program_has_the_environment():
    verdict = Verdict("program:./judge?TILE=64", "a-1-float32", "", ("NUM-1",), "fail", "float32")
    assert check_command(verdict).startswith("env TILE=64 attnspec check --program ./judge ")


def test_a_loaded_backend_reads_the_variables_of_its_name(here, monkeypatch):
    monkeypatch.setenv("BLOCK_SIZE", "16")  # so that it is put back
    text = "import os\n\n\ndef attention(query, key, value):\n    return int(os.environ['BLOCK_SIZE'])\n"
    (here / "sized.py").write_text(text)
    assert load("./sized.py:attention?BLOCK_SIZE=64").attention(0, 0, 0) == 64
