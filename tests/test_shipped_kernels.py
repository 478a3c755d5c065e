"""No correct algorithm or shipped kernel exceeds the budget of its class or profile; visible faults do."""

import re
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path

import numpy as np
import pytest

import attnspec
from attnspec.conformance.relations.rounding_bias import signed_mean
from attnspec.conformance.suite.datasets import DATASETS, Problem, problem
from attnspec.dtypes import numpy_dtype
from attnspec.reference import attention
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate
from tools.algorithms import ALGORITHMS, EXCEEDING, Algorithm, by_difference, by_sigmoids, divide, finite, run
from tools.evidence import survey
from tools.faults import FAULTS
from tools.units import SHORT_WEIGHTS, UNITS, aligned_sum, multiply, split_by_cutting, split_in_three

LOG2E = np.float32(np.log2(np.e))


def share(algorithm, given, accuracy, profile="", **options):
    """The largest part of its budget that any element of a result uses."""
    wide = {name: x if x.dtype == bool else x.astype(np.float64) for name, x in given.arguments.items()}
    exact = dict(zip(("output", "lse"), attention(**wide, **options, return_lse=True), strict=True))
    allowed = budget("attention", wide | options, given.dtype, accuracy=accuracy, profile=profile)
    got = run(algorithm, given).astype(np.float64)
    with np.errstate(invalid="ignore"):  # 0 of 0
        return np.nanmax(np.abs(got - exact[algorithm.output]) / allowed[algorithm.output])


def in_tiles(head, tile, rescale, weigh, result):
    """Attend in tiles of keys, with functions for the exponentials of maxima before and of scores."""
    top = np.full((len(head.query), 1), -np.inf, np.float32)
    total, output = np.zeros_like(top), np.zeros((len(top), head.value.shape[-1]), np.float32)
    for start in range(0, len(head.key), tile):
        part = slice(start, start + tile)
        scores = np.where(head.allowed[:, part], head.scores[:, part], -np.inf).astype(np.float32)
        top, before = np.maximum(top, scores.max(axis=-1, keepdims=True)), top
        kept, weights = rescale(before, finite(top)), weigh(scores, finite(top))
        total = total * kept + weights.sum(axis=-1, keepdims=True)
        output = output * kept + weights.astype(head.storage).astype(np.float32) @ head.value[part]
    return (np.log(total) + top)[:, 0] if result == "lse" else divide(output, total)


def fused(head, *, maximum=np.float32, result="output"):
    """Compute `exp2(s c - m)` by fused multiply-adds, where `m` is the rounded product of a maximum."""

    def exp2(scores, top):
        m = (top * LOG2E).astype(maximum)
        return np.exp2((scores.astype(np.float64) * LOG2E - m).astype(np.float32))

    return in_tiles(head, 16, lambda before, top: np.exp2((before - top) * LOG2E), exp2, result)


def capped(head, *, cap, tanh, result="output"):
    """Apply a softcap."""
    scores = head.mask((cap * tanh(head.scores / np.float32(cap))).astype(np.float32))
    top = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - top)
    total = exponentials.sum(axis=-1, keepdims=True)
    if result == "lse":
        return (np.log(total) + top)[:, 0]
    return divide(exponentials.astype(head.storage).astype(np.float32) @ head.value, total)


def approximate_tanh(x):
    """The tanh of a GPU, which is off by up to 1.113e-5 of itself."""
    return np.tanh(x) * (1 + 1.1e-5 * np.sin(40 * x))


def short_tanh(x):
    return np.tanh(x).astype(np.float16).astype(np.float32)


class Biased:
    """Attention whose exponentials are all too large, in tiles whose maximum rises each time."""

    def __init__(self, tile, bias):
        self.tile, self.bias = tile, bias

    def __call__(self, head, *, result="output"):
        def exponential(x, top):
            x = x - top
            return (np.exp(x.astype(np.float64)) * (1 + self.bias * (x < 0))).astype(np.float32)

        return in_tiles(head, self.tile, exponential, exponential, result)


def rising(keys=1024):
    """Scores that rise by 1e-4 from key to key."""
    key = 1e-4 * np.arange(keys, dtype=np.float32)[:, None]
    value = np.random.default_rng(1).normal(size=(keys, 2)).astype(np.float32)
    return Problem("rising", np.ones((1, 1), np.float32), key, value, np.ones((1, keys), bool), 0)


