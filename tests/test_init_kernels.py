"""Kernels of a kind that `attnspec init` describes by more than names and layout, from init to verdict."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tests_support import command

from attnspec.backends import BackendError, Unsupported, describe, load
from attnspec.conformance import check
from attnspec.reference import attention

KERNELS = """
import numpy as np
from attnspec.reference import attention


def t5(query, key, value, position_bias=None, mask=None):
    zero = np.zeros((), query.dtype)
    both = (zero if position_bias is None else position_bias) + (zero if mask is None else mask)
    return attention(query, key, value, bias=both, dtype=query.dtype)


def t5_mask_first(query, key, value, mask=None, position_bias=None):
    return t5(query, key, value, position_bias, mask)


def with_a_shifted_mask(query, key, value, mask=None):
    mask = None if mask is None else np.roll(mask, 1, -1)
    return attention(query, key, value, mask=mask, dtype=query.dtype)


def capped(query, key, value, softcap=None, mask=None):
    return attention(query, key, value, mask=mask, dtype=query.dtype)
"""

FLAG = """
import numpy as np
from attnspec.reference import attention


def kernel(query, key, value, enable_gqa=False):
    shared = query.shape[-3] // key.shape[-3]
    if enable_gqa != (shared > 1):
        raise ValueError(f"expected a flag of {shared > 1}")
    key, value = (np.repeat(x, shared, -3) for x in (key, value))
    return attention(query, key, value, dtype=query.dtype)
"""

#: A call with a mask, and one with a bias.
CASES = ["softmax-lse", "scores-bias-per-head"]


@pytest.fixture(autouse=True)
def _kernels(here_beside_tests):
    Path("kernels.py").write_text(KERNELS)
    yield
    sys.modules.pop("kernels", None)


def init(name):
    """Return what `attnspec init` writes for a kernel."""
    command("init", f"./kernels.py:{name}", status=0)
    return Path("attnspec.toml").read_text()


@pytest.mark.parametrize("name", ["t5", "t5_mask_first"])
def test_a_mask_that_is_added_beside_a_bias_is_tried_as_one(name):
    text = init(name)
    assert 'mask = "add"  # it is added to the scores' in text
    assert 'bias = "position_bias"' in text
    assert "guesses" not in text
    found = check(load("."), cases=CASES)
    assert found.good, found.text
    assert [verdict.status for verdict in found.report.results.verdicts].count("pass") > 1
    assert "a guess" not in found.text


def test_a_guess_is_called_a_guess_in_the_report():
    assert 'guesses = ["mask"]' in init("with_a_shifted_mask")
    found = check(load("."), cases=CASES)
    assert not found.good
    assert "a guess, which no call confirmed: mask\n" in found.text
    Path("attnspec.toml").unlink()
    assert 'guesses = ["softcap"]' in init("capped")


@pytest.mark.parametrize("names", [{}, {"mask": "mask"}])
def test_an_argument_that_is_ignored_is_not_passed(names):
    lines = [f'names = {{ {x} = "{y}" }}' for x, y in names.items()]
    Path("attnspec.toml").write_text("\n".join(["[backend]", 'ignore = ["mask"]', *lines]))
    assert "mask = " not in init("t5").replace('{ mask = "mask" }', "").partition("[backend.names]")[0]
    backend = load(".")
    assert not backend.has("attention", "mask")
    assert backend.has("attention", "bias")
    found = check(backend, cases=CASES)
    assert found.good, found.text
    assert "not tested, because it is ignored: mask\n" in found.text


def test_an_argument_of_a_companion_is_ignored_too():
    def rotary(features, positions, *, base=10000.0, offset=0):
        return features

    ignore = ["offset", "base"]
    backend = describe(attention, companions={"rotary": rotary}, ignore=ignore)
    assert not backend.has("rotary", "base")


@pytest.mark.parametrize(
    ("mapping", "good"),
    [("np.repeat(x, shared, -3)", True), ("np.concatenate([x] * shared, -3)", False)],
)
def test_the_flag_of_shared_heads_is_passed_where_there_are_any(mapping, good):
    Path("kernels.py").write_text(FLAG.replace("np.repeat(x, shared, -3)", mapping))
    text = init("kernel")
    assert 'sizes = { shared_heads = "enable_gqa" }  # with it the function takes shared key heads' in text
    assert "heads = " not in text.replace("shared_heads = ", "")
    assert "ignore" not in text
    found = check(load("."), cases=["heads-four-over-two", "softmax-lse"])
    assert found.good == good, found.text


OF_TORCH = """
import torch


