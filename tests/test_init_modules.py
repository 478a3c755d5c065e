"""Other kernels for `attnspec init`: modules, compiled libraries, square blocks, shared scales."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests_support import command

from attnspec import reference
from attnspec.backends import load
from attnspec.backends.constraints import Constraints
from attnspec.conformance import check, find
from attnspec.conformance.suite.fitted_forms import fit_form

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.usefixtures("here_beside_tests")

MODULES = """
import torch
from torch import nn


class Joined(nn.Module):
    def __init__(self, d_model, n_heads, causal=True):
        super().__init__()
        self.heads, self.causal = n_heads, causal
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.proj(attend(*self.qkv(x).chunk(3, -1), self.heads, None, self.causal))


class Separate(nn.Module):
    def __init__(self, embed_dim, num_heads, num_kv_heads=None, dropout=0.0):
        super().__init__()
        self.heads, self.key_heads = num_heads, num_kv_heads or num_heads
        width = embed_dim // num_heads * self.key_heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(embed_dim, size) for size in (embed_dim, width, width))
        self.to_out = nn.Sequential(nn.Linear(embed_dim, embed_dim), nn.Dropout(dropout))

    def forward(self, hidden, attn_mask=None):
        parts = (layer(hidden) for layer in (self.w_q, self.w_k, self.w_v))
        return self.to_out(attend(*parts, self.heads, attn_mask, False))


class Crossed(nn.Module):
    def __init__(self, dim, n_heads, query_chunk=256):
        super().__init__()
        self.heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, context=None, attn_mask=None, padding=None, causal=False):
        context = x if context is None else context
        parts = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        return self.out_proj(attend(*parts, self.heads, attn_mask, causal))


class OfTorch(nn.Module):
    def __init__(self, embed_dim, num_heads, kdim=None):
        super().__init__()
        self.heads = num_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(3))
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, need_weights=False):
        if attn_mask is not None:
            attn_mask = ~attn_mask.view(len(query), self.heads, query.shape[1], key.shape[1])
        parts = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return self.out_proj(attend(*parts, self.heads, attn_mask, False)), None


