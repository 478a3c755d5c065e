"""Queries and keys, or values, without features are accepted.

No model has a depth of 0, so an axis is in the wrong place, or a slice is empty. The default scale
divides by 0.
"""

import calls
import numpy as np
from table import ERROR, Row, show

ONES, NONE = np.ones((1, 1, 2, 8), np.float32), np.ones((1, 1, 2, 0), np.float32)
NO_VALUES, NO_KEYS, NOTHING = (ONES, ONES, NONE), (NONE, NONE, ONES), (NONE, NONE, NONE)
_SIZED = {id(NO_VALUES): "values", id(NO_KEYS): "queries and keys", id(NOTHING): "all arrays"}


def _row(name, call, attend, arrays, known=""):
    def run():
        return attend(*arrays).shape[-1:]

    where, width = _SIZED[id(arrays)], arrays[2].shape[-1:]
    return Row(name, "ERR-5", f"{call}, a depth of 0 of {where}", run, width, ERROR, known=known)


_TORCH = (
    "https://github.com/pytorch/pytorch/pull/105710 proposes an error. In "
    "https://github.com/pytorch/pytorch/issues/184330 a caller needs the mean of the values instead, which "
    "https://github.com/pytorch/pytorch/pull/184914 gives."
)

ROWS = (
    _row("equinox/not_checked", "nn.MultiheadAttention", calls.equinox, NO_KEYS),
    _row("flax/not_checked", "linen.dot_product_attention", calls.linen, NOTHING),
    _row("flax/nnx_not_checked", "nnx.dot_product_attention", calls.nnx, NOTHING),
    _row("iree/not_checked", "iree_linalg_ext.attention",
        lambda q, k, v: calls.iree(q, k, v, mask=np.zeros((1, 2, 2))), NO_VALUES),
    _row("jax/depth_zero", "jax.nn.dot_product_attention", calls.jax_nn, NOTHING),
    _row("keras/not_checked", "ops.dot_product_attention on NumPy", calls.keras, NOTHING),
    _row("mlx/depth_zero", "fast.scaled_dot_product_attention", calls.mlx, NO_VALUES),
    _row("mlx/depth_zero", "fast.scaled_dot_product_attention", calls.mlx, NO_KEYS),
    _row("onnx/depth_zero", "Attention of the reference evaluator", calls.onnx, NO_VALUES),
    _row("openvino/depth_zero", "ScaledDotProductAttention", calls.openvino, NO_KEYS),
    _row("paddle/not_checked", "scaled_dot_product_attention", calls.paddle, NOTHING),
    _row("tinygrad/not_checked", "scaled_dot_product_attention", calls.tinygrad, NO_KEYS),
    _row("tokamax/not_checked", "dot_product_attention on XLA", calls.tokamax, NO_VALUES),
    _row("torch/depth_zero", "scaled_dot_product_attention", calls.torch_sdpa, NOTHING, _TORCH),
    _row("torch/flex_depth_zero", "flex_attention", calls.torch_flex, NO_VALUES),
    _row("transformers/eager_not_checked", "eager_attention_forward", calls.transformers_eager, NO_VALUES),
    _row("tvm/not_checked", "relax.op.nn.attention", calls.tvm, NO_KEYS),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