def kernel(query, key, value, bias=None):
    scores = query @ key.mT * query.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    weights = torch.softmax(scores, -1)
    weights = torch.where(scores.isneginf().all(-1, keepdim=True), torch.zeros_like(weights), weights)
    return weights @ value
"""


def test_gradients_that_are_nan_in_part_have_no_variant():
    pytest.importorskip("torch")
    Path("kernels.py").write_text(OF_TORCH)
    assert "GRAD-10" not in init("kernel"), "only d_query and d_key are NaN"
    sys.modules.pop("kernels")
    Path("kernels.py").write_text(OF_TORCH.replace("    weights = torch.where", "    torch.where"))
    Path("attnspec.toml").unlink()
    assert 'GRAD-10 = "nan"' in init("kernel")
    sys.modules.pop("kernels")
    causal = OF_TORCH.replace("bias=None", "is_causal=False").replace(
        "    weights = torch.where", "    torch.where"
    )
    masked = "scores + torch.full_like(scores, -torch.inf).triu(1) if is_causal else scores"
    Path("kernels.py").write_text(causal.replace("scores if bias is None else scores + bias", masked))
    Path("attnspec.toml").unlink()
    assert "GRAD-10" not in init("kernel"), "each query sees the first key"


IN_FLOAT32 = """
import numpy as np
from attnspec.reference import function


def listed_attention(query, key, value, *, key_indices, scale=None):
    q, k, v = (x.astype(DTYPE) for x in (query, key, value))
    output = function("listed_attention")(q, k, v, key_indices=key_indices, scale=scale, dtype=DTYPE)
    return output.astype(query.dtype)
"""


@pytest.mark.parametrize(("dtype", "written"), [("np.float32", True), ("np.float64", False)])
def test_float64_of_a_form_that_is_computed_in_float32_is_noted(dtype, written):
    Path("kernels.py").write_text(IN_FLOAT32.replace("DTYPE", dtype))
    assert ('NUM-2 = "float32"  # float64 is computed in float32' in init("listed_attention")) == written


BACKWARD = """
import numpy as np
from attnspec.reference import attention, attention_vjp


def forward(q, k, v, softmax_scale=None):
    return attention(q, k, v, scale=softmax_scale)


def backward(dout, q, k, v, out, softmax_lse, softmax_scale=None, causal=False):
    q, k, v, dout, out = (np.swapaxes(x, 1, 2) for x in (q, k, v, dout, out))
    expected = attention(q, k, v, scale=softmax_scale, is_causal=causal, return_lse=True)
    for own, other in zip((out, softmax_lse), expected, strict=True):
        np.testing.assert_allclose(own, other, 1e-3, 1e-3)
    gradients = attention_vjp(q, k, v, dout, scale=softmax_scale, is_causal=causal, dtype=q.dtype)
    return tuple(np.swapaxes(x, 1, 2) for x in gradients)
"""


def test_a_backward_pass_that_takes_results_of_the_forward_pass_is_described():
    Path("kernels.py").write_text(BACKWARD)
    with pytest.raises(BackendError, match="as attention_vjp does; run `attnspec init "):
        load("./kernels.py:backward")
    text = init("backward")
    assert 'operation = "attention_vjp"' in text
    assert 'layout = "BSHD"' in text
    assert 'output = "out"\nlse = "softmax_lse"' in text
    assert "guesses" not in text
    found = check(load("."), rules=["GRAD-1", "GRAD-9"], quick=True, dtypes=["float32"])
    assert found.good, found.text
    assert [verdict.status for verdict in found.report.results.verdicts].count("pass") > 3


OF_BLOCKS = """
from attnspec.reference import block_sparse_attention