@pytest.mark.parametrize("result", ["output", "lse"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_tanh_of_a_gpu_is_within_the_class_cast_and_one_in_half_precision_is_not(dtype, result):
    given = problem("amplitude-4", (16, 64, 64), dtype, 0)
    shares = [
        share(Algorithm(partial(capped, cap=50.0, tanh=tanh), output=result), given, "cast", softcap=50.0)
        for tanh in (approximate_tanh, short_tanh)
    ]
    assert shares[0] <= 1
    assert shares[1] > 1 or result == "output"


@pytest.mark.parametrize("dataset", ["common-shift", "amplitude-20", "plain"])
@pytest.mark.parametrize(
    ("dtype", "accuracy"), [("float16", "cast"), ("bfloat16", "cast"), ("float32", "full")]
)
def test_exp2_after_a_fused_multiply_add_is_within_and_with_a_product_in_half_precision_it_is_not(
    dataset, dtype, accuracy
):
    given = problem(dataset, (4, 128, 128), dtype, 0)
    for result in ("output", "lse"):
        assert share(Algorithm(fused, output=result), given, accuracy) <= 1
    assert share(Algorithm(partial(fused, maximum=np.float16), output="lse"), given, accuracy) > 1


@pytest.mark.parametrize("result", ["output", "lse"])
def test_exponentials_with_a_bias_of_two_units_are_within_in_tiles_and_not_key_by_key(result):
    """Each exponential is too large by up to `4 u`, its rounding included, and so is each rescaling."""
    u = 2.0**-24
    assert share(Algorithm(Biased(8, 3 * u), output=result), rising(), "full") <= 1
    assert share(Algorithm(Biased(1, 3 * u), output="lse"), rising(), "full") > 1
    assert share(Algorithm(Biased(8, 64 * u), output="lse"), rising(), "full") > 1


#: A problem on which each fault of a unit shows.
SHOWS = ("plain", "amplitude-4", "amplitude-0.01", "identity-value", "peaked-identity", "common-shift")


@pytest.mark.parametrize("name", [*UNITS, *SHORT_WEIGHTS])
def test_units_are_within_their_class_or_profile_and_their_faults_are_not(name):
    unit = {**UNITS, **SHORT_WEIGHTS}[name]
    shares = [
        share(unit, problem(dataset, size, dtype, 0), "cast" if dtype != "float32" else "full", unit.profile)
        for dataset in SHOWS
        for size in ((5, 33, 16), (6, 3, 1))
        for dtype in unit.dtypes
    ]
    assert bool(max(shares) <= 1) is (unit.accuracy is not None)


@pytest.mark.parametrize("name", ["CDNA 1", "CDNA 2", "CDNA 3"])
def test_the_lse_of_cdna_is_within_too(name):
    unit = replace(UNITS[name], output="lse")
    for dataset in SHOWS:
        assert share(unit, problem(dataset, (5, 33, 16), "float16", 0), "cast", unit.profile) <= 1


def subnormal(dtype="float16"):
    """Subnormal keys, and queries so large that they count; subnormal values that are all there is."""
    random, storage = np.random.default_rng(2), numpy_dtype(dtype)
    query, key, value = (
        4e4 * random.normal(size=(3, 4)).clip(-1.5, 1.5),
        3e-5 * random.normal(size=(9, 4)),
        random.normal(size=(9, 2)),
    )
    arrays = (x.astype(storage) for x in (query, key, value))
    return Problem("subnormal", *arrays, np.ones((3, 9), bool), 0)


def test_subnormal_factors_may_be_flushed_where_it_is_declared_and_not_otherwise():
    flushing, given = UNITS["CDNA 2"], subnormal()
    assert share(UNITS["CDNA 1"], given, "cast") <= 1
    assert share(flushing, given, "cast", "flushed") <= 1
    assert share(flushing, given, "cast") > 100
    # One product of 1 and others that are just below what is shifted out: the largest loss.
    for block, digits, within in ((16, 14, True), (32, 14, True), (16, 13, False), (32, 13, False)):
        query = np.array([[1.0, *[2.0**-7] * (4 * block - 1)]])
        key = np.array([[1.0, *[2.0 ** (8 - digits) * (1 - 2.0**-4)] * (4 * block - 1)]])
        arguments = {"query": query, "key": key, "scale": 1.0}
        allowed = budget("scores", arguments, "float32", profile="fp8-14")["scores"][0, 0]
        got = multiply([(query, key.T)], block=block, add=partial(aligned_sum, digits=digits))[0, 0]
        assert bool(abs(got - (query * key).sum()) <= allowed) is within


@pytest.mark.parametrize(("split", "most"), [(split_in_three, 0.5), (split_by_cutting, 4.0)])
def test_scores_by_six_products_of_bfloat16_are_full_and_by_three_of_tf32_need_their_profile(split, most):
    random = np.random.default_rng(0)
    query, key = (random.normal(size=(size, 1)).astype(np.float32) for size in (150, 40))
    arguments = {"query": query.astype(float), "key": key.astype(float), "scale": 1.0}
    got = multiply(split(query, key.T.copy()), block=4, add=partial(aligned_sum, digits=24))
    shares = {
        profile: (np.abs(got - arguments["query"] @ arguments["key"].T) / allowed["scores"]).max()
        for profile in ("", "tf32x3")
        if (allowed := budget("scores", arguments, "float32", profile=profile))
    }
    assert most / 4 < shares[""] < most
    assert shares["tf32x3"] <= 1


EVIDENCE = (Path(attnspec.__file__).parent / "evidence.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def trials():
    return survey(quick=True)


@pytest.mark.exhaustive
def test_no_correct_algorithm_exceeds_its_budget_and_every_fault_does(trials):
    correct = [trial for trial in trials if trial.subject.accuracy]
    assert len(correct) > 5000
    wrong = [(t.subject.name, t.problem.dataset, t.shares) for t in correct if not t.shares["own"] <= 1]
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
    assert {*re.findall(r"(?:full|cast|profile|signed mean): ([a-z0-9.-]+) \d+ of", EVIDENCE)} <= {*DATASETS}
    assert "TOO LARGE" not in EVIDENCE
    assert float(aligned_sum(np.array([1.0, 2.0**-24, 2.0**-24, 2.0**-24]), 24)) == 1.0
    assert float(aligned_sum(np.array([1.0, 2.0**-23, 2.0**-24]), 24)) == 1 + 2.0**-23
