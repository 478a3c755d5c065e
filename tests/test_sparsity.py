"""Sparse attention: the mask that blocks and lists stand for, written out by hand."""

import numpy as np

from attnspec.operations.letters import value_of
from attnspec.reference import attention, block_sparse_attention, listed_attention
from attnspec.reference.sparsity import as_attention

T, F = True, False


def arrays(queries, keys, heads=1, key_heads=1):
    random = np.random.default_rng(queries + keys)
    return {
        "query": random.normal(size=(heads, queries, 2)),
        "key": random.normal(size=(key_heads, keys, 2)),
        "value": random.normal(size=(key_heads, keys, 3)),
    }


def test_blocks_stand_for_their_elements():
    call = arrays(3, 5)
    blocks = {"query_block": 2, "key_block": 2, "block_mask": np.array([[T, F, T], [F, T, F]])}
    mask = np.array([[T, T, F, F, T], [T, T, F, F, T], [F, F, T, T, F]])
    assert as_attention("block_sparse_attention", call | blocks)["mask"].tolist() == [mask.tolist()]
    found = block_sparse_attention(*call.values(), **blocks)
    np.testing.assert_array_equal(found, attention(*call.values(), mask=mask))


def test_lists_of_blocks_end_at_their_count():
    call = arrays(2, 5) | {"query_block": 1, "key_block": 2}
    lists = {"block_counts": np.array([2, 0]), "block_indices": np.array([[2, 0, 1], [0, 1, 99]])}
    mask = as_attention("block_sparse_attention", call | lists)["mask"]
    assert mask.tolist() == [[[T, T, F, F, T], [F, F, F, F, F]]]


def test_lists_of_key_heads_serve_their_query_heads():
    call = arrays(2, 3, heads=4, key_heads=2)
    lists = np.array([[[0, -1], [2, 1]], [[1, 1], [-1, -1]]])
    one, other = [[T, F, F], [F, T, T]], [[F, T, F], [F, F, F]]
    mask = as_attention("listed_attention", call | {"key_indices": lists})["mask"]
    assert mask.tolist() == [one, one, other, other]
    found = listed_attention(*call.values(), key_indices=lists, is_causal=True)
    np.testing.assert_array_equal(found, attention(*call.values(), mask=mask, is_causal=True))


def test_a_mask_is_kept_beside_blocks():
    call = arrays(2, 2) | {"query_block": 1, "key_block": 1, "block_mask": np.array([[T, T], [F, T]])}
    mask = as_attention("block_sparse_attention", call | {"mask": np.array([[T, F], [T, T]])})["mask"]
    assert mask.tolist() == [[[T, F], [F, T]]]


def test_a_quotient_of_letters_is_rounded_up():
    assert [value_of("L/Lb", {"L": size, "Lb": 2}) for size in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert value_of("L/Lb", {"L": 3}) is None
