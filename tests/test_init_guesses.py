"""What `attnspec init` writes of an argument with a name that it knows, and that calls do not confirm."""

import tomllib
from pathlib import Path

import pytest
from tests_support import command

from attnspec.backends import BackendError, load
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check
from attnspec.operations.aliases import meant, meant_in

pytestmark = pytest.mark.usefixtures("here_beside_tests")


def init(name, source):
    """Return what `attnspec init` writes for a kernel of a file that no other test has loaded."""
    Path(f"guessed_{name}.py").write_text(source)
    command("init", f"./guessed_{name}.py:{name}", status=0)
    return Path("attnspec.toml").read_text()


OF_WINDOWS = """
from attnspec.reference import attention


def windowed(q, k, v, causal, window_size, more=0):
    left, right = (None if side < 0 else side for side in window_size)
    window = None if left is right is None else (left if left is None else left + more, right)
    options = {"is_causal": causal, "window": window, "query_offset": k.shape[-2] - q.shape[-2]}
    return attention(q, k, v, **options, dtype=q.dtype)


def beside_causality(q, k, v, causal=False, window_size=(-1, -1), *, _more=1):
    if max(window_size) >= 0 and not causal:
        raise ValueError("expected causality beside a window")
    return windowed(q, k, v, causal, window_size, _more)


def right_beside_causality(q, k, v, causal=False, window_size=(-1, -1)):
    return beside_causality(q, k, v, causal, window_size, _more=0)


def closed_on_the_right(q, k, v, causal=False, window_size=(-1, -1)):
    left, right = window_size
    return windowed(q, k, v, causal, (left, right if left < 0 else max(right, 0)))


def of_a_number(q, k, v, causal=False, window_size=None):
    window = None if window_size is None else (window_size, window_size)
    return attention(q, k, v, is_causal=causal, window=window, dtype=q.dtype)


def segments(q, k, v, q_segment_ids=None, kv_segment_ids=None):
    ids = {"query_segment_ids": q_segment_ids, "key_segment_ids": kv_segment_ids}
    ids = {} if q_segment_ids is None else {name: x // 2 for name, x in ids.items()}
    return attention(q, k, v, **ids, dtype=q.dtype)
"""


@pytest.mark.parametrize(
    ("name", "guesses", "rule"),
    [
        ("beside_causality", ["window"], "MASK-8"),
        ("closed_on_the_right", ["window"], "MASK-8"),
        ("segments", ["query_segment_ids", "key_segment_ids"], "MASK-11"),
    ],
)
def test_what_a_name_says_is_judged_although_some_or_all_calls_of_it_are_wrong(name, guesses, rule):
    text = init(name, OF_WINDOWS)
    assert tomllib.loads(text)["backend"]["guesses"] == guesses
    assert "remove what you know is right, ignore what has another meaning" in text
    found = check(load("."), rules=[rule], quick=True, dtypes=["float32"])
    assert f"no call confirmed: {', '.join(guesses)}" in " ".join(found.text.split())
    assert rule in {x.main_rule for x in found.report.results.verdicts if x.status == "fail"}


def test_a_number_that_acts_in_every_call_is_named_beside_what_is_ignored_and_what_is_guessed():
    kernel = """
import numpy as np
from attnspec.reference import attention

def streaming(query, key, value, *, first_tokens=2, window_size=256, num_stages=3, split_size=64):
    i, j = np.arange(query.shape[-2])[:, None] + key.shape[-2] - query.shape[-2], np.arange(key.shape[-2])
    mask = (j <= i) & ((j > i - window_size) | (j < first_tokens))
    return attention(query, key, value, mask=mask, dtype=query.dtype)
"""
    text = init("streaming", kernel)
    acting = "first_tokens is 2 in every call"
    assert f'window = "keys"  # by its name alone: no call gave the specified results; {acting}\n' in text
    assert f"never passed, so no case tests what these do; {acting}: if that changes results, judge" in text
    assert any(note.startswith(f"{acting}: if that changes") for note in load(".").notes)
    assert "split_size is 64 in every call: others are not judged; a wrapper can pass" in text
    assert any(note.startswith("split_size is 64 in every call: others are") for note in load(".").notes)


