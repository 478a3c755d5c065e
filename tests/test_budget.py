"""Budgets are those of the formulas on the page, in which each number counts, and those written by hand."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from budget_calls import CALLS, PLAIN
from formulas import CHANGES, profiles, sections
from written_budgets import KINDS, OTHERS, PROBLEMS, USES

import attnspec
from attnspec.dtypes import numpy_dtype
from attnspec.reference import attention
from attnspec.reference.budget.arithmetic import PROFILES
from attnspec.reference.budget.budget import budget
from tools.gradient_algorithms import BACKWARDS, run
from tools.gradient_calls import DATASETS, exact, problem
from tools.gradient_evidence import EXCEEDING, trials
from tools.gradient_faults import GRADIENT_FAULTS


def test_one_key_allows_an_exponent_by_a_fused_multiply_add():
    """The exponential is not 1: its exponent is the rounding error of the maximum in base 2."""
    single, log2e, most = np.float32, np.float32(np.log2(np.e)), 0.0
    for s in np.linspace(-40, 40, 4001, dtype=single):
        shift = single(s * log2e)
        exponential = single(np.exp2(float(s) * float(log2e) - float(shift)))  # rounded once
        value = single(1 + abs(s) / 64)
        weight = single(exponential * single(1 / exponential))
        output = single(single(exponential * value) * single(1 / exponential))
        arguments = {"query": np.array([[s]]), "key": np.ones((1, 1)), "value": np.array([[value]])}
        allowed = budget("attention", arguments, "float32")
        for found, wanted, name in ((weight, 1, "weights"), (output, value, "output")):
            most = max(most, abs(float(found) - float(wanted)) / allowed[name][0, 0])
    assert 0.1 < most <= 0.5


def test_one_key_of_a_large_score_allows_the_cast_of_an_exponential_by_a_fused_multiply_add():
    """The exponential is off by as much as the maximum is rounded in base 2; it is summed before its cast."""
    single, half, log2e, most, beyond = np.float32, np.float16, np.float32(np.log2(np.e)), 0.0, 0.0
    values = np.arange(1, 2, 2.0**-7)
    for s in np.arange(16000, 16384, 8, dtype=single):
        shift = single(s * log2e)
        exponential = single(np.exp2(float(s) * float(log2e) - float(shift)))
        arguments = {"query": np.array([[s]]), "key": np.ones((1, 1)), "value": values[None]}
        allowed = budget("attention", arguments, "float16", accuracy="cast")["output"][0]
        output = (single(half(exponential)) * values / exponential).astype(half)
        most = max(most, (np.abs(output - values) / allowed).max())
        beyond = max(beyond, (np.abs((1 + 2.0**-11) * output.astype(float) - values) / allowed).max())
    assert 0.8 < most <= 1 < beyond


def sink_alone(sink, dtype, accuracy="full"):
    """The budget of the lse of a row that has a sink and no key."""
    one = np.ones((1, 1))
    arguments = {"query": one, "key": one, "value": one, "mask": np.zeros((1, 1), bool)}
    return budget("attention", arguments | {"sinks": np.array([sink])}, dtype, accuracy=accuracy)["lse"][0]


def test_an_lse_of_a_sink_alone_allows_a_conversion_to_base_2_and_an_approximate_exponential():
    """Production kernels do both: one rounding is too little, and no more than they need is allowed."""
    single, log2e, log2 = np.float32, np.float32(np.log2(np.e)), np.float32(np.log(2))
    sinks = np.linspace(-40, 40, 4001, dtype=single)
    off = np.abs((sinks * log2e * log2).astype(float) - sinks)
    allowed = np.array([sink_alone(sink, "float32") for sink in sinks])
    assert (off > 2.0**-24 * np.abs(sinks)).any()
    assert (off <= allowed).all()
    for sink in (-3.0, 0.5, 5.5):  # the maximum of no key is replaced by 0
        approximate = np.log(np.exp(sink) * (1 + 2.0**-13)) - sink
        assert sink_alone(sink, "float16") < approximate < sink_alone(sink, "float16", "cast")
        assert sink_alone(sink, "float16", "cast") < 1.02 * approximate
    assert budget("attention", PLAIN | {"mask": np.zeros((1, 1), bool)}, "float16")["lse"].max() == 0


@pytest.mark.parametrize("operation", ["packed_attention", "sharded_attention", "attention_vjp"])
def test_a_key_of_score_minus_infinity_counts_as_a_disallowed_one(operation):
    query, key = np.ones((1, 1, 2)), np.array([[[-np.inf, 200.0], [1.0, 1.0], [0.5, 0.2]]])
    arguments = {"query": query, "key": key, "value": np.array([[[0.0], [1000.0], [-999.0]]])}
    ends = {"query": np.array([0, 1]), "key": np.array([0, 3])}
    boundary = {"packed_attention": "starts", "sharded_attention": "shards"}.get(operation)
    arguments |= (
        {f"{key}_{boundary}": x for key, x in ends.items()} if boundary else {"d_output": query[..., :1]}
    )
    finite = np.where(np.isinf(key), 0, key)
    found = budget(operation, arguments, "float32")
    others = {"key": finite, "mask": np.array([[False, True, True]])}
    masked = budget(operation, arguments | others, "float32")
    for name, allowed in masked.items():
        np.testing.assert_array_equal(found[name], allowed)
    first = "d_value" if operation == "attention_vjp" else "output"
    assert (budget(operation, arguments | {"key": finite}, "float32")[first] != masked[first]).any()


def test_infinity_in_a_cap_has_a_budget():
    """The score is the cap, which has the error of its tanh only."""
    key = np.array([[np.inf], [0.0]])
    arguments = {"query": np.ones((1, 1)), "key": key, "value": np.array([[1.0], [2.0]]), "softcap": 3.0}
    far = budget("attention", arguments | {"key": np.where(np.isinf(key), 1e4, key)}, "float64")
    for name, found in budget("attention", arguments, "float64").items():
        np.testing.assert_allclose(found, far[name], rtol=1e-6)


def test_a_disallowed_score_that_overflows_leaves_the_lse_of_one_key_its_budget():
    one, key = np.ones((1, 1), np.float64), np.array([[1.0], [np.finfo(np.float64).max]])
    call = {"query": 4 * one, "key": key, "value": key}
    with np.errstate(over="ignore"):
        found = budget("attention", call | {"mask": np.array([[True, False]])}, "float64")
    alone = budget("attention", {"query": 4 * one, "key": one, "value": one}, "float64")
    assert found["lse"] == alone["lse"]


def test_minus_infinity_has_a_budget_where_it_is_capped():
    """It is capped to minus the cap, without an error besides those of tanh and product: 6 roundings."""
    zero = np.zeros((2, 1))
    arguments = {"query": zero[:1], "key": zero, "value": zero, "bias": np.array([[0.0, -np.inf]])}
    arguments |= {"softcap": 1.0}
    plain = budget("attention", arguments, "float64", capped_bias=True)["weights"]
    assert plain[0, 1] == 0
    capped = budget("attention", arguments, "float64", capped_bias=True, capped_infinity=True)["weights"]
    p = np.array([1, np.exp(-1)]) / (1 + np.exp(-1))
    e = np.array([4, 6 + 3 + 4])  # exponential; cap, shift and exponential
    first_order = p * (e + (p * e).sum() + (2 + 4) + 2 * 5 * np.log(2)) + p  # and the result
    assert np.allclose(capped[0], first_order * 2.0**-53, rtol=1e-9, atol=0)


def test_the_page_has_the_profiles_of_the_code():
    assert {*profiles()} == {(name, dtype) for name, dtypes in PROFILES.items() for dtype in dtypes}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", KINDS, ids=":".join)
def test_a_budget_is_that_of_the_page(name, kind):
    for found, written in PROBLEMS[name](*kind):
        np.testing.assert_allclose(found, written, rtol=1e-9, atol=0)


#: What a formula may say instead: another number, another operation.
_CHANGES = (
    (re.compile(r"(?<![\w.*])\d+(?:\.\d+)?(?![\w.*])(?<!e-\d)"), lambda found: str(float(found[0]) + 1)),
    (re.compile(r"(?<=2\*\*-)\d+"), lambda found: str(int(found[0]) + 1)),
    (re.compile(r" \+ "), lambda _: " - "),
    (re.compile(r" - "), lambda _: " + "),
    (re.compile(r" \* "), lambda _: " / "),
    (re.compile(r"\bmax\("), lambda _: "min("),
    (re.compile(r"\bmin\("), lambda _: "max("),
    (re.compile(r"\babs\("), lambda _: "("),
)


def changed_formulas():
    """Each formula with each of its numbers and operations changed, one at a time."""
    for heading, blocks in sections().items():
        for _, _, _, text in (formula for lines in blocks for formula in lines):
            for pattern, change in _CHANGES:
                for found in pattern.finditer(text):
                    yield heading, text, text[: found.start()] + change(found) + text[found.end() :]


def is_seen(heading):
    """Whether a budget that needs a section differs from that of the code, or has none any more."""
    for kind in (*KINDS[-1:], *KINDS):
        for name in USES.get(heading, [*CALLS, *OTHERS]):
            try:
                if not all(np.allclose(*pair, rtol=1e-9, atol=0) for pair in PROBLEMS[name](*kind)):
                    return True
            except (ArithmeticError, ValueError, IndexError, KeyError, TypeError):
                return True
    return False


#: Bounds that no call with few keys reaches, and a divisor where there is one pair, whose exponent is 0.
#: Also changes without effect here: frequencies are positive, `short` is 1, no gradient is subnormal, and the
#: base of yarn exceeds 1 (POS-25).
UNREACHED = (
    *("[scaling] * (value)", "u_s / short[n, m]", "abs(gradient[n, c]), least_s / 3.0"),
    "4 * R / (2 * (log(base)))",
)


@pytest.mark.exhaustive
def test_every_number_and_every_operation_of_a_formula_counts(monkeypatch):
    unseen = []
    for heading, text, other in changed_formulas():
        with monkeypatch.context() as patch:
            patch.setitem(CHANGES, text, other)
            left_out = any(x in text for x in ("1 / 2)", "max(R - 2")) or any(x in other for x in UNREACHED)
            if not left_out and not is_seen(heading):
                unseen.append((heading, other))
    assert unseen == []


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


def test_budgets_by_hand():
    # One key, all numbers 1: every term, to first order, in units of float32.
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
    # An approximate exponential here and one in the lse, and a rounded weight.
    full, cast = (of(one_key(), "float16", accuracy=name)["d_value"][0, 0] for name in ("full", "cast"))
    assert np.isclose(cast - full, 2 * 2.0**-13 + 2.0**-11, rtol=2e-3, atol=0)
    # Twice the six units of the tanh, and one, times the gradient before the softcap.
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


def test_what_a_loss_or_a_mask_leaves_out_has_no_budget():
    allowed = of(problem("lse-alone", SMALL, "bfloat16", 0).arguments, "bfloat16", accuracy="cast")
    assert not allowed["d_value"].any()
    assert allowed["d_query"].all()
    given = dict(problem("full-bias", SMALL, "float16", 0).arguments)
    given["bias"][:, :, 2] = -np.inf  # a query with no key
    given["bias"][..., 5] = -np.inf  # a key with no query
    for accuracy in ("full", "cast"):
        allowed = of(given, "float16", accuracy=accuracy)
        assert not allowed["d_query"][:, :, 2].any()
        assert not any(allowed[name][..., 5, :].any() for name in ("d_key", "d_value"))
        np.testing.assert_array_equal(allowed["d_bias"] == 0, given["bias"] == -np.inf)
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
    got = run(BACKWARDS["cast in tiles"], given)
    expected, allowed = exact(given, "float16"), of(given, "float16")
    assert trial.most() <= 1
    assert any((np.abs(got[name] - expected[name]) > allowed[name]).any() for name in got)
    for name in [*BACKWARDS, *GRADIENT_FAULTS, *EXCEEDING]:
        assert f"\n| {name} |" in EVIDENCE
    assert "TOO LARGE" not in EVIDENCE


def test_the_table_of_allowed_errors_has_the_budgets_of_its_inputs():
    page = Path(attnspec.__file__).with_name("derivation.md").read_text(encoding="utf-8")
    table = page.partition("## Allowed errors, by example")[2].partition("\n## ")[0]
    rows = [[x.strip() for x in line.strip("|").split("|")] for line in table.splitlines() if "|" in line]
    assert [int(row[0]) for row in rows[2:]] == [64, 256, 1024, 2048, 4096, 16384]
    for keys, size, *cells in rows[2:]:
        rng = np.random.default_rng(0)
        normal = [rng.normal(size=(1, length, 64)) for length in (16, int(keys), int(keys))]
        names = ("query", "key", "value")
        output = attention(*normal)
        assert f"{np.sqrt((output**2).mean()):.2g}" == size
        for dtype, cell in zip(rows[0][2:], cells, strict=True):
            arrays = [array.astype(numpy_dtype(dtype)).astype(np.float64) for array in normal]
            accuracy = "full" if dtype == "float32" else "cast"
            budgets = budget("attention", dict(zip(names, arrays, strict=True)), dtype, accuracy=accuracy)
            errors = np.broadcast_to(budgets["output"], output.shape)
            assert f"{np.median(errors):.1e} to {errors.max():.1e}" == cell, (keys, dtype)
