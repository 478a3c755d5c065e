"""Kernels that `attnspec init` describes by a second reading, such as an inverse flag or one query."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests_support import command

from attnspec import OPERATIONS
from attnspec.backends import Unsupported, load
from attnspec.backends.user.scales import with_own_codes
from attnspec.backends.user.small_calls import small_call
from attnspec.conformance import check

pytestmark = pytest.mark.usefixtures("here_beside_tests")

KERNELS = """
import numpy as np
from attnspec import reference
from attnspec.reference import function


def decoder(q, k, v, *, kv_valid=None, encoder=False, bidirectional=False):
    mask = None if kv_valid is None else kv_valid[:, None, None]
    q, k, v = (np.swapaxes(x, 1, 2) for x in (q, k, v))
    output = reference.attention(q, k, v, is_causal=not bidirectional, mask=mask, dtype=q.dtype)
    return np.swapaxes(output, 1, 2)


def halved(q, k, v, *, full=True):
    return reference.attention(q, k, v, dtype=q.dtype) * (1 if full else 0.5)


def turning(q, k, v, *, rotary_dim=None, rope_base=100.0, causal=False):
    part = q.shape[-1] if rotary_dim is None else rotary_dim
    if part:
        q, k = (reference.rotary(x, base=rope_base, dtype=x.dtype) for x in (q, k))
    return reference.attention(q, k, v, is_causal=causal, dtype=q.dtype) * WRONG


def turning_if_told(q, k, v, *, use_rope=True, rope_theta=100.0):
    return turning(q, k, v, rotary_dim=None if use_rope else 0, rope_base=rope_theta)


def paged_attention(q, key_cache, value_cache, block_tables, context_lens, query_start_loc=None, scale=None):
    starts = np.arange(len(context_lens) + 1) if query_start_loc is None else query_start_loc
    key, value = (np.swapaxes(x, 1, 2) for x in (key_cache, value_cache))
    options = {"block_table": block_tables, "key_lengths": context_lens, "query_starts": starts}
    output = function("packed_paged_attention")(
        np.swapaxes(q, 0, 1), key, value, **options, scale=scale, is_causal=True, dtype=q.dtype
    )
    return np.swapaxes(output, 0, 1)


def decode(q, k_cache, v_cache, cache_seqlens, *, window_left=-1, logits_soft_cap=None, return_lse=False):
    assert q.ndim == 3 and k_cache.ndim == 4 and cache_seqlens.shape == q.shape[:1]
    key, value = (np.swapaxes(x, 1, 2) for x in (k_cache, v_cache))
    last = (cache_seqlens - 1)[:, None, None, None]
    place = np.arange(key.shape[-2])
    mask = (place <= last) & ((window_left < 0) | (place >= last - window_left - LATE))
    options = {"mask": mask, "softcap": logits_soft_cap, "return_lse": True}
    output, lse = reference.attention(q[..., None, :], key, value, **options, dtype=q.dtype)
    return (output[..., 0, :], lse[..., 0]) if return_lse else output[..., 0, :]


def decode_with_axis(query, key, value, attn_mask=None, *, need_weights=False):
    assert query.shape[-2] == 1
    options = {"mask": attn_mask, "return_weights": True}
    output, weights = reference.attention(query, key, value, **options, dtype=query.dtype)
    return (output, weights) if need_weights else output