def test_a_number_is_no_window_of_the_left_alone_because_causality_closes_the_right():
    assert 'window = "both"  # one number, of the keys on either side' in init("of_a_number", OF_WINDOWS)
    assert check(load("."), rules=["MASK-8"], quick=True, dtypes=["float32"]).good


def test_a_window_that_is_right_beside_causality_alone_is_no_false_alarm():
    assert 'ignore = ["window_size"]' in init("right_beside_causality", OF_WINDOWS)
    assert check(load("."), rules=["MASK-3", "MASK-8"], quick=True, dtypes=["float32"]).good


OF_NAMES = """
from attnspec.reference import attention, block_sparse_attention, quantized_attention


def of_flex(query, key, value, kv_num_blocks, kv_indices, q_block_size=128, kv_block_size=128, scale=None):
    blocks = {"block_counts": kv_num_blocks, "block_indices": kv_indices, "query_block": q_block_size}
    blocks |= {"key_block": kv_block_size, "scale": scale}
    return block_sparse_attention(query, key, value, **blocks, dtype=query.dtype)


def of_tokens(q, k_q, v_q, k_scale, v_scale, k_zero=None, v_zero=None):
    of_codes = {"key_scales": k_scale, "value_scales": v_scale}
    of_codes |= {"key_zero_points": k_zero, "value_zero_points": v_zero}
    of_codes = {name: x[..., None] for name, x in of_codes.items() if x is not None}
    return quantized_attention(q, k_q, v_q, **of_codes, dtype=q.dtype)


def of_keras(query, value, key, value_mask=None, use_causal_mask=False):
    assert query.ndim == 4
    mask = None if value_mask is None else value_mask[:, None, None]
    return attention(query, key, value, mask=mask, is_causal=use_causal_mask, dtype=query.dtype)


def of_padding(query, key, value, attn_mask=None, key_padding_mask=None):
    assert query.ndim == 4
    bias = attn_mask[:, None] if attn_mask is not None and attn_mask.ndim == 3 else attn_mask
    mask = None if key_padding_mask is None else ~key_padding_mask[:, None, None]
    return attention(query, key, value, mask=mask, bias=bias, dtype=query.dtype)


def constant(query, key, value, scale=0.125):
    return attention(query, key, value, scale=scale, dtype=query.dtype)
"""


def test_a_default_scale_is_said_as_a_number_too():
    reason = "its default scale is 0.125, or 1 / D, where D is 8, not 1 / sqrt(D)"
    assert f'given = ["scale"]  # {reason}' in init("constant", OF_NAMES)


@pytest.mark.parametrize(
    ("name", "keys", "names"),
    [
        (
            "of_flex",
            {"operation": "block_sparse_attention"},
            {"block_counts": "kv_num_blocks", "block_indices": "kv_indices", "query_block": "q_block_size"},
        ),
        (
            "of_tokens",
            {"operation": "quantized_attention", "scales": "flat-token"},
            {"key_codes": "k_q", "key_zero_points": "k_zero", "value_zero_points": "v_zero"},
        ),
        (
            "of_padding",
            {"mask_of_keys": True, "mask": "ignore", "mask_axes": 4, "mask_of_entries": True},
            {"mask": "key_padding_mask", "bias": "attn_mask"},
        ),
        ("of_keras", {"mask_of_keys": True}, {"mask": "value_mask", "is_causal": "use_causal_mask"}),
    ],
)
def test_names_of_libraries_are_known(name, keys, names):
    table = tomllib.loads(init(name, OF_NAMES))["backend"]
    assert {key: table[key] for key in keys} == keys
    assert names.items() <= table["names"].items()
    assert {"ignore", "guesses"}.isdisjoint(table)
    command("check", "--smoke", status=0)


OF_TWO_MASKS = """
from attnspec.reference import attention


def of_two_masks(query, key, value, attention_mask=None, value_mask=None, bias=None, square=False):
    assert query.ndim == 4
    mask, pairs = attention_mask, (query.shape[-2], key.shape[-2])
    if mask is not None and mask.ndim == 2 and not (square and mask.shape == pairs):
        mask = mask[:, None, None]
    if value_mask is not None:
        mask = value_mask[:, None, None] & (True if mask is None else mask)
    return attention(query, key, value, mask=mask, bias=bias, dtype=query.dtype)


def of_squares(query, key, value, attention_mask=None, value_mask=None, bias=None):
    "Wrong: a mask of two axes is one of pairs where there are as many queries as batch entries."
    return of_two_masks(query, key, value, attention_mask, value_mask, bias, square=True)
"""


