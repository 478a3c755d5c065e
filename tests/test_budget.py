"""The error budget equals its terms, which are written out by hand."""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np

import attnspec
from attnspec.dtypes import FORMATS
from attnspec.reference.budget.arithmetic import PROFILES
from attnspec.reference.budget.budget import budget

NUMERICS = (Path(attnspec.__file__).parent / "numerics.md").read_text(encoding="utf-8")


def full_and_cast(arguments, dtype, output="output", **options):
    """The budget of the first element in two classes."""
    for name in ("full", "cast"):
        yield budget("attention", arguments, dtype, accuracy=name, **options)[output].flat[0]


def test_a_budget_by_hand():
    """Two keys, depth 1: every term of the bound, written out."""
    unit = 2.0**-24
    query, key, value = np.array([[1.0]]), np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])
    got = budget("attention", {"query": query, "key": key, "value": value, "scale": 1.0}, "float32")["output"]
    p = 1 / (1 + np.exp(-1.0))  # of key 1, whose value 1 is the output's only part
    off = [unit * (0 + 3 * 1 + 4), unit * (7 * 1 + 0 + 4)]  # of each exponential: score, shift, exponential
    spread = (1 - p) * np.expm1(off[0]) * p + p * np.expm1(off[1]) * (1 - p)
    sums = 2 * (2 + 4) * unit * p
    merging = 2 * unit * (1 + 5 * np.log(2)) * p
    assert np.isclose(got[0, 0], spread + sums + merging + unit * p, rtol=1e-5, atol=0)


def test_a_budget_by_hand_in_the_class_cast():
    """What casting the weights adds: a unit of float16 for each, and half a subnormal."""
    query, key, value = np.array([[1.0]]), np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])
    arguments = {"query": query, "key": key, "value": value, "scale": 1.0}
    full, cast = full_and_cast(arguments, "float16")
    p = 1 / (1 + np.exp(-1.0))
    spread = 2 * p * (1 - p)
    # An exponential may be off by 2**-13 besides, and a rounded weight by 2**-11.
    # The denominator may be too small by 2**-13 where the exponential is too large.
    added = np.expm1(2.0**-13) * np.exp(2.0**-13) * spread + 2.0**-11 * max(p, spread) + 2.0**-25
    assert np.isclose(cast - full, added * (1 + 2.0**-11), rtol=1e-5, atol=0)


def test_an_lse_of_approximate_exponentials():
    """In the class cast of a half precision, and nowhere else, whether there are two keys or one."""
    one = np.ones((1, 1))
    for keys in (1, 2):
        key = np.ones((keys, 1))
        for dtype, added in (("float16", 2.0**-13), ("bfloat16", 2.0**-13), ("float32", 0), ("float64", 0)):
            full, cast = full_and_cast({"query": one, "key": key, "value": key}, dtype, "lse")
            assert np.isclose(cast - full, added, rtol=1e-3, atol=0)


def test_a_bias_is_rounded_once_more():
    query, key = np.zeros((1, 1)), np.zeros((2, 1))
    arguments = {"query": query, "key": key, "bias": np.array([[1024.0, 1024.0]])}
    allowed = budget("scores", arguments, "float64")["scores"]
    assert np.allclose(allowed, 2 * 1024 * 2.0**-53, rtol=1e-9, atol=0)  # the sum, and the result


def test_one_key_leaves_the_roundings_of_its_two_sums_the_last_one_and_an_approximate_exponential():
    """Five roundings each of numerator and denominator, in float32, and the cast of one that is not 1."""
    one, sums = np.ones((1, 1)), 2 * 5 * 2.0**-24
    allowed = full_and_cast({"query": one, "key": one, "value": 1.5 * one}, "float16")
    for found, approximate in zip(allowed, (0, 2.0**-13 + 2.0**-24), strict=True):
        error = sums + approximate
        assert np.isclose(found, 1.5 * (error + 2.0**-11 * (1 + error)), rtol=1e-12, atol=0)


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


