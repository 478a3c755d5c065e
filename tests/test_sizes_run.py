"""`attnspec check --sizes`: what it prints and writes, how it ends, and a rank that judges its own rows."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tests_support import attnspec, command, python

from attnspec import SpecError
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.results_file import read
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.pool import Pool
from attnspec.conformance.sizes.shard import arguments_of_shard, judge_shard
from attnspec.conformance.verdict import Difference, Verdict
from attnspec.formula import Formula
from attnspec.reference import attention

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
    assert "run: chosen sizes, in " in done.stdout
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


def test_what_is_left_out_is_said_and_does_not_pass(tmp_path):
    words = ("--case", "sizes-long-whole-1048576", "--memory", "0.1")
    done = check(tmp_path, "numpy-portable", "--sizes", *words, *REPORTS)
    assert done.returncode == 4, done.stdout
    assert "left out: 2 cases, the first: it needs about" in done.stdout
    assert "was not judged: what it offers was left out: it needs about" in " ".join(done.stdout.split())
    (suite,) = ET.parse(tmp_path / "j.xml").getroot()
    assert suite.get("skipped") == "2"
    assert "passes" not in (tmp_path / "m.md").read_text()
    assert "passes" not in json.loads((tmp_path / "b.json").read_text())["message"]
    words = ("--sizes", "--within", "0.1", "--case", "sizes-long-whole-1048576-float32")
    done = check(tmp_path, "numpy-portable", *words)
    assert done.returncode == 4
    assert "are left (--within)" in done.stdout or "(--memory)" in done.stdout
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
    done = command("check", "numpy-portable", "--sizes", *words, status=2)
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


OPTIONS = {"is_causal": True, "window": (700, None), "query_offset": 50, "sinks": True}
WHOLE = Formula(3000, 3100, 8, 4, batch=(2,), heads=4, key_heads=2, options=OPTIONS)
SHARDS = [(range(0), range(700)), (range(1500), range(700, 700)), (range(1500, 3000), range(700, 3100))]


@pytest.mark.parametrize("words", [1, 16, 256])
def test_the_inputs_of_all_ranks_are_those_of_the_whole(words):
    formula = Formula(**{**vars(WHOLE), "words": words})
    whole = formula.arguments("float32")
    parts = [arguments_of_shard(formula, "float32", *shard) for shard in SHARDS]
    for name in ("query", "key", "value"):
        assert np.array_equal(np.concatenate([part[name] for part in parts], axis=-2), whole[name])
    assert all(np.array_equal(part["sinks"], whole["sinks"]) for part in parts)
    joined = {
        f"{side}_positions": np.concatenate([part[f"{side}_positions"] for part in parts], axis=-1)
        for side in ("query", "key")
    }
    small = {name: x[..., :40, :] for name, x in whole.items() if name in ("query", "key", "value")}
    options = {"is_causal": True, "window": (7, None)}
    expected = attention(**small, **options, query_offset=50)
    got = attention(**small, **options, **{name: x[..., :40] for name, x in joined.items()})
    assert np.array_equal(got, expected)


def rows_of(rows):
    """The right results of some rows, computed in float64."""
    arguments = arguments_of_shard(WHOLE, "float32", rows, range(3100))
    floating = [name for name, x in arguments.items() if getattr(x, "dtype", None) == "float32"]
    wide = {name: arguments[name].astype("float64") for name in floating}
    output, lse = attention(**{**arguments, **wide}, return_lse=True)
    return {"output": output.astype("float32"), "lse": lse.astype("float32")}


@pytest.mark.parametrize("rows", [range(3), range(1499, 1600), range(2990, 3000)])
def test_the_rows_of_a_rank_are_judged_alone(rows):
    results = rows_of(rows)
    assert 0 < judge_shard(WHOLE, "float32", rows, results) < 1
    results["output"][1, 2, 1, 3] += 1e-3
    wrong = judge_shard(WHOLE, "float32", rows, results)
    assert isinstance(wrong, Difference)
    assert (wrong.output, wrong.element, wrong.count) == ("output", (1, 2, rows.start + 1, 3), 1)


def test_a_problem_with_other_options_is_refused():
    with pytest.raises(SpecError, match=r"formula: expected words, and some of scale, .*, got segments"):
        arguments_of_shard(Formula(8, 8, 4, 4, options={"segments": 4}), "float32", range(4), range(4))


@pytest.mark.exhaustive
def test_four_processes_judge_themselves():
    program = Path(__file__).parent.parent / "examples" / "ring" / "million.py"
    run = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", program, 8192, status=0)
    assert run.stdout.count(": right, ") == 4