@pytest.mark.parametrize(("name", "status"), [("of_two_masks", 0), ("of_squares", 1)])
def test_the_mask_of_pairs_is_taken_and_has_two_axes_where_it_is_one_of_keys(name, status):
    table = tomllib.loads(init(name, OF_TWO_MASKS))["backend"]
    assert table["names"]["mask"] == "attention_mask"
    assert table["mask_of_keys"] == "also"
    assert {*table["ignore"]} <= {"value_mask", "square"}
    output = command("check", "-k", "MASK-1", "-k", "MASK-9", "--quick", status=status).output
    assert ("MASK-1 1, MASK-9 1" in output) == bool(status)
    assert "got one that differs between queries" not in output


OF_LATENT = """
from attnspec.reference import latent_attention


def mla_decode_absorbed(q_nope, q_pe, ckv_cache, kpe_cache, w_kc, w_vc, seq_lens, sm_scale=None):
    q_nope, q_pe = q_nope[..., None, :], q_pe[..., None, :]
    arrays = q_nope, q_pe, ckv_cache, kpe_cache, w_kc.swapaxes(-1, -2), w_vc
    return latent_attention(*arrays, key_lengths=seq_lens, scale=sm_scale, dtype=q_nope.dtype)[..., 0, :]
"""


def test_names_of_latent_caches_are_known():
    text = init("mla_decode_absorbed", OF_LATENT)
    assert (
        'latent = "ckv_cache"\nkey_rotary = "kpe_cache"\nkey_weight = "w_kc"\nvalue_weight = "w_vc"' in text
    )
    assert 'shapes = { key_weight = "Hq, D, Dc" }' in text
    assert "one_query = true" in text
    assert "guesses" not in text


def test_a_table_of_relative_biases_has_the_recipe():
    Path("of_t5.py").write_text("def kernel(query, key, value, relative_bias):\n    return 1 / 0\n")
    with pytest.raises(BackendError, match=r"if relative_bias has a bias for each bucket .* T5"):
        infer_configuration("./of_t5.py:kernel")


OF_DROPOUT = """
import numpy as np
from attnspec.reference import attention as exact


def kernel(q, k, v, *, sm_scale=None, p_dropout=0.0, rng_seed=0):
    mask = np.random.default_rng(SEED).random((*q.shape[:-1], k.shape[-2])) >= p_dropout
    return exact(q, k, v, scale=sm_scale, dropout_mask=mask, dropout_rate=p_dropout, dtype=q.dtype)
"""


@pytest.mark.parametrize(("seed", "seen"), [("rng_seed", True), ("None", False)])
def test_a_function_with_dropout_by_a_seed_is_judged_with_and_without_dropout(seed, seen):
    source = OF_DROPOUT.replace("SEED", seed)
    written = init("kernel", source)
    line = 'operation = "seeded_dropout_attention"  # p_dropout and rng_seed choose what is left out'
    assert (line in written, "ignore" in written) == (seen, not seen)
    if seen:
        found = check(load("."), rules=["DROP-2", "DROP-5", "SOFT-1"], dtypes=["float32"], quick=True)
        judged = {verdict.operation for verdict in found.report.results.verdicts if verdict.status == "pass"}
        assert judged == {"attention", "seeded_dropout_attention"}
        Path("attnspec.toml").write_text('[backend]\noperation = "seeded_dropout_attention"\n')
        assert 'dropout_p = "p_dropout"' in init("kernel", source)


CACHED = """
from attnspec.reference import attention


def cached(q, k_cache, v_cache, k=None, v=None, attention_chunk=0):
    return attention(q, k_cache, v_cache, dtype=q.dtype)
"""


def test_names_of_other_operations_are_no_names_that_look_alike():
    assert "; no call confirmed k (new_key?), v (new_value?)\n" in init("cached", CACHED)
    assert [meant(own) for own in ("attention_chunk", "q_descale", "cu_seqlens_q", "k_pe")] == [()] * 4
    assert meant_in("packed_paged_quantized_attention", "q_descale") == ()
    assert meant_in("low_precision_attention", "q_descale") == ("query_scales",)


