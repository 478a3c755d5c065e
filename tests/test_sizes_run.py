"""`attnspec check --sizes`: what it prints and writes, what is left out, and how it ends."""

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from tests_support import attnspec, python

from attnspec.conformance.cli.main import main
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.results_file import read
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.pool import Pool
from attnspec.conformance.verdict import Verdict

#: One case for each of: no option, key lengths, views.
CASES = ("sizes-covering-5", "sizes-covering-10", "sizes-views-1")
SIZES = ("--sizes", *(word for case in CASES for word in ("--case", case)))
FUNCTIONS = """
from attnspec.backends import load

right = load("numpy-portable").attention

def off(query, key, value, *, return_lse=False):
    output, lse = right(query, key, value, return_lse=True)
    if key.shape[-2] % 2:
        output[..., -1, 0] += 1
    return (output, lse) if return_lse else output
"""


def check(folder, *words):
    (folder / "own.py").write_text(FUNCTIONS)
    return attnspec("check", *words, cwd=folder)


REPORTS = ("--results", "r.jsonl", "--junit", "j.xml", "--markdown", "m.md", "--badge", "b.json")


def test_a_run_of_the_sizes_passes_and_reaches_no_level(tmp_path):
    done = check(tmp_path, "numpy-portable", *SIZES, *REPORTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passes the part of the suite that was run; only a whole run" in done.stdout
    assert "run: chosen sizes\n" in done.stdout
    assert "left out" not in done.stdout
    results = read([tmp_path / "r.jsonl"])
    assert [one.status for one in results.verdicts] == ["pass"] * len(CASES)
    assert not results.whole
    assert not results.level
    (badge,) = [json.loads((tmp_path / "b.json").read_text())]
    assert badge["message"] == "part of the suite passes"
    (suite,) = ET.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (str(len(CASES)), "0", "0")
    for name in ("m.md", "b.json", "j.xml"):
        text = (tmp_path / name).read_text().replace("only a whole run reaches levels", "")
        assert "reaches" not in text
        assert "conforms" not in text


def test_a_failure_is_reported_and_its_reproduction_runs(tmp_path):
    done = check(tmp_path, "own:off", *SIZES, *REPORTS)
    assert done.returncode == 1
    assert "own:off: does not conform: " in done.stdout
    failing = [one for one in read([tmp_path / "r.jsonl"]).verdicts if one.status == "fail"]
    assert failing
    assert all(one.alone and one.repeatable for one in failing)
    for one in failing:
        got, expected = map(float, python("-c", reproduction(one), cwd=tmp_path).stdout.split())
        assert got == pytest.approx(one.difference.got)
        assert expected == pytest.approx(one.difference.expected)
        assert got == pytest.approx(expected + 1, abs=1e-3)
    (suite,) = ET.parse(tmp_path / "j.xml").getroot()
    assert suite.get("failures") == str(len(failing))
    assert json.loads((tmp_path / "b.json").read_text())["message"] != "part of the suite passes"


def test_a_run_that_leaves_everything_out_is_not_good(tmp_path):
    words = ("--case", "sizes-long-whole-1048576", "--memory", "0.1")
    done = check(tmp_path, "numpy-portable", "--sizes", *words, *REPORTS)
    assert done.returncode == 4, done.stdout
    assert "left out: 2 cases, the first: it needs about" in done.stdout
    assert "was not judged: what it offers was left out: it needs about" in " ".join(done.stdout.split())
    (suite,) = ET.parse(tmp_path / "j.xml").getroot()
    assert suite.get("skipped") == "2"
    assert "passes" not in (tmp_path / "m.md").read_text()
    assert "passes" not in json.loads((tmp_path / "b.json").read_text())["message"]


def test_a_run_without_time_is_not_good(tmp_path):
    words = ("--sizes", "--within", "0.1", "--case", "sizes-long-whole-1048576-float32")
    done = check(tmp_path, "numpy-portable", *words)
    assert done.returncode == 4
    assert "are left (--within)" in done.stdout or "(--memory)" in done.stdout


def test_what_was_left_out_is_said_in_a_run_that_passes(tmp_path):
    words = ("--case", "sizes-long-whole-1048576", "--memory", "0.1")
    done = check(tmp_path, "numpy-portable", *SIZES, *words)
    assert done.returncode == 0
    assert "left out: 2 cases" in done.stdout
    assert f"values: {len(CASES)} pass, 2 unsupported" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--quick"], "--sizes: expected neither --quick nor --seed"),
        (["--seed", "7"], "--sizes: expected neither --quick nor --seed"),
        (["--require", "core"], "--require: expected a whole run"),
        (["--require", "core", "--level", "core"], "--require: expected a whole run"),
        (["--within", "0"], "expected 0.1 to 86400 seconds"),
        (["--memory", "0"], "0"),
        (["--case", "sizes-none-1"], "case: expected an id such as"),
    ],
)
def test_options_that_do_not_fit(words, message):
    done = CliRunner().invoke(main, ["check", "numpy-portable", "--sizes", *words])
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())


def test_a_level_selects_sizes_without_reaching_it():
    assert Selection(sizes=True).part == "sizes"
    assert Selection(sizes=True, rules=("MASK-3",), level="core").part == "chosen"


class LeftOut:
    """A fresh process that leaves every case out, as it has no time for it."""

    def request(self, case):
        self.case = case

    def verdict(self, _seconds):
        reason = "left out: 0 s are left (--within)"
        return replace(FAILING, status="unsupported", reason=reason, code="left out")


class Passing(LeftOut):
    """A fresh process in which every case passes."""

    def verdict(self, _seconds):
        return replace(FAILING, status="pass")


FAILING = Verdict("m:f", "sizes-views-1-float32", "sizes: views", ("NUM-8",), "fail", "float32", rule="NUM-8")


def test_a_failure_that_the_fresh_process_leaves_out_does_not_pass_there():
    pool = Pool("m:f", Selection(sizes=True))
    pool._fresh = LeftOut()
    assert pool._compare(FAILING) == FAILING
    again = Pool("m:f", Selection(sizes=True))
    again._fresh = Passing()
    assert not again._compare(FAILING).alone
