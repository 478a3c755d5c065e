"""Kernels that take a list of blocks for each query, and have no blocks of queries."""

from pathlib import Path

import numpy as np
import pytest
from tests_support import command

from attnspec import reference
from attnspec.backends import BackendError, Unsupported, describe, load
from attnspec.backends.constraints import Constraints
from attnspec.backends.user.lists import LISTS
from attnspec.conformance import check

pytestmark = pytest.mark.usefixtures("here_beside_tests")

KERNEL = """
import numpy as np
from attnspec.reference import block_sparse_attention


def selected(q, k, v, block_indices, block_counts, block_size, scale=None):
    assert q.ndim == 4 and block_indices.shape[:-1] == block_counts.shape
    assert not STRICT or (block_indices[..., 0] == 0).all(), "a causal row may be empty"
    heads = (k if OF_KEY_HEADS else q).shape[-3]
    lists = {"block_indices": block_indices, "block_counts": block_counts}
    if AFTER:
        lists = {name: np.swapaxes(x, 1, 2) for name, x in lists.items()}
    assert block_counts.size == q.shape[0] * heads * q.shape[-2]
    lists = {name: np.repeat(x, q.shape[-3] // heads, axis=1) for name, x in lists.items()}
    if WRONG:
        lists["block_counts"] = np.full_like(lists["block_counts"], block_indices.shape[-1])
        lists["block_indices"] = np.clip(lists["block_indices"], 0, -(-k.shape[-2] // block_size) - 1)
    sizes = {"query_block": 1, "key_block": block_size, "scale": scale}
    return block_sparse_attention(q, k, v, **lists, **sizes, is_causal=CAUSAL, dtype=q.dtype)
"""
#: The rules about blocks, lists of them, and both beside other masks.
RULES = ["SPARSE-1", "SPARSE-2", "SPARSE-3", "SPARSE-4"]


def write_kernel(kind, *, causal=True, wrong=False, strict=False):
    """Write a kernel into this folder, and return what `attnspec init` writes."""
    name = f"kernel_{[*LISTS].index(kind)}{causal}{wrong}{strict}".lower()  # no other test has loaded it
    of_key_heads, after = LISTS[kind]
    values = {
        "OF_KEY_HEADS": of_key_heads,
        "AFTER": after,
        "WRONG": wrong,
        "CAUSAL": causal,
        "STRICT": strict,
    }
    text = KERNEL
    for word, value in values.items():
        text = text.replace(word, str(value))
    Path(f"{name}.py").write_text(text)
    command("init", f"./{name}.py:selected", status=0)
    return Path("attnspec.toml").read_text()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", LISTS)
def test_a_kernel_of_a_list_for_each_query_is_described(kind, causal):
    text = write_kernel(kind, causal=causal, strict=True)
    assert f'lists = "{kind}"' in text
    assert ("always = { is_causal = true }" in text) == causal
    assert 'key_block = "block_size"' in text
    assert "guesses" not in text


@pytest.mark.parametrize(("kind", "wrong"), [("L, Hkv", False), ("L, Hkv", True), ("Hq, L", False)])
def test_its_calls_fit_and_show_what_is_wrong(kind, wrong):
    write_kernel(kind, wrong=wrong)
    found = check(load("."), rules=RULES, quick=True, dtypes=["float32"])
    verdicts = [x for x in found.report.results.verdicts if x.operation == "block_sparse_attention"]
    passing = {rule for verdict in verdicts if verdict.status == "pass" for rule in verdict.rules}
    assert ("SPARSE-3" in {rule for x in verdicts if x.status == "fail" for rule in x.rules}) == wrong
    assert found.good != wrong
    assert wrong or passing >= {*RULES}


