"""The oracles agree on gradients, which are derivatives and closed forms, and 0 where sums cancel."""

import numpy as np
import pytest
from gradient_problems import both, numbers, plain

from attnspec import Case
from attnspec.conformance.suite import groups
from attnspec.reference.exact.balls import OracleError
from attnspec.reference.exact.evaluate import evaluate as exact
from attnspec.reference.rational.evaluate import evaluate as rational

#: Variants that change gradients, and what shows them beside arrays.
VARIANTS = {
    ("SCORE-2", "one"): {},
    ("SCORE-5", "after-bias"): {"softcap": 0.5, "bias": np.array([[0.5], [-1.0], [2.0]])},
    ("MASK-3", "bottom-right"): {"is_causal": True},
    ("MASK-8", "exclusive-left"): {"window": (1, None)},
    ("SOFT-6", "base-2"): {},
    ("HEAD-1", "tiled"): {},
    ("GRAD-6", "ignored"): {},
    ("GRAD-10", "nan"): {"mask": np.array([[False], [True], [True]]), "bias": np.zeros(5)},
    ("GRAD-10", "uniform"): {"query_offset": -1, "is_causal": True, "query_lengths": 2},
}


#: Calls of gradients in the suite: each option, pairs of options, and none.
CALLS = [
    item
    for group in groups()
    if group.operation in ("attention_vjp", "latent_attention_vjp", "multi_head_attention_vjp")
    for item in group.items()
    if isinstance(item, Case) and item.dtype == "float64" and item.misuse is None
]


@pytest.mark.parametrize(("rule", "variant"), VARIANTS)
def test_the_oracles_agree_on_variants_of_calls_of_the_suite(rule, variant):
    """Each variant in a third of the calls, and in each call several variants."""
    for case in CALLS[len(variant) % 3 :: 3]:
        if case.operation == "multi_head_attention_vjp" and rule in ("GRAD-6", "GRAD-10", "SOFT-6"):
            continue
        first = numbers(exact(case.operation, case.arguments, variant))
        second = rational(case.operation, case.arguments, {rule: variant})
        for name, values in first.items():
            np.testing.assert_array_max_ulp(*(np.nan_to_num(x, nan=7) for x in (values, second[name])), 1)


@pytest.mark.parametrize(("rule", "variant"), VARIANTS)
def test_variants_change_gradients(rule, variant):
    call = plain(**VARIANTS[rule, variant])
    if variant == "uniform":  # a row with a sink is not empty for it
        del call["sinks"]
    before, after = both(call), both(call, rule, variant)
    assert any(not np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("rule", "variant"), [("MASK-2", "added"), ("MASK-6", "nan"), ("MASK-6", "uniform"), ("SOFT-7", "finite")]
)
def test_variants_of_what_stands_in_an_empty_row_change_nothing(rule, variant):
    call = plain(bias=np.array([[-np.inf], [0.0], [1.0]]))
    del call["sinks"]
    found = rational("attention_vjp", call, {rule: variant})
    assert all(np.array_equal(found[name], x) for name, x in rational("attention_vjp", call).items())


