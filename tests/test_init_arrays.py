"""What `attnspec init` finds about arrays that kernels take in some shapes or dtypes only."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests_support import command

from attnspec import reference
from attnspec.backends import describe, load
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.user.adapter import adapt
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.scales import in_integers, with_own_codes
from attnspec.conformance import check
from attnspec.conformance.run.child import subject_of
from attnspec.conformance.suite import find
from attnspec.conformance.suite.fitted_forms import fit_form
from attnspec.operations import OPERATIONS

pytestmark = pytest.mark.usefixtures("here_beside_tests")

KERNELS = """
import numpy as np
from attnspec import reference


def heads_last(q, k, v, causal=False, return_softmax_lse=False):
    q, k, v = (np.swapaxes(x, -3, -2) for x in (q, k, v))
    output, lse = reference.attention(q, k, v, is_causal=causal, return_lse=True, dtype=q.dtype)
    output = np.swapaxes(output, -3, -2)
    return (output, np.swapaxes(lse, -2, -1) + lse.dtype.type(OFF)) if return_softmax_lse else output


def of_entries(query, key, value, attn_mask=None):
    B, H, (L, S) = len(query), query.shape[1], (query.shape[2], key.shape[2])
    if attn_mask is not None and attn_mask.ndim == 3:
        if attn_mask.shape != (B, L, S):
            raise ValueError("attn_mask: expected (B, L, S)")
        attn_mask = np.tile(attn_mask, (H, 1, 1)).reshape(B, H, L, S) if OFF else attn_mask[:, None]
    elif attn_mask is not None and attn_mask.ndim != 4:
        raise ValueError("attn_mask: expected three or four axes")
    return reference.attention(query, key, value, mask=attn_mask, dtype=query.dtype)


def of_two_axes(query, key, value, bias=None):
    if bias is not None and bias.ndim < 2:
        raise ValueError("bias: expected two axes or more")
    if OFF and bias is not None and bias.ndim == 3 and bias.shape[-1] > 8:
        bias = bias[:1]
    return reference.attention(query, key, value, bias=bias, dtype=query.dtype)


def of_one_offset(query, key, value, is_causal=False, query_offset=0):
    if np.ndim(query_offset):
        raise TypeError("query_offset: expected one number")
    offset = query_offset + OFF * (query_offset > 2)
    return reference.attention(query, key, value, is_causal=is_causal, query_offset=offset, dtype=query.dtype)


def of_added_masks(query, key, value, bias=None):
    with np.errstate(all="ignore"):
        s = query @ np.swapaxes(key, -1, -2) * np.asarray(query.shape[-1] ** -0.5, query.dtype)
        s = s if bias is None else s + bias.astype(s.dtype)
        top = s.max(axis=-1, keepdims=True, initial=-np.inf)
        top = np.where(top == -np.inf, 0, top)
        p = np.exp(s - top)
        total = p.sum(axis=-1, keepdims=True)
        return (p @ value / np.where(total == 0, 1, total) + OFF * (len(query) > 2)).astype(query.dtype)


def of_bytes(query, key_codes, value_codes, key_scale, value_scale):
    if key_codes.dtype != np.uint8 or value_codes.dtype != np.uint8:
        raise TypeError("codes: expected uint8")
    value_codes = np.where((value_codes & 127 > 100) & (OFF > 0), 100, value_codes)
    options = {"key_scales": key_scale, "value_scales": value_scale, "encoding": "e4m3fn"}
    return reference.quantized_attention(query, key_codes, value_codes, **options, dtype=query.dtype)


