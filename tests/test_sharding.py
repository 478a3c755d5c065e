"""Sharded attention: boundaries have no effect, the budget grows with shards, and each mesh is called."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnspec.conformance.gallery.bases.ranks import GATHER, RING, TREE
from attnspec.conformance.suite import groups_of
from attnspec.conformance.suite.options import FORMS
from attnspec.conformance.suite.orders import ORDERS, starts
from attnspec.conformance.suite.sharding import RANKS
from attnspec.reference import ArgumentError, attention, attention_vjp, functions, sharded_attention
from attnspec.reference.sharding import ratio_survives
from tools.coverage import missing_over_ranks
from tools.scale import draw, exact_up_to, measure

CASES = [case for group in groups_of("sharding") for case in group.items()]


def random_call(seed, *, heads=4, group=2):
    random = np.random.default_rng(seed)
    shapes = {"query": (heads, 5, 3), "key": (heads // group, 7, 3), "value": (heads // group, 7, 2)}
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


@st.composite
def boundaries(draw_from, count, shards):
    inner = draw_from(st.lists(st.integers(0, count), min_size=shards - 1, max_size=shards - 1))
    return np.array([0, *sorted(inner), count])


def drawn_cuts(data, call, shards):
    sizes = {side: call[side].shape[-2] for side in ("query", "key")}
    return {f"{side}_shards": data.draw(boundaries(size, shards)) for side, size in sizes.items()}


@settings(deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 9))
def test_boundaries_have_no_effect_on_a_bit(data, shards):
    call = random_call(1)
    cuts = drawn_cuts(data, call, shards)
    options = {"is_causal": True, "query_offset": 2}
    assert np.array_equal(sharded_attention(**call, **cuts, **options), attention(**call, **options))


@settings(deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 5), st.sampled_from((RING, GATHER, TREE)))
def test_simulated_ranks_are_right_for_any_boundaries(data, shards, ranks):
    call, d_output = random_call(2), np.random.default_rng(3).normal(size=(4, 5, 2))
    cuts = drawn_cuts(data, call, shards)
    run = functions({"attend_sharded": ranks.attend, "sharded_backward": ranks.differentiate})
    got = run["sharded_attention"](**call, **cuts, window=(2, 1))
    np.testing.assert_allclose(got, attention(**call, window=(2, 1)), atol=1e-14)
    found = run["sharded_attention_vjp"](**call, d_output=d_output, **cuts, window=(2, 1))
    for one, other in zip(found, attention_vjp(**call, d_output=d_output, window=(2, 1)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)


@pytest.mark.parametrize(
    ("first", "end", "group", "survives"),
    [(0, 4, 4, True), (1, 3, 4, True), (4, 12, 4, True), (3, 5, 4, False), (2, 8, 4, False), (3, 3, 4, True)],
)
def test_a_part_of_the_heads_is_whole_groups_or_within_one(first, end, group, survives):
    assert ratio_survives(first, end, group) is survives


@pytest.mark.parametrize(("name", "count", "ranks"), [*product(ORDERS, (0, 1, 5, 16), (1, 3, 8))])
def test_an_order_gives_each_position_to_one_rank(name, count, ranks):
    parts = ORDERS[name](count, ranks)
    assert len(parts) == ranks
    assert sorted(np.concatenate(parts).tolist()) == [*range(count)]
    assert starts(parts)[-1] == count


def test_each_option_each_number_of_ranks_and_each_order_is_called_in_every_kind_of_dtype():
    assert missing_over_ranks(CASES, FORMS, RANKS, ORDERS) == []
    assert [exact_up_to(dtype) for dtype in ("float16", "float32", "float64")] == [11, 24, 53]
    call, cuts = random_call(5), {"query_shards": np.array([0, 5]), "key_shards": np.array([0, 6])}
    with pytest.raises(ArgumentError, match=r"key_shards: expected 7 as the last .*, got 6 \[SHARD-11\]"):
        sharded_attention(**call, **cuts)
    whole = cuts | {"key_shards": np.array([0, 7]), "head_shards": np.array([0, 3, 4])}
    with pytest.raises(ArgumentError, match=r"head_shards: expected .* groups of 2 .*\[SHARD-12\]"):
        sharded_attention(**call, **whole)


def test_errors_of_merging_are_within_their_bounds_and_a_tree_has_less():
    s, value = draw()
    for parts in (2, 64):
        ring, tree = (measure(s[:2], value, parts, order, 100.0) for order in ("ring", "tree"))
        for one in (ring, tree):
            assert one.output < one.output_bound
            assert one.lse < one.lse_bound
        assert parts == 2 or tree.lse < ring.lse


def test_gradients_merge_as_the_chapter_writes():
    """Each rank has the lse and delta of the whole; what they compute from their keys adds up."""
    random = np.random.default_rng(3)
    query, key, value, g = (random.normal(size=shape) for shape in ((5, 4), (7, 4), (7, 3), (5, 3)))
    causal, scale = np.tri(5, 7, 2, dtype=bool), 0.5
    scores = np.where(causal, scale * query @ key.T, -np.inf)
    keys, queries = [slice(0, 1), slice(1, 4), slice(4, 7)], [slice(0, 3), slice(3, 5)]
    with np.errstate(divide="ignore"):  # a part without an allowed key has an lse of minus infinity
        parts = [np.log(np.exp(scores[:, k]).sum(axis=1)) for k in keys]
    lse = np.log(np.exp(parts).sum(axis=0))
    outputs = [np.exp(scores[:, k] - lse[:, None]) @ value[k] for k in keys]  # e^(lse_r - lse) o_r
    delta = (g * sum(outputs)).sum(axis=1)
    p = np.exp(scores - lse[:, None])
    rho = p * (g @ value.T - delta[:, None])
    d_query = scale * sum(rho[:, k] @ key[k] for k in keys)
    d_key = scale * sum(rho[i].T @ query[i] for i in queries)
    d_value = sum(p[i].T @ g[i] for i in queries)
    options = {"scale": scale, "is_causal": True, "query_offset": 2}
    expected = attention_vjp(query, key, value, g, **options)
    for own, whole in zip((d_query, d_key, d_value), expected, strict=True):
        np.testing.assert_allclose(own, whole, rtol=1e-13, atol=1e-13)
    page = (Path(__file__).parent.parent / "spec" / "sharding.md").read_text()
    assert r"\delta_i &= \sum_c g_{ic} \sum_r e^{\mathrm{lse}^r_i - \mathrm{lse}_i} \, o^r_{ic}" in page
    assert r"\mathrm{d\_key}_{jd} &= \mathrm{scale} \sum_r \sum_{i \in I_r} \rho_{ij}" in page
