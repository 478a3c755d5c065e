"""A kernel for GPUs gives other results than the same function elsewhere.

The kernels are those of FlashAttention and cuDNN in PyTorch and JAX, the memory-efficient kernel of PyTorch,
and those of FlashInfer. They were run on an NVIDIA H200.
"""

import subprocess
import sys

import calls
import numpy as np
from table import ERROR, Row, show

ONES = [np.ones((1, 1, 2, 8), np.float32)] * 3
#: Two keys whose values are 1 and 0, and queries of 0: each weight is a half.
HALF = [
    np.array(rows, np.float32).reshape(1, 1, 2, 1) * np.ones(8, np.float32)
    for rows in ((0, 0), (0, 0), (1, 0))
]
#: Weights of 3/4 and 1/4 for the default scale of 64 features: 1/3 is no number of bfloat16.
THIRD = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((1,), (np.log(3) / 8, 0), (1, 0))]
FAR = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((-30,), (32, 32), (1, 1))]
COLUMN = np.ones((1, 1, 2, 1), np.bool_)


def torch_cuda(kernel, *arrays, dtype="float16", **options):
    """Call a kernel for a GPU."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attend

    options = {
        name: each.cuda() if hasattr(each, "cuda") else each for name, each in calls.tensors(options).items()
    }
    with sdpa_kernel(getattr(SDPBackend, kernel)):
        given = [torch.tensor(array, dtype=getattr(torch, dtype), device="cuda") for array in arrays]
        return attend(*given, **options).float().cpu().numpy()


def flashinfer(query, key, value, *, dtype="float16", return_lse=False, **options):
    """Call the prefill of one batch entry of one head, whose 64 features repeat the first."""
    import flashinfer as library
    import torch

    given = [
        torch.tensor(array[0, :, :, :1], dtype=getattr(torch, dtype), device="cuda").repeat(1, 1, 64)
        for array in (query, key, value)
    ]
    rows = [array.transpose(0, 1).contiguous() for array in given]
    options = {
        name: each.cuda() if hasattr(each, "cuda") else each for name, each in calls.tensors(options).items()
    }
    result = library.single_prefill_with_kv_cache(*rows, backend="fa2", return_lse=return_lse, **options)
    return (result[1] if return_lse else result[:, :, 0]).float().cpu().numpy()


def jax_cudnn(*arrays, dtype="float16", **options):
    """Call the kernel of cuDNN."""
    import jax

    given = [np.asarray(calls.swap(array)).astype(dtype) for array in arrays]
    result = jax.nn.dot_product_attention(*map(jax.numpy.asarray, given), implementation="cudnn", **options)
    return calls.swap(np.asarray(result, np.float32))


def _row(name, rules, call, run, got, right, rank="numbers"):
    return Row(name, rules, call, run, got, right, rank, gpu=True)


def _past():
    """Attend to the first two of three rows, in memory that held ones."""
    import torch
    from torch.nn.attention.varlen import varlen_attn

    starts = torch.tensor([0, 2], dtype=torch.int32, device="cuda")
    rows = torch.ones((3, 1, 64), dtype=torch.float16, device="cuda")
    for _ in range(4):
        torch.ones_like(rows)
    output = varlen_attn(rows, rows, rows, starts, starts, 2, 2)
    return "zeros" if not output[2].any() else "other numbers"


def _mask():
    import jax

    mask = jax.numpy.array([[[[True, False], [False, False]]]])
    return jax_cudnn(*HALF, mask=mask)[0, 0, 1]


def _lse():
    lse = flashinfer(*THIRD, dtype="bfloat16", return_lse=True).item()
    score = np.log(3) / 8
    right = np.log2(np.exp(8 * float(np.float32(score))) + 1)
    return "rounded" if abs(lse - right) > 1e-4 else "exact"


def _values():
    flashinfer(HALF[0], HALF[1], HALF[2][:, :, :1])
    return "a result"


def _bias():
    """Add one number to all scores, which changes no weight."""
    bias = np.full((1, 1, 1, 1), 3.0, np.float16)
    output = torch_cuda("CUDNN_ATTENTION", *HALF, attn_mask=bias)
    return "equal" if np.allclose(output, 0.5, atol=1e-2) else "other numbers"


def _strided():
    """Compare the gradients of two cotangents of the same numbers, one of which lies positions first."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attend

    made = torch.manual_seed(0)
    given = torch.randn((4, 1, 2, 64, 64), generator=made).to("cuda", torch.float16)
    arrays = [array.requires_grad_() for array in given[:3].clone()]
    other = given[3].transpose(1, 2).contiguous().transpose(1, 2)
    gradients = []
    for cotangent in (given[3], other):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            gradients.append(torch.autograd.grad(attend(*arrays), arrays[0], cotangent)[0])
    return "equal" if torch.allclose(*gradients, atol=1e-2) else "other numbers"


def _empty_row():
    mask = np.array([[[[True, False], [False, False]]]])
    return torch_cuda("CUDNN_ATTENTION", *HALF, attn_mask=mask)[0, 0, 1]


def _window(size):
    return lambda: jax_cudnn(*HALF, local_window_size=(size, 0))[0, 0, 0]


def _query_lengths():
    import jax

    lengths = {"query_seq_lengths": jax.numpy.array([0]), "key_value_seq_lengths": jax.numpy.array([2])}
    return jax_cudnn(HALF[0][:, :, :1], *HALF[1:], **lengths)