def _arrays():
    random = np.random.default_rng(0)
    query, key = random.normal(size=(2, 4, 5, 4)), random.normal(size=(2, 2, 7, 4))
    lists = np.argsort(random.random((2, 4, 3, 4)))
    return query, key, np.repeat(lists[:, ::2], 2, axis=1), random.integers(0, 4, (2, 1, 3))


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("given", [("lists",), ("mask",), ("lists", "mask"), ()])
def test_any_size_of_a_block_of_queries_is_passed(kind, given):
    of_key_heads, after = LISTS[kind]

    def kernel(query, key, value, *, block_indices, block_counts, key_block):
        lists = {"block_indices": block_indices, "block_counts": block_counts}
        lists = {name: np.swapaxes(x, 1, 2) if after else x for name, x in lists.items()}
        assert lists["block_counts"].shape == (2, 2 if of_key_heads else 4, 5)
        lists = {name: np.repeat(x, 2, axis=1) if of_key_heads else x for name, x in lists.items()}
        return reference.block_sparse_attention(
            query, key, value, **lists, query_block=1, key_block=key_block
        )

    operation = "block_sparse_attention"
    adapted = describe(kernel, operation=operation, lists=kind).companions[operation]
    query, key, indices, counts = _arrays()
    options = {"block_indices": indices, "block_counts": counts} if "lists" in given else {}
    options |= {"block_mask": indices > 1} if "mask" in given else {}
    sizes = {"query_block": 2, "key_block": 2}
    got = adapted(query, key, key, **sizes, **options)
    expected = reference.block_sparse_attention(query, key, key, **sizes, **options)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_lists_that_differ_in_a_group_are_declined():
    def kernel(query, key, value, *, block_indices, block_counts, key_block):
        return query

    operation = "block_sparse_attention"
    backend = describe(kernel, operation=operation, lists="L, Hkv")
    assert backend.constraints.lists == "key"
    assert Constraints.of_suffix("lists.key-window.both").lists == "key"
    query, key, indices, counts = _arrays()
    options = {"block_indices": indices + np.arange(4)[:, None, None], "block_counts": counts}
    with pytest.raises(Unsupported, match="block_indices of key heads, got some that differ in a group"):
        backend.companions[operation](query, key, key, query_block=2, key_block=2, **options)
    with pytest.raises(BackendError, match="lists: expected an operation over blocks, got listed_attention"):
        describe(kernel, operation="listed_attention", lists="L, Hkv")
    with pytest.raises(BackendError, match="lists: expected 'Hq, L' or"):
        describe(kernel, operation=operation, lists="Hkv")


#: It takes no axis of batch entries in the mask of blocks, and as many keys as queries where it is causal.
OF_A_LAYOUT = """
import numpy as np
from attnspec.reference import block_sparse_attention as blocks


def kernel(q, k, v, layout, block_q=32, block_k=32, *, causal=False, sm_scale=None):
    shape = (q.shape[1], -(-q.shape[2] // block_q), -(-k.shape[2] // block_k))
    if q.ndim != 4 or layout.shape != shape or causal and q.shape[2] != k.shape[2]:
        raise ValueError(f"expected a layout of {shape}")
    options = {"is_causal": causal, "scale": sm_scale, "dtype": q.dtype}
    return blocks(q, k, v, query_block=block_q, key_block=block_k, block_mask=layout, **options)
"""


@pytest.mark.parametrize(
    ("name", "broken", "rules"),
    [
        ("block_sparse_attention", ("causal,", "causal,"), set()),
        (
            "of_another_name",
            ('"is_causal": causal', '"is_causal": causal and block_q == block_k'),
            {"SPARSE-4"},
        ),
    ],
)
def test_a_mask_of_blocks_without_a_batch_is_described_and_causality_beside_it_judged(name, broken, rules):
    Path("kernels.py").write_text(OF_A_LAYOUT.replace("kernel", name).replace(*broken))
    text = command("init", f"./kernels.py:{name}", status=0).stdout
    assert "mask_axes = 3" in text
    assert 'lengths = "equal"  # with causal it raised an error where these are not equal' in text
    found = check(load("."), rules=["SPARSE-4", "SPARSE-5", "SHAPE-7"], dtypes=["float32"])
    assert {verdict.rules[0] for verdict in found.report.results.verdicts if verdict.bad} == rules
    judged = [x for x in found.report.results.verdicts if x.status in ("pass", "fail")]
    assert any("is_causal" in verdict.traits for verdict in judged)
