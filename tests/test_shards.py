"""Parts of a run: its plan, its shards, which together judge what one run judges, and its progress."""

import io
import json
import os
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests_support import command, fitted_cases, whole_suite

from attnspec import reference
from attnspec.backends import load
from attnspec.backends.constraints import Constraints
from attnspec.backends.user.function import describe
from attnspec.conformance import items
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results_file import read
from attnspec.conformance.run import run as progress
from attnspec.conformance.run.cases import Cases
from attnspec.conformance.run.child import with_traits
from attnspec.conformance.run.events import offer_of
from attnspec.conformance.run.index import outline_of, write
from attnspec.conformance.run.plan import PATH, Selection, index, plan_of, share
from attnspec.conformance.run.run import Progress
from attnspec.conformance.run.smallest import calls_of_arguments

COUNT = 3


def run(path, *words):
    return command("check", "torch-math", "--rule", "MASK-5", "--rule", "NUM-1", "--results", path, *words)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The results of one run, and of its shards."""
    folder = tmp_path_factory.mktemp("shards")
    names = ["whole", *(f"{number}" for number in range(1, COUNT + 1))]
    paths = [folder / f"{name}.jsonl" for name in names]
    for path, words in zip(paths, [(), *(("--shard", f"{name}/{COUNT}") for name in names[1:])], strict=True):
        run(path, *words)
    return paths


def test_shards_have_each_case_once_and_say_so():
    plan = index()
    for count in (1, 2, 8):
        shares = [share(plan, f"{number}/{count}") for number in range(1, count + 1)]
        assert sorted(place for one in shares for place, _ in one) == list(range(len(plan)))
        assert max(map(len, shares)) < 1.2 * len(plan) / count
    plan = index()
    before = {case.name for _, case in share(plan[::2], "2/5")}
    assert before == {case.name for _, case in share(plan, "2/5")} & {case.name for case in plan[::2]}
    assert Selection(shard="3/8").choice == ("--shard 3/8",)


def test_the_results_of_all_shards_are_those_of_one_run(files):
    whole, *shards = files
    for order in (shards, shards[::-1]):
        expected, got = read([whole]), read(order)
        assert got.headers == expected.headers
        assert got.subjects == expected.subjects
        assert [(one.case, one.status, one.rule) for one in got.verdicts] == [
            (one.case, one.status, one.rule) for one in expected.verdicts
        ]
    assert not read(shards).subjects[0].problem


def test_shards_that_are_missing_are_named(files, tmp_path):
    _, first, _, last = files
    assert read([last]).subjects[0].problem == "shards 1, 2 of 3 missing"
    ended = command("report", first, last, "--html", tmp_path)
    assert "torch-math: shard 2 of 3 missing" in ended.output
    assert (tmp_path / "index.html").exists()
    command("table", first, last, status=4)


def test_a_shard_that_is_given_twice_or_cut_off_is_an_error(files, tmp_path):
    ended = command("table", files[1], files[1])
    assert "expected shard 1/3 of torch-math once, got it twice" in ended.output
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(files[2].read_text().splitlines(keepends=True)[:-1]))
    assert "the run was cut off" in read([files[1], cut, files[3]]).subjects[0].problem


def test_a_declaration_that_no_shard_shows_is_an_error(files, tmp_path):
    """One that some shard shows is none."""
    unshown = {"backend": "torch-math", "case": "", "group": "", "status": "error"}
    paths = []
    for number, path in enumerate(files[1:]):
        *lines, last = path.read_text().splitlines()
        footer = json.loads(last)
        broken = ("NUM-2", "SOFT-6") if number else ("NUM-2",)
        footer["footer"]["unshown"] = [unshown | {"rules": [rule], "rule": rule} for rule in broken]
        paths.append(tmp_path / path.name)
        paths[-1].write_text("\n".join([*lines, json.dumps(footer)]) + "\n")
    assert [one.rule for one in read(paths).verdicts if not one.case] == ["NUM-2"]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "-1/2", "1/3/3"])
def test_a_shard_that_is_none_is_rejected(text):
    ended = command("check", "torch-math", "--shard", text, status=2)
    assert f"expected I/N with I from 1 to N, such as 3/8, got '{text}'" in ended.output


WIDE = {"float32", "float64"}
#: Some cases of every chapter, and of every operation.
SOME = index()[::97]


@pytest.fixture(scope="module")
def cases():
    return Cases()


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_outlines_are_those_of_the_cases(cases, step):
    for outline in SOME[::step]:
        assert outline._replace(quick=0) == outline_of(cases.find(outline.name, outline.group))
    smallest = fitted_cases(Constraints(depths=(64,)), "MASK-6", quick=True, smoke=True)
    assert any("+d64" in case.name for case in smallest)
    assert len(smallest) < len(fitted_cases(Constraints(depths=(64,)), "MASK-6", quick=True))


@pytest.mark.exhaustive
@pytest.mark.parametrize("smoke", [True, False])
def test_fitted_cases_are_those_of_the_suite_that_is_drawn_whole(smoke):
    constraints = Constraints(depths=(64,))
    selection = Selection(quick=True, smoke=smoke, rules=("MASK-6",), fits=constraints.suffix)
    plan = [outline.name for outline in Cases().plan(selection, constraints) if outline.group]
    fitted = fitted_cases(constraints, "MASK-6", quick=True, smoke=smoke)
    assert sorted(plan) == sorted(case.name for case in fitted)


@pytest.mark.parametrize("quick", [pytest.param(True, marks=pytest.mark.exhaustive), False])
def test_the_plan_is_the_suite_in_its_order(quick):
    plan = [case.name for case in plan_of(Selection(quick))]
    more = calls_of_arguments(plan_of(Selection()), plan) if quick else set()
    made = [case.name for case in (items(quick=True) if quick else whole_suite())]
    assert {*plan} == {*made} | more
    assert [name for name in plan if name in {*made}] == made


@pytest.mark.exhaustive
def test_the_index_would_not_change():
    """It is rewritten by ``attnspec vectors expected``."""
    assert not write(PATH, only_check=True)


def plain(query, key, value, *, scale=None, mask=None):
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


def scaled(query, key, value, *, is_causal=False, return_lse=False):
    options = {"is_causal": is_causal, "return_lse": return_lse}
    return reference.attention(query, key, value, dtype=query.dtype, **options)


BACKENDS = {
    "few arguments": lambda: describe(plain),
    "an lse, in one dtype": lambda: describe(scaled, dtypes=["float32"]),
    "without a default": lambda: replace(describe(plain), given=("scale",)),
    "constrained": lambda: describe(plain, depths=[64]),
    "no companions": lambda: replace(load("numpy-portable"), companions={}),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_what_is_not_offered_has_the_verdict_of_the_judge(name, cases):
    backend = BACKENDS[name]()
    offer = offer_of(backend)
    number = 0
    for outline in SOME:
        verdict = offer.verdict(outline)
        if verdict is not None:
            number += 1
            with np.errstate(all="ignore"):
                case = cases.find(outline.name, outline.group)
                judged = with_traits(judge(backend, case), case)
            assert verdict == replace(judged, refusal=outline.refusal)
    assert number > len(SOME) / 4


@pytest.fixture
def told(monkeypatch):
    """What is written while 1000 cases are judged, one each tenth of a second."""

    def judge(*, terminal, name="m:f", columns=60):
        written = io.StringIO()
        written.isatty = lambda: terminal
        clock = iter(number / 10 for number in range(10_000))
        monkeypatch.setattr(sys, "stderr", written)
        monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
        monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
        # What stands in a default is looked up when the class is made.
        one = Progress(name, 1000, _started=0.0, _said=0.0)
        for number in range(1000):
            one.add(failing=number % 100 == 99)
        one.end()
        return written.getvalue()

    return judge


def test_one_line_of_a_terminal_is_written_over_and_cleared(told):
    text = told(terminal=True)
    assert "\n" not in text
    lines = text.split("\r")
    assert max(map(len, lines)) <= 60
    assert any("100 of 1000 cases judged" in line for line in lines)
    assert any("5 failing" in line and line.rstrip().endswith(", after 50 s") for line in lines)
    assert lines[-1] == ""
    assert lines[-2].strip() == ""
    assert len(lines[-2]) == len(lines[-3])


def test_a_log_has_few_lines_and_promises_no_time(told):
    text = told(terminal=False)
    assert "\r" not in text
    assert 2 <= len(text.splitlines()) <= 5
    # The last cases take a hundred times as long as the first, and most may be unsupported.
    for terminal in (True, False):
        assert "left" not in told(terminal=terminal)
    text = told(terminal=True, name="my_project.kernels.attention:f?array=torch&device=cuda", columns=80)
    assert ", after 2 s" in text
    assert "my_project.kernels.attentio..." in text


def test_a_run_that_is_over_at_once_clears_nothing(monkeypatch):
    written = io.StringIO()
    written.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", written)
    one = Progress("m:f", 1)
    one.add(failing=False)
    one.end()
    assert written.getvalue() == ""
