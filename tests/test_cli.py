"""The command line and the suite from outside: verdicts, tables, exit codes, parts of the suite, levels."""

import subprocess
import sys

import pytest
from tests_support import TESTS, about, attnspec, command, python

from attnspec.backends import load
from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results_file import read
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.run import run_all
from attnspec.conformance.suite import items
from attnspec.conformance.verdict import shown_declarations

pytestmark = pytest.mark.usefixtures("in_tests")


def by_pytest(*words, **options):
    return python("-m", "pytest", "-q", "-p", "no:cacheprovider", *words, **options)


def ran(name, *, jobs=1, seconds=300.0, **selection):
    """Run a part of the suite on one backend, as the command does."""
    return run_all([name], Selection(**selection), jobs=jobs, seconds=seconds).results


def told(results):
    """What is printed of results."""
    return screen(Report(results))


@pytest.mark.parametrize("name", ["numpy", "strict"])
def test_the_reference_and_a_strict_library_conform(name, tmp_path):
    """To the golden vectors of three chapters and a misuse: `nox -s conformance` has the whole."""
    results = tmp_path / "results.jsonl"
    words = ["--quick", "-k", "softmax-lse", "-k", "masking-empty", "-k", "heads-mis"]
    attnspec("check", name, "--results", results, *words, status=0)
    verdicts = read([results]).verdicts
    assert {verdict.status for verdict in verdicts} - {"unsupported"} == {"pass"}  # strict has no float16
    assert sum(verdict.status == "pass" for verdict in verdicts) > 20


def test_nothing_is_left_behind(tmp_path):
    attnspec("check", "numpy-portable", "--case", "masking-empty-last", cwd=tmp_path, status=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["torch-mha", "torch-portable", "torch-sdpa", "torch-flex", "jax-portable", "jax-nn"]
)
@pytest.mark.sample(1)
def test_native_backends_conform_or_deviate_as_they_declare(name):
    """In part: `nox -s conformance` has the whole of it, which takes minutes where JAX compiles."""
    backend = load(name)
    broken = [rule for one in backend.deviations for rule in one.rules]
    rules = dict.fromkeys((*backend.dialect, *broken)) or ["MASK-6"]
    verdicts = [judge(backend, item) for item in about(*rules)]
    # What the quick part does not show, some case of the whole has to.
    unseen = {missing.rule for missing in not_shown(backend, shown_declarations(verdicts))}
    left = [rule for one in backend.deviations if unseen & {*one.rules} for rule in one.rules]
    left += unseen
    for item in items(rules=left) if unseen else ():
        verdicts.append(judge(backend, item))
        if not not_shown(backend, shown_declarations(verdicts)):
            break
    assert not_shown(backend, shown_declarations(verdicts)) == []
    statuses = {verdict.status for verdict in verdicts}
    assert "pass" in statuses
    declares = bool(backend.dialect or backend.deviations)
    assert statuses <= {"pass", "unsupported"} | ({"deviation"} if declares else set())


@pytest.mark.parametrize(
    ("name", "case", "message"),
    [
        ("terse", "errors-named-in-the-error-attention-1", "SHOULD not met: ERR-12"),
        ("unrepeatable", "numerics-call-repeated-plain-1", "SHOULD not met: NUM-9"),
        ("batch_dependent", "numerics-batch-entry-alone-1", "not shown: NUM-10"),
    ],
)
def test_what_is_no_must_fails_no_run(name, case, message):
    """A case that passes is asked too: a backend of which nothing can be said is not good."""
    passing = "notation-value-depth-float32"
    results = ran(f"broken:{name}", names=(f"{case}-float32", passing))
    (found,) = [verdict for verdict in results.verdicts if not verdict.case.startswith(passing)]
    hidden = message.startswith("not shown")
    assert found.status == ("unsupported" if hidden else "should not met")
    assert {verdict.status for verdict in results.verdicts if verdict != found} == {"pass"}
    assert Report(results).good
    rule = message.partition(": ")[2]
    row = next(line for line in told(results).splitlines() if line.startswith(f"│ {rule} "))
    assert ("not shown 1 of 1" if hidden else "not met ") in row
    assert (message in told(results)) != hidden


