"""A query that may attend to nothing gives the mean of all values, or NaN, or what its sizes and dtype
decide.

Padding that is masked on both sides has such rows. The mean holds values that the mask hides, and NaN
spreads through the next layer. Which of them it is depends on the number of keys, the dtype or the form
of the mask.
"""

import calls
import numpy as np
from table import Row, show

NAN = np.nan
#: Equal keys with values of 1 and 5.
ARRAYS = [np.array(rows, np.float32).reshape(1, 1, -1, 1) for rows in ((0,), (0, 0), (1, 5))]
NO_KEY, NOTHING = np.zeros((1, 1, 1, 2), bool), np.full((1, 1, 1, 2), -np.inf, np.float32)
_OPENVINO = "https://github.com/openvinotoolkit/openvino/issues/35959 (of float32)"
_MLX = "https://github.com/ml-explore/mlx/pull/2608"


def _row(name, call, run, got, right=0.0, rules="MASK-6", known=""):
    return Row(name, rules, call, run, got, right, known=known)


def _of(dtype, arrays=ARRAYS):
    return [array.astype(dtype) for array in arrays]


def _jax_lse():
    return calls.jax_nn(*ARRAYS, mask=NO_KEY, return_residual=True)[1]


def _jax_merge():
    """Merge two parts, both empty, by their lse."""
    output, lse = calls.jax_nn(*ARRAYS, mask=NO_KEY, return_residual=True)
    parts = [(output[0, 0, 0, 0], lse.item())] * 2
    return sum(np.exp(lse - max(lse for _, lse in parts)) * part for part, lse in parts) / 2


def _keras_torch():
    """Call the function of the backend PyTorch, which adds -45850 in float16 to scores of 0 and 16."""
    import torch
    from keras.src.backend.torch.nn import dot_product_attention

    arrays = [
        torch.tensor(rows, dtype=torch.float16).view(1, -1, 1, 1) for rows in ([1.0], [0.0, 16.0], [0.0, 4.0])
    ]
    return dot_product_attention(*arrays, mask=torch.zeros(1, 1, 1, 2, dtype=torch.bool)).float().numpy()


def _openvino(dtype, query=0.0):
    arrays = _of(dtype)
    arrays[0] += dtype(query)
    return calls.openvino(*arrays, NO_KEY[0, 0])


def _paddle(count):
    ones = np.ones((1, 1, count, 1), np.float32)
    return calls.paddle(ones[:, :, :1], ones, ones, attn_mask=np.zeros((1, 1, 1, count), bool))


def _transformers(dtype, query=0.0):
    arrays = _of(dtype)
    arrays[0] += query
    return calls.transformers_eager(*arrays, mask=np.full((1, 1, 1, 2), np.finfo(dtype).min, dtype))


def _torch_nan():
    query, key = np.ones((1, 1, 2, 4), np.float32), np.ones((1, 1, 3, 4), np.float32)
    query[..., 1, :] = NAN
    return calls.torch_sdpa(query, key, key, attn_mask=np.zeros((2, 3), bool))[0, 0, :, 0]


_JAX, _EAGER, _PADDLE = (
    "jax.nn.dot_product_attention",
    "eager_attention_forward",
    "scaled_dot_product_attention on the CPU",
)
ROWS = (
    _row("jax/empty_row_mean", f"{_JAX}, mask", lambda: calls.jax_nn(*ARRAYS, mask=NO_KEY), 3.0),
    _row("jax/bias_of_nothing", f"{_JAX}, a bias of -inf", lambda: calls.jax_nn(*ARRAYS, bias=NOTHING), NAN,
        rules="MASK-2"),
    _row("jax/lse_of_nothing", f"{_JAX}, the residual", _jax_lse, -2.381976e38, -np.inf, rules="SOFT-7"),
    _row("jax/lse_of_nothing_merges", f"{_JAX}, two empty parts merged by it", _jax_merge, 3.0,
        rules="SOFT-7"),
    _row("keras/torch_empty_row_half",
        "ops.dot_product_attention on PyTorch, scores of 0 and 16 in float16; in float32 it is the mean",
        _keras_torch, 4.0),
    _row("mlx/empty_row", "fast.scaled_dot_product_attention on the CPU",
        lambda: calls.mlx(*ARRAYS, mask=NO_KEY), 3.0, known=_MLX),
    _row("mlx/empty_row", "fast.scaled_dot_product_attention on the CPU, a mask of -inf",
        lambda: calls.mlx(*ARRAYS, mask=NOTHING), NAN, known=_MLX),
    _row("openvino/float64_empty_row", "ScaledDotProductAttention in float32", lambda: _openvino(np.float32),
        NAN, known=_OPENVINO),
    _row("openvino/float64_empty_row", "ScaledDotProductAttention in float64", lambda: _openvino(np.float64),
        3.0),
    _row("openvino/float64_nan_query", "ScaledDotProductAttention in float64, a query of NaN",
        lambda: _openvino(np.float64, NAN), NAN),
    _row("paddle/empty_row_of_eight", f"{_PADDLE}, 7 keys", lambda: _paddle(7), NAN),
    _row("paddle/empty_row_of_eight", f"{_PADDLE}, 8 keys", lambda: _paddle(8), 1.0),
    _row("torch/masked_nan_query", "scaled_dot_product_attention, a query of NaN after a finite one",
        _torch_nan, [0.0, NAN], [0.0, 0.0]),
    _row("transformers/eager_empty_row_float64", f"{_EAGER} in float32", lambda: _transformers(np.float32),
        3.0),
    _row("transformers/eager_empty_row_float64", f"{_EAGER} in float64", lambda: _transformers(np.float64),
        NAN),
    _row("transformers/eager_nan_query", f"{_EAGER}, a query of NaN", lambda: _transformers(np.float32, NAN),
        NAN),
    _row(
        "x-transformers/empty_row_float64",
        "Attend, causal with more queries than keys in float64",
        lambda: calls.x_transformers(
            *_of(np.float64, [ARRAYS[1], *(x[:, :, :1] for x in ARRAYS[1:])]), causal=True
        ),
        [NAN, 1.0],
        [0.0, 1.0],
        "MASK-6, MASK-5",
    ),
    _row("x-transformers/empty_row", "Attend, the weights beside an output of 0",
        lambda: calls.x_transformers(*ARRAYS, mask=NO_KEY, weights=True), 0.5),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
