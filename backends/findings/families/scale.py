"""A scale that is no finite number is accepted, or a scale of 0 does not give equal weights.

A scale of NaN makes a whole model NaN, far from where it arose. A scale of 0 is an ordinary number: all
allowed keys have the same weight. Where 0 stands for *no scale*, the default scale is used instead, and
nothing tells the caller.
"""

import calls
import gpu
import numpy as np
from table import ERROR, Row, show

NAN = float("nan")
ONES = [np.ones((1, 1, 2, 8), np.float32)] * 3
#: Two keys, of which only the first resembles the queries, with values of 1 and 0: equal weights give 0.5.
PEAKED = [
    np.array(rows, np.float32).reshape(1, 1, 2, 1) * np.ones(8, np.float32)
    for rows in ((3, 3), (3, 0), (1, 0))
]
_OPERATORS = "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"
_OF_A_SCALE = f'"Custom scale will be used if specified" ({_OPERATORS})'


def _nan(name, call, run, got=np.nan, value="NaN"):
    return Row(name, "ERR-6", f"{call}, a scale of {value}", run, got, ERROR)


def _zero(name, call, run, got, **facts):
    return Row(name, "SCORE-3", f"{call}, a scale of 0", run, got, 0.5, **facts)


def _openvino():
    return calls.openvino(*ONES, np.zeros((), np.float32), np.array(NAN, np.float32))


def _tvm():
    import tvm

    return calls.tvm(*ONES, scale=tvm.tirx.FloatImm("float32", NAN))


ROWS = (
    _nan("executorch/not_checked", "llama.custom_sdpa",
        lambda: calls.executorch(*ONES, causal=True, scale=NAN)),
    _nan("ggml/scale_not_finite", "ggml_flash_attn_ext", lambda: calls.ggml(*ONES, scale=NAN)),
    _nan("iree/not_checked", "iree_linalg_ext.attention",
        lambda: calls.iree(*ONES, mask=np.zeros((1, 2, 2)), scale="0x7FC00000"), 0.0),
    _nan("jax/scale_not_finite", "jax.nn.dot_product_attention", lambda: calls.jax_nn(*ONES, scale=NAN)),
    _nan("keras/not_checked", "ops.dot_product_attention on NumPy", lambda: calls.keras(*ONES, scale=NAN)),
    _nan("mlx/scale_not_finite", "fast.scaled_dot_product_attention", lambda: calls.mlx(*ONES, scale=NAN)),
    _nan("ncnn/scale_not_finite", "SDPA", lambda: calls.ncnn(*ONES, scale=float("inf")), 1.0, "infinity"),
    _nan("onnx/scale_not_finite", "Attention of the reference evaluator",
        lambda: calls.onnx(*ONES, scale=NAN)),
    _nan("onnxruntime/scale_not_finite", "Attention", lambda: calls.ort(*ONES, scale=NAN), 1.0),
    _nan("onnxruntime/mha_scale_not_finite", "MultiHeadAttention", lambda: calls.ort_mha(*ONES, scale=NAN)),
    _nan("onnxruntime/gqa_scale_not_finite", "GroupQueryAttention",
        lambda: calls.ort_gqa(*ONES, scale=NAN)[:, -1]),
    _nan("openvino/scale_not_finite", "ScaledDotProductAttention", _openvino),
    _nan("paddle/not_checked", "scaled_dot_product_attention", lambda: calls.paddle(*ONES, scale=NAN)),
    _nan("tokamax/not_checked", "dot_product_attention on XLA", lambda: calls.tokamax(*ONES, scale=NAN)),
    _nan("torch/scale_not_finite", "scaled_dot_product_attention", lambda: calls.torch_sdpa(*ONES, scale=NAN),
        0.0),
    _nan("torch/flex_scale_not_finite", "flex_attention", lambda: calls.torch_flex(*ONES, scale=NAN)),
    _nan("transformers/eager_not_checked", "eager_attention_forward",
        lambda: calls.transformers_eager(*ONES, scaling=NAN)),
    _nan("tvm/not_checked", "relax.op.nn.attention", _tvm),
    _zero("ncnn/scale_zero", "SDPA, where 0 is the documented default", lambda: calls.ncnn(*PEAKED), 1.0),
    _zero("onnxruntime/scale_zero", "Attention", lambda: calls.ort(*PEAKED, scale=0.0), ERROR),
    _zero("onnxruntime/mha_scale_zero", "MultiHeadAttention", lambda: calls.ort_mha(*PEAKED, scale=0.0), 1.0,
        rank="promise", promise=_OF_A_SCALE),
    _zero("onnxruntime/gqa_scale_zero", "GroupQueryAttention",
        lambda: calls.ort_gqa(*PEAKED, scale=0.0, causal=0), 1.0, rank="promise", promise=_OF_A_SCALE),
    _zero("paddle/scale_zero", "scaled_dot_product_attention", lambda: calls.paddle(*PEAKED, scale=0.0), 1.0,
        rank="numbers"),
    *(
        _zero("torch/cuda_scale", f"scaled_dot_product_attention of {kernel} on a GPU",
            lambda kernel=kernel: gpu.torch_cuda(kernel, *PEAKED, scale=0.0), NAN, rank="numbers", gpu=True)
        for kernel in ("FLASH_ATTENTION", "CUDNN_ATTENTION")
    ),
    _zero("jax/cudnn_scale", "jax.nn.dot_product_attention of cuDNN",
        lambda: gpu.jax_cudnn(*PEAKED, scale=0.0), NAN, rank="numbers", gpu=True),
    _zero("flashinfer/scale", "single_prefill_with_kv_cache",
        lambda: gpu.flashinfer(*PEAKED, sm_scale=0.0), 0.0153809, rank="numbers", gpu=True),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