def test_one_backend_that_cannot_be_used_leaves_the_others_their_results(tmp_path):
    results = tmp_path / "results.jsonl"
    words = ["numpy-portable", "failing:attention", "broken:misnamed", "--case", "softmax-000"]
    run = attnspec("check", *words, "--results", results, status=3)
    assert "error: backend failing:attention: importing failing raised RuntimeError: no device" in run.stdout
    found = read([results])
    assert {v.status for v in found.verdicts} == {"pass"}
    assert "got query, keys, values; write this in attnspec.toml, or run" in run.stdout
    assert '\n    key = "keys"\n' in run.stdout, "the further lines of a problem"
    assert found.subjects[1].problem.startswith("backend failing:attention")


def test_rules_and_backends_are_explained_and_listed():
    text = command("explain", "mask-6").output
    assert text.startswith("MASK-6 A row with nothing to attend to gives zero   (MUST, chapter masking)")
    assert "variant uniform" in text
    assert "masking-empty-middle" in text
    assert "SOFT-2" in command("rules").output
    assert "MASK-1" not in command("rules", "--chapter", "softmax").output
    listed = command("backends").output
    assert "torch-sdpa" in listed
    assert "MASK-6: uniform" in listed


@pytest.mark.exhaustive
def test_the_suite_by_pytest_alone_from_another_folder(tmp_path):
    words = ("--pyargs", "attnspec.conformance", "--backend", "numpy-portable")
    run = by_pytest(*words, "--case", "masking-empty-last", cwd=tmp_path, status=0)
    assert "numpy-portable: " in run.stdout
    listed = by_pytest(*words, "--case", "masking-empty-last", "--collect-only", cwd=tmp_path, status=0)
    assert "masking-empty-last-float32" in listed.stdout


def test_processes_that_judge_import_what_pytest_does(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "of_a_project.py").write_text(
        "from attnspec.reference import attention\n"
        "def kernel(query, key, value):\n"
        "    return attention(query, key, value, dtype=query.dtype)\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    words = ("--pyargs", "attnspec.conformance", "--backend", "of_a_project:kernel")
    by_pytest(*words, "--case", "numerics-plain-float32", cwd=tmp_path, status=0)


def test_several_processes_give_the_same_verdicts():
    selection = {"rules": ("SCORE-2",), "quick": True}
    alone = ran("broken:no_scale", **selection)
    shared = ran("broken:no_scale", jobs=2, **selection)
    key = lambda verdict: (verdict.case, verdict.status, verdict.rule)  # noqa: E731 - said once, here
    assert sorted(map(key, alone.verdicts)) == sorted(map(key, shared.verdicts))


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
    by_pytest("-W", "error", "--backend", "z", cwd=tmp_path, status=0)


def test_explain_knows_the_bugs_that_a_report_names():
    done = command("explain", "key_heads_tiled", status=0)
    assert "which breaks HEAD-1" in done.output
    assert entry("key_heads_tiled").sentence.split()[0] in done.output
    assert "attnspec check attnspec.conformance.gallery:key_heads_tiled -k HEAD-1" in done.output
    command("explain", "no_such_bug", status=2)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("sink rank", "sink_on_each_rank: "),
        ("zigzag causal", "causal_by_the_number_of_the_shard: "),
        ("gqa", "HEAD-1: "),
    ],
)
def test_explain_lists_what_has_the_words(words, name):
    lines = command("explain", words).output.splitlines()
    assert any(line.startswith(name) for line in lines)


def test_an_option_that_other_programs_have_is_named():
    said = command("check", "--world-size", "4").output
    assert "Did you mean '--ranks'?" in said


def check(name, *words, cwd):
    """Run the suite on one backend: how it ended, and its results."""
    results = cwd / "results.jsonl"
    ended = attnspec("check", name, "--results", results, *words, cwd=cwd, PYTHONPATH=TESTS, status=0)
    return ended, read([results])


