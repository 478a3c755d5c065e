"""The error budget: no correct algorithm exceeds it, and every visible fault does."""

import re
from functools import reduce
from pathlib import Path

import numpy as np
import pytest

import attnspec
from attnspec.conformance.relations.rounding_bias import signed_mean
from attnspec.conformance.suite.datasets import DATASETS, problem
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate
from tools.algorithms import ALGORITHMS, EXCEEDING, by_difference, by_sigmoids, run
from tools.evidence import survey
from tools.faults import FAULTS
from tools.units import UNITS, aligned_sum

EVIDENCE = (Path(attnspec.__file__).parent / "evidence.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def trials():
    return survey(quick=True)


@pytest.mark.exhaustive
def test_no_correct_algorithm_exceeds_its_budget_and_every_fault_does(trials):
    correct = [trial for trial in trials if trial.subject.accuracy]
    assert len(correct) > 5000
    wrong = [
        (t.subject.name, t.problem.dataset, t.shares["own"]) for t in correct if not t.shares["own"] <= 1
    ]
    assert wrong == []
    faulty = [trial for trial in trials if trial.subject.name in FAULTS]
    concerned = {(trial.subject.name, trial.problem.dtype) for trial in faulty}
    assert concerned == {(name, dtype) for name, fault in FAULTS.items() for dtype in fault.dtypes}
    seen = {(trial.subject.name, trial.problem.dtype) for trial in faulty if trial.shares["full"] > 1}
    assert concerned - seen == set()
    for name, unit in UNITS.items():
        shares = [t.shares["own"] for t in trials if t.subject.name == name]
        assert shares
        assert bool(max(shares) <= 1) is (unit.accuracy is not None), name
    for name, unit in UNITS.items():
        if unit.dtypes == ("float32",) and unit.profile not in ("", "tf32x3"):  # whose scores exceed `full`
            assert any(t.shares["full"] > 1 for t in trials if t.subject.name == name)


@pytest.mark.parametrize("name", ["result truncated", "weights truncated"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_signed_mean_catches_truncation_and_no_correct_rounding(name, dtype):
    given = problem("positive-value", (64, 16, 32), dtype, 1)
    wide = {key: x.astype(np.float64) for key, x in given.arguments.items()}
    exact = {key: settled.values for key, settled in evaluate("attention", wide).items()}
    allowed = budget("attention", wide, dtype)["output"]

    def share(algorithm):
        got = run(algorithm, given).astype(np.float64)
        cast = exact["weights"], wide["value"]
        return signed_mean(got, exact["output"], allowed, dtype=dtype, cast=cast)

    assert share(ALGORITHMS["dense"]) < 1
    assert share(ALGORITHMS["weights cast"]) < 1
    assert share(FAULTS[name]) > 1


def test_the_signed_mean_lets_approximate_exponentials_have_a_sign():
    """Two keys, whose exponentials are off by 2**-13 in opposite directions: every output is too large."""
    rows = 2**16
    weights, value = np.full((rows, 2), 0.5), np.array([[1.0], [3.0]])
    exact = np.full((rows, 1), 2.0)
    last = exact * 2.0**-11
    for off, within in ((1, True), (2, False)):
        got = exact + off * 2.0**-13
        share = signed_mean(got, exact, last, dtype="float16", cast=(weights, value))
        assert (share <= 1) is within


@pytest.mark.parametrize("parts", [2, 8, 64, 256])
def test_parts_merged_two_at_a_time_by_sigmoids_stay_within_the_budget_of_merging(parts):
    """Each merge rounds the lse of what there is at its size."""
    most = 0.0
    for seed in range(8):
        random = np.random.default_rng([parts, seed])
        outputs, lses = random.normal(size=(parts, 4, 2)), 10000 + random.normal(size=(parts, 4))
        arguments = {"outputs": outputs, "lses": lses}
        exact = evaluate("merge_partials", arguments)
        allowed = budget("merge_partials", arguments, "float64")
        merged = reduce(by_sigmoids, zip(outputs, lses[..., None], strict=True))
        for got, name in zip((merged[0], merged[1][:, 0]), ("output", "lse"), strict=True):
            most = max(most, (np.abs(got - exact[name].values) / allowed[name]).max())
    assert most <= 1


def test_merging_by_a_difference_exceeds_it_where_a_part_of_small_weight_has_large_values():
    arguments = {"outputs": np.array([[[1e6]], [[1 / 3]]]), "lses": np.array([[-30.0], [1.0]])}
    parts = list(zip(arguments["outputs"], arguments["lses"][..., None], strict=True))
    exact = evaluate("merge_partials", arguments)["output"].values
    allowed = budget("merge_partials", arguments, "float64")["output"]
    assert np.abs(by_sigmoids(*parts)[0] - exact) < allowed
    assert np.abs(by_difference(*parts)[0] - exact) > 1000 * allowed


@pytest.mark.parametrize(
    ("name", "dataset", "size"),
    [
        ("merged by difference, 2 parts", "peaked-identity", (64, 16, 32)),
        ("merged by difference, 8 parts", "peaked-identity", (64, 16, 32)),
        ("denominator by logaddexp", "peaked", (2, 1024, 256)),
        ("lse by logaddexp", "common-shift", (4, 1024, 1)),
    ],
)
def test_what_in_use_exceeds_its_budget_does(name, dataset, size):
    algorithm, given = EXCEEDING[name], problem(dataset, size, "float64", 0)
    exact = evaluate("attention", given.arguments)[algorithm.output].values
    allowed = budget("attention", given.arguments, "float64")[algorithm.output]
    assert (np.abs(run(algorithm, given) - exact) > allowed).any()


def test_the_tables_are_of_these_algorithms_and_a_matrix_unit_drops_digits():
    for name in [*ALGORITHMS, *FAULTS, *EXCEEDING, *UNITS]:
        assert f"\n| {name} |" in EVIDENCE
    assert set(re.findall(r"(?:full|cast|profile|signed mean): ([a-z0-9.-]+) \d+ of", EVIDENCE)) <= set(
        DATASETS
    )
    assert "TOO LARGE" not in EVIDENCE
    assert float(aligned_sum(np.array([1.0, 2.0**-24, 2.0**-24, 2.0**-24]), 24)) == 1.0
    assert float(aligned_sum(np.array([1.0, 2.0**-23, 2.0**-24]), 24)) == 1 + 2.0**-23
