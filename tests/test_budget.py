"""The error budget equals its terms, which are written out by hand."""

from pathlib import Path

import numpy as np

import attnspec
from attnspec.reference.budget.budget import budget

NUMERICS = (Path(attnspec.__file__).parent / "numerics.md").read_text(encoding="utf-8")


def full_and_cast(arguments, dtype, output="output", **options):
    """The budget of the first element in two classes."""
    for name in ("full", "cast"):
        yield budget("attention", arguments, dtype, accuracy=name, **options)[output].flat[0]


def test_one_key_allows_an_exponent_by_a_fused_multiply_add():
    """The exponential is not 1: its exponent is the rounding error of the maximum in base 2."""
    single, log2e = np.float32, np.float32(np.log2(np.e))
    most = 0.0
    for s in np.linspace(-40, 40, 4001, dtype=single):
        shift = single(s * log2e)
        exponential = single(np.exp2(float(s) * float(log2e) - float(shift)))  # rounded once
        value = single(1 + abs(s) / 64)
        weight = single(exponential * single(1 / exponential))
        output = single(single(exponential * value) * single(1 / exponential))
        arguments = {"query": np.array([[s]]), "key": np.ones((1, 1)), "value": np.array([[value]])}
        allowed = budget("attention", arguments, "float32")
        for found, exact, name in ((weight, 1, "weights"), (output, value, "output")):
            share = abs(float(found) - float(exact)) / allowed[name][0, 0]
            most = max(most, share)
    assert 0.1 < most <= 0.5


def test_one_key_of_a_large_score_allows_the_cast_of_an_exponential_by_a_fused_multiply_add():
    """The exponential is off by as much as the maximum is rounded in base 2; it is summed before its cast."""
    single, half, log2e = np.float32, np.float16, np.float32(np.log2(np.e))
    values = np.arange(1, 2, 2.0**-7)
    most, beyond = 0.0, 0.0
    for s in np.arange(16000, 16384, 8, dtype=single):
        shift = single(s * log2e)
        exponential = single(np.exp2(float(s) * float(log2e) - float(shift)))
        arguments = {"query": np.array([[s]]), "key": np.ones((1, 1)), "value": values[None]}
        allowed = budget("attention", arguments, "float16", accuracy="cast")["output"][0]
        output = (single(half(exponential)) * values / exponential).astype(half)
        most = max(most, (np.abs(output - values) / allowed).max())
        beyond = max(beyond, (np.abs((1 + 2.0**-11) * output.astype(float) - values) / allowed).max())
    assert 0.8 < most <= 1 < beyond


def test_a_tanh_is_approximate_in_the_class_cast_of_half_precision_alone():
    """The tanh of a GPU is off by 1.113e-5 of itself. Ten times that is a fault."""
    x, cap = np.linspace(0.5, 60, 200), 30.0
    arguments = {"query": x[:, None], "key": np.ones((1, 1)), "value": np.ones((1, 1)), "softcap": cap}
    full, cast = (
        budget("attention", arguments, "float16", accuracy=name)["lse"] for name in ("full", "cast")
    )
    approximate, within = 2.0**-13 + 2.0**-16 * cap * np.tanh(x / cap), 1.113e-5 * cap * np.tanh(x / cap)
    assert np.allclose(cast - full, approximate, rtol=1e-3, atol=0)
    assert ((within > full) & (within < cast))[10:].all()
    assert (10 * within > cast)[30:].all()
    scores = {name: arguments[name] for name in ("query", "key", "softcap")}
    single = [budget("scores", scores, "float32", accuracy=name)["scores"] for name in ("full", "cast")]
    assert (single[0] == single[1]).all()


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


def test_the_class_cast_allows_nothing_more_where_the_storage_is_the_longer_format():
    one, two = np.ones((1, 1)), np.ones((2, 1))
    arguments = {"query": one, "key": two, "value": two}
    full, cast = full_and_cast(arguments, "float64", "lse", working="float32")
    assert full == cast
