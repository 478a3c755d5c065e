"""The gradients of merging, rotary embedding and multi-head attention."""

import numpy as np
import pytest
import torch
from tests_support import converted

from attnspec import OPERATIONS, Case
from attnspec.backends import load
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.suite import find, groups
from attnspec.dtypes import FORMATS, numpy_dtype
from attnspec.reference import functions
from attnspec.reference.budget.budget import budget
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
    least = 1e-300  # where nothing is allowed
    shares = [
        (np.abs(rational(VJP, call)[name]) / np.maximum(budget(VJP, call, dtype)[name], least)).max()
        for call in calls
    ]
    assert np.median(shares) > 10