def test_a_number_for_each_batch_entry_that_a_function_needs_is_found():
    """Without its numbers it computes nothing, and one number for all entries has no axis to read."""
    source = (
        "from attnspec.reference import attention\n\n\n"
        "def of_each(q, k, v, seq_lens):\n"
        "    return attention(q, k, v, key_lengths=seq_lens[:].astype(int), dtype=q.dtype)\n"
    )
    table = tomllib.loads(init("of_each", source))["backend"]
    assert (table["names"]["key_lengths"], table["per_entry"]) == ("seq_lens", True)


def test_a_mask_of_a_tree_is_no_mask_of_dropout_and_the_refusal_says_what_to_write():
    assert meant("tree_mask") == ("mask",)
    assert meant("dropout_masks") == ("dropout_mask",)
    assert meant_in("latent_attention", "krope_cache") == ("key_rotary",)
    Path("guessed_tree.py").write_text(
        "def verify(q, k, v, tree_mask):\n    raise ValueError(tree_mask[0, 0, 0, 0, 0])\n"
    )
    output = " ".join(command("init", "./guessed_tree.py:verify", status=2).output.split())
    assert "mask = tree_mask" in output
    assert "if tree_mask has the ancestors of drafted tokens, judge a wrapper that makes it" in output


OF_MASKS = """
import numpy as np
from attnspec.reference import attention


def NAME(q, k, v, attention_mask=None, *, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    options = {}
    if attention_mask is not None:
        floats = attention_mask.dtype.kind == "f"
        options = {"bias": scale * attention_mask} if floats and SCALED else {"mask": attention_mask != 0}
    return attention(q, k, v, **options, scale=scale, dtype=q.dtype)
"""


@pytest.mark.parametrize(
    ("name", "scaled"), [("with_a_scaled_bias", True), ("with_numbers_as_a_mask", False)]
)
def test_a_mask_that_takes_a_wrong_bias_has_it_judged(name, scaled):
    text = init(name, OF_MASKS.replace("NAME", name).replace("SCALED", str(scaled)))
    table = tomllib.loads(text)["backend"]
    assert table["names"]["mask"] == "attention_mask"
    assert ("bias" in table["names"], "bias" in table.get("guesses", ())) == (scaled, scaled)
    report = check(load("."), rules=["SCORE-4", "MASK-1"], quick=True, dtypes=["float32"])
    assert report.good != scaled
    assert ("SCORE-4" in report.text) == scaled


def test_a_decoder_whose_calls_are_all_wrong_is_described_by_the_nearest_of_them():
    source = """
from attnspec.reference import attention


def decode(q, k_cache, v_cache, seqlens, num_splits=4):
    if q.ndim != 3 or seqlens.shape != q.shape[:1]:
        raise ValueError("q: expected one query of each sequence")
    k, v = (x.swapaxes(1, 2) for x in (k_cache, v_cache))
    return attention(q[:, :, None], k, v, key_lengths=seqlens, dtype=q.dtype)[:, :, 0] + q.dtype.type(0.1)
"""
    text = init("decode", source)
    assert 'layout = "BSHD"  # no call computed attention; with this layout it is nearest' in text
    assert "one_query = true  # it is called for each query" in text
    assert 'key_lengths = "seqlens"' in text
    assert not check(load("."), cases=["softmax-lse", "masking-key-lengths"]).good


@pytest.mark.parametrize(("value", "said"), [("0", True), ("1", False)])
def test_empty_arrays_that_are_refused_are_declared_if_no_result_for_others_is_wrong(value, said):
    source = f"""
import numpy as np
from attnspec.reference import attention


def kernel_{value}(query, key, value):
    if 0 in query.shape:
        raise ValueError("query: expected elements")
    return attention(query, key, value, dtype=query.dtype) + query.dtype.type({value} * (0 in key.shape))
"""
    text = init(f"kernel_{value}", source)
    assert ('requires = ["nonempty"]' in text) is said
    report = check(load("."), rules=["SHAPE-7", "SOFT-1"], quick=True)
    assert report.good is said
    assert ("preconditions (" in report.text) is said