def _columns():
    import torch
    from torch.nn.attention.varlen import varlen_attn

    starts = torch.tensor([0, 64], dtype=torch.int32, device="cuda")
    rows = torch.ones((64, 1, 64), dtype=torch.float16, device="cuda")
    return varlen_attn(rows.transpose(0, 2), rows, rows, starts, starts, 64, 64).float().cpu().numpy()


def _pallas():
    """Attend to values of 1 for batch entry 0, with other numbers in the memory after it."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.gpu.attention import mha

    keys = np.random.default_rng(0).normal(size=(2, 64, 2, 64)).astype(np.float32)
    values = np.ones_like(keys) * np.array([1, 9], np.float32).reshape(2, 1, 1, 1)
    given = [jnp.asarray(array) for array in (np.ones((2, 128, 2, 64), np.float32), keys, values)]
    with jax.enable_x64(False):
        output = np.asarray(mha(*given, None, sm_scale=0.125, causal=True))[0]
    return "equal" if np.allclose(output, 1, atol=1e-2) else "other numbers"


def _heads(call, shapes):
    """Make a call of PyTorch or FlashInfer in a process: its key heads do not serve its query heads."""
    code = f"""
import torch
from torch.nn.functional import scaled_dot_product_attention as attend
query, key = (torch.ones(shape, dtype=torch.float16, device="cuda") for shape in {shapes})
{call}
"""
    # ourselves, whose exception is an error as well
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)  # noqa: S603
    return f"status {ended.returncode}" if ended.returncode < 0 else ERROR


ROWS = (
    _row("torch/cuda_no_key_heads", "HEAD-2", "scaled_dot_product_attention, two query heads, no key head",
        lambda: _heads("attend(query, key, key, enable_gqa=True)", [(1, 2, 2, 64), (1, 0, 2, 64)]),
        "status -8", ERROR, "memory"),
    _row("flashinfer/too_few_heads", "HEAD-2", "single_prefill_with_kv_cache, one query head, two key heads",
        lambda: _heads("import flashinfer as f; f.single_prefill_with_kv_cache(query, key, key)",
            [(2, 1, 64), (2, 2, 64)]),
        "status -8", ERROR, "memory"),
    _row("torch/cuda_varlen_past", "PACK-3, PACK-4", "varlen_attn, a row past the last boundary", _past,
        "other numbers", "zeros", "memory"),
    _row("torch/cuda_efficient_column", "SCORE-4", "the memory-efficient kernel, a mask of one column",
        lambda: torch_cuda("EFFICIENT_ATTENTION", *HALF, attn_mask=COLUMN), ERROR, 0.5),
    _row("torch/cuda_efficient_infinity", "NUM-11, NUM-13",
        "the memory-efficient kernel, a value of infinity",
        lambda: torch_cuda(
            "EFFICIENT_ATTENTION", *HALF[:2], np.full_like(HALF[2], np.inf), dtype="float32"),
        np.nan, np.inf),
    _row("torch/cuda_varlen_strides", "NUM-8", "varlen_attn, features that are not contiguous", _columns,
        ERROR, 1.0, "difference"),
    _row("torch/cuda_cudnn_cotangent", "GRAD-15", "the kernel of cuDNN, a cotangent by positions", _strided,
        "other numbers", "equal"),
    _row("torch/cuda_cudnn_empty_row", "MASK-6", "the kernel of cuDNN, a row without a key", _empty_row, 0.5,
        0.0),
    _row("jax/cudnn_window_end", "MASK-8", "cuDNN in JAX, a window (1, 0)", _window(1),
        0.5, 1.0),
    _row("jax/cudnn_window_size", "MASK-8", "cuDNN in JAX, a window of 2^31 keys",
        _window(2**31 - 1), ERROR, 1.0),
    _row("jax/cudnn_query_lengths", "MASK-10", "cuDNN in JAX, a length of 0 queries",
        _query_lengths, 0.5, 0.0),
    _row("jax/cudnn_mask_number", "MASK-6", "cuDNN in JAX, a row without a key",
        _mask, 0.5, 0.0),
    _row("flashinfer/lse_of_weights", "NUM-5", "single_prefill_with_kv_cache, the lse in bfloat16", _lse,
        "rounded", "exact"),
    _row("flashinfer/causal_and_mask", "MASK-4", "single_prefill_with_kv_cache, a mask and causal",
        lambda: flashinfer(*HALF, custom_mask=np.ones((2, 2), np.bool_), causal=True)[0], 0.5, 1.0),
    _row("flashinfer/far_below", "SOFT-2", "single_prefill_with_kv_cache, dot products of -61,440",
        lambda: flashinfer(*FAR), 0.0, 1.0),
    _row("flashinfer/small_softcap", "SCORE-5", "single_prefill_with_kv_cache, a softcap of 1e-7",
        lambda: flashinfer(*HALF, logits_soft_cap=1e-7)[0], 0.0154572, 0.5),
    _row("jax/pallas_causal", "MASK-3", "mha of Pallas for GPUs, causal, 128 queries and 64 keys",
        _pallas, "other numbers", "equal", "memory"),
    _row("flashinfer/not_checked", "SHAPE-6", "single_prefill_with_kv_cache, one value for two keys", _values,
        "a result", ERROR, "memory"),
    # The last row, since with other shapes the call leaves the GPU in error: a misaligned address.
    _row("torch/cuda_cudnn_bias", "SCORE-4", "the kernel of cuDNN, a bias of one number", _bias,
        "other numbers", "equal", "memory"),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
