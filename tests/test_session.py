"""Runs of the suite in a separate process: parts of the suite, levels, and pytest alone."""

import pytest
from click.testing import CliRunner
from tests_support import TESTS, attnspec, python

from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.cli.main import main
from attnspec.conformance.results_file import read


def check(name, *words, cwd):
    """Run the suite on one backend: how it ended, and its results."""
    results = cwd / "results.jsonl"
    ended = attnspec("check", name, "--results", results, *words, cwd=cwd, PYTHONPATH=TESTS)
    return ended, read([results])


def test_runs_of_other_tests_know_nothing_of_it(tmp_path):
    """The plugin is found at every start of pytest, and has no option, marker or item in it."""
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    for words in (("--help",), ("--markers",), ("--collect-only", "-q"), ("-q", "-W", "error")):
        ended = python("-m", "pytest", "-p", "no:cacheprovider", *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "attnspec" not in ended.stdout + ended.stderr
        assert "--backend" not in ended.stdout


def test_a_kernel_that_hangs_is_ended(tmp_path):
    ended, found = check("hostile:hanging", "--case", "softmax-000", "--time-limit", "2", cwd=tmp_path)
    assert ended.returncode == 1
    (verdict,) = found.verdicts
    assert (verdict.case, verdict.status) == ("softmax-000-float64", "error")
    assert verdict.reason == "did not end in 2 s"


#: The suite by pytest alone.
SUITE = ("-m", "pytest", "-q", "--pyargs", "attnspec.conformance", "-p", "no:cacheprovider")


@pytest.mark.exhaustive
def test_by_pytest_alone_a_level_is_asked_and_what_is_outside_of_it_fails_nothing(tmp_path):
    (tmp_path / "filled.py").write_text(
        "import numpy as np\n"
        "from attnspec import reference\n"
        "def attention(query, key, value, *, scale=None, mask=None):\n"
        "    bias = None if mask is None else np.where(mask, 0, -30000).astype(query.dtype)\n"
        "    return reference.attention(query, key, value, scale=scale, bias=bias, dtype=query.dtype)\n"
    )
    words = (*SUITE, "--backend", "filled:attention", "--level", "core", "--require", "core")
    ended = python(*words, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "filled:attention: values: reaches level core, as required" in " ".join(ended.stdout.split())
    assert " xfailed" in ended.stdout, "a row with nothing to attend to is of another level"
    wrong = (*SUITE, "--backend", "broken:no_scale", "--level", "core", "--require", "core")
    ended = python(*wrong, cwd=tmp_path, PYTHONPATH=TESTS)
    assert ended.returncode == 1
    assert "broken:no_scale: values: does not conform to level core" in " ".join(ended.stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--level", "nothing"], "ERROR: level: expected one of core, strict, masked"),
        (
            ["--level", "core", "--rule", "MASK-1"],
            "ERROR: --level: expected either --level or --rule, got both",
        ),
        (["--require", "core", "--quick"], "ERROR: --require: expected a whole run or --level"),
        (["--require", "exact", "--level", "core"], "ERROR: --require: expected a level that"),
    ],
)
def test_by_pytest_alone_levels_that_cannot_be_asked_for(words, message, tmp_path):
    ended = python(*SUITE, "--backend", "broken:half", *words, cwd=TESTS)
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in ended.stderr


def test_a_rule_a_name_or_an_expression_alone(tmp_path):
    for words, holds in (
        (("--rule", "POS-7"), lambda verdict: "POS-7" in verdict.rules),
        (("-k", "pos-7"), lambda verdict: "POS-7" in verdict.rules),
        (("--case", "softmax-lse-empty"), lambda verdict: verdict.case.startswith("softmax-lse-empty-")),
        (("--case", "softmax-lse-empty-float32"), lambda verdict: verdict.dtype == "float32"),
    ):
        ended, found = check("numpy-portable", *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stdout
        assert found.verdicts
        assert all(map(holds, found.verdicts)), words
        assert found.headers[0].part == "chosen"
        assert not found.whole


def test_a_filter_that_nothing_fits_is_no_success():
    done = CliRunner().invoke(main, ["check", "numpy-portable", "-k", "no such thing"])
    assert done.exit_code == 2
    assert done.output == "Error: case: expected some that fit what was asked for, got none\n"


@pytest.mark.exhaustive
def test_a_level_is_judged_as_a_whole_and_told(tmp_path):
    ended, found = check("numpy-portable", "--level", "grouped", "--require", "core", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout
    assert (found.headers[0].part, found.headers[0].level) == ("level", "grouped")
    assert ended.stdout.splitlines()[1].startswith("numpy-portable: values: reaches level core, as required")
    rules = {*rules_of("grouped")}
    assert rules <= {rule for verdict in found.verdicts for rule in verdict.rules}
    assert {verdict.case for verdict in found.verdicts} == {*found.headers[0].cases}
    assert "strict" not in ended.stdout
    strict, found = check("numpy-portable", "--level", "strict", cwd=tmp_path)
    assert strict.stdout.splitlines()[1].startswith("numpy-portable: values: conforms to levels core, strict")
    refusals = [verdict for verdict in found.verdicts if verdict.refusal]
    assert 500 < len(refusals) < len(found.verdicts)
    assert {"ERR-6", "SHAPE-6"} <= {verdict.rules[0] for verdict in refusals}
