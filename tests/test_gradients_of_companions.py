"""The gradients of merging, rotary embedding, multi-head and latent attention, the scale and slopes."""

from dataclasses import replace
from functools import wraps
from itertools import product

import numpy as np
import pytest
import torch
from tests_support import converted, own_case

from attnspec import OPERATIONS, Case, find_case
from attnspec.backends import load
from attnspec.conformance.judge.dtypes import in_dtype, in_each
from attnspec.conformance.judge.judge import judge, judge_outputs
from attnspec.conformance.suite import find, groups
from attnspec.conformance.suite.latent import SIZES, problem
from attnspec.dtypes import FORMATS, numpy_dtype
from attnspec.reference import (
    alibi_bias,
    alibi_bias_vjp,
    attention,
    attention_vjp,
    functions,
    latent_attention,
    latent_attention_vjp,
)
from attnspec.reference.budget.arithmetic import PLAIN, Arithmetic
from attnspec.reference.budget.budget import budget
from attnspec.reference.budget.gradients import gradient_budget
from attnspec.reference.exact.balls import OracleError
from attnspec.reference.exact.evaluate import evaluate as exact
from attnspec.reference.rational.evaluate import evaluate as rational

MERGE, ROTARY = "merge_partials_vjp", "rotary_vjp"


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_row_with_an_lse_that_is_no_number_has_no_gradient(number):
    call = {"outputs": np.ones((2, 1, 1)), "lses": np.array([[0.0], [number]]), "d_output": np.ones((1, 1))}
    with pytest.raises(OracleError):
        exact(MERGE, call)
    with pytest.raises(ValueError, match="expected finite numbers"):
        rational(MERGE, call)
    with pytest.raises(ValueError, match="expected finite numbers"):
        rational(ROTARY, {"features": np.ones((1, 2)), "d_rotated": np.full((1, 2), number)})


def test_a_number_that_is_not_rotated_is_rounded_once_to_another_dtype():
    """Past the rotary depth, and at position 0; a number that the dtype holds is copied."""
    rotated = np.array([[[0.1, 0.2, 0.3, 0.5], [0.1, 0.2, 0.3, 0.5]]])
    call = {"features": np.ones(rotated.shape, np.float32), "d_rotated": rotated, "rotary_depth": 2}
    case = own_case("GRAD-22", call, ROTARY)
    off = budget(ROTARY, call, "float32")["d_features"][0]
    assert (off[0, :3] > 0).all()
    assert (off[:, 2] == off[0, 2]).all()
    assert (off[:, 3] == 0).all()
    assert not budget(ROTARY, call | {"d_rotated": rotated.astype(np.float32)}, "float32")["d_features"][
        0, 0
    ].any()
    right = functions()[ROTARY](**in_dtype(call, "float64")).astype(np.float32)
    beyond = np.nextafter(np.nextafter(right, np.float32(9)), np.float32(9))
    assert judge_outputs(load("numpy-portable"), case, {"d_features": right}).status == "pass"
    for place in ((0, 0, 0), (0, 1, 2)):
        wrong = right.copy()
        wrong[place] = beyond[place]
        assert judge_outputs(load("numpy-portable"), case, {"d_features": wrong}).status == "fail"


def parts(dtype, seed, count):
    random = np.random.default_rng(seed)
    of_lse = FORMATS[dtype].lse
    return {
        "outputs": random.normal(size=(count, 2, 4, 16)).astype(numpy_dtype(dtype)),
        "lses": (3 * random.normal(size=(count, 2, 4)) + 20 * (seed % 3)).astype(of_lse),
        "d_output": random.normal(size=(2, 4, 16)).astype(numpy_dtype(dtype)),
        "d_lse": random.normal(size=(2, 4)).astype(of_lse),
    }


def by_the_formulas(call):
    return functions()[MERGE](*(call[name] for name in ("outputs", "lses", "d_output")), d_lse=call["d_lse"])


def by_what_the_forward_pass_returned(call):
    """Shares from the merged lse, and the mean from the merged output, both rounded."""
    storage, of_lse = call["outputs"].dtype, call["lses"].dtype
    merged, lse = functions()["merge_partials"](call["outputs"], call["lses"], return_lse=True)
    outputs, merged, g = (x.astype(of_lse) for x in (call["outputs"], merged, call["d_output"]))
    w = np.exp(call["lses"] - lse)
    pull = (g * outputs).sum(axis=-1) - (g * merged).sum(axis=-1) + call["d_lse"]
    return (w[..., None] * g).astype(storage), w * pull


def along_a_chain(call):
    """Two parts at a time: from the last merge back to the first."""
    storage, of_lse = call["outputs"].dtype, call["lses"].dtype
    outputs = call["outputs"].astype(of_lse)
    merges = [(outputs[0], call["lses"][0])]
    for output, lse in zip(outputs[1:], call["lses"][1:], strict=True):
        before, its = merges[-1]
        both = np.logaddexp(its, lse)
        merged = np.exp(its - both)[..., None] * before + np.exp(lse - both)[..., None] * output
        merges.append((merged, both))
    g, h = call["d_output"].astype(of_lse), call["d_lse"]
    d_outputs, d_lses = np.empty_like(outputs), np.empty_like(call["lses"])
    for n in range(len(outputs) - 1, 0, -1):
        (before, its), (merged, both) = merges[n - 1], merges[n]
        w, rest = np.exp(call["lses"][n] - both), np.exp(its - both)
        delta = (g * merged).sum(axis=-1)
        d_outputs[n], d_lses[n] = w[..., None] * g, w * ((g * outputs[n]).sum(axis=-1) - delta + h)
        g, h = rest[..., None] * g, rest * ((g * before).sum(axis=-1) - delta + h)
    d_outputs[0], d_lses[0] = g, h
    return d_outputs.astype(storage), d_lses


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("run", [by_the_formulas, by_what_the_forward_pass_returned, along_a_chain])
def test_a_correct_algorithm_keeps_the_budget_of_merging(run, dtype):
    for seed in range(12):
        call = parts(dtype, seed, 1 + seed % 5)
        allowed, values = budget(MERGE, call, dtype), exact(MERGE, call)
        for name, found in zip(values, run(call), strict=True):
            assert (np.abs(found.astype(np.float64) - values[name].values) <= allowed[name]).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("change", ["no cotangent of the lse", "one part less", "a share of 1"])
