"""Scores, weights or sums of half precision are held in half precision.

float16 has no 2049, and bfloat16 no 257. A score, a bias or a sum of that size is off by as much, and
weights by a factor. The result is right if these are held in float32 and only the output is rounded.
"""

import calls
import ml_dtypes
import numpy as np
from table import Row, show

#: Scores of 2048 and 2049, values of 0 and 1.
NEAR = [np.array([[rows]], np.float16) for rows in ([[2048, 1]], [[1, 0], [1, 1]], [[0, 0], [1, 1]])]
WEIGHT = 0.7310586  # 1 / (1 + exp(-1))


def _openvino():
    """Make scores of 3600 / sqrt(3) and 0, and a mask of -2078: the default scale is rounded."""
    arrays = [[[60, 0, 0]], [[0, 0, 0], [60, 0, 0]], [[0, 0, 0], [1, 1, 1]], [[0, -2078]]]
    return calls.openvino(*(np.array([[array]], np.float16) for array in arrays))


def _mha_bias():
    query, key = np.zeros((1, 1, 1, 4), np.float16), np.zeros((1, 1, 2, 4), np.float16)
    query[..., 0], key[..., 1, 0] = 2, 4
    return calls.torch_mha(query, key, key, attn_mask=np.full((1, 2), -20000, np.float16))[1]


def _mha_weights():
    query, key = np.full((1, 1, 1, 4), 40, np.float16), np.full((1, 1, 2, 4), 40, np.float16)
    key[..., 1, 0] = 39.96875
    return calls.torch_mha(query, key, key)[1]


def _half_sums():
    ones = np.ones((1, 1, 512, 8), ml_dtypes.bfloat16)
    return calls.onnx(ones[:, :, :1], ones, ones)


def _gradient_sums():
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    query, key = (torch.zeros(1, 1, count, 8, dtype=torch.bfloat16) for count in (512, 1))
    value = torch.zeros_like(key, requires_grad=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    output.backward(torch.full_like(query, 0.1))
    return value.grad.float().numpy()


def _row(name, rules, call, run, got, right, known=""):
    return Row(name, rules, call, run, got, right, known=known)


ROWS = (
    _row("mlx/half_scores", "NUM-5", "fast.scaled_dot_product_attention on the CPU", lambda: calls.mlx(*NEAR),
        0.5, WEIGHT),
    _row("onnxruntime/half_scores", "NUM-5", "Attention", lambda: calls.ort(*NEAR, scale=1.0), 0.5, WEIGHT),
    _row("onnx/half_sums", "NUM-6, NUM-5", "Attention of the reference evaluator, 512 equal keys in bfloat16",
        _half_sums, 2.0, 1.0),
    _row("openvino/half_scale", "NUM-5", "ScaledDotProductAttention, the default scale", _openvino, 0.434,
        0.61),
    _row("torch/flash_gradient_sums", "NUM-5",
        "scaled_dot_product_attention, the gradient of a value over 512 queries in bfloat16", _gradient_sums,
        51.5, 51.25),
    _row("torch/mha_half_bias", "MASK-5", "MultiheadAttention, a mask of -20000", _mha_bias, 0.5,
        [0.018, 0.982]),
    _row("torch/mha_half_weights", "NUM-5", "MultiheadAttention, scores of 3200 and 3199.4", _mha_weights,
        0.5, [0.651, 0.349],
        "https://github.com/pytorch/pytorch/issues/60939, which is about the overflow of these scores"),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