def test_the_budget_of_merging_is_that_of_the_chapter():
    """Eight parts, and eight of which one has a share: the formulas as the chapter writes them."""
    u, parts = 2.0**-53, 8
    outputs = np.linspace(-2, 3, parts)[:, None, None]
    for lses in (
        np.linspace(98, 102, parts)[:, None],
        np.where(np.arange(parts) == 3, 100, -np.inf)[:, None],
    ):
        allowed = budget("merge_partials", {"outputs": outputs, "lses": lses}, "float64")
        lse = np.log(np.exp(lses - 100).sum()) + 100
        share, far = np.exp(lses - lse)[:, 0], np.abs(lses - lse)[:, 0]
        size = share * np.abs(outputs[:, 0, 0])
        with np.errstate(invalid="ignore", over="ignore"):
            eps = np.expm1(u * (3 * far + (parts - 1) * (abs(lse) + far + 8)))
            several = 2 * (np.where(share > 0, size * eps, 0).sum() + (parts + 4) * u * size.sum())
        error = several if (share > 0).sum() > 1 else u * (8 + abs(lse)) * size.sum()
        output = abs((share * outputs[:, 0, 0]).sum())
        assert np.isclose(allowed["output"][0, 0], error + u * output, rtol=1e-9, atol=0)
        of_lse = u * ((parts - 1) * (lse + 5) + 4 * (1 + np.log(parts)) + 3 * (lse + lses.max()))
        assert np.isclose(allowed["lse"][0], of_lse + u * lse, rtol=1e-9, atol=0)


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


def test_one_key_after_dropout_has_a_weight_that_is_cast():
    """One over the rate of keeping, 4 / 3, is no number of float16."""
    one = np.ones((1, 1))
    dropped = {"dropout_mask": np.ones((1, 1), bool), "dropout_rate": 0.25}
    arguments = {"query": one, "key": one, "value": one, **dropped}
    full, cast = full_and_cast(arguments, "float16")
    assert np.isclose(cast - full, 4 / 3 * (2.0**-11 + 2.0**-13), rtol=2e-3, atol=0)


def test_a_score_by_hand():
    """Two products and their sum, and six roundings for the scale."""
    arguments = {"query": np.array([[1.0, 2.0]]), "key": np.array([[3.0, -1.0]])}
    allowed = budget("scores", arguments, "float64")["scores"][0, 0]
    size, value = 5 / np.sqrt(2), 1 / np.sqrt(2)
    assert np.isclose(allowed, ((2 + 6) * size + value) * 2.0**-53, rtol=1e-9, atol=0)


def test_the_class_cast_allows_nothing_more_where_the_storage_is_the_longer_format():
    one, two = np.ones((1, 1)), np.ones((2, 1))
    arguments = {"query": one, "key": two, "value": two}
    full, cast = full_and_cast(arguments, "float64", "lse", working="float32")
    assert full == cast


def test_a_score_on_matrix_units_by_hand():
    """Ten products in blocks of 4 and the sum before: 3 blocks of 5, cut off; and what rounds the inputs."""
    arguments = {"query": np.ones((1, 10)), "key": np.ones((1, 10)), "scale": 1.0}
    for profile, dtype, product, blocks in (
        ("matrix", "float16", 0, 3),
        ("tf32", "float32", 2 * 2.0**-10 + 2.0**-20, 3),
        ("bf16", "float32", 2 * 2.0**-8 + 2.0**-16, 3),
        ("bf16x3", "float32", 3 * 2.0**-16 + 2.0**-32, 8),
        ("matrix", "float32", 0, 0),
        ("tf32", "float64", 0, 0),
    ):
        allowed = budget("scores", arguments, dtype, profile=profile)["scores"][0, 0]
        unit = FORMATS[FORMATS[dtype].working].unit
        sums = blocks * 5 * 2 * unit if blocks else 10 * unit
        error = 10 * (sums + 6 * unit + product)
        assert np.isclose(allowed, error + FORMATS[dtype].unit * (10 + error), rtol=1e-9, atol=0)


def test_a_value_is_rounded_by_a_profile_even_where_there_is_one_key():
    one = np.ones((1, 1))
    arguments = {"query": one, "key": one, "value": one}
    allowed = budget("attention", arguments, "float32", profile="tf32")["output"][0, 0]
    # The value, and two sums of a block of four products: ten cut off and four rounded each.
    error = 2.0**-10 + 2.0**-20 + 2 * (10 + 4) * 2.0**-24
    assert np.isclose(allowed, error + 2.0**-24 * (1 + error), rtol=1e-9, atol=0)


def test_the_chapter_has_the_profiles_as_they_are():
    row = r"^\| `(\w+)` \| ([\w, ]+) \| (\S+) \| (\S+) \| (\d) \| (\d) \| (\S+) \|$"
    rows = re.findall(row, NUMERICS, re.MULTILINE)
    assert [row[0] for row in rows] == list(PROFILES)
    for name, dtypes, *parameters in rows:
        for dtype in dtypes.split(", "):
            found = PROFILES[name][dtype]
            written = [float(Fraction(2) ** int(x[2:]) if "^" in x else int(x)) for x in parameters]
            assert written == [found.inputs, found.left_out, found.terms, found.block, found.weights]