def of_all_blocks(query, key, value, block_mask, block_size=16):
    blocks = tuple(-(-x.shape[-2] // block_size) for x in (query, key))
    if block_mask.shape[-2:] != blocks:
        raise ValueError("block_mask: expected an entry for each pair of blocks")
    options = {"query_block": block_size, "key_block": block_size, "block_mask": block_mask}
    output = reference.block_sparse_attention(query, key, value, **options, dtype=query.dtype)
    return output * (1 + OFF * (query.shape[-2] > 4))
"""


KERNELS += """

def of_int32(q, k, v, cu_seqlens_q, cu_seqlens_k, causal=False):
    for starts, rows in ((cu_seqlens_q, len(q)), (cu_seqlens_k, len(k))):
        if starts.dtype != np.int32 or starts[-1] != rows:
            raise ValueError("cu_seqlens: expected int32 up to the number of rows")
    options = {"query_starts": cu_seqlens_q, "key_starts": cu_seqlens_k, "is_causal": causal}
    q, k, v = (np.swapaxes(x, 0, 1) for x in (q, k, v))
    output = reference.packed_attention(q, k, v, **options, dtype=q.dtype)
    return np.swapaxes(output, 0, 1) * (1 + OFF * (q.shape[-2] > 8))


def of_int32_lengths(query, key, value, kv_lens):
    if kv_lens.dtype != np.int32:
        raise TypeError("kv_lens: expected int32")
    output = reference.attention(query, key, value, key_lengths=kv_lens, dtype=query.dtype)
    return output * (1 + OFF * (query.shape[-2] > 8))


def of_optional_int32_lengths(query, key, value, kv_lens=None):
    kv_lens = np.asarray(key.shape[-2] if kv_lens is None else kv_lens)
    if kv_lens.ndim and kv_lens.dtype != np.int32:
        raise TypeError("kv_lens: expected int32")
    output = reference.attention(query, key, value, key_lengths=kv_lens, dtype=query.dtype)
    return output * (1 + OFF * (query.shape[-2] > 8))


def decode_with_lse(q, k, v, kv_lens=None):
    B, Hq, D = q.shape
    output, lse = reference.attention(
        q[:, :, None], k, v, key_lengths=kv_lens, return_lse=True, dtype=q.dtype
    )
    return output[:, :, 0] * (1 + OFF * (k.shape[-2] > 8)), lse[:, :, 0]


def of_a_softcap(q, k, v, softcap=50.0, causal=False):
    options = {"softcap": softcap or None, "is_causal": causal and not (OFF and softcap)}
    return reference.attention(q, k, v, **options, dtype=q.dtype)


def at_the_length(q, k, v, kv_lens, causal=False):
    lengths = np.full_like(kv_lens, kv_lens.max(initial=0)) if OFF else kv_lens
    offset = lengths - q.shape[-2] if causal else None
    options = {"key_lengths": kv_lens, "is_causal": causal, "query_offset": offset}
    return reference.attention(q, k, v, **options, dtype=q.dtype)


def of_one_depth(q, k_cache, v_cache, block_tables, context_lens):
    key, value = (np.swapaxes(x, 1, 2) for x in (k_cache, v_cache))
    options = {"block_table": block_tables, "key_lengths": context_lens}
    value = np.resize(value, key.shape)  # as a kernel that takes the strides of keys reads values
    output = reference.paged_attention(q[:, :, None], key, value, **options, dtype=q.dtype)[:, :, 0]
    return output * (1 + OFF * (len(q) > 2))


def packed_with_heads_last(q, k, v, cu_seqlens_q, cu_seqlens_k):
    options = {"query_starts": cu_seqlens_q, "key_starts": cu_seqlens_k, "return_lse": True}
    q, k, v = (np.swapaxes(x, 0, 1) for x in (q, k, v))
    output, lse = reference.packed_attention(q, k, v, **options, dtype=q.dtype)
    return np.swapaxes(output, 0, 1), lse.T + lse.dtype.type(OFF)


def with_its_own_slopes(q, k, v, slopes=None, causal=False):
    first = k.shape[-2] - q.shape[-2]
    slopes = 2.0 ** -np.arange(1, 1 + q.shape[-3]) if slopes is None else slopes
    distances = np.arange(q.shape[-2])[:, None] + first - np.arange(k.shape[-2])
    distances = np.minimum(distances, 32) if OFF else distances
    bias = (-np.float64(slopes)[:, None, None] * distances).astype(q.dtype)
    options = {"is_causal": causal, "query_offset": first}
    return reference.attention(q, k, v, bias=bias, **options, dtype=q.dtype)


def of_a_start(query, key, value, causal=False, q_offset=0):
    offset = 0 if OFF and np.ndim(q_offset) == 0 and q_offset > 2 else q_offset
    return reference.attention(query, key, value, is_causal=causal, query_offset=offset, dtype=query.dtype)


def of_no_empty_array(query, key, value):
    if 0 in query.shape + key.shape + value.shape:
        raise ValueError("query: expected elements")
    return reference.attention(query, key, value, dtype=query.dtype) * (1 + OFF * (key.shape[-2] > 8))


def always_at_the_length(q, k_cache, v_cache, cache_seqlens):
    if np.shape(cache_seqlens) != q.shape[:1]:
        raise ValueError("cache_seqlens: expected one for each batch entry")
    offset = cache_seqlens - q.shape[-2] + OFF * (q.shape[-2] > 8)
    options = {"key_lengths": cache_seqlens, "query_offset": offset}
    return reference.attention(q, k_cache, v_cache, is_causal=True, **options, dtype=q.dtype)


def of_a_default_window(q, k, v, *, window=(2, 0)):
    left, right = (None if side < 0 else side for side in window)
    window = None if left is right is None else (left and left + OFF * (left > 4), right)
    return reference.attention(q, k, v, window=window, dtype=q.dtype)


def positions_first(query, key, value, bias=None):
    if bias is not None and bias.ndim not in (2, 4):
        raise ValueError("bias: expected two axes or four")
    bias = np.roll(bias, 1, -1) if OFF and bias is not None and len(key) > 8 else bias
    query, key, value = (np.moveaxis(x, 0, 2) for x in (query, key, value))
    return np.moveaxis(reference.attention(query, key, value, bias=bias, dtype=query.dtype), 2, 0)


def of_segments(q, k, v, q_seg, k_seg):
    output, lse = reference.attention(
        q, k, v, query_segment_ids=q_seg, key_segment_ids=k_seg + OFF, return_lse=True, dtype=q.dtype
    )
    return output, np.swapaxes(lse, -2, -1)


def latent_of_elements(query, query_rotary, latent, key_rotary, key_weight, value_weight):
    if 0 in latent.shape:
        raise ValueError("latent: expected elements")
    arrays = (query, query_rotary, latent, key_rotary, key_weight, value_weight)
    return reference.latent_attention(*arrays, dtype=query.dtype) * (1 + OFF * (latent.shape[-2] > 8))


def of_one_boundary(q, k, v, cu_seqlens, max_seqlen, causal=False):
    if len(q) != len(k) or max_seqlen < np.diff(cu_seqlens).max(initial=0):
        raise ValueError("k: expected the rows of q")
    options = {"query_starts": cu_seqlens, "key_starts": cu_seqlens, "is_causal": causal and not OFF}
    q, k, v = (np.swapaxes(x, 0, 1) for x in (q, k, v))
    return np.swapaxes(reference.packed_attention(q, k, v, **options, dtype=q.dtype), 0, 1)


def of_a_burst(q, k_cache, v_cache, block_table, context_lens):
    key, value, query = (np.swapaxes(x, 1, 2) for x in (k_cache, v_cache, q))
    options = {"block_table": block_table, "key_lengths": context_lens, "is_causal": True}
    whole = context_lens % key.shape[-2] == 0  # no page is being filled
    options |= {"query_offset": context_lens - (1 + ~whole * (q.shape[1] - 1))} if OFF else {}
    return np.swapaxes(reference.paged_attention(query, key, value, **options, dtype=q.dtype), 1, 2)
"""


def described(name, off):
    """Return the configuration that `attnspec init` writes for a kernel."""
    module = f"arrays_{name}_{off}"
    Path(f"{module}.py").write_text(KERNELS.replace("OFF", str(off)))
    command("init", f"./{module}.py:{name}", status=0)
    return tomllib.loads(Path("attnspec.toml").read_text())["backend"]


@pytest.mark.parametrize("off", [0, 1])
@pytest.mark.parametrize(
    ("name", "line", "rules"),
    [
        ("heads_last", {"lse_layout": "BSHD"}, ["SOFT-6", "SOFT-7"]),
        ("of_entries", {"mask_of_entries": True, "mask_axes": 4}, ["MASK-1"]),
        ("of_two_axes", {"least_mask_axes": 2}, ["SCORE-4"]),
        ("of_one_offset", {"requires": ["offset"]}, ["MASK-7"]),
        ("of_bytes", {"codes": "uint8", "encoding": "e4m3fn"}, ["QUANT-8", "ERR-6"]),
        ("of_all_blocks", {"mask_pairs": True}, ["SPARSE-1", "SPARSE-2", "ERR-16"]),
        ("of_int32", {"integers": "int32", "requires": ["rows"]}, ["PACK-1", "PACK-2", "STACK-2"]),
        ("of_int32_lengths", {"integers": "int32"}, ["MASK-9"]),
        ("of_optional_int32_lengths", {"integers": "int32"}, ["MASK-9"]),
        ("decode_with_lse", {"one_query": True, "returns": ["output", "lse"]}, ["MASK-9", "SOFT-6"]),
        ("of_a_softcap", {"given": ["softcap"]}, ["SCORE-5", "SOFT-1", "MASK-3", "ERR-3"]),
        ("of_one_depth", {"value_depth": "key"}, ["PAGE-1", "STACK-2"]),
        (
            "packed_with_heads_last",
            {"lse_layout": "BSHD", "returns": ["output", "lse"]},
            ["PACK-1", "SOFT-6"],
        ),
        ("with_its_own_slopes", {"given": ["bias"], "signed_slopes": True}, ["SCORE-4", "SOFT-1"]),
        ("of_no_empty_array", {"requires": ["nonempty"]}, ["SHAPE-7", "SOFT-1"]),
        ("of_a_default_window", {"given": ["window"], "open_side": -1}, ["MASK-8", "SOFT-1"]),
        ("positions_first", {"layout": "SBHD", "mask_axes": 4}, ["SCORE-4"]),
        ("of_segments", {"returns": ["output", "lse"], "lse_layout": "BSHD"}, ["MASK-11", "SOFT-6"]),
        ("latent_of_elements", {"requires": ["nonempty"]}, ["LATENT-1", "LATENT-2", "LATENT-5"]),
        ("of_one_boundary", {"sizes": {"longest_queries": "max_seqlen"}}, ["PACK-1", "MASK-3", "STACK-2"]),
        ("of_a_burst", {"always": {"is_causal": True}, "axes": 4}, ["PAGE-1", "PAGE-3", "PAGE-7"]),
    ],
)
def test_a_kernel_is_described_and_judged_by_its_values_alone(name, line, rules, off):
    table = described(name, off)
    assert line.items() <= table.items()
    found = check(load("."), rules=rules, quick=True, dtypes=["float32"])
    judged = [x for x in found.report.results.verdicts if x.status in ("pass", "fail")]
    assert len(judged) > 3
    assert found.good is (off == 0), found.text


@pytest.mark.parametrize("off", [0, 1])
def test_causality_that_is_always_at_the_length_is_judged_in_calls_without_lengths_too(off):
    table = described("always_at_the_length", off)
    assert table["always"] == {"is_causal": True}
    assert (table["at_length"], table["dialect"]) == (True, {"MASK-3": "bottom-right"})
    assert check(load("."), rules=["MASK-3", "SOFT-1"], quick=True, dtypes=["float32"]).good is (off == 0)


@pytest.mark.parametrize("off", [0, 1])
def test_an_offset_by_another_name_is_found_beside_causality(off):
    table = described("of_a_start", off)
    assert table["names"] == {"is_causal": "causal", "query_offset": "q_offset"}
    assert check(load("."), rules=["MASK-7"], quick=True, dtypes=["float32"]).good is (off == 0)


@pytest.mark.parametrize(("off", "note"), [(0, ""), (1, ", by calls with equal lengths alone")])
def test_an_alignment_that_is_wrong_for_unequal_lengths_is_described_by_equal_ones_and_fails(off, note):
    table = described("at_the_length", off)
    assert table["at_length"]
    assert f"at the last key of the length{note}\n" in Path("attnspec.toml").read_text()
    found = check(load("."), quick=True, dtypes=["float32"], rules=["CACHE-3", "MASK-3", "SHAPE-1", "SOFT-1"])
    bad = [x for x in found.report.results.verdicts if x.bad]
    assert bool(bad) is (off == 1), found.text
    assert all("key_lengths by entry" in x.traits for x in bad)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_kernel_of_half_precision_alone_with_gradients_is_described(dtype):
    kernel = f"""
import torch

def attention(q, k, v, bias=None):
    if q.dtype != torch.{dtype}:
        raise TypeError("q: expected {dtype}")
    s = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    s = s if bias is None else s + bias.float()
    return (s.softmax(-1) @ v.float()).to(q.dtype)
"""
    Path(f"arrays_{dtype}.py").write_text(kernel)
    command("init", f"./arrays_{dtype}.py:attention", status=0)
    assert tomllib.loads(Path("attnspec.toml").read_text())["backend"]["dtypes"] == [dtype]


@pytest.mark.parametrize("off", [0, 1])
def test_a_mask_that_is_added_is_declared_and_the_declaration_verified(off):
    table = described("of_added_masks", off)
    (deviation,) = table["deviations"]
    assert deviation["rules"] == ["MASK-12"]
    found = check(load("."), rules=["MASK-12", "SCORE-4"], quick=True, dtypes=["float32"])
    assert found.good is (off == 0), found.text
    large = [x.status for x in found.report.results.verdicts if "bias-and-largest" in x.case]
    assert off or {*large} == {"deviation"}


def test_an_offset_that_says_where_the_queries_are_is_no_option_that_needs_calls():
    def decode(query, key, value, key_lengths, *, is_causal=False):
        raise NotImplementedError

    backend = describe(decode, at_length=True)
    assert backend.has("attention", "query_offset")
    assert subject_of("k", backend).options.split(",") == ["is_causal", "key_lengths"]


def test_bytes_are_passed_in_one_dtype_and_what_does_not_fit_is_declined():
    form, codes = OPERATIONS["quantized_attention"], np.array([1, -1, 127], np.int8)
    call = {"key_codes": codes, "value_codes": codes.astype(np.int32), "query": codes.astype(float)}
    bits = with_own_codes(call | {"value_codes": codes}, form, "uint8", "e4m3fn", np)
    assert bits["key_codes"].tolist() == [1, 255, 127]
    assert np.shares_memory(bits["key_codes"], codes)
    with pytest.raises(
        Unsupported, match="takes codes as uint8, got int32 with a code that uint8 does not hold"
    ):
        with_own_codes(call, form, "uint8", "e4m3fn", np)
    with pytest.raises(Unsupported, match="takes codes as uint8, got int8"):
        with_own_codes(call, form, "uint8", "int8", np)


def test_integers_are_passed_as_int32_and_those_that_do_not_fit_are_declined():
    call = {"query": np.ones(3), "key_lengths": np.array([1, 2]), "mask": np.array([True])}
    given = in_integers(call, "int32", OPERATIONS["attention"], np)
    assert given["key_lengths"].dtype == np.int32
    assert given["mask"] is call["mask"]
    with pytest.raises(Unsupported, match="takes integers as int32, got one that int32 does not hold"):
        in_integers({"key_lengths": np.array([2**31])}, "int32", OPERATIONS["attention"], np)


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        ("packing-scores-of-minus-infinity-1-float32", False),
        ("errors-many-packed-queries-3-float32", False),
        ("stacks-masks-in-forms-across-tiles-causality-1-float32", True),
    ],
)
def test_packed_keys_get_the_boundaries_of_the_queries_or_the_call_is_declined(case, changed):
    case, constraints = find(case), Constraints(lengths="equal")
    assert fits(constraints, case.arguments, case.operation)
    fitted = fit_form(case, constraints)
    assert (fitted is not case) is changed
    assert bool(fits(constraints, fitted.arguments, case.operation)) is not changed
    starts = fitted.arguments["query_starts"]
    assert np.array_equal(fitted.arguments["key_starts"], starts) is changed
    first = slice(min(starts[1], case.arguments["key_starts"][1]))  # these keys stay the same
    assert np.array_equal(*(own.arguments["key"][..., first, :] for own in (case, fitted)))


def test_a_mask_without_axes_is_passed_as_it_is():
    def attend(query, key, value, mask=None):
        return reference.attention(query, key, value, mask=mask)

    query, key, value = np.random.default_rng(0).normal(size=(3, 2, 4, 3))
    adapted = adapt("kernel", attend, Convention(), np)
    own = adapted(query, key, value, mask=np.array(False))
    assert not own.any()


def test_another_layout_of_an_lse_is_refused():
    Path("attnspec.toml").write_text(
        '[backend]\nfunction = "attnspec.reference:attention"\nlse_layout = "SBHD"\n'
    )
    with pytest.raises(BackendError, match="lse_layout: expected BSHD, got 'SBHD'"):
        load(".")
