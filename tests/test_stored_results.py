"""Results files that are compressed, and those that the site stores."""

import gzip
import lzma
import re
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from html_results import verdict, verdicts, write_run

from attnspec.conformance.results_file import read
from attnspec.conformance.verdict import Raise
from tools.store_results import main as store

STORED = Path(__file__).resolve().parents[1] / "site" / "results"


def test_compressed_results_are_read(tmp_path):
    plain = write_run(tmp_path / "a.jsonl")
    packed = write_run(tmp_path / "b.jsonl.xz")
    gzipped = tmp_path / "c.jsonl.gz"
    gzipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert read([plain]).verdicts == read([packed]).verdicts == read([gzipped]).verdicts
    assert len(read([plain]).verdicts) == len(verdicts("mine:f"))


def test_stored_results_are_whole_runs_with_a_day():
    found = sorted(STORED.glob("*"))
    assert len(found) > 20
    for path in found:
        assert re.search(r"-\d{4}-\d\d-\d\d\.jsonl\.xz$", path.name), path.name
    results = read(found[:1])
    assert results.judged_whole
    assert results.headers[0].seed is None


def test_no_stored_result_has_a_folder_of_the_machine_that_made_it():
    for path in sorted(STORED.glob("*")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            assert [line for line in lines if '"file": "/' in line] == [], path.name


def test_a_whole_run_is_stored_and_a_part_is_not(tmp_path):
    file = "/home/me/env/lib/python3.11/site-packages/torch/nn/f.py"
    error = verdict(
        "mine:f", "errors-a", "ERR-1", "error", raised=Raise("ValueError", "x", file, 3, "f"), code="raised"
    )
    whole = write_run(tmp_path / "whole.jsonl", judged=[error])
    part = write_run(tmp_path / "part.jsonl", part="quick")
    run = CliRunner().invoke(
        store, [str(whole), str(part), "--into", str(tmp_path / "into"), "--date", "2026-01-31"]
    )
    assert "left out: mine:f in part.jsonl: expected a run of the whole suite, got quick" in run.output
    (stored,) = (tmp_path / "into").iterdir()
    assert stored.name.endswith("-2026-01-31.jsonl.xz")
    (found,) = read([stored]).verdicts
    assert found == replace(error, code="raised", raised=replace(error.raised, file="torch/nn/f.py"))
