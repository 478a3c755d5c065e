"""The budget of a gradient: terms by hand, elements with a budget of 0, and results inside and outside."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import attnspec
from attnspec.reference import attention
from attnspec.reference.budget.budget import budget
from tools.gradient_algorithms import BACKWARDS, run
from tools.gradient_calls import DATASETS, exact, problem
from tools.gradient_evidence import EXCEEDING, trials
from tools.gradient_faults import GRADIENT_FAULTS

EVIDENCE = (Path(attnspec.__file__).parent / "evidence.md").read_text(encoding="utf-8")
#: Shared heads, and a depth that a block of products does not fill.
SMALL, DEEP = (1, 4, 2, 7, 16, 16, 16), (1, 2, 1, 16, 17, 64, 32)
#: A data set on which each fault shows.
SHOWS = {
    "delta in half": ("positive", DEEP),
    "softmax backward in half": ("lse-alone", DEEP),
    "weights of scores in half": ("common-shift", SMALL),
    "lse in half": ("amplitude-16", SMALL),
    "tanh in half": ("softcap", DEEP),
    "sums over queries in half": ("flat", SMALL),
    "sums over keys in half": ("lse-alone", DEEP),
    "group summed in half": ("flat", SMALL),
    "results truncated": ("plain", SMALL),
    "exponentials off by 1e-3": ("window", SMALL),
    "last query missing": ("causal", SMALL),
    "tf32 undeclared": ("flat", SMALL),
    "float64 in float32": ("amplitude-16", SMALL),
}


def of(arguments, dtype, **options):
    return budget("attention_vjp", arguments, dtype, **options)


def one_key(**options):
    one = np.ones((1, 1))
    return {"query": one, "key": one, "value": one, "d_output": one, "scale": 1.0, **options}


def test_a_budget_by_hand():
    """One key, all numbers 1: every term, to first order, in units of float32."""
    got = {name: x[0, 0] * 2.0**24 for name, x in of(one_key(), "float32").items()}
    score = 1 + 6
    lse = score + 3 * 1 + 1  # the logarithm is 0: its shift, and the rounding of the result
    weight = score + lse + 2 * 1 + 4  # conversions to base 2, and the exponential
    cotangent = 1 + 2
    mean = weight + cotangent + 1
    difference = cotangent + mean + 2 * (1 + 1)
    assert np.isclose(got["d_query"], difference, rtol=1e-5, atol=0)
    assert np.isclose(got["d_key"], difference, rtol=1e-5, atol=0)
    assert np.isclose(got["d_value"], weight + 1 + 1, rtol=1e-5, atol=0)


def test_what_the_class_cast_adds_by_hand():
    """An approximate exponential here and one in the lse, and a rounded weight."""
    full, cast = (of(one_key(), "float16", accuracy=name)["d_value"][0, 0] for name in ("full", "cast"))
    assert np.isclose(cast - full, 2 * 2.0**-13 + 2.0**-11, rtol=2e-3, atol=0)


def test_far_beyond_the_softcap_the_slope_is_as_wrong_as_the_tanh():
    """Twice the six units of the tanh, and one, times the gradient before the softcap."""
    query, key = np.array([[1.0]]), np.array([[50.0], [60.0]])
    arguments = {"query": query, "key": key, "value": np.array([[1.0], [-1.0]]), "d_output": query}
    got = of({**arguments, "scale": 1.0, "softcap": 1.0}, "float64")["d_query"][0, 0] * 2.0**53
    t = 1 / 2  # both weights are 1 / 2, and the mean is 0
    assert np.isclose(got, 13 * t * (50 + 60), rtol=1e-6, atol=0)


@pytest.mark.parametrize("accuracy", ["full", "cast", "storage"])
def test_cotangents_of_zero_leave_nothing_to_round(accuracy):
    given = dict(problem("all-options", SMALL, "float16", 0).arguments)
    given |= {"d_output": 0 * given["d_output"], "d_lse": 0 * given["d_lse"]}
    for name, allowed in of(given, "float16", accuracy=accuracy).items():
        assert allowed.shape == given[name[2:]].shape
        assert not allowed.any()


def test_a_loss_on_the_lse_alone_moves_no_value():
    allowed = of(problem("lse-alone", SMALL, "bfloat16", 0).arguments, "bfloat16", accuracy="cast")
    assert not allowed["d_value"].any()
    assert allowed["d_query"].all()


def test_a_disallowed_pair_has_no_budget():
    given = dict(problem("full-bias", SMALL, "float16", 0).arguments)
    given["bias"][:, :, 2] = -np.inf  # a query with no key
    given["bias"][..., 5] = -np.inf  # a key with no query
    for accuracy in ("full", "cast"):
        allowed = of(given, "float16", accuracy=accuracy)
        assert not allowed["d_query"][:, :, 2].any()
        assert not any(allowed[name][..., 5, :].any() for name in ("d_key", "d_value"))
        np.testing.assert_array_equal(allowed["d_bias"] == 0, given["bias"] == -np.inf)


def test_an_empty_row_that_is_a_mean_has_a_part_in_the_gradient_of_values_alone():
    given = {**one_key(), "mask": np.zeros((1, 1), bool)}
    allowed = of(given, "float32", uniform_rows=True)
    assert allowed["d_value"].all()
    assert not allowed["d_query"].any()
    assert not any(x.any() for x in of(given, "float32").values())


def test_classes_and_profiles_allow_more_and_more():
    given = problem("all-options", SMALL, "float16", 0).arguments
    budgets = [of(given, "float16", accuracy=name) for name in ("full", "cast", "storage")]
    for less, more in pairwise(budgets):
        assert all((less[name] <= more[name]).all() and (less[name] < more[name]).any() for name in less)
    budgets = [of(given, "float32", profile=name) for name in ("", "bf16x3", "tf32", "bf16")]
    for less, more in pairwise(budgets):
        assert all((less[name] <= more[name]).all() for name in less)
    full, cast = (of(given, "float32", accuracy=name) for name in ("full", "cast"))
    assert all((full[name] == cast[name]).all() for name in full)


def test_the_gradient_of_a_bias_is_rounded_to_the_dtype_of_the_bias():
    given = problem("full-bias", SMALL, "float16", 0).arguments
    short = of(given, "float16")["d_bias"]
    long = of({**given, "bias": given["bias"].astype(np.float32)}, "float16")["d_bias"]
    largest = np.abs(exact(given, "float16")["d_bias"]).astype(float) + long
    assert np.allclose(short - long, np.maximum(2.0**-11 * largest, 2.0**-25), rtol=1e-3, atol=0)


def test_two_axes_are_one_head():
    given = problem("all-options", (1, 1, 1, 3, 5, 4, 2), "float64", 0).arguments
    flat = {name: x[0, 0] if np.ndim(x) == 4 and name != "bias" else x for name, x in given.items()}
    flat |= {"d_lse": given["d_lse"][0, 0], "bias": given["bias"][0, 0]}
    for (name, of_one), of_head in zip(
        of(flat, "float64").items(), of(given, "float64").values(), strict=True
    ):
        assert of_one.shape == flat[name[2:]].shape
        np.testing.assert_array_equal(of_one.ravel(), of_head.ravel())


def test_the_exact_gradients_are_those_of_the_loss():
    """Against a difference of losses, along a random direction for each array."""
    given = problem("all-options", SMALL, "float64", 0).arguments
    found = exact(given, "float64")
    options = {name: x for name, x in given.items() if name not in ("d_output", "d_lse")}

    def loss(arguments):
        output, lse = attention(**arguments, return_lse=True)
        return (given["d_output"] * output).sum() + (given["d_lse"] * lse).sum()

    for name, gradient in found.items():
        along = np.random.default_rng(1).normal(size=gradient.shape)
        ends = [loss({**options, name[2:]: given[name[2:]] + step * along}) for step in (1e-5, -1e-5)]
        assert np.isclose((ends[0] - ends[1]) / 2e-5, float((gradient * along).sum()), rtol=1e-6, atol=0), (
            name
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_correct_algorithms_are_within(dtype):
    shapes = ((1, 2, 1, 5, 9, 4, 3), (1, 1, 1, 1, 1, 1, 1))
    some = [problem(name, size, dtype, 1) for name in DATASETS for size in shapes]
    for trial in trials(some, BACKWARDS):
        assert trial.most() <= 1, (trial.name, trial.problem.dataset, trial.shares["own"])


@pytest.mark.parametrize("name", GRADIENT_FAULTS)
def test_faults_are_beyond(name):
    fault, (dataset, size) = GRADIENT_FAULTS[name], SHOWS[name]
    for dtype in fault.dtypes:
        [trial] = trials([problem(dataset, size, dtype, 0)], {name: fault})
        assert trial.most("full") > 1, dtype


def test_what_is_cast_is_not_full():
    [trial] = trials([problem("plain", SMALL, "float16", 0)], {"cast": BACKWARDS["cast in tiles"]})
    given = trial.problem.arguments
    got, expected, allowed = (
        run(BACKWARDS["cast in tiles"], given),
        exact(given, "float16"),
        of(given, "float16"),
    )
    assert trial.most() <= 1
    assert any((np.abs(got[name] - expected[name]) > allowed[name]).any() for name in got)


def test_the_tables_of_the_chapter_are_of_these_algorithms():
    for name in [*BACKWARDS, *GRADIENT_FAULTS, *EXCEEDING]:
        assert f"\n| {name} |" in EVIDENCE
    assert "TOO LARGE" not in EVIDENCE