def sparse(q, k, v, block_indices, block_counts, block_size, query_block=1, block_mask=None):
    lists = {"block_indices": block_indices, "block_counts": block_counts, "block_mask": block_mask}
    sizes = {"key_block": block_size, "query_block": query_block}
    return block_sparse_attention(q, k, v, **lists, **sizes, dtype=q.dtype)
"""


def test_lists_of_blocks_are_no_pages():
    Path("kernels.py").write_text(OF_BLOCKS)
    text = init("sparse")
    assert 'operation = "block_sparse_attention"' in text
    assert 'key_block = "block_size"' in text
    backend = load(".")
    assert backend.has("block_sparse_attention", "block_mask")
    found = check(backend, rules=["SPARSE-1", "SPARSE-3", "SPARSE-5", "SPARSE-10"], quick=True)
    assert found.good, found.text
    statuses = [verdict.status for verdict in found.report.results.verdicts]
    assert statuses.count("pass") > 10
    arrays, sizes = [np.ones((1, 1, 4, 2))] * 3, {"query_block": 2, "key_block": 2}
    with pytest.raises(Unsupported, match="got one without the other"):
        backend.companions["block_sparse_attention"](*arrays, **sizes, block_counts=np.ones((1, 1, 2), int))


OF_EQUAL_HEADS = """
from numpy.lib.stride_tricks import as_strided

from attnspec.reference import block_sparse_attention


def equal(query, key, value, *, query_block, key_block, block_mask=None):
    key, value = (as_strided(x, (*query.shape[:2], *x.shape[2:]), x.strides) for x in (key, value))
    sizes = {"key_block": key_block, "query_block": query_block}
    return block_sparse_attention(query, key, value, block_mask=block_mask, **sizes, dtype=query.dtype)
"""


def test_a_form_that_reads_past_the_end_of_shared_heads_takes_equal_ones():
    Path("kernels.py").write_text(OF_EQUAL_HEADS)
    said = "with two key heads for four query heads it read past the end of an array"
    assert f'heads = "equal"  # {said}' in init("equal")


MASKED_BLOCKS = """
from attnspec.reference import block_sparse_attention


def masked(q, k, v, block_mask, block_m=64, block_n=64, causal=False):
    assert block_mask.dtype == bool and block_mask.ndim == q.ndim == 4
    sizes = {"key_block": block_n, "query_block": block_m}
    return block_sparse_attention(q, k, v, block_mask=block_mask, **sizes, is_causal=causal, dtype=q.dtype)
"""


def test_a_needed_mask_of_blocks_is_none_of_pairs():
    Path("kernels.py").write_text(MASKED_BLOCKS)
    text = init("masked")
    assert 'operation = "block_sparse_attention"' in text
    assert 'query_block = "block_m"\nkey_block = "block_n"\nis_causal = "causal"' in text
    backend, arrays = load("."), [np.random.default_rng(0).normal(size=(1, 2, 5, 3))] * 3
    whole = backend.companions["block_sparse_attention"](*arrays, query_block=2, key_block=3)
    assert np.array_equal(whole, attention(*arrays)), "without a mask it gets every block"
    found = check(backend, rules=["SPARSE-1", "SPARSE-3", "SPARSE-4"], quick=True, dtypes=["float32"])
    assert found.good, found.text
    assert [verdict.status for verdict in found.report.results.verdicts].count("pass") >= 10


OF_FLAGS = """
from attnspec.reference import attention
from attnspec.reference import listed_attention as listed


def top_left(q, k, v, tri=False):
    return attention(q, k, v, is_causal=tri, dtype=q.dtype)


def bottom_right(q, k, v, tri=False):
    return attention(q, k, v, is_causal=tri, query_offset=k.shape[-2] - q.shape[-2], dtype=q.dtype)


def on_by_default(q, k, v, tri=True):
    return attention(q, k, v, is_causal=tri, dtype=q.dtype)


def listed_attention(query, key, value, *, key_indices, tri=False):
    return listed(query, key, value, key_indices=key_indices, is_causal=tri, dtype=query.dtype)


def of_three(q, k, v, p=0.0, quiet=True, masked=False, odd=False, deterministic=True):
    if odd:
        raise ValueError("odd")
    return attention(q, k, v, scale=3.0 if masked else None, dtype=q.dtype)
