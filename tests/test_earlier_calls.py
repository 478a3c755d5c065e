"""A call that fails only after another one: the report makes both calls again."""

import subprocess
import sys
import textwrap
from dataclasses import replace
from itertools import takewhile
from math import inf

import pytest
from reported import FAIL, PASS
from tests_support import command

from attnspec.conformance.render.reproduction import check_command, reproduction
from attnspec.conformance.run import pool
from attnspec.conformance.run.plan import Outline

#: The causal mask of the first call of each number of queries and keys serves the others.
KERNEL = """
import numpy as np

masks = {}


def attention(query, key, value, *, is_causal=False):
    shape = query.shape[-2], key.shape[-2]
    if shape not in masks:
        masks[shape] = np.tri(*shape, dtype=bool) if is_causal else np.ones(shape, bool)
    scores = query @ np.swapaxes(key, -1, -2) * query.shape[-1] ** -0.5
    scores = np.where(masks[shape], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""
FAILING = replace(FAIL, case="causal-float32", sizes=(1, 1, 1, 4, 5, 8, 8))


def outline(name, queries=4):
    return Outline(name, "g", ("MASK-3",), "float32", sizes=(1, 1, 1, queries, 5, 8, 8))


@pytest.mark.parametrize("culprit", ["c0", "c3", "c6", "other-size", "none", "two"])
def test_one_earlier_call_is_found_by_halves(culprit, monkeypatch):
    monkeypatch.setattr(pool, "_MOST_OF_SEARCH", inf)
    done = [outline("other-size", 9), *(outline(f"c{n}") for n in range(7))]
    wanted = {"c1", "c5"} if culprit == "two" else {culprit}
    trials = []

    def trial(calls):
        trials.append(calls)
        return FAILING if wanted <= {case.name for case in calls} else PASS

    found = pool.earlier_call(trial, done, FAILING)
    assert found == (None if culprit in ("none", "two") else (culprit, FAILING))
    assert len(trials) <= 12


def test_the_report_makes_the_earlier_call_first(tmp_path, monkeypatch):
    (tmp_path / "cached.py").write_text(KERNEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "_MOST_OF_SEARCH", inf)  # the machine may be busy
    run = command("check", "cached:attention", "--smoke", status=1)
    assert "depends on earlier calls" in run.output
    program = run.output.partition("reproduce:\n")[2].splitlines()
    lines = [*takewhile(lambda line: line.startswith("    "), program)]
    printed = {}
    for earlier in (True, False):
        kept = [line for line in lines if earlier or not line.strip().startswith("judge(")]
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent("\n".join(kept))],
            capture_output=True,
            text=True,
            check=True,
        )
        printed[earlier] = [float(word) for word in done.stdout.split()]
    assert printed[True][0] != pytest.approx(printed[True][1], rel=1e-3)
    assert printed[False][0] == pytest.approx(printed[False][1], rel=1e-3)


def test_a_call_that_passes_alone_has_no_program_of_one_call():
    found = replace(FAIL, alone=False)
    assert "repeat the whole run" in reproduction(found)
    both = replace(found, after="first-float32")
    assert '\njudge(backend, find("first-float32"))' in reproduction(both)
    assert check_command(both).endswith(f"--case first-float32 --case {FAIL.case}")
