"""An axis of size 0 is refused where a result exists, or gives numbers where none does.

A query without keys has the output 0, and a call without queries an output without rows. Batches of a
server and shards of a sequence can be empty. Calls that end the process or return memory that nobody
wrote are findings of their own.
"""

import calls
import numpy as np
from table import ERROR, Row, show


def _of(*counts, heads=(1, 1, 1), depth=8, dtype=np.float32):
    return [np.ones((1, head, count, depth), dtype) for head, count in zip(heads, counts, strict=True)]


def _no_keys(name, call, run, got=ERROR, rules="SHAPE-7, MASK-6"):
    return Row(name, rules, f"{call}, no keys", run, got, 0.0)


def _iree():
    return calls.iree(*_of(1, 0, 0), mask=np.zeros((1, 1, 0)), keys="?")


_FLEX = '"contain the tensor if requested" (docstring of AuxOutput of flex_attention)'
ROWS = (
    _no_keys("iree/no_keys", "iree_linalg_ext.attention with a dynamic number", _iree, np.nan),
    _no_keys("keras/numpy_no_keys", "ops.dot_product_attention on NumPy", lambda: calls.keras(*_of(1, 0, 0))),
    _no_keys("onnx/no_keys", "Attention of the reference evaluator", lambda: calls.onnx(*_of(2, 0, 0))),
    _no_keys("onnxruntime/empty_axes", "Attention", lambda: calls.ort(*_of(2, 0, 0))),
    _no_keys("tokamax/no_keys", "dot_product_attention on XLA", lambda: calls.tokamax(*_of(1, 0, 0))),
    _no_keys("torch/flex_no_keys", "flex_attention", lambda: calls.torch_flex(*_of(1, 0, 0))),
    Row("torch/flex_no_queries", "SHAPE-7", "flex_attention, return_lse=True without queries",
        lambda: calls.torch_flex(*_of(0, 3, 3), return_lse=True)[1], None, (1, 1, 0), rank="promise",
        promise=_FLEX),
    Row("litert/empty_axes", "SHAPE-7", "two products and a softmax, no queries",
        lambda: calls.litert(*_of(0, 2, 2)).shape, ERROR, (1, 1, 0, 8)),
    Row("onnxruntime/gqa_empty_axes", "SHAPE-7", "GroupQueryAttention, no queries and no keys",
        lambda: calls.ort_gqa(*_of(0, 0, 0)).shape, ERROR, (1, 0, 8)),
    Row("openvino/float64_empty", "SHAPE-7", "ScaledDotProductAttention, no batch entries in float64",
        lambda: calls.openvino(*(array[:0] for array in _of(2, 2, 2, dtype=np.float64))).shape, ERROR,
        (0, 1, 2, 8)),
    Row("transformers/sdpa_no_queries", "SHAPE-7", "sdpa_attention_forward, no queries",
        lambda: calls.transformers_sdpa(*_of(0, 2, 2)).shape, ERROR, (1, 0, 1, 8)),
    Row("paddle/not_checked", "HEAD-2", "scaled_dot_product_attention, one head of queries and none of keys",
        lambda: calls.paddle(*_of(2, 2, 2, heads=(1, 0, 0))), 0.0, ERROR),
    Row("torch/no_key_heads", "HEAD-2", "scaled_dot_product_attention, two heads of queries and none of keys",
        lambda: calls.torch_sdpa(*_of(3, 3, 3, heads=(2, 0, 0)), enable_gqa=True), 0.0, ERROR),
    Row("torch/value_of_no_positions", "SHAPE-6", "scaled_dot_product_attention, five keys and no values",
        lambda: calls.torch_sdpa(*_of(2, 5, 0)), 0.0, ERROR),
    Row("equinox/empty_axes", "SHAPE-7", "nn.MultiheadAttention without queries",
        lambda: calls.equinox(*_of(0, 2, 2)).shape, ERROR, (1, 1, 0, 8)),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
