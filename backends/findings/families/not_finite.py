"""NaN or infinity in a query, a key or a score gives finite numbers, or NaN reaches a row that it may not.

A model that has diverged then looks healthy. In the other direction, NaN in padding destroys the rows
beside it.
"""

import calls
import numpy as np
from table import Row, show

INF, NAN = np.inf, np.nan
_LAST_DISALLOWED = np.array([[[[True, True, False]]]])


def _rows(*values):
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


def _ones(count, dtype=np.float32):
    return np.ones((1, 1, count, 4), dtype)


def _with(array, place, value):
    """Return an array with one position of another value."""
    array = array.copy()
    array[:, :, place] = value
    return array


def _half_infinity():
    key = _ones(16, np.float16)
    key[..., 1, 0] = INF
    return calls.torch_sdpa(_ones(1, np.float16), key, _ones(16, np.float16))


def _nan_gradient():
    """Differentiate with a cotangent of NaN for query 0, which may not attend to key 2."""
    import torch

    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, True, True]]).expand(1, 1, 2, 3)
    output = torch.nn.functional.scaled_dot_product_attention(query, key, key.detach(), attn_mask=mask)
    cotangent = torch.ones(1, 1, 2, 4)
    cotangent[..., 0, :] = NAN
    return str(torch.autograd.grad(output, key, cotangent)[0][0, 0, 2, 0].isnan().item())


def _masked_value():
    return calls.torch_sdpa(_ones(1), _ones(3), _with(_ones(3), 2, NAN), attn_mask=_LAST_DISALLOWED[0, 0])


_SDPA = "scaled_dot_product_attention"
ROWS = (
    Row("ggml/infinite_key", "NUM-11", "ggml_flash_attn_ext, a score of infinity",
        lambda: calls.ggml(_rows(1), _rows(0, INF), _rows(1, 5)), 5.0, NAN),
    Row("ggml/minus_infinite_first", "NUM-14",
        "ggml_flash_attn_ext, a score of -inf of the first key; of the second it has a weight of 0",
        lambda: calls.ggml(_rows(1), _rows(-INF, 0), _rows(1, 5)), NAN, 5.0),
    Row(
        "ggml/minus_infinite_sink",
        "SOFT-5",
        "ggml_flash_attn_ext, a sink of -inf and no allowed key",
        lambda: calls.ggml(
            _rows(1),
            _rows(0, 0),
            _rows(1, 5),
            np.full((1, 1, 1, 2), -INF, np.float16),
            np.array([-INF], np.float32),
        ),
        NAN,
        0.0,
    ),
    Row("keras/masked_nan_value", "MASK-13", "ops.dot_product_attention on NumPy, a disallowed value of NaN",
        lambda: calls.keras(_ones(1), _ones(3), _with(_ones(3), 2, NAN), mask=_LAST_DISALLOWED), NAN, 1.0),
    Row("ncnn/nan_key", "NUM-11", "SDPA, a key of NaN",
        lambda: calls.ncnn(_ones(1), _with(_ones(5), 1, NAN), _ones(5)), 1.0, NAN),
    Row("openvino/float64_infinity", "NUM-13, NUM-11",
        "ScaledDotProductAttention, a value of infinity in float64",
        lambda: calls.openvino(*[np.ones((1, 1, 1, 4))] * 2, np.full((1, 1, 1, 4), INF)),
        np.finfo(np.float32).max, INF),
    Row("paddle/nan_of_eight", "NUM-11", f"{_SDPA} on the CPU, a query of NaN and 8 keys; with 7 it is NaN",
        lambda: calls.paddle(_with(_ones(1), 0, NAN), _ones(8), _ones(8)), 1.0, NAN),
    Row("torch/flash_nan_query", "NUM-11", f"{_SDPA} on four axes, a query of NaN",
        lambda: calls.torch_sdpa(_with(_ones(2), 1, NAN), _ones(3), _ones(3))[0, 0, :, 0], [1.0, 0.0],
        [1.0, NAN], known="https://github.com/pytorch/pytorch/issues/141128"),
    Row("torch/flash_half_infinity", "NUM-11",
        f"{_SDPA} on four axes, a score of infinity among 16 keys in float16; among 7 it is NaN",
        _half_infinity, 0.0, NAN),
    Row("torch/flex_compiled_nan_query", "NUM-11", "compiled flex_attention, a query of NaN",
        lambda: calls.torch_flex(_with(_ones(3), 1, NAN), _ones(5), _ones(5), compiled=True)[0, 0, :, 0],
        [1.0, 0.0, 1.0], [1.0, NAN, 1.0], compiled=True),
    Row("torch/masked_nan_value", "MASK-13", f"{_SDPA}, a disallowed value of NaN", _masked_value, NAN, 1.0,
        known="https://github.com/pytorch/pytorch/issues/101967"),
    Row("torch/masked_nan_gradient", "GRAD-12",
        f"{_SDPA}, NaN in the cotangent of a query: whether a disallowed key has NaN", _nan_gradient, "True",
        "False"),
)  # fmt: skip

if __name__ == "__main__":
    show(ROWS)