def attend(query, key, value, heads, mask, causal):
    batch, length, width = query.shape
    depth = width // heads
    query, key, value = (x.view(batch, x.shape[1], -1, depth).transpose(1, 2) for x in (query, key, value))
    key, value = (x.repeat_interleave(heads // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT / depth**WRONG
    allowed = torch.ones(length, key.shape[2], dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    scores = scores.masked_fill(~(allowed if mask is None else allowed & mask), -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0)
    return (weights @ value).transpose(1, 2).reshape(batch, length, width)


joined = Joined(16, 2)


def apply(params, inputs, mask=None):
    return inputs @ params["kernel"]
"""

ARRAYS = """
import ml_dtypes
import numpy as np

from attnspec import reference


def of_the_first_head(q, k, v, block_mask, block_size=64):
    assert block_mask.ndim == 4 and q.shape[1] == k.shape[1]
    options = {"query_block": block_size, "key_block": block_size, "block_mask": block_mask[:, :1]}
    return reference.block_sparse_attention(q, k, v, **options, dtype=q.dtype)


def codes_and_scales(q, k_fp8, v_fp8, k_scale, v_scale, causal=False):
    assert k_scale.shape == v_scale.shape == k_fp8.shape[1:2]
    key, value = (x.view(ml_dtypes.float8_e4m3fn).astype(np.float32) for x in (k_fp8, v_fp8))
    key, value = (x * (y[:, None, None] ** WRONG) for x, y in ((key, k_scale), (value, v_scale)))
    return reference.attention(q, key.astype(q.dtype), value.astype(q.dtype), is_causal=causal, dtype=q.dtype)


def square(q, k, v, block_mask, block_size=64, sm_scale=None):
    options = {"query_block": block_size, "key_block": block_size, "scale": sm_scale}
    block_mask = np.roll(block_mask, WRONG - 1, -1)
    return reference.block_sparse_attention(q, k, v, block_mask=block_mask, **options, dtype=q.dtype)
"""

#: The number with which a kernel is right.
RIGHT = {MODULES: "0.5", ARRAYS: "1"}


def described(text, name, wrong):
    """Return the configuration of a kernel, then describe one with a wrong number in the same way."""
    modules = {}
    for number in dict.fromkeys((RIGHT[text], wrong)):
        modules[number] = f"others_{name}_{number}".replace(
            ".", "_"
        )  # no other test has loaded such a module
        Path(f"{modules[number]}.py").write_text(text.replace("WRONG", number))
    right = modules[RIGHT[text]]
    if text is MODULES:
        wrapper, _, message = command("init", f"./{right}.py:{name}", status=2).output.partition("Error: ")
        assert "prints one" in message
        Path(f"wrap_{modules[wrong]}.py").write_text(wrapper.replace(right, modules[wrong]))
        Path(f"wrap_{right}.py").write_text(wrapper)
        command("init", f"./wrap_{right}.py:multi_head_attention", status=0)
    else:
        command("init", f"./{right}.py:{name}", status=0)
    written = Path("attnspec.toml").read_text()
    Path("attnspec.toml").write_text(written.replace(right, modules[wrong]))
    return tomllib.loads(written)["backend"]


def judged(*rules, least):
    """Return whether the rules hold in a quick run, of which some cases are judged."""
    result = check(load("."), rules=rules, quick=True, dtypes=["float32"])
    if result.good:
        statuses = [verdict.status for verdict in result.report.results.verdicts]
        assert statuses.count("pass") >= least, result.text
    return result.good


@pytest.mark.parametrize("wrong", ["0.5", "0.6"])
@pytest.mark.parametrize("name", ["Joined", "joined", "Separate", "Crossed"])
def test_the_wrapper_of_a_module_that_projects_tokens_is_judged(name, wrong):
    table = described(MODULES, name, wrong)
    assert table["operation"] == "multi_head_attention"
    assert table.get("heads", "grouped") == ("grouped" if name == "Separate" else "equal")
    assert judged("HEAD-6", "PROJ-3", "GRAD-23", least=3) is (wrong == "0.5")


@pytest.mark.parametrize("wrong", ["0.5", "0.6"])
def test_the_wrapper_of_a_module_like_that_of_torch_passes_queries_keys_and_values(wrong):
    described(MODULES, "OfTorch", wrong)
    assert judged("HEAD-7", "MASK-1", "PROJ-3", least=4) is (wrong == "0.5")


@pytest.mark.parametrize("wrong", ["0.5", "0.6"])
def test_the_wrapper_passes_a_memory_and_causality_and_says_what_it_does_not_pass(wrong):
    described(MODULES, "Crossed", wrong)
    assert judged("HEAD-7", "MASK-3", "MASK-4", least=3) is (wrong == "0.5")
    (wrapper, *_) = sorted(Path().glob("wrap_*.py"))
    assert "# Not passed, so no case tests what they do: query_chunk, padding." in wrapper.read_text()


def test_weights_in_one_argument_want_a_wrapper_of_another_operation():
    Path("others_apply.py").write_text(MODULES)
    message = command("init", "./others_apply.py:apply", status=2).output
    assert "params seems to hold the weights of projections" in message
    assert "the arguments of multi_head_attention (spec/heads.md)" in message


C = """
#include <math.h>
#include <stdlib.h>
typedef const float *Array;
void attention(Array q, Array k, Array v, float *o, long heads, long queries, long keys, long depth) {
    double *weights = malloc((size_t)(keys + 1) * sizeof *weights);
    for (long row = 0; row < heads * queries; row++) {
        long first = row / queries * keys * depth;
        Array own = k + first, values = v + first, query = q + row * depth;
        double most = -INFINITY, sum = 0;
        for (long j = 0; j < keys; j++) {
            weights[j] = 0;
            for (long i = 0; i < depth; i++) weights[j] += (double)query[i] * own[j * depth + i];
            weights[j] /= sqrt(depth);
            most = weights[j] > most ? weights[j] : most;
        }
        for (long j = 0; j < keys; j++) sum += weights[j] = exp(weights[j] - most);
        for (long i = 0; i < depth; i++) {
            double output = 0;
            for (long j = 0; j < keys - LESS; j++) output += weights[j] / sum * values[j * depth + i];
            o[row * depth + i] = (float)output;
        }
    }
    free(weights);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("less", ["0", "1"])
def test_a_compiled_kernel_is_judged_as_the_page_says(less):
    message = " ".join(command("init", "./kernel.so:attention", status=2).output.split())
    assert "a file that loads it by ctypes and has a function of arrays (Compiled kernels, in" in message
    page = (ROOT / "conformance" / "configuration.md").read_text()
    code = page.partition("## Compiled kernels")[2].partition("```python\n")[2].partition("```")[0]
    Path("kernel.c").write_text(C.replace("LESS", less))
    library = f"kernel_{less}.so"  # one of a name that is loaded would not be loaded again
    Path(f"compiled_{less}.py").write_text(code.replace("kernel.so", library))
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, "kernel.c", "-lm"], check=True)
    command("init", f"./compiled_{less}.py:attention", status=0)
    found = check(load("."), rules=["SOFT-1", "SOFT-3", "SCORE-1", "NUM-8"], quick=True)
    assert found.good is (less == "0"), found.text


@pytest.mark.parametrize("wrong", ["1", "2"])
def test_one_scale_for_each_head_of_all_batch_entries(wrong):
    table = described(ARRAYS, "codes_and_scales", wrong)
    assert table["scales"] == "flat-shared"
    assert judged("QUANT-5", "QUANT-8", least=8) is (wrong == "1")


@pytest.mark.parametrize("wrong", ["1", "2"])
def test_one_size_of_the_blocks_of_queries_and_keys(wrong):
    table = described(ARRAYS, "square", wrong)
    assert table["names"]["query_block"] == table["names"]["key_block"] == "block_size"
    assert load(".").constraints.square_blocks
    assert judged("SPARSE-1", "SPARSE-2", "SPARSE-4", least=8) is (wrong == "1")


def test_blocks_are_divided_into_square_ones_of_the_same_elements():
    case = find("sparsity-blocks-1-float32")
    fitted = fit_form(case, Constraints(square_blocks=True))
    sizes = [fitted.arguments[name] for name in ("query_block", "key_block")]
    assert sizes[0] == sizes[1] < max(case.arguments[name] for name in ("query_block", "key_block"))
    outputs = [reference.block_sparse_attention(**own.arguments) for own in (case, fitted)]
    assert np.array_equal(*outputs)


def test_a_form_that_no_call_computes_is_taken_for_the_plainest_reading():
    Path("others_first.py").write_text(ARRAYS.replace("WRONG", "1"))
    command("init", "./others_first.py:of_the_first_head", status=0)
    table = tomllib.loads(Path("attnspec.toml").read_text())["backend"]
    assert table["guesses"] == ["layout"]
    assert not {"always", "one_query"} & {*table}