def test_what_is_nan_in_the_variant_of_an_empty_row():
    mask = np.ones((2, 4, 3, 5), bool)
    mask[0, 1, 2] = False
    found = both(plain(mask=mask, bias=np.zeros((2, 4, 3, 1))), "GRAD-10", "nan")
    where = {name: {tuple(place) for place in np.argwhere(np.isnan(x)).tolist()} for name, x in found.items()}
    assert {place[:3] for place in where["d_query"]} == {(0, 1, 2)}
    assert {place[:2] for place in where["d_key"]} == {place[:2] for place in where["d_value"]} == {(0, 0)}
    assert [len(where[name]) for name in ("d_query", "d_key", "d_value")] == [3, 15, 10]
    assert where["d_bias"] == {(0, 1, 2, 0)}
    assert where["d_sinks"] == {(1,)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_are_rounded_once(dtype):
    once = numbers(exact("attention_vjp", plain(), dtype=dtype))
    assert all(np.array_equal(x, x.astype(dtype).astype(float)) for x in once.values())


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_no_query_attends_to_does_not_matter(number):
    call = plain(bias=np.zeros((2, 4, 3, 5)), key_lengths=4, query_lengths=2)
    dirty = {name: call[name].copy() for name in ("query", "key", "value", "bias")}
    dirty["query"][:, :, 2] = dirty["key"][:, :, 4] = dirty["value"][:, :, 4] = number
    dirty["bias"][..., 4] = dirty["bias"][..., 2, :] = number
    clean = both(call)
    assert all(np.array_equal(x, clean[name]) for name, x in both(call | dirty).items())


@pytest.mark.parametrize("name", ["query", "key", "value", "bias", "d_output", "d_lse", "sinks"])
def test_what_is_not_finite_has_no_value(name):
    call = plain(bias=np.zeros((2, 4, 3, 5)))
    call[name].flat[0] = np.nan
    with pytest.raises(OracleError, match="expected finite numbers"):
        exact("attention_vjp", call)
    with pytest.raises(ValueError, match="expected finite numbers"):
        rational("attention_vjp", call)


def test_they_are_the_derivatives_of_the_loss():
    """By central differences of a forward pass of others, to 80 digits."""
    mpmath = pytest.importorskip("mpmath")
    random = np.random.default_rng(2)
    sizes = {"query": (2, 2, 2), "key": (1, 3, 2), "value": (1, 3, 2), "d_output": (2, 2, 2), "d_lse": (2, 2)}
    call = {name: random.normal(size=size) for name, size in sizes.items()}
    call |= {"bias": random.normal(size=(2, 1, 3)), "sinks": random.normal(size=2), "softcap": 0.7}
    call |= {"is_causal": True, "query_offset": 1, "dropout_rate": 0.25}
    call["dropout_mask"] = np.array([[[True, False, True]] * 2, [[True, True, False]] * 2])
    full = np.broadcast_to(np.arange(6).reshape(2, 1, 3), (2, 2, 3))

    def loss(of):
        total = mpmath.mpf(0)
        for h, i in np.ndindex(2, 2):
            keys = range(i + 2)
            products = [mpmath.fdot(of["query"][h, i], of["key"][0, j]) / mpmath.sqrt(2) for j in keys]
            cap = mpmath.mpf(0.7)
            scores = [
                cap * mpmath.tanh(x / cap) + of["bias"].flat[full[h, i, j]] for j, x in enumerate(products)
            ]
            rates = [mpmath.exp(s) for s in scores]
            whole = mpmath.exp(of["sinks"][h]) + mpmath.fsum(rates)
            total += call["d_lse"][h, i] * mpmath.log(whole)
            for c, j in ((c, j) for c in range(2) for j in keys if call["dropout_mask"][h, i, j]):
                total += (
                    call["d_output"][h, i, c] * rates[j] / whole * of["value"][0, j, c] / mpmath.mpf(0.75)
                )
        return total

    with mpmath.workdps(80):
        arrays = {name.removeprefix("d_"): None for name in both(call)}
        arrays = {name: np.vectorize(mpmath.mpf, otypes=[object])(call[name]) for name in arrays}
        step = mpmath.mpf(10) ** -25
        for name, found in both(call).items():
            array = arrays[name.removeprefix("d_")]
            for place in np.ndindex(*array.shape):
                before = array[place]
                losses = []
                for moved in (before + step, before - step):
                    array[place] = moved
                    losses.append(loss(arrays))
                array[place] = before
                assert abs((losses[0] - losses[1]) / step / 2 - found[place]) <= np.spacing(abs(found[place]))


def test_a_gradient_that_is_known_in_closed_form():
    # Its weight is 1 whatever the scores are.
    found = both(plain(d_lse=None, sinks=None, key_lengths=1, dropout_mask=np.array(True), dropout_rate=0.0))
    assert not found["d_query"].any()
    assert not found["d_key"].any()
    g = plain()["d_output"]
    assert np.allclose(found["d_value"][:, :, 0], g.reshape(2, 2, 2, 3, 2).sum(axis=(2, 3)), rtol=1e-15)
    assert not found["d_value"][:, :, 1:].any()
    call = {"query": np.zeros((1, 1)), "key": np.array([[1.0], [3.0]]), "value": np.array([[2.0], [6.0]])}
    found = both(call | {"d_output": np.array([[1.0]]), "scale": 1.0})
    assert {name: x.ravel().tolist() for name, x in found.items()} == {
        "d_query": [2.0],
        "d_key": [0.0, 0.0],
        "d_value": [0.5, 0.5],
    }
    # The values have no part in it (GRAD-14), and the gradients of the scores are weights times `d_lse`.
    bias = np.random.default_rng(3).normal(size=(2, 4, 3, 5))
    call = plain(d_output=np.zeros((2, 4, 3, 2)), bias=bias, sinks=None)
    found = both(call)
    assert not found["d_value"].any()
    arguments = {name: call[name] for name in ("query", "key", "value", "bias")}
    weights = numbers(exact("attention", arguments))["weights"]
    np.testing.assert_allclose(found["d_bias"], weights * call["d_lse"][..., None], rtol=1e-15)
    call = plain(bias=np.zeros((2, 4, 3, 1)), sinks=None)
    assert np.array_equal(both(call)["d_bias"][..., 0], call["d_lse"])
    call = plain(d_output=np.zeros((2, 4, 3, 2)), d_lse=np.zeros((2, 4, 3)), bias=np.ones(5), softcap=1.0)
    assert not any(x.any() for x in both(call).values())
    # All of the row is the sink: its gradient is the sum of `d_lse` (GRAD-7).
    found = both(plain(key_lengths=0, d_lse=np.full((2, 4, 3), 0.25)))
    assert found["d_sinks"].tolist() == [1.5] * 4
    assert not any(x.any() for name, x in found.items() if name != "d_sinks")


@pytest.mark.parametrize("softcap", [None, 0.5])
def test_rows_that_cancel(softcap):
    """Two queries that are the same but for the sign of their cotangents: nothing is left."""
    call = plain(softcap=softcap, bias=np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    for name, sign in (("query", 1), ("d_output", -1), ("d_lse", -1)):
        call[name][:, :, 1] = sign * call[name][:, :, 0]
        call[name][:, :, 2] = 0
    call["query"][:, :, 2] = 1
    found = both(call)
    assert found["d_query"][:, :, 0].all()
    assert not any(found[name].any() for name in ("d_key", "d_value", "d_bias", "d_sinks"))
    assert {settled.bits for settled in exact("attention_vjp", call).values()} == {128}


def test_sums_that_cancel_are_proven_to_be_zero():
    # The bias of a row changes no weight.
    call = plain(bias=np.array([[0.1], [0.2], [3.0]]), d_lse=None, sinks=None)
    call["query"][:, :, 1:] = call["query"][:, :, :1]
    call["d_output"][:, :, 1], call["d_output"][:, :, 2] = -call["d_output"][:, :, 0], 0
    found = both(call)
    assert found["d_query"][:, :, 0].all()
    assert not any(found[name].any() for name in ("d_key", "d_value", "d_bias"))
    assert exact("attention_vjp", call)["d_key"].bits == 128  # by proof: an error of 1e-400 would be 0 too
    # Two opposite queries, two opposite keys: the parts of the gradient of a key cancel.
    key = np.array([[0.5, 0.25], [-0.5, -0.25]])
    call = {"query": np.array([[1.0, 2.0], [-1.0, -2.0]]), "key": key, "value": np.array([[1.0], [3.0]])}
    call |= {"d_output": np.ones((2, 1)), "softcap": 1.5}
    found = both(call)
    assert found["d_query"].all()
    assert not found["d_key"].any()
    assert exact("attention_vjp", call)["d_key"].bits == 128
    # The weights of scores x and -x have the product of those of two scores of 0, as the tanh is odd.
    key = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    value = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    call = {"query": np.eye(2), "key": key, "value": value, "d_output": np.eye(2)}
    call |= {"bias": np.zeros(4), "softcap": 0.75}
    assert exact("attention_vjp", call)["d_bias"].bits == 128, "it was not proven to be 0"
    assert (both(call)["d_bias"] == 0).tolist() == [True, False, False, True]
    # Two groups of equal scores, in each of which the gradients with respect to the weights are the same.
    call = {"query": np.ones((1, 2)), "key": np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0], [5.0, 5.0]])}
    value = np.array([[1.0], [1.0], [1.0], [1.0]])
    found = both(call | {"value": value, "d_output": np.array([[0.1]])})
    assert not found["d_query"].any()
    assert not found["d_key"].any()


