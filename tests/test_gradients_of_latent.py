"""The gradients of latent attention, of the scale and of slopes, against differences of the forward pass."""

from dataclasses import replace
from functools import wraps
from itertools import product

import numpy as np
import pytest

from attnspec import OPERATIONS, Case, find_case
from attnspec.backends import load
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite.latent import SIZES, problem
from attnspec.dtypes import FORMATS
from attnspec.reference import (
    ArgumentError,
    alibi_bias,
    alibi_bias_vjp,
    attention,
    attention_vjp,
    latent_attention,
    latent_attention_vjp,
)
from attnspec.reference.budget.arithmetic import PLAIN, Arithmetic
from attnspec.reference.budget.gradients import gradient_budget

STEP = 1e-5
VJP = OPERATIONS["latent_attention_vjp"]


def latent_call(seed, **options):
    """A call in float64, with cotangents of output and lse."""
    random, sizes = np.random.default_rng(seed), SIZES[seed % len(SIZES)]
    call = problem(random, "float64", sizes)
    rows = call["query"].shape[:-1]
    return (
        call
        | {"d_output": random.normal(size=(*rows, sizes.values)), "d_lse": random.normal(size=rows)}
        | options
    )


def slope(run, call, cotangents, name, direction):
    """The derivative of the sum of results times cotangents along a direction, from two calls."""
    ends = []
    for sign in (1, -1):
        results = run(**call | {name: call[name] + sign * STEP * direction})
        results = results if isinstance(results, tuple) else (results,)
        ends.append(sum((x * d).sum() for x, d in zip(results, cotangents, strict=True)))
    return (ends[0] - ends[1]) / (2 * STEP)


@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_a_latent_are_the_slopes_of_the_forward_pass(seed):
    call = latent_call(seed, scale=0.3, softcap=2.0, is_causal=True, query_offset=1)
    given = VJP.wanted(call | {"return_d_scale": True})
    gradients = dict(zip(given, latent_attention_vjp(**call, return_d_scale=True), strict=True))
    cotangents = [call.pop("d_output"), call.pop("d_lse")]
    random = np.random.default_rng(seed)
    for name, found in gradients.items():
        direction = random.normal(size=found.shape) if found.ndim else 1.0
        own = slope(
            latent_attention, call | {"return_lse": True}, cotangents, name.removeprefix("d_"), direction
        )
        assert own == pytest.approx((found * direction).sum(), rel=1e-6, abs=1e-8), name


def test_a_latent_that_is_not_used_may_be_nan():
    call = latent_call(0, key_lengths=np.array([2, 6]))
    plain = latent_attention_vjp(**call)
    for name in ("latent", "key_rotary"):
        call[name][0, 2:] = np.nan
    assert all(map(np.array_equal, latent_attention_vjp(**call), plain))


def test_gradients_of_the_scale_and_of_slopes_are_slopes_of_the_forward_pass():
    random = np.random.default_rng(3)
    sizes = {"query": (2, 4, 3, 5), "key": (2, 2, 6, 5), "value": (2, 2, 6, 3), "d_output": (2, 4, 3, 3)}
    call = {name: random.normal(size=size) for name, size in sizes.items()} | {"scale": 0.4}
    *_, found = attention_vjp(**call, return_d_scale=True)
    cotangent = call.pop("d_output")
    assert slope(attention, call, [cotangent], "scale", 1.0) == pytest.approx(found, rel=1e-6)
    random = np.random.default_rng(4)
    call = {"query": np.ones((2, 4, 3, 1)), "key": np.ones((2, 2, 6, 1)), "slopes": random.normal(size=4)}
    call["query_offset"] = np.array([2, -1])
    cotangent, direction = random.normal(size=(2, 4, 3, 6)), random.normal(size=4)
    found = alibi_bias_vjp(**call, d_bias=cotangent)
    own = slope(alibi_bias, call, [cotangent], "slopes", direction)
    assert own == pytest.approx((found * direction).sum(), rel=1e-6)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_library_computes_the_gradient_of_the_scale_beside_its_own(library):
    backend = load(f"{library}-portable")
    for name in ("gradients-d-scale-softcap", "latent-gradients-scale"):
        (case,) = in_each(find_case(name), ("float32",))
        assert judge(backend, case).status == "pass"
    assert not backend.has("seeded_dropout_attention_vjp", "return_d_scale")


@pytest.mark.parametrize("given", [1, None, "yes"])
def test_the_flag_is_a_flag(given):
    one = np.ones((2, 3))
    with pytest.raises(ArgumentError, match="return_d_scale"):
        attention_vjp(one, one, one, one, return_d_scale=given)


@pytest.mark.parametrize("part", ["bias", "d_lse"])
def test_a_function_without_the_gradient_of_a_part_is_unsupported_there(part):
    whole = load("numpy-portable")

    @wraps(whole.function("latent_attention_vjp"))
    def run(*arrays, **options):
        if options.get(part) is not None:
            raise TypeError(f"no gradient of {part}")
        return whole.function("latent_attention_vjp")(*arrays, **options)

    backend = replace(whole, companions=dict(whole.companions) | {"latent_attention_vjp": run})
    random = np.random.default_rng(1)
    call = latent_call(0)
    if part == "bias":
        del call["d_lse"]
        call["bias"] = random.normal(size=(*call["query"].shape[:-1], call["latent"].shape[-2]))
    case = Case("latent-own-float64", "", "latent", "latent_attention_vjp", ("LATENT-5",), call)
    assert judge(backend, case).status == "unsupported"


@pytest.mark.parametrize("seed", range(8))
def test_the_budget_holds_for_keys_that_are_off_by_their_errors_beside_a_softcap(seed):
    """Stored keys move the slope of the softcap too, as in latent attention."""
    random, work = np.random.default_rng(seed), FORMATS["float64"]
    query, key, g = (random.normal(size=(1, 2, depth)) for depth in (3, 3, 2))
    value, off = np.array([[[5.0, 0.0], [-5.0, 0.0]]]), 1e-3
    call = {"query": query, "key": key, "value": value, "d_output": g, "softcap": 1.0}
    words = dict.fromkeys(("uniform_rows", "capped_bias", "capped_infinity"), False)
    errors = np.zeros(query.shape), np.full(key.shape, off), np.zeros(value.shape), np.zeros(g.shape)
    arithmetic = Arithmetic(work, work, work, "full", PLAIN)
    allowed = gradient_budget(call | words, {}, arithmetic, errors)
    wanted = attention_vjp(**call)
    for signs in product((-1, 1), repeat=key.size):
        found = attention_vjp(**call | {"key": key + off * np.array(signs).reshape(key.shape)})
        for name, one, other in zip(("d_query", "d_key"), found, wanted, strict=False):
            assert (np.abs(one - other) <= allowed[name]).all()
