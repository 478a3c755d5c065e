"""What `attnspec init` finds about results: those that a flag adds, and those of sequences without keys."""

import tomllib
from pathlib import Path

import pytest
from tests_support import command

from attnspec.backends import load
from attnspec.conformance import check

pytestmark = pytest.mark.usefixtures("here_beside_tests")

KERNELS = """
import numpy as np
from attnspec import reference


def flash_attn_func(q, k, v, dropout_p=0.0, causal=False, return_attn_probs=False):
    q, k, v = (np.swapaxes(x, 1, 2) for x in (q, k, v))
    options = {"is_causal": causal, "query_offset": k.shape[-2] - q.shape[-2]}
    output, lse = reference.attention(q, k, v, **options, return_lse=True, dtype=q.dtype)
    output = np.swapaxes(output, 1, 2)
    return (output, (lse + OFF).astype(lse.dtype), None) if return_attn_probs else output


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, return_attn_probs=False):
    starts = {"query_starts": cu_seqlens_q, "key_starts": cu_seqlens_k}
    q, k, v = (np.swapaxes(x, 0, 1) for x in (q, k, v))
    output, lse = reference.packed_attention(q, k, v, **starts, return_lse=True, dtype=q.dtype)
    inside = np.arange(q.shape[-2]) < cu_seqlens_q[-1]
    lse = np.where(np.isneginf(lse) & inside, EMPTY, lse + OFF).astype(lse.dtype)
    output = np.swapaxes(output, 0, 1)
    return (output, lse, None) if return_attn_probs else output


def sparse(q, k, v, block_mask, block=64):
    options = {"query_block": block, "key_block": block, "block_mask": block_mask, "return_lse": True}
    output, lse = reference.block_sparse_attention(q, k, v, **options, dtype=q.dtype)
    return output, (lse + OFF).astype(lse.dtype)


def decode_pair(q, k_cache, v_cache, block_tables, context_lens):
    key, value = (np.swapaxes(x, 1, 2) for x in (k_cache, v_cache))
    options = {"block_table": block_tables, "key_lengths": context_lens, "return_lse": True}
    output, lse = reference.paged_attention(q[:, :, None], key, value, **options, dtype=q.dtype)
    return output[:, :, 0], (lse[:, :, 0] + OFF).astype(lse.dtype)


def decode(q, k_cache, v_cache, block_tables, context_lens):
    key, value = (np.swapaxes(x, 1, 2) for x in (k_cache, v_cache))
    options = {"block_table": block_tables, "key_lengths": context_lens}
    output = reference.paged_attention(q[:, :, None], key, value, **options, dtype=q.dtype)[:, :, 0]
    return np.where(np.asarray(context_lens)[:, None, None] == 0, np.nan, output).astype(q.dtype)
"""


def described(name, off="0", empty="-np.inf"):
    """Return the configuration that `attnspec init` writes for a kernel."""
    module = f"results_{name}_{off}_{empty.strip('-')}".replace(
        ".", "_"
    )  # no other test has loaded such a module
    Path(f"{module}.py").write_text(KERNELS.replace("OFF", off).replace("EMPTY", empty))
    command("init", f"./{module}.py:{name}", status=0)
    return tomllib.loads(Path("attnspec.toml").read_text())["backend"]


@pytest.mark.parametrize(("off", "guesses"), [("0", []), ("0.1", ["return_lse"])])
@pytest.mark.parametrize("name", ["flash_attn_func", "flash_attn_varlen_func"])
def test_a_flag_that_adds_an_lse_and_more_is_described_and_its_lse_judged(name, off, guesses):
    table = described(name, off)
    assert table["returns"] == ["output", "lse", "_"]
    assert table["names"]["return_lse"] == "return_attn_probs"
    assert table.get("guesses", []) == guesses
    found = check(load("."), rules=["SOFT-6", "SOFT-1", "PACK-1"], quick=True, dtypes=["float32"])
    statuses = [verdict.status for verdict in found.report.results.verdicts]
    assert sum(status in ("pass", "fail", "deviation") for status in statuses) >= 6
    assert found.good is (off == "0"), found.text


@pytest.mark.parametrize("off", ["0", "0.1"])
@pytest.mark.parametrize("name", ["sparse", "decode_pair"])
def test_a_form_that_always_returns_an_lse_is_described_and_its_lse_judged(name, off):
    table = described(name, off)
    assert table["returns"] == ["output", "lse"]
    found = check(load("."), rules=["SPARSE-1", "PAGE-1", "STACK-2"], quick=True, dtypes=["float32"])
    assert found.good is (off == "0"), found.text


@pytest.mark.parametrize(
    ("name", "empty", "dialect"),
    [
        ("flash_attn_varlen_func", "np.inf", {"SOFT-7": "plus-infinity"}),
        ("flash_attn_varlen_func", "-np.inf", {}),
        ("decode", "-np.inf", {"MASK-6": "nan"}),
    ],
)
def test_what_a_form_gives_for_a_sequence_without_keys_is_described(name, empty, dialect):
    assert described(name, empty=empty).get("dialect", {}) == dialect
    found = check(load("."), rules=["PACK-1", "PACK-2", "PAGE-3"], quick=True, dtypes=["float32"])
    assert found.good, found.text