"""


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("top_left", ["its causal mask is aligned at the top left"]),
        ("bottom_right", ["its causal mask is aligned at the bottom right", 'MASK-3 = "bottom-right"']),
        ("on_by_default", ["False excludes no key", 'given = ["is_causal"]']),
        ("listed_attention", ["the results are those of a causal mask"]),
    ],
)
def test_a_boolean_of_an_unknown_name_is_causality_if_calls_show_it(name, lines):
    Path("kernels.py").write_text(OF_FLAGS)
    text = init(name)
    assert f'is_causal = "tri"  # its name is unknown, and calls show it: {lines[0]}' in text
    assert all(line in text for line in lines)
    assert "ignore" not in text
    operation = "attention" if "operation" not in text else name
    assert load(".").has(operation, "is_causal")


def test_what_an_ignored_boolean_does_is_said_and_each_is_named_in_the_report():
    Path("kernels.py").write_text(OF_FLAGS)
    text = init("of_three")
    assert "; masked = True changes the result; quiet = False changes nothing in a small call" in text
    assert "; odd = True raises an error\n" in text
    found = check(load("."), cases=["softmax-000"])
    assert found.good
    assert "not tested, because it is ignored: masked, p, quiet, odd\n" in found.text


DECODES = """
from attnspec.reference import paged_attention as reference


def paged_attention(query, key_pages, value_pages, *, block_table, key_lengths, scale=None):
    if query.shape[-2] != 1 or query.ndim != 4:
        raise NotImplementedError("one query of each sequence, one axis of sequences")
    options = {"block_table": block_table, "key_lengths": key_lengths, "scale": scale}
    return reference(query, key_pages, value_pages, **options, dtype=query.dtype)
"""


def test_a_wrapper_of_one_query_that_keeps_its_axis_is_described():
    Path("kernels.py").write_text(DECODES)
    text = init("paged_attention")
    assert 'one_query = "axis"' in text
    found = check(load("."), rules=["PAGE-1"], quick=True, dtypes=["float32"])
    assert found.good, found.text
    assert "declined by" not in found.text


OF_PAGES = """
import numpy as np
from attnspec.reference import paged_attention


def paged_attention_v1(query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens):
    assert key_cache.shape[-1] == 16 // key_cache.dtype.itemsize and key_cache.shape[1] == num_kv_heads
    blocks, heads, _, size, _ = key_cache.shape
    key = np.swapaxes(key_cache, 2, 3).reshape(blocks, heads, size, query.shape[-1])
    options = {"block_table": block_tables, "key_lengths": seq_lens, "scale": scale}
    value = np.swapaxes(value_cache, -1, -2)
    return paged_attention(query[..., None, :], key, value, **options, dtype=query.dtype)[..., 0, :]
"""


def test_pages_whose_depth_is_in_two_axes_are_described_and_judged():
    Path("kernels.py").write_text(OF_PAGES)
    text = init("paged_attention_v1")
    assert 'shapes = { key_pages = "P, Hkv, D/x, K, x", value_pages = "P, Hkv, Dv, K" }' in text
    assert "guesses" not in text
    found = check(load("."), rules=["PAGE-1", "PAGE-3"], quick=True)
    assert found.good, found.text
    verdicts = found.report.results.verdicts
    assert [verdict.status for verdict in verdicts].count("pass") > 10
    assert any("in parts of 4 numbers, got" in verdict.reason for verdict in verdicts)
    with pytest.raises(BackendError, match="shapes: expected the letters P, Hkv, K, D in some order"):
        describe(attention, operation="paged_attention", shapes={"key_pages": "P, Hkv, D/x, K, D"})


def test_of_two_parameters_of_one_meaning_the_one_that_calls_confirm_is_named():
    Path("kernels.py").write_text(KERNELS + OF_TWO_MASKS)
    text = init("of_two_masks")
    assert 'mask = "attn_mask"' in text
    assert "guesses" not in text
    assert "no call confirmed padding_mask (mask?)" in text


OF_TWO_MASKS = """

def of_two_masks(query, key, value, padding_mask=None, attn_mask=None):
    return attention(query, key, value, mask=attn_mask, dtype=query.dtype)
"""
