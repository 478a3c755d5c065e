"""Arrays whose sizes do not fit are accepted: one batch entry or head is repeated, or the rest is ignored.

An axis in the wrong place is not noticed. Only the heads of keys and values may be fewer than those of
queries.
"""

import calls
import numpy as np
from table import ERROR, Row, show


def _ones(*shape):
    return np.ones(shape, np.float32)


def _shape(name, rules, call, run, got):
    return Row(name, rules, call, lambda: run().shape, got, ERROR)


def _batch(name, call, attend):
    def run():
        return attend(_ones(2, 1, 2, 8), _ones(1, 1, 2, 8), _ones(1, 1, 2, 8))

    return _shape(name, "SHAPE-6", f"{call}, two batch entries of queries and one of keys", run, (2, 1, 2, 8))


def _heads(name, call, attend, **options):
    def run():
        return attend(_ones(1, 2, 3, 8), _ones(1, 2, 3, 8), _ones(1, 1, 3, 8), **options)

    return _shape(name, "HEAD-2", f"{call}, two heads of keys and one of values", run, (1, 2, 3, 8))


def _axes(name, call, attend, got=(2, 1, 1, 2, 8), **options):
    arrays = [_ones(1, 1, 2, 8)] * 3
    return _shape(name, "ERR-15", f"{call} of five axes", lambda: attend(*arrays, **options), got)


def _swapped(attend):
    """Undo the order of axes that a call gives."""
    return lambda *arrays, **options: np.swapaxes(attend(*arrays, **options), 1, 2)


def _in_double(*arrays, **options):
    return calls.ort(*[array.astype(np.float64) for array in arrays], **options)


def _flex_heads():
    value = np.repeat(np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1), 5, axis=2)
    zeros = [np.zeros((1, heads, count, 1), np.float32) for heads, count in ((4, 3), (2, 5))]
    return calls.torch_flex(*zeros, value, enable_gqa=True, compiled=True)[0, :, 0, 0]


FIVE = np.zeros((2, 1, 1, 2, 2), np.float32)
_TORCH = "scaled_dot_product_attention"
ROWS = (
    _batch("keras/batch_repeated", "ops.dot_product_attention on NumPy", calls.keras),
    _batch("onnx/batch_repeated", "Attention of the reference evaluator", calls.onnx),
    _batch("paddle/batch_repeated", _TORCH, calls.paddle),
    _batch("torch/batch_repeated", _TORCH, calls.torch_sdpa),
    _heads("keras/not_checked", "ops.dot_product_attention on NumPy", calls.keras),
    _heads("onnx/heads_of_value", "Attention of the reference evaluator", calls.onnx),
    _heads("onnxruntime/float64_not_checked", "Attention in float64", _in_double),
    _heads("openvino/heads_of_value", "ScaledDotProductAttention", calls.openvino),
    _heads("tinygrad/not_checked", _TORCH, calls.tinygrad, enable_gqa=True),
    _heads("torch/heads_of_value", _TORCH, calls.torch_sdpa),
    _heads("torch/flex_heads_of_value", "flex_attention", calls.torch_flex),
    _heads("transformers/eager_not_checked", "eager_attention_forward", _swapped(calls.transformers_eager)),
    Row("torch/flex_compiled_heads_of_value", "HEAD-2",
        "compiled flex_attention, two heads of keys and three of values, each its number", _flex_heads,
        [0.0, 0.0, 1.0, 1.0], ERROR, compiled=True),
    Row(
        "torch/flex_compiled_batch_of_value",
        "SHAPE-6",
        "compiled flex_attention, two batch entries of keys and three of values",
        lambda: (
            calls.torch_flex(_ones(2, 2, 3, 4), _ones(2, 2, 5, 4), _ones(3, 2, 5, 4), compiled=True).shape
        ),
        (2, 2, 3, 4),
        ERROR,
        compiled=True,
    ),
    _shape("onnxruntime/float64_not_checked", "ERR-15", "Attention in float64, two keys and a mask of three",
        lambda: _in_double(*[_ones(1, 1, 2, 8)] * 3, np.zeros((2, 3)), opset=24), (1, 1, 2, 8)),
    _shape("ncnn/misfit", "SHAPE-6", "SDPA, queries of depth 4 and keys of depth 3",
        lambda: calls.ncnn(_ones(1, 1, 2, 4), _ones(1, 1, 2, 3), _ones(1, 1, 2, 4)), (1, 2, 4)),
    _shape("openvino/misfit", "HEAD-2",
        "ScaledDotProductAttention with dynamic shapes, four heads of queries and two of keys",
        lambda: calls.openvino(_ones(1, 4, 2, 2), _ones(1, 2, 3, 2), _ones(1, 2, 3, 2), dynamic=True),
        (0, 0, 0, 0)),
    _shape("openvino/larger_mask", "ERR-15", "ScaledDotProductAttention, one batch entry and a mask of three",
        lambda: calls.openvino(*[_ones(1, 1, 2, 8)] * 3, np.ones((3, 1, 2, 2), bool)), (3, 1, 2, 8)),
    _axes("flax/not_checked", "linen.dot_product_attention, a bias", calls.linen, (2, 2, 1, 1, 8), bias=FIVE),
    _axes("paddle/not_checked", "scaled_dot_product_attention, a mask", calls.paddle, attn_mask=FIVE),
    _axes("transformers/eager_not_checked", "eager_attention_forward, a mask", calls.transformers_eager,
        mask=FIVE),
    _axes("onnx/mask_of_more_axes", "Attention of the reference evaluator, a mask",
        lambda q, k, v: calls.onnx(q, k, v, np.ones((1, 1, 1, 2, 2), bool)), (1, 1, 1, 2, 8)),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