def test_a_mistake_exceeds_the_budget_of_merging(change, dtype):
    call = parts(dtype, 3, 3)
    allowed, values = budget(MERGE, call, dtype), exact(MERGE, call)
    if change == "no cotangent of the lse":
        found = rational(MERGE, {name: x for name, x in call.items() if name != "d_lse"})
    elif change == "one part less":
        found = rational(
            MERGE, call | {"lses": np.where(np.arange(3)[:, None, None] == 1, -np.inf, call["lses"])}
        )
    else:
        found = {"d_outputs": np.broadcast_to(call["d_output"], call["outputs"].shape).astype(np.float64)}
    worst = max((np.abs(x - values[name].values) / allowed[name]).max() for name, x in found.items())
    assert worst > 50


def test_the_budget_of_a_turned_cotangent_is_that_of_turning():
    call = dict(find("gradients-rotary-offsets-float32").arguments)
    turned = {name: x for name, x in call.items() if name != "d_rotated"} | {"features": call["d_rotated"]}
    one, other = budget(ROTARY, call, "float32")["d_features"], budget("rotary", turned, "float32")["rotated"]
    np.testing.assert_allclose(one, other, rtol=0.5)
    assert ((one == 0) == (other == 0)).all()


VJP = "multi_head_attention_vjp"
#: The calls of the suite.
CALLS = [
    item.arguments
    for group in groups()
    if group.operation == VJP
    for item in group.items()
    if isinstance(item, Case) and item.dtype == "float64" and item.misuse is None
]


def in_storage(call):
    """Everything in the dtype of the tokens but the softmax, differentiated by PyTorch."""
    backend = load("torch-portable")
    given = converted(backend, call)
    names = [name for name in call if f"d_{name}" in OPERATIONS[VJP].outputs]
    for name in names:
        given[name] = given[name].detach().requires_grad_()

    def rows(tokens, name):
        weight = given[f"{name}_weight"]
        found = tokens @ (weight.T if call.get("convention") == "linear" else weight)
        return found + given[f"{name}_bias"] if f"{name}_bias" in call else found

    def split(found, count):
        return found.unflatten(-1, (count, -1)).transpose(-2, -3)

    heads, key_heads = call["heads"], call.get("key_heads", call["heads"])
    source = given.get("memory", given["tokens"])
    query = split(rows(given["tokens"], "query"), heads)
    of_key_heads = (split(rows(source, name), key_heads) for name in ("key", "value"))
    key, value = (x.repeat_interleave(heads // key_heads, -3) for x in of_key_heads)
    scores = query @ key.mT * call.get("scale", query.shape[-1] ** -0.5)
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool)
    allowed = allowed.tril() if call.get("is_causal") else allowed
    allowed = (allowed & given.get("mask", allowed)).broadcast_to(scores.shape)
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    weights = wide.masked_fill(~allowed, -1e30).softmax(-1).masked_fill(~allowed, 0).to(value.dtype)
    merged = (weights @ value).transpose(-2, -3).flatten(-2)
    found = torch.autograd.grad(
        rows(merged, "output"), [given[name] for name in names], given["d_output"], allow_unused=True
    )
    pairs = zip(names, found, strict=True)
    return {f"d_{name}": np.zeros_like(call[name]) if x is None else backend.to_numpy(x) for name, x in pairs}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_an_algorithm_in_storage_keeps_the_budget(dtype):
    accuracy = "cast" if dtype in ("float16", "bfloat16") else "full"
    for arguments in CALLS:
        call = in_dtype(arguments, dtype)
        allowed, values = budget(VJP, call, dtype, accuracy=accuracy), rational(VJP, call)
        found = in_storage(call)
        for name, value in values.items():
            assert (np.abs(found[name].astype(np.float64) - value) <= allowed[name]).all(), name


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["d_memory", "d_value_bias", "d_output_bias", "d_query_weight"])
def test_a_gradient_that_is_left_out_exceeds_the_budget(name, dtype):
    calls = [in_dtype(call, dtype) for call in CALLS if name.removeprefix("d_") in call]
    exact = [np.abs(rational(VJP, call)[name]) for call in calls]
    # Nothing is allowed where the least number stands.
    allowed = [np.maximum(budget(VJP, call, dtype)[name], 1e-300) for call in calls]
    shares = [(x / most).max() for x, most in zip(exact, allowed, strict=True)]
    assert np.median(shares) > 10


STEP = 1e-5
LATENT_VJP = OPERATIONS["latent_attention_vjp"]


def latent_call(seed, **options):
    """A call in float64, with cotangents of output and lse."""
    random, sizes = np.random.default_rng(seed), SIZES[seed % len(SIZES)]
    call = problem(random, "float64", sizes)
    rows = call["query"].shape[:-1]
    call |= {"d_output": random.normal(size=(*rows, sizes.values)), "d_lse": random.normal(size=rows)}
    return call | options


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
    given = LATENT_VJP.wanted(call | {"return_d_scale": True})
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
