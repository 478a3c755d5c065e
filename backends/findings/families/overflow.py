"""A disallowed key of finite numbers whose score overflows makes the row NaN.

The mask is added as minus infinity, and infinity minus infinity is NaN. Without the disallowed key the
row is 1. Memory of padding that was never written can hold such numbers.
"""

import calls
import numpy as np
from table import Row, show

LARGE = np.full((1, 1, 1, 8), 1e20, np.float32)
KEYS, ONES = np.concatenate([0 * LARGE, LARGE], axis=2), np.ones((1, 1, 2, 8), np.float32)
ADDED, MASK = np.array([[[[0, -np.inf]]]], np.float32), np.array([[[[True, False]]]])


def _row(name, call, attend, known="", **options):
    return Row(name, "MASK-12", call, lambda: attend(LARGE, KEYS, ONES, **options), np.nan, 1.0, known=known)


def _torch_flex():
    import torch

    added = torch.tensor(ADDED).flatten()
    return calls.torch_flex(LARGE, KEYS, ONES, score_mod=lambda score, _b, _h, _i, j: score + added[j])


def _grouped():
    bias = np.repeat(ADDED, 2, axis=2)
    return calls.ort_gqa(np.repeat(LARGE, 2, axis=2), KEYS, ONES, bias=bias, causal=0)


ROWS = (
    _row("executorch/bias_overflow", "llama.custom_sdpa, a mask of -inf",
        lambda q, k, v: calls.executorch(q, k, v, mask=ADDED[0, 0])),
    _row("flax/bias_overflow", "linen.dot_product_attention, bias", calls.linen, bias=ADDED),
    _row("iree/masked_overflow", "iree_linalg_ext.attention, a mask of -inf", calls.iree, mask=ADDED[0]),
    _row("jax/bias_overflow", "jax.nn.dot_product_attention, bias", calls.jax_nn, bias=ADDED),
    _row("keras/bias_overflow", "ops.dot_product_attention on NumPy, bias", calls.keras, bias=ADDED),
    _row("mlx/bias_overflow", "fast.scaled_dot_product_attention, a mask of -inf", calls.mlx, mask=ADDED),
    _row("ncnn/bias_overflow", "SDPA, a mask of -inf", calls.ncnn, mask=ADDED[0]),
    _row("onnx/masked_overflow", "Attention of the reference evaluator, a boolean attn_mask",
        lambda q, k, v: calls.onnx(q, k, v, MASK[0, 0])),
    _row("onnxruntime/masked_overflow", "Attention, a boolean attn_mask",
        lambda q, k, v: calls.ort(q, k, v, MASK[0, 0])),
    _row("onnxruntime/mha_masked_overflow", "MultiHeadAttention, attention_bias", calls.ort_mha, bias=ADDED),
    Row("onnxruntime/gqa_masked_overflow", "MASK-12", "GroupQueryAttention, attention_bias", _grouped, np.nan,
        1.0),
    _row("openvino/masked_overflow", "ScaledDotProductAttention, a boolean mask",
        lambda q, k, v: calls.openvino(q, k, v, MASK[0, 0])),
    _row("paddle/masked_overflow", "scaled_dot_product_attention, a boolean attn_mask", calls.paddle,
        attn_mask=MASK),
    _row("tinygrad/mask_overflow", "scaled_dot_product_attention, a boolean attn_mask", calls.tinygrad,
        attn_mask=MASK),
    _row("tokamax/bias_overflow", "dot_product_attention on XLA, bias", calls.tokamax, bias=ADDED),
    _row("torch/masked_overflow", "scaled_dot_product_attention, a boolean attn_mask", calls.torch_sdpa,
        attn_mask=MASK),
    Row("torch/flex_bias_overflow", "MASK-12", "flex_attention, a score_mod that adds -inf", _torch_flex,
        np.nan, 1.0),
    _row("torch/mha_masked_overflow", "MultiheadAttention, a boolean attn_mask",
        lambda q, k, v: calls.torch_mha(q, k, v, attn_mask=~MASK[0, 0])[0]),
    _row("transformers/eager_overflow", "eager_attention_forward, a mask of -inf", calls.transformers_eager,
        mask=ADDED),
    _row("tvm/bias_overflow", "relax.op.nn.attention, bias", calls.tvm, bias=ADDED),
    _row("x-transformers/bias_overflow", "Attend, attn_bias", calls.x_transformers, attn_bias=ADDED),
    _row("diffusers/bias_overflow", "AttnProcessor, attention_mask", calls.diffusers, bias=ADDED),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