def test_what_is_small_beside_what_cancels_or_is_large():
    # The first query has one key, and a gradient of 0 that is a difference; that of the second is small.
    call = {"query": np.ones((2, 1)), "key": np.array([[0.1], [0.7]]), "value": np.array([[0.3], [0.9]])}
    found = both(call | {"d_output": np.array([[0.7], [1e-120]]), "is_causal": True})
    assert 1e-122 < abs(found["d_key"][0, 0]) < 1e-120
    # The gradient of a score with a weight of nearly 1 is that of the others: nothing cancels.
    call = {"query": np.ones((1, 1)), "key": np.array([[0.0], [-700.0]]), "value": np.array([[1.0], [3.0]])}
    found = both(call | {"d_output": np.ones((1, 1)), "scale": 1.0})
    assert found["d_key"].ravel() == pytest.approx([-2 * np.exp(-700), 2 * np.exp(-700)], rel=1e-12, abs=0)
    assert found["d_query"].ravel() == pytest.approx([-1400 * np.exp(-700)], rel=1e-12, abs=0)
    steep = both(call | {"d_output": np.ones((1, 1)), "softcap": 1.0, "scale": 0.5})
    assert 0 < abs(steep["d_key"][1, 0]) < 1e-300
    value, key = np.ones((2, 1)), np.array([[0.0], [-9000.0]])
    call = {"query": np.ones((2, 1)), "key": key, "value": value, "d_output": np.array([[1.0], [2.0**-53]])}
    assert numbers(exact("attention_vjp", call | {"scale": 1.0}))["d_value"][0, 0] == 1.0
    call["d_output"] = np.array([[1.0 + 2.0**-52], [2.0**-53]])
    assert numbers(exact("attention_vjp", call | {"scale": 1.0}))["d_value"][0, 0] == 1.0 + 2.0**-52
