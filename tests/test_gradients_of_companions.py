"""The gradients of merging, rotary embedding and multi-head attention."""

import numpy as np
import pytest
import torch
from tests_support import converted, run_operation

from attnspec import OPERATIONS, reference
from attnspec.backends import load
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.dtypes import FORMATS, numpy_dtype
from attnspec.reference import functions
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.balls import OracleError
from attnspec.reference.exact.evaluate import evaluate as exact
from attnspec.reference.rational.evaluate import evaluate as rational

MERGE, ROTARY = "merge_partials_vjp", "rotary_vjp"


def drawn(seed):
    """Parts of which some are empty; in every second call many numbers are equal."""
    random = np.random.default_rng(seed)

    def draw(*shape):
        return random.normal(size=shape) if seed % 2 else random.integers(-2, 3, size=shape) / 2.0

    rows = tuple(random.integers(0 if seed % 7 == 0 else 1, 4, size=random.integers(1, 4)))
    parts, depth = random.integers(0, 5), random.integers(1, 4)
    call = {"outputs": draw(parts, *rows, depth), "lses": draw(parts, *rows), "d_output": draw(*rows, depth)}
    call["lses"] *= random.choice([1, 10, 3000])
    empty = random.random(call["lses"].shape) < 0.25
    call["lses"][empty], call["outputs"][empty] = -np.inf, np.nan
    return call | ({"d_lse": draw(*rows)} if random.random() < 0.5 else {})