def test_runs_of_other_tests_know_nothing_of_it(tmp_path):
    """The plugin is found at every start of pytest, and has no option, marker or item in it."""
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    for words in (("--help",), ("--markers",), ("--collect-only", "-q"), ("-q", "-W", "error")):
        ended = python("-m", "pytest", "-p", "no:cacheprovider", *words, cwd=tmp_path, status=0)
        assert "attnspec" not in ended.stdout + ended.stderr
        assert "--backend" not in ended.stdout


@pytest.mark.exhaustive
def test_by_pytest_alone_a_level_is_asked_and_what_is_outside_of_it_fails_nothing(tmp_path):
    (tmp_path / "filled.py").write_text(
        "import numpy as np\n"
        "from attnspec import reference\n"
        "def attention(query, key, value, *, scale=None, mask=None):\n"
        "    bias = None if mask is None else np.where(mask, 0, -30000).astype(query.dtype)\n"
        "    return reference.attention(query, key, value, scale=scale, bias=bias, dtype=query.dtype)\n"
    )
    asked = ("--level", "core", "--require", "core", "--pyargs", "attnspec.conformance", "--backend")
    ended = by_pytest(*asked, "filled:attention", cwd=tmp_path, status=0)
    assert "filled:attention: values: reaches level core, as required" in " ".join(ended.stdout.split())
    assert " xfailed" in ended.stdout, "a row with nothing to attend to is of another level"
    ended = by_pytest(*asked, "broken:no_scale", cwd=tmp_path, PYTHONPATH=TESTS, status=1)
    assert "broken:no_scale: values: does not conform to level core" in " ".join(ended.stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["torhc"], "ERROR: backend: expected a library"),
        (
            ["broken:half", "--level", "core", "--rule", "MASK-1"],
            "ERROR: --level: expected either --level or",
        ),
        (
            ["broken:half", "--require", "core", "--quick"],
            "ERROR: --require: expected a whole run or --level",
        ),
    ],
)
def test_by_pytest_alone_what_cannot_be_asked_for(words, message):
    status = pytest.ExitCode.USAGE_ERROR
    ended = by_pytest("--pyargs", "attnspec.conformance", "--backend", *words, status=status)
    assert message in ended.stderr


def test_a_rule_a_name_or_an_expression_alone(tmp_path):
    for words, holds in (
        (("--rule", "POS-7"), lambda verdict: "POS-7" in verdict.rules),
        (("-k", "pos-7"), lambda verdict: "POS-7" in verdict.rules),
        (("--case", "softmax-lse-empty"), lambda verdict: verdict.case.startswith("softmax-lse-empty-")),
        (("--case", "softmax-lse-empty-float32"), lambda verdict: verdict.dtype == "float32"),
    ):
        _, found = check("numpy-portable", *words, cwd=tmp_path)
        assert found.verdicts
        assert all(map(holds, found.verdicts)), words
        assert found.headers[0].part == "chosen"
        assert not found.whole


def test_a_filter_that_nothing_fits_is_no_success():
    done = command("check", "numpy-portable", "-k", "no such thing", status=2)
    assert done.output == "Error: case: expected some that fit what was asked for, got none\n"


@pytest.mark.exhaustive
def test_a_level_is_judged_as_a_whole_and_told(tmp_path):
    ended, found = check("numpy-portable", "--level", "grouped", "--require", "core", cwd=tmp_path)
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


@pytest.mark.parametrize(
    ("words", "seconds"), [([], 300), (["--smoke"], 60), (["--smoke", "--time-limit", "7"], 7)]
)
def test_a_case_may_take_less_time_in_smoke(words, seconds, monkeypatch):
    given = []

    def record(*own, **options):
        given.append(options["seconds"])
        raise SystemExit

    monkeypatch.setattr("attnspec.conformance.run.run.run_all", record)
    command("check", "numpy-portable", *words)
    assert given == [seconds]


@pytest.mark.parametrize("words", ["explain MASK-3", "rules", "registry"])
def test_a_reader_that_stops_ends_a_command_quietly(words):
    program = [sys.executable, "-u", "-m", "attnspec.conformance.cli.main", *words.split()]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 1)
