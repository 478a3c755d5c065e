"""The result has another dtype than the queries, or fewer digits than its dtype.

Whatever follows in float32 or half precision loses the digits, or takes twice the memory, and nothing
tells the caller.
"""

import calls
import ml_dtypes
import numpy as np
from table import ERROR, Row, show

HALF, SINGLE, DOUBLE, SHORT = "float16", "float32", "float64", ml_dtypes.bfloat16


def _ones(dtype, count=2):
    return np.ones((1, 1, count, 8), dtype)


def _of(rows, dtype, depth=1):
    return np.array(rows, dtype).reshape(1, 1, len(rows), 1) * np.ones(depth, dtype)


def _dtype(name, call, run, got, right, **facts):
    return Row(name, "NUM-1", call, lambda: str(run().dtype), got, right, **facts)


def _digits(name, call, attend, query=(1.0,), key=(0.0, 1.0), **facts):
    """Compare the weight of the second of two keys with 1 / (1 + exp(-1)), whose values are 0 and 1."""

    def run():
        got = np.ravel(attend(*(_of(rows, DOUBLE) for rows in (query, key, (0.0, 1.0)))))[0]
        error = abs(float(got) - 1 / (1 + np.exp(-1)))
        return DOUBLE if error < 1e-13 else SINGLE if error < 1e-6 else HALF

    return Row(name, "NUM-2", f"{call} in float64, by its digits", run, SINGLE, DOUBLE, **facts)


def _tokamax_mixed():
    """Compare with all arrays in float64, which hold the same numbers."""
    random = np.random.default_rng(0)
    query, key, value = (random.normal(size=(1, 1, 4, 8)) for _ in range(3))
    key, value = key.astype(SHORT), value.astype(SHORT)
    exact = calls.tokamax(query, key.astype(DOUBLE), value.astype(DOUBLE))
    return DOUBLE if abs(calls.tokamax(query, key, value) - exact).max() < 1e-6 else "bfloat16"


def _bias_of_float64():
    arrays = [_of(rows, DOUBLE) for rows in ((0,), (0, 0), (5, 5))]
    return calls.jax_nn(*arrays, bias=np.full((1, 1, 1, 2), -1e300))


def _bias_rounded():
    arrays = [_of(rows, HALF) for rows in ((0,), (0, 0), (0, 1))]
    return calls.keras(*arrays, bias=np.array([[[[2048, 2049]]]], SINGLE))


def _lse_dtype():
    arrays = [_of(rows, SHORT) for rows in ((300,), (1, 1, 1), (1, 1, 1))]
    return str(calls.jax_nn(*arrays, return_residual=True)[1].dtype)


_JAX = (
    "https://github.com/jax-ml/jax/pull/21371, where a review comment proposes float64 for such inputs, and "
    "the option was left for later"
)
ROWS = (
    _dtype("flax/mixed_dtypes", "linen.dot_product_attention, keys of float32 beside bfloat16",
        lambda: calls.linen(_ones(SHORT), _ones(SINGLE), _ones(SHORT)), SINGLE, "bfloat16"),
    _dtype("flax/mixed_dtypes", "nnx.dot_product_attention, keys of float32 beside bfloat16",
        lambda: calls.nnx(_ones(SHORT), _ones(SINGLE), _ones(SHORT)), SINGLE, "bfloat16"),
    _dtype("keras/mixed_dtypes", "ops.dot_product_attention on NumPy, keys of float32 beside float16",
        lambda: calls.keras(_ones(HALF), _ones(SINGLE), _ones(SINGLE)), SINGLE, HALF),
    _dtype("mlx/mixed_dtypes", "fast.scaled_dot_product_attention, keys of float32 beside float16",
        lambda: calls.mlx(_ones(HALF), _ones(SINGLE), _ones(SINGLE)), SINGLE, HALF),
    _dtype("tinygrad/mixed_dtypes", "scaled_dot_product_attention, values of float64 beside float32",
        lambda: calls.tinygrad(_ones(SINGLE), _ones(SINGLE), _ones(DOUBLE)), DOUBLE, SINGLE),
    _dtype("keras/float64", "ops.dot_product_attention on NumPy and PyTorch, float64",
        lambda: calls.keras(*[_ones(DOUBLE)] * 3), SINGLE, DOUBLE,
        known="https://github.com/keras-team/keras/issues/23223"),
    _dtype("tvm/float16_scale", "relax.op.nn.attention, float16 beside a scale; without one it is float16",
        lambda: calls.tvm(*[_ones(HALF)] * 3, scale=0.5), SINGLE, HALF),
    Row("jax/lse_dtype", "NUM-7",
        "jax.nn.dot_product_attention, the residual beside bfloat16: 302 for 301.0986", _lse_dtype,
        "bfloat16", SINGLE),
    _digits("jax/float64", "jax.nn.dot_product_attention", calls.jax_nn, known=_JAX),
    _digits("mlx/float64", "fast.scaled_dot_product_attention on the CPU", calls.mlx),
    _digits("openvino/float64", "ScaledDotProductAttention, as documented,", calls.openvino),
    _digits("onnx/float64_scale", "Attention of the reference evaluator beside a scale of 0.5",
        lambda *arrays: calls.onnx(*arrays, scale=0.5), key=(0.0, 2.0)),
    _digits("onnxruntime/float64_scale", "Attention beside a scale of 0.5",
        lambda *arrays: calls.ort(*arrays, scale=0.5), key=(0.0, 2.0)),
    Row("onnxruntime/float64_bias_and_causal", "MASK-4", "Attention, a bias of float64 beside is_causal",
        lambda: calls.ort(*[_ones(DOUBLE)] * 3, np.zeros((2, 2)), is_causal=1), ERROR, 1.0),
    Row("tokamax/mixed_dtypes", "ERR-1",
        "dot_product_attention on XLA, queries of float64 beside bfloat16, by its digits", _tokamax_mixed,
        "bfloat16", DOUBLE),
    Row("jax/bias_of_float64", "MASK-5", "jax.nn.dot_product_attention, a bias of -1e300 in float64",
        _bias_of_float64, np.nan, 5.0),
    Row("keras/bias_rounded", "ERR-14",
        "ops.dot_product_attention on NumPy, a bias of float32 (2048 and 2049) beside float16", _bias_rounded,
        0.5, 0.7310586),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
