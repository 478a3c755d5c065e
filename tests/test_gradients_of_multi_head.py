"""Gradients of multi-head attention: both oracles, the reference, and the budget."""

import numpy as np
import pytest
import torch

from attnspec import OPERATIONS, reference
from attnspec.backends import load
from attnspec.dtypes import numpy_dtype
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate as exact
from attnspec.reference.rational.evaluate import evaluate as rational

VJP = "multi_head_attention_vjp"


def drawn(seed):
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
def test_the_oracles_agree_and_the_reference_is_near(seed):
    call = drawn(seed)
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
        call = drawn(seed)
        found = {name: settled.values for name, settled in exact(VJP, call, variant).items()}
        other, plain = rational(VJP, call, {rule: variant}), rational(VJP, call)
        assert all(np.array_equal(x, other[name]) for name, x in found.items())
        changed |= any(not np.array_equal(x, plain[name]) for name, x in found.items())
    assert changed


def in_storage(call):
    """Everything in the dtype of the tokens but the softmax, differentiated by PyTorch."""
    to_library = load("torch-portable").to_library
    given = {name: to_library(x) if isinstance(x, np.ndarray) else x for name, x in call.items()}
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
    return {
        f"d_{name}": np.zeros_like(call[name]) if x is None else load("torch-portable").to_numpy(x)
        for name, x in pairs
    }


def of_the_library(name):
    """The gradients that a backend has, by name."""

    def run(call):
        backend = load(name)
        given = {key: backend.to_library(x) if isinstance(x, np.ndarray) else x for key, x in call.items()}
        arrays = [given.pop(key) for key in OPERATIONS[VJP].arrays]
        found = backend.function(VJP)(*arrays, **given)
        return dict(zip(OPERATIONS[VJP].wanted(call), map(backend.to_numpy, found), strict=True))

    return run


def cast(call, dtype):
    return {
        name: x.astype(numpy_dtype(dtype)) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x
        for name, x in call.items()
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "run", [in_storage, of_the_library("torch-portable"), of_the_library("numpy-portable")], ids="sta"
)
def test_a_correct_algorithm_keeps_the_budget(run, dtype):
    for seed in range(30):
        call = cast(drawn(seed), dtype)
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
        call = cast(drawn(seed), dtype)
        if name.removeprefix("d_") in call:
            value = rational(VJP, call)[name]
            shares.append((np.abs(value) / np.maximum(budget(VJP, call, dtype)[name], 1e-300)).max())
    assert np.median(shares) > 10