def grouped(q, k_int8, k_scale, v_int8, v_scale, group_size, *, sm_scale=None):
    tokens = k_int8.shape[2]
    assert k_int8.dtype == v_int8.dtype == np.int8
    assert k_scale.shape == v_scale.shape == (*k_int8.shape[:2], -(-tokens // group_size))
    group = np.arange(tokens) // group_size if GROUPS else 0 * np.arange(tokens)
    key, value = (x * y[:, :, group, None] for x, y in ((k_int8, k_scale), (v_int8, v_scale)))
    return reference.attention(q, *(x.astype(q.dtype) for x in (key, value)), scale=sm_scale, dtype=q.dtype)


def dequantizing(q, k_codes, k_scale, v_codes, v_scale, *, kv_lens=None, causal=False):
    lengths = np.asarray(k_codes.shape[-2] if kv_lens is None else kv_lens)
    end = (lengths if ENDS else k_codes.shape[-2]) - q.shape[-2]
    arrays = q, k_codes, v_codes
    options = {"is_causal": causal, "query_offset": end, "key_lengths": kv_lens}
    options |= {"key_scales": k_scale, "value_scales": v_scale}
    return reference.function("quantized_attention")(*arrays, **options).astype(q.dtype)


def always_causal(q, k, v, cu_seqlens_q, cu_seqlens_k):
    ends = np.diff(cu_seqlens_k) - np.diff(cu_seqlens_q) if ENDS else 0
    starts = {"query_starts": cu_seqlens_q, "key_starts": cu_seqlens_k}
    own = reference.function("packed_attention")(q, k, v, **starts, is_causal=True, query_offset=ends)
    return own.astype(q.dtype)
"""
_RIGHT = {"WRONG": "1", "LATE": "0", "GROUPS": "True", "ENDS": "True"}


def written(name, **wrong):
    """Return the configuration that `attnspec init` writes for a kernel, with its text."""
    text = KERNELS
    for word, value in {**_RIGHT, **wrong}.items():
        text = text.replace(word, value)
    module = "_".join(("readings", name, *wrong))  # no other test has loaded such a module
    Path(f"{module}.py").write_text(text)
    command("init", f"./{module}.py:{name}", status=0)
    text = Path("attnspec.toml").read_text()
    return tomllib.loads(text)["backend"], text


def judged(*rules, least=4, good=True):
    """Return the text of a quick run of some rules, which is good or not; some of its cases are right."""
    found = check(load("."), rules=rules, quick=True, dtypes=["float32"])
    statuses = [verdict.status for verdict in found.report.results.verdicts]
    assert statuses.count("pass") + statuses.count("deviation") >= least
    assert found.good == good, found.text
    return found.text


def test_a_flag_that_turns_causality_off_is_described():
    table, text = written("decoder")
    assert 'inverse = ["bidirectional"]  # True where is_causal is False, as calls confirm\n' in text
    assert table["names"] | {"is_causal": "bidirectional", "mask": "kv_valid"} == table["names"]
    assert table["ignore"] == ["encoder"]
    assert "guesses" not in table
    judged("MASK-3", "SOFT-1")


def test_a_flag_with_such_a_name_that_does_something_else_is_ignored():
    table, text = written("halved")
    assert table["ignore"] == ["full"]
    assert "inverse" not in table
    assert "full = False changes the result" in text


@pytest.mark.parametrize(
    ("name", "fixed"), [("turning", {"rotary_dim": 0}), ("turning_if_told", {"use_rope": False})]
)
def test_a_kernel_is_described_with_the_value_that_turns_its_rotation_off(name, fixed):
    table, text = written(name)
    assert table["fixed"] == fixed
    assert 'the rotation of `features` alone, with operation = "rotary"' in text
    text = judged("SOFT-1")
    own = ", ".join(f"{own} = {x}" for own, x in fixed.items())
    assert f"not tested, because each call passes it: {own};" in " ".join(text.split())


def test_a_rotating_kernel_that_is_wrong_is_not_described_without_its_rotation():
    table, _ = written("turning", WRONG="2")
    assert "fixed" not in table
    assert "layout" in table["guesses"]


def test_optional_boundaries_of_sequences_are_tried_before_one_query():
    table, _ = written("paged_attention")
    assert table["operation"] == "packed_paged_attention"
    assert table["names"]["query_starts"] == "query_start_loc"
    assert table["always"] == {"is_causal": True}
    judged("STACK-1", "PAGE-1", "PACK-1")


def test_attention_of_one_query_without_an_axis_is_called_for_each():
    table, text = written("decode")
    assert table["one_query"] is True
    assert "one_query = true  # it is called for each query; with several it raised an error" in text
    assert (table["window"], table["open_side"], table["at_length"]) == ("left", -1, True)
    assert load(".").has("attention", "return_lse")
    judged("MASK-8", "SOFT-1", "SOFT-6", "CACHE-1")


def test_a_wrong_window_of_one_query_fails():
    written("decode", LATE="1")
    judged("MASK-8", "SOFT-1", good=False)


def test_attention_of_one_query_with_an_axis_is_called_for_each():
    table, _ = written("decode_with_axis")
    assert table["one_query"] == "axis"
    judged("MASK-1", "SOFT-1", "SHAPE-4")


@pytest.mark.parametrize(("groups", "good"), [("True", True), ("False", False)])
def test_codes_of_int8_with_scales_of_groups_of_tokens(groups, good):
    if good:
        table, text = written("grouped")
        assert table["sizes"] == {"group": "group_size"}
        assert 'codes = "int8"  # it raised an error with codes of uint8' in text
    else:
        written("grouped")
        Path("attnspec.toml").rename("kept.toml")
        written("grouped", GROUPS="False")
        text = Path("kept.toml").read_text().replace("readings_grouped", "readings_grouped_GROUPS")
        Path("attnspec.toml").write_text(text)
    judged("QUANT-5", "QUANT-8", "ERR-1", good=good)


@pytest.mark.parametrize("ends", ["True", "False"])
def test_causality_of_a_form_that_ends_at_the_last_key_of_a_length(ends):
    table, _ = written("dequantizing", ENDS=ends)
    assert table.get("at_length", False) is (ends == "True")
    assert table["dialect"]["MASK-3"] == "bottom-right"
    judged("STACK-2", "QUANT-8", "MASK-3")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_small_call_of_every_operation_can_be_drawn(operation):
    assert {*OPERATIONS[operation].arrays} <= {*small_call(operation, 2)}


@pytest.mark.parametrize(("ends", "dialect"), [("True", {"PACK-5": "bottom-right"}), ("False", {})])
def test_packed_rows_that_are_always_causal_at_either_end(ends, dialect):
    table, _ = written("always_causal", ENDS=ends)
    assert table["always"] == {"is_causal": True}
    assert {rule: x for rule, x in table.get("dialect", {}).items() if rule != "NUM-2"} == dialect
    judged("PACK-2", "PACK-5", least=3)


@pytest.mark.parametrize("number", [-129, 128, 200])
def test_codes_that_int8_does_not_hold_are_declined_and_other_kinds_are_for_the_function(number):
    form = OPERATIONS["quantized_attention"]
    codes = {"int16": np.array([1, -128]), "uint8": np.array([1, 127]), "int8": np.array([1, 2])}
    for dtype, x in codes.items():
        passed = with_own_codes({"key_codes": x.astype(dtype)}, form, "int8", "int8", np)["key_codes"]
        assert passed.dtype == np.int8
        assert passed.tolist() == x.tolist()
    real = np.array([1.5, 2.0])
    assert with_own_codes({"key_codes": real}, form, "int8", "int8", np)["key_codes"] is real
    with pytest.raises(Unsupported, match="with a code that int8 does not hold"):
        with_own_codes({"key_codes": np.array([1, number], np.int16)}, form, "int8", "int8", np)