def turning(seed):
    """Features in both layouts, from one offset or several."""
    random = np.random.default_rng(seed)
    depth = int(random.integers(2, 9))
    batch = tuple(random.integers(1, 3, size=random.integers(0, 3)))
    shape = (*batch, 2, 3, depth)
    several = random.random() < 0.5 and batch
    return {
        "features": random.normal(size=shape),
        "d_rotated": random.normal(size=shape) if seed % 2 else random.integers(-1, 2, size=shape) / 2.0,
        "offset": random.integers(-5, 50, size=batch) if several else int(random.integers(-5, 1000)),
        "base": float(random.choice([10000, 2, 100])),
        "interleaved": bool(random.random() < 0.5),
        "rotary_depth": 2 * int(random.integers(1, depth // 2 + 1)),
    }


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize(("operation", "calls"), [(MERGE, drawn), (ROTARY, turning)])
def test_the_oracles_agree_and_the_reference_is_near(operation, calls, seed):
    call = calls(seed)
    one, other = exact(operation, call), rational(operation, call)
    near = getattr(reference, operation)(**call)
    assert list(one) == list(other)
    for found, name in zip(near if operation == MERGE else [near], one, strict=True):
        assert np.array_equal(one[name].values, other[name])
        assert not (np.signbit(other[name]) & (other[name] == 0)).any()
        np.testing.assert_allclose(found, one[name].values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_row_with_an_lse_that_is_no_number_has_no_gradient(number):
    call = {"outputs": np.ones((2, 1, 1)), "lses": np.array([[0.0], [number]]), "d_output": np.ones((1, 1))}
    with pytest.raises(OracleError):
        exact(MERGE, call)
    with pytest.raises(ValueError, match="expected finite numbers"):
        rational(MERGE, call)
    with pytest.raises(ValueError, match="expected finite numbers"):
        rational(ROTARY, {"features": np.ones((1, 2)), "d_rotated": np.full((1, 2), number)})


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
    call = turning(5)
    turned = {**call, "features": call["d_rotated"]}
    del turned["d_rotated"]
    one, other = budget(ROTARY, call, "float32")["d_features"], budget("rotary", turned, "float32")["rotated"]
    np.testing.assert_allclose(one, other, rtol=0.5)
    assert ((one == 0) == (other == 0)).all()


VJP = "multi_head_attention_vjp"


def drawn_multi_head(seed):
    """A call of small arrays with some of the options; in every second one many numbers are equal."""
    random = np.random.default_rng(seed)

    def draw(*shape):
        return random.normal(size=shape) * 0.7 if seed % 2 else random.integers(-2, 3, size=shape) / 2.0

    batch = tuple(random.integers(1, 3, size=random.integers(0, 3)))
    queries, width, depth, value_depth, features = random.integers(1, 4, size=5)
    key_heads = int(random.integers(1, 3))
    heads = key_heads * int(random.integers(1, 3))
    keys, inner, call = queries, width, {"heads": heads}
    if random.random() < 0.5:
        keys, inner = random.integers(1, 5, size=2)
        call["memory"] = draw(*batch, keys, inner)
    sizes = {
        "query": (width, heads * depth),
        "key": (inner, key_heads * depth),
        "value": (inner, key_heads * value_depth),
        "output": (heads * value_depth, features),
    }
    linear = random.random() < 0.4
    for name, size in sizes.items():
        call[f"{name}_weight"] = draw(*(size[::-1] if linear else size))
        if random.random() < 0.5:
            call[f"{name}_bias"] = draw(size[1])
    call |= {"tokens": draw(*batch, queries, width), "d_output": draw(*batch, queries, features)}
    options = {
        "key_heads": key_heads,
        "scale": float(random.choice([0.5, -1, 0])),
        "mask": random.random((heads, queries, keys)) < 0.7,
        "is_causal": True,
    }
    call |= {name: x for name, x in options.items() if name == "key_heads" or random.random() < 0.3}
    return call | ({"convention": "linear"} if linear else {})


@pytest.mark.parametrize("seed", range(40))
def test_the_oracles_agree_on_multi_head_attention_and_the_reference_is_near(seed):
    call = drawn_multi_head(seed)
    one, other, near = exact(VJP, call), rational(VJP, call), reference.multi_head_attention_vjp(**call)
    assert tuple(one) == tuple(other) == OPERATIONS[VJP].wanted(call)
    for (name, settled), found in zip(one.items(), near, strict=True):
        assert settled.values.shape == found.shape == call[name.removeprefix("d_")].shape
        assert np.array_equal(settled.values, other[name])
        np.testing.assert_allclose(found, settled.values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("rule", "variant"), [("HEAD-1", "tiled"), ("MASK-3", "bottom-right"), ("SCORE-2", "one")]
)
def test_the_oracles_agree_on_variants(rule, variant):
    changed = False
    for seed in range(20):
        call = drawn_multi_head(seed)
        found = {name: settled.values for name, settled in exact(VJP, call, variant).items()}
        other, plain = rational(VJP, call, {rule: variant}), rational(VJP, call)
        assert all(np.array_equal(x, other[name]) for name, x in found.items())
        changed |= any(not np.array_equal(x, plain[name]) for name, x in found.items())
    assert changed


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

    heads, key_heads = call["heads"], call["key_heads"]
    source = given.get("memory", given["tokens"])
    query = split(rows(given["tokens"], "query"), heads)
    key, value = (
        split(rows(source, name), key_heads).repeat_interleave(heads // key_heads, -3)
        for name in ("key", "value")
    )
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


def of_the_library(name):
    """The gradients that a backend has, by name."""

    def run(call):
        backend = load(name)
        found = run_operation(backend, VJP, call)
        return dict(zip(OPERATIONS[VJP].wanted(call), map(backend.to_numpy, found), strict=True))

    return run


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "run", [in_storage, of_the_library("torch-portable"), of_the_library("numpy-portable")], ids="sta"
)
def test_a_correct_algorithm_keeps_the_budget(run, dtype):
    for seed in range(30):
        call = in_dtype(drawn_multi_head(seed), dtype)
        accuracy = "cast" if dtype in ("float16", "bfloat16") else "full"
        allowed, values = budget(VJP, call, dtype, accuracy=accuracy), rational(VJP, call)
        found = run(call)
        for name, value in values.items():
            assert (np.abs(found[name].astype(np.float64) - value) <= allowed[name]).all(), (seed, name)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["d_memory", "d_value_bias", "d_output_bias", "d_query_weight"])
def test_a_gradient_that_is_left_out_exceeds_the_budget(name, dtype):
    shares = []
    for seed in range(1, 41, 2):
        call = in_dtype(drawn_multi_head(seed), dtype)
        if name.removeprefix("d_") in call:
            value = rational(VJP, call)[name]
            shares.append((np.abs(value) / np.maximum(budget(VJP, call, dtype)[name], 1e-300)).max())
    assert np.median(shares) > 10
